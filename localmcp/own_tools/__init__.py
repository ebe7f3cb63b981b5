"""Tools that come from elsewhere: the person's own programs, queries, HTTP calls, Python functions, MCP servers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

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
