"""What the file holds of a key: everything but the key."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import apsw

from localmcp.schemas import list_of
from localmcp.storage.database import fetch_all
from localmcp.storage.times import utc_moment
from localmcp.tools import Json, Scope
from localmcp.tools.profiles import RIGHTS

WARNING = "Save this API key now. It will not be shown again."


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
        return "expired" if _is_over(self.expires_at) else "active"

    def scope(self) -> Scope:
        """Return what a call with this key may reach."""
        return Scope(
            caller=self.id,
            trusted=False,
            collections=_frozen(self.collections),
            tools=_frozen(self.tools),
            provider_names=_frozen(self.providers),
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
        return {"success": True, "apiKey": self.key, "keyInfo": self.info.as_json(), "warning": WARNING}


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
    names: dict[int, str] = {}
    if any(row[4] is not None for row in rows):
        names = dict(fetch_all(connection, "select id, name from collections"))
    return [(_info(row, names), row[12]) for row in rows]


def _info(row: tuple[Any, ...], names: dict[int, str]) -> KeyInfo:
    return KeyInfo(
        id=row[0],
        name=row[1],
        prefix=row[2],
        scopes=_strings(row[3]) or (),
        collections=_still_there(row[4], names),
        tools=_strings(row[5]),
        providers=_strings(row[6]),
        expires_at=row[7],
        created_at=row[8],
        last_used_at=row[9],
        is_active=row[10] == 1,
        uses=row[11],
    )


def _parsed(text: str) -> list[Any]:
    """Return a stored list; one that cannot be read is empty and so opens nothing."""
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return list_of(value)


def _strings(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name for name in _parsed(text) if isinstance(name, str))


def _still_there(text: str | None, names: dict[int, str]) -> tuple[str, ...] | None:
    """Return the collections that still have the name under which the key was bound to them."""
    if text is None:
        return None
    bound = [cast(Json, binding) for binding in _parsed(text) if isinstance(binding, dict)]
    there = set(names.items())
    return tuple(name for binding in bound if (name := str(binding.get("name"))) and (_id_of(binding), name) in there)


def _id_of(bound: Json) -> int:
    value = bound.get("id")
    return value if isinstance(value, int) else 0


def _is_over(expires_at: str | None) -> bool:
    if expires_at is None:
        return False
    try:
        return utc_moment(expires_at) <= datetime.now(UTC)
    except (ValueError, OverflowError):
        # A time that cannot be read must not mean "never".
        return True


def _frozen(names: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
