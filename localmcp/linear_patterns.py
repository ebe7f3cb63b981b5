"""Matches untrusted regular expressions in time that grows with the text, never exponentially.

The engine is Rust's `regex`, which pydantic brings; it has no look-around and no backreferences.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

MOST_REPEATS = 4
"""Signs of repetition with which Python's engine, whose attempts each of them multiplies, may match a path."""


def matches(pattern: str, text: str) -> bool | None:
    """Return whether the pattern is anywhere in the text; None if this engine does not support the pattern."""
    compiled = _compile(pattern)
    return None if compiled is None else compiled.isinstance_python(text)


def may_match(pattern: str, text: str) -> bool:
    """Return whether the pattern is in the text, or may be, because this engine does not support it."""
    return matches(pattern, text) is not False


def matches_path(pattern: re.Pattern[str], path: str) -> bool:
    """Return whether a pattern is anywhere in a path; one that takes too long and is not supported here is nowhere."""
    found = matches(pattern.pattern, path)
    if found is None and pattern.pattern.count("*") + pattern.pattern.count("+") <= MOST_REPEATS:
        return pattern.search(path) is not None
    return found or False


@lru_cache(maxsize=1000)
def _compile(pattern: str) -> SchemaValidator | None:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    schema: Any = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
    try:
        return SchemaValidator(schema)
    except (SchemaError, UnicodeError):
        return None
