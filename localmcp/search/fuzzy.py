"""The surface words of each collection, in memory: what a misspelled query word may mean."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import apsw

from localmcp.storage.database import fetch_all
from localmcp.wording.spelling import Correction, WordList, correct


class Vocabulary:
    """The surface words of each collection, in memory from the first correction on. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = -1
        self._words: dict[int, WordList] = {}

    def corrections(
        self, connection: apsw.Connection, generation: int, collection_ids: Sequence[int], word: str
    ) -> list[Correction]:
        """Return the words of those collections that `word` may be a slip of, likeliest first, then most frequent."""
        lists = [self._words_of(connection, generation, collection_id) for collection_id in collection_ids]
        return correct(word, *lists)

    def holds_within(
        self, connection: apsw.Connection, generation: int, collection_ids: Sequence[int], part: str
    ) -> bool:
        """Return whether a word of those collections contains `part`: "kosten" is in "reparaturkosten"."""
        lists = [self._words_of(connection, generation, collection_id) for collection_id in collection_ids]
        return any(part in word for words in lists for word in words.counts)

    def _words_of(self, connection: apsw.Connection, generation: int, collection_id: int) -> WordList:
        with self._lock:
            if generation != self._generation:
                self._generation, self._words = generation, {}
            if collection_id not in self._words:
                sql = "select word, chunks from words where collection_id = ?"
                self._words[collection_id] = WordList(dict(fetch_all(connection, sql, (collection_id,))))
            return self._words[collection_id]
