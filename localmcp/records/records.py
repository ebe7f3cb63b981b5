"""The tools that insert, change and delete records (texts with metadata) of a collection (S4-13)."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NotRequired, cast

import apsw
from typing_extensions import TypedDict

from localmcp.errors import InvalidInput, NeedsConfirmation, NotFound, Unavailable
from localmcp.index.backend import DEFAULT_PARTITION
from localmcp.index.chunk_rows import chunks_fulfilling, whole_sources
from localmcp.index.collections import (
    Collection,
    choose_collections,
    claim_collection,
    ensure_collection,
    ensure_model,
    ensure_partition,
    visible_collections,
)
from localmcp.index.conditions import parse_condition
from localmcp.index.drafts import SourceDraft
from localmcp.index.records import (
    FORMAT,
    LONGEST_RECORD,
    RecordText,
    Window,
    check_metadata,
    clean_text,
    draft_split,
    draft_whole,
)
from localmcp.index.sources import put_source, trash_sources
from localmcp.index.trash import keep_version
from localmcp.index.vector import Made
from localmcp.milvus.collection import Milvus
from localmcp.models import Embedder, LazyEmbedder
from localmcp.records.retriever import explain_misses, find_on_server, require_our_model
from localmcp.schemas import Json, did_you_mean, without_none
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_column, fetch_one
from localmcp.tools import Param, current_scope, hidden_change

MOST_RECORDS = 200
"""A call with more would take longer than a client waits; the command line has no such bound."""
EMBEDDED_AT_ONCE = 96
FILES_AT_ONCE = 5
"""Documents from files that an assistant removes without asking."""


@dataclass(frozen=True, slots=True)
class GivenRecord:
    """A text that is to be stored, or how a record is to change: None = stays."""

    text: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    partition: str | None = None
    id: int = 0
    """Of the record that is to change."""
    place: str = "text"
    """How messages call it: `texts[2]`, `line 7`."""


def parse_record(raw: Any, place: str, *, is_change: bool = False) -> GivenRecord:
    """Return a record from JSON: {text, metadata?, partition_name?}; or a change: {id, text?, metadata?, …}.

    Raises:
        InvalidInput: names the place and the field.
    """
    kinds = {"id": (int, "an integer"), "text": (str, "text"), "metadata": (dict, "an object")}
    kinds["partition_name"] = (str, "text")
    names, needed = (list(kinds), "id") if is_change else (list(kinds)[1:], "text")
    if not isinstance(raw, dict):
        raise InvalidInput(f"{place}: must be an object with {', '.join(names)}")
    entries = cast(Json, raw)
    for name, value in entries.items():
        if name not in names:
            guess = did_you_mean(name, names, f"There are {', '.join(names)}.")
            raise InvalidInput(f"{place}: {name}: not a field. {guess}")
        kind, called = kinds[name]
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise InvalidInput(f"{place}: {name}: must be {called}")
    if entries.get(needed) is None:
        raise InvalidInput(f"{place}: {needed}: required")
    text, metadata, partition = (entries.get(name) for name in list(kinds)[1:])
    if text is None and metadata is None and partition is None:
        raise InvalidInput(f"{place}: nothing to change; give text, metadata or partition_name.")
    cleaned = None if text is None else clean_text(text, f"{place}: text")
    checked = check_metadata(metadata or {}, f"{place}: metadata")
    return GivenRecord(cleaned, checked, partition or None, entries.get("id", 0), place)


class InsertedRecords(TypedDict):
    """The ids of the chunks, in the order of the texts; a text that was split has several."""

    ids: list[int]
    count: int
    """Texts."""
    collection_name: str


class UpdatedRecords(TypedDict):
    """What an update came to."""

    updated: int
    reembedded: int


class DeletedRecords(TypedDict):
    """What a deletion came to."""

    deleted: int
    """Chunks, now in the trash."""
    documents: int
    notFound: NotRequired[list[int]]
    notices: NotRequired[list[str]]


class Records:
    """Writes records. Embedding comes first; every call is written as a whole or not at all."""

    def __init__(
        self,
        database: Database,
        embedder: LazyEmbedder,
        milvus: Milvus | None,
        remove_documents: Callable[[list[str]], Any],
    ) -> None:
        """`remove_documents` puts documents that came from files into the trash, by their UUIDs."""
        self.database = database
        self.embedder = embedder
        self.milvus = milvus
        self._remove_documents = remove_documents

    # ------------------------------------------------------------ inserting

    @hidden_change(
        "insert_records",
        title="Insert texts into a collection",
        keywords=("vector", "upsert", "add", "store", "embed", "collection", "milvus", "texts"),
        examples=(
            "insert {texts} into the collection {collection_name}",
            "add the texts {texts} to the collection {collection_name}",
            "store the text {texts} in the collection {collection_name}",
        ),
        idempotent=False,
    )
    def insert_records(
        self,
        collection_name: Annotated[str, Param("Made if there is none of that name.", min_length=1, max_length=100)],
        texts: Annotated[list[str] | None, Param("One chunk each.", max_length=MOST_RECORDS)] = None,
        records: Annotated[
            list[dict[str, Any]] | None,
            Param("Instead of texts: {text, metadata?, partition_name?} each.", max_length=MOST_RECORDS),
        ] = None,
        partition_name: Annotated[str | None, Param("For all that name none; made if absent.")] = None,
        metadata: Annotated[dict[str, Any] | None, Param("For all; a record's own keys win.")] = None,
        split: Annotated[bool, Param("Cut texts that are too long for one vector into several chunks.")] = False,
    ) -> InsertedRecords:
        """Put texts or records with metadata into a collection, one chunk each; retriever and search find them."""
        if (texts is None) == (records is None):
            raise InvalidInput("Give either texts or records.")
        given = [GivenRecord(text, place=f"texts[{number}]") for number, text in enumerate(texts or ())] + [
            parse_record(record, f"records[{number}]") for number, record in enumerate(records or ())
        ]
        common = check_metadata(metadata or {})
        given = [
            replace(record, metadata={**common, **record.metadata}, partition=record.partition or partition_name)
            for record in given
        ]
        ids = self._insert(collection_name, given, split)
        return {"ids": ids, "count": len(given), "collection_name": collection_name}

    def _insert(self, collection: str, records: Sequence[GivenRecord], split: bool) -> list[int]:
        """Store records, all or none; returns the ids of their chunks.

        Raises:
            InvalidInput: a text is empty, or too long for one vector while `split` is false; a name cannot be used.
            ModelMismatch: the collection's vectors come from another model.
            ModelUnavailable: there is no model to embed with.
        """
        embedder = self._model_for(collection)
        drafts = [_draft_new(record, embedder, split) for record in records]
        embeddings = _embed_texts(embedder, {digest: text for _, texts in drafts for digest, text in texts.items()})
        chunk_ids: list[int] = []
        with self.database.write() as connection:
            target = ensure_collection(connection, collection)
            target = claim_collection(connection, target, ensure_model(connection, embedder.identity))
            for record, (draft, _) in zip(records, drafts, strict=True):
                partition_id = _partition_id(connection, target, record.partition)
                placed = replace(draft, collection_id=target.id, partition_id=partition_id)
                source_id = put_source(connection, placed, embeddings, target.model_id).source_id
                sql = "select id from chunks where source_id = ? order by position"
                chunk_ids += fetch_column(connection, sql, (source_id,))
        return chunk_ids

    def check(self, collection: str, records: Iterable[GivenRecord], *, split: bool = False) -> None:
        """Raise now what inserting the records would raise because of their texts."""
        embedder = self._model_for(collection)
        for record in records:
            _draft_new(record, embedder, split)

    def _model_for(self, collection: str) -> Embedder:
        """Return the model, if the collection is in the file or can be made there, without vectors of another model."""
        with self.database.read() as connection:
            visible = visible_collections(connection)
            own = next((item for item in visible if item.name.casefold() == collection.casefold()), None)
        if own is None and self._is_foreign(collection):
            raise InvalidInput(
                f"Collection '{collection}' is on the Milvus server only.",
                hint=f"Bring it here: localmcp pull {collection}",
            )
        embedder = self.embedder.get()
        if own is not None:
            with self.database.read() as connection:
                require_our_model(connection, own, embedder.identity)
        return embedder

    def _is_foreign(self, collection: str) -> bool:
        try:
            return find_on_server(self.milvus, collection) is not None
        except Unavailable:
            # The file can be written to although the server is down.
            return False

    # ------------------------------------------------------------ changing

    @hidden_change(
        "update_records",
        title="Change records of a collection",
        keywords=("vector", "edit", "replace", "metadata", "collection", "text"),
        examples=("update record {id} of the collection {collection_name}",),
        destructive=True,
        idempotent=True,
    )
    def update_records(
        self,
        collection_name: Annotated[str, Param("The collection.")],
        records: Annotated[
            list[dict[str, Any]],
            Param(
                "{id, text?, metadata?, partition_name?} each; null takes a metadata key away.", max_length=MOST_RECORDS
            ),
        ],
    ) -> UpdatedRecords:
        """Change the text or metadata of records that insert_records stored; ids, and what is not named, stay.

        What they were is in the trash; restore_source brings it back.
        """
        changes = [parse_record(record, f"records[{n}]", is_change=True) for n, record in enumerate(records)]
        return self.update(collection_name, changes)

    def update(self, collection: str, changes: Sequence[GivenRecord]) -> UpdatedRecords:
        """Change records, all or none.

        Raises:
            NotFound: no such collection, or no such record in it.
            InvalidInput: the id belongs to a document or is named twice, or the text of a record that was split is to
                change.
        """
        with self.database.read() as connection:
            [target] = choose_collections(connection, [collection])
            stored = [_find_record(connection, target, change) for change in changes]
        embedder, places = self._model_for(collection), dict[int, str]()
        drafts: list[SourceDraft | None] = []
        fresh: dict[bytes, str] = {}
        for change, record in zip(changes, stored, strict=True):
            if (first := places.setdefault(change.id, change.place)) != change.place:
                raise InvalidInput(f"{change.place}: record {change.id} is in {first} too; put its changes together.")
            if record.chunks > 1:
                # Of a split one only metadata and partition change.
                drafts.append(None)
                continue
            text = RecordText(record.text if change.text is None else change.text, _merged(record, change))
            _check_length(text.embedded, change.place, _window_of(embedder))
            draft, texts = draft_whole(text, target.id, (change.id, record.uuid))
            drafts.append(draft)
            fresh |= {digest: text for digest, text in texts.items() if digest != record.digest}
        embeddings = _embed_texts(embedder, fresh)
        with self.database.write() as connection:
            model_id = ensure_model(connection, embedder.identity)
            for change, record, draft in zip(changes, stored, drafts, strict=True):
                if _find_record(connection, target, change) != record:
                    raise InvalidInput(f"{change.place}: record {change.id} was changed by someone else; try again.")
                keep_version(connection, record.source_id)
                partition_id = _partition_id(connection, target, change.partition or record.partition)
                if draft is not None:
                    placed = replace(draft, partition_id=partition_id)
                    put_source(connection, placed, embeddings, model_id, replaces=record.source_id)
                    continue
                metadata = json.dumps(_merged(record, change), ensure_ascii=False)
                sql = "update sources set metadata = ?, partition_id = ? where id = ?"
                connection.execute(sql, (metadata, partition_id, record.source_id))
                bump_generations(connection, "content")
        return {"updated": len(changes), "reembedded": len(embeddings)}

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
    ) -> DeletedRecords:
        """Delete records, and whole documents, of a collection: they move to the trash; restore_source undoes it."""
        condition = parse_condition(filter)
        if (ids is None) == (condition is None):
            raise InvalidInput("Give either ids or a filter that is not empty.")
        with self.database.read() as connection:
            [target] = choose_collections(connection, [collection_name])
            named = chunks_fulfilling(connection, target.id, condition) if condition else list(dict.fromkeys(ids or ()))
            notices = explain_misses(connection, target, condition) if condition and not named else []
            sql = f"""
                select sources.id, sources.uuid, uri from sources left join partitions on partitions.id = partition_id
                where sources.id in (select value from carray(:ids))
                    and :partition in ('', coalesce(partitions.name, '{DEFAULT_PARTITION}')) order by sources.id
            """
            source_ids = apsw.carray(array("q", whole_sources(connection, target, named) or [-1]))
            sources = fetch_all(connection, sql, {"ids": source_ids, "partition": partition_name or ""})
            sql = "select id from chunks where source_id in (select value from carray(?))"
            ids_of_sources = apsw.carray(array("q", [source_id for source_id, *_ in sources] or [-1]))
            deleted = set(fetch_column(connection, sql, (ids_of_sources,)))
        files = [source_uuid for _, source_uuid, uri in sources if uri is not None]
        if len(files) > FILES_AT_ONCE and not confirm and not current_scope().trusted:
            message = f"This would put {len(files)} documents that come from files into the trash. Nothing was removed."
            raise NeedsConfirmation(message, hint="If the person wants this, call again with confirm: true.")
        with self.database.write() as connection:
            trash_sources(connection, [source_id for source_id, _, uri in sources if uri is None])
        if files:
            self._remove_documents(files)
        missing = [chunk_id for chunk_id in named if chunk_id not in deleted] if condition is None else []
        counts = {"deleted": len(deleted), "documents": len(sources)}
        return without_none({**counts, "notFound": missing or None, "notices": notices or None})


# ---------------------------------------------------------------- rows and drafts


@dataclass(frozen=True, slots=True)
class _RecordRow:
    """A record as it is in the file."""

    source_id: int
    uuid: bytes
    text: str
    metadata: Mapping[str, Any]
    partition: str | None
    digest: bytes
    chunks: int


def _find_record(connection: apsw.Connection, target: Collection, change: GivenRecord) -> _RecordRow:
    row = fetch_one(
        connection,
        """
        select sources.id, chunks.uuid, chunks.text, metadata, partitions.name, chunks.digest, chunk_count, format,
            title
        from chunks join sources on sources.id = source_id left join partitions on partitions.id = partition_id
        where chunks.id = ? and sources.collection_id = ? and trashed_at is null
        """,
        (change.id, target.id),
    )
    if row is None:
        raise NotFound(f"{change.place}: no record {change.id} in collection '{target.name}'.")
    source_id, uuid, text, metadata, partition, digest, chunks, kind, title = row
    if kind != FORMAT:
        raise InvalidInput(
            f"{change.place}: {change.id} belongs to the document '{title}', not to a record.",
            hint="Change the file and refresh, or use add_document with replace.",
        )
    if chunks > 1 and (change.text is not None or "title" in change.metadata):
        raise InvalidInput(
            f"{change.place}: {change.id} is one of {chunks} chunks of a text that was split; its text and title stay.",
            hint="Delete it and insert it again.",
        )
    return _RecordRow(source_id, uuid, text, json.loads(metadata), partition, digest, chunks)


def _merged(record: _RecordRow, change: GivenRecord) -> Json:
    """Return the metadata with the changes; null takes a key away."""
    return without_none({**record.metadata, **change.metadata})


def _partition_id(connection: apsw.Connection, target: Collection, name: str | None) -> int | None:
    return ensure_partition(connection, target, None if name == DEFAULT_PARTITION else name)


def _window_of(embedder: Embedder) -> Window:
    return Window(embedder.count_tokens, min(embedder.identity.max_tokens, LONGEST_RECORD))


def _draft_new(record: GivenRecord, embedder: Embedder, split: bool) -> tuple[SourceDraft, dict[bytes, str]]:
    """Return the source to be, not yet in a collection or partition, and digest -> text to embed."""
    window = _window_of(embedder)
    text = RecordText(clean_text(record.text or "", record.place), check_metadata(record.metadata, record.place))
    if split and window.count_tokens(text.embedded) > window.limit:
        return draft_split(text, 0, window)
    _check_length(text.embedded, record.place, window)
    return draft_whole(text, 0)


def _check_length(embedded: str, place: str, window: Window) -> None:
    tokens = window.count_tokens(embedded)
    if tokens > window.limit:
        raise InvalidInput(
            f"{place} has {tokens} tokens, and one vector stands for {window.limit} at most.",
            hint="Shorten it, or let it be split (split: true, --split).",
        )


def _embed_texts(embedder: Embedder, texts: Mapping[bytes, str]) -> dict[bytes, Made]:
    """Return digest -> what the model makes of the text."""
    pairs, vectors_by_digest = list(texts.items()), dict[bytes, Made]()
    for start in range(0, len(pairs), EMBEDDED_AT_ONCE):
        part = pairs[start : start + EMBEDDED_AT_ONCE]
        vectors = embedder.embed_passages([text for _, text in part]).astype("<f4", copy=False)
        vectors_by_digest |= {digest: Made(row.tobytes()) for (digest, _), row in zip(part, vectors, strict=True)}
    return vectors_by_digest
