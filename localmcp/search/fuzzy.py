"""Spelling repair: the nearest known word for a query word that stands nowhere."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from localmcp.storage.database import fetch_all

SHORTEST = 4
"""Shorter words have too many neighbours to guess one."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A query word and what it was taken for."""

    word: str
    replacement: str
    distance: int
    """Edits; a swap of neighbours counts as one."""


class Vocabulary:
    """The surface words of each collection, in memory from the first repair on. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = -1
        self._words: dict[int, dict[str, int]] = {}

    def repair(
        self, connection: apsw.Connection, generation: int, collection_ids: Sequence[int], word: str
    ) -> Repair | None:
        """The word of those collections that `word` most likely stands for, or None.

        At most 1 edit up to five letters, 2 beyond; of equally near words the one with the same first letter, then the
        most frequent.
        """
        if len(word) < SHORTEST or not word.isalpha():
            return None
        nearest = [
            found for each in collection_ids for found in _closest(word, self._words_of(connection, generation, each))
        ]
        if not nearest:
            return None
        distance, _, _, replacement = min(nearest)
        return Repair(word, replacement, distance)

    def _words_of(self, connection: apsw.Connection, generation: int, collection_id: int) -> dict[str, int]:
        with self._lock:
            if generation != self._generation:
                self._generation, self._words = generation, {}
            if collection_id not in self._words:
                sql = "select word, chunks from words where collection_id = ?"
                self._words[collection_id] = dict(fetch_all(connection, sql, (collection_id,)))
            return self._words[collection_id]


def _closest(word: str, known: dict[str, int]) -> list[tuple[int, bool, int, str]]:
    """(distance, other first letter, -chunks, word) of each candidate."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    most = 1 if len(word) <= 5 else 2
    found = process.extract(word, known.keys(), scorer=OSA.distance, score_cutoff=most, limit=None)
    return [(int(distance), each[0] != word[0], -known[each], each) for each, distance, _ in found]
