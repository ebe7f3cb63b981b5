"""Search: one query against the keyword and vector indexes of the visible collections, fused and explained."""

from __future__ import annotations

import json
import logging
import threading
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

import apsw

from localmcp.embeddings import LazyEmbedder
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.search.adaptation import DEEP, MULTILINGUAL_TRUST, READ_LANGUAGE, Trust, trust_of, weight_for
from localmcp.search.candidates import ARM_DEPTH, Arms, Clock, Found, SearchOutcome, SearchRequest
from localmcp.search.collections import Collection, choose_collections, find_model, visible_collections
from localmcp.search.drafts import WORD_ONLY
from localmcp.search.file_names import first_chunks, named_chunks, named_sources
from localmcp.search.filters import Filters, allowed_sources
from localmcp.search.fusion import Weights
from localmcp.search.fuzzy import Vocabulary
from localmcp.search.highlight import sentences
from localmcp.search.keyword import KeywordQuery, build_query, holds_several_languages, mix_neighbors, search_words
from localmcp.search.vector import Block, SignIndex, exact_cosines, nearest_chunks
from localmcp.search.vector_queue import waiting
from localmcp.storage.database import Database, Generations, fetch_all, fetch_one, read_generations
from localmcp.wording.languages import detect_language

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

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
"""bm25 of a passage that holds no word of the query, but stands for a document that the query names."""
MODEL_WAIT_SECONDS = 5.0
KEPT_FILTERS = 8
_DOCUMENT_COLLECTIONS = "select count(*) from collections where kind = 'documents'"
"""Collections of other kinds have no chunks that a search could meet."""


@dataclass(frozen=True, slots=True)
class _SearchedModel:
    """What can be searched by meaning: collections with vectors of the model at hand."""

    model_id: int
    collection_ids: list[int]


@dataclass(frozen=True, slots=True)
class RemoteHits:
    """What another server found."""

    near: Mapping[int, Sequence[int]] = field(default_factory=dict[int, Sequence[int]])
    """Collection id -> chunk ids; a collection that is missing here is searched in the file."""
    notices: Sequence[str] = ()


class VectorServer(Protocol):
    """Another server that searches the vectors of some collections."""

    def nearest(self, request: SearchRequest, vector: Vector, depth: int) -> RemoteHits:
        """Return the `depth` chunks nearest to the query in each of the request's collections that it holds.

        It never raises because the server fails: a collection is then left out, and a notice says why.
        """
        ...


NO_REMOTE_HITS = RemoteHits()


