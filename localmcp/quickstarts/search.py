"""Searching quick starts: their words in memory, one pass over them, and an index of whole documents."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import apsw

from localmcp.index.federation import shown_name
from localmcp.quickstarts.matching import (
    COMMON_STEM,
    FALLBACK,
    FUZZY,
    WHOLE_FIELD_SHARE,
    Field,
    Meanings,
    Query,
    Text,
    are_forms,
    fallback_score,
    may_mean,
    partial_distance,
    read_query,
    score_field,
    word_budget,
)
from localmcp.storage.database import Database, fetch_all, fetch_one
from localmcp.wording.normalize import index_text

FIELDS: tuple[Field, ...] = ("name", "display_name", "description")
LEAST_TELLING = 20
"""In a smaller catalog, a missing word says nothing about the question."""
MOST_FALLBACKS = 250


@dataclass(frozen=True, slots=True)
class Request:
    """What is searched for; at least one text."""

    texts: Mapping[Field, str]
    limit: int
    max_distance: int
    tag: str | None = None
    """`value` or `kind:value`; only quick starts that carry it."""


class Match(NamedTuple):
    """A quick start of the answer."""

    id: int
    name: str
    display_name: str
    description: str
    score: int
    matched_field: str
    """The field whose score it is; `document` if the words were only found in the whole text."""
    matched_parameters: int = 0
    likeness: int = 0
    """How much of the search text that field has as it was typed, 0..100; tells the tighter of two fuzzy matches."""
    origin: str | None = None
    """The mounted file that it is in."""

    @property
    def shown_name(self) -> str:
        return shown_name(self.name, self.origin)

    @property
    def place(self) -> tuple[int, int, int, int, str]:
        """Sort key (§3): the score, more parameters matched, the shorter title, the name."""
        return self.score, -self.matched_parameters, -self.likeness, len(self.display_name), self.name


class Catalog:
    """A snapshot of the searched fields of one file."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.generation: int = fetch_one(connection, "select quickstarts from state")
        self.rows: dict[int, tuple[str, str, str]] = {}
        """Name, title and description by id."""
        self.texts: dict[Field, dict[int, Text]] = {field: {} for field in FIELDS}
        self.folded: dict[Field, dict[int, str]] = {field: {} for field in FIELDS}
        self.ids_by_word: dict[Field, defaultdict[str, set[int]]] = {field: defaultdict(set) for field in FIELDS}
        sql = "select id, name, display_name, description from quickstarts where deleted_at is null"
        for identity, name, title, description in connection.execute(sql):
            self.rows[identity] = (str(name), str(title), str(description))
            for field, text in zip(FIELDS, self.rows[identity], strict=True):
                read = self.texts[field][identity] = Text.of(text)
                self.folded[field][identity] = read.folded
                for word in read.words:
                    self.ids_by_word[field][word].add(identity)
        self.vocabulary = list(set[str]().union(*self.ids_by_word.values()))
        self._kept: dict[str, dict[str, int]] = {}
        self._by_beginning: defaultdict[str, list[str]] = defaultdict(list)
        for word in self.vocabulary:
            self._by_beginning[word[:4]].append(word)

    def meanings(self, query: Query, connection: apsw.Connection) -> Meanings:
        """Return what the significant words of a query may mean, measured by the file's own `levenshtein`."""
        edits = {word: self._near(word, connection) for word in query.significant}
        is_telling = len(self.rows) >= LEAST_TELLING
        foreign: dict[Field, int] = {
            field: sum(not any(other in ids for other in others) for others in edits.values()) * is_telling
            for field, ids in self.ids_by_word.items()
        }
        return Meanings(edits, foreign)

    def _near(self, word: str, connection: apsw.Connection) -> dict[str, int]:
        """Return the catalog's words that a word may mean, and how far they are; kept, for people type on."""
        from rapidfuzz import process
        from rapidfuzz.distance import OSA

        if word in self._kept:
            return self._kept[word]
        # A swap of neighboring letters counts as one edit.
        budget = word_budget(word)
        near = process.extract(word, self.vocabulary, scorer=OSA.distance, score_cutoff=budget, limit=None)
        forms = {other for other in self._by_beginning.get(word[:4], ()) if are_forms(word, other)}
        measured = measure_edits(connection, word, [*forms.union(other for other, _, _ in near)])
        measured |= {other: min(measured[other], COMMON_STEM) for other in forms}
        kept = {other: count for other, count in measured.items() if may_mean(word, other, count)}
        return self._kept.setdefault(word, kept)

    def scores(self, connection: apsw.Connection, where: Field, query: Query, max_distance: int) -> dict[int, int]:
        """Return id -> score of the quick starts whose field answers.

        Scored are those whose field holds the query, or half of its words, or is nearly the query as a whole.
        """
        from rapidfuzz import process
        from rapidfuzz.distance import Levenshtein

        texts, folded, pattern = self.texts[where], self.folded[where], query.pattern
        candidates = {identity for identity, text in folded.items() if pattern in text}
        meanings = self.meanings(query, connection)
        words = Counter[int]()
        for word in query.significant:
            ids = set[int]().union(*(self.ids_by_word[where].get(other, ()) for other in meanings.edits[word]))
            words.update(ids)
        candidates |= {identity for identity, count in words.items() if 2 * count >= len(query.significant)}
        most = min(max_distance, int(WHOLE_FIELD_SHARE * (len(query.text.folded) + max_distance)))
        near = process.extract(query.text.folded, folded, scorer=Levenshtein.distance, score_cutoff=most, limit=None)
        whole = measure_edits(connection, query.text.folded, [text for text, _, _ in near])
        scores = {
            identity: score_field(query, where, texts[identity], meanings, whole.get(folded[identity]), max_distance)
            for identity in candidates.union(identity for _, _, identity in near)
        }
        return {identity: score for identity, score in scores.items() if score is not None}

    def substrings(self, where: Field, query: Query) -> dict[int, int]:
        """Return id -> score of the quick starts whose field holds the exact text (S0-17)."""
        distances = {
            identity: partial_distance(query, text)
            for identity, text in self.folded[where].items()
            if query.pattern in text
        }
        return {identity: fallback_score(where, far) for identity, far in distances.items() if far is not None}


