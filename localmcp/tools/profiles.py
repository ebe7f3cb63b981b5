"""Profiles: what an assistant that is started with `--profile NAME` may reach, from the user's `profiles.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, cast

from localmcp.config import config_directory
from localmcp.errors import ConfigurationError
from localmcp.humanize import choices
from localmcp.schemas import one_or_more

RIGHTS = {"read": {"read"}, "write": {"read", "write"}, "admin": {"read", "write", "admin"}}
"""Right -> what it allows; each implies the ones before it."""
_KEYS = ("tools", "providers", "collections", "rights")


class Limits(TypedDict):
    """The fields of a scope that a profile decides, under the scope's own names."""

    tools: frozenset[str] | None
    provider_names: frozenset[str] | None
    collections: frozenset[str] | None
    rights: frozenset[str]


@dataclass(frozen=True, slots=True)
class Profile:
    """One table of the file; what it leaves out is not limited."""

    name: str
    tools: frozenset[str] | None = None
    """The tools that can be called, `tool_search` and `execute_tool` only if they are named; None = all."""
    providers: frozenset[str] | None = None
    """`commands`, `queries`, `mcp:github`, ...; None = all, empty = localmcp's own tools only."""
    collections: frozenset[str] | None = None
    rights: frozenset[str] = frozenset(RIGHTS["admin"])

    def limits(self) -> Limits:
        """For `dataclasses.replace(scope, **profile.limits())`."""
        return {
            "tools": self.tools,
            "provider_names": self.providers,
            "collections": self.collections,
            "rights": self.rights,
        }


def profiles_file() -> Path:
    """Return the user's profiles, TOML: one table for each."""
    return config_directory() / "profiles.toml"


def read_profile(name: str) -> Profile:
    """Return the profile of that name.

    Raises:
        ConfigurationError: the file is missing or not TOML, has no such profile, or the profile has a key or value
            that cannot be used. A profile is a limit, so nothing in it is overlooked.
    """
    path = profiles_file()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        hint = f'Make {path} with a table, such as: [{name}] tools = ["search"]'
        raise ConfigurationError(f"There is no profile '{name}', because there are no profiles.", hint=hint) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}.", hint="Fix or remove the file.") from error
    if name not in table:
        raise ConfigurationError(f"There is no profile '{name}' in {path}.", hint=choices(sorted(table)))
    return _parse(name, table[name], path)


def _parse(name: str, raw: Any, path: Path) -> Profile:
    if not isinstance(raw, dict):
        raise ConfigurationError(f"{name} in {path} must be a table: [{name}].")
    table = cast("dict[str, Any]", raw)
    for key in table:
        if key not in _KEYS:
            raise ConfigurationError(f"Unknown key '{key}' in [{name}] of {path}.", hint=f"Known: {', '.join(_KEYS)}.")
    where = f"in [{name}] of {path}"
    tools, providers, collections = (_names(table, key, where) for key in _KEYS[:3])
    return Profile(name, tools, providers, collections, _rights(table, where))


def _names(table: Mapping[str, Any], key: str, where: str) -> frozenset[str] | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
        raise ConfigurationError(f"{key} = {value!r} {where} cannot be used: it must be a list of names.")
    return frozenset(cast("list[str]", value))


def _rights(table: Mapping[str, Any], where: str) -> frozenset[str]:
    value = table.get("rights", "admin")
    listed = one_or_more(value)
    if not listed or not all(isinstance(item, str) and item in RIGHTS for item in listed):
        accepted = f"it must be one of {', '.join(RIGHTS)}, or a list of them"
        raise ConfigurationError(f"rights = {value!r} {where} cannot be used: {accepted}.")
    return frozenset(right for item in listed for right in RIGHTS[item])
