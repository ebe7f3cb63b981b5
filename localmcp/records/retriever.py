"""The tool `retriever` (S4-1): several texts in one search over a collection, here or on a Milvus server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import apsw

from localmcp.arrays import Vectors
from localmcp.errors import InvalidInput, LocalMCPError, ModelMismatch, NotFound, Unavailable
from localmcp.humanize import choices
from localmcp.index.collections import (
    Collection,
    find_model,
    find_partition,
    hint_for,
    require_model,
    visible_collections,
)
from localmcp.index.filters import SOURCE_COLUMNS, Condition, Filters, comparisons, parse_condition, parse_range
from localmcp.index.passages import Match, Row, best_matches, load_rows, nearest_to_any
from localmcp.index.search import Index, SearchOutcome, SearchRequest
from localmcp.milvus.collection import Milvus, MilvusCollection, filters_text
from localmcp.milvus.mounted import MilvusFile
from localmcp.models import LazyEmbedder
from localmcp.schemas import did_you_mean
from localmcp.storage.database import Database, fetch_column
from localmcp.tools import Json, Param, current_scope, integer_or_string, tool, without_none

MOST_RESULTS, MOST_TEXTS = 100, 100
MODEL_WAIT_SECONDS = 30.0
NO_COLLECTION_NAME = "collection_name field is required and must be a string"
NO_TEXTS = "texts field must be an array of strings"


def failed(error: LocalMCPError) -> Json:
    """Return the answer to an error (S4-3): wrong arguments as they are, later failures as a failed query."""
    message = str(error) if isinstance(error, InvalidInput) else f"query failed: {error}"
    if isinstance(error, NotFound) and error.message == "collection not found":
        return without_none({"success": False, "error": f"query failed: {error.message}", "hint": error.hint})
    return {"success": False, "error": message}


def find_on_server(milvus: Milvus | None, name: str) -> MilvusCollection | None:
    """Return the collection of that name on the server, if there is one and the scope may see it.

    Unavailable or AccessDenied if the server does not tell.
    """
    allowed = current_scope().collections
    if milvus is None or (allowed is not None and name not in allowed):
        return None
    try:
        return milvus.open(name)
    except NotFound:
        return None


class Retriever:
    """Searches collections by several texts at once."""

    def __init__(self, database: Database, index: Index, embedder: LazyEmbedder, milvus: Milvus | None) -> None:
        self.database = database
        self.index = index
        self.embedder = embedder
        self.milvus = milvus

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
        if not collection_name.strip():
            raise InvalidInput(NO_COLLECTION_NAME)
        if not texts:
            raise InvalidInput(NO_TEXTS)
        if len(texts) > MOST_TEXTS:
            raise InvalidInput(f"texts: {len(texts)} are too many; use at most {MOST_TEXTS} a call.")
        # S4-8: no NUL, no half characters, one space between words.
        cleaned = [" ".join(text.replace("\0", " ").encode(errors="ignore").decode().split()) for text in texts]
        if "" in cleaned:
            raise InvalidInput(f"texts[{cleaned.index('')}] must hold at least one visible character")
        first, after = parse_range(since, until)
        partitions = (partition_name,) if partition_name else ()
        filters = Filters(partitions, condition=parse_condition(filter), since=first, until=after)
        request = SearchRequest("", mode or "semantic", min(top_k, MOST_RESULTS), 0, None, filters)
        with self.database.read() as connection:
            visible = visible_collections(connection)
            own = find_named(visible, collection_name)
            if own is not None and partition_name:
                find_partition(connection, own, partition_name)
        notices: list[str] = []
        if own is None:
            matches, rows = self._in_milvus(visible, collection_name, cleaned, request, notices)
        else:
            vectors, matches = self._embed(cleaned), list[Match]()
            if mode == "hybrid":
                matches = _combined(self.index.search, replace(request, collections=(own.name,)), cleaned, notices)
            with self.database.read() as connection:
                if mode != "hybrid":
                    ours = self.embedder.get().identity
                    require_model(connection, own, find_model(connection, ours), ours.name)
                    matches = nearest_to_any(connection, self.index, own, filters, vectors, request.limit)
                rows = load_rows(connection, own.id, [match.chunk_id for match in matches])
                if not matches and filters.condition:
                    notices += explain_misses(connection, own, filters.condition)
        results: list[Json] = []
        for match in sorted(matches, key=lambda match: (-round(match.cosine, 6), match.chunk_id)):
            if (row := rows.get(match.chunk_id)) is not None:
                shown = {"text": row.text, "score": round(match.cosine, 6), "metadata": row.metadata}
                matched = {"matched_text": texts[match.query]} if matched_text else {}
                results.append({"id": match.chunk_id, **shown, **matched})
        data = {"results": results, "count": len(results)}
        return without_none({"success": True, "data": data, "notices": notices or None})

    def _embed(self, texts: Sequence[str]) -> Vectors:
        return self.embedder.embed_queries(texts, wait=MODEL_WAIT_SECONDS).astype("<f4", copy=False)

    def _in_milvus(
        self, visible: list[Collection], name: str, texts: Sequence[str], request: SearchRequest, notices: list[str]
    ) -> tuple[Sequence[Match], Mapping[Any, Row]]:
        try:
            collection = find_on_server(self.milvus, name)
        except Unavailable as error:
            raise Unavailable(f"collection '{name}' is not in the file. {error.message}", hint=error.hint) from error
        if collection is None or self.milvus is None:
            raise NotFound("collection not found", hint=hint_for(visible, name))
        if request.mode == "hybrid" and collection.is_ours:
            file = MilvusFile(self.milvus, collection.name, collection.name, self.embedder)
            matches = _combined(file.search, request, texts, notices)
        else:
            filters = request.filters
            if not collection.is_ours and (filters.since or filters.until):
                raise InvalidInput(f"since, until: '{collection.name}' was made by another program; filter by a field.")
            if request.mode == "hybrid":
                why = "searched by meaning only: it has no index of words."
                notices.append(f"'{collection.name}' on Milvus was {why}")
            vectors, ours = self._embed(texts), self.embedder.get().identity
            if collection.is_ours and collection.about.get("fingerprint") != ours.fingerprint:
                model = f"holds vectors of '{collection.model}', the model at hand is '{ours.name}'."
                raise ModelMismatch(f"collection '{collection.name}' on Milvus {model}")
            within, condition = filters_text(replace(filters, partitions=()))
            partition = next(iter(filters.partitions), None)
            cosines = collection.nearest(vectors, request.limit, partition, condition, within)
            matches = best_matches(cosines, request.limit)
        stored = collection.read([match.chunk_id for match in matches])
        return matches, {key: Row(key, row["text"], row["metadata"], "") for key, row in stored.items()}


def _combined(
    search: Callable[[SearchRequest], SearchOutcome], request: SearchRequest, texts: Sequence[str], notices: list[str]
) -> list[Match]:
    # The score is the combined one, 0..1.
    scores: list[dict[int, float]] = []
    for text in texts:
        outcome = search(replace(request, text=text))
        notices += [notice for notice in outcome.notices if notice not in notices]
        scores.append({hit.passage.chunk_id: hit.scores.combined / 100 for hit in outcome.hits})
    return best_matches(scores, request.limit)


def explain_misses(connection: apsw.Connection, collection: Collection, condition: Condition) -> list[str]:
    """Return a sentence for each field of a condition that nothing in a collection has."""
    sql = """
        select distinct key from sources, json_each(iif(json_valid(metadata), metadata, '{}'))
        where collection_id = ? and trashed_at is null order by key
    """
    fields = list(dict.fromkeys([*fetch_column(connection, sql, (collection.id,)), *SOURCE_COLUMNS]))
    unknown = dict.fromkeys(each.field[0] for each in comparisons(condition) if each.field[0] not in fields)
    return [
        f"filter: nothing in '{collection.name}' has the field '{name}'. "
        f"{choices(fields[:30])} {did_you_mean(name, fields)}".rstrip()
        for name in unknown
    ]


def find_named(visible: Sequence[Collection], name: str) -> Collection | None:
    return next((collection for collection in visible if collection.name.casefold() == name.casefold()), None)
