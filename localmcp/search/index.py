"""Search: one query against the keyword and vector indexes of the visible collections, fused and explained."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import apsw

from localmcp.embeddings import LazyEmbedder
from localmcp.errors import ModelUnavailable
from localmcp.search.collections import Collection, choose_collections, find_model, visible_collections
from localmcp.search.filters import Filters, allowed_sources
from localmcp.search.fusion import Fused, Weights, full_keyword_match, fuse, keyword_score, semantic_score
from localmcp.search.fuzzy import Vocabulary
from localmcp.search.keyword import KeywordQuery, build_query, matched_words, search_words
from localmcp.search.lexicon import heading_of
from localmcp.search.passages import Passage, load_passages
from localmcp.search.vector import Block, SignIndex, exact_cosines, nearest_chunks
from localmcp.storage.database import Database, Generations, fetch_one, read_generations

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

log = logging.getLogger(__name__)

Mode = Literal["hybrid", "semantic", "keyword"]

ARM_DEPTH = 100
"""Candidates an arm gives to the fusion: 50 lose recall, 200 gain nothing."""
KEYWORD_DEPTH = 1000
"""How deep the keyword arm looks to complete the other arm's hits."""
DEFAULT_FLOOR = 0.25
"""The cosine from which a passage counts as near in meaning; 94 % of the relevant ones reach it (default model)."""
MODEL_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to search for, and where."""

    text: str
    mode: Mode = "hybrid"
    limit: int = 5
    offset: int = 0
    collections: tuple[str, ...] | None = None
    filters: Filters = field(default_factory=Filters)
    exact: bool = False
    """Compare every vector instead of the nearest sign codes."""


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
    matched: tuple[str, ...]
    """Query words that stand in the text, its title or its headings."""


@dataclass(slots=True)
class SearchOutcome:
    """The hits of one page, and how they came about."""

    hits: list[Hit]
    total: int
    """Candidates after fusion; a lower bound of what matches."""
    query: KeywordQuery | None = None
    weights: Weights = field(default_factory=Weights)
    notices: list[str] = field(default_factory=list[str])
    """What the person should know: no model, other model, ..."""
    milliseconds: dict[str, float] = field(default_factory=dict[str, float])
    searched: dict[str, int] = field(default_factory=dict[str, int])
    """Collections, vectors compared by sign, sources left after filters."""


@dataclass(slots=True)
class _Arms:
    cosines: dict[int, float] = field(default_factory=dict[int, float])
    bm25: dict[int, float] = field(default_factory=dict[int, float])
    semantic_ranks: dict[int, int] = field(default_factory=dict[int, int])
    keyword_ranks: dict[int, int] = field(default_factory=dict[int, int])


class Index:
    """Searches one file. Safe to call from many threads; every search sees one snapshot."""

    def __init__(self, database: Database, embedder: LazyEmbedder, semantic_weight: float = 0.7) -> None:
        self.database = database
        self.embedder = embedder
        self.weights = Weights(semantic_weight)
        self.vocabulary = Vocabulary()
        self._lock = threading.Lock()
        self._signs: dict[int, SignIndex] = {}

    def search(self, request: SearchRequest) -> SearchOutcome:
        """The best chunks for the request.

        Raises:
            NotFound: a collection that the caller cannot see.
            FileUnavailable: the database cannot be read.
        """
        outcome = SearchOutcome([], 0, weights=self.weights)
        clock = _Clock(outcome.milliseconds)
        vector = self._query_vector(request, outcome)
        clock.lap("embedding")
        with self.database.read() as connection:
            collections = choose_collections(connection, list(request.collections) if request.collections else None)
            if not collections:
                return outcome
            self._search(connection, request, collections, vector, outcome, clock)
        return outcome

    def _query_vector(self, request: SearchRequest, outcome: SearchOutcome) -> Vector | None:
        """The embedded query; None when it is not needed or the model is not there, and then the outcome says so."""
        if request.mode == "keyword" or not request.text.strip() or not self._has_vectors(outcome):
            return None
        try:
            return self.embedder.embed_query(request.text, wait=MODEL_WAIT_SECONDS)
        except ModelUnavailable as error:
            outcome.notices.append(f"Answered by keyword only: {error}")
            return None

    def _has_vectors(self, outcome: SearchOutcome) -> bool:
        with self.database.read() as connection:
            if not visible_collections(connection):
                return False
            if fetch_one(connection, "select 1 from signs limit 1"):
                return True
        outcome.notices.append("Answered by keyword only: no document has vectors yet.")
        return False

    def _search(
        self, connection: apsw.Connection, request: SearchRequest, collections: list[Collection], vector: Vector | None,
        outcome: SearchOutcome, clock: _Clock,
    ) -> None:  # fmt: skip
        generations = read_generations(connection)
        allowed = self._restriction(connection, collections, request.filters)
        outcome.searched = {"collections": len(collections), "chunks": _count_chunks(connection, collections)}
        if allowed is not None:
            outcome.searched["sources"] = len(allowed)
        clock.lap("filters")
        arms, depth = _Arms(), max(ARM_DEPTH, 2 * (request.offset + request.limit))
        if request.mode != "semantic" or vector is None:
            self._keyword_arm(connection, request, collections, generations, allowed, arms, depth, outcome)
            clock.lap("keyword")
        floor = DEFAULT_FLOOR
        if vector is not None:
            blocks, model_id = self._vector_blocks(connection, collections, generations, outcome)
            if model_id is not None:
                floor = _floor(connection, model_id)
                self._vector_arm(connection, request, model_id, blocks, vector, allowed, arms, depth)
            else:
                vector = None
            clock.lap("vector")
        fused = _fuse(request.mode if vector is not None else "keyword", arms, outcome, floor)
        outcome.total = len(fused)
        page = fused[request.offset : request.offset + request.limit]
        outcome.hits = _load_hits(connection, page, arms, outcome.query)
        clock.lap("rows")

    def _restriction(self, connection: apsw.Connection, collections: list[Collection], filters: Filters) -> Any:
        """Sorted ids of the sources that may answer; None when every source of the file may."""
        everything = fetch_one(connection, "select count(*) from collections") == len(collections)
        return None if everything and not filters else allowed_sources(connection, collections, filters)

    def _keyword_arm(
        self, connection: apsw.Connection, request: SearchRequest, collections: list[Collection],
        generations: Generations, allowed: Any, arms: _Arms, depth: int, outcome: SearchOutcome,
    ) -> None:  # fmt: skip
        ids = [each.id for each in collections]
        query = build_query(connection, request.text, ids, self.vocabulary, generations.words)
        outcome.query = query
        arms.bm25 = search_words(connection, query, max(KEYWORD_DEPTH, depth), allowed)
        arms.keyword_ranks = {each: rank for rank, each in enumerate(list(arms.bm25)[:depth], 1)}

    def _vector_blocks(
        self,
        connection: apsw.Connection,
        collections: list[Collection],
        generations: Generations,
        outcome: SearchOutcome,
    ) -> tuple[list[Block], int | None]:
        """The sign codes to scan; collections whose vectors come from another model are left to the keyword arm."""
        model_id = find_model(connection, self.embedder.get().identity)
        foreign = [each.name for each in collections if each.model_id not in (None, model_id)]
        if foreign:
            outcome.notices.append(
                f"Searched by keyword only, because their vectors come from another model: {', '.join(foreign)}."
            )
        if model_id is None:
            return [], None
        with self._lock:
            signs = self._signs.setdefault(model_id, SignIndex(model_id))
        ids = [each.id for each in collections if each.model_id == model_id]
        blocks = signs.blocks(connection, generations.signs, ids)
        outcome.searched["vectors"] = sum(len(block.ids) for block in blocks)
        return blocks, model_id

    def _vector_arm(
        self, connection: apsw.Connection, request: SearchRequest, model_id: int, blocks: Sequence[Block],
        vector: Vector, allowed: Any, arms: _Arms, depth: int,
    ) -> None:  # fmt: skip
        """Find the nearest chunks, and complete the keyword arm's hits with their cosines."""
        nearest = nearest_chunks(connection, model_id, blocks, vector, depth, allowed, request.exact)
        arms.cosines = dict(nearest)
        arms.semantic_ranks = {each: rank for rank, (each, _) in enumerate(nearest, 1)}
        missing = [each for each in arms.keyword_ranks if each not in arms.cosines]
        arms.cosines.update(exact_cosines(connection, model_id, missing, vector))

    def close(self) -> None:
        """Forget what is cached."""
        with self._lock:
            self._signs = {}


