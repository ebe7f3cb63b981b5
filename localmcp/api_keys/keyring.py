"""The keys of one file: made, shown once, kept as bcrypt hashes, and verified on every request (S3-10, S3-11).

A key never has more than its maker.
"""

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
from datetime import UTC, datetime
from functools import cached_property

import apsw

from localmcp.api_keys.key_info import KeyInfo, NewKey, read_keys
from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.index.collections import choose_collections, visible_collections
from localmcp.schemas import shorten_value
from localmcp.storage.database import Database, insert_row
from localmcp.storage.times import utc_moment, utc_now, utc_text
from localmcp.storage.write_behind import WriteBehind
from localmcp.tools import Json, Scope, current_scope
from localmcp.tools.profiles import RIGHTS

PREFIX_LENGTH = 12
BCRYPT_COST = 10


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
        own = _managing_scope()
        name = name.strip()
        if len(name) > 100 or not name.isprintable():
            raise InvalidInput(f"name: {shorten_value(name)} cannot be a name; use at most 100 printable characters.")
        key = "mcp_" + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(32))
        row: Json = {
            "id": str(uuid.uuid4()),
            "prefix": key[:PREFIX_LENGTH],
            "name": name,
            "scopes": json.dumps(_checked_scopes(scopes, own)),
            "tools": _checked_names("tools", tools, own.tools),
            "providers": _checked_names("providers", providers, own.provider_names),
            "expires_at": _checked_expiry(expires_at, own),
            "created_at": utc_now(),
        }
        row["key_hash"] = _hash(key)
        with self._database.write() as connection:
            row["collections"] = _bind(connection, collections)
            insert_row(connection, "api_keys", row)
            info = read_keys(connection, "id = ?", (row["id"],))[0][0]
        return NewKey(key, info)

    def list(self, collection: str | None = None) -> list[KeyInfo]:
        """Return every key, the newest first; with `collection` those that open it.

        Raises:
            NotFound: no such collection.
            AccessDenied: the caller may not manage keys.
        """
        own = _managing_scope()
        if not self._database.path.exists():
            return []
        self._uses.flush()
        with self._database.read() as connection:
            name = choose_collections(connection, [collection])[0].name if collection is not None else None
            keys = [info for info, _ in read_keys(connection, "true", ()) if _is_visible(info, own)]
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
        own = _managing_scope()
        if not self._database.path.exists():
            raise NotFound(f"No API key '{key_id}'.")
        with self._database.write() as connection:
            before = read_keys(connection, "id = ?", (key_id,))
            if not before or not _is_visible(before[0][0], own):
                raise NotFound(f"No API key '{key_id}'.", hint="List them with: localmcp keys list")
            theirs, end = before[0][0].scope(), before[0][0].expires_at
            more = {
                "scopes": not theirs.rights <= own.rights,
                "tools": not _within(theirs.tools, own.tools),
                "providers": not _within(theirs.provider_names, own.provider_names),
                "time": _ends_later(end, own.expires_at),
            }
            if any(more.values()):
                parts = ", ".join(part for part, is_more in more.items() if is_more)
                raise AccessDenied(f"The key '{key_id}' has more than the key of this caller: {parts}.")
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
        info = self._look_up(key) if re.fullmatch(r"mcp_[A-Za-z0-9]{32}", key) else None
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

    def _look_up(self, key: str) -> KeyInfo | None:
        """Return the row of a key; bcrypt is asked, unless it was before and the row has the same hash."""
        digest = self._digest(key)
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
                    if len(self._verified) >= 1000:
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


# ---------------------------------------------------------------- what a new key may have


def _managing_scope() -> Scope:
    """Return the scope of whoever manages keys.

    Raises:
        AccessDenied: a caller without the right `admin`.
    """
    scope = current_scope()
    if "admin" not in scope.rights:
        raise AccessDenied("API keys are managed with an admin key, or by `localmcp keys`.")
    return scope


def _is_visible(info: KeyInfo, own: Scope) -> bool:
    """Return whether the caller sees every collection that the key opens."""
    return own.collections is None or (bool(info.collections) and own.collections.issuperset(info.collections or ()))


def _within(theirs: frozenset[str] | None, own: frozenset[str] | None) -> bool:
    """Return whether one limit is within another; None = no limit."""
    return own is None or (theirs is not None and theirs <= own)


