"""Profiles: what an assistant that is started with `--profile NAME` may reach, from the user's `profiles.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import cast

from localmcp.config import config_directory
from localmcp.errors import ConfigurationError
from localmcp.humanize import choices
from localmcp.schemas import Json, one_or_more

RIGHTS = {"read": {"read"}, "write": {"read", "write"}, "admin": {"read", "write", "admin"}}
"""Right -> what it allows; each implies the ones before it."""
LISTS = {"tools": "tools", "providers": "provider_names", "collections": "collections"}
"""Key of a profile -> the field of a scope that it limits; without the key, nothing is limited.

`tools` are those that can be called, `tool_search` and `execute_tool` only if they are named; `providers` are
`commands`, `queries`, `mcp:github`, ...; an empty list leaves localmcp's own tools only.
"""


def profiles_file() -> Path:
    """Return the user's profiles, TOML: one table for each."""
    return config_directory() / "profiles.toml"


def read_profile(name: str) -> Json:
    """Return the limits of a profile, for `dataclasses.replace(scope, **read_profile(name))`.

    Raises ConfigurationError for a missing or damaged file or profile, and for any key or value that cannot be used:
    a profile is a limit, so nothing in it is overlooked.
    """
    path = profiles_file()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        hint = f'Make {path} with a table, such as: [{name}] tools = ["search"]'
        raise ConfigurationError(f"There is no profile '{name}', because there are no profiles.", hint=hint) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}.", hint="Fix or remove the file.") from error
    if not isinstance(table.get(name), dict):
        raise ConfigurationError(f"There is no profile '{name}' in {path}.", hint=choices(sorted(table)))
    limits: Json = {}
    for key, value in cast(Json, table[name]).items():
        if key != "rights" and key not in LISTS:
            known = f"Known: {', '.join(LISTS)}, rights."
            raise ConfigurationError(f"Unknown key '{key}' in [{name}] of {path}.", hint=known)
        texts = one_or_more(value)
        is_list = key == "rights" or isinstance(value, list)
        is_list = is_list and all(isinstance(text, str) for text in texts)
        if not is_list or (key == "rights" and not (texts and RIGHTS.keys() >= set(texts))):
            accepted = f"one of {', '.join(RIGHTS)}, or a list of them" if key == "rights" else "a list of names"
            raise ConfigurationError(f"{key} = {value!r} in [{name}] of {path} cannot be used: it must be {accepted}.")
        if key == "rights":
            limits[key] = frozenset(right for text in texts for right in RIGHTS[text])
        else:
            limits[LISTS[key]] = frozenset(texts)
    return limits
