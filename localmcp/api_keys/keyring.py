"""The keys of one file: made, shown once, kept as bcrypt hashes, and verified on every request (S3-10, S3-11)."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import string
import threading
import uuid
from collections import Counter
from collections.abc import Iterable
from functools import cached_property

import apsw

from localmcp.api_keys.grants import (
    bind,
    checked_expiry,
    checked_name,
    checked_names,
    checked_scopes,
    excess,
    is_visible,
    managing_scope,
)
from localmcp.api_keys.key_info import KeyInfo, NewKey, read_keys
from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.index.collections import choose_collections
from localmcp.storage.database import Database, insert_row
from localmcp.storage.times import utc_now
from localmcp.storage.write_behind import WriteBehind
from localmcp.tools import Json

PREFIX_LENGTH = 12
BCRYPT_COST = 10
REMEMBERED = 1000
"""Keys whose bcrypt check has succeeded and need not be made again."""

_LETTERS = string.ascii_letters + string.digits
_KEY = re.compile(r"mcp_[A-Za-z0-9]{32}")


class ApiKeys:
    """The keys of one file. Thread-safe.

    Whoever manages keys does so in a scope: a caller that is bound to some collections, tools or providers sees and
    makes only keys that open no more than its own.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._salt = secrets.token_bytes(32)
        self._verified: dict[bytes, tuple[str, str]] = {}
        """Salted digest of a key -> its id and the hash that it was checked against."""
        self._lock = threading.Lock()
        self._uses: WriteBehind[tuple[str, str]] = WriteBehind(database, _store_uses, "use of API keys")

    # ------------------------------------------------------------ managing

    def create(
        self,
        *,
        name: str = "",
        scopes: Iterable[str] = ("read",),
        collections: Iterable[str] | None = None,
        tools: Iterable[str] | None = None,
        providers: Iterable[str] | None = None,
        expires_at: str | None = None,
    ) -> NewKey:
        """Make a key.

        Args:
            name: for people, at most 100 characters.
            scopes: of `read`, `write`, `admin`; each implies the ones before it.
            collections, tools, providers: names; None = all that the caller may reach.
            expires_at: ISO 8601, in the future; without an offset it is UTC. None = never.

        Raises:
            InvalidInput: a value that cannot be used.
            NotFound: no such collection.
            AccessDenied: the caller may not manage keys, or would give away more than it has.
        """
        own = managing_scope()
        key = "mcp_" + "".join(secrets.choice(_LETTERS) for _ in range(32))
        row: Json = {
            "id": str(uuid.uuid4()),
            "prefix": key[:PREFIX_LENGTH],
            "name": checked_name(name),
            "scopes": json.dumps(checked_scopes(scopes, own)),
            "tools": checked_names("tools", tools, own.tools),
            "providers": checked_names("providers", providers, own.provider_names),
            "expires_at": checked_expiry(expires_at, own),
            "created_at": utc_now(),
        }
        row["key_hash"] = _hash(key)
        with self._database.write() as connection:
            row["collections"] = bind(connection, collections)
            insert_row(connection, "api_keys", row)
            info = read_keys(connection, "id = ?", (row["id"],))[0][0]
        return NewKey(key, info)

    def list(self, collection: str | None = None) -> list[KeyInfo]:
        """Return every key, the newest first; with `collection` those that open it.

        Raises:
            NotFound: no such collection.
            AccessDenied: the caller may not manage keys.
        """
        own = managing_scope()
        if not self._database.path.exists():
            return []
        self._uses.flush()
        with self._database.read() as connection:
            name = choose_collections(connection, [collection])[0].name if collection is not None else None
            keys = [info for info, _ in read_keys(connection, "true", ()) if is_visible(info, own)]
        return [key for key in keys if name is None or key.collections is None or name in key.collections]

    def find(self, text: str) -> KeyInfo:
        """Return the key of that id, of that beginning (12 characters, or the whole key), or of that name.

        Raises:
            NotFound: there is none, or the caller may not see it.
            InvalidInput: several keys are called so.
        """
        keys = self.list()
        beginning = text[:PREFIX_LENGTH] if text.startswith("mcp_") and len(text) >= PREFIX_LENGTH else None
        matches = [key for key in keys if key.id == text or key.prefix == beginning]
        matches = matches or [key for key in keys if text and key.name == text]
        if not matches:
            # The text may be a key that was mistyped, and errors are shown and kept.
            raise NotFound(f"No API key '{beginning or text}'.", hint="List them with: localmcp keys list")
        if len(matches) > 1:
            ids = ", ".join(key.id for key in matches[:5])
            raise InvalidInput(f"{len(matches)} API keys are called '{text}'.", hint=f"Name one by its id: {ids}.")
        return matches[0]

    def revoke(self, key_id: str) -> KeyInfo:
        """Make a key useless at once, in every process; it stays listed.

        Raises:
            NotFound: no key of that id, or the caller may not see it.
            AccessDenied: it has more than the caller's.
        """
        return self._change(key_id, "update api_keys set is_active = 0 where id = ?")

    def delete(self, key_id: str) -> KeyInfo:
        """Remove a key; returns what it was.

        Raises:
            NotFound: no key of that id, or the caller may not see it.
            AccessDenied: it has more than the caller's.
        """
        return self._change(key_id, "delete from api_keys where id = ?")

    def _change(self, key_id: str, sql: str) -> KeyInfo:
        own = managing_scope()
        if not self._database.path.exists():
            raise NotFound(f"No API key '{key_id}'.")
        with self._database.write() as connection:
            before = read_keys(connection, "id = ?", (key_id,))
            if not before or not is_visible(before[0][0], own):
                raise NotFound(f"No API key '{key_id}'.", hint="List them with: localmcp keys list")
            if beyond := excess(before[0][0], own):
                raise AccessDenied(f"The key '{key_id}' has more than the key of this caller: {', '.join(beyond)}.")
            connection.execute(sql, (key_id,))
            after = read_keys(connection, "id = ?", (key_id,))
        return (after or before)[0][0]

    # ------------------------------------------------------------ using

    def verify(self, key: str) -> KeyInfo:
        """Return the key's row, read now, so that a revoke in another process counts at once; notes the use.

        The first time in a process it costs a bcrypt check (some 60 ms), whether the key is known or not.

        Raises:
            AccessDenied: missing, malformed, unknown, revoked or expired. Only the holder of a key learns that it was
                revoked or has expired.
            FileUnavailable: the file cannot be read.
        """
        if not key:
            raise AccessDenied("An API key is required.", hint="Make one with: localmcp keys create")
        if not _KEY.fullmatch(key):
            raise AccessDenied("Invalid API key.")
        digest = self._digest(key)
        info = self._look_up(key, digest)
        if info is None:
            raise AccessDenied("Invalid API key.")
        if info.status != "active":
            raise AccessDenied(f"The API key is {info.status}.", hint="Make another with: localmcp keys create")
        self._uses.add((info.id, utc_now()))
        return info

    def has_verified(self, key: str) -> bool:
        """Return whether `verify` has seen this key before, so that it needs no bcrypt check now."""
        return self._digest(key) in self._verified

    def has_beginning_of(self, key: str) -> bool:
        """Return whether any key begins as this one does; a guess does so once in 10^14 times."""
        return bool(self._trusted_rows("prefix = ?", key[:PREFIX_LENGTH]))

    def read(self, key_id: str) -> KeyInfo | None:
        """Return what the key of that id opens now; asking is no use of it. None if it is gone."""
        return next((info for info, _ in self._trusted_rows("id = ?", key_id)), None)

    def _digest(self, key: str) -> bytes:
        return hashlib.sha256(self._salt + key.encode()).digest()

    def close(self) -> None:
        """Write the uses that wait."""
        self._uses.close()

    def _look_up(self, key: str, digest: bytes) -> KeyInfo | None:
        """Return the row of a key; bcrypt is asked, unless it was before and the row has the same hash."""
        key_id, checked_hash = self._verified.get(digest, ("", ""))
        for info, key_hash in self._trusted_rows("id = ?", key_id) if key_id else ():
            if key_hash == checked_hash:
                return info
        rows = self._trusted_rows("prefix = ?", key[:PREFIX_LENGTH])
        if not rows:
            # The time it takes must not tell whether a key begins like one of ours.
            _matches(key, self._nobodys_hash)
        for info, key_hash in rows:
            if _matches(key, key_hash):
                with self._lock:
                    if len(self._verified) >= REMEMBERED:
                        del self._verified[next(iter(self._verified))]
                    self._verified[digest] = (info.id, key_hash)
                return info
        return None

    def _trusted_rows(self, where: str, value: str) -> list[tuple[KeyInfo, str]]:
        """Return rows, but none of a file from somebody else: whoever made it knows its keys."""
        if not self._database.path.exists():
            return []
        with self._database.read() as connection:
            return read_keys(connection, where, (value,)) if self._database.adopted else []

    @cached_property
    def _nobodys_hash(self) -> str:
        return _hash(secrets.token_hex(16))


def _store_uses(connection: apsw.Connection, uses: list[tuple[str, str]]) -> None:
    latest = dict(uses)
    for key_id, count in Counter(key_id for key_id, _ in uses).items():
        connection.execute(
            "update api_keys set uses = uses + ?, last_used_at = max(coalesce(last_used_at, ''), ?) where id = ?",
            (count, latest[key_id], key_id),
        )


def _hash(key: str) -> str:
    import bcrypt

    return bcrypt.hashpw(key.encode(), bcrypt.gensalt(BCRYPT_COST)).decode()


def _matches(key: str, key_hash: str) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(key.encode(), key_hash.encode())
    except ValueError:
        # Not a bcrypt hash: nobody's key.
        return False
