"""What the file holds of a key: everything but the key."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import apsw

from localmcp.schemas import list_of, mapping_of
from localmcp.storage.database import fetch_all
from localmcp.storage.times import utc_moment
from localmcp.tools import Json, Scope
from localmcp.tools.profiles import RIGHTS


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
    """Requests it has opened."""

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


def read_keys(connection: apsw.Connection, where: str, bindings: tuple[Any, ...]) -> list[tuple[KeyInfo, str]]:
    """Return keys with their hashes, the newest first."""
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
    keys: list[tuple[KeyInfo, str]] = []
    for key_id, name, prefix, scopes, bound_to, tools, providers, *times, is_active, uses, key_hash in rows:
        collections = None
        if bound_to is not None:
            # A key is bound to id and name, so that a new collection of that name is not opened.
            bindings_of_key = [mapping_of(binding) for binding in _parsed(bound_to)]
            pairs = [(binding.get("id"), binding.get("name")) for binding in bindings_of_key]
            collections = tuple(str(pair[1]) for pair in pairs if isinstance(pair[0], int) and pair in existing)
        limits = (_strings(scopes) or (), collections, _strings(tools), _strings(providers))
        values: list[Any] = [key_id, name, prefix, *limits, *times, is_active == 1, uses]
        keys.append((KeyInfo(*values), key_hash))
    return keys


def _parsed(text: str) -> list[Any]:
    """Return a stored list; one that cannot be read is empty and so opens nothing."""
    try:
        return list_of(json.loads(text))
    except ValueError:
        return []


def _strings(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name for name in _parsed(text) if isinstance(name, str))
