"""The candidates of a search in one file: scored by both arms, ordered, judged and loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

import apsw

from localmcp.index.dates import Dated, Latest, Sort, asks_for_latest, load_dates, order_by_date
from localmcp.index.drafts import heading_of
from localmcp.index.file_names import Named, file_name, words_of
from localmcp.index.filters import Filters
from localmcp.index.fusion import (
    Fused,
    MatchType,
    Weights,
    fuse,
    keyword_score,
    semantic_score,
)
from localmcp.index.highlight import find_highlight
from localmcp.index.keyword import ABSENT, KeywordQuery, attainable, matched_words
from localmcp.index.passages import Passage, load_identities, load_passages
from localmcp.index.relevance import LEAST, LOOKED_AT, Judge, Signals, judge

Mode = Literal["hybrid", "semantic", "keyword"]

ARM_DEPTH = 100
"""Candidates an arm gives to the fusion: 50 lose recall, 200 gain nothing."""
WITHOUT_MEANING = 0.6
"""What a full match of words counts where nothing can be searched by meaning, among passages that can: about what good
hits of those reach."""
OTHER_LANGUAGE_KEYWORD = 50.0
"""The least share, in percent, of the best keyword score for a passage in another language than the question, where
the model reads both: it cannot hold the words that others are found by (nDCG@10 of four mixed libraries, from 0 to 50:
.675 -> .685, .567 -> .578, .920 -> .938, and of questions and passages in two languages .929 -> .923, .968 -> .973)."""
DEMANDED_SHARE = 0.4
"""The share of what the words of a question could reach that counts as a full keyword score, where the model reads all
languages: the best hit by chance on one word of six is none (nDCG@10 of hybrid search: four mixed libraries .686 ->
.731, .681 -> .698, .950 -> .958, .591 -> .594, English questions on Spanish passages .961 -> .967, code .892 -> .900;
no set loses .001)."""
ASKED_FOR = 90.0
"""The least relevance of a passage from the document that the query names, if it says nothing else."""
QUESTION_CHARACTERS = 200
"""A longer text is no question for the latest of something."""
LIKE_WORDS = 42.0
"""Added to the keyword score, in percent of a full one, where a passage has most words that mean what those of the
question do (35 and 50 find fewer right documents in four mixed libraries)."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search: its text, filters and limits."""

    text: str
    mode: Mode = "hybrid"
    limit: int = 5
    offset: int = 0
    collections: tuple[str, ...] | None = None
    filters: Filters = field(default_factory=Filters)
    unrepaired: frozenset[str] = frozenset()
    """Folded words that are spelt right, though no passage in this file may hold them."""
    sort: Sort = "relevance"

    @property
    def latest(self) -> Latest | None:
        """The part of the question that asks for the latest of several documents."""
        return asks_for_latest(self.text[:QUESTION_CHARACTERS])

    @property
    def by_date(self) -> bool:
        """Whether the order depends on dates."""
        return self.sort == "newest" or self.latest is not None


@dataclass(frozen=True, slots=True)
class ArmScore:
    """One arm's view of a hit."""

    rank: int | None
    """1-based place in this arm; None when the arm did not find it by itself."""
    raw: float
    """Cosine, or bm25."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers, with every score."""

    passage: Passage
    scores: Fused
    semantic: ArmScore
    keyword: ArmScore
    query: KeywordQuery | None
    matched: list[str] = field(default_factory=list[str])
    """Query words that are in the text, its title, its headings or the name of its file."""
    weights: Weights = field(default_factory=Weights)
    origin: str | None = None
    """Name of the mounted file that it is in; None for yours."""
    relevance: float = 0.0
    """How likely it answers, 0..100; the hits of all searches and collections can be compared by it."""
    date: str | None = None
    """Date of the document, `2026-03-14 09:30:00` in UTC."""
    copies: tuple[Passage, ...] = ()
    """The same passage in copies of the document: the same bytes and title in other folders."""

    @property
    def highlight(self) -> tuple[int, int] | None:
        """Start and stop of the sentence that answers in `passage.text.strip()`; None if no word is in it."""
        if self.query is None:
            return None
        return find_highlight(self.query, self.passage.text.strip(), self.passage.language)


