"""Several queries over the same vectors, when only the best of all of them together are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest

import apsw

from localmcp.arrays import Vectors
from localmcp.search.vector import BEST, Block, nearest_chunks


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk that is near one of the queries."""

    chunk_id: int
    cosine: float
    query: int
    """Index of the query that it is nearest to."""


def nearest_to_any(
    connection: apsw.Connection, model_id: int, blocks: Sequence[Block], queries: Vectors, k: int
) -> list[Match]:
    """Return the k chunks nearest to any of the queries, each once; best first, ties by id.

    `queries` have the shape (queries, dimension). Of a later query, what is farther than ten chunks of the earlier ones
    need not be compared exactly.
    """
    matches: list[Match] = []
    for number, query in enumerate(queries):
        tenth = matches[BEST - 1].cosine if len(matches) >= BEST else -1.0
        near = nearest_chunks(connection, model_id, blocks, query, k, tenth=tenth)
        matches = _better(matches, [(number, dict(near))], max(k, BEST))
    return matches[:k]


def best_matches(cosines: Sequence[Mapping[int, float]], k: int) -> list[Match]:
    """Return of each query's chunk -> cosine the k best of all, each chunk once; best first, ties by id."""
    return _better([], enumerate(cosines), k)


def _better(matches: Iterable[Match], cosines: Iterable[tuple[int, Mapping[int, float]]], most: int) -> list[Match]:
    """Return the best of some matches and of (query, chunk -> cosine); a chunk keeps its best cosine."""
    nearest: dict[int, tuple[float, int]] = {match.chunk_id: (match.cosine, match.query) for match in matches}
    for query, cosine_by_id in cosines:
        for chunk_id, cosine in cosine_by_id.items():
            if chunk_id not in nearest or cosine > nearest[chunk_id][0]:
                nearest[chunk_id] = (cosine, query)
    first = nsmallest(most, ((-cosine, chunk_id, query) for chunk_id, (cosine, query) in nearest.items()))
    return [Match(chunk_id, -cosine, query) for cosine, chunk_id, query in first]
