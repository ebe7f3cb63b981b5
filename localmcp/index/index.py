"""Search: one query against the keyword and vector indexes of the visible collections, fused and explained."""

from __future__ import annotations

import json
import logging
import threading
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import apsw

from localmcp.arrays import Vector
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.index.adaptation import DEEP, MULTILINGUAL_TRUST, READ_LANGUAGE, Trust, trust_of, weight_for
from localmcp.index.candidates import ARM_DEPTH, Arms, Clock, Found, SearchOutcome, SearchRequest
from localmcp.index.collections import (
    Collection,
    choose_collections,
    find_model,
    groups_in_other_languages,
    in_groups,
    visible_ids,
)
from localmcp.index.drafts import WORD_ONLY
from localmcp.index.file_names import first_chunks, named_chunks, named_sources
from localmcp.index.filters import Filters, allowed_sources
from localmcp.index.fusion import Weights
from localmcp.index.highlight import sentences
from localmcp.index.keyword import Vocabulary, build_query, mix_neighbors, search_words
from localmcp.index.sentence_codes import nearest_sentences
from localmcp.index.vector import Block, SignIndex, exact_cosines, nearest_chunks
from localmcp.index.vector_queue import waiting
from localmcp.index.word_vectors import WordIndex, WordReader
from localmcp.models import LazyEmbedder
from localmcp.storage.database import Database, Generations, fetch_column, fetch_one, read_generations
from localmcp.wording.languages import detect_language

log = logging.getLogger(__name__)

DEEPEST = 1000
"""How deep the keyword arm looks to complete the other arm's hits, and both arms for pages beyond the first hundred."""
DEFAULT_FLOOR = 0.25
"""The cosine from which a passage counts as near in meaning; 94 % of the relevant ones reach it (default model)."""
LONG_QUESTION, SENTENCE_WORDS, MOST_SENTENCES, CHARACTERS_READ = 20, 3, 12, 5_000
"""A question of so many words is also compared sentence by sentence: one of them may name what it is about (nDCG@10 of
hybrid search: LISA .500 -> .517, CACM .578 -> .589, manuals asked for by a paragraph .830 -> .838, package titles by
their descriptions, not looked at before, .687 -> .713). Shorter sentences are ignored."""
LEAST_SCORE = 1e-6
"""bm25 of a passage without a word of the query, whose document the query names."""
MODEL_WAIT_SECONDS = 5.0
KEPT_FILTERS = 8
_DOCUMENT_COLLECTIONS = "select count(*) from collections where kind <> 'rules'"
"""Rules have no chunks that a search could meet; a dropped collection has some."""


@dataclass(frozen=True, slots=True)
class _SearchedModel:
    """The collections that can be searched by meaning: with vectors of the model at hand."""

    model_id: int
    collection_ids: list[int]


@dataclass(frozen=True, slots=True)
class _EmbeddedRequest:
    """A request with its embedded query."""

    request: SearchRequest
    vector: Vector | None
    """None when it is not needed or the model is not there, and then the outcome says so."""
    sentences: Sequence[Vector]
    """Those of a long question; none otherwise."""
    outcome: SearchOutcome
    clock: Clock


