"""Copy a collection from Milvus into the file: localmcp's own as the documents they were, others as short texts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import apsw

from localmcp.arrays import np
from localmcp.errors import InvalidInput, ModelMismatch
from localmcp.index.backend import DEFAULT_PARTITION, Record
from localmcp.index.collections import (
    Collection,
    claim_collection,
    ensure_collection,
    ensure_model,
    ensure_partition,
)
from localmcp.index.drafts import SourceDraft
from localmcp.index.records import RecordText, check_metadata, clean_text, draft_whole
from localmcp.index.sources import put_source
from localmcp.index.trash import keep_version
from localmcp.index.vector import Made
from localmcp.milvus.backend import MilvusBackend
from localmcp.models import ModelIdentity
from localmcp.records.chunk_records import draft_document, is_document, source_of
from localmcp.schemas import Json
from localmcp.storage.database import Database, fetch_column, fetch_one

Progress = Callable[[int, int], None]
"""Called with the vectors that were copied, and all of them."""
BATCH = 500
CHUNKS_AT_ONCE = 500
"""Written in one transaction, unless one document has more."""
_PULLED = uuid.UUID("6c6d6370-0000-5000-8000-6d696c767573")
"""Name space of the ids of texts that other programs put into Milvus: pulled again, each is found again."""


@dataclass(slots=True)
class Pulled:
    """The result of a pull."""

    collection: str
    read: int = 0
    """Vectors that were read."""
    added: int = 0
    """Documents that were not here."""
    updated: int = 0
    """Documents that were different here."""
    unchanged: int = 0
    trashed: int = 0
    """Documents that are in the trash here; they stay there."""
    empty: int = 0
    """Vectors without a text."""
    incomplete: int = 0
    """Documents of which not all passages were in Milvus; they were taken as they are."""
    notices: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Document:
    """A source to be stored."""

    uuid: str
    records: Sequence[Record]
    ours: bool = False
    """This file wrote it."""


class Receiver:
    """Reads one Milvus into one file."""

    def __init__(self, database: Database, milvus: MilvusBackend) -> None:
        self._database = database
        self._milvus = milvus

    def pull(
        self, name: str, collection: str, assumed: ModelIdentity | None = None, progress: Progress | None = None
    ) -> Pulled:
        """Copy Milvus' collection `name` into the file's `collection`.

        What is here already is compared, and put right where it differs; running it again completes what was stopped.

        Args:
            assumed: the model whose vectors they are, where the collection does not tell.

        Raises:
            NotFound: Milvus has no such collection.
            ModelMismatch: its vectors come from another model than those of the file's collection, or from an
                unknown one and none is assumed.
        """
        identity, about = self._identity(name, assumed), self._milvus.about(name)
        origin: Json = (about or {}).get("origin") or {}
        ours = origin.get("file") == self._database.file_id
        with self._database.write() as connection:
            target = ensure_collection(connection, collection)
            model_id = ensure_model(connection, identity)
            target = claim_collection(connection, target, model_id)
        pulled, total = Pulled(target.name), self._milvus.count(name)
        group: list[_Document] = []
        for document in self._documents(name, ours, pulled, total, progress):
            group.append(document)
            if sum(len(source.records) for source in group) >= CHUNKS_AT_ONCE:
                self._store(group, target, model_id, pulled)
                group = []
        self._store(group, target, model_id, pulled)
        if about is None:
            pulled.notices.append(f"Every text was taken as a vector of {identity.name}.")
        return pulled

    def _identity(self, name: str, assumed: ModelIdentity | None) -> ModelIdentity:
        space, about = self._milvus.describe(name), self._milvus.about(name) or {}
        origin: Json = about.get("origin") or {}
        names = {identity_field.name for identity_field in fields(ModelIdentity)}
        if names == (origin.get("identity") or {}).keys():
            identity = ModelIdentity(**origin["identity"])
            if identity.dimension == space.dimension and space.model.endswith(f"#{identity.fingerprint}"):
                return identity
        if assumed is None:
            raise ModelMismatch(
                f"Milvus' collection '{name}' does not say which model made its vectors.",
                hint="If it is the model at hand, say so with --assume-model.",
            )
        if assumed.dimension != space.dimension:
            raise ModelMismatch(
                f"Milvus' collection '{name}' holds vectors of {space.dimension} dimensions, {assumed.name} makes "
                f"{assumed.dimension}."
            )
        return assumed

    def _documents(
        self, name: str, ours: bool, pulled: Pulled, total: int, progress: Progress | None
    ) -> Iterator[_Document]:
        """Yield documents, each when its last chunk has come, incomplete ones at the end."""
        waiting: dict[str, list[Record]] = {}
        for records in self._milvus.records(name, BATCH):
            for record in records:
                if not is_document(record):
                    yield _Document(str(uuid.uuid5(_PULLED, f"{name}\n{record.id}")), [record])
                    continue
                source = source_of(record)
                parts = waiting.setdefault(source["uuid"], [])
                parts.append(record)
                if len(parts) == source["chunk_count"]:
                    yield _Document(source["uuid"], waiting.pop(source["uuid"]), ours)
            pulled.read += len(records)
            if progress:
                progress(pulled.read, max(total, pulled.read))
        for identity, parts in waiting.items():
            pulled.incomplete += 1
            yield _Document(identity, parts, ours)

    def _store(self, documents: Sequence[_Document], target: Collection, model_id: int, pulled: Pulled) -> None:
        if not documents:
            return
        with self._database.write() as connection:
            for document in documents:
                self._put(connection, document, target, model_id, pulled)

    def _put(
        self, connection: apsw.Connection, document: _Document, target: Collection, model_id: int, pulled: Pulled
    ) -> None:
        partition = document.records[0].partition
        partition_id = ensure_partition(connection, target, None if partition == DEFAULT_PARTITION else partition)
        made = _draft(document, target.id, partition_id)
        if made is None:
            pulled.empty += len(document.records)
            return
        draft, embeddings = made
        source_id, trashed = _find(connection, target.id, document.uuid, draft) or (None, 0)
        if source_id is None:
            draft = _with_free_identities(connection, draft)
            indexed = put_source(connection, draft, embeddings, model_id)
            _keep_uuid(connection, indexed.source_id, document.uuid)
            pulled.added += 1
        elif trashed:
            pulled.trashed += 1
        elif _is_same(connection, source_id, draft, model_id):
            pulled.unchanged += 1
        else:
            draft = _with_free_identities(connection, draft)
            keep_version(connection, source_id)
            put_source(connection, draft, embeddings, model_id, replaces=source_id)
            pulled.updated += 1


def _is_same(connection: apsw.Connection, source_id: int, draft: SourceDraft, model_id: int) -> bool:
    """Return whether the file has the same texts with vectors of that model, metadata and partition."""
    row = fetch_one(connection, "select title, partition_id, metadata from sources where id = ?", (source_id,))
    if row[:2] != (draft.title, draft.partition_id) or json.loads(row[2]) != dict(draft.metadata):
        return False
    sql = """
        select digest from chunks join vectors on vectors.id = (? << 40 | chunks.id)
        where source_id = ? order by position
    """
    digests = fetch_column(connection, sql, (model_id, source_id))
    return digests == [chunk.digest for chunk in draft.chunks]


def _find(connection: apsw.Connection, collection_id: int, identity: str, draft: SourceDraft) -> tuple[int, int] | None:
    """Return id and whether it is in the trash of the document with that UUID, or read from the same path."""
    sql = """
        select id, trashed_at is not null from sources
        where collection_id = :collection and (uuid = :uuid or (uri = :uri and trashed_at is null))
        order by uuid = :uuid desc limit 1
    """
    return fetch_one(connection, sql, {"collection": collection_id, "uuid": identity, "uri": draft.uri})


def _draft(
    document: _Document, collection_id: int, partition_id: int | None
) -> tuple[SourceDraft, dict[bytes, Made]] | None:
    """Return the source and its vectors by digest; None for a record without text."""
    record = document.records[0]
    if is_document(record):
        return draft_document(document.records, collection_id, partition_id, ours=document.ours)
    vector = _unit(record.vector)
    try:
        text = RecordText(clean_text(record.text), check_metadata(record.metadata), partition_id)
    except InvalidInput:
        return None
    draft, texts = draft_whole(text, collection_id)
    return (draft, dict.fromkeys(texts, Made(vector))) if vector else None


def _unit(vector: Any) -> bytes:
    """Return the vector at length 1, which other programs' need not have; empty for one that has no direction."""
    length = float(np.linalg.norm(vector))
    return (np.asarray(vector) / length).astype("<f4").tobytes() if length > 0 else b""


def _with_free_identities(connection: apsw.Connection, draft: SourceDraft) -> SourceDraft:
    """Return the draft whose chunks keep the UUIDs by which they were cited, unless another chunk here has them."""
    sql = "select 1 from chunks where uuid = ?"
    chunks = [
        chunk._replace(identity=None) if chunk.identity and fetch_one(connection, sql, (chunk.identity[1],)) else chunk
        for chunk in draft.chunks
    ]
    return replace(draft, chunks=chunks)


def _keep_uuid(connection: apsw.Connection, source_id: int, identity: str) -> None:
    """Give the document its old id, unless another collection of this file has it."""
    sql = "update sources set uuid = :uuid where id = :id and not exists (select 1 from sources where uuid = :uuid)"
    connection.execute(sql, {"uuid": identity, "id": source_id})
