"""Filters: what a caller wants to search in, resolved to source ids before either arm looks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from localmcp.arrays import NDArray, np
from localmcp.errors import InvalidInput
from localmcp.index.collections import DEFAULT_PARTITION, Collection
from localmcp.index.conditions import MOST_VALUES_IN_ALL, Condition, shown_value, sql_condition
from localmcp.index.dates import SOURCE_DATE
from localmcp.index.records import TITLE_COLUMN
from localmcp.schemas import one_or_more
from localmcp.storage.database import fetch_column

MOST_KEYS, MOST_VALUES = 50, 1000
"""A query of more conditions than these is one that SQLite refuses."""
MOST_WRITTEN = 100
"""Values of a key that are first looked for as text: a longer chain of `or` is too deep for SQLite."""
SOURCE_COLUMNS = {"title": TITLE_COLUMN, "path": "sources.uri"}
"""What replaces these fields where a source's own metadata has no such key."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that all must hold; None or empty = any."""

    partitions: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()
    """UUIDs."""
    source_types: tuple[str, ...] = ()
    path_prefix: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Key -> a value that the source's metadata equals, or holds if it is a list; a list of values = any of them."""
    condition: Condition | None = None
    """A further condition on the metadata, the title and the path."""
    since: str | None = None
    until: str | None = None
    """First moment of a document's date, and the first after it, as `parse_moment` gives them."""

    def __post_init__(self) -> None:
        """Refuse what SQLite cannot compare: it holds integers of 64 bits, and text that UTF-8 can write.

        Raises:
            InvalidInput: names the field and the value.
        """
        compared: dict[str, Sequence[Any]] = {
            "partition": self.partitions,
            "sourceId": self.source_ids,
            "sourceType": self.source_types,
            "pathPrefix": [self.path_prefix or ""],
            "metadata": [*self.metadata],
            **{f"metadata.{key}": one_or_more(value) or [None] for key, value in self.metadata.items()},
        }
        if (values := sum(map(len, map(one_or_more, self.metadata.values())))) > MOST_VALUES_IN_ALL:
            raise InvalidInput(f"metadata: {values:,} values are too many; use at most {MOST_VALUES_IN_ALL:,}.")
        for name, values in compared.items():
            most = MOST_KEYS if name == "metadata" else MOST_VALUES
            if len(values) > most:
                raise InvalidInput(f"{name}: {len(values):,} are too many; use at most {most:,}.")
            for value in values:
                if not _is_comparable(value):
                    accepted = "text, a number of at most 64 bits, true, false or a list of these"
                    raise InvalidInput(f"{name}: {shown_value(value)} cannot be compared; use {accepted}.")

    def __bool__(self) -> bool:
        return self != Filters()


def allowed_sources(
    connection: apsw.Connection, collections: Sequence[Collection], filters: Filters
) -> NDArray[np.int64]:
    """Return ids of the sources in those collections that pass the filters, ascending."""
    conditions = [f"collection_id in ({_marks(collections)})", "trashed_at is null"]
    bindings: list[Any] = [collection.id for collection in collections]
    for condition, values in _conditions(filters):
        conditions.append(condition)
        bindings.extend(values)
    sql = f"select id from sources where {' and '.join(conditions)} order by id"
    source_ids = np.array(fetch_column(connection, sql, bindings), dtype=np.int64)
    if filters.condition is None:
        return source_ids
    fulfils, values = sql_condition(filters.condition, "sources.metadata", SOURCE_COLUMNS)
    fulfilling = fetch_column(connection, f"select id from sources where {fulfils}", values)
    return np.intersect1d(source_ids, np.array(fulfilling, dtype=np.int64))


def _conditions(filters: Filters) -> Iterator[tuple[str, list[Any]]]:
    """Yield SQL and its bindings, each of which must hold."""
    if filters.partitions:
        unnamed = "or partition_id is null" if DEFAULT_PARTITION in filters.partitions else ""
        sql = f"partition_id in (select id from partitions where name in ({_marks(filters.partitions)}))"
        yield f"({sql} {unnamed})", [*filters.partitions]
    if filters.source_ids:
        yield f"uuid in ({_marks(filters.source_ids)})", [*filters.source_ids]
    if filters.source_types:
        yield f"source_type in ({_marks(filters.source_types)})", [*filters.source_types]
    if filters.path_prefix is not None:
        yield path_condition(filters.path_prefix)
    if filters.since:
        yield f"{SOURCE_DATE} >= ?", [filters.since]
    if filters.until:
        yield f"{SOURCE_DATE} < ?", [filters.until]
    for key, value in filters.metadata.items():
        yield _metadata_condition(key, value)


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))


def path_condition(prefix: str) -> tuple[str, list[Any]]:
    """Return SQL for a file, the documents in a mailbox or archive, or a folder; relative paths match anywhere."""
    if "\0" in prefix:  # no path holds one, and the system refuses to look
        return "0", []
    path_below = os.path.normpath(os.path.expanduser(prefix))
    if os.path.isabs(path_below):
        folder = path_below.rstrip(os.sep) + os.sep
        member = f"{path_below}#"
        in_file = "substr(uri, 1, ?) = ? and instr(sources.metadata, '\"container\"')"
        bindings = [path_below, len(folder), folder, len(member), member]
        return f"(uri = ? or substr(uri, 1, ?) = ? or ({in_file}))", bindings
    in_file = "instr(uri, ?) and instr(sources.metadata, '\"container\"')"
    bindings = [os.sep, f"{os.sep}{path_below}{os.sep}", f"{os.sep}{path_below}#"]
    return f"(instr(uri || ?, ?) or ({in_file}))", bindings


def _metadata_condition(key: str, value: Any) -> tuple[str, list[Any]]:
    values = one_or_more(value)
    marks = _marks(values)
    texts = [value for value in values if isinstance(value, str) and _WRITTEN_AS_IT_IS.fullmatch(value)]
    written = [f'"{text}"' for text in texts] if len(texts) == len(values) <= MOST_WRITTEN else []
    # Looked for as text first, which takes a tenth of the time; with a backslash it may be written in another way.
    likely = " or ".join(["instr(sources.metadata, ?)"] * len(written) + ["instr(sources.metadata, char(92))"])
    sql = f"""
        {f"({likely}) and" if written else ""}
        exists (
            select 1 from json_each(iif(json_valid(sources.metadata), sources.metadata, '{{}}')) as entry
            where entry.key = ? and (
                (entry.type not in ('array', 'object') and entry.atom in ({marks}))
                or exists (
                    select 1 from json_each(case entry.type when 'array' then entry.value else '[]' end) as item
                    where item.atom in ({marks})
                )
            )
        )
    """
    return sql, [*written, key, *values, *values]


_WRITTEN_AS_IT_IS = re.compile(r"[\w .:@+-]+", re.ASCII)
"""Values that JSON writes as they are, between quotes."""


def _is_comparable(value: Any) -> bool:
    if isinstance(value, int):
        return -(1 << 63) <= value < 1 << 63
    return isinstance(value, float) or (isinstance(value, str) and not re.search("[\ud800-\udfff]", value))
