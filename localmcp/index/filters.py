"""Filters: what a caller wants to search in, resolved to source ids before either arm looks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from localmcp.arrays import Ids, np
from localmcp.errors import InvalidInput
from localmcp.index.collections import DEFAULT_PARTITION, Collection
from localmcp.index.conditions import And, Condition, parse_condition, sql_condition
from localmcp.index.dates import SOURCE_DATE
from localmcp.index.records import TITLE_COLUMN
from localmcp.storage.database import fetch_column

KINDS = {
    "md": ("markdown", "md"),
    "sheet": ("xlsx", "xls", "xlsb", "ods", "csv", "tsv"),
    "slides": ("pptx", "odp"),
    "word": ("docx", "odt", "rtf"),
    "book": ("epub",),
}
"""Kind of file, as a person names it, to formats and endings; any other name is one of these itself."""
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
    """A condition in its short form, such as key -> value, or a list of values of which any will do."""
    condition: Condition | None = None
    """A further condition on the metadata, the title and the path."""
    since: str | None = None
    until: str | None = None
    """First moment of a document's date, and the first after it, as `parse_moment` gives them."""

    def __post_init__(self) -> None:
        """Refuse what SQLite cannot compare.

        Raises:
            InvalidInput: names the field and the value.
        """
        if self.metadata:
            parse_condition(self.metadata, "metadata")
        texts = {"partition": self.partitions, "sourceType": self.source_types, "pathPrefix": (self.path_prefix or "",)}
        for name, values in texts.items():
            if re.search("[\ud800-\udfff]", "".join(values)):
                raise InvalidInput(f"{name}: half a character cannot be compared; use text.")

    def __bool__(self) -> bool:
        return self != Filters()


def allowed_sources(connection: apsw.Connection, collections: Sequence[Collection], filters: Filters) -> Ids:
    """Return ids of the sources in those collections that pass the filters, ascending."""
    sql, bindings = f"trashed_at is null and collection_id in ({_marks(collections)})", list[Any]()
    bindings += [collection.id for collection in collections]
    if filters.partitions:
        unnamed = "or partition_id is null" if DEFAULT_PARTITION in filters.partitions else ""
        named = f"select id from partitions where name in ({_marks(filters.partitions)})"
        sql += f" and (partition_id in ({named}) {unnamed})"
        bindings += filters.partitions
    if filters.source_ids:
        sql += f" and uuid in ({_marks(filters.source_ids)})"
        bindings += filters.source_ids
    if filters.source_types:
        is_kind, values = type_condition(filters.source_types)
        sql += f" and {is_kind}"
        bindings += values
    if filters.path_prefix is not None:
        below, values = path_condition(filters.path_prefix)
        sql += f" and {below}"
        bindings += values
    for moment, sign in ((filters.since, ">="), (filters.until, "<")):
        if moment:
            sql += f" and {SOURCE_DATE} {sign} ?"
            bindings.append(moment)
    rows = fetch_column(connection, f"select id from sources where {sql} order by id", bindings)
    source_ids = np.array(rows, np.int64)
    if conditions := tuple(filter(None, (parse_condition(filters.metadata), filters.condition))):
        fulfils, named = sql_condition(And(conditions), "sources.metadata", SOURCE_COLUMNS)
        fulfilling = fetch_column(connection, f"select id from sources where {fulfils}", named)
        return np.intersect1d(source_ids, np.array(fulfilling, np.int64))
    return source_ids


def type_condition(types: Sequence[str]) -> tuple[str, list[Any]]:
    """Return SQL for documents of any of those types, formats or kinds of file."""
    names = [name.lower().lstrip(".") for name in types]
    kinds = [form for name in names for form in KINDS.get(name, (name,))]
    suffix = " or ".join(["uri like ?"] * len(kinds))
    sql = f"(source_type in ({_marks(types)}) or format in ({_marks(kinds)}) or {suffix})"
    return sql, [*types, *kinds, *(f"%.{kind}" for kind in kinds)]


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
