"""Patterns that say which files a rule is about, read as `.gitignore` and Cursor read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localmcp.linear_patterns import path_matcher

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

LONGEST_PATH = 4096
MOST_PATTERNS = 500
"""Patterns that one with braces may stand for."""


def match_globs(globs: Sequence[str], path: str) -> bool:
    """Whether a path is one that the patterns mean; `{a,b}` and `**` work as in Cursor.

    Patterns are relative to the project. Where it begins in an absolute path is unknown, so each folder may be it.
    """
    if len(path) > LONGEST_PATH:
        return False
    # Another file's rules may have any text for a pattern.
    patterns: list[Any] = [pattern for glob in globs if (spec := _read_pattern(glob)) for pattern in spec.patterns]
    parts = path.replace("\\", "/").removeprefix("./").split("/")
    is_absolute = not parts[0] or parts[0].endswith(":")
    for start in range(1, len(parts)) if is_absolute else range(1):
        place = "/".join(parts[start:])
        # The last pattern that matches decides.
        if next((p.include for p in reversed(patterns) if p.regex and path_matcher(p.regex)(place)), False):
            return True
    return False


def is_pattern(glob: str) -> bool:
    """Return whether a text can be read as a pattern: a backslash at its end, for one, protects nothing."""
    return _read_pattern(glob) is not None


def _read_pattern(glob: str) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(_expand_braces(glob))
    except ValueError:
        return None


def _expand_braces(glob: str) -> list[str]:
    """Return the patterns that a glob with braces stands for.

    Raises:
        ValueError: they are too many.
    """
    waiting, patterns = [glob], list[str]()
    while waiting:
        current = waiting.pop()
        opened = re.search(r"\{([^{}]*)\}", current)
        if opened is None:
            patterns.append(current)
            continue
        before, after = current[: opened.start()], current[opened.end() :]
        waiting += [f"{before}{part.strip()}{after}" for part in opened[1].split(",")]
        if len(waiting) + len(patterns) > MOST_PATTERNS:
            raise ValueError(f"the braces stand for more than {MOST_PATTERNS} patterns")
    return patterns
