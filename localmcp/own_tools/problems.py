"""What is wrong with the person's own tools, and how a provider of tools is doing."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Protocol

from localmcp.schemas import Json
from localmcp.visible_text import visible

Level = Literal["error", "warning"]
Place = tuple[str, ...]
"""Keys that lead to a value of a TOML file."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in the configuration. An error keeps its tool from being offered; a warning does not."""

    file: str
    line: int | None
    """1-based; None when it concerns the whole file."""
    message: str
    hint: str | None = None
    level: Level = "error"

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return visible(f"{where}: {self.level}: {self.message}" + (f" {self.hint}" if self.hint else ""))

    def as_json(self) -> Json:
        return asdict(self)


def problem_at(path: Path, place: Place, message: str, hint: str | None = None, level: Level = "error") -> Problem:
    """Return a problem of a value in a TOML file, with its line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):
        text = ""
    return Problem(str(path), line_of(text, place), message, hint, level)


class Inspected(Protocol):
    """A provider that says how it is doing; nothing is started for it."""

    @property
    def name(self) -> str: ...

    @property
    def where(self) -> str:
        """Where it is configured."""
        ...

    @property
    def known_tools(self) -> int | None:
        """How many tools it offers; None while that is not known."""
        ...

    def check(self) -> list[Problem]:
        """Return every mistake in its configuration, and everything on this machine that would make a call fail."""
        ...


def describe_provider(provider: Inspected) -> Json:
    """Return how a provider is doing, for `localmcp tools providers`.

    `state` is `ready` where it offers tools, `empty` where nothing is configured, `off` where it is switched off, and
    `failing` where it offers less than it should. `says` is one sentence more, for people.
    """
    problems, tools = provider.check(), provider.known_tools
    state = "ready" if tools else "empty"
    if any(problem.level == "error" for problem in problems):
        state = "failing"
    if getattr(provider, "is_off", False):
        state = "off"
    return {
        "name": provider.name,
        "state": state,
        "tools": tools or 0,
        "where": provider.where,
        "says": "its tools are not known yet" if tools is None and state != "off" else "",
        "problems": [problem.as_json() for problem in problems],
    }


def line_of(text: str, place: Place) -> int | None:
    """Return the line, 1-based, where the key path is in a TOML text, or else the nearest table around it."""
    lines, line = text.splitlines(), None
    for key in map(re.escape, place):
        written = re.compile(rf"""\s*(\[[^\]]*\b{key}\b.*\]|([\w.-]+\.)?["']?{key}["']?\s*[=.]|.*[{{,]\s*{key}\s*=)""")
        found = next((at for at in range((line or 1) - 1, len(lines)) if written.match(lines[at])), None)
        if found is None:
            break
        line = found + 1
    return line
