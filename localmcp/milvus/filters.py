"""Write conditions on metadata as Milvus' filter text.

Servers differ: Milvus Lite takes true for 1 and has no `in` on JSON; a missing field is unknown there and false
elsewhere; `like` has no escapes; whole numbers in arrays do not equal 1.0. The text therefore lets through everything
that may fulfil the condition, sometimes more, and `conditions.evaluate` has the last word on what comes back.
"""

from __future__ import annotations

import json
import math
import re

from localmcp.index.conditions import And, Comparison, Condition, Not, Scalar
from localmcp.milvus.schema import Shape

EVERYTHING = ""
"""The text that lets every record through."""
_EXACT_FLOATS = 2**53
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def filter_text(condition: Condition, shape: Shape, *, lite: bool) -> str:
    """Return filter text that every record which fulfils the condition passes; empty if none can be written."""
    return _Writer(shape, lite).write(condition, affirmed=True)


class _Writer:
    def __init__(self, shape: Shape, lite: bool) -> None:
        self.shape = shape
        self.lite = lite

    def write(self, condition: Condition, *, affirmed: bool) -> str:
        """Text for where the condition holds, or without `affirmed` where it does not: only comparisons are negated."""
        if isinstance(condition, Not):
            return self.write(condition.part, affirmed=not affirmed)
        if isinstance(condition, Comparison):
            return self._compare(condition, affirmed)
        parts = [self.write(part, affirmed=affirmed) for part in condition.parts]
        if isinstance(condition, And) == affirmed:
            restricting = [part for part in parts if part != EVERYTHING]
            return f"({' and '.join(restricting)})" if restricting else EVERYTHING
        return f"({' or '.join(parts)})" if EVERYTHING not in parts else EVERYTHING

    def _compare(self, comparison: Comparison, affirmed: bool) -> str:
        path = self._path(comparison.field)
        if path is None or not all(map(_can_be_written, comparison.values)):
            return EVERYTHING
        negative = any(not isinstance(value, str) and value < 0 for value in comparison.values)
        if self.lite and comparison.operator in ("eq", "in") and negative:
            # Lite looks for no negative numbers in arrays.
            return EVERYTHING
        test = self._holds(path, comparison)
        if affirmed:
            return test
        if self.lite:
            # A missing field, or one of another type, fulfils neither a test nor its negation there.
            return EVERYTHING
        return f"((not {test}) or (not (exists {path})) or ({path} == true) or ({path} == false))"

    def _path(self, field: tuple[str, ...]) -> str | None:
        """Return path of the value; None for a separate field, whose type decides what it can be compared with."""
        shape = self.shape
        places = [shape.metadata] if shape.metadata else []
        if not shape.ours:
            if field[0] in shape.scalars or field[0] == shape.key:
                return None
            places += ["$meta"] if shape.dynamic else []
        if self.lite and "$meta" in places:
            # Lite looks into its arrays with no function.
            return None
        return places[0] + "".join(f'["{key}"]' for key in field) if len(places) == 1 else None

    def _holds(self, path: str, comparison: Comparison) -> str:
        if comparison.operator == "prefix":
            return _starts_with(path, str(comparison.value))
        if comparison.operator in _SIGNS:
            return f"({path} {_SIGNS[comparison.operator]} {_literal(comparison.value)})"
        return f"({' or '.join(self._equals(path, comparison.values))})"

    def _equals(self, path: str, values: tuple[Scalar, ...]) -> list[str]:
        tests: list[str] = []
        for kind in (_is_text, _is_whole, _is_fraction):
            fitting = [value for value in values if kind(value)]
            if fitting:
                tests += [self._in(path, fitting), _in_array(path, fitting)]
        for item in values:
            if isinstance(item, bool):
                tests += [f"{path} == {_literal(item)}", f"json_contains({path}, {_literal(item)})"]
        return tests

    def _in(self, path: str, values: list[Scalar]) -> str:
        literals = [_literal(int(value) if _is_whole(value) else value) for value in values]
        if len(literals) == 1 or self.lite:
            return " or ".join(f"{path} == {literal}" for literal in literals)
        return f"{path} in [{', '.join(literals)}]"


def _in_array(path: str, values: list[Scalar]) -> str:
    literals = [_literal(_as_float(value)) for value in values]
    if len(literals) == 1:
        return f"json_contains({path}, {literals[0]})"
    return f"json_contains_any({path}, [{', '.join(literals)}])"


def _as_float(value: Scalar) -> Scalar:
    """1 as 1.0, which Milvus finds equal to both in an array."""
    return float(value) if _is_whole(value) and abs(value) <= _EXACT_FLOATS else value  # pyright: ignore[reportArgumentType]


def _starts_with(path: str, prefix: str) -> str:
    """Write a prefix as a range, because `like` cannot escape % and _."""
    after = _next_text(prefix)
    lower = f"{path} >= {_literal(prefix)}"
    return f"({lower} and {path} < {_literal(after)})" if after else f"({lower})"


def _next_text(prefix: str) -> str:
    """Return the smallest text behind all that begin with the prefix; empty when there is none."""
    for at in range(len(prefix) - 1, -1, -1):
        following = ord(prefix[at]) + 1
        if following <= 0x10FFFF:
            return prefix[:at] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
    return ""


def _literal(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    # The smallest integer is read as the negative of one that is too large.
    return repr(float(value)) if value == -(1 << 63) else repr(value)


def _can_be_written(value: Scalar) -> bool:
    """Return whether Lite can read the value: it knows no escapes but those of one letter."""
    return not isinstance(value, str) or not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", value)


def _is_text(value: Scalar) -> bool:
    return isinstance(value, str)


def _is_whole(value: Scalar) -> bool:
    if isinstance(value, bool | str):
        return False
    return isinstance(value, int) or (math.isfinite(value) and value.is_integer() and abs(value) < 1 << 63)


def _is_fraction(value: Scalar) -> bool:
    return isinstance(value, float) and not _is_whole(value)
