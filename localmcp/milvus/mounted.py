"""A collection in Milvus as a mounted file: searched and read beside yours, never changed.

Milvus finds; the order, relevance and dates of what it found are those of every search. For reading, the documents that
are wanted are put into a file in memory of our own schema, so that whatever reads a mounted file reads them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw

from localmcp.arrays import Vector, np
from localmcp.errors import ConfigurationError, FileUnavailable, LocalMCPError, ModelUnavailable, NotFound, Unavailable
from localmcp.index.collections import DEFAULT_PARTITION
from localmcp.index.federation import Wanted
from localmcp.index.fusion import ARM_DEPTH, LOOKED_AT, SEMANTIC_WEIGHT, Arms, judge, rank
from localmcp.index.keyword import ABSENT, KeywordQuery, Term, inverse_frequency, split_left_out
from localmcp.index.passages import load_passages
from localmcp.index.search import (
    DEEPEST,
    MODEL_WAIT_SECONDS,
    Index,
    SearchOutcome,
    SearchRequest,
    embed_question,
    is_doubtful,
    make_hit,
    mix_cosines,
)
from localmcp.milvus.collection import Milvus, MilvusCollection, begins_with, is_one_of
from localmcp.models import LazyEmbedder
from localmcp.models.embedder import Calibration
from localmcp.schemas import Json
from localmcp.storage.connections import connect
from localmcp.storage.database import Database, insert_row
from localmcp.storage.schema import create_schema
from localmcp.wording.normalize import detect_language, index_text, phrases, stems, stop_words

ADDRESS = "milvus:"
"""Begins the path of what is mounted from Milvus: `milvus:COLLECTION`."""
MOST_LISTED = 10_000
"""Documents of a collection that a list shows."""
MOST_MEANT = 20
"""Documents that a name may mean."""
REST_SECONDS = 30.0
"""A server that did not answer is not asked again so soon, lest each search wait for it."""
_OF_A_DOCUMENT = ("id", "document", "chunk", "title", "path", "partition", "position", "metadata", "origin")


class MilvusFile:
    """One collection that localmcp pushed. Thread-safe; the server is asked at the first use."""

    def __init__(self, milvus: Milvus, name: str, collection: str, embedder: LazyEmbedder) -> None:
        self.name = name
        self.path = Path(f"{ADDRESS}{collection}")
        self._milvus, self._collection_name, self._embedder = milvus, collection, embedder
        self._opened: MilvusCollection | None = None
        self._chunks = 0
        """Passages when it was opened: counting takes a server longer than the search."""
        self._failure: tuple[float, FileUnavailable] | None = None
        self.database = _FileInMemory(self.path, collection, [])
        """A collection holds neither quick starts nor rules: an empty file."""

    @contextmanager
    def _collection(self) -> Generator[MilvusCollection]:
        # What the server has against it becomes the error of a file that cannot be read.
        if self._failure and time.monotonic() - self._failure[0] < REST_SECONDS:
            raise self._failure[1]
        try:
            if self._opened is None:
                collection = self._milvus.open(self._collection_name)
                if not collection.is_ours:
                    raise ConfigurationError(
                        f"Milvus' collection '{collection.name}' was made by another program; only retriever asks it."
                    )
                self._opened, self._chunks = collection, collection.count()
            yield self._opened
        except LocalMCPError as error:
            message = error.message
            if isinstance(error, NotFound):
                self._opened, message = None, f"Milvus has no collection '{self._collection_name}'."
            failure = FileUnavailable(message, hint=error.hint)
            if isinstance(error, Unavailable):
                self._failure = time.monotonic(), failure
            raise failure from error

    def describe(self) -> dict[str, Any]:
        """Return counts and the name of the model, as for a mounted file.

        FileUnavailable if the server does not answer, or the collection is not one of localmcp.
        """
        with self._collection() as collection:
            sources = collection.count("position == 0")
            counts = {"sources": sources, "chunks": collection.count(), "quickstarts": 0, "rules": 0}
            return {**counts, "collections": [collection.name], "models": [collection.model], "title": ""}

    def close(self) -> None:
        """Forget the collection; the connection is the workspace's."""
        self._opened = None

    # ------------------------------------------------------------ reading

    def index(self, wanted: Wanted | None = None) -> Index:
        """Return an index of the documents that are wanted; FileUnavailable if the server does not answer."""
        if wanted is None:
            return Index(self.database, self._embedder)
        rows: list[Json] = []
        with self._collection() as collection:
            if wanted.chunk:
                targets = collection.find(begins_with("chunk", wanted.chunk), ["document", "position"], limit=2)
                spans = {row["document"]: row["position"] for row in targets}
                for document, place in spans.items():
                    around = f"position >= {place - 50} and position <= {place + 50}"
                    rows += collection.find(f"{is_one_of('document', [document])} and {around}", ["*"])
            elif wanted.document is None:
                rows = collection.find("position == 0", _OF_A_DOCUMENT, MOST_LISTED)
            else:
                name = wanted.document.strip()
                tail = json.dumps(f"%{name}%", ensure_ascii=False)
                tests = [begins_with("document", name.lower()), is_one_of("title", [name]), f"path like {tail}"]
                passage = is_one_of("chunk", [name.replace("-", "")])
                which = f"(position == 0 and ({' or '.join(tests)})) or {passage}"
                if documents := [row["document"] for row in collection.find(which, ["document"], MOST_MEANT)]:
                    rows = collection.find(is_one_of("document", documents), ["*"])
        return Index(_FileInMemory(self.path, self._collection_name, rows), self._embedder)

    # ------------------------------------------------------------ searching

    def search(self, request: SearchRequest) -> SearchOutcome:
        """Return the best passages; each has the scores that it would have in a file, without the repair of spelling.

        NotFound if another collection is asked for, FileUnavailable if the server does not answer.
        """
        if request.collections and self._collection_name not in request.collections:
            raise NotFound(f"No collection '{request.collections[0]}'.")
        with self._collection() as collection:
            # What the push did not write counts as not measured.
            weight, calibration = SEMANTIC_WEIGHT, Calibration()
            with suppress(KeyError, TypeError, ValueError):
                about = collection.about
                weight, calibration = float(about["weight"]), Calibration(**about["calibration"])
            outcome = SearchOutcome([], 0, semantic_weight=weight)
            vectors, (plain, left_out) = self._embed(request, collection, outcome), split_left_out(request.text)
            mode = request.mode if vectors else "keyword"
            arms, candidates = _arms_of(collection, replace(request, text=plain, mode=mode), vectors, calibration)
            if mode != "semantic":
                if not collection.has_words:
                    outcome.notices.append("it has no index of words (Milvus before 2.5): searched by meaning only.")
                if left_out:
                    outcome.notices.append(f"Left out: passages with {', '.join(left_out)}.")
                    arms.leave_out(
                        {
                            key
                            for key, row in candidates.items()
                            if not set(row["words"].split()).isdisjoint(stems(left_out, row["language"]))
                        }
                    )
                query = outcome.query = _query(plain, [row["words"] for row in candidates.values()])
                if query.dropped and collection.has_words:
                    absent = ", ".join(f"'{word}'" for word, _ in query.dropped[:3])
                    outcome.notices.append(f"it holds no {absent}; spelling is not repaired there.")
            ranked = rank(arms, mode, weight)
            page = ranked[request.offset : request.offset + request.limit]
            shown = list(dict.fromkeys(candidate.id for candidate in (*page, *ranked[:LOOKED_AT])))
            rows = [*collection.read(shown).values()]
            outcome.searched = {"collections": 1, "chunks": self._chunks}
        with _FileInMemory(self.path, self._collection_name, rows).read() as connection:
            passages = load_passages(connection, shown)
        judged, first = judge(outcome.query), ranked[:LOOKED_AT]
        hits = {
            candidate.id: make_hit(judged, candidate, [passages[candidate.id]], arms, outcome)
            for candidate in (*page, *first)
            if candidate.id in passages
        }
        outcome.total = len(ranked)
        outcome.hits = [hits[candidate.id] for candidate in page if candidate.id in hits]
        outcome.doubtful = is_doubtful(hits[candidate.id] for candidate in first if candidate.id in hits)
        return outcome

    def _embed(self, request: SearchRequest, collection: MilvusCollection, outcome: SearchOutcome) -> list[Vector]:
        if request.mode == "keyword" or not request.text.strip():
            return []
        try:
            identity = self._embedder.get(MODEL_WAIT_SECONDS).identity
            if identity.fingerprint == collection.about.get("fingerprint"):
                return embed_question(self._embedder, request.text)
            reason = f"its vectors come from the model '{collection.model}', in use is '{identity.name}'."
        except (ModelUnavailable, ConfigurationError) as error:
            reason = error.message
        outcome.notices.append(f"Answered by keyword only: {reason}")
        outcome.by_words_only = True
        return []


