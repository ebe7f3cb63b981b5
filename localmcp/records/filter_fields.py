"""Why a filter on metadata fits nothing: fields that nothing has, and values of another type than those there are."""

from __future__ import annotations

from collections import defaultdict

import apsw

from localmcp.humanize import choices
from localmcp.index.chunk_rows import COLUMNS
from localmcp.index.collections import Collection
from localmcp.index.conditions import Comparison, Condition, Scalar, comparisons
from localmcp.schemas import did_you_mean
from localmcp.storage.database import fetch_all

MOST_FIELDS = 30

_KINDS = {"text": "text", "integer": "a number", "real": "a number", "true": "true or false", "false": "true or false"}
"""Types of SQLite's JSON that a value can be compared with, for people."""


def explain_misses(connection: apsw.Connection, collection: Collection, condition: Condition) -> list[str]:
    """Return a sentence for each field of a condition that nothing in a collection has, or has with such a value."""
    sql = """
        select distinct key, type from sources, json_each(iif(json_valid(metadata), metadata, '{}'))
        where collection_id = ? and trashed_at is null order by key
    """
    types: dict[str, set[str]] = defaultdict(set)
    for name, kind in fetch_all(connection, sql, (collection.id,)):
        types[name].add(kind)
    fields = [*types, *(name for name in COLUMNS if name not in types)]
    misses = (_miss(comparison, fields, types, collection.name) for comparison in comparisons(condition))
    return list(dict.fromkeys(miss for miss in misses if miss))


def _miss(comparison: Comparison, fields: list[str], types: dict[str, set[str]], collection: str) -> str:
    name = comparison.field[0]
    if name not in fields:
        offered = f"{choices(fields[:MOST_FIELDS])} {did_you_mean(name, fields)}".rstrip()
        return f"filter: nothing in '{collection}' has the field '{name}'. {offered}"
    if name in COLUMNS or len(comparison.field) > 1 or not types[name] <= _KINDS.keys():
        return ""
    kinds = sorted({_KINDS[kind] for kind in types[name]})
    if any(_kind(value) in kinds for value in comparison.values):
        return ""
    value = comparison.value
    return f"filter.{name}: in '{collection}' it is {' or '.join(kinds)}, and {value!r} is {_kind(value)}."


def _kind(value: Scalar) -> str:
    return "true or false" if isinstance(value, bool) else "text" if isinstance(value, str) else "a number"
