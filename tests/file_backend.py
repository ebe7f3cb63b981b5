"""A file in the place of a Milvus server: the same operations on vectors, so that both can be held against each other.

Each record is a source with one chunk; documents are there as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

from localmcp.errors import InvalidInput, ModelMismatch
from localmcp.index.backend import DEFAULT_PARTITION, Neighbor, Record, Space
from localmcp.index.chunk_rows import Row, find_partition, load_rows, whole_sources
from localmcp.index.collection_vectors import describe_vectors, nearest_to_any
from localmcp.index.collections import (
    Collection,
    choose_collections,
    ensure_collection,
    ensure_partition,
    visible_collections,
)
from localmcp.index.conditions import Condition
from localmcp.index.filters import Filters
from localmcp.index.index import Index
from localmcp.index.records import RecordText, draft_whole
from localmcp.index.sources import put_source, restore_source, trash_sources
from localmcp.index.trash import drop_collection, drop_partition
from localmcp.index.vector import Made, remove_signs, remove_vectors, vector_id
from localmcp.milvus.backend import MilvusBackend
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_one
from localmcp.storage.schema import VECTOR_ID_BITS
from localmcp.storage.times import utc_now

Vectors = NDArray[np.float32]


class FileBackend:
    """Holds and searches vectors in a file, as `MilvusBackend` does on a server."""

    name = "sqlite"

    def __init__(self, database: Database, index: Index) -> None:
        self.database = database
        self.index = index

    def describe(self, collection: str) -> Space:
        with self.database.read() as connection:
            return describe_vectors(connection, collection)

    def collections(self) -> list[str]:
        """Names, sorted."""
        with self.database.read() as connection:
            return sorted(collection.name for collection in visible_collections(connection))

    def create(self, collection: str, dimension: int, model: str) -> None:
        """Make the collection if it is not there, bound to that model (`name#fingerprint`).

        Raises:
            ModelMismatch: it is there with another model.
        """
        with self.database.write() as connection:
            stored = ensure_collection(connection, collection)
            model_id = _ensure_model(connection, model, dimension)
            if stored.model_id not in (None, model_id):
                raise ModelMismatch(f"Collection '{stored.name}' is there already, with vectors of another model.")
            connection.execute("update collections set model_id = ? where id = ?", (model_id, stored.id))

    def drop(self, collection: str) -> None:
        """Delete it with everything in it."""
        with self.database.read() as connection:
            stored = _find(connection, collection)
        with self.database.write() as connection:
            drop_collection(connection, stored)

    def create_partition(self, collection: str, partition: str) -> None:
        with self.database.write() as connection:
            stored = _find(connection, collection)
            if partition != DEFAULT_PARTITION:
                ensure_partition(connection, stored, partition)

    def drop_partition(self, collection: str, partition: str) -> None:
        """Delete it with everything in it."""
        with self.database.read() as connection:
            stored = _find(connection, collection)
            partition_id = find_partition(connection, stored, partition)
        if partition_id is None:
            raise InvalidInput(f"partition '{DEFAULT_PARTITION}' is where everything else stands; it stays.")
        with self.database.write() as connection:
            drop_partition(connection, stored, partition_id)

    def search(
        self,
        collection: str,
        queries: Vectors,
        limit: int,
        *,
        partition: str | None = None,
        condition: Condition | None = None,
    ) -> list[list[Neighbor]]:
        """The nearest of each query, best first; equal scores by id. All queries see one snapshot."""
        with self.database.read() as connection:
            stored = _find(connection, collection)
            if partition is not None:
                find_partition(connection, stored, partition)
            if stored.model_id is not None and describe_vectors(connection, collection).dimension != queries.shape[1]:
                raise ModelMismatch(f"collection '{stored.name}' holds vectors of other dimensions.")
            filters = Filters((partition,) if partition else (), condition=condition)
            matches_by_query = [
                nearest_to_any(connection, self.index, stored, filters, query[None].astype("<f4", copy=False), limit)
                for query in queries
            ]
            return [[Neighbor(match.chunk_id, match.cosine) for match in matches] for matches in matches_by_query]

    # ------------------------------------------------------------ records

    def upsert(self, collection: str, records: Sequence[Record]) -> None:
        """Insert, or replace those of the same id.

        Raises:
            InvalidInput: an id belongs to another collection, or to one chunk of a longer document.
        """
        with self.database.write() as connection:
            stored = _find(connection, collection)
            if stored.model_id is None:
                raise InvalidInput(f"Collection '{stored.name}' is bound to no model yet.")
            for record in records:
                _put(connection, stored, stored.model_id, record)
            bump_generations(connection, "content", "signs")

    def delete(self, collection: str, ids: Sequence[int]) -> None:
        """Put records into the trash; unknown ids are passed over.

        Raises:
            InvalidInput: an id is one chunk of a longer document of which not all are named.
        """
        with self.database.write() as connection:
            stored = _find(connection, collection)
            trash_sources(connection, whole_sources(connection, stored, ids))

    def fetch(self, collection: str, ids: Sequence[int]) -> dict[int, Record]:
        """The records of those ids; missing ones, and those without a vector, are left out."""
        with self.database.read() as connection:
            stored = _find(connection, collection)
            rows = load_rows(connection, stored.id, ids)
            vectors = _load_vectors(connection, stored.model_id, list(rows))
        return {row: _record(rows[row], vectors[row]) for row in rows if row in vectors}

    def records(self, collection: str, batch: int = 500) -> Iterator[list[Record]]:
        """Every record that is searched by meaning, by id, in batches; each batch is a separate snapshot."""
        sql = """
            select chunks.id from chunks join sources on sources.id = source_id
            where collection_id = ? and trashed_at is null and chunks.id > ? order by chunks.id limit ?
        """
        last = 0
        while True:
            with self.database.read() as connection:
                stored = _find(connection, collection)
                ids = [row[0] for row in fetch_all(connection, sql, (stored.id, last, batch))]
            if not ids:
                return
            last = ids[-1]
            if part := list(self.fetch(collection, ids).values()):
                yield part

    def close(self) -> None:
        """Nothing to close: the file belongs to others."""


Backend = FileBackend | MilvusBackend


def _find(connection: apsw.Connection, name: str) -> Collection:
    return choose_collections(connection, [name])[0]


def _ensure_model(connection: apsw.Connection, model: str, dimension: int) -> int:
    """The id of the model of that fingerprint; one that this file has not met is known by its name only."""
    name, _, fingerprint = model.rpartition("#")
    fingerprint = fingerprint or f"unknown-{dimension}"
    connection.execute(
        """
        insert into models (name, fingerprint, sha256, pooling, query_prefix, passage_prefix, dimension, max_tokens,
                            created_at)
        values (?, ?, '', '', '', '', ?, 254, ?) on conflict (fingerprint) do nothing
        """,
        (name or fingerprint, fingerprint, dimension, utc_now()),
    )
    sql = "select id, dimension from models where fingerprint = ?"
    model_id, size = fetch_one(connection, sql, (fingerprint,))
    if size != dimension:
        raise ModelMismatch(f"Model '{model}' makes vectors of {size} dimensions, not {dimension}.")
    return model_id


def _load_vectors(connection: apsw.Connection, model_id: int | None, ids: Sequence[int]) -> dict[int, Any]:
    import numpy as np

    if model_id is None or not ids:
        return {}
    keys = apsw.carray(array("q", [vector_id(model_id, row_id) for row_id in ids]))
    sql = "select id & ?, embedding from vectors where id in (select value from carray(?))"
    rows = fetch_all(connection, sql, ((1 << VECTOR_ID_BITS) - 1, keys))
    return {chunk_id: np.frombuffer(blob, dtype="<f4") for chunk_id, blob in rows}


def _record(row: Row, vector: Any) -> Record:
    return Record(row.id, vector, row.text, row.metadata, row.partition)


def _put(connection: apsw.Connection, collection: Collection, model_id: int, record: Record) -> None:
    before = _source_of(connection, collection, record.id)
    partition = None if record.partition == DEFAULT_PARTITION else record.partition
    text = RecordText(record.text, record.metadata, ensure_partition(connection, collection, partition))
    identity = None
    if before is not None:
        source_id, uuid, trashed = before
        if trashed:
            restore_source(connection, source_id)
        identity = (record.id, uuid)
        # The same text may come with another vector.
        remove_signs(connection, model_id, collection.id, [record.id])
        remove_vectors(connection, [record.id])
    else:
        identity = (record.id, new_uuid())
    draft, texts = draft_whole(text, collection.id, identity)
    embeddings = dict.fromkeys(texts, Made(record.vector.astype("<f4", copy=False).tobytes()))
    put_source(connection, draft, embeddings, model_id, replaces=before[0] if before else None)


def new_uuid() -> bytes:
    """A chunk's UUID."""
    import uuid

    return uuid.uuid4().bytes


def _source_of(connection: apsw.Connection, collection: Collection, chunk_id: int) -> tuple[int, bytes, bool] | None:
    """Source id, the chunk's UUID, and whether it lies in the trash.

    Raises:
        InvalidInput: the id is taken by something that a record cannot replace.
    """
    sql = """
        select sources.id, chunks.uuid, trashed_at is not null, collection_id, chunk_count, uri, title
        from chunks join sources on sources.id = source_id where chunks.id = ?
    """
    row = fetch_one(connection, sql, (chunk_id,))
    if row is None:
        return None
    source_id, uuid, trashed, collection_id, count, uri, title = row
    if collection_id != collection.id or count != 1 or uri is not None:
        where = "another collection" if collection_id != collection.id else f"the document '{title}'"
        raise InvalidInput(f"id {chunk_id} is taken: it belongs to {where}.")
    return source_id, uuid, bool(trashed)
