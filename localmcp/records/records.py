"""The tools that insert, change and delete records (texts with metadata) of a collection (S4-13)."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired

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
from localmcp.models import Embedder, LazyEmbedder
from localmcp.records.filter_fields import explain_misses
from localmcp.records.milvus_copies import MilvusCopies
from localmcp.records.record_input import Change, NewRecord, parse_change, parse_record
from localmcp.records.search import require_our_model
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_column, fetch_one
from localmcp.tools import Json, Param, current_scope, hidden_change, without_none

MOST_RECORDS = 200
"""A call with more would take longer than a client waits; the command line has no such bound."""
EMBEDDED_AT_ONCE = 96
FILES_AT_ONCE = 5
"""Documents from files that an assistant removes without asking."""


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
        copies: MilvusCopies,
        remove_documents: Callable[[list[str]], Any],
    ) -> None:
        """`remove_documents` puts documents that came from files into the trash, by their UUIDs."""
        self.database = database
        self.embedder = embedder
        self.copies = copies
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
        new = [NewRecord(text, place=f"texts[{number}]") for number, text in enumerate(texts or ())] + [
            parse_record(record, f"records[{number}]") for number, record in enumerate(records or ())
        ]
        common = check_metadata(metadata or {})
        new = [
            NewRecord(record.text, {**common, **record.metadata}, record.partition or partition_name, record.place)
            for record in new
        ]
        ids = self.insert(collection_name, new, split=split)
        chunk_ids = [row_id for group in ids for row_id in group]
        return {"ids": chunk_ids, "count": len(ids), "collection_name": collection_name}

    def insert(self, collection: str, records: Sequence[NewRecord], *, split: bool = False) -> list[list[int]]:
        """Store records, all or none; returns the chunk ids of each.

        Raises:
            InvalidInput: a text is empty, or too long for one vector while `split` is false; a name cannot be used.
            ModelMismatch: the collection's vectors come from another model.
            ModelUnavailable: there is no model to embed with.
        """
        embedder = self._model_for(collection)
        drafts = [_draft_new(record, embedder, split) for record in records]
        embeddings = _embed_texts(embedder, {digest: text for _, texts in drafts for digest, text in texts.items()})
        with self.database.write() as connection:
            target = ensure_collection(connection, collection)
            target = claim_collection(connection, target, ensure_model(connection, embedder.identity))
            return [
                _store_record(connection, target, record, draft, embeddings)
                for record, (draft, _) in zip(records, drafts, strict=True)
            ]

    def check(self, collection: str, records: Iterable[NewRecord], *, split: bool = False) -> None:
        """Raise now what `insert` would raise because of the texts."""
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
            return self.copies.has(collection)
        except Unavailable:
            # The file can be written to although the server is down.
            return False

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
        changes = [parse_change(record, f"records[{number}]") for number, record in enumerate(records)]
        return self.update(collection_name, changes)

    def update(self, collection: str, changes: Sequence[Change]) -> UpdatedRecords:
        """Change records, all or none.

        Raises:
            NotFound: no such collection, or no such record in it.
            InvalidInput: the id belongs to a document or is named twice, or the text of a record that was split is to
                change.
        """
        with self.database.read() as connection:
            [target] = choose_collections(connection, [collection])
            stored = [_find_record(connection, target, change) for change in changes]
        drafts = [_redraft(target, record, change) for record, change in zip(stored, changes, strict=True)]
        embedder = self._model_for(collection)
        window, places = _window_of(embedder), dict[int, str]()
        for change, (draft, texts) in zip(changes, drafts, strict=True):
            if draft is not None:
                _check_length(next(iter(texts.values())), change.place, window)
            if (first := places.setdefault(change.id, change.place)) != change.place:
                raise InvalidInput(f"{change.place}: record {change.id} is in {first} too; put its changes together.")
        fresh = {
            digest: text
            for record, (_, texts) in zip(stored, drafts, strict=True)
            for digest, text in texts.items()
            if digest != record.digest
        }
        embeddings = _embed_texts(embedder, fresh)
        with self.database.write() as connection:
            model_id = ensure_model(connection, embedder.identity)
            for change, stored_record, (draft, _) in zip(changes, stored, drafts, strict=True):
                if _find_record(connection, target, change) != stored_record:
                    raise InvalidInput(f"{change.place}: record {change.id} was changed by someone else; try again.")
                _rewrite_record(connection, target, stored_record, change, draft, embeddings, model_id)
        return {"updated": len(changes), "reembedded": len(embeddings)}

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
            named = list(dict.fromkeys(ids or ())) if condition is None else []
            chunk_ids = named if condition is None else chunks_fulfilling(connection, target.id, condition)
            sources = _sources_of(connection, whole_sources(connection, target, chunk_ids), partition_name)
            stored_ids = {chunk for source in sources for chunk in source.chunks}
            notices = explain_misses(connection, target, condition) if condition and not chunk_ids else []
        files = [source.uuid for source in sources if source.uri is not None]
        if len(files) > FILES_AT_ONCE and not confirm and not current_scope().trusted:
            message = f"This would put {len(files)} documents that come from files into the trash. Nothing was removed."
            raise NeedsConfirmation(message, hint="If the person wants this, call again with confirm: true.")
        with self.database.write() as connection:
            trash_sources(connection, [source.id for source in sources if source.uri is None])
        if files:
            self._remove_documents(files)
        result: DeletedRecords = {"deleted": len(stored_ids), "documents": len(sources)}
        if missing := [chunk_id for chunk_id in named if chunk_id not in stored_ids]:
            result["notFound"] = missing
        if notices:
            result["notices"] = notices
        return result


# ---------------------------------------------------------------- rows


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


def _window_of(embedder: Embedder) -> Window:
    return Window(embedder.count_tokens, min(embedder.identity.max_tokens, LONGEST_RECORD))


def _draft_new(record: NewRecord, embedder: Embedder, split: bool) -> tuple[SourceDraft, dict[bytes, str]]:
    """Return the source to be, not yet in a collection or partition."""
    window = _window_of(embedder)
    text = RecordText(clean_text(record.text, record.place), check_metadata(record.metadata, record.place))
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


def _store_record(
    connection: apsw.Connection, target: Collection, record: NewRecord, draft: SourceDraft,
    embeddings: Mapping[bytes, Made],
) -> list[int]:  # fmt: skip
    name = None if record.partition == DEFAULT_PARTITION else record.partition
    partition_id = ensure_partition(connection, target, name)
    placed = replace(draft, collection_id=target.id, partition_id=partition_id)
    source_id = put_source(connection, placed, embeddings, target.model_id).source_id
    return fetch_column(connection, "select id from chunks where source_id = ? order by position", (source_id,))


def _find_record(connection: apsw.Connection, target: Collection, change: Change) -> _RecordRow:
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
    if chunks > 1 and (change.text is not None or "title" in (change.metadata or {})):
        raise InvalidInput(
            f"{change.place}: {change.id} is one of {chunks} chunks of a text that was split; its text and title stay.",
            hint="Delete it and insert it again.",
        )
    return _RecordRow(source_id, uuid, text, json.loads(metadata), partition, digest, chunks)


def _merged(stored: _RecordRow, change: Change) -> Json:
    """Return the metadata with the changes; null takes a key away."""
    return without_none({**stored.metadata, **(change.metadata or {})})


def _redraft(target: Collection, stored: _RecordRow, change: Change) -> tuple[SourceDraft | None, dict[bytes, str]]:
    """Return the record as it is to be; None for a split one, of which only metadata and partition change."""
    if stored.chunks > 1:
        return None, {}
    text = RecordText(stored.text if change.text is None else change.text, _merged(stored, change))
    return draft_whole(text, target.id, (change.id, stored.uuid))


def _rewrite_record(
    connection: apsw.Connection, target: Collection, stored: _RecordRow, change: Change, draft: SourceDraft | None,
    embeddings: Mapping[bytes, Made], model_id: int,
) -> None:  # fmt: skip
    keep_version(connection, stored.source_id)
    name = change.partition or stored.partition
    partition_id = ensure_partition(connection, target, None if name == DEFAULT_PARTITION else name)
    if draft is not None:
        placed = replace(draft, partition_id=partition_id)
        put_source(connection, placed, embeddings, model_id, replaces=stored.source_id)
        return
    metadata = json.dumps(_merged(stored, change), ensure_ascii=False)
    connection.execute(
        "update sources set metadata = ?, partition_id = ? where id = ?", (metadata, partition_id, stored.source_id)
    )
    bump_generations(connection, "content")


@dataclass(frozen=True, slots=True)
class _Source:
    id: int
    uuid: str
    uri: str | None
    chunks: tuple[int, ...]


def _sources_of(connection: apsw.Connection, source_ids: Sequence[int], partition: str | None) -> list[_Source]:
    """Return the sources of those ids, in that partition if one is named."""
    if not source_ids:
        return []
    sql = """
        select sources.id, sources.uuid, uri, coalesce(partitions.name, :default) from sources
        left join partitions on partitions.id = partition_id
        where sources.id in (select value from carray(:ids)) order by sources.id
    """
    rows = fetch_all(connection, sql, {"ids": apsw.carray(array("q", source_ids)), "default": DEFAULT_PARTITION})
    sql = "select id from chunks where source_id = ?"
    return [
        _Source(source_id, uuid, uri, tuple(row[0] for row in fetch_all(connection, sql, (source_id,))))
        for source_id, uuid, uri, name in rows
        if partition is None or name == partition
    ]
