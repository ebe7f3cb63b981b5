"""Write conditions on metadata as Milvus' filter text.

Servers differ: Milvus Lite takes true for 1 and has no `in` on JSON; a missing field is unknown there and false
elsewhere; whole numbers in arrays do not equal 1.0. The text therefore lets through everything that may fulfil the
condition, sometimes more, and `conditions.evaluate` has the last word on what comes back.
"""

from __future__ import annotations

import json
import re

from localmcp.index.conditions import And, Comparison, Condition, Not, Or, Scalar

EVERYTHING = ""
"""The text that lets every record through."""
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_EXACT = 2**53


def filter_text(condition: Condition, column: str, *, lite: bool) -> str:
    """Return filter text that every record which fulfils the condition passes; empty if none can be written.

    `column` is the JSON field of the metadata.
    """
    if isinstance(condition, Not):
        return EVERYTHING
    if isinstance(condition, Comparison):
        return _compare(condition, column, lite)
    parts = [filter_text(part, column, lite=lite) for part in condition.parts]
    if isinstance(condition, Or) and EVERYTHING in parts:
        return EVERYTHING
    joint = " and " if isinstance(condition, And) else " or "
    restricting = [part for part in parts if part != EVERYTHING]
    return f"({joint.join(restricting)})" if restricting else EVERYTHING


def _compare(comparison: Comparison, column: str, lite: bool) -> str:
    path = column + "".join(f'["{key}"]' for key in comparison.field)
    if not all(map(_can_be_written, comparison.values)):
        return EVERYTHING
    if comparison.operator == "prefix":
        # As a range, because `like` cannot escape % and _.
        after = _literal(f"{comparison.value}\U0010ffff")
        return f"({path} >= {_literal(comparison.value)} and {path} < {after})"
    if comparison.operator in _SIGNS:
        return f"({path} {_SIGNS[comparison.operator]} {_literal(comparison.value)})"
    if any(not isinstance(value, str) and value < 0 for value in comparison.values):
        # Lite looks for no negative numbers in arrays.
        return EVERYTHING
    # Milvus finds 1.0 equal to both 1 and 1.0 in an array.
    tests = [f"json_contains({path}, {_literal(value, number='.1f')})" for value in comparison.values]
    kinds = {type(value) for value in comparison.values}
    if lite or len(comparison.values) == 1 or len(kinds) > 1 or bool in kinds:
        tests += [f"{path} == {_literal(value)}" for value in comparison.values]
    else:
        tests.append(f"{path} in [{', '.join(map(_literal, comparison.values))}]")
    return f"({' or '.join(tests)})"


def _literal(value: Scalar, number: str = ".0f") -> str:
    if not isinstance(value, str | bool) and float(value).is_integer():
        return format(value, number)
    return json.dumps(value, ensure_ascii=False)


def _can_be_written(value: Scalar) -> bool:
    """Return whether every server reads the value: Lite knows no escapes but those of one letter."""
    if isinstance(value, str):
        return not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\U0010ffff]", value)
    return abs(value) < _EXACT