@dataclass(slots=True)
class SearchOutcome:
    """The hits of one page, and how they came about."""

    hits: list[Hit]
    total: int
    """Candidates after fusion; a lower bound of what matches."""
    query: KeywordQuery | None = None
    weights: Weights = field(default_factory=Weights)
    doubtful: bool = False
    """None of the first hits is likely to answer."""
    notices: list[str] = field(default_factory=list[str])
    """What the person should know: no model, other model, ..."""
    milliseconds: dict[str, float] = field(default_factory=dict[str, float])
    coverage: float = 1.0
    """Share of the passages searched that have a vector, or never get one; 0..1."""
    searched: dict[str, int] = field(default_factory=dict[str, int])
    """Collections, vectors compared by sign, sources left after filters."""
    recency: str | None = None
    """The word of the question for which newer documents were preferred."""
    by_words_only: bool = False
    """Meaning was asked for, and there is none here to search by."""


@dataclass(slots=True)
class Arms:
    depth: int
    cosines: dict[int, float] = field(default_factory=dict[int, float])
    bm25: dict[int, float] = field(default_factory=dict[int, float])
    semantic_ranks: dict[int, int] = field(default_factory=dict[int, int])
    keyword_ranks: dict[int, int] = field(default_factory=dict[int, int])
    by_word_only: frozenset[int] = frozenset()
    """Candidates that have no vector yet, among others that have."""
    other_language: frozenset[int] = frozenset()
    """Candidates in another language than the question."""
    alike: dict[int, float] = field(default_factory=dict[int, float])
    """How much a passage has of words that mean what those of the question do: 0..1 of what the best one has."""
    most_alike: frozenset[int] = frozenset()
    """The passages that have most of such words."""
    reads_all: bool = False
    """Whether the model was made for other languages than English."""
    named: Named = field(default_factory=Named)
    """Documents that the query names by their files."""
    in_named: dict[int, int] = field(default_factory=dict[int, int])
    """Candidates that are in one of these: chunk id -> source id."""

    def is_deep(self, fused: Fused) -> bool:
        """Return whether only a look deeper than the first hundred found it, and it is not named."""
        if self.depth <= ARM_DEPTH or fused.named or fused.id in self.most_alike:
            return False
        ranks = (self.semantic_ranks.get(fused.id), self.keyword_ranks.get(fused.id))
        return all(rank is None or rank > ARM_DEPTH for rank in ranks)


