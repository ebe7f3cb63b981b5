"""The catalog's words in memory: which quick starts may answer a query, and what its words may mean."""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile

import apsw

from localmcp.quickstarts.matching import (
    COMMON_STEM,
    FUZZY,
    MOST_FUZZY,
    MOST_PARTIAL,
    NO_MATCH,
    UNMATCHED_WORD,
    WEIGHTS,
    WHOLE_FIELD_SHARE,
    Field,
    Neighbors,
    Query,
    bare,
    fold_text,
    have_common_stem,
    is_sure,
    may_mean,
    split_words,
    word_budget,
)
from localmcp.storage.database import fetch_all, fetch_one

FIELDS: tuple[Field, ...] = ("name", "display_name", "description")
LEAST_COMMON, COMMON_SHARE = 10, 0.1
"""A word in more quick starts than both allow ("Red Hat") does not show what one is about."""
LEAST_TELLING = 20
"""In a smaller catalog, a missing word says nothing about the question."""


class CatalogWords:
    """A snapshot of the searched fields: folded texts by id, and the ids of each word."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.texts: dict[Field, dict[int, str]] = {field: {} for field in FIELDS}
        self.word_counts: dict[Field, dict[int, int]] = {field: {} for field in FIELDS}
        self.ids_by_word: dict[Field, defaultdict[str, set[int]]] = {field: defaultdict(set) for field in FIELDS}
        sql = "select id, name, display_name, description from quickstarts where deleted_at is null"
        for identity, *texts in connection.execute(sql):
            for field, text in zip(FIELDS, texts, strict=True):
                folded = fold_text(str(text))
                words = split_words(folded)
                self.texts[field][identity], self.word_counts[field][identity] = folded, len(words)
                for word in words:
                    self.ids_by_word[field][word].add(identity)
        self.vocabulary = sorted({word for words in self.ids_by_word.values() for word in words})
        self._words_of_length: defaultdict[int, list[str]] = defaultdict(list)
        for word in self.vocabulary:
            self._words_of_length[len(word)].append(word)
        self._neighbors: dict[str, Neighbors] = {}

    def neighbors(self, query: Query, connection: apsw.Connection) -> dict[str, Neighbors]:
        """Return the neighbors of each significant word of a query."""
        for word in query.significant_words:
            if word not in self._neighbors:
                self._neighbors[word] = self._find_neighbors(word, connection)
        return {word: self._neighbors[word] for word in query.significant_words}

    def _find_neighbors(self, word: str, connection: apsw.Connection) -> Neighbors:
        from rapidfuzz import process
        from rapidfuzz.distance import OSA

        budget = word_budget(word)
        # A swap of neighboring letters counts as one edit.
        lengths = range(len(word) - budget, len(word) + budget + 1)
        others = [other for length in lengths for other in self._words_of_length.get(length, ())]
        scored = process.extract(word, others, scorer=OSA.distance, score_cutoff=budget, limit=None)
        near = [other for other, _, _ in scored]
        if budget and len(word) >= 4:
            first = bisect_left(self.vocabulary, word[:4])
            alike = takewhile(lambda other: other[:4] == word[:4], islice(self.vocabulary, first, None))
            near += [other for other in alike if have_common_stem(word, other)]
        measured = _measure_edits(connection, word, list(dict.fromkeys(near)))
        edits = {other: count for other, count in measured.items() if may_mean(word, other, count)}
        evidence = {other for other in edits if is_sure(word, other, edits[other]) and not self._is_common(other)}
        telling = len(self.texts["name"]) >= LEAST_TELLING
        known_in: list[Field] = [
            field for field in FIELDS if not telling or not edits.keys().isdisjoint(self.ids_by_word[field])
        ]
        return Neighbors(edits, frozenset(evidence), frozenset(known_in))

    def _is_common(self, word: str) -> bool:
        titles = len(self.ids_by_word["display_name"].get(word, ()))
        return titles > max(LEAST_COMMON, COMMON_SHARE * len(self.texts["name"]))

    def candidates(
        self, query: Query, field: Field, neighbors: Mapping[str, Neighbors], max_distance: int
    ) -> dict[int, int]:
        """Return id -> the least score that it can have, of the quick starts whose field may answer.

        It holds the query, or is the query mistyped as a whole, or holds as many of the query's words, or what they may
        mean, as a match must.
        """
        from rapidfuzz import process
        from rapidfuzz.distance import Levenshtein

        texts, pattern, weight = self.texts[field], bare(query.text), WEIGHTS[field]
        if not query.words:
            return {identity: 0 for identity, text in texts.items() if text == query.text}
        found, strong = Counter[int](), Counter[int]()
        significant = query.significant_words
        for word in significant:
            ids = set[int]().union(*(self.ids_by_word[field].get(other, ()) for other in neighbors[word].edits))
            found.update(ids)
            if word in query.strong:
                strong.update(ids)
        least = {
            identity: FUZZY + weight * UNMATCHED_WORD * (len(significant) - count)
            for identity, count in found.items()
            if 2 * count >= len(significant) or 2 * strong[identity] >= len(query.strong)
        }
        most = min(max_distance, int(WHOLE_FIELD_SHARE * (len(query.text) + max_distance)))
        near = process.extract(query.text, texts, scorer=Levenshtein.distance, score_cutoff=most, limit=None)
        for _, distance, identity in near:
            least[identity] = min(least.get(identity, NO_MATCH), FUZZY + weight * distance)
        least = {identity: min(score, MOST_FUZZY) for identity, score in least.items()}
        if not pattern.isalnum():
            return least | {identity: 0 for identity, text in texts.items() if pattern in text}
        parts = dict[int, int]()
        for word, ids in self.ids_by_word[field].items():
            if pattern in word:
                extra = len(word) - len(pattern)
                parts.update((identity, extra) for identity in ids if extra < parts.get(identity, len(word)))
        counts = self.word_counts[field]
        return least | {
            identity: min(weight * (counts[identity] - 1 + extra), MOST_PARTIAL) for identity, extra in parts.items()
        }


def _measure_edits(connection: apsw.Connection, word: str, others: Sequence[str]) -> dict[str, int]:
    """Return the distance of each of `others` by the file's own `levenshtein`.

    Words with a common stem are at most 2 away.
    """
    sql = "select value, levenshtein(?1, value) from json_each(?2)"
    rows = fetch_all(connection, sql, (word, json.dumps(others)))
    return {
        other: min(distance, COMMON_STEM) if have_common_stem(word, other) else distance for other, distance in rows
    }


class WordCache:
    """The newest snapshot, remade when the file's generation of quick starts moves on. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = -1
        self._words: CatalogWords | None = None

    def read(self, connection: apsw.Connection) -> CatalogWords:
        """Return the words as of this connection's snapshot."""
        generation: int = fetch_one(connection, "select quickstarts from state")
        with self._lock:
            if self._words is None or generation != self._generation:
                self._words, self._generation = CatalogWords(connection), generation
            return self._words
