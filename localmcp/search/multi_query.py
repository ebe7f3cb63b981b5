"""Several queries in one pass over the vectors, when only the best of all of them together are wanted.

Each query alone would read its own few hundred exact vectors until its ten nearest are settled. Together the pairs of
query and chunk are taken in the order of their estimates, whichever query they belong to, until the best are settled:
ten queries then read about as many exact vectors as two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

import apsw

from localmcp.search.vector import (
    EXACT_STEP,
    Block,
    all_ids,
    estimated_candidates,
    exact_cosines,
    nearest_chunks,
    restricted_codes,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Vectors = NDArray[np.float32]

STOOD = 10
"""How many of the best must be unchanged for one step; as for a single query."""
STEP, MOST_STEPS = 200, 3
"""Exact vectors read at a time: so many times the number of queries, at most this many times. Recall@10 of ten texts is
then 1.000 at 100,000 chunks (at most twice: .980)."""


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk that is near one of the queries."""

    chunk_id: int
    cosine: float
    query: int
    """Index of the query that it is nearest to."""


def nearest_to_any(
    connection: apsw.Connection, model_id: int, blocks: Sequence[Block], queries: Vectors, k: int,
    allowed: Ids | None = None, exact: bool = False,
) -> list[Match]:  # fmt: skip
    """The k chunks nearest to any of the queries, shape (queries, dimension), each chunk once; best first, ties by id.

    `allowed` (sorted source ids) restricts them; `exact` compares every vector with every query.
    """
    if len(queries) == 1:
        neighbors = nearest_chunks(connection, model_id, blocks, queries[0], k, allowed, exact)
        return [Match(chunk_id, cosine, 0) for chunk_id, cosine in neighbors]
    best = _Best(max(k, STOOD))
    if exact:
        ids = all_ids(blocks, allowed)
        for start in range(0, len(ids), EXACT_STEP):
            part = ids[start : start + EXACT_STEP]
            best.add((number, exact_cosines(connection, model_id, part, query)) for number, query in enumerate(queries))
        return best.matches[:k]
    pairs = _Pairs.of(blocks, queries, allowed)
    for step in pairs.steps(STEP * min(len(queries), MOST_STEPS)):
        before = best.matches[:STOOD]
        best.add((number, exact_cosines(connection, model_id, ids, queries[number])) for number, ids in step)
        if len(best.matches) >= k and best.matches[:STOOD] == before:
            break
    return best.matches[:k]


def best_matches(cosines: Sequence[Mapping[int, float]], k: int) -> list[Match]:
    """Of each query's chunk -> cosine, the k best of all, each chunk once; best first, ties by id."""
    best = _Best(k)
    best.add(enumerate(cosines))
    return best.matches


class _Best:
    """The best matches so far, best first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.matches: list[Match] = []

    def add(self, estimates: Iterable[tuple[int, Mapping[int, float]]]) -> None:
        """Take in (query, chunk -> cosine); a chunk that is there already keeps its better cosine."""
        nearest: dict[int, tuple[float, int]] = {match.chunk_id: (match.cosine, match.query) for match in self.matches}
        for query, cosines in estimates:
            for chunk_id, cosine in cosines.items():
                if chunk_id not in nearest or cosine > nearest[chunk_id][0]:
                    nearest[chunk_id] = (cosine, query)
        first = nsmallest(self.most, ((-cosine, chunk_id, query) for chunk_id, (cosine, query) in nearest.items()))
        self.matches = [Match(chunk_id, -cosine, query) for cosine, chunk_id, query in first]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of query and candidate, best estimate first: shape (pairs,) each."""

    numbers: Any
    ids: Any

    @classmethod
    def of(cls, blocks: Sequence[Block], queries: Vectors, allowed: Ids | None) -> _Pairs:
        import numpy as np

        codes = restricted_codes(blocks, allowed)
        estimates = [estimated_candidates(codes, query) for query in queries]
        numbers = np.repeat(np.arange(len(estimates)), [len(ids) for ids, _ in estimates])
        order = np.argsort(-np.concatenate([estimated for _, estimated in estimates]))
        return cls(numbers[order], np.concatenate([ids for ids, _ in estimates])[order])

    def steps(self, size: int) -> Iterable[list[tuple[int, Any]]]:
        """(query, chunk ids) of `size` pairs at a time."""
        import numpy as np

        for start in range(0, len(self.ids), size):
            numbers, ids = self.numbers[start : start + size], self.ids[start : start + size]
            yield [(int(number), ids[numbers == number]) for number in np.unique(numbers)]
