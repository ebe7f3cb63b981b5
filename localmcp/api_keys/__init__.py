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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import apsw

from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.index.collections import choose_collections, visible_collections
from localmcp.index.passages import read_texts
from localmcp.schemas import did_you_mean, json_or_none, list_of, mapping_of, shorten_value
from localmcp.storage.database import Database, fetch_all, insert_row
from localmcp.storage.schema import utc_moment, utc_now, utc_text
from localmcp.storage.write_behind import WriteBehind
from localmcp.tools import Json, Registry, Scope, current_scope
from localmcp.tools.base import RIGHTS

PREFIX_LENGTH = 12
BCRYPT_COST = 10
NAMES = {"scopes": "read|write|admin", "tools": "[A-Za-z0-9_-]{1,64}", "providers": "[A-Za-z0-9_.:-]{1,100}"}
"""What the names in each list of a key may be."""


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """A key of the file, without the key itself."""

    id: str
    name: str
    prefix: str
    """Its first 12 characters."""
    scopes: tuple[str, ...]
    """Of `read`, `write`, `admin`, as given."""
    collections: tuple[str, ...] | None
    """The collections it opens; None = all. One that was renamed or dropped since is left out."""
    tools: tuple[str, ...] | None
    providers: tuple[str, ...] | None
    expires_at: str | None
    created_at: str
    last_used_at: str | None
    is_active: bool
    uses: int = 0

    @property
    def status(self) -> str:
        """`active`, `revoked` or `expired`."""
        if not self.is_active:
            return "revoked"
        try:
            is_over = self.expires_at is not None and utc_moment(self.expires_at) <= datetime.now(UTC)
        except (ValueError, OverflowError):
            # A time that cannot be read must not mean "never".
            is_over = True
        return "expired" if is_over else "active"

    def scope(self) -> Scope:
        """Return what a call with this key may reach."""
        collections, tools, providers = (
            None if names is None else frozenset(names) for names in (self.collections, self.tools, self.providers)
        )
        return Scope(
            caller=self.id,
            trusted=False,
            collections=collections,
            tools=tools,
            provider_names=providers,
            rights=frozenset(right for scope in self.scopes for right in RIGHTS.get(scope, ())),
            expires_at=self.expires_at,
        )

    @property
    def rag(self) -> str:
        """The collections as the original's log has them: `*` for all."""
        return "*" if self.collections is None else ",".join(self.collections)

    def as_json(self) -> Json:
        """Return the original's field names (`requirements.md` section 5), and ours beside them."""
        return {**asdict(self), "status": self.status}


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; it is shown only now."""

    key: str = field(repr=False)
    info: KeyInfo

    def as_json(self) -> Json:
        """Return the original's answer to `generate`."""
        warning = "Save this API key now. It will not be shown again."
        return {"success": True, "apiKey": self.key, "keyInfo": self.info.as_json(), "warning": warning}


