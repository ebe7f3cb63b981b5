"""The vectors of one collection in the file: what a search may look at, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from localmcp.arrays import Ids, np
from localmcp.errors import ModelMismatch
from localmcp.search.backend import DEFAULT_PARTITION, Space
from localmcp.search.chunk_rows import (
    asks_for_pages,
    chunks_fulfilling,
    find_partition,
    partition_names,
    sources_fulfilling,
)
from localmcp.search.collections import choose_collections
from localmcp.search.conditions import Condition
from localmcp.search.index import Index
from localmcp.search.vector import Block
from localmcp.storage.database import fetch_all, fetch_column, fetch_one, read_generations

FEW = 400
"""So many vectors are compared one by one: narrowing them would read as many."""


@dataclass(frozen=True, slots=True)
class Part:
    """The vectors that one search may look at, in one snapshot."""

    model_id: int
    blocks: list[Block]
    allowed: Ids | None
    """Ids of the sources, sorted; None = all of the collection."""
    few: bool
    """So few vectors that all are compared."""


def find_part(
    connection: apsw.Connection, index: Index, collection: str, partition: str | None, condition: Condition | None,
    dimension: int,
) -> Part | None:  # fmt: skip
    """Return what a search with vectors of that dimension may look at; None when the collection holds no vector.

    Raises:
        NotFound: no such collection or partition.
        ModelMismatch: its vectors have another dimension.
    """
    [stored] = choose_collections(connection, [collection])
    partition_id = find_partition(connection, stored, partition) if partition is not None else None
    if stored.model_id is None:
        return None
    name, size = _model(connection, stored.model_id)
    if size != dimension:
        raise ModelMismatch(
            f"collection '{stored.name}' holds vectors of '{name.partition('#')[0]}' with {size} dimensions, "
            f"the model at hand makes {dimension}."
        )
    blocks = index.sign_blocks(connection, stored.model_id, read_generations(connection), [stored.id])
    allowed = None
    if partition is not None or condition is not None:
        allowed = sources_fulfilling(connection, stored.id, partition, partition_id, condition)
    if condition is not None and asks_for_pages(condition):
        blocks = _only(blocks, chunks_fulfilling(connection, stored.id, condition))
    return Part(stored.model_id, blocks, allowed, sum(len(block.ids) for block in blocks) <= FEW)


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


def _only(blocks: Sequence[Block], chunk_ids: Sequence[int]) -> list[Block]:
    """Return the blocks with nothing but those chunks in them."""
    masked = [(block, np.isin(block.ids, chunk_ids)) for block in blocks]
    return [
        Block(block.segments, block.ids[stays], block.sources[stays], np.ascontiguousarray(block.bits[:, stays]))
        for block, stays in masked
        if stays.any()
    ]