def _arms_of(
    collection: MilvusCollection, request: SearchRequest, vectors: Sequence[Vector], calibration: Calibration
) -> tuple[Arms, dict[int, Json]]:
    # And the rows of all candidates. `vectors`: of the question, then of its sentences.
    arms, near = Arms(), dict[int, float]()
    depth = DEEPEST if request.limit > ARM_DEPTH else ARM_DEPTH
    if vectors:
        [near] = collection.nearest(vectors[0][None, :], depth, request.filters)
        arms.semantic_ranks = {key: place for place, key in enumerate(near, 1)}
    if request.mode != "semantic":
        arms.bm25 = collection.holding(request.text, DEEPEST, request.filters)
        arms.keyword_ranks = {key: place for place, key in enumerate([*arms.bm25][:depth], 1)}
    is_judged = request.mode != "semantic" or vectors[1:]
    candidates = collection.read([*(arms.keyword_ranks | near)] if is_judged else [], ["words", "vector", "language"])
    cosines: dict[int, list[float]] = {}
    if vectors:
        question = np.stack(vectors)
        cosines = {
            key: (question @ np.asarray(row["vector"], "<f4")).tolist()
            for key, row in candidates.items()
            if len(row["vector"] or ()) == question.shape[1]
        }
    near |= {key: cosines[key][0] for key in cosines.keys() - near.keys()}
    arms.cosines = calibration.scaled(near)
    if vectors[1:]:
        mix_cosines(arms, calibration.scaled({key: max(cosines[key][1:]) for key in cosines}))
    return arms, candidates


