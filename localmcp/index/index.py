"""The index of one file: what searches of it share, and the question's vectors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import apsw

from localmcp.arrays import Vector
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.index.collections import Collection, choose_collections, visible_ids
from localmcp.index.filters import Filters, allowed_sources
from localmcp.index.fusion import Weights
from localmcp.index.highlight import sentences
from localmcp.index.keyword import Vocabulary
from localmcp.index.multilingual import WordIndex
from localmcp.index.search import Clock, Search, SearchOutcome, SearchRequest
from localmcp.index.vector import Block, SignIndex
from localmcp.models import LazyEmbedder
from localmcp.storage.database import Database, Generations, fetch_one

LONG_QUESTION, SENTENCE_WORDS, MOST_SENTENCES, CHARACTERS_READ = 20, 3, 12, 5_000
"""A question of so many words is also compared sentence by sentence: one of them may name what it is about (nDCG@10 of
hybrid search: LISA .500 -> .517, CACM .578 -> .589, manuals asked for by a paragraph .830 -> .838, package titles by
their descriptions, not looked at before, .687 -> .713). Shorter sentences are ignored."""
MODEL_WAIT_SECONDS = 5.0


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
        outcome = SearchOutcome([], 0, weights=self.weights)
        clock = Clock(outcome.milliseconds)
        vectors = self._embed(request, outcome)
        clock.lap("embedding")
        with self.database.read() as connection:
            collections = choose_collections(connection, list(request.collections) if request.collections else None)
            if collections:
                Search(self, connection, request, collections, outcome).run(vectors, clock)
        return outcome

    def _embed(self, request: SearchRequest, outcome: SearchOutcome) -> Sequence[Vector]:
        """Return the vectors of the question and of its sentences, if it is long; none where no model answers."""
        if request.mode == "keyword" or not request.text.strip():
            return ()
        with self.database.read() as connection:
            visible = f"collection_id in ({visible_ids(connection)}) limit 1"
            if not fetch_one(connection, f"select 1 from signs where {visible}"):
                if fetch_one(connection, f"select 1 from sources where trashed_at is null and {visible}"):
                    outcome.notices.append("Answered by keyword only: no document has vectors yet.")
                return ()
        texts = [request.text]
        if len(request.text.split()) >= LONG_QUESTION:
            parts = [request.text[start:stop] for start, stop in sentences(request.text[:CHARACTERS_READ])]
            parts = [part for part in parts if len(part.split()) >= SENTENCE_WORDS][:MOST_SENTENCES]
            texts += parts if parts[1:] else []
        try:
            vector = self.embedder.embed_query(texts[0], wait=MODEL_WAIT_SECONDS)
            vectors = [vector, *(self.embedder.embed_queries(texts[1:]) if texts[1:] else ())]
        except (ModelUnavailable, ConfigurationError) as error:
            outcome.notices.append(f"Answered by keyword only: {error}")
            return ()
        return [vector.astype("<f4", copy=False) for vector in vectors]

    def restriction(
        self, connection: apsw.Connection, collections: list[Collection], filters: Filters, generation: int
    ) -> Any:
        """Return sorted ids of the sources that may answer; None when every source of the file may."""
        # Rules have no chunks that a search could meet; a dropped collection has some.
        sql = "select count(*) from collections where kind <> 'rules'"
        if not filters and fetch_one(connection, sql) == len(collections):
            return None
        if filters.since or filters.until or filters.source_ids:
            # Dates and ids of sources may change while the generation stays.
            return allowed_sources(connection, collections, filters)
        key = (generation, *(collection.id for collection in collections), repr(filters))
        allowed = self._allowed.get(key)
        if allowed is None:
            allowed = allowed_sources(connection, collections, filters)
            with self._lock:
                # The last eight are kept.
                self._allowed = dict([*self._allowed.items()][-7:]) | {key: allowed}
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
