"""The catalog's words in memory: which quick starts are worth scoring for a query."""

from __future__ import annotations

import json
import threading
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import apsw

from localmcp.arrays import NDArray, np
from localmcp.quickstarts.matching import (
    COMMON_STEM,
    MOST_EXTRA_WORDS,
    UNMATCHED_WORD,
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

Relation = Literal["are", "begin", "end", "hold"]
FIELDS: tuple[Field, ...] = ("name", "display_name", "description")
MOST_CANDIDATES = 64
"""Scored by SQL for one field; they are the best by a bound that rarely differs from the score."""
LEAST_COMMON, COMMON_SHARE = 10, 0.1
"""A word in more quick starts than both allow ("Red Hat") does not show what one is about."""
LEAST_TELLING = 20
"""In a smaller catalog, a missing word says nothing about the question."""
REMEMBERED_WORDS = 10_000
"""Query words whose neighbors are kept in memory."""


class FieldWords:
    """One field of every quick start: its folded text, and the rows of each word."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.rows: defaultdict[str, array[int]] = defaultdict(lambda: array("i"))
        self.word_counts = array("H")
        self.text_lengths = array("i")

    def add(self, text: str) -> None:
        """The field of the next row."""
        folded = fold_text(text)
        words = split_words(folded)
        row = len(self.texts)
        self.texts.append(folded)
        self.text_lengths.append(len(folded))
        self.word_counts.append(min(len(words), 65_535))
        for word in set(words):
            self.rows[word].append(row)

    def counts(self) -> NDArray[Any]:
        """Return the number of words in each row."""
        return np.frombuffer(self.word_counts, dtype=np.uint16).astype(np.int32)

    def lengths(self) -> NDArray[Any]:
        """Return the number of characters in each row."""
        return np.frombuffer(self.text_lengths, dtype=np.int32)


class CatalogWords:
    """A snapshot of the searched fields. Rows are positions; `ids` gives the quick start of each."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.ids = array("q")
        self.fields: dict[Field, FieldWords] = {field: FieldWords() for field in FIELDS}
        rows = connection.execute("""
            select id, name, display_name, description from quickstarts where deleted_at is null
            order by length(display_name), name
        """)
        for identity, *texts in rows:
            self.ids.append(identity)
            for field_name, text in zip(FIELDS, texts, strict=True):
                self.fields[field_name].add(str(text))
        self.vocabulary = sorted({word for field in self.fields.values() for word in field.rows})
        self._blob = "\n".join(self.vocabulary) + "\n"
        self._backwards = sorted(word[::-1] for word in self.vocabulary)
        self._lengths = array("i", map(len, self.vocabulary))
        self._letters = array("Q", map(_letter_set, self.vocabulary))
        self._neighbors: dict[str, Neighbors] = {}

    # ------------------------------------------------------------ words

    def neighbors(self, query: Query, connection: apsw.Connection) -> dict[str, Neighbors]:
        """Return the neighbors of each significant word of a query."""
        if len(self._neighbors) > REMEMBERED_WORDS:
            self._neighbors = {}
        neighbors_by_word: dict[str, Neighbors] = {}
        for word in query.significant_words:
            if word not in self._neighbors:
                self._neighbors[word] = self._find_neighbors(word, connection)
            neighbors_by_word[word] = self._neighbors[word]
        return neighbors_by_word

    def _find_neighbors(self, word: str, connection: apsw.Connection) -> Neighbors:
        near = dict.fromkeys((*self._nearly(word), *self._of_one_stem(word)))
        measured = measure_edits(connection, word, list(near))
        edits = {other: count for other, count in measured.items() if may_mean(word, other, count)}
        evidence = {edit for edit in edits if is_sure(word, edit, edits[edit]) and not self._is_common(edit)}
        telling = len(self.ids) >= LEAST_TELLING
        known_in = frozenset[Field](
            where for where in FIELDS if not telling or any(edit in self.fields[where].rows for edit in edits)
        )
        return Neighbors(edits, frozenset(evidence), known_in)

    def _is_common(self, word: str) -> bool:
        titles = len(self.fields["display_name"].rows.get(word, ()))
        return titles > max(LEAST_COMMON, COMMON_SHARE * len(self.ids))

    def _nearly(self, word: str) -> list[str]:
        """Return the words within the edit budget; a swap of neighboring letters counts as one edit."""
        from rapidfuzz import process
        from rapidfuzz.distance import OSA

        budget = word_budget(word)
        if budget == 0:
            return [word] if self._knows(word) else []
        similar = self._similar(word, budget)
        scored_words = process.extract(word, similar, scorer=OSA.distance, score_cutoff=budget, limit=None)
        return [near_word for near_word, _, _ in scored_words]

    def _similar(self, word: str, budget: int) -> list[str]:
        """Return words of about the same length and letters: an edit changes at most two letters of the set."""
        lengths = np.frombuffer(self._lengths, dtype=np.int32)
        letters = np.frombuffer(self._letters, dtype=np.uint64)
        other_letters = np.bitwise_count(letters ^ np.uint64(_letter_set(word)))
        fit = (np.abs(lengths - len(word)) <= budget) & (other_letters <= 2 * budget)
        return [self.vocabulary[row] for row in np.flatnonzero(fit).tolist()]

    def _knows(self, word: str) -> bool:
        position = bisect_left(self.vocabulary, word)
        return position < len(self.vocabulary) and self.vocabulary[position] == word

    def _of_one_stem(self, word: str) -> list[str]:
        if len(word) < 4 or word_budget(word) == 0:
            return []
        return [other for other in _beginning_with(self.vocabulary, word[:4]) if have_common_stem(word, other)]

    def _words_that(self, relation: Relation, word: str) -> list[str]:
        """Known words that are `word`, or begin or end with it, or hold it."""
        if relation == "are":
            return [word] if self._knows(word) else []
        if relation == "begin":
            return _beginning_with(self.vocabulary, word)
        if relation == "end":
            return [backwards[::-1] for backwards in _beginning_with(self._backwards, word[::-1])]
        return self._words_holding(word)

    def _words_holding(self, part: str) -> list[str]:
        if len(part) <= 2:
            return [word for word in self.vocabulary if part in word]
        holding: list[str] = []
        offset = self._blob.find(part)
        while offset >= 0:
            stop = self._blob.find("\n", offset)
            holding.append(self._blob[self._blob.rfind("\n", 0, offset) + 1 : stop])
            offset = self._blob.find(part, stop)
        return holding

    # ------------------------------------------------------------ rows

    def candidates(
        self,
        query: Query,
        where: Field,
        neighbors: Mapping[str, Neighbors],
        max_distance: int,
        enough: int,
        allowed: NDArray[Any] | None,
    ) -> list[int]:
        """Return ids of the quick starts that may match best in a field; `allowed` is a mask over the rows."""
        words = self.fields[where]
        if not query.words:
            rows = [row for row, text in enumerate(words.texts) if text == query.text]
            return self._ids([row for row in rows if allowed is None or allowed[row]])
        rows = self._holding(query, words, allowed)
        if len(rows) < enough and any(query.significant):
            rows += self._resembling(query, words, neighbors, allowed)
            rows += self._of_like_length(query, words, max_distance, allowed)
        return self._ids(rows)

    def _ids(self, rows: Iterable[int]) -> list[int]:
        return [self.ids[row] for row in dict.fromkeys(rows)]

    def _holding(self, query: Query, words: FieldWords, allowed: NDArray[Any] | None) -> list[int]:
        """Return rows whose text holds the whole query, the least text around it first."""
        cost = np.zeros(len(self.ids), dtype=np.int32)
        for word, relation in zip(query.words, _relations(query), strict=True):
            matching_words = self._words_that(relation, word)
            cost += _spread(
                words, [(match, len(match) - len(word)) for match in matching_words], _NOWHERE, len(self.ids)
            )
        if allowed is not None:
            cost[~allowed] = _NOWHERE
        pattern = bare(query.text)
        candidates = [row for row in np.flatnonzero(cost < _NOWHERE).tolist() if pattern in words.texts[row]]
        return _least_first(np.asarray(candidates, dtype=np.int64), (cost + words.counts())[candidates])

    def _resembling(
        self, query: Query, words: FieldWords, neighbors: Mapping[str, Neighbors], allowed: NDArray[Any] | None
    ) -> list[int]:
        """Return rows with half of the significant words or their neighbors, the least distant first."""
        size = len(self.ids)
        distance, hits, subjects, others = (np.zeros(size, dtype=np.int32) for _ in range(4))
        certain = np.zeros(size, dtype=bool)
        for word, counts in zip(query.words, query.significant, strict=True):
            if not counts:
                others[_rows_of(words, word)] += 1
                continue
            cost = _spread(words, neighbors[word].edits.items(), UNMATCHED_WORD, size)
            distance += cost
            hits += cost < UNMATCHED_WORD
            if word in query.strong:
                subjects += cost < UNMATCHED_WORD
                for evidence_word in neighbors[word].evidence:
                    certain[_rows_of(words, evidence_word)] = True
        significant_count, strong = sum(query.significant), len(query.strong)
        half = (2 * hits >= significant_count) | (2 * subjects >= strong)
        fit = (hits > 0) & ((hits == significant_count) | half & certain)
        if allowed is not None:
            fit &= allowed
        extra = np.clip(words.counts() - hits - others, 0, MOST_EXTRA_WORDS)
        rows = np.flatnonzero(fit)
        return _least_first(rows, distance[rows] + extra[rows])

    def _of_like_length(
        self, query: Query, words: FieldWords, max_distance: int, allowed: NDArray[Any] | None
    ) -> list[int]:
        """Return rows whose whole text may be the query, mistyped."""
        from rapidfuzz import process
        from rapidfuzz.distance import Levenshtein

        most = min(max_distance, int(WHOLE_FIELD_SHARE * (len(query.text) + max_distance)))
        fit = np.abs(words.lengths() - len(query.text)) <= most
        if allowed is not None:
            fit &= allowed
        rows = np.flatnonzero(fit).tolist()
        near = [words.texts[row] for row in rows]
        scored_texts = process.extract(
            query.text, near, scorer=Levenshtein.distance, score_cutoff=most, limit=MOST_CANDIDATES
        )
        return [rows[position] for _, _, position in scored_texts]


_NOWHERE = 10_000


def _relations(query: Query) -> list[Relation]:
    """Return, by query word, how a word of a field must relate to it if it holds the whole query."""
    relations: list[Relation] = ["are"] * len(query.words)
    if query.only_stop_words:
        return relations
    if len(relations) == 1:
        return ["hold"]
    relations[0], relations[-1] = "end", "begin"
    return relations


def _beginning_with(ordered: Sequence[str], beginning: str) -> list[str]:
    position = bisect_left(ordered, beginning)
    beginning_words: list[str] = []
    while position < len(ordered) and ordered[position].startswith(beginning):
        beginning_words.append(ordered[position])
        position += 1
    return beginning_words


def _letter_set(word: str) -> int:
    """Return which characters a word has, as a set of 64 bits."""
    letters = 0
    for character in word:
        letters |= 1 << (ord(character) & 63)
    return letters


def _spread(words: FieldWords, costs: Iterable[tuple[str, int]], otherwise: int, size: int) -> NDArray[Any]:
    """For each row the least cost of the given words that it has."""
    spread = np.full(size, otherwise, dtype=np.int32)
    # The least cost is assigned last, so it stays. One assignment: two letters are in tens of thousands of words.
    rows_by_cost = ((cost, rows) for word, cost in costs if (rows := words.rows.get(word)))
    ordered = sorted(rows_by_cost, key=lambda pair: -pair[0])
    if ordered:
        counts = [len(rows) for _, rows in ordered]
        every_row = np.concatenate([np.frombuffer(rows, dtype=np.int32) for _, rows in ordered])
        spread[every_row] = np.repeat(np.array([cost for cost, _ in ordered], dtype=np.int32), counts)
    return spread


def _rows_of(words: FieldWords, word: str) -> NDArray[Any]:
    return np.frombuffer(words.rows[word], dtype=np.int32) if word in words.rows else np.empty(0, dtype=np.int32)


def _least_first(rows: NDArray[Any], bounds: NDArray[Any]) -> list[int]:
    """Return at most `MOST_CANDIDATES` rows by bound.

    Rows are numbered by length of title and name, so ties are right.
    """
    order = np.argsort(bounds, kind="stable")[:MOST_CANDIDATES]
    return rows[order].tolist()


def measure_edits(connection: apsw.Connection, word: str, others: Sequence[str]) -> dict[str, int]:
    """Return the distance of each of `others` by the file's own `levenshtein`.

    Words with a common stem are at most 2 away.
    """
    rows = fetch_all(
        connection,
        "select value, levenshtein(?1, value) from json_each(?2)",
        (word, json.dumps(others)),
    )
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