@dataclass(frozen=True, slots=True)
class _EmbeddedRequest:
    """A request with its embedded query."""

    request: SearchRequest
    vector: Vector | None
    sentences: Sequence[Vector]
    """Those of a long question; none otherwise."""
    remote_hits: RemoteHits
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
        self._allowed: dict[tuple[Any, ...], Any] = {}
        """Sources that fulfil the last filters: among 100,000 sources they take 25 ms to find."""
        self.vector_server: VectorServer | None = None

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

    def find(self, request: SearchRequest) -> Found | None:
        """What this file has, not yet in order; None when the caller sees nothing of it. Raises what `search` does."""
        embedded = self._embed_request(request)
        with self.database.read() as connection:
            return self._find(connection, embedded)

    def _embed_request(self, request: SearchRequest) -> _EmbeddedRequest:
        """Embed the query and ask another server, before the file is read."""
        outcome = SearchOutcome([], 0, weights=self.weights)
        clock = Clock(outcome.milliseconds)
        vector = self._query_vector(request, outcome)
        clock.lap("embedding")
        remote_hits = NO_REMOTE_HITS
        if self.vector_server is not None and vector is not None:
            remote_hits = self.vector_server.nearest(request, vector, _depth(request))
            outcome.notices += remote_hits.notices
            clock.lap("elsewhere")
        return _EmbeddedRequest(
            request, vector, self._sentence_vectors(request.text, vector), remote_hits, outcome, clock
        )

    def _find(self, connection: apsw.Connection, embedded: _EmbeddedRequest) -> Found | None:
        names = embedded.request.collections
        collections = choose_collections(connection, list(names) if names else None)
        if not collections:
            return None
        return self._search(connection, embedded, collections)

    def _query_vector(self, request: SearchRequest, outcome: SearchOutcome) -> Vector | None:
        """The embedded query; None when it is not needed or the model is not there, and then the outcome says so."""
        if request.mode == "keyword" or not request.text.strip() or not self._has_vectors(outcome):
            return None
        try:
            vector = self.embedder.embed_query(request.text, wait=MODEL_WAIT_SECONDS)
        except (ModelUnavailable, ConfigurationError) as error:
            outcome.notices.append(f"Answered by keyword only: {error}")
            return None
        return vector.astype("<f4", copy=False)

    def _sentence_vectors(self, text: str, vector: Vector | None) -> Sequence[Vector]:
        if vector is None or len(text.split()) < LONG_QUESTION:
            return ()
        parts = [text[start:stop] for start, stop in sentences(text[:CHARACTERS_READ])]
        parts = [part for part in parts if len(part.split()) >= SENTENCE_WORDS][:MOST_SENTENCES]
        return list(self.embedder.embed_queries(parts).astype("<f4", copy=False)) if len(parts) > 1 else ()

    def _has_vectors(self, outcome: SearchOutcome) -> bool:
        with self.database.read() as connection:
            visible = visible_collections(connection)
            marks = ",".join("?" * len(visible))
            sql = f"select 1 from signs where collection_id in ({marks}) limit 1"
            if fetch_one(connection, sql, [collection.id for collection in visible]):
                return True
        outcome.notices.append("Answered by keyword only: no document has vectors yet.")
        return False

    def _search(self, connection: apsw.Connection, embedded: _EmbeddedRequest, collections: list[Collection]) -> Found:
        request, vector, remote_hits, outcome, clock = (
            embedded.request, embedded.vector, embedded.remote_hits, embedded.outcome, embedded.clock
        )  # fmt: skip
        generations = read_generations(connection)
        allowed = self._restriction(connection, collections, request.filters, generations.content)
        outcome.searched = {"collections": len(collections), "chunks": _count_chunks(connection, collections)}
        if allowed is not None:
            outcome.searched["sources"] = len(allowed)
        clock.lap("filters")
        arms = Arms(_depth(request))
        ours = self._with_our_vectors(connection, request, collections, outcome) if vector is not None else None
        trust = trust_of(self.embedder.get().identity.name) if ours is not None else None
        arms.reads_all = trust is MULTILINGUAL_TRUST
        if request.mode != "semantic" or ours is None:
            self._keyword_arm(connection, request, collections, generations, allowed, arms, outcome)
            clock.lap("keyword")
        floor = DEFAULT_FLOOR
        if vector is not None and ours is not None:
            sentences = embedded.sentences
            if arms.reads_all and holds_several_languages(connection, ours.collection_ids):
                from localmcp.embeddings.multilingual_model import without_language

                vector, *sentences = map(without_language, (vector, *sentences))
            floor = _floor(connection, ours.model_id)
            near = _live(connection, remote_hits, ours, allowed) if remote_hits.near else []
            blocks = self._blocks(connection, ours, remote_hits, generations, outcome)
            _vector_arm(connection, request, ours.model_id, blocks, vector, allowed, arms, near)
            _count_sentences(connection, ours.model_id, sentences, arms)
            clock.lap("vector")
        _count_neighbors(connection, arms)
        if arms.named.shares:
            arms.in_named = named_chunks(connection, arms.named.shares, {*arms.keyword_ranks, *arms.cosines})
        if request.mode != "keyword":
            self._cover(connection, collections, arms, outcome)
        if ours is not None and request.mode == "hybrid":
            language = detect_language(request.text)
            arms.other_language = _in_other_language(connection, language, [*arms.cosines])
            if language == READ_LANGUAGE and arms.reads_all and vector is not None:
                _compare_other_languages(connection, ours.model_id, vector, arms)
            if self.adaptive and trust:
                outcome.weights = self._adapted(connection, arms, trust, outcome.query)
        if ours is None:
            return Found(request, outcome, "keyword", floor, arms)
        identity = self.embedder.get().identity
        signals = trust.signals if trust else None
        return Found(request, outcome, request.mode, floor, arms, identity.fingerprint, signals)

    def _cover(
        self, connection: apsw.Connection, collections: list[Collection], arms: Arms, outcome: SearchOutcome
    ) -> None:
        """Say how much of what is searched has no vectors yet, and which candidates have none."""
        queued, total = (
            waiting(connection, [collection.id for collection in collections]).passages,
            outcome.searched["chunks"],
        )
        if queued and total:
            outcome.coverage = round(max(1 - queued / total, 0.0), 4)
            outcome.notices.append(
                f"{queued:,} of {total:,} passages still wait for their meaning to be read; they are found by word."
            )
        if arms.cosines:
            arms.by_word_only = _without_vectors(
                connection, [chunk_id for chunk_id in arms.keyword_ranks if chunk_id not in arms.cosines]
            )

    def _restriction(
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

    def _keyword_arm(
        self, connection: apsw.Connection, request: SearchRequest, collections: list[Collection],
        generations: Generations, allowed: Any, arms: Arms, outcome: SearchOutcome,
    ) -> None:  # fmt: skip
        ids = [collection.id for collection in collections]
        query = build_query(connection, request.text, ids, self.vocabulary, generations.words, request.unrepaired)
        outcome.query = query
        arms.bm25 = search_words(connection, query, DEEPEST, allowed)
        ids = [*islice(arms.bm25, arms.depth)]
        arms.named = named_sources(connection, request.text, collections, allowed)
        for chunk_id in first_chunks(connection, arms.named.shares) if arms.named.shares else ():
            # A document that is named is found by word, whatever is in it.
            arms.bm25.setdefault(chunk_id, LEAST_SCORE)
            ids.append(chunk_id)
        arms.keyword_ranks = {chunk_id: rank for rank, chunk_id in enumerate(dict.fromkeys(ids), 1)}

    def _with_our_vectors(
        self, connection: apsw.Connection, request: SearchRequest, collections: list[Collection], outcome: SearchOutcome
    ) -> _SearchedModel | None:
        """Return the collections whose vectors our model made; the others are left to the keyword arm, and named."""
        model_id = find_model(connection, self.embedder.get().identity)
        ids = [collection.id for collection in collections if model_id is not None and collection.model_id == model_id]
        foreign = ", ".join(
            collection.name for collection in collections if collection.model_id not in (None, model_id)
        )
        if foreign:
            left = "Not searched (use mode hybrid)" if request.mode == "semantic" and ids else "Searched by words only"
            outcome.notices.append(f"{left}, because their vectors come from another model: {foreign}.")
        return _SearchedModel(model_id, ids) if ids and model_id is not None else None

    def _adapted(self, connection: apsw.Connection, arms: Arms, trust: Trust, query: KeywordQuery | None) -> Weights:
        """Return the weights of the kinds of text that were found.

        Short questions about code look foreign now and then: a language counts that some passage is in.
        """
        by_word, by_meaning = list(islice(arms.keyword_ranks, DEEP)), list(islice(arms.semantic_ranks, DEEP))
        weight = weight_for(connection, by_word, by_meaning, self.weights.semantic, trust)
        return Weights(weight if query is None or READ_LANGUAGE in query.languages else min(weight, trust.foreign))

    def _blocks(
        self, connection: apsw.Connection, ours: _SearchedModel, remote_hits: RemoteHits, generations: Generations,
        outcome: SearchOutcome,
    ) -> list[Block]:  # fmt: skip
        here = [collection_id for collection_id in ours.collection_ids if collection_id not in remote_hits.near]
        blocks = self.sign_blocks(connection, ours.model_id, generations, here)
        outcome.searched["vectors"] = sum(len(block.ids) for block in blocks)
        return blocks

    def sign_blocks(
        self, connection: apsw.Connection, model_id: int, generations: Generations, collection_ids: Sequence[int]
    ) -> list[Block]:
        """Return the sign codes of those collections in this snapshot, from the cache that every feature shares."""
        with self._lock:
            signs = self._signs.setdefault(model_id, SignIndex(model_id))
        return signs.blocks(connection, generations.signs, collection_ids)

    def close(self) -> None:
        """Forget what is cached."""
        with self._lock:
            self._signs, self._allowed = {}, {}


def _vector_arm(
    connection: apsw.Connection, request: SearchRequest, model_id: int, blocks: Sequence[Block], vector: Vector,
    allowed: Any, arms: Arms, remote: Sequence[int] = (),
) -> None:  # fmt: skip
    """Find the nearest chunks, and complete the keyword arm's hits with their cosines.

    `remote`: chunks that another server found; their cosines are taken from the file.
    """
    nearest = dict(nearest_chunks(connection, model_id, blocks, vector, ARM_DEPTH, allowed, request.exact))
    if arms.depth > ARM_DEPTH:
        # Behind the first hundred, which stay as earlier pages showed them.
        deeper = nearest_chunks(connection, model_id, blocks, vector, arms.depth, allowed, request.exact)
        nearest |= {chunk_id: cosine for chunk_id, cosine in deeper if chunk_id not in nearest}
    if remote:
        nearest |= exact_cosines(connection, model_id, remote, vector)
        nearest = dict(sorted(nearest.items(), key=lambda pair: (-pair[1], pair[0]))[: arms.depth])
    arms.semantic_ranks = {chunk_id: rank for rank, chunk_id in enumerate(nearest, 1)}
    missing = [chunk_id for chunk_id in arms.keyword_ranks if chunk_id not in nearest]
    arms.cosines = nearest | exact_cosines(connection, model_id, missing, vector)


def _count_neighbors(connection: apsw.Connection, arms: Arms) -> None:
    """Let the passages beside a candidate count in its keyword score; the first hundred stay the first."""
    arms.bm25 = mix_neighbors(connection, arms.bm25, [*arms.keyword_ranks, *arms.cosines])
    arms.keyword_ranks = _ranked(arms.keyword_ranks, arms.bm25)


def _count_sentences(connection: apsw.Connection, model_id: int, vectors: Sequence[Vector], arms: Arms) -> None:
    """Let the nearest sentence of a long question count as much as the whole; the first hundred stay the first."""
    if not vectors:
        return
    near = [exact_cosines(connection, model_id, list(arms.cosines), vector) for vector in vectors]
    arms.cosines = {
        chunk_id: (cosine + max(cosines.get(chunk_id, cosine) for cosines in near)) / 2
        for chunk_id, cosine in arms.cosines.items()
    }
    arms.semantic_ranks = _ranked(arms.semantic_ranks, arms.cosines)


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
    return frozenset(row[0] for row in fetch_all(connection, sql, (apsw.carray(array("q", chunk_ids)), WORD_ONLY)))


def _compare_other_languages(connection: apsw.Connection, model_id: int, vector: Vector, arms: Arms) -> None:
    """Compare an English question with passages in other languages by the multilingual half of their vectors alone.

    The English half does not know them (hybrid search in three mixed libraries, nDCG@10 of the English questions
    .791 -> .813, .907 -> .967, .582 -> .655, and of English questions on Spanish passages .923 -> .955).
    """
    from localmcp.embeddings.multilingual_model import HALF_LENGTH, multilingual_half

    cosines = exact_cosines(connection, model_id, [*arms.other_language], multilingual_half(vector))
    arms.cosines |= {chunk_id: cosine / HALF_LENGTH for chunk_id, cosine in cosines.items()}
    arms.semantic_ranks = _ranked(arms.semantic_ranks, arms.cosines)


def _in_other_language(connection: apsw.Connection, language: str | None, chunk_ids: Sequence[int]) -> frozenset[int]:
    """Return the chunks in another language than the question's; none where that is undecided."""
    if language is None:
        return frozenset()
    groups = [row[0] for row in fetch_all(connection, "select id from groups where language != ?", (language,))]
    if not groups or not chunk_ids:
        return frozenset()
    sql = """
        select id from chunks
        where id in (select value from carray(?)) and group_id in (select value from carray(?))
    """
    bindings = (apsw.carray(array("q", chunk_ids)), apsw.carray(array("q", groups)))
    return frozenset(row[0] for row in fetch_all(connection, sql, bindings))


def _depth(request: SearchRequest) -> int:
    return ARM_DEPTH if request.offset + request.limit <= ARM_DEPTH else DEEPEST


def _live(connection: apsw.Connection, remote_hits: RemoteHits, ours: _SearchedModel, allowed: Any) -> list[int]:
    """Return what another server found, without what has left the file meanwhile, or is not asked for."""
    ids = array(
        "q", [chunk_id for collection in ours.collection_ids for chunk_id in remote_hits.near.get(collection, ())]
    )
    if not len(ids) or (allowed is not None and not len(allowed)):
        return []
    sql = f"""
        select chunks.id from chunks join sources on sources.id = source_id
        where chunks.id in (select value from carray(:ids)) and trashed_at is null
            and collection_id in (select value from carray(:collections))
            {"and source_id in (select value from carray(:allowed))" if allowed is not None else ""}
    """
    bindings: dict[str, Any] = {"ids": apsw.carray(ids), "collections": apsw.carray(array("q", ours.collection_ids))}
    if allowed is not None:
        bindings["allowed"] = apsw.carray(allowed)
    return [row[0] for row in fetch_all(connection, sql, bindings)]


def _count_chunks(connection: apsw.Connection, collections: list[Collection]) -> int:
    marks = ",".join("?" * len(collections))
    sql = f"select coalesce(sum(chunks), 0) from groups where collection_id in ({marks})"
    return fetch_one(connection, sql, [collection.id for collection in collections])


def _floor(connection: apsw.Connection, model_id: int) -> float:
    calibration = fetch_one(connection, "select calibration from models where id = ?", (model_id,))
    return float(json.loads(calibration).get("passage_floor", DEFAULT_FLOOR)) if calibration else DEFAULT_FLOOR
