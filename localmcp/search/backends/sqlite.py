"""The vectors of the file, as a backend: each record is a source with one chunk, documents are there as they are."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw

from localmcp.errors import InvalidInput, ModelMismatch, NotFound
from localmcp.search.backends.base import DEFAULT_PARTITION, Json, Neighbor, Record, Space
from localmcp.search.clearing import drop_collection, drop_partition
from localmcp.search.collections import (
    Collection,
    choose_collections,
    ensure_collection,
    ensure_partition,
    visible_collections,
)
from localmcp.search.conditions import Condition, comparisons, sql_condition
from localmcp.search.filters import SOURCE_COLUMNS
from localmcp.search.index import Index
from localmcp.search.records import RecordText, draft_whole, metadata_of
from localmcp.search.sources import put_source, restore_source, trash_sources
from localmcp.search.vector import Block, nearest_chunks, remove_signs, remove_vectors, vector_id
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_one, read_generations
from localmcp.storage.migrations import VECTOR_ID_BITS, utc_now

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Vectors = NDArray[np.float32]

FEW = 400
"""So many vectors are compared one by one: narrowing them would read as many."""
COLUMNS = {**SOURCE_COLUMNS, "page": "chunks.first_page"}


@dataclass(frozen=True, slots=True)
class Part:
    """What one search may look at, in one snapshot."""

    collection: Collection
    model_id: int
    blocks: list[Block]
    allowed: Ids | None
    """Ids of the sources, sorted; None = all of the collection."""
    few: bool
    """So few vectors that all are compared."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is told of one chunk."""

    id: int
    text: str
    metadata: Json
    partition: str


class SqliteBackend:
    """Holds and searches vectors in the file. Sees the collections that the scope sees."""

    name = "sqlite"

    def __init__(self, database: Database, index: Index) -> None:
        self.database = database
        self.index = index

    # ------------------------------------------------------------ collections and partitions

    def describe(self, collection: str) -> Space:
        """Counts of what is searched by meaning; chunks without a vector and the trash are not counted."""
        import numpy as np

        with self.database.read() as connection:
            found = _find(connection, collection)
            model, dimension = _model(connection, found.model_id)
            sql = "select sources from signs where collection_id = ? and model_id = ?"
            blobs = [row[0] for row in fetch_all(connection, sql, (found.id, found.model_id))]
            sources, counts = np.unique(np.frombuffer(b"".join(blobs), dtype=np.int64), return_counts=True)
            partitions = {DEFAULT_PARTITION: 0, **dict.fromkeys(_partition_names(connection, found.id), 0)}
            belongs = dict(fetch_all(connection, _PARTITION_OF_SOURCE, (found.id,)))
        for source, count in zip(sources.tolist(), counts.tolist(), strict=True):
            partitions[belongs[source]] += count
        return Space(found.name, dimension, model, sum(partitions.values()), partitions)

    def collections(self) -> list[str]:
        """Names, sorted."""
        with self.database.read() as connection:
            return sorted(each.name for each in visible_collections(connection))

    def create(self, collection: str, dimension: int, model: str) -> None:
        """Make the collection if it is not there, bound to that model (`name#fingerprint`).

        Raises:
            ModelMismatch: it is there with another model.
        """
        with self.database.write() as connection:
            found = ensure_collection(connection, collection)
            model_id = _ensure_model(connection, model, dimension)
            if found.model_id not in (None, model_id):
                theirs, size = _model(connection, found.model_id)
                raise ModelMismatch(
                    f"Collection '{found.name}' is there already, with vectors of '{theirs}' ({size} dimensions)."
                )
            connection.execute("update collections set model_id = ? where id = ?", (model_id, found.id))

    def drop(self, collection: str) -> None:
        """Delete it with everything in it."""
        with self.database.read() as connection:
            found = _find(connection, collection)
        drop_collection(self.database, found.id)

    def create_partition(self, collection: str, partition: str) -> None:
        with self.database.write() as connection:
            found = _find(connection, collection)
            if partition != DEFAULT_PARTITION:
                ensure_partition(connection, found, partition)

    def drop_partition(self, collection: str, partition: str) -> None:
        """Delete it with everything in it."""
        with self.database.read() as connection:
            found = _find(connection, collection)
            partition_id = find_partition(connection, found, partition)
        if partition_id is None:
            raise InvalidInput(f"partition '{DEFAULT_PARTITION}' is where everything else stands; it stays.")
        drop_partition(self.database, found.id, partition_id)

    # ------------------------------------------------------------ searching

    def search(
        self,
        collection: str,
        queries: Vectors,
        limit: int,
        *,
        partition: str | None = None,
        condition: Condition | None = None,
        exact: bool = False,
    ) -> list[list[Neighbor]]:
        """The nearest of each query, best first; equal scores by id. All queries see one snapshot."""
        with self.database.read() as connection:
            part = self.part(connection, collection, partition, condition, queries.shape[1])
            if part is None:
                return [[] for _ in queries]
            exact = exact or part.few
            return [
                [Neighbor(*pair) for pair in _nearest(connection, part, query.astype("<f4", copy=False), limit, exact)]
                for query in queries
            ]

    def part(
        self, connection: apsw.Connection, collection: str, partition: str | None, condition: Condition | None,
        dimension: int,
    ) -> Part | None:  # fmt: skip
        """What a search with vectors of that dimension may look at; None when the collection holds no vector.

        Raises:
            NotFound: no such collection or partition.
            ModelMismatch: its vectors have another dimension.
        """
        found = _find(connection, collection)
        partition_id = find_partition(connection, found, partition) if partition is not None else None
        if found.model_id is None:
            return None
        name, size = _model(connection, found.model_id)
        if size != dimension:
            raise ModelMismatch(
                f"collection '{found.name}' holds vectors of '{name.partition('#')[0]}' with {size} dimensions, "
                f"the model at hand makes {dimension}."
            )
        blocks = self.index.sign_blocks(connection, found.model_id, read_generations(connection), [found.id])
        allowed = None
        if partition is not None or condition is not None:
            allowed = _allowed_sources(connection, found.id, partition, partition_id, condition)
        if condition is not None and _asks_for_pages(condition):
            blocks = _only(blocks, _allowed_chunks(connection, found.id, condition))
        return Part(found, found.model_id, blocks, allowed, sum(len(block.ids) for block in blocks) <= FEW)

    # ------------------------------------------------------------ records

    def upsert(self, collection: str, records: Sequence[Record]) -> None:
        """Insert, or replace those of the same id.

        Raises:
            InvalidInput: an id belongs to another collection, or to one chunk of a longer document.
        """
        with self.database.write() as connection:
            found = _find(connection, collection)
            if found.model_id is None:
                raise InvalidInput(f"Collection '{found.name}' is bound to no model yet.")
            for record in records:
                _put(connection, found, found.model_id, record)
            bump_generations(connection, "content", "signs")

    def delete(self, collection: str, ids: Sequence[int]) -> None:
        """Put records into the trash; unknown ids are passed over.

        Raises:
            InvalidInput: an id is one chunk of a longer document of which not all are named.
        """
        with self.database.write() as connection:
            found = _find(connection, collection)
            trash_sources(connection, whole_sources(connection, found, ids))

    def fetch(self, collection: str, ids: Sequence[int]) -> dict[int, Record]:
        """The records of those ids; missing ones, and those without a vector, are left out."""
        with self.database.read() as connection:
            found = _find(connection, collection)
            rows = load_rows(connection, found.id, ids)
            vectors = _load_vectors(connection, found.model_id, list(rows))
        return {each: _record(rows[each], vectors[each]) for each in rows if each in vectors}

    def records(self, collection: str, batch: int = 500) -> Iterator[list[Record]]:
        """Every record that is searched by meaning, by id, in batches; each batch is a snapshot of its own."""
        sql = """
            select chunks.id from chunks join sources on sources.id = source_id
            where collection_id = ? and trashed_at is null and chunks.id > ? order by chunks.id limit ?
        """
        last = 0
        while True:
            with self.database.read() as connection:
                found = _find(connection, collection)
                ids = [row[0] for row in fetch_all(connection, sql, (found.id, last, batch))]
            if not ids:
                return
            last = ids[-1]
            if part := list(self.fetch(collection, ids).values()):
                yield part

    def close(self) -> None:
        """Nothing to close: the file belongs to others."""