class ApiKeys:
    """The keys of one file. Thread-safe. A key manages others only with the scope admin and bound to nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._salt = secrets.token_bytes(32)
        self._verified: dict[bytes, tuple[str, str]] = {}
        """Salted digest of a key -> its id and the hash that it was checked against."""
        self._lock = threading.Lock()
        self._uses: WriteBehind[tuple[str, str]] = WriteBehind(database, _store_uses, "use of API keys")

    def create(
        self,
        *,
        name: str = "",
        scopes: Sequence[str] | None = None,
        collections: Sequence[str] | None = None,
        tools: Sequence[str] | None = None,
        providers: Sequence[str] | None = None,
        expires_at: str | None = None,
    ) -> NewKey:
        """Make a key.

        `name`: for people, at most 100 characters. `scopes`: of `read` (for None), `write`, `admin`; each implies the
        ones before it. `collections`, `tools`, `providers`: None = all that the caller may reach. `expires_at`: ISO
        8601, in the future; without an offset it is UTC; None = never.

        A key that was made by one that expires ends with it. InvalidInput for a value that cannot be used; NotFound for
        a collection that is not there; AccessDenied if the caller may not manage keys.
        """
        own = _managing_scope()
        name = name.strip()
        if len(name) > 100 or not name.isprintable():
            raise InvalidInput(f"name: {shorten_value(name)} cannot be a name; use at most 100 printable characters.")
        if expires_at is not None:
            # As it is kept: UTC, in milliseconds.
            try:
                moment = utc_moment(expires_at)
            except (TypeError, ValueError, OverflowError) as error:
                form = "write it like 2027-01-31 or 2027-01-31T12:00Z"
                raise InvalidInput(f"expires_at: {shorten_value(expires_at)} is no date; {form}.") from error
            if moment <= datetime.now(UTC):
                raise InvalidInput(f"expires_at: {expires_at} has passed.")
            expires_at = utc_text(moment)
        lists = (("scopes", ["read"] if scopes is None else scopes), ("tools", tools), ("providers", providers))
        key = "mcp_" + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(32))
        row: Json = {
            "id": str(uuid.uuid4()),
            "prefix": key[:PREFIX_LENGTH],
            "name": name,
            **{name: None if names is None else json.dumps(_checked_names(name, names)) for name, names in lists},
            # Both are UTC in one form.
            "expires_at": min(filter(None, (expires_at, own.expires_at)), default=None),
            "created_at": utc_now(),
            "key_hash": _hash(key),
        }
        with self._database.write() as connection:
            row["collections"] = _bind(connection, collections)
            insert_row(connection, "api_keys", row)
            return NewKey(key, _read_keys(connection, "id = ?", row["id"])[0][0])

    def list(self, collection: str | None = None) -> list[KeyInfo]:
        """Return every key, the newest first; with `collection` those that open it.

        NotFound if there is no such collection; AccessDenied if the caller may not manage keys.
        """
        _managing_scope()
        if not self._database.path.exists():
            return []
        self._uses.flush()
        with self._database.read() as connection:
            name = choose_collections(connection, [collection])[0].name if collection is not None else None
            keys = [info for info, _ in _read_keys(connection, "true")]
        return [key for key in keys if name is None or key.collections is None or name in key.collections]

    def find(self, text: str) -> KeyInfo:
        """Return the key of that id, of that beginning (12 characters, or the whole key), or of that name.

        NotFound if there is none; InvalidInput if several keys are called so.
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

        NotFound if there is no such key; AccessDenied if the caller may not manage keys.
        """
        return self._change(key_id, "update api_keys set is_active = 0 where id = ?")

    def delete(self, key_id: str) -> KeyInfo:
        """Remove a key; return what it was. Raises as `revoke`."""
        return self._change(key_id, "delete from api_keys where id = ?")

    def _change(self, key_id: str, sql: str) -> KeyInfo:
        _managing_scope()
        if self._database.path.exists():
            with self._database.write() as connection:
                if before := _read_keys(connection, "id = ?", key_id):
                    connection.execute(sql, (key_id,))
                    return (_read_keys(connection, "id = ?", key_id) or before)[0][0]
        raise NotFound(f"No API key '{key_id}'.", hint="List them with: localmcp keys list")

    def verify(self, key: str) -> KeyInfo:
        """Return the key's row, read now, so that a revoke in another process counts at once; notes the use.

        The first time in a process it costs a bcrypt check (some 60 ms), whether the key is known or not. AccessDenied
        if it is missing, malformed, unknown, revoked or expired (only its holder learns of the last two);
        FileUnavailable if the file cannot be read.
        """
        if not re.fullmatch(r"mcp_[A-Za-z0-9]{32}", key):
            raise AccessDenied("Invalid API key.")
        digest = self._digest(key)
        key_id, checked_hash = self._verified.get(digest, ("", ""))
        rows = self._trusted_rows("id = ?", key_id) if key_id else []
        info = next((info for info, key_hash in rows if key_hash == checked_hash), None)
        if info is None:
            import bcrypt

            rows, checked_hash = self._trusted_rows("prefix = ?", key[:PREFIX_LENGTH]), ""
            # The time it takes must not tell whether a key begins like one of ours.
            for row_id, key_hash in rows or [(None, self._nobodys_hash)]:
                # What is not a bcrypt hash is nobody's key.
                with suppress(ValueError):
                    if bcrypt.checkpw(key.encode(), key_hash.encode()):
                        info, checked_hash = row_id, key_hash
            if info is None:
                raise AccessDenied("Invalid API key.")
            with self._lock:
                if len(self._verified) >= 1000:
                    del self._verified[next(iter(self._verified))]
                self._verified[digest] = (info.id, checked_hash)
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

    def close(self) -> None:
        """Write the uses that wait."""
        self._uses.close()

    def _digest(self, key: str) -> bytes:
        return hashlib.sha256(self._salt + key.encode()).digest()

    def _trusted_rows(self, where: str, value: str) -> list[tuple[KeyInfo, str]]:
        # None of a file from somebody else: whoever made it knows its keys.
        if not self._database.path.exists():
            return []
        with self._database.read() as connection:
            return _read_keys(connection, where, value) if self._database.adopted else []

    @cached_property
    def _nobodys_hash(self) -> str:
        return _hash(secrets.token_hex(16))


def _read_keys(connection: apsw.Connection, where: str, *bindings: str) -> list[tuple[KeyInfo, str]]:
    # With their hashes, the newest first. A list that cannot be read is empty, and so opens nothing.
    rows = fetch_all(
        connection,
        f"""
        select id, name, prefix, scopes, collections, tools, providers, expires_at, created_at, last_used_at,
               is_active, uses, key_hash
        from api_keys where {where} order by created_at desc, rowid desc
        """,
        bindings,
    )
    existing: set[tuple[Any, ...]] = set()
    if any(row[4] is not None for row in rows):
        existing = set(fetch_all(connection, "select id, name from collections"))

    def strings(text: str | None) -> tuple[str, ...] | None:
        return None if text is None else tuple(read_texts(text))

    keys: list[tuple[KeyInfo, str]] = []
    for key_id, name, prefix, scopes, bound_to, tools, providers, *times, is_active, uses, key_hash in rows:
        collections = None
        if bound_to is not None:
            # A key is bound to id and name, so that a new collection of that name is not opened.
            bound = map(mapping_of, list_of(json_or_none(bound_to)))
            pairs = [(collection.get("id"), collection.get("name")) for collection in bound]
            collections = tuple(str(pair[1]) for pair in pairs if isinstance(pair[0], int) and pair in existing)
        limits = (strings(scopes) or (), collections, strings(tools), strings(providers))
        values: list[Any] = [key_id, name, prefix, *limits, *times, is_active == 1, uses]
        keys.append((KeyInfo(*values), key_hash))
    return keys


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


def _managing_scope() -> Scope:
    own = current_scope()
    is_bound = (own.collections, own.tools, own.provider_names) != (None, None, None)
    if is_bound or "admin" not in own.rights:
        raise AccessDenied("API keys are managed with an admin key that is bound to nothing, or by `localmcp keys`.")
    return own


def _bind(connection: apsw.Connection, names: Any) -> str | None:
    # As JSON for the key's row: id and name, so that a new collection of that name is not opened. `rules` means the
    # developer's rules, unless documents are called so.
    if names is None:
        return None
    documents = {collection.name.casefold() for collection in visible_collections(connection)}
    names = _checked_names("collections", names)
    rules = [name for name in names if name.casefold() in {"rules", "developer rules"} - documents]
    of_rules = visible_collections(connection, "rules") if rules else []
    if rules and not of_rules:
        raise NotFound("There are no rules yet that a key could open.", hint="Add one first: localmcp rules add")
    chosen = [*choose_collections(connection, [name for name in names if name not in rules]), *of_rules]
    return json.dumps([{"id": collection.id, "name": collection.name} for collection in chosen], ensure_ascii=False)


def _checked_names(list_name: str, names: Any) -> list[str]:
    if isinstance(names, str) or not names:
        raise InvalidInput(f"{list_name}: name at least one, in a list, or leave it out.")
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(NAMES.get(list_name, ".*"), name):
            is_scope = list_name == "scopes"
            says = "is no scope; use read, write or admin" if is_scope else "cannot be a name"
            raise InvalidInput(f"{list_name}: {shorten_value(name)} {says}.")
    return list(dict.fromkeys(names))


def unknown_names(registry: Registry, database: Database, limits: Json) -> Iterator[str]:
    """Yield a sentence for each tool and collection that a profile names and that is not there.

    Tools of connected servers are not looked for, which could start these.
    """
    for name in sorted(limits.get("tools") or ()):
        if "__" not in name and registry.find(name) is None:
            names = (tool.name for tool in registry.tools(for_listing=True))
            yield f"Unknown tool: {name}. {did_you_mean(name, names)}".rstrip()
    if not limits.get("collections") or not database.path.exists():
        return
    with database.read() as connection:
        existing = [str(name) for (name,) in connection.execute("select name from collections")]
    for name in sorted(limits["collections"].difference(existing)):
        yield f"No collection '{name}'. {did_you_mean(name, existing)}".rstrip()