def _query(text: str, words: Sequence[str]) -> KeywordQuery:
    # Words count as they do among the candidates, whose stems are `words`: Milvus does not tell how many passages hold
    # one. A word that is in no candidate is in no passage: those that hold a rare word are among them.
    language = detect_language(text) or "english"
    chunks = Counter(stem for stems in words for stem in set(stems.split()))
    terms: list[Term] = []
    for word in dict.fromkeys(" ".join(unit) for unit in phrases(text)):
        if word not in stop_words(language) and (stems := index_text(word, language)):
            count = min(chunks[stem] for stem in stems.split())
            terms.append(Term(word, (stems,), count, max(inverse_frequency(count, len(words)), 0.5)))
    dropped = tuple((term.word, ABSENT) for term in terms if not term.chunks)
    held = tuple(term for term in terms if term.chunks)
    return KeywordQuery(held, (language,), dropped, missing_idf=inverse_frequency(0, len(words)))


# ---------------------------------------------------------------- documents in memory


class _FileInMemory(Database):
    def __init__(self, path: Path, collection: str, rows: Sequence[Json]) -> None:
        super().__init__(path, read_only=True, foreign=True)
        self._connection = connect("")
        self._connection.execute("begin")
        create_schema(self._connection)
        insert_row(self._connection, "collections", {"id": 1, "name": collection, "created_at": ""})
        ids: dict[str, int] = {}
        for row in rows:
            try:
                self._insert(row, ids)
            except (KeyError, TypeError, ValueError, apsw.Error):
                # Somebody else wrote into the collection.
                continue
        self._connection.execute("commit")

    @contextmanager
    def read(self) -> Generator[apsw.Connection]:
        # Threads share the one connection, one after the other.
        with self._lock:
            yield self._connection

    def _insert(self, row: Json, ids: dict[str, int]) -> None:
        # And its document if it is the first of it; `ids`: what was inserted so far.
        origin = row["origin"]
        source, chunk = dict(origin["source"]), dict(origin["chunk"])
        document, partition = str(uuid.UUID(row["document"])), row["partition"]
        partition_id = None
        if partition != DEFAULT_PARTITION:
            place = {"collection_id": 1, "name": partition, "created_at": ""}
            partition_id = self._once(ids, f"partition {partition}", "partitions", place)
        own_metadata = {key: value for key, value in row["metadata"].items() if key not in origin["told"]}
        about = {"metadata": json.dumps(own_metadata), "collection_id": 1, "partition_id": partition_id}
        source_id = self._once(ids, f"source {document}", "sources", {**source, **about, "uuid": document})
        language, kind = chunk.pop("language"), chunk.pop("kind")
        group = {"collection_id": 1, "language": language, "kind": kind}
        group_id = self._once(ids, f"group {language} {kind}", "groups", group)
        place = {"id": row["id"], "uuid": bytes.fromhex(row["chunk"]), "source_id": source_id}
        text = {"text": row["text"], "position": row["position"], "headings": json.dumps(chunk.pop("headings"))}
        rest = {"group_id": group_id, "words": 0, "digest": b""}
        insert_row(self._connection, "chunks", {**chunk, **place, **text, **rest})

    def _once(self, ids: dict[str, int], key: str, table: str, columns: dict[str, Any]) -> int:
        if key not in ids:
            ids[key] = insert_row(self._connection, table, columns)
        return ids[key]