class Index:
    """Searches one file. Safe to call from many threads; every search sees one snapshot."""

    def __init__(
        self, database: Database, embedder: LazyEmbedder, semantic_weight: float = 0.7, *, adaptive: bool = False
    ) -> None:
        self.database = database
        self.embedder = embedder
        self.weights = Weights(semantic_weight)
        self.adaptive = adaptive
        """Weight by the kinds of text that were found, where they were measured."""
        self.vocabulary = Vocabulary()
        self._lock = threading.Lock()
        self._signs: dict[int, SignIndex] = {}
        self._words: dict[int, WordIndex] = {}
        self._allowed: dict[tuple[Any, ...], Any] = {}
        """Sources that fulfil the last filters: among 100,000 sources they take 25 ms to find."""

    def search(self, request: SearchRequest) -> SearchOutcome:
        """Return the best chunks for the request.

        Raises:
            NotFound: a collection that the caller cannot see.
            FileUnavailable: the database cannot be read.
        """
        embedded = self._embed_request(request)
        with self.database.read() as connection:
            candidates = self._find(connection, embedded)
            return embedded.outcome if candidates is None else candidates.page(connection)

    def _embed_request(self, request: SearchRequest) -> _EmbeddedRequest:
        """Embed the query, before the file is read."""
        outcome = SearchOutcome([], 0, weights=self.weights)
        clock = Clock(outcome.milliseconds)
        vector = self._query_vector(request, outcome)
        clock.lap("embedding")
        sentences = self._sentence_vectors(request.text) if vector is not None else ()
        return _EmbeddedRequest(request, vector, sentences, outcome, clock)

    def _find(self, connection: apsw.Connection, embedded: _EmbeddedRequest) -> Found | None:
        names = embedded.request.collections
        collections = choose_collections(connection, list(names) if names else None)
        return _Search(self, connection, embedded, collections).run() if collections else None

    def _query_vector(self, request: SearchRequest, outcome: SearchOutcome) -> Vector | None:
        if request.mode == "keyword" or not request.text.strip() or not self._has_vectors(outcome):
            return None
        try:
            vector = self.embedder.embed_query(request.text, wait=MODEL_WAIT_SECONDS)
        except (ModelUnavailable, ConfigurationError) as error:
            outcome.notices.append(f"Answered by keyword only: {error}")
            return None
        return vector.astype("<f4", copy=False)

    def _sentence_vectors(self, text: str) -> Sequence[Vector]:
        if len(text.split()) < LONG_QUESTION:
            return ()
        parts = [text[start:stop] for start, stop in sentences(text[:CHARACTERS_READ])]
        parts = [part for part in parts if len(part.split()) >= SENTENCE_WORDS][:MOST_SENTENCES]
        try:
            return list(self.embedder.embed_queries(parts).astype("<f4", copy=False)) if len(parts) > 1 else ()
        except ModelUnavailable as error:
            # The question as a whole has its vector, and finds most of it.
            log.warning("the sentences of a question were not embedded: %s", error)
            return ()

    def _has_vectors(self, outcome: SearchOutcome) -> bool:
        with self.database.read() as connection:
            visible = f"collection_id in ({visible_ids(connection)}) limit 1"
            if fetch_one(connection, f"select 1 from signs where {visible}"):
                return True
            if fetch_one(connection, f"select 1 from sources where trashed_at is null and {visible}"):
                outcome.notices.append("Answered by keyword only: no document has vectors yet.")
        return False

    def restriction(
        self, connection: apsw.Connection, collections: list[Collection], filters: Filters, generation: int
    ) -> Any:
        """Return sorted ids of the sources that may answer; None when every source of the file may."""
        if not filters and fetch_one(connection, _DOCUMENT_COLLECTIONS) == len(collections):
            return None
        if filters.since or filters.until or filters.source_ids:
            # Dates and ids of sources may change while the generation stays.
            return allowed_sources(connection, collections, filters)
        key = (generation, *(collection.id for collection in collections), repr(filters))
        allowed = self._allowed.get(key)
        if allowed is None:
            allowed = allowed_sources(connection, collections, filters)
            with self._lock:
                self._allowed = dict([*self._allowed.items()][1 - KEPT_FILTERS :]) | {key: allowed}
        return allowed

    def sign_blocks(
        self, connection: apsw.Connection, model_id: int, generations: Generations, collection_ids: Sequence[int]
    ) -> list[Block]:
        """Return the sign codes of those collections in this snapshot, from the cache that every feature shares."""
        with self._lock:
            signs = self._signs.setdefault(model_id, SignIndex(model_id))
        return signs.blocks(connection, generations.signs, collection_ids)

    def word_index(self, model_id: int) -> WordIndex:
        """Return what that model says of the words of the file."""
        with self._lock:
            return self._words.setdefault(model_id, WordIndex(model_id))

    def close(self) -> None:
        """Forget what is cached."""
        with self._lock:
            self._signs, self._words, self._allowed = {}, {}, {}


