"""List documents: which, in which order, and with which fields."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from localmcp.index.collections import choose_collections
from localmcp.index.filters import path_condition
from localmcp.index.passages import read_metadata
from localmcp.library.citations import check_freshness
from localmcp.library.document_records import SourceItem
from localmcp.library.origins import shown_id
from localmcp.storage.database import Database, fetch_all, fetch_one
from localmcp.storage.times import utc_text
from localmcp.tools import MOST_INTEGER, without_none
from localmcp.wording.normalize import fold

SOURCE = """
    select sources.id, uuid, title, source_type, metadata, sources.created_at, updated_at, collections.name,
        partitions.name, uri, chunk_count, size, mtime_ns, sha256
    from sources
    join collections on collections.id = sources.collection_id
    left join partitions on partitions.id = sources.partition_id
"""

MOST_COMPARED = 20_000
"""Files that a list compares with what was read."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Which documents to list, and in which order."""

    collection: str | None
    order: str
    since: str | None
    until: str | None
    """As `parse_range` gives them."""
    path_prefix: str | None
    title: str | None = None
    """A part of the title, in any case, with or without accents."""


_CHANGED = "coalesce(mtime_ns / 1000000, cast(round(unixepoch(updated_at, 'subsec') * 1000) as integer))"
"""Milliseconds since 1970: of the file, or of the text that was handed over."""
ORDERS = {
    "changed": ("last changed first", f"{_CHANGED} desc, sources.id desc"),
    "added": ("last added first", "sources.created_at desc, sources.id desc"),
    "title": ("by title", "title collate nocase, sources.id"),
}
"""Order -> its name for people, and its SQL."""


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A row of `SOURCE`, and the file that it is from."""

    row: Any
    adopted: bool
    origin: str | None

    def item(self) -> SourceItem:
        """Return the document, for which its file is looked at on the disk."""
        return source_item(self.row, self.adopted, self.origin)


def in_order(rows: list[ListedRow], order: str) -> list[ListedRow]:
    """Return documents of several files in one order; those of one file come sorted."""
    if order == "title":
        # As SQL has it, which knows upper and lower case of ASCII letters only: else pages overlap.
        return sorted(rows, key=lambda listed: listed.row[2].encode().lower())
    if order == "added":
        return sorted(rows, key=lambda listed: listed.row[5], reverse=True)
    return sorted(rows, key=lambda listed: _changed_at(listed.row[12], listed.row[6]), reverse=True)


def list_documents(database: Database, listing: Listing, limit: int, origin: str | None) -> tuple[list[ListedRow], int]:
    """Return the first documents of one file in that order, and how many it has in all."""
    with database.read() as connection:
        collections = choose_collections(connection, [listing.collection] if listing.collection else None)
        marks = ",".join("?" * len(collections))
        conditions = [f"sources.collection_id in ({marks})", "trashed_at is null"]
        bindings: list[Any] = [collection.id for collection in collections]
        if listing.since is not None:
            conditions.append(f"datetime({_CHANGED} / 1000, 'unixepoch') >= ?")
            bindings.append(listing.since)
        if listing.until is not None:
            conditions.append(f"datetime({_CHANGED} / 1000, 'unixepoch') < ?")
            bindings.append(listing.until)
        if listing.path_prefix:
            condition, values = path_condition(listing.path_prefix)
            conditions.append(condition)
            bindings += values
        if listing.title:
            conditions.append("instr(folded(title), ?)")
            bindings.append(fold(listing.title))
        where = f"where {' and '.join(conditions)}"
        total = fetch_one(connection, f"select count(*) from sources {where}", bindings)
        sql = f"{SOURCE} {where} order by {ORDERS[listing.order][1]} limit ?"
        rows = fetch_all(connection, sql, [*bindings, min(limit, MOST_INTEGER)])
        # Here, where it is told as damage of this file; the documents are made of the rows later.
        for row in rows:
            _require_fields(row)
        return [ListedRow(row, database.adopted, origin) for row in rows], total


def changed_files(database: Database, collection: str | None) -> list[str]:
    """Return the paths of documents whose files have changed since they were read, of those last changed."""
    with database.read() as connection:
        collections = choose_collections(connection, [collection] if collection else None)
        marks = ",".join("?" * len(collections))
        sql = f"""
            select uri, size, mtime_ns, sha256 from sources
            where collection_id in ({marks}) and trashed_at is null and mtime_ns is not null
            order by mtime_ns desc limit {MOST_COMPARED}
        """
        rows = fetch_all(connection, sql, [collection.id for collection in collections])
    adopted = database.adopted
    return [uri for uri, size, mtime, digest in rows if check_freshness(uri, size, mtime, digest, adopted) == "changed"]


def source_item(row: Any, adopted: bool, origin: str | None = None) -> SourceItem:
    _require_fields(row)
    item = {
        "id": shown_id(row[1], origin),
        "title": row[2],
        "sourceType": row[3],
        "metadata": read_metadata(row[4]),
        "createdAt": row[5],
        "updatedAt": row[6],
        "changedAt": _changed_at(row[12], row[6]),
        "collection": row[7],
        "chunkCount": row[10],
        "freshness": check_freshness(row[9], row[11], row[12], row[13], adopted),
        "partition": row[8],
        "path": row[9],
        "origin": origin,
    }
    return without_none(item)


def _require_fields(row: Any) -> None:
    if None in row[1:8]:
        raise TypeError("a document without a title, a date or a collection")


def _changed_at(mtime_ns: int | None, updated_at: str) -> str:
    if mtime_ns is None:
        return updated_at
    try:
        moment = datetime.fromtimestamp(mtime_ns / 1e9, UTC)
    except (OverflowError, OSError, ValueError):
        return updated_at
    return utc_text(moment)
