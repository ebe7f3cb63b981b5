"""bm25 for a caller who sees a part of the file: no score depends on passages that the caller may not see.

FTS5's own bm25 counts words and lengths over the whole file: the score of a word would tell whether collections that a
key does not open hold it too.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from localmcp.storage.database import fetch_all

FREQUENCIES = "localmcp_frequencies"
"""Our auxiliary function of FTS5; its arguments are the weights of the columns."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """What bm25 counts in one passage."""

    chunk_id: int
    words: int
    frequencies: list[float]
    """Of each phrase its mentions, each as much as its column weighs."""


def scoped_bm25(
    connection: apsw.Connection, match: str, idfs: Sequence[float], chunk_ids: Iterable[int],
    column_weights: Sequence[float], saturation: float, length_share: float,
) -> dict[int, tuple[float, float]]:  # fmt: skip
    """Return chunk id -> bm25 (higher is better) of these passages, which match, and length in mean lengths of them.

    Args:
        match: FTS5 syntax.
        idfs: one for each phrase of `match`, in its order.
        saturation: the `k1` of bm25.
        length_share: its `b`.
    """
    passages = _count(connection, match, chunk_ids, column_weights)
    mean = sum(passage.words for passage in passages) / len(passages) if passages else 1.0
    scores: dict[int, tuple[float, float]] = {}
    for passage in passages:
        ratio = passage.words / mean
        damping = saturation * (1 - length_share + length_share * ratio)
        parts = (
            idf * frequency * (1 + saturation) / (frequency + damping)
            for idf, frequency in zip(idfs, passage.frequencies, strict=True)
        )
        scores[passage.chunk_id] = sum(parts), ratio
    return scores


def _count(
    connection: apsw.Connection, match: str, chunk_ids: Iterable[int], column_weights: Sequence[float]
) -> list[_Counted]:
    connection.register_fts5_function(FREQUENCIES, _frequencies)
    # The plus: else FTS5 would look up the words again for every passage.
    sql = f"""
        select rowid + 0, {FREQUENCIES}(chunks_fts, {", ".join(map(str, column_weights))}) from chunks_fts
        where chunks_fts match ? and +rowid in (select value from carray(?))
    """
    passages: list[_Counted] = []
    for chunk_id, counted in fetch_all(connection, sql, (match, apsw.carray(array("q", chunk_ids)))):
        words, *frequencies = counted.split()
        passages.append(_Counted(chunk_id, int(words), [*map(float, frequencies)]))
    return passages


def _frequencies(row: apsw.FTS5ExtensionApi, *column_weights: Any) -> str:
    """Return what is counted in a row: its words, then each phrase."""
    frequencies = (
        sum(weight * len(mentions) for weight, mentions in zip(column_weights, columns, strict=True))
        for columns in map(row.phrase_locations, range(row.phrase_count))
    )
    return " ".join(map(str, (row.column_size(-1), *frequencies)))
