"""Importing servers from another client's configuration: which are added, kept or left out."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path, PurePath
from typing import Any

from localmcp.config import servers_file
from localmcp.errors import InvalidInput
from localmcp.hub.entries import parse_entry, read_entries, write_entries
from localmcp.humanize import choices
from localmcp.schemas import Json, did_you_mean, list_of

_OURSELVES = re.compile(r"localmcp(\[[^\]]*\])?([=@<>~!].*)?")
"""The package, with extras and a version as `uvx` takes them."""


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
    for name in names:
        if name not in merged:
            raise InvalidInput(f"No server there is called '{name}'.", hint=did_you_mean(name, merged, choices(merged)))
    report: list[Json] = []
    for name in sorted(names or merged):
        action, why = _plan(name, merged[name], ours.get(name), replace)
        report.append({"name": name, "action": action, "why": why})
    changes = {step["name"]: merged[step["name"]] for step in report if step["action"] in ("added", "replaced")}
    if changes and not dry_run:
        write_entries(changes)
    return {
        "from": [str(path) for path in theirs],
        "file": str(servers_file()),
        "dryRun": dry_run,
        "changed": len(changes),
        "servers": report,
    }


def _plan(name: str, theirs: Any, ours: Any, replace: bool) -> tuple[str, str | None]:
    """Return what importing one server does (added, replaced, unchanged, kept, skipped), and why."""
    if problem := parse_entry(name, theirs).problem:
        return "skipped", problem
    if is_localmcp(theirs):
        return "skipped", "it is localmcp itself"
    if ours is None:
        return "added", None
    if ours == theirs:
        return "unchanged", "it is here already"
    return ("replaced", "yours was another") if replace else ("kept", "yours is another; --replace takes theirs")


def is_localmcp(entry: Json) -> bool:
    """Return whether the entry starts localmcp, which must not start itself.

    It is the program (also `/usr/bin/localmcp`, `localmcp.exe`) or an argument (`-m localmcp`, `uvx localmcp[office]`);
    a folder of that name in an argument does not count.
    """
    command = str(entry.get("command") or "")
    program = PurePath(command.replace("\\", "/")).name.removesuffix(".exe")
    return any(_OURSELVES.fullmatch(str(word)) for word in (program, *list_of(entry.get("args"))))
