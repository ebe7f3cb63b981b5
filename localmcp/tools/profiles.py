"""Profiles: what an assistant that is started with `--profile NAME` may reach, from the user's `profiles.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from localmcp.config import config_directory
from localmcp.errors import ConfigurationError
from localmcp.humanize import choices
from localmcp.schemas import Json, one_or_more

RIGHTS = {"read": {"read"}, "write": {"read", "write"}, "admin": {"read", "write", "admin"}}
"""Right -> what it allows; each implies the ones before it."""
_LISTS = ("tools", "providers", "collections")


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

    def limits(self) -> Json:
        """For `dataclasses.replace(scope, **profile.limits())`."""
        limits = {"tools": self.tools, "provider_names": self.providers, "collections": self.collections}
        return {**limits, "rights": self.rights}


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
    if not isinstance(table[name], dict):
        raise ConfigurationError(f"{name} in {path} must be a table: [{name}].")
    where, limits = f"in [{name}] of {path}", dict[str, Any]()
    for key, value in cast(Json, table[name]).items():
        if key == "rights":
            limits[key] = frozenset(right for item in _texts(key, value, where) for right in RIGHTS[item])
        elif key in _LISTS and isinstance(value, list):
            limits[key] = frozenset(_texts(key, value, where))
        elif key in _LISTS:
            raise ConfigurationError(f"{key} = {value!r} {where} cannot be used: it must be a list of names.")
        else:
            raise ConfigurationError(f"Unknown key '{key}' {where}.", hint=f"Known: {', '.join(_LISTS)}, rights.")
    return Profile(name, **limits)


def _texts(key: str, value: Any, where: str) -> list[str]:
    """Return a list of texts, or one text as a list of one.

    Raises:
        ConfigurationError: it is none, or a right is none of RIGHTS.
    """
    items = one_or_more(value)
    if key == "rights" and not (items and all(isinstance(item, str) and item in RIGHTS for item in items)):
        accepted = f"it must be one of {', '.join(RIGHTS)}, or a list of them"
        raise ConfigurationError(f"rights = {value!r} {where} cannot be used: {accepted}.")
    if not all(isinstance(item, str) for item in items):
        raise ConfigurationError(f"{key} = {value!r} {where} cannot be used: it must be a list of names.")
    return cast("list[str]", items)
