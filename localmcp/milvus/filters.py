"""Write conditions on metadata as Milvus' filter text.

Servers differ: Milvus Lite takes true for 1 and has no `in` on JSON; a missing field is unknown there and false
elsewhere; whole numbers in arrays do not equal 1.0. The text therefore lets through everything that may fulfil the
condition, sometimes more, and `conditions.evaluate` has the last word on what comes back.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable

from localmcp.index.conditions import And, Comparison, Condition, Not, Or, Scalar
from localmcp.index.filters import Filters
from localmcp.schemas import one_or_more

EVERYTHING = ""
"""The text that lets every record through."""
LAST = "\U0010ffff"
"""Sorts behind every character."""
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_EXACT = 2**53


def filter_text(condition: Condition) -> str:
    """Return filter text that every record which fulfils the condition passes; empty if none can be written."""
    if isinstance(condition, Not):
        return EVERYTHING
    if isinstance(condition, Comparison):
        return _compare(condition)
    parts = [filter_text(part) for part in condition.parts]
    if isinstance(condition, Or) and EVERYTHING in parts:
        return EVERYTHING
    joint = " and " if isinstance(condition, And) else " or "
    restricting = [part for part in parts if part != EVERYTHING]
    return f"({joint.join(restricting)})" if restricting else EVERYTHING


def _compare(comparison: Comparison) -> str:
    path = "metadata" + "".join(f'["{key}"]' for key in comparison.field)
    for value in comparison.values:
        # Lite knows no escapes but those of one letter.
        odd = "[\x00-\x08\x0b\x0c\x0e-\x1f\U0010ffff]"
        if re.search(odd, value) if isinstance(value, str) else abs(value) >= _EXACT:
            return EVERYTHING
    if comparison.operator == "prefix":
        return begins_with(path, str(comparison.value))
    if comparison.operator in _SIGNS:
        return f"({path} {_SIGNS[comparison.operator]} {_literal(comparison.value)})"
    if any(not isinstance(value, str) and value < 0 for value in comparison.values):
        # Lite looks for no negative numbers in arrays.
        return EVERYTHING
    # Milvus finds 1.0 equal to both 1 and 1.0 in an array.
    tests = [f"json_contains({path}, {_literal(value, number='.1f')})" for value in comparison.values]
    tests += [f"{path} == {_literal(value)}" for value in comparison.values]
    return f"({' or '.join(tests)})"


def _literal(value: Scalar, number: str = ".0f") -> str:
    if not isinstance(value, str | bool) and float(value).is_integer():
        return format(value, number)
    return json.dumps(value, ensure_ascii=False)


def is_one_of(field: str, values: Iterable[str]) -> str:
    """Return filter text: a field of text has one of the values."""
    return f"{field} in [{', '.join(json.dumps(value, ensure_ascii=False) for value in values)}]"


def begins_with(field: str, beginning: str) -> str:
    """Return filter text: a field of text begins so. As a range, because `like` cannot escape % and _."""
    return f"({field} >= {_literal(beginning)} and {field} < {_literal(beginning + LAST)})"


def filters_text(filters: Filters) -> tuple[str, Condition | None]:
    """Return what our own collections have to pass: text for the server, and a condition on the metadata."""
    texts: list[str] = []
    if filters.partitions:
        texts.append(is_one_of("partition", filters.partitions))
    if filters.source_ids:
        texts.append(is_one_of("document", filters.source_ids))
    if filters.source_types:
        same = (f'origin["source"]["source_type"] == {_literal(kind)}' for kind in filters.source_types)
        texts.append(f"({' or '.join(same)})")
    if filters.path_prefix is not None:
        folder = os.path.normpath(os.path.expanduser(filters.path_prefix))
        if os.path.isabs(folder):
            below = begins_with("path", folder.rstrip(os.sep) + os.sep)
            texts.append(f"(path == {_literal(folder)} or {below})")
        else:
            texts.append(f"path like {_literal(f'%{os.sep}{folder}{os.sep}%')}")
    texts += [f"date >= {_literal(filters.since)}"] if filters.since else []
    texts += [f"date < {_literal(filters.until)}"] if filters.until else []
    conditions: list[Condition] = [
        Comparison((key,), "in", tuple(one_or_more(value))) for key, value in filters.metadata.items()
    ]
    conditions += [filters.condition] if filters.condition else []
    return " and ".join(texts), And(tuple(conditions)) if conditions else None