class _Search:
    """One search in one snapshot of a file."""

    def __init__(
        self, index: Index, connection: apsw.Connection, embedded: _EmbeddedRequest, collections: list[Collection]
    ) -> None:
        self.index = index
        self.connection = connection
        self.embedded = embedded
        self.request, self.outcome, self.clock = embedded.request, embedded.outcome, embedded.clock
        self.collections = collections
        self.generations = read_generations(connection)
        self.allowed = index.restriction(connection, collections, self.request.filters, self.generations.content)
        """Sorted ids of the sources that may answer; None = all."""
        self.arms = Arms(_depth(self.request))

    def run(self) -> Found:
        """Return the candidates of both arms."""
        self.outcome.searched = {"collections": len(self.collections), "chunks": self._count_chunks()}
        if self.allowed is not None:
            self.outcome.searched["sources"] = len(self.allowed)
        self.clock.lap("filters")
        vector = self.embedded.vector
        ours = self._with_our_vectors() if vector is not None else None
        if ours is None or vector is None:
            self.outcome.by_words_only = self.request.mode != "keyword"
            self._search_words()
            self._complete()
            return Found(self.request, self.outcome, "keyword", DEFAULT_FLOOR, self.arms)
        identity = self.index.embedder.get().identity
        trust = trust_of(identity.name)
        self.arms.reads_all = trust is MULTILINGUAL_TRUST
        if self.request.mode != "semantic":
            self._search_words()
        vectors = [vector, *self.embedded.sentences]
        self._search_vectors(ours, vectors)
        language = detect_language(self.request.text)
        if self.request.mode == "hybrid":
            self._search_meanings(ours, vector, language)
        self._complete()
        if self.request.mode == "hybrid":
            self._weigh(language, trust)
            self._count_passage_sentences(ours.model_id, vector)
        floor, signals = _floor(self.connection, ours.model_id), trust.signals if trust else None
        return Found(self.request, self.outcome, self.request.mode, floor, self.arms, signals)

    # ------------------------------------------------------------ words

    def _search_words(self) -> None:
        ids = [collection.id for collection in self.collections]
        arms, vocabulary, words = self.arms, self.index.vocabulary, self.generations.words
        query = build_query(self.connection, self.request.text, ids, vocabulary, words, self.request.unrepaired)
        self.outcome.query = query
        arms.bm25 = search_words(self.connection, query, DEEPEST, self.allowed)
        chunk_ids = [*islice(arms.bm25, arms.depth)]
        arms.named = named_sources(self.connection, self.request.text, self.collections, self.allowed)
        for chunk_id in first_chunks(self.connection, arms.named.shares) if arms.named.shares else ():
            # A document that is named is found by word, whatever is in it.
            arms.bm25.setdefault(chunk_id, LEAST_SCORE)
            chunk_ids.append(chunk_id)
        arms.keyword_ranks = {chunk_id: rank for rank, chunk_id in enumerate(dict.fromkeys(chunk_ids), 1)}
        self.clock.lap("keyword")

    # ------------------------------------------------------------ meaning

    def _with_our_vectors(self) -> _SearchedModel | None:
        """Return the collections whose vectors our model made; the others are left to the keyword arm, and named."""
        model_id = find_model(self.connection, self.index.embedder.get().identity)
        ids = [place.id for place in self.collections if model_id is not None and place.model_id == model_id]
        foreign = ", ".join(place.name for place in self.collections if place.model_id not in (None, model_id))
        if foreign:
            by_meaning = self.request.mode == "semantic" and ids
            left = "Not searched (use mode hybrid)" if by_meaning else "Searched by words only"
            self.outcome.notices.append(f"{left}: collection {foreign}, whose vectors come from another model.")
        return _SearchedModel(model_id, ids) if ids and model_id is not None else None

    def _search_vectors(self, ours: _SearchedModel, vectors: Sequence[Vector]) -> None:
        """Find the nearest chunks, and complete the keyword arm's hits with their cosines.

        `vectors`: that of the question, then those of its sentences.
        """
        vector, *sentences = vectors
        nearest = self._nearest(ours, vector)
        self.arms.semantic_ranks = {chunk_id: rank for rank, chunk_id in enumerate(nearest, 1)}
        missing = [chunk_id for chunk_id in self.arms.keyword_ranks if chunk_id not in nearest]
        self.arms.cosines = nearest | exact_cosines(self.connection, ours.model_id, missing, vector)
        if sentences:
            self._count_sentences(ours.model_id, sentences)
        self.clock.lap("vector")

    def _nearest(self, ours: _SearchedModel, vector: Vector) -> dict[int, float]:
        """Return chunk id -> cosine of the nearest chunks, nearest first."""
        connection, depth = self.connection, self.arms.depth
        blocks = self.index.sign_blocks(connection, ours.model_id, self.generations, ours.collection_ids)
        self.outcome.searched["vectors"] = sum(len(block.ids) for block in blocks)
        nearest = dict(nearest_chunks(connection, ours.model_id, blocks, vector, ARM_DEPTH, self.allowed))
        if depth > ARM_DEPTH:
            # Behind the first hundred, which stay as earlier pages showed them.
            deeper = nearest_chunks(connection, ours.model_id, blocks, vector, depth, self.allowed)
            nearest |= {chunk_id: cosine for chunk_id, cosine in deeper if chunk_id not in nearest}
        return nearest

    def _asked_for(self, ours: _SearchedModel, chunk_ids: Sequence[int]) -> list[int]:
        """Return those of the chunks that are in the file, and asked for."""
        ids = array("q", chunk_ids)
        if not len(ids) or (self.allowed is not None and not len(self.allowed)):
            return []
        sql = f"""
            select chunks.id from chunks join sources on sources.id = source_id
            where chunks.id in (select value from carray(:ids)) and trashed_at is null
                and collection_id in (select value from carray(:collections))
                {"and source_id in (select value from carray(:allowed))" if self.allowed is not None else ""}
        """
        values: dict[str, Any] = {"ids": apsw.carray(ids), "collections": apsw.carray(array("q", ours.collection_ids))}
        if self.allowed is not None:
            values["allowed"] = apsw.carray(self.allowed)
        return fetch_column(self.connection, sql, values)

    def _count_sentences(self, model_id: int, vectors: Sequence[Vector]) -> None:
        """Let the nearest sentence of a long question count as much as the whole; the first hundred stay the first."""
        arms = self.arms
        near = [exact_cosines(self.connection, model_id, list(arms.cosines), vector) for vector in vectors]
        arms.cosines = {
            chunk_id: (cosine + max(cosines.get(chunk_id, cosine) for cosines in near)) / 2
            for chunk_id, cosine in arms.cosines.items()
        }
        arms.semantic_ranks = _ranked(arms.semantic_ranks, arms.cosines)

    # ------------------------------------------------------------ both

    def _complete(self) -> None:
        """Let the passages beside a candidate count in its keyword score, and say what has no vectors yet."""
        arms = self.arms
        arms.bm25 = mix_neighbors(self.connection, arms.bm25, [*arms.keyword_ranks, *arms.cosines])
        arms.keyword_ranks = _ranked(arms.keyword_ranks, arms.bm25)
        if arms.named.shares:
            arms.in_named = named_chunks(self.connection, arms.named.shares, {*arms.keyword_ranks, *arms.cosines})
        if self.request.mode == "keyword":
            return
        queued = waiting(self.connection, [collection.id for collection in self.collections]).passages
        total = self.outcome.searched["chunks"]
        if queued and total:
            self.outcome.coverage = round(max(1 - queued / total, 0.0), 4)
            self.outcome.notices.append(
                f"{queued:,} of {total:,} passages still wait for their meaning to be read; they are found by word."
            )
        if arms.cosines:
            by_word = [chunk_id for chunk_id in arms.keyword_ranks if chunk_id not in arms.cosines]
            arms.by_word_only = _without_vectors(self.connection, by_word)

    def _weigh(self, language: str | None, trust: Trust | None) -> None:
        """Note which candidates are in another language than the question, and weigh the kinds of text."""
        arms = self.arms
        others = groups_in_other_languages(self.connection, language, [place.id for place in self.collections])
        arms.other_language = in_groups(self.connection, others, [*arms.cosines])
        if not self.index.adaptive or trust is None:
            return
        by_word, by_meaning = list(islice(arms.keyword_ranks, DEEP)), list(islice(arms.semantic_ranks, DEEP))
        weight = weight_for(self.connection, by_word, by_meaning, self.index.weights.semantic, trust)
        # Short questions about code look foreign now and then: a language counts that some passage is in.
        self.outcome.weights = Weights(weight if self._is_english() else min(weight, trust.foreign))

    def _search_meanings(self, ours: _SearchedModel, vector: Vector, language: str | None) -> None:
        """Find passages by words that mean what those of the question do, where the model says something of words.

        Among the first three of 84 and 70 questions to mixed libraries: .57 -> .76, .49 -> .57.
        """
        embedder, arms = self.index.embedder.get(), self.arms
        if not isinstance(embedder, WordReader):
            return
        others = groups_in_other_languages(self.connection, language, ours.collection_ids)
        if not others:
            # In a file of the question's own language technical abstracts lose by it.
            return
        words, total = embedder.question_words(self.request.text), self.outcome.searched["chunks"]
        sums = self.index.word_index(ours.model_id).sums(
            self.connection, self.generations.signs, words, language, total
        )
        if self.allowed is not None:
            sums = {chunk_id: sums[chunk_id] for chunk_id in self._asked_for(ours, [*sums])}
        most = max(sums.values(), default=0.0)
        alike = {chunk_id: value / most for chunk_id, value in sums.items() if value > 0}
        best = sorted(alike, key=lambda chunk_id: (-alike[chunk_id], chunk_id))[:ARM_DEPTH]
        new = self._asked_for(ours, [chunk_id for chunk_id in best if chunk_id not in arms.cosines])
        arms.cosines |= exact_cosines(self.connection, ours.model_id, new, vector)
        arms.alike = {chunk_id: alike[chunk_id] for chunk_id in arms.cosines.keys() & alike.keys()}
        arms.most_alike = frozenset(best)
        self.clock.lap("meanings of words")

    def _count_passage_sentences(self, model_id: int, vector: Vector) -> None:
        """Let the nearest sentence of a passage count as much as the passage, where the model reads sentences."""
        arms = self.arms
        near = nearest_sentences(self.connection, model_id, arms.cosines, vector)
        if near:
            arms.cosines |= {chunk_id: (arms.cosines[chunk_id] + cosine) / 2 for chunk_id, cosine in near.items()}
            arms.semantic_ranks = _ranked(arms.semantic_ranks, arms.cosines)

    def _is_english(self) -> bool:
        query = self.outcome.query
        return query is None or READ_LANGUAGE in query.languages

    def _count_chunks(self) -> int:
        marks = ",".join("?" * len(self.collections))
        sql = f"select coalesce(sum(chunks), 0) from groups where collection_id in ({marks})"
        return fetch_one(self.connection, sql, [collection.id for collection in self.collections])


