"""Check the rights of a new key: values that can be used, and never more than its maker has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime

import apsw

from localmcp.api_keys.key_info import KeyInfo
from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.index.collections import Collection, choose_collections, visible_collections
from localmcp.schemas import shorten_value
from localmcp.storage.times import utc_moment, utc_text
from localmcp.tools import Scope, current_scope
from localmcp.tools.profiles import RIGHTS

RULES = ("rules", "developer rules")
"""Names under which a key is bound to the developer's rules."""
_NAME_FORMS = {"tools": re.compile(r"[A-Za-z0-9_-]{1,64}"), "providers": re.compile(r"[A-Za-z0-9_.:-]{1,100}")}


def managing_scope() -> Scope:
    """Return the scope of whoever manages keys.

    Raises:
        AccessDenied: a caller without the right `admin`.
    """
    scope = current_scope()
    if "admin" not in scope.rights:
        raise AccessDenied("API keys are managed with an admin key, or by `localmcp keys`.")
    return scope


def is_visible(info: KeyInfo, own: Scope) -> bool:
    """Return whether the caller sees every collection that the key opens."""
    return own.collections is None or (bool(info.collections) and own.collections.issuperset(info.collections or ()))


def excess(info: KeyInfo, own: Scope) -> list[str]:
    """Return what a key has more of than the caller: of scopes, collections, tools, providers and time."""
    theirs = info.scope()
    exceeded = {
        "scopes": not theirs.rights <= own.rights,
        "collections": not is_visible(info, own),
        "tools": _exceeds(theirs.tools, own.tools),
        "providers": _exceeds(theirs.provider_names, own.provider_names),
        "time": _ends_later(info.expires_at, own.expires_at),
    }
    return [part for part, is_more in exceeded.items() if is_more]


def _exceeds(names: frozenset[str] | None, own: frozenset[str] | None) -> bool:
    return own is not None and (names is None or not names <= own)


def _ends_later(end: str | None, own_end: str | None) -> bool:
    if own_end is None:
        return False
    try:
        return end is None or utc_moment(end) > utc_moment(own_end)
    except (TypeError, ValueError, OverflowError):
        return True


def bind(connection: apsw.Connection, names: Iterable[str] | None) -> str | None:
    """Return the collections as JSON for the key's row: id and name, so that a new one of that name is not opened.

    Raises:
        NotFound: no such collection.
        InvalidInput: no list, or an empty one.
    """
    if names is None and current_scope().collections is None:
        return None
    if isinstance(names, str):
        raise InvalidInput("collections: a list of names is needed, not one text.")
    chosen = visible_collections(connection) if names is None else _chosen(connection, list(names))
    if not chosen:
        raise InvalidInput("collections: name at least one, or leave it out for all.")
    return json.dumps([{"id": collection.id, "name": collection.name} for collection in chosen], ensure_ascii=False)


def _chosen(connection: apsw.Connection, names: list[str]) -> list[Collection]:
    """Return the collections of those names; `rules` means the developer's rules, unless documents are called so."""
    documents = {collection.name.casefold() for collection in visible_collections(connection)}
    rules = [name for name in names if name.casefold() in RULES and name.casefold() not in documents]
    chosen = choose_collections(connection, [name for name in names if name not in rules])
    if not rules:
        return chosen
    if not (rules_collections := visible_collections(connection, "rules")):
        raise NotFound("There are no rules yet that a key could open.", hint="Add one first: localmcp rules add")
    return [*chosen, *rules_collections]


def checked_name(name: str) -> str:
    """Return the name without the space around it."""
    name = name.strip()
    if len(name) > 100 or not name.isprintable():
        raise InvalidInput(f"name: {shorten_value(name)} cannot be a name; use at most 100 printable characters.")
    return name


def checked_scopes(scopes: Iterable[str], own: Scope) -> list[str]:
    """Return the scopes in the order of `RIGHTS`, each once.

    Raises:
        InvalidInput: none, or an unknown one.
        AccessDenied: the caller has less.
    """
    names = [scopes] if isinstance(scopes, str) else list(scopes)
    wrong = [item for item in names if item not in list(RIGHTS)]
    if wrong or not names:
        raise InvalidInput(
            f"scopes: {shorten_value(wrong[0] if wrong else names)} is no scope; use read, write or admin."
        )
    beyond = [item for item in names if not own.rights.issuperset(RIGHTS[item])]
    if beyond:
        raise AccessDenied(f"scopes: the key of this caller does not have {', '.join(beyond)}.")
    return [right for right in RIGHTS if right in names]


def checked_names(field: str, names: Iterable[str] | None, own: frozenset[str] | None) -> tuple[str, ...] | None:
    """Return the names of `tools` or `providers` that a key may have; None = all.

    Args:
        names: None = as many as the caller has.
        own: those of the caller; None = all.

    Raises:
        InvalidInput: no list, an empty one, or what cannot be a name.
        AccessDenied: one that the caller may not use.
    """
    unique = None if names is None else _usable_names(field, names)
    if own is None:
        return unique
    beyond = sorted(set(unique or ()) - own)
    if beyond:
        raise AccessDenied(f"{field}: the key of this caller does not open {', '.join(beyond)}.")
    return unique or tuple(sorted(own))


def _usable_names(field: str, names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise InvalidInput(f"{field}: a list of names is needed, not one text.")
    unique = tuple(dict.fromkeys(str(name) for name in names))
    wrong = [item for item in unique if not _NAME_FORMS[field].fullmatch(item)]
    if wrong:
        raise InvalidInput(f"{field}: {shorten_value(wrong[0])} cannot be a name.")
    if not unique:
        raise InvalidInput(f"{field}: name at least one, or leave it out for all.")
    return unique


def checked_expiry(text: str | None, own: Scope) -> str | None:
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