class Catalogs:
    """The newest snapshot of each file, remade when its generation of quick starts moves on. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: WeakKeyDictionary[Database, Catalog] = WeakKeyDictionary()

    def read(self, database: Database, connection: apsw.Connection) -> Catalog:
        """Return the snapshot as of this connection, which belongs to the database."""
        with self._lock:
            catalog = self._made.get(database)
            if catalog is None or catalog.generation != fetch_one(connection, "select quickstarts from state"):
                catalog = self._made[database] = Catalog(connection)
            return catalog


def find_quickstarts(connection: apsw.Connection, catalog: Catalog, request: Request, *, fuzzy: bool) -> list[Match]:
    """Return the best matches, best first; without `fuzzy` only those that hold the exact text (S0-17)."""
    from rapidfuzz import fuzz

    queries: dict[Field, Query] = {where: read_query(text) for where, text in request.texts.items()}
    ids = tagged_ids(connection, request.tag)
    allowed = catalog.rows.keys() if ids is None else catalog.rows.keys() & ids
    scores: dict[int, list[tuple[int, Field]]] = {}
    for where, query in queries.items():
        by_field = (
            catalog.scores(connection, where, query, request.max_distance)
            if fuzzy
            else catalog.substrings(where, query)
        )
        for identity in by_field.keys() & allowed:
            scores.setdefault(identity, []).append((by_field[identity], where))
    matches: list[Match] = []
    for identity, by_parameter in scores.items():
        score, where = min(by_parameter, key=lambda pair: pair[0])
        likeness = 0
        if FUZZY <= score < FALLBACK:
            likeness = round(fuzz.partial_ratio(queries[where].text.folded, catalog.texts[where][identity].folded))
        matches.append(Match(identity, *catalog.rows[identity], score, where, len(by_parameter), likeness))
    matches = sorted(matches, key=lambda match: match.place)[: request.limit]
    if fuzzy and len(matches) < request.limit:
        others = allowed - scores.keys()
        matches += find_in_documents(connection, catalog, queries, others)[: request.limit - len(matches)]
    return matches


def find_in_documents(
    connection: apsw.Connection, catalog: Catalog, queries: Mapping[Field, Query], allowed: Iterable[int]
) -> list[Match]:
    """Return quick starts whose whole text holds every significant word, most in the title first."""
    matches: dict[int, Match] = {}
    for where, query in queries.items():
        stemmed = [stems for word in query.significant if (stems := index_text(word, "english"))]
        if query.only_stop_words or not any(word.isalpha() and len(word) > 2 for word in query.significant):
            continue
        sql = f"select rowid from quickstarts_fts where quickstarts_fts match ? limit {MOST_FALLBACKS}"
        for (identity,) in fetch_all(connection, sql, (" AND ".join(f'"{stems}"' for stems in stemmed),)):
            if identity in allowed:
                row = catalog.rows[identity]
                title = index_text(" ".join(row[:2]), "english")
                score = fallback_score(where, sum(f" {stems} " not in f" {title} " for stems in stemmed))
                match = Match(identity, *row, score, "document")
                matches[identity] = min(match, matches.get(identity, match), key=lambda match: match.place)
    return sorted(matches.values(), key=lambda match: match.place)


def measure_edits(connection: apsw.Connection, text: str, others: Sequence[str]) -> dict[str, int]:
    """Return the distance of a text to each of `others` by the file's own `levenshtein`."""
    sql = "select value, levenshtein(?1, value) from json_each(?2)"
    return dict(fetch_all(connection, sql, (text, json.dumps(others))))


def tagged_ids(connection: apsw.Connection, tag: str | None) -> list[int] | None:
    """Return ids of the quick starts with a tag, `value` or `kind:value`; None for no tag = all."""
    if tag is None:
        return None
    kind, _, value = tag.rpartition(":")
    sql = """
        select distinct quickstart_id from quickstart_tags
        where value = :value and (:kind = '' or kind = :kind) or value = :tag
    """
    return [identity for (identity,) in fetch_all(connection, sql, {"kind": kind, "value": value, "tag": tag})]