class _Clock:
    """Milliseconds of each step."""

    def __init__(self, laps: dict[str, float]) -> None:
        self.laps = laps
        self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round((now - self.last) * 1000, 3)
        self.last = now


def _count_chunks(connection: apsw.Connection, collections: list[Collection]) -> int:
    marks = ",".join("?" * len(collections))
    sql = f"select coalesce(sum(chunks), 0) from groups where collection_id in ({marks})"
    return fetch_one(connection, sql, [each.id for each in collections])


def _floor(connection: apsw.Connection, model_id: int) -> float:
    calibration = fetch_one(connection, "select calibration from models where id = ?", (model_id,))
    return float(json.loads(calibration).get("passage_floor", DEFAULT_FLOOR)) if calibration else DEFAULT_FLOOR


def _fuse(mode: Mode, arms: _Arms, outcome: SearchOutcome, floor: float) -> list[Fused]:
    bound = outcome.query.bound if outcome.query else 0.0
    full = full_keyword_match(max(arms.bm25.values(), default=0.0), bound)
    if mode == "semantic":
        found = [
            Fused(each, semantic_score(cosine), 0.0, semantic_score(cosine), "semantic_only")
            for each, cosine in arms.cosines.items()
        ]
        # Equal scores above the ceiling keep the order of their cosines.
        return sorted(found, key=lambda f: (-arms.cosines[f.id], f.id))
    candidates = dict.fromkeys(arms.keyword_ranks, 0.0)
    if mode == "keyword":
        scores = {each: keyword_score(arms.bm25[each], full) for each in candidates}
        return [Fused(each, 0.0, score, score, "keyword_only") for each, score in scores.items()]
    # A chunk without a vector takes part with its words.
    return fuse(candidates | arms.cosines, arms.bm25, full, outcome.weights, floor)


def _load_hits(
    connection: apsw.Connection, page: Sequence[Fused], arms: _Arms, query: KeywordQuery | None
) -> list[Hit]:
    passages = load_passages(connection, [fused.id for fused in page])
    return [
        Hit(
            passages[fused.id],
            fused,
            ArmScore(arms.semantic_ranks.get(fused.id), arms.cosines.get(fused.id, 0.0)),
            ArmScore(arms.keyword_ranks.get(fused.id), arms.bm25.get(fused.id, 0.0)),
            tuple(_matched(query, passages[fused.id])),
        )
        for fused in page
    ]


def _matched(query: KeywordQuery | None, passage: Passage) -> list[str]:
    if query is None:
        return []
    return matched_words(query, f"{heading_of(passage.title, passage.headings)}\n{passage.text}", passage.language)
