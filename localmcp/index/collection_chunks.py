"""The chunks of one collection: nearest to several queries, fulfilling a condition, their rows, and their number."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import apsw

from localmcp.arrays import Vectors
from localmcp.errors import InvalidInput
from localmcp.index.collections import DEFAULT_PARTITION, Collection, choose_collections, partition_names
from localmcp.index.conditions import Condition, sql_condition
from localmcp.index.filters import SOURCE_COLUMNS, Filters, allowed_sources
from localmcp.index.index import Index
from localmcp.index.records import metadata_of
from localmcp.index.vector import nearest_chunks
from localmcp.schemas import Json
from localmcp.storage.database import fetch_all, fetch_column, fetch_one, read_generations


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk that is near one of the queries."""

    chunk_id: int
    cosine: float
    query: int
    """Index of the query that it is nearest to."""


def nearest_to_any(
    connection: apsw.Connection, index: Index, collection: Collection, filters: Filters, queries: Vectors, k: int
) -> list[Match]:
    """Return the k chunks of a collection nearest to any of the queries (n, dimension), each once; best first."""
    if collection.model_id is None:
        return []
    blocks = index.sign_blocks(connection, collection.model_id, read_generations(connection), [collection.id])
    allowed = allowed_sources(connection, [collection], filters) if filters else None
    near = (nearest_chunks(connection, collection.model_id, blocks, query, k, allowed) for query in queries)
    return best_matches([dict(pairs) for pairs in near], k)


def best_matches(cosines: Sequence[Mapping[int, float]], k: int) -> list[Match]:
    """Return of each query's chunk -> cosine the k best of all, each chunk once; best first, ties by id."""
    best: dict[int, Match] = {}
    for query, cosine_by_id in enumerate(cosines):
        for chunk_id, cosine in cosine_by_id.items():
            if chunk_id not in best or cosine > best[chunk_id].cosine:
                best[chunk_id] = Match(chunk_id, cosine, query)
    return sorted(best.values(), key=lambda match: (-match.cosine, match.chunk_id))[:k]


@dataclass(frozen=True, slots=True)
class Row:
    """One chunk with its metadata."""

    id: int
    text: str
    metadata: Json
    partition: str


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
    rows = fetch_all(connection, sql, {"ids": apsw.carray(array("q", ids)), "collection": collection_id})
    rows_by_id = {
        chunk_id: Row(chunk_id, text, metadata_of(metadata, uri, title, page, kind), partition)
        for chunk_id, text, metadata, uri, title, page, kind, partition in rows
    }
    return {row_id: rows_by_id[row_id] for row_id in dict.fromkeys(ids) if row_id in rows_by_id}


def chunks_fulfilling(connection: apsw.Connection, collection_id: int, condition: Condition) -> list[int]:
    """Return ids of the collection's chunks that are searched and fulfil the condition, ascending."""
    fulfils, values = sql_condition(condition, "sources.metadata", SOURCE_COLUMNS)
    sql = f"""
        select chunks.id from chunks join sources on sources.id = chunks.source_id
        where collection_id = :collection and trashed_at is null and {fulfils} order by chunks.id
    """
    return fetch_column(connection, sql, {"collection": collection_id, **values})


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
    if not ids:
        return []
    rows = fetch_all(connection, sql, {"ids": apsw.carray(array("q", ids)), "collection": collection.id})
    for _, title, total, named in rows:
        if named < total:
            raise InvalidInput(
                f"'{title}' has {total} chunks, and only {named} of them would be deleted.",
                hint="A document is removed as a whole: name all its ids, or use remove_source.",
            )
    return [row[0] for row in rows]


@dataclass(frozen=True, slots=True)
class VectorCounts:
    """How many passages of a collection have a vector, and of which model."""

    model: str
    """Its name; empty for none."""
    dimension: int
    partitions: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.partitions.values())


def count_vectors(connection: apsw.Connection, collection: str) -> VectorCounts:
    """Count what is searched by meaning; chunks without a vector and the trash are not counted.

    Raises:
        NotFound: no such collection.
    """
    [stored] = choose_collections(connection, [collection])
    sql = "select name, dimension from models where id = ?"
    model, dimension = fetch_one(connection, sql, (stored.model_id,)) or ("", 0)
    sql = f"""
        select coalesce(partitions.name, '{DEFAULT_PARTITION}'), count(*) from sources
        left join partitions on partitions.id = partition_id join chunks on chunks.source_id = sources.id
        where sources.collection_id = ? and trashed_at is null
            and exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
        group by 1
    """
    counts: dict[str, int] = dict(fetch_all(connection, sql, (stored.id, stored.model_id)))
    names = [DEFAULT_PARTITION, *partition_names(connection, stored.id)]
    return VectorCounts(model, dimension, dict.fromkeys(names, 0) | counts)
