"""The tool `retriever` (S4-1): several texts in one search over a collection, here or on a Milvus server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import apsw

from localmcp.arrays import Vectors
from localmcp.errors import InvalidInput, LocalMCPError, ModelMismatch, NotFound, Unavailable
from localmcp.index.chunk_rows import asks_for_pages, find_partition, load_rows
from localmcp.index.collection_vectors import Match, best_matches, nearest_to_any
from localmcp.index.collections import Collection, advise_model, find_model, hint_for, visible_collections
from localmcp.index.conditions import parse_condition
from localmcp.index.dates import parse_range
from localmcp.index.filters import Filters
from localmcp.index.index import Index
from localmcp.index.search import SearchRequest
from localmcp.models import LazyEmbedder, ModelIdentity
from localmcp.records.filter_fields import explain_misses
from localmcp.records.milvus_copies import MilvusCopies
from localmcp.storage.database import Database, fetch_one
from localmcp.tools import Json, Param, integer_or_string, tool, without_none

MOST_RESULTS, MOST_TEXTS = 100, 100
MODEL_WAIT_SECONDS = 30.0
NO_COLLECTION_NAME = "collection_name field is required and must be a string"
NO_TEXTS = "texts field must be an array of strings"


class _UnknownCollection(NotFound):
    """Neither the file nor the server has the collection that is searched: its answer names a hint."""


def failed(error: LocalMCPError) -> Json:
    """Return the answer to an error (S4-3): wrong arguments as they are, later failures as a failed query."""
    if isinstance(error, _UnknownCollection):
        return without_none({"success": False, "error": f"query failed: {error.message}", "hint": error.hint})
    return {"success": False, "error": str(error) if isinstance(error, InvalidInput) else f"query failed: {error}"}


@dataclass(frozen=True, slots=True)
class Question:
    """One query of a collection."""

    texts: Sequence[str]
    top_k: int
    filters: Filters
    """Partition, condition and dates."""

    @property
    def partition(self) -> str | None:
        return next(iter(self.filters.partitions), None)

    @property
    def is_dated(self) -> bool:
        return bool(self.filters.since or self.filters.until)


@dataclass(frozen=True, slots=True)
class Answered:
    """One chunk that answers, and the text that it answers best."""

    id: int
    text: str
    score: float
    metadata: Mapping[str, Any]
    query: int


class Retriever:
    """Searches collections by several texts at once."""

    def __init__(self, database: Database, index: Index, embedder: LazyEmbedder, copies: MilvusCopies) -> None:
        self.database = database
        self.index = index
        self.embedder = embedder
        self.copies = copies

    @tool(
        "retriever",
        title="Retrieve",
        keywords=tuple("vector embedding similar milvus collection partition top_k nearest retrieve".split()),
        examples=(
            "retrieve {texts} from the collection {collection_name}",
            "find vectors near {texts} in the collection {collection_name}",
            "query the collection {collection_name} for {texts}",
        ),
        accepts={"top_k": integer_or_string},
        says={
            "collection_name": NO_COLLECTION_NAME,
            "collection_name required": NO_COLLECTION_NAME,
            "texts": NO_TEXTS,
            "texts required": "texts field is required",
            "texts[]": "texts[{index}] must be a string",
            "partition_name": "partition_name field must be a string",
            "top_k": "top_k must be an integer of at least 1",
        },
        on_error=failed,
    )
    def retriever(
        self,
        collection_name: str,
        texts: list[str],
        partition_name: str | None = None,
        top_k: Annotated[int, Param("At most 100", minimum=1)] = 10,
        filter: Annotated[  # noqa: A002
            dict[str, Any] | None, Param('{"lang":"it","year":{"gte":2020}}; and, or, not, in, prefix')
        ] = None,
        mode: Literal["semantic", "hybrid"] | None = None,
        matched_text: bool | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Json:
        """Search a collection by several texts at once."""
        cleaned = _checked_texts(collection_name, texts)
        question = Question(cleaned, min(top_k, MOST_RESULTS), _filters(partition_name, filter, since, until))
        collection = self._collection(collection_name)
        condition, notices = question.filters.condition, list[str]()
        if collection and question.partition is not None:
            with self.database.read() as connection:
                find_partition(connection, collection, question.partition)
        if mode == "hybrid":
            answered = self._hybrid(collection, question, notices)
        else:
            answered = self._semantic(collection, collection_name, question)
        if not answered and condition and collection:
            with self.database.read() as connection:
                notices += explain_misses(connection, collection, condition)
        results = [_shown(chunk, texts if matched_text else ()) for chunk in answered]
        answer = {"success": True, "data": {"results": results, "count": len(results)}, "notices": notices or None}
        return without_none(answer)

    def _collection(self, name: str) -> Collection | None:
        """Return the file's collection; None for one that only the server has.

        Raises:
            NotFound: it is neither in the file nor on the server; names the nearest.
            Unavailable: it is not in the file, and the server does not tell.
        """
        with self.database.read() as connection:
            visible = visible_collections(connection)
        own = next((collection for collection in visible if collection.name.casefold() == name.casefold()), None)
        try:
            if own is not None or self.copies.has(name):
                return own
        except Unavailable as error:
            raise Unavailable(f"collection '{name}' is not in the file. {error.message}", hint=error.hint) from error
        raise _UnknownCollection("collection not found", hint=hint_for(visible, name))

    # ------------------------------------------------------------ by meaning

    def _semantic(self, collection: Collection | None, name: str, question: Question) -> list[Answered]:
        vectors = self.embedder.embed_queries(question.texts, wait=MODEL_WAIT_SECONDS).astype("<f4", copy=False)
        if collection is not None:
            return self._in_file(collection, question, vectors)
        if question.is_dated:
            raise InvalidInput(f"since, until: collection '{name}' is on Milvus only, where documents have no date.")
        return self._on_server(name, question, vectors)

    def _in_file(self, collection: Collection, question: Question, vectors: Vectors) -> list[Answered]:
        """Search the file, in one snapshot for all texts."""
        with self.database.read() as connection:
            require_our_model(connection, collection, self.embedder.get().identity)
            matches = nearest_to_any(connection, self.index, collection, question.filters, vectors, question.top_k)
            return _with_rows(connection, collection, matches)

    def _on_server(self, name: str, question: Question, vectors: Vectors) -> list[Answered]:
        """Search a collection that only the server has; text and metadata are the server's."""
        milvus = self.copies.milvus
        assert milvus is not None
        theirs, ours = self.copies.model_of(name), self.embedder.get().identity
        if theirs and theirs.rpartition("#")[2] != ours.fingerprint:
            raise ModelMismatch(
                f"collection '{name}' on Milvus holds vectors of '{theirs.rpartition('#')[0]}', the model at hand is "
                f"'{ours.name}'."
            )
        neighbors_by_text = milvus.search(
            name, vectors, question.top_k, partition=question.partition, condition=question.filters.condition
        )
        matches = best_matches(
            [{neighbor.id: neighbor.score for neighbor in near} for near in neighbors_by_text], question.top_k
        )
        records = milvus.fetch(name, [match.chunk_id for match in matches])
        return _ordered(
            Answered(match.chunk_id, record.text, match.cosine, record.metadata, match.query)
            for match in matches
            if (record := records.get(match.chunk_id)) is not None
        )

    def _hybrid(self, collection: Collection | None, question: Question, notices: list[str]) -> list[Answered]:
        """Return each text as `search` would answer it; the score is the combined one, 0..1."""
        if collection is None:
            raise InvalidInput("mode hybrid needs the words in the file; use semantic for a collection on Milvus only")
        if question.filters.condition and asks_for_pages(question.filters.condition):
            raise InvalidInput("filter: page can be compared in mode semantic only")
        self.embedder.embed_queries(question.texts, wait=MODEL_WAIT_SECONDS)
        scores: list[dict[int, float]] = []
        for text in question.texts:
            request = SearchRequest(text, "hybrid", question.top_k, 0, (collection.name,), question.filters)
            outcome = self.index.search(request)
            notices += [notice for notice in outcome.notices if notice not in notices]
            scores.append({hit.passage.chunk_id: hit.scores.combined / 100 for hit in outcome.hits})
        with self.database.read() as connection:
            return _with_rows(connection, collection, best_matches(scores, question.top_k))


