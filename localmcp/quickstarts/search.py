"""Searching quick starts: how well a field answers (lower is better, S0-9 to S0-15), over all of them in memory."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Literal, NamedTuple

import apsw

from localmcp.index.federation import shown_name
from localmcp.storage.database import fetch_all, fetch_column, fetch_one
from localmcp.wording.normalize import detect_language, fold, index_text, stem, stop_words

Field = Literal["name", "display_name", "description"]
MatchType = Literal["exact_match", "partial_match", "fuzzy_match", "fallback_match"]

WEIGHTS: dict[Field, int] = {"name": 15, "display_name": 10, "description": 20}
MOST_PARTIAL, FUZZY, MOST_FUZZY, FALLBACK, MOST_FALLBACK = 199, 200, 699, 700, 998
"""S0-10: partial 1..199, fuzzy 200..699, fallback 700..998."""
UNMATCHED_WORD, MOST_EXTRA_WORDS, COMMON_STEM = 6, 5, 2
"""Distance of a significant word that is not found, of all other words of the field, and of another form of a word."""
WHOLE_FIELD_SHARE = 0.3
"""A whole field may be mistyped by this share of its length."""

FILLERS = frozenset(
    """away back best concerning describe detail details down etc explain find give go going guide guides happen
    happens help kind know let like look looking need needed off please possible quick quickstart quickstarts regarding
    see show something tell thing things tutorial tutorials understand up via want wanted walk way ways wish""".split()
)
"""What people wrap a request in; counts only if the query has nothing else."""

DEEDS = frozenset(
    stem(word, "english")
    for word in """access add apply ask begin build change check choose configure connect control copy create define
    delete deploy document documentation download edit enable explore export fix generate get handle import information
    install introduce join learn list load make manage modify monitor move new open organize overview perform prepare
    provide read remove rename replace report reset review run save search send set setup share start stop store switch
    test track try turn update upgrade upload use view work write""".split()
)
"""What one does with anything: alone such a word does not show that a quick start is on the subject."""

_WORD = re.compile(r"[^\W_]+")


class Text(NamedTuple):
    """A field or a search text as it is compared: NFKC, no case, no accents, single spaces, trimmed."""

    folded: str
    words: tuple[str, ...]
    """Runs of letters and digits, in order."""

    @classmethod
    def of(cls, text: str) -> Text:
        folded = " ".join(fold(text).split())
        return cls(folded, tuple(_WORD.findall(folded)))


@dataclass(frozen=True, slots=True)
class Query:
    """A search text, taken apart."""

    text: Text
    significant: tuple[str, ...]
    """Its words that must be found, or cost; the others (stop words, "please show me") are ignored."""
    telling: frozenset[str]
    """The significant words that show what it is about."""
    only_stop_words: bool

    @property
    def pattern(self) -> str:
        """The text without the punctuation around it, which a field need not have."""
        return self.text.folded.strip(" .,;:!?\"'()[]")


def read_query(text: str) -> Query:
    """Fold and split a search text, and mark the words that matter."""
    read = Text.of(text)
    stop = stop_words("english") | stop_words(detect_language(read.folded) or "english")
    content = {word for word in read.words if word not in stop}
    important = content - FILLERS or content
    significant = tuple(word for word in read.words if word in important)
    telling = {word for word in important if stem(word, "english") not in DEEDS} or important
    return Query(read, significant, frozenset(telling), bool(read.words) and not content)


@dataclass(frozen=True, slots=True)
class Meanings:
    """What the words of a query may mean in a catalog."""

    edits: Mapping[str, Mapping[str, int]]
    """Significant word -> words of the catalog -> Levenshtein distance, 2 for another form of the word."""
    foreign: Mapping[Field, int]
    """How many of the words no quick start knows in a field ("mortgage" in "mortgage calculator")."""


def match_type(score: int) -> MatchType:
    """Return the tier of a score (S0-10)."""
    if score == 0:
        return "exact_match"
    if score <= MOST_PARTIAL:
        return "partial_match"
    return "fuzzy_match" if score <= MOST_FUZZY else "fallback_match"


def score_field(
    query: Query, where: Field, text: Text, meanings: Meanings, whole_distance: int | None, max_distance: int
) -> int | None:
    """Return the score of the best tier in which a field matches, 0..699; None = not at all.

    `whole_distance`: Levenshtein distance of the query and the whole field, if it is near.
    """
    if text.folded == query.text.folded:
        return 0 if text.folded else None
    distance = partial_distance(query, text.folded)
    if distance is not None:
        return min(max(WEIGHTS[where] * distance, 1), MOST_PARTIAL)
    if not query.significant or not text.words:
        return None
    fuzzy = _by_words(query, where, text.words, meanings, max_distance)
    length = max(len(text.folded), len(query.text.folded))
    if whole_distance is not None and whole_distance <= WHOLE_FIELD_SHARE * length:
        fuzzy = whole_distance if fuzzy is None else min(fuzzy, whole_distance)
    return None if fuzzy is None else min(FUZZY + WEIGHTS[where] * fuzzy, MOST_FUZZY)


def fallback_score(where: Field, distance: int) -> int:
    """Return the score of a fallback match, 700..998."""
    return min(FALLBACK + WEIGHTS[where] * distance, MOST_FALLBACK)


def partial_distance(query: Query, folded: str) -> int | None:
    """Return the words of a field outside the match plus the characters of touched words outside it; None = no match.

    Of several places the best counts. Stop words would match by chance: a lone one matches nothing ("not" in
    "notifications"), several only as whole words.
    """
    pattern = query.text.folded if query.text.folded in folded else query.pattern
    if not query.text.words or not pattern or pattern not in folded:
        return None
    words = [match.span() for match in _WORD.finditer(folded)]
    distances: list[int] = []
    start = -1
    # In a text made to hold it everywhere, twenty places are enough.
    for _ in range(20):
        start = folded.find(pattern, start + 1)
        if start < 0:
            break
        stop = start + len(pattern)
        touched = [(first, last) for first, last in words if first < stop and last > start]
        cut = max(0, start - touched[0][0]) + max(0, touched[-1][1] - stop) if touched else 0
        if not query.only_stop_words or (len(query.text.words) > 1 and not cut):
            distances.append(len(words) - len(touched) + cut)
    return min(distances, default=None)


# ---------------------------------------------------------------- fuzzy


def word_budget(word: str) -> int:
    """Return how many edits away a word may be: 0 for codes and up to 2 letters, 1 to 5, 2 to 8, else 3."""
    if len(word) <= 2 or any(character.isdigit() for character in word):
        return 0
    return 1 if len(word) <= 5 else 2 if len(word) <= 8 else 3


def _have_same_stem(first: str, second: str) -> bool:
    return stem(first, "english") == stem(second, "english")


def _by_words(query: Query, where: Field, words: Sequence[str], meanings: Meanings, max_distance: int) -> int | None:
    """Return the distance of a one-to-one alignment of query and field words, the nearest first; None if it says too
    little."""
    options = [
        (meanings.edits[word][other], number, place)
        for number, word in enumerate(query.significant)
        for place, other in enumerate(words)
        if other in meanings.edits[word]
    ]
    matched: dict[int, int] = {}
    edits = 0
    for distance, number, place in sorted(options):
        if number not in matched and place not in matched.values():
            matched[number] = place
            edits += distance
    missing = len(query.significant) - len(matched)
    if not matched or edits > max_distance:
        return None
    found = {query.significant[number]: words[place] for number, place in matched.items()}
    # Never guess: half of the words are found, a telling one is certain, and they outnumber those that the whole
    # catalog does not know.
    certain = (word for word in query.telling if word in found and not word.isdigit())
    says_enough = (
        2 * sum(word in found for word in query.significant) >= len(query.significant)
        and len(found) > meanings.foreign[where]
        and any(_have_same_stem(word, found[word]) for word in certain)
    )
    if missing and not says_enough:
        return None
    extra = sum(word not in query.text.words for place, word in enumerate(words) if place not in matched.values())
    return edits + min(MOST_EXTRA_WORDS, extra) + UNMATCHED_WORD * missing


# ---------------------------------------------------------------- the catalog

FIELDS: tuple[Field, ...] = ("name", "display_name", "description")


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
        # In a smaller catalog, a missing word says nothing about the question.
        is_telling = len(self.rows) >= 20
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
        # "started" and "start", "config" and "configuring" are forms of one word.
        forms: set[str] = set()
        for other in self._by_beginning.get(word[:4], ()):
            shared = len(commonprefix((word, other)))
            if shared >= 4 and (shared == min(len(word), len(other)) or _have_same_stem(word, other)):
                forms.add(other)
        measured = measure_edits(connection, word, [*forms.union(other for other, _, _ in near)])
        measured |= {other: min(measured[other], COMMON_STEM) for other in forms}
        # Words up to five letters, and any with three edits, keep their first letter.
        kept = {
            other: edits for other, edits in measured.items() if word[0] == other[0] or (len(word) > 5 and edits <= 2)
        }
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
        sql = "select rowid from quickstarts_fts where quickstarts_fts match ? limit 250"
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
    return fetch_column(connection, sql, {"kind": kind, "value": value, "tag": tag})
