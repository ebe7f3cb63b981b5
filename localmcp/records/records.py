"""The tools for collections, and for records (texts with metadata) in them: `retriever` (S4-1) and those of S4-13."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, cast

import apsw

from localmcp.arrays import Vectors
from localmcp.errors import InvalidInput, LocalMCPError, ModelMismatch, NeedsConfirmation, NotFound, Unavailable
from localmcp.humanize import counted
from localmcp.index.collections import (
    DEFAULT_PARTITION,
    Collection,
    choose_collections,
    claim_collection,
    ensure_collection,
    ensure_model,
    ensure_partition,
    find_model,
    find_partition,
    hint_for,
    partition_names,
    require_model,
    visible_collections,
)
from localmcp.index.drafts import (
    FORMAT,
    LONGEST_RECORD,
    SourceDraft,
    Window,
    check_metadata,
    draft_record,
    metadata_of,
)
from localmcp.index.filters import Filters, allowed_sources, explain_empty_filter, parse_condition, parse_range
from localmcp.index.passages import Match, best_matches, load_passages, whole_sources
from localmcp.index.search import Index, SearchOutcome, SearchRequest
from localmcp.index.sources import drop_collection, drop_partition, keep_version, put_source, trash_sources
from localmcp.index.vector import Made, nearest_chunks
from localmcp.milvus.collection import Milvus, MilvusCollection
from localmcp.milvus.mounted import MilvusFile
from localmcp.models import Embedder
from localmcp.schemas import did_you_mean, without_none, without_surrogates
from localmcp.storage.database import fetch_all, fetch_column, fetch_one, id_list
from localmcp.tools import Json, Param, current_scope, hidden_change, hidden_tool, integer_or_string, tool, use_scope

MOST_RECORDS = 200
"""A call with more would take longer than a client waits; the command line has no such bound."""
MOST_RESULTS, MOST_TEXTS = 100, 100
MODEL_WAIT_SECONDS = 30.0
NO_COLLECTION_NAME = "collection_name field is required and must be a string"
NO_TEXTS = "texts field must be an array of strings"
Name = Annotated[str, Param("The collection.", min_length=1, max_length=100)]
PartitionName = Annotated[str, Param("The partition.", min_length=1, max_length=100)]


@dataclass(frozen=True, slots=True)
class GivenRecord:
    """A text that is to be stored."""

    text: str
    metadata: Mapping[str, Any]
    partition: str | None
    id: int | None
    """Of the record that it replaces."""
    place: str
    """How messages call it: `texts[2]`, `line 7`."""


FIELDS = {
    "text": (str, "text"),
    "metadata": (dict, "an object"),
    "partition_name": (str, "text"),
    "id": (int, "a number"),
}


def parse_record(raw: Any, place: str) -> GivenRecord:
    """Return a record from JSON: {text, metadata?, partition_name?, id?}; InvalidInput names the place and field."""
    if not isinstance(raw, dict):
        raise InvalidInput(f"{place}: must be an object with {', '.join(FIELDS)}")
    entries = cast(Json, raw)
    for name, value in entries.items():
        if name not in FIELDS:
            guess = did_you_mean(name, FIELDS, f"There are {', '.join(FIELDS)}.")
            raise InvalidInput(f"{place}: {name}: not a field. {guess}")
        kind, called = FIELDS[name]
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise InvalidInput(f"{place}: {name}: must be {called}")
    text, metadata, partition, number = (entries.get(name) for name in FIELDS)
    if text is None:
        raise InvalidInput(f"{place}: text: required")
    checked = check_metadata(metadata or {}, f"{place}: metadata")
    # UTF-8 writes no half characters, and SQLite's text ends at NUL.
    stored = without_surrogates(text.replace("\0", "\ufffd"))
    if not stored.strip():
        raise InvalidInput(f"{place}: text is {text[:20]!r}, but must contain at least one visible character.")
    return GivenRecord(stored, checked, partition or None, number, place)


def failed(error: LocalMCPError) -> Json:
    """Return the answer to an error (S4-3): wrong arguments as they are, later failures as a failed query."""
    if isinstance(error, NotFound) and error.message == "collection not found":
        return without_none({"success": False, "error": f"query failed: {error.message}", "hint": error.hint})
    return {"success": False, "error": str(error) if isinstance(error, InvalidInput) else f"query failed: {error}"}


class Records:
    """Searches, makes, describes and drops collections, and writes records: every call as a whole or not at all."""

    def __init__(self, index: Index, milvus: Milvus | None, remove: Callable[[list[str]], Any]) -> None:
        """`remove` puts documents that came from files into the trash, by their UUIDs."""
        self.index, self.milvus, self._remove = index, milvus, remove
        self.database, self.embedder = index.database, index.embedder

    # ------------------------------------------------------------ retrieving

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
        notices: list[str] = []
        with self.database.read() as connection:
            own = find_named(connection, collection_name)
            if own is not None and partition_name:
                find_partition(connection, own, partition_name)
        if own is None:
            matches, rows = self._in_milvus(collection_name, cleaned, request, notices)
        else:
            vectors, matches = self._embed(cleaned), list[Match]()
            if mode == "hybrid":
                matches = _combined(self.index.search, replace(request, collections=(own.name,)), cleaned, notices)
            with self.database.read() as connection:
                if mode != "hybrid":
                    ours = self.embedder.get().identity
                    require_model(connection, own, find_model(connection, ours), ours.name)
                    model_id = own.model_id or 0
                    blocks = self.index.signs.blocks(connection, model_id, [own.id])
                    allowed = allowed_sources(connection, [own], filters) if filters else None
                    near = [
                        dict(nearest_chunks(connection, model_id, blocks, vector, request.limit, allowed))
                        for vector in vectors
                    ]
                    matches = best_matches(near, request.limit)
                rows: dict[Any, tuple[str, Json]] = {}
                for key, passage in load_passages(connection, [match.chunk_id for match in matches]).items():
                    about = passage.metadata_json, passage.uri, passage.title, passage.first_page, passage.format
                    rows[key] = passage.text, metadata_of(*about)
                if not matches and filters.condition:
                    notices += _explain_misses(connection, own, Filters(condition=filters.condition))
        results: list[Json] = []
        for match in sorted(matches, key=lambda match: (-round(match.cosine, 6), match.chunk_id)):
            if match.chunk_id in rows:
                text, metadata = rows[match.chunk_id]
                shown = {"id": match.chunk_id, "text": text, "score": round(match.cosine, 6), "metadata": metadata}
                results.append(shown | ({"matched_text": texts[match.query]} if matched_text else {}))
        data = {"results": results, "count": len(results)}
        return without_none({"success": True, "data": data, "notices": notices or None})

    def _embed(self, texts: Sequence[str]) -> Vectors:
        return self.embedder.embed_queries(texts, wait=MODEL_WAIT_SECONDS).astype("<f4", copy=False)

    def _in_milvus(
        self, name: str, texts: Sequence[str], request: SearchRequest, notices: list[str]
    ) -> tuple[Sequence[Match], dict[Any, tuple[str, Json]]]:
        # The matches, and id -> text and metadata.
        try:
            collection = self._on_server(name)
        except Unavailable as error:
            raise Unavailable(f"collection '{name}' is not in the file. {error.message}", hint=error.hint) from error
        if collection is None or self.milvus is None:
            with self.database.read() as connection:
                raise NotFound("collection not found", hint=hint_for(visible_collections(connection), name))
        filters = request.filters
        for partition in filters.partitions:
            collection.require_partition(partition)
        if not collection.is_ours and (filters.since or filters.until):
            raise InvalidInput(f"since, until: '{name}' was made by another program; filter by a field.")
        if request.mode == "hybrid" and collection.is_ours:
            search = MilvusFile(self.milvus, name, name, self.embedder).search
            matches = _combined(search, request, texts, notices)
        else:
            if request.mode == "hybrid":
                notices.append(f"'{name}' on Milvus was searched by meaning only: it has no index of words.")
            vectors, ours = self._embed(texts), self.embedder.get().identity
            if collection.is_ours and collection.about.get("fingerprint") != ours.fingerprint:
                model = f"holds vectors of '{collection.model}', the model at hand is '{ours.name}'."
                raise ModelMismatch(f"collection '{name}' on Milvus {model}")
            matches = best_matches(collection.nearest(vectors, request.limit, filters), request.limit)
        stored = collection.read([match.chunk_id for match in matches])
        return matches, {key: (row["text"], row["metadata"]) for key, row in stored.items()}

    def _on_server(self, name: str) -> MilvusCollection | None:
        # If there is one and the scope may see it; Unavailable or AccessDenied if the server does not tell.
        allowed = current_scope().collections
        if self.milvus is not None and (allowed is None or name in allowed):
            with suppress(NotFound):
                return self.milvus.open(name)
        return None

    # ------------------------------------------------------------ inserting

    @hidden_change(
        "insert_records",
        title="Insert texts into a collection",
        keywords=("vector", "upsert", "update", "add", "store", "embed", "collection", "milvus", "texts"),
        examples=(
            "insert {texts} into the collection {collection_name}",
            "add the texts {texts} to the collection {collection_name}",
            "store the text {texts} in the collection {collection_name}",
        ),
        destructive=True,
        idempotent=False,
    )
    def insert_records(
        self,
        collection_name: Annotated[str, Param("Made if there is none of that name.", min_length=1, max_length=100)],
        texts: Annotated[list[str] | None, Param("One chunk each.", max_length=MOST_RECORDS)] = None,
        records: Annotated[
            list[dict[str, Any]] | None,
            Param("Instead of texts: {text, metadata?, partition_name?, id?} each.", max_length=MOST_RECORDS),
        ] = None,
        partition_name: Annotated[str | None, Param("For all that name none; made if absent.")] = None,
        metadata: Annotated[dict[str, Any] | None, Param("For all; a record's own keys win.")] = None,
        split: Annotated[bool, Param("Cut texts that are too long for one vector into several chunks.")] = False,
    ) -> Json:
        """Put texts or records with metadata into a collection, one chunk each; retriever and search find them.

        A record with the id of one that is there replaces it; what it was is in the trash (restore_source).
        """
        if (texts is None) == (records is None):
            raise InvalidInput("Give either texts or records.")
        parsed = [parse_record({"text": text}, f"texts[{number}]") for number, text in enumerate(texts or ())]
        parsed += [parse_record(record, f"records[{number}]") for number, record in enumerate(records or ())]
        common = check_metadata(metadata or {})
        parsed = [replace(record, metadata=common | {**record.metadata}) for record in parsed]
        embedder = self._model_for(collection_name)
        drafts = [_draft(record, embedder, split) for record in parsed]
        to_embed = {digest: text for _, parts in drafts for digest, text in parts.items()}
        vectors = embedder.embed_passages([*to_embed.values()]).astype("<f4", copy=False)
        embeddings = {digest: Made(row.tobytes()) for digest, row in zip(to_embed, vectors, strict=True)}
        chunk_ids: list[int] = []
        with self.database.write() as connection:
            target = ensure_collection(connection, collection_name)
            target = claim_collection(connection, target, ensure_model(connection, embedder.identity))
            for record, (draft, _) in zip(parsed, drafts, strict=True):
                partition_id = ensure_partition(connection, target, record.partition or partition_name)
                placed, replaced = replace(draft, collection_id=target.id, partition_id=partition_id), None
                if record.id is not None:
                    replaced, uuid = _find_record(connection, target, record)
                    placed = replace(placed, chunks=[placed.chunks[0]._replace(identity=(record.id, uuid))])
                    keep_version(connection, replaced)
                source_id = put_source(connection, placed, embeddings, target.model_id, replaces=replaced).source_id
                sql = "select id from chunks where source_id = ? order by position"
                chunk_ids += fetch_column(connection, sql, (source_id,))
        return {"ids": chunk_ids, "count": len(parsed), "collection_name": collection_name}

    def check(self, collection: str, records: Iterable[tuple[str, Any]], *, split: bool = False) -> None:
        """Raise now what inserting records, as JSON with their places, would raise because of what they are."""
        embedder = self._model_for(collection)
        for place, record in records:
            _draft(parse_record(record, place), embedder, split)

    def _model_for(self, collection: str) -> Embedder:
        # If the collection is in the file or can be made there, without vectors of another model.
        with self.database.read() as connection:
            own = find_named(connection, collection)
        # The file can be written to although the server is down.
        with suppress(Unavailable):
            if own is None and self._on_server(collection) is not None:
                hint = f"Bring it here: localmcp pull {collection}"
                raise InvalidInput(f"Collection '{collection}' is on the Milvus server only.", hint=hint)
        embedder = self.embedder.get()
        if own is not None:
            with self.database.read() as connection:
                model_id = find_model(connection, embedder.identity)
                require_model(connection, own, model_id, embedder.identity.name)
        return embedder

    # ------------------------------------------------------------ deleting

    @hidden_change(
        "delete_records",
        title="Delete records of a collection",
        keywords=("vector", "remove", "forget", "trash", "collection", "filter"),
        examples=(
            "delete the records {ids} from the collection {collection_name}",
            "remove record {ids} of the collection {collection_name}",
        ),
        destructive=True,
        idempotent=True,
    )
    def delete_records(
        self,
        collection_name: Annotated[str, Param("The collection.")],
        ids: Annotated[list[int] | None, Param("As retriever and insert_records return them.")] = None,
        filter: Annotated[  # noqa: A002
            dict[str, Any] | None, Param('Or everything whose metadata fulfil this: {"year":{"lt":2020}}')
        ] = None,
        partition_name: Annotated[str | None, Param("Only in this partition.")] = None,
        confirm: Annotated[bool, Param("Needed for more than five documents that come from files.")] = False,
    ) -> Json:
        """Delete records, and whole documents, of a collection: they move to the trash; restore_source undoes it."""
        filters = Filters(condition=parse_condition(filter))
        condition = filters.condition
        if (ids is None) == (condition is None):
            raise InvalidInput("Give either ids or a filter that is not empty.")
        with self.database.read() as connection:
            [target] = choose_collections(connection, [collection_name])
            named = list(dict.fromkeys(ids or ()))
            if condition:
                source_ids = allowed_sources(connection, [target], filters).tolist()
            else:
                source_ids = whole_sources(connection, target, named)
            notices = _explain_misses(connection, target, filters) if condition and not source_ids else []
            sql = f"""
                select sources.id, sources.uuid, uri, json_group_array(chunks.id) from sources
                join chunks on source_id = sources.id left join partitions on partitions.id = partition_id
                where sources.id in (select value from carray(:ids))
                    and :partition in ('', coalesce(partitions.name, '{DEFAULT_PARTITION}'))
                group by sources.id
            """
            sources = fetch_all(connection, sql, {"ids": id_list(source_ids), "partition": partition_name or ""})
        deleted = {chunk_id for *_, chunk_ids in sources for chunk_id in json.loads(chunk_ids)}
        files = [source_uuid for _, source_uuid, uri, _ in sources if uri is not None]
        if len(files) > 5 and not confirm and not current_scope().trusted:
            message = f"This would put {len(files)} documents that come from files into the trash. Nothing was removed."
            raise NeedsConfirmation(message, hint="If the person wants this, call again with confirm: true.")
        with self.database.write() as connection:
            trash_sources(connection, [source_id for source_id, _, uri, _ in sources if uri is None])
        if files:
            self._remove(files)
        missing = [chunk_id for chunk_id in named if chunk_id not in deleted]
        counts = {"deleted": len(deleted), "documents": len(sources)}
        return without_none({**counts, "notFound": missing or None, "notices": notices or None})

    # ------------------------------------------------------------ collections

    @hidden_change(
        "create_collection",
        title="Create a collection",
        keywords=("knowledge base", "vector", "milvus", "make", "new", "collection"),
        examples=("create a collection called {collection_name}", "make a new collection {collection_name}"),
        idempotent=True,
    )
    def create_collection(
        self,
        collection_name: Name,
        description: Annotated[str | None, Param("What is in it.", max_length=1000)] = None,
    ) -> Json:
        """Make a collection for documents or texts. It takes the embedding model of the first text put into it."""
        with self.database.write() as connection:
            before = fetch_one(connection, "select 1 from collections where name = ?", (collection_name,))
            made = ensure_collection(connection, collection_name)
            if description is not None:
                connection.execute("update collections set description = ? where id = ?", (description, made.id))
        return {"name": made.name, "created": before is None}

    @hidden_change(
        "create_partition",
        title="Create a partition",
        keywords=("part", "section", "vector", "milvus", "collection", "new"),
        examples=("create a partition {partition_name} in the collection {collection_name}",),
        idempotent=True,
    )
    def create_partition(self, collection_name: Name, partition_name: PartitionName) -> Json:
        """Make a part of a collection, which can then be searched alone: by type, date, domain."""
        with self.database.write() as connection:
            [collection] = choose_collections(connection, [collection_name])
            before = partition_names(connection, collection.id)
            ensure_partition(connection, collection, partition_name)
        return {"name": partition_name, "created": partition_name not in (DEFAULT_PARTITION, *before)}

    # ------------------------------------------------------------ describing

    @hidden_tool(
        "list_collections",
        title="List the collections",
        keywords=("knowledge bases", "vector", "milvus", "partitions", "which", "all"),
        examples=("list the collections", "which collections are there", "what knowledge bases do I have"),
    )
    def list_collections(self) -> Json:
        """The collections with their partitions and sizes; also those that only a configured Milvus server has."""
        with self.database.read() as connection:
            listed: list[Json] = []
            for collection in visible_collections(connection):
                documents, chunks = _count(connection, collection.id)
                about = {"name": collection.name, "description": collection.description}
                partitions = partition_names(connection, collection.id)
                counts = {"documents": documents, "chunks": chunks, "partitions": partitions}
                listed.append({**about, **counts, "searchedIn": "file"})
        result: Json = {"count": len(listed), "collections": listed}
        if self.milvus is None:
            return result
        allowed, ours = current_scope().collections, {item["name"].casefold() for item in listed}
        try:
            names = [name for name in self.milvus.names() if allowed is None or name in allowed]
            result["onlyOnMilvus"] = [name for name in names if name.casefold() not in ours]
        except LocalMCPError as error:
            result["notices"] = [f"Milvus was not asked: {error}"]
        return result

    @hidden_tool(
        "describe_collection",
        title="Describe a collection",
        keywords=("partitions", "vectors", "model", "dimension", "size", "milvus", "count"),
        examples=(
            "describe the collection {collection_name}",
            "how many vectors are in the collection {collection_name}",
            "which partitions does the collection {collection_name} have",
        ),
    )
    def describe_collection(self, collection_name: Name) -> Json:
        """Documents, vectors, partitions, embedding model and where a collection is searched."""
        with self.database.read() as connection:
            own = find_named(connection, collection_name)
        collection = None if own else self._on_server(collection_name)
        if collection is not None:
            about = {"vectors": collection.count(), "model": collection.model, "dimension": collection.dimension}
            named = {"name": collection_name, "description": "", **about}
            return {**named, "partitions": collection.partitions(), "searchedIn": "milvus"}
        with self.database.read() as connection:
            [stored] = choose_collections(connection, [collection_name])
            sql = "select name, dimension from models where id = ?"
            model, dimension = fetch_one(connection, sql, (stored.model_id,)) or ("", 0)
            # Chunks without a vector and the trash are not counted.
            sql = f"""
                select coalesce(partitions.name, '{DEFAULT_PARTITION}'), count(*) from sources
                left join partitions on partitions.id = partition_id join chunks on chunks.source_id = sources.id
                where sources.collection_id = ? and trashed_at is null
                    and exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
                group by 1
            """
            counts: dict[str, int] = dict(fetch_all(connection, sql, (stored.id, stored.model_id)))
            names = [DEFAULT_PARTITION, *partition_names(connection, stored.id)]
            documents, chunks = _count(connection, stored.id)
            created = fetch_one(connection, "select created_at from collections where id = ?", (stored.id,))
        named = {"name": stored.name, "description": stored.description, "documents": documents, "chunks": chunks}
        vectors = {"vectors": sum(counts.values()), "model": model, "dimension": dimension}
        partitions = dict.fromkeys(names, 0) | counts
        return {**named, **vectors, "partitions": partitions, "searchedIn": "file", "createdAt": created}

    # ------------------------------------------------------------ dropping

    @hidden_change(
        "drop_collection",
        title="Drop a collection",
        keywords=("delete", "remove", "knowledge base", "vector", "milvus"),
        examples=("drop|delete the collection {collection_name}",),
        destructive=True,
        idempotent=True,
    )
    def drop_collection(
        self,
        collection_name: Name,
        confirm: Annotated[bool, Param("Needed when it holds documents.")] = False,
    ) -> Json:
        """Put a collection with everything in it into the trash; restore_source brings it back. Files stay."""
        with self.database.read() as connection:
            [collection] = choose_collections(connection, [collection_name])
            documents, chunks = _count(connection, collection.id)
        _confirm(f"Collection '{collection.name}'", documents, chunks, confirm)
        with self.database.write() as connection:
            drop_collection(connection, collection)
        return {"dropped": collection.name, "documents": documents}

    @hidden_change(
        "drop_partition",
        title="Drop a partition",
        keywords=("delete", "remove", "part", "vector", "milvus", "collection"),
        examples=("drop|delete the partition {partition_name} of the collection {collection_name}",),
        destructive=True,
        idempotent=True,
    )
    def drop_partition(
        self,
        collection_name: Name,
        partition_name: PartitionName,
        confirm: Annotated[bool, Param("Needed when it holds documents.")] = False,
    ) -> Json:
        """Put a part of a collection into the trash with what is in it; restore_source brings it back."""
        with self.database.read() as connection:
            [collection] = choose_collections(connection, [collection_name])
            partition_id = find_partition(connection, collection, partition_name)
            if partition_id is None:
                raise InvalidInput(f"Partition '{DEFAULT_PARTITION}' holds what is in no other; it cannot be dropped.")
            documents, chunks = _count(connection, collection.id, partition_id)
        _confirm(f"Partition '{partition_name}' of '{collection.name}'", documents, chunks, confirm)
        with self.database.write() as connection:
            drop_partition(connection, collection, partition_id)
        return {"dropped": partition_name, "documents": documents}


def _count(connection: apsw.Connection, collection_id: int, partition_id: int | None = None) -> tuple[int, int]:
    # Documents and chunks outside the trash.
    sql = """
        select count(*), coalesce(sum(chunk_count), 0) from sources
        where collection_id = :collection and trashed_at is null and (:partition is null or partition_id = :partition)
    """
    return fetch_one(connection, sql, {"collection": collection_id, "partition": partition_id})


def _confirm(target: str, documents: int, chunks: int, confirmed: bool) -> None:
    if documents and not confirmed:
        content = f"{counted(documents, 'document')} ({counted(chunks, 'chunk')})"
        message = f"{target} holds {content}, which would go into the trash. Nothing was done."
        raise NeedsConfirmation(message, hint="If that is wanted, say so with confirm: true (--yes).")


def _find_record(connection: apsw.Connection, target: Collection, record: GivenRecord) -> tuple[int, bytes]:
    # The source, and the UUID of its chunk.
    sql = """
        select sources.id, chunks.uuid, chunk_count, format, title from chunks join sources on sources.id = source_id
        where chunks.id = ? and sources.collection_id = ? and trashed_at is null
    """
    row = fetch_one(connection, sql, (record.id, target.id))
    if row is None:
        raise NotFound(f"{record.place}: no record {record.id} in collection '{target.name}'.")
    source_id, uuid, chunks, kind, title = row
    if kind != FORMAT or chunks > 1:
        whose = f"the document '{title}'" if kind != FORMAT else "a text that was split"
        hint = "Change the file and refresh." if kind != FORMAT else "Delete it and insert it again."
        raise InvalidInput(f"{record.place}: {record.id} belongs to {whose}, and is no record.", hint=hint)
    return source_id, uuid


def _draft(record: GivenRecord, embedder: Embedder, split: bool) -> tuple[SourceDraft, dict[bytes, str]]:
    # The source to be, in no collection yet, and digest -> text to embed.
    window = Window(embedder.count_tokens, min(embedder.identity.max_tokens, LONGEST_RECORD))
    draft, texts = draft_record(record.text, record.metadata)
    tokens = window.count_tokens(*texts.values())
    if tokens <= window.limit:
        return draft, texts
    if split and record.id is None:
        return draft_record(record.text, record.metadata, window)
    message = f"{record.place} has {tokens} tokens, and one vector stands for {window.limit} at most."
    raise InvalidInput(message, hint="Shorten it, or let it be split (split: true, --split).")


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


def _explain_misses(connection: apsw.Connection, collection: Collection, filters: Filters) -> list[str]:
    # As for a search, but of this collection alone.
    with use_scope(replace(current_scope(), collections=frozenset({collection.name}))):
        return explain_empty_filter(connection, filters)


def find_named(connection: apsw.Connection, name: str) -> Collection | None:
    """Return the collection of that name, in whatever case, if the caller sees it."""
    collections = visible_collections(connection)
    return next((collection for collection in collections if collection.name.casefold() == name.casefold()), None)
