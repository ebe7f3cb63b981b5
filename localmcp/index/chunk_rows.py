"""The rows of a collection's chunks, and which of them are in a partition or fulfil a condition."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from localmcp.errors import InvalidInput, NotFound
from localmcp.humanize import choices
from localmcp.index.backend import DEFAULT_PARTITION
from localmcp.index.collections import Collection
from localmcp.index.conditions import Condition, comparisons, sql_condition
from localmcp.index.filters import SOURCE_COLUMNS
from localmcp.index.records import metadata_of
from localmcp.schemas import Json
from localmcp.storage.database import fetch_all, fetch_column, fetch_one

COLUMNS = {**SOURCE_COLUMNS, "page": "chunks.first_page"}


@dataclass(frozen=True, slots=True)
class Row:
    """One chunk with its metadata."""

    id: int
    text: str
    metadata: Json
    partition: str


def find_partition(connection: apsw.Connection, collection: Collection, name: str) -> int | None:
    """Return the id of a partition; None for the default one, which holds sources without a partition.

    Raises:
        NotFound: no such partition; names those that are there.
    """
    sql = "select id from partitions where collection_id = ? and name = ?"
    partition_id = fetch_one(connection, sql, (collection.id, name))
    if partition_id is None and name != DEFAULT_PARTITION:
        names = [DEFAULT_PARTITION, *partition_names(connection, collection.id)]
        raise NotFound(f"partition '{name}' not found.", hint=choices(names))
    return partition_id


def partition_names(connection: apsw.Connection, collection_id: int) -> list[str]:
    """Return names of the collection's partitions, without the default one."""
    sql = "select name from partitions where collection_id = ? order by name"
    return fetch_column(connection, sql, (collection_id,))


def asks_for_pages(condition: Condition) -> bool:
    """Return whether chunks of one source may answer differently."""
    return any(comparison.field == ("page",) for comparison in comparisons(condition))


def chunks_fulfilling(connection: apsw.Connection, collection_id: int, condition: Condition) -> list[int]:
    """Return ids of the collection's chunks that are searched and fulfil the condition, ascending."""
    compiled = sql_condition(condition, "sources.metadata", COLUMNS)
    sql = f"""
        select chunks.id from chunks join sources on sources.id = chunks.source_id
        where collection_id = :collection and trashed_at is null and {compiled.sql} order by chunks.id
    """
    return fetch_column(connection, sql, {"collection": collection_id, **compiled.bindings})


def load_rows(connection: apsw.Connection, collection_id: int, ids: Sequence[int]) -> dict[int, Row]:
    """Return chunk id -> row, in the order asked for; the trash and other collections are left out."""
    sql = f"""
        select chunks.id, text, metadata, uri, title, first_page, format,
            coalesce(partitions.name, '{DEFAULT_PARTITION}')
        from chunks join sources on sources.id = source_id left join partitions on partitions.id = partition_id
        where chunks.id in (select value from carray(:ids)) and sources.collection_id = :collection
            and trashed_at is null
    """
    if not ids:
        return {}
    rows_by_id = {
        chunk_id: Row(chunk_id, text, metadata_of(metadata, uri, title, page, kind), partition)
        for chunk_id, text, metadata, uri, title, page, kind, partition in fetch_all(
            connection, sql, {"ids": apsw.carray(array("q", ids)), "collection": collection_id}
        )
    }
    return {row_id: rows_by_id[row_id] for row_id in dict.fromkeys(ids) if row_id in rows_by_id}


def whole_sources(connection: apsw.Connection, collection: Collection, ids: Sequence[int]) -> list[int]:
    """Return ids of the sources that consist of those chunks; ids of other collections are ignored.

    Raises:
        InvalidInput: only some of a source's chunks are named.
    """
    sql = """
        select sources.id, title, chunk_count, count(*) from chunks join sources on sources.id = source_id
        where chunks.id in (select value from carray(:ids)) and collection_id = :collection and trashed_at is null
        group by sources.id
    """
    rows = fetch_all(connection, sql, {"ids": apsw.carray(array("q", ids)), "collection": collection.id}) if ids else []
    for _, title, total, named in rows:
        if named < total:
            raise InvalidInput(
                f"'{title}' has {total} chunks, and only {named} of them would be deleted.",
                hint="A document is removed as a whole: name all its ids, or use remove_source.",
            )
    return [row[0] for row in rows]
