"""The vectors of one collection in the file: what a search may look at, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import apsw

from localmcp.arrays import np
from localmcp.index.backend import DEFAULT_PARTITION, Space
from localmcp.index.chunk_rows import asks_for_pages, chunks_fulfilling, partition_names
from localmcp.index.collections import Collection, choose_collections
from localmcp.index.filters import Filters, allowed_sources
from localmcp.index.index import Index
from localmcp.index.vector import Block, is_in
from localmcp.storage.database import fetch_all, fetch_column, fetch_one, read_generations


def find_blocks(connection: apsw.Connection, index: Index, collection: Collection, filters: Filters) -> list[Block]:
    """Return the codes of a collection's vectors whose documents, and pages, pass the filters."""
    if collection.model_id is None:
        return []
    blocks = index.sign_blocks(connection, collection.model_id, read_generations(connection), [collection.id])
    if filters.condition is not None and asks_for_pages(filters.condition):
        chunk_ids = chunks_fulfilling(connection, collection.id, filters.condition)
        blocks = _only(blocks, lambda block: np.isin(block.ids, chunk_ids))
        filters = replace(filters, condition=None)
    if not filters:
        return blocks
    allowed = allowed_sources(connection, [collection], filters)
    return _only(blocks, lambda block: is_in(block.sources, allowed))


def _only(blocks: Sequence[Block], passes: Callable[[Block], Any]) -> list[Block]:
    """Return the blocks with nothing but the chunks in them that pass: a mask of each block."""
    masked = [(block, passes(block)) for block in blocks]
    return [
        Block(block.segments, block.ids[stays], block.sources[stays], np.ascontiguousarray(block.bits[:, stays]))
        for block, stays in masked
        if stays.any()
    ]


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
