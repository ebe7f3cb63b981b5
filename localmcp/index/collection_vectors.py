"""The vectors of one collection in the file: the nearest to several queries, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apsw

from localmcp.arrays import Vectors, np
from localmcp.index.backend import DEFAULT_PARTITION, Space
from localmcp.index.chunk_rows import asks_for_pages, chunks_fulfilling, partition_names
from localmcp.index.collections import Collection, choose_collections
from localmcp.index.filters import Filters, allowed_sources
from localmcp.index.index import Index
from localmcp.index.vector import Block, nearest_chunks
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
    if filters.condition is not None and asks_for_pages(filters.condition):
        fulfilling = np.array(chunks_fulfilling(connection, collection.id, filters.condition), np.int64)
        blocks = [_only(block, np.isin(block.ids, fulfilling)) for block in blocks]
        filters = replace(filters, condition=None)
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


def _only(block: Block, stays: Any) -> Block:
    return Block(block.segments, block.ids[stays], block.sources[stays], np.ascontiguousarray(block.bits[:, stays]))


def describe_vectors(connection: apsw.Connection, collection: str) -> Space:
    """Count what is searched by meaning; chunks without a vector and the trash are not counted.

    Raises:
        NotFound: no such collection.
    """
    [stored] = choose_collections(connection, [collection])
    model, dimension = _model(connection, stored.model_id)
    sql = "select sources from signs where collection_id = ? and model_id = ?"
    blobs = fetch_column(connection, sql, (stored.id, stored.model_id))
    sources, counts = np.unique(np.frombuffer(b"".join(blobs), dtype=np.int64), return_counts=True)
    partitions = {DEFAULT_PARTITION: 0, **dict.fromkeys(partition_names(connection, stored.id), 0)}
    belongs = dict(fetch_all(connection, _PARTITION_OF_SOURCE, (stored.id,)))
    for source, count in zip(sources.tolist(), counts.tolist(), strict=True):
        partitions[belongs[source]] += count
    return Space(stored.name, dimension, model, sum(partitions.values()), partitions)


_PARTITION_OF_SOURCE = f"""
    select sources.id, coalesce(partitions.name, '{DEFAULT_PARTITION}') from sources
    left join partitions on partitions.id = partition_id where sources.collection_id = ?
"""


def _model(connection: apsw.Connection, model_id: int | None) -> tuple[str, int]:
    """Return `name#fingerprint` and dimension; empty and 0 for none."""
    sql = "select name || '#' || fingerprint, dimension from models where id = ?"
    return fetch_one(connection, sql, (model_id,)) or ("", 0)