def require_our_model(connection: apsw.Connection, collection: Collection, ours: ModelIdentity) -> None:
    """Refuse to compare vectors of two models.

    Raises:
        ModelMismatch: the collection's come from another model; names both, with their dimensions.
    """
    if collection.model_id is None or find_model(connection, ours) == collection.model_id:
        return
    sql = "select name, dimension from models where id = ?"
    theirs, dimension = fetch_one(connection, sql, (collection.model_id,))
    raise ModelMismatch(
        f"collection '{collection.name}' holds vectors of '{theirs}' ({dimension} dimensions), the model at hand is "
        f"'{ours.name}' ({ours.dimension}).",
        hint=f"{advise_model(theirs, dimension)}   (or use another collection)",
    )


# ---------------------------------------------------------------- question and answer


def _checked_texts(collection_name: str, texts: list[str]) -> list[str]:
    """Return the texts cleaned (S4-8): no NUL, no half characters, one space between words."""
    if not collection_name.strip():
        raise InvalidInput(NO_COLLECTION_NAME)
    if not texts:
        raise InvalidInput(NO_TEXTS)
    if len(texts) > MOST_TEXTS:
        raise InvalidInput(f"texts: {len(texts)} are too many; use at most {MOST_TEXTS} a call.")
    cleaned = [" ".join(text.replace("\0", " ").encode(errors="ignore").decode().split()) for text in texts]
    for number, text in enumerate(cleaned):
        if not text:
            raise InvalidInput(f"texts[{number}] must hold at least one visible character")
    return cleaned


def _filters(partition: str | None, condition: Json | None, since: str | None, until: str | None) -> Filters:
    first, after = parse_range(since, until)
    partitions = (partition,) if partition else ()
    return Filters(partitions, condition=parse_condition(condition), since=first, until=after)


def _with_rows(connection: apsw.Connection, collection: Collection, matches: Sequence[Match]) -> list[Answered]:
    rows = load_rows(connection, collection.id, [match.chunk_id for match in matches])
    return _ordered(
        Answered(match.chunk_id, row.text, match.cosine, row.metadata, match.query)
        for match in matches
        if (row := rows.get(match.chunk_id)) is not None
    )


def _ordered(answers: Iterable[Answered]) -> list[Answered]:
    """Sort best first; scores shown as equal are sorted by id, whichever backend computed them."""
    return sorted(answers, key=lambda answer: (-round(answer.score, 6), answer.id))


def _shown(answer: Answered, texts: Sequence[str]) -> Json:
    result = {
        "id": answer.id,
        "text": answer.text,
        "score": round(answer.score, 6),
        "metadata": dict(answer.metadata),
        "matched_text": texts[answer.query] if texts else None,
    }
    return without_none(result)
