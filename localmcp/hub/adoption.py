"""Importing servers from another client's configuration: which are added, kept or left out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

from localmcp.config import servers_file
from localmcp.errors import InvalidInput
from localmcp.hub.entries import parse_entry, read_entries, write_entries
from localmcp.humanize import choices
from localmcp.schemas import Json, did_you_mean, list_of

Action = Literal["added", "replaced", "unchanged", "kept", "skipped"]

_OURSELVES = re.compile(r"localmcp(\[[^\]]*\])?([=@<>~!].*)?")
"""The package, with extras and a version as `uvx` takes them."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """What is planned for one server of the other client."""

    name: str
    action: Action
    why: str
    entry: Json

    @property
    def is_change(self) -> bool:
        return self.action in ("added", "replaced")


def take_over(
    theirs: dict[Path, Json], names: Collection[str] = (), *, replace: bool = False, dry_run: bool = False
) -> Json:
    """Write servers of other files (file -> its servers) into the user's, and return what was done.

    Of servers with the same name, the first file's counts.

    Raises:
        InvalidInput: `names` has a server that they do not have.
        ConfigurationError: the user's file cannot be read.
    """
    ours = {entry.name: entry.raw for entry in read_entries()}
    merged = {name: entry for table in reversed(theirs.values()) for name, entry in table.items()}
    plan = plan_adoption(merged, ours, only=names, replace=replace)
    changes: dict[str, Json | None] = {step.name: step.entry for step in plan if step.is_change}
    if changes and not dry_run:
        write_entries(changes)
    return {
        "from": [str(path) for path in theirs],
        "file": str(servers_file()),
        "dryRun": dry_run,
        "changed": len(changes),
        "servers": [{"name": step.name, "action": step.action, "why": step.why or None} for step in plan],
    }


def plan_adoption(
    theirs: Mapping[str, Any], ours: Mapping[str, Any], *, only: Collection[str] = (), replace: bool = False
) -> list[Adoption]:
    """Return what importing `theirs` beside `ours` would do; ours is replaced with `replace` only.

    Raises:
        InvalidInput: `only` names a server that they do not have.
    """
    for name in only:
        if name not in theirs:
            hint = did_you_mean(name, theirs, choices(theirs))
            raise InvalidInput(f"No server there is called '{name}'.", hint=hint)
    chosen = [name for name in sorted(theirs) if not only or name in only]
    return [_plan_one(name, theirs[name], ours.get(name), replace) for name in chosen]


def _plan_one(name: str, theirs: Any, ours: Any, replace: bool) -> Adoption:
    problem = parse_entry(name, theirs).problem
    if problem:
        return Adoption(name, "skipped", problem, {})
    if is_localmcp(theirs):
        return Adoption(name, "skipped", "it is localmcp itself", theirs)
    if ours is None:
        return Adoption(name, "added", "", theirs)
    if ours == theirs:
        return Adoption(name, "unchanged", "it is here already", theirs)
    if replace:
        return Adoption(name, "replaced", "yours was another", theirs)
    return Adoption(name, "kept", "yours is another; --replace takes theirs", theirs)


def is_localmcp(entry: Json) -> bool:
    """Return whether the entry starts localmcp, which must not start itself.

    It is the program (also `/usr/bin/localmcp`, `localmcp.exe`) or an argument (`-m localmcp`, `uvx localmcp[office]`);
    a folder of that name in an argument does not count.
    """
    command = str(entry.get("command") or "")
    program = PurePath(command.replace("\\", "/")).name.removesuffix(".exe")
    return any(_OURSELVES.fullmatch(str(word)) for word in (program, *list_of(entry.get("args"))))