def _ranked(ranks: Mapping[int, int], scores: Mapping[int, float]) -> dict[int, int]:
    """Return the ranks by changed scores, best first, in which the first hundred stay the first."""
    ids = list(ranks)
    parts = (sorted(part, key=lambda row: (-scores[row], row)) for part in (ids[:ARM_DEPTH], ids[ARM_DEPTH:]))
    return {chunk_id: rank for rank, chunk_id in enumerate(chain.from_iterable(parts), 1)}


def _without_vectors(connection: apsw.Connection, chunk_ids: Sequence[int]) -> frozenset[int]:
    """Return those of the chunks that are prose or code: data has no vectors on purpose, and is ranked as far off."""
    if not chunk_ids:
        return frozenset()
    sql = """
        select chunks.id from chunks join groups on groups.id = group_id
        where chunks.id in (select value from carray(?)) and kind != ?
    """
    return frozenset(fetch_column(connection, sql, (apsw.carray(array("q", chunk_ids)), WORD_ONLY)))


def _depth(request: SearchRequest) -> int:
    # A page that ends with the first hundred says whether there are more.
    return ARM_DEPTH if request.offset + request.limit < ARM_DEPTH else DEEPEST


def _floor(connection: apsw.Connection, model_id: int) -> float:
    calibration = fetch_one(connection, "select calibration from models where id = ?", (model_id,))
    return float(json.loads(calibration).get("passage_floor", DEFAULT_FLOOR)) if calibration else DEFAULT_FLOOR