@dataclass(slots=True)
class Found:
    """What the file has for a request, before it is put in order."""

    request: SearchRequest
    outcome: SearchOutcome
    mode: Mode
    """keyword where no model could be asked."""
    floor: float
    arms: Arms
    signals: Signals | None = None
    """What relevance weighs for that model; None if it was not fitted for it."""
    copies: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Chunk id -> ids of the same passage in copies of its document, which are left out."""

    def judge(self) -> Judge:
        """Return the judge of how likely its candidates answer."""
        nearest = [self.arms.cosines.get(chunk_id, 0.0) for chunk_id in islice(self.arms.semantic_ranks, ARM_DEPTH)]
        query = None if self.mode == "semantic" else self.outcome.query
        return judge(query, nearest, self.signals)

    @property
    def best_keyword(self) -> float:
        """The highest bm25 score, which counts as 100 if this is the only file."""
        return max(self.arms.bm25.values(), default=0.0)

    def order(self, full: float) -> list[Fused]:
        """Return every candidate, best first, when the bm25 score `full` counts as 100, or what is demanded if more."""
        query = self.outcome.query
        demanded = DEMANDED_SHARE * attainable(query) if self.arms.reads_all and query else 0.0
        return _fuse(self.mode, self.arms, (full, max(full, demanded)), self.outcome.weights, self.floor)

    def page(self, connection: apsw.Connection) -> SearchOutcome:
        """Return the page that was asked for."""
        clock = Clock(self.outcome.milliseconds)
        ordered, start = self.order(self.best_keyword), self.request.offset
        ordered = self.without_copies(connection, ordered, start + self.request.limit)
        self.outcome.total = len(ordered)
        fused = self._by_date(connection, ordered)
        page, first = fused[start : start + self.request.limit], ordered[:LOOKED_AT]
        hits = {hit.scores.id: hit for hit in self.load(connection, [*dict.fromkeys((*page, *first))])}
        self.outcome.doubtful = is_doubtful(hits[fused.id] for fused in first if fused.id in hits)
        self.outcome.hits = [hits[fused.id] for fused in page if fused.id in hits]
        clock.lap("rows")
        return self.outcome

    def without_copies(self, connection: apsw.Connection, fused: list[Fused], places: int) -> list[Fused]:
        """Return the candidates with each passage of identical documents once, as far as `places` need it.

        Where dates decide the order, among all that they may move.
        """
        looked_at = 2 * max(places, LOOKED_AT, ARM_DEPTH if self.request.by_date else 0)
        identities = load_identities(connection, [candidate.id for candidate in fused[:looked_at]])
        ids_by_identity: dict[Hashable, list[int]] = {}
        same: list[int] = []
        for candidate in fused[:looked_at]:
            same = ids_by_identity.setdefault(identities.get(candidate.id, candidate.id), [])
            same.append(candidate.id)
        # More copies follow where the last is one: they have the same score.
        if (len(ids_by_identity) < places or len(same) > 1) and looked_at < len(fused):
            return self.without_copies(connection, fused, looked_at)
        self.copies = {first: copies for first, *copies in ids_by_identity.values() if copies}
        dropped = {chunk_id for ids in self.copies.values() for chunk_id in ids}
        return [candidate for candidate in fused if candidate.id not in dropped] if dropped else fused

    def _by_date(self, connection: apsw.Connection, fused: list[Fused]) -> list[Fused]:
        if not self.request.by_date:
            return fused
        dates = load_dates(connection, [candidate.id for candidate in fused[:ARM_DEPTH]])
        dated = [Dated(candidate.combined, *dates.get(candidate.id, ("", ""))) for candidate in fused[:ARM_DEPTH]]
        return [fused[number] for number in ordered_by_date(self.request, dated, self.outcome)] + fused[ARM_DEPTH:]

    def load(self, connection: apsw.Connection, page: Sequence[Fused]) -> list[Hit]:
        """Return the candidates with their texts; one that has left the file meanwhile is left out."""
        judge, ids = self.judge(), [fused.id for fused in page]
        copies = [copy for chunk_id in ids for copy in self.copies.get(chunk_id, ())]
        passages, dates = load_passages(connection, [*ids, *copies]), load_dates(connection, ids)
        return [
            self._hit(judge, fused, passages, dates.get(fused.id, (None,))[0]) for fused in page if fused.id in passages
        ]

    def _hit(self, judge: Judge, fused: Fused, passages: Mapping[int, Passage], date: str | None) -> Hit:
        arms, query, passage = self.arms, self.outcome.query, passages[fused.id]
        copies = tuple(passages[copy] for copy in self.copies.get(fused.id, ()) if copy in passages)
        matched, is_other = _matched(query, passage), fused.id in arms.other_language
        relevance = judge.relevance(arms.cosines.get(fused.id), matched, other_language=is_other)
        if fused.named and arms.named.is_all:
            relevance = max(relevance, ASKED_FOR)
        semantic = ArmScore(arms.semantic_ranks.get(fused.id), arms.cosines.get(fused.id, 0.0))
        keyword = ArmScore(arms.keyword_ranks.get(fused.id), arms.bm25.get(fused.id, 0.0))
        return Hit(
            passage, fused, semantic, keyword, query, matched, self.outcome.weights, relevance=relevance, date=date,
            copies=copies,
        )  # fmt: skip


def is_doubtful(first: Iterable[Hit]) -> bool:
    """Return whether none of the first hits is likely to answer."""
    return all(hit.relevance < LEAST for hit in first)


def ordered_by_date(request: SearchRequest, dated: Sequence[Dated], outcome: SearchOutcome) -> list[int]:
    """Return the order by date of the first candidates; the outcome says for which word newer ones were preferred."""
    order = order_by_date(dated, request.sort, request.latest)
    if request.latest and order != sorted(order):
        outcome.recency = request.latest.word
    return order


class Clock:
    """Milliseconds of each step."""

    def __init__(self, laps: dict[str, float]) -> None:
        self.laps = laps
        self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round((now - self.last) * 1000, 3)
        self.last = now


def _fuse(mode: Mode, arms: Arms, scale: tuple[float, float], weights: Weights, floor: float) -> list[Fused]:
    """Return every candidate, best first; what only a deeper look found comes behind, so that pages do not overlap.

    `scale`: the best bm25 score, and the one that counts as 100 in hybrid search.
    """
    best, full = scale
    # A chunk without a vector takes part with its words.
    candidates = dict.fromkeys(arms.keyword_ranks, 0.0) | arms.cosines
    if mode == "semantic":
        fused = _fuse_one_arm(arms.semantic_ranks, arms.cosines, semantic_score, "semantic_only")
    elif mode == "keyword":
        fused = _fuse_one_arm(arms.keyword_ranks, arms.bm25, lambda bm25: keyword_score(bm25, best), "keyword_only")
    else:
        fused = fuse(candidates, arms.bm25, full, weights, floor)
        if arms.by_word_only or arms.alike or (arms.other_language and arms.reads_all):
            least = OTHER_LANGUAGE_KEYWORD * (best / full if full else 1.0)
            fused = sorted(
                (_lifted(candidate, arms, weights, least) for candidate in fused), key=lambda f: (-f.combined, f.id)
            )
    if arms.in_named:
        fused = _with_named_first(fused, arms, 1.0 if mode == "keyword" else weights.keyword)
    return sorted(fused, key=arms.is_deep)


def _with_named_first(fused: list[Fused], arms: Arms, keyword_weight: float) -> list[Fused]:
    """Return the candidates with those of the documents that the query names before all others.

    If the query says nothing else, the best passage of each document is enough, and the name is a full match of words.
    """
    first: dict[int, Fused] = {}
    for candidate in fused:
        source_id = arms.in_named.get(candidate.id)
        if source_id is None or (arms.named.is_all and source_id in first):
            continue
        lifted = replace(candidate, named=arms.named.shares[source_id])
        if arms.named.is_all:
            counted = candidate.keyword + candidate.for_language + candidate.for_meanings
            combined = candidate.combined + keyword_weight * (100.0 - counted)
            first[source_id] = replace(lifted, keyword=100.0, combined=combined, for_language=0.0, for_meanings=0.0)
        else:
            first[candidate.id] = lifted
    lifted_ids = {candidate.id for candidate in first.values()}
    others = [candidate for candidate in fused if candidate.id not in lifted_ids]
    return sorted(first.values(), key=lambda candidate: -candidate.named) + others


def _lifted(fused: Fused, arms: Arms, weights: Weights, least: float) -> Fused:
    """Return a candidate that one arm cannot find on the scale of those that both can.

    `least`: the keyword score that a passage in another language has at least.
    """
    if fused.id in arms.by_word_only:
        return replace(fused, combined=WITHOUT_MEANING * fused.keyword)
    keyword = max(fused.keyword, least) if arms.reads_all and fused.id in arms.other_language else fused.keyword
    language = keyword - fused.keyword
    meanings = min(LIKE_WORDS * arms.alike.get(fused.id, 0.0) ** 2, 100.0 - keyword)
    combined = fused.combined + weights.keyword * (language + meanings)
    return replace(fused, combined=combined, for_language=language, for_meanings=meanings)


def _fuse_one_arm(
    ranks: Mapping[int, int], raw: Mapping[int, float], score: Callable[[float], float], match_type: MatchType
) -> list[Fused]:
    """Return one arm's hits in its order, which scores at their ceiling do not undo."""
    by_meaning = match_type == "semantic_only"
    scores = {chunk_id: score(raw[chunk_id]) for chunk_id in ranks}
    return [
        Fused(chunk_id, value if by_meaning else 0.0, 0.0 if by_meaning else value, value, match_type)
        for chunk_id, value in scores.items()
    ]


def _matched(query: KeywordQuery | None, passage: Passage) -> list[str]:
    if query is None:
        return []
    name = file_name(passage.uri or "")
    in_name = [*words_of(name)]
    text = f"{heading_of(passage.title, passage.headings)}\n{name} {' '.join(in_name)}\n{passage.text}"
    # A word that no passage holds may still be in the name of a file.
    absent = [word for word, reason in query.dropped if reason == ABSENT and word in in_name]
    return matched_words(query, text, passage.language) + absent