def _ends_later(end: str | None, own_end: str | None) -> bool:
    if own_end is None:
        return False
    try:
        return end is None or utc_moment(end) > utc_moment(own_end)
    except (TypeError, ValueError, OverflowError):
        return True


def _bind(connection: apsw.Connection, names: Iterable[str] | None) -> str | None:
    """Return the collections as JSON for the key's row: id and name, so that a new one of that name is not opened.

    `rules` means the developer's rules, unless documents are called so.

    Raises:
        NotFound: no such collection.
        InvalidInput: no list, or an empty one.
    """
    if names is None and current_scope().collections is None:
        return None
    if isinstance(names, str):
        raise InvalidInput("collections: a list of names is needed, not one text.")
    chosen = visible_collections(connection)
    if names is not None:
        asked, documents = list(names), {collection.name.casefold() for collection in chosen}
        names_of_rules = {"rules", "developer rules"} - documents
        rules = [name for name in asked if name.casefold() in names_of_rules]
        of_rules = visible_collections(connection, "rules") if rules else []
        if rules and not of_rules:
            raise NotFound("There are no rules yet that a key could open.", hint="Add one first: localmcp rules add")
        chosen = [*choose_collections(connection, [name for name in asked if name not in rules]), *of_rules]
    if not chosen:
        raise InvalidInput("collections: name at least one, or leave it out for all.")
    return json.dumps([{"id": collection.id, "name": collection.name} for collection in chosen], ensure_ascii=False)


def _checked_scopes(scopes: Iterable[str], own: Scope) -> list[str]:
    """Return the scopes in the order of `RIGHTS`, each once.

    Raises:
        InvalidInput: none, or an unknown one.
        AccessDenied: the caller has less.
    """
    names = [scopes] if isinstance(scopes, str) else list(scopes)
    for name in names or [[]]:
        if name not in list(RIGHTS):
            raise InvalidInput(f"scopes: {shorten_value(name)} is no scope; use read, write or admin.")
        if not own.rights.issuperset(RIGHTS[str(name)]):
            raise AccessDenied(f"scopes: the key of this caller does not have {name}.")
    return [right for right in RIGHTS if right in names]


def _checked_names(field: str, names: Iterable[str] | None, own: frozenset[str] | None) -> str | None:
    """Return the names of `tools` or `providers` that a key may have, as JSON; None = all.

    Args:
        names: None = as many as the caller has.
        own: those of the caller; None = all.

    Raises:
        InvalidInput: no list, an empty one, or what cannot be a name.
        AccessDenied: one that the caller may not use.
    """
    if isinstance(names, str):
        raise InvalidInput(f"{field}: a list of names is needed, not one text.")
    unique = None if names is None else list(dict.fromkeys(map(str, names)))
    if unique == []:
        raise InvalidInput(f"{field}: name at least one, or leave it out for all.")
    form = r"[A-Za-z0-9_-]{1,64}" if field == "tools" else r"[A-Za-z0-9_.:-]{1,100}"
    for name in unique or ():
        if not re.fullmatch(form, name):
            raise InvalidInput(f"{field}: {shorten_value(name)} cannot be a name.")
        if own is not None and name not in own:
            raise AccessDenied(f"{field}: the key of this caller does not open {name}.")
    allowed = unique if unique is not None or own is None else sorted(own)
    return None if allowed is None else json.dumps(allowed)


def _checked_expiry(text: str | None, own: Scope) -> str | None:
    """Return the end of a key as it is kept: UTC, in milliseconds; the caller's own end for None.

    Raises:
        InvalidInput: it is no time, or has passed.
        AccessDenied: it is after the caller's own end.
    """
    if text is None:
        return own.expires_at
    try:
        moment = utc_moment(text)
    except (TypeError, ValueError, OverflowError) as error:
        form = "write it like 2027-01-31 or 2027-01-31T12:00Z"
        raise InvalidInput(f"expires_at: {shorten_value(text)} is no date; {form}.") from error
    if moment <= datetime.now(UTC):
        raise InvalidInput(f"expires_at: {text} has passed.")
    if _ends_later(text, own.expires_at):
        raise AccessDenied(f"expires_at: the key of this caller ends at {own.expires_at}, before {text}.")
    return utc_text(moment)
