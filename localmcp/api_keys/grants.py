"""Check the rights of a new key: values that can be used, and never more than its maker has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime

import apsw

from localmcp.api_keys.key_info import KeyInfo
from localmcp.errors import AccessDenied, InvalidInput, NotFound
from localmcp.index.collections import choose_collections, visible_collections
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
    """Return what a key has more of than the caller: of scopes, tools, providers and time."""
    theirs = info.scope()
    exceeded = {
        "scopes": not theirs.rights <= own.rights,
        "tools": own.tools is not None and (theirs.tools is None or not theirs.tools <= own.tools),
        "providers": own.provider_names is not None
        and (theirs.provider_names is None or not theirs.provider_names <= own.provider_names),
        "time": _ends_later(info.expires_at, own.expires_at),
    }
    return [part for part, is_more in exceeded.items() if is_more]


def _ends_later(end: str | None, own_end: str | None) -> bool:
    if own_end is None:
        return False
    try:
        return end is None or utc_moment(end) > utc_moment(own_end)
    except (TypeError, ValueError, OverflowError):
        return True


def bind(connection: apsw.Connection, names: Iterable[str] | None) -> str | None:
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
        rules = [name for name in asked if name.casefold() in RULES and name.casefold() not in documents]
        of_rules = visible_collections(connection, "rules") if rules else []
        if rules and not of_rules:
            raise NotFound("There are no rules yet that a key could open.", hint="Add one first: localmcp rules add")
        chosen = [*choose_collections(connection, [name for name in asked if name not in rules]), *of_rules]
    if not chosen:
        raise InvalidInput("collections: name at least one, or leave it out for all.")
    return json.dumps([{"id": collection.id, "name": collection.name} for collection in chosen], ensure_ascii=False)


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


def checked_names(field: str, names: Iterable[str] | None, own: frozenset[str] | None) -> str | None:
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
    for name in unique or ():
        if not _NAME_FORMS[field].fullmatch(name):
            raise InvalidInput(f"{field}: {shorten_value(name)} cannot be a name.")
        if own is not None and name not in own:
            raise AccessDenied(f"{field}: the key of this caller does not open {name}.")
    allowed = unique if unique is not None or own is None else sorted(own)
    return None if allowed is None else json.dumps(allowed)


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
