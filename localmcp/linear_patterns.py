"""Matches untrusted regular expressions in time that grows with the text, never exponentially.

The engine is Rust's `regex`, which pydantic brings; it has no look-around and no backreferences.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

MOST_REPEATS = 3
"""Signs of repetition up to which Python's engine is quick with a path; each further one multiplies its attempts."""


def matches(pattern: str, text: str) -> bool | None:
    """Return whether the pattern is anywhere in the text; None if this engine does not support the pattern."""
    compiled = _compile(pattern)
    return None if compiled is None else compiled.isinstance_python(text)


def path_matcher(pattern: re.Pattern[str]) -> Callable[[str], Any]:
    """Return what tells whether a pattern is in a path.

    One that may take too long and that this engine does not support is in none.
    """
    if pattern.pattern.count("*") + pattern.pattern.count("+") <= MOST_REPEATS:
        return pattern.search
    compiled = _compile(pattern.pattern)
    return compiled.isinstance_python if compiled else lambda _: False


@lru_cache(maxsize=1000)
def _compile(pattern: str) -> SchemaValidator | None:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    schema: Any = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
    try:
        return SchemaValidator(schema)
    except (SchemaError, UnicodeError):
        return None