# ---------------------------------------------------------------- finding


def _find(connection: apsw.Connection, name: str) -> Collection:
    return choose_collections(connection, [name])[0]


def find_partition(connection: apsw.Connection, collection: Collection, name: str) -> int | None:
    """The id of a partition; None for the default one, in which sources without a partition stand.

    Raises:
        NotFound: no such partition; names those that are there.
    """
    sql = "select id from partitions where collection_id = ? and name = ?"
    partition_id = fetch_one(connection, sql, (collection.id, name))
    if partition_id is None and name != DEFAULT_PARTITION:
        names = [DEFAULT_PARTITION, *_partition_names(connection, collection.id)]
        raise NotFound(f"partition '{name}' not found.", hint=f"There is: {', '.join(names)}.")
    return partition_id


def _partition_names(connection: apsw.Connection, collection_id: int) -> list[str]:
    sql = "select name from partitions where collection_id = ? order by name"
    return [row[0] for row in fetch_all(connection, sql, (collection_id,))]


_PARTITION_OF_SOURCE = f"""
    select sources.id, coalesce(partitions.name, '{DEFAULT_PARTITION}') from sources
    left join partitions on partitions.id = partition_id where sources.collection_id = ?
"""


def _model(connection: apsw.Connection, model_id: int | None) -> tuple[str, int]:
    """`name#fingerprint` and dimension; empty and 0 for none."""
    sql = "select name || '#' || fingerprint, dimension from models where id = ?"
    return fetch_one(connection, sql, (model_id,)) or ("", 0)


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


# ---------------------------------------------------------------- restricting


