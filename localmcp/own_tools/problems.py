"""What is wrong with the person's own tools, and how a provider of tools is doing."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple, Protocol

from localmcp.schemas import Json

Level = Literal["error", "warning"]
State = Literal["ready", "empty", "off", "failing"]
Place = tuple[str, ...]
"""Keys that lead to a value of a TOML file."""


class Mistake(NamedTuple):
    """A mistake in a manifest, by its place in the table."""

    place: Place
    message: str
    hint: str | None = None
    level: Level = "error"


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
        return f"{where}: {self.level}: {self.message}" + (f" {self.hint}" if self.hint else "")

    def as_json(self) -> Json:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ProviderState:
    """How a provider is doing, for `localmcp tools providers`."""

    name: str
    state: State
    """`ready` offers tools, `empty` has nothing configured, `off` is switched off, `failing` offers less than it
    should."""
    tools: int
    where: str
    """Where it is configured."""
    says: str = ""
    """One sentence more, for people."""
    problems: tuple[Problem, ...] = ()

    def as_json(self) -> Json:
        return asdict(self)


class Inspected(Protocol):
    """A provider that says how it is doing."""

    @property
    def name(self) -> str: ...

    def state(self) -> ProviderState:
        """Return how it is doing; nothing is started."""
        ...

    def check(self) -> list[Problem]:
        """Return every mistake in its configuration, and everything on this machine that would make a call fail."""
        ...


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
