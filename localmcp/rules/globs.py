"""Patterns that say which files a rule is about, read as `.gitignore` and Cursor read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from localmcp.linear_patterns import path_matcher

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
    patterns = [pattern for glob in globs for pattern in _read_pattern(glob) or ()]
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


def _read_pattern(glob: str) -> list[Any] | None:
    """Return the patterns that a glob with braces stands for; None if it is none, or they are too many."""
    from pathspec import GitIgnoreSpec

    waiting, plain = [glob], list[str]()
    while waiting:
        current = waiting.pop()
        opened = re.search(r"\{([^{}]*)\}", current)
        if opened is None:
            plain.append(current)
            continue
        before, after = current[: opened.start()], current[opened.end() :]
        waiting += [f"{before}{part.strip()}{after}" for part in opened[1].split(",")]
        if len(waiting) + len(plain) > MOST_PATTERNS:
            return None
    try:
        return list(GitIgnoreSpec.from_lines(plain).patterns)
    except ValueError:
        return None