def _allowed_sources(
    connection: apsw.Connection, collection_id: int, partition: str | None, partition_id: int | None,
    condition: Condition | None,
) -> Ids:  # fmt: skip
    """Sorted ids of the sources that may answer; what is asked of pages is left to `_allowed_chunks`."""
    import numpy as np

    tests = ["collection_id = :collection", "trashed_at is null"]
    bindings: dict[str, Any] = {"collection": collection_id}
    if partition is not None:
        tests.append("partition_id is :partition")
        bindings["partition"] = partition_id
    if condition is not None and not _asks_for_pages(condition):
        compiled = sql_condition(condition, "sources.metadata", SOURCE_COLUMNS)
        tests.append(compiled.sql)
        bindings |= compiled.bindings
    sql = f"select id from sources where {' and '.join(tests)} order by id"
    return np.array([row[0] for row in fetch_all(connection, sql, bindings)], dtype=np.int64)


def _asks_for_pages(condition: Condition) -> bool:
    """Whether chunks of one source may answer differently."""
    return any(each.field == ("page",) for each in comparisons(condition))


def chunks_fulfilling(connection: apsw.Connection, collection_id: int, condition: Condition) -> list[int]:
    """Ids of the collection's chunks that are searched and fulfil the condition, ascending."""
    compiled = sql_condition(condition, "sources.metadata", COLUMNS)
    sql = f"""
        select chunks.id from chunks join sources on sources.id = chunks.source_id
        where collection_id = :collection and trashed_at is null and {compiled.sql} order by chunks.id
    """
    rows = fetch_all(connection, sql, {"collection": collection_id, **compiled.bindings})
    return [row[0] for row in rows]


def _allowed_chunks(connection: apsw.Connection, collection_id: int, condition: Condition) -> Ids:
    import numpy as np

    return np.array(chunks_fulfilling(connection, collection_id, condition), dtype=np.int64)


def _only(blocks: Sequence[Block], chunk_ids: Ids) -> list[Block]:
    """The blocks with nothing but those chunks in them."""
    import numpy as np

    kept = [(block, np.isin(block.ids, chunk_ids)) for block in blocks]
    return [
        Block(block.segments, block.ids[stays], block.sources[stays], np.ascontiguousarray(block.bits[:, stays]))
        for block, stays in kept
        if stays.any()
    ]


def _nearest(connection: apsw.Connection, part: Part, query: Any, limit: int, exact: bool) -> list[tuple[int, float]]:
    return nearest_chunks(connection, part.model_id, part.blocks, query, limit, part.allowed, exact)


# ---------------------------------------------------------------- rows


def load_rows(connection: apsw.Connection, collection_id: int, ids: Sequence[int]) -> dict[int, Row]:
    """Chunk id -> what is told of it, in the order asked for; the trash and other collections are left out."""
    sql = f"""
        select chunks.id, text, metadata, uri, title, first_page, format,
            coalesce(partitions.name, '{DEFAULT_PARTITION}')
        from chunks join sources on sources.id = source_id left join partitions on partitions.id = partition_id
        where chunks.id in (select value from carray(:ids)) and sources.collection_id = :collection
            and trashed_at is null
    """
    if not ids:
        return {}
    found = {
        chunk_id: Row(chunk_id, text, metadata_of(metadata, uri, title, page, kind), partition)
        for chunk_id, text, metadata, uri, title, page, kind, partition in fetch_all(
            connection, sql, {"ids": apsw.carray(array("q", ids)), "collection": collection_id}
        )
    }
    return {each: found[each] for each in dict.fromkeys(ids) if each in found}


def _load_vectors(connection: apsw.Connection, model_id: int | None, ids: Sequence[int]) -> dict[int, Any]:
    import numpy as np

    if model_id is None or not ids:
        return {}
    keys = apsw.carray(array("q", [vector_id(model_id, each) for each in ids]))
    sql = "select id & ?, embedding from vectors where id in (select value from carray(?))"
    rows = fetch_all(connection, sql, ((1 << VECTOR_ID_BITS) - 1, keys))
    return {chunk_id: np.frombuffer(blob, dtype="<f4") for chunk_id, blob in rows}


def _record(row: Row, vector: Any) -> Record:
    return Record(row.id, vector, row.text, row.metadata, row.partition)


# ---------------------------------------------------------------- writing


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
    embeddings = dict.fromkeys(texts, record.vector.astype("<f4", copy=False).tobytes())
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


def whole_sources(connection: apsw.Connection, collection: Collection, ids: Sequence[int]) -> list[int]:
    """Ids of the sources that consist of those chunks; unknown ids, and those of other collections, are passed over.

    Raises:
        InvalidInput: only some of a source's chunks are named.
    """
    sql = """
        select sources.id, title, chunk_count, count(*) from chunks join sources on sources.id = source_id
        where chunks.id in (select value from carray(:ids)) and collection_id = :collection and trashed_at is null
        group by sources.id
    """
    rows = fetch_all(connection, sql, {"ids": apsw.carray(array("q", ids)), "collection": collection.id}) if ids else []
    for _, title, total, named in rows:
        if named < total:
            raise InvalidInput(
                f"'{title}' has {total} chunks, and only {named} of them would be deleted.",
                hint="A document is removed as a whole: name all its ids, or use remove_source.",
            )
    return [row[0] for row in rows]
