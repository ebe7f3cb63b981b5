"""Milvus as a backend: a server, a cluster, or a Milvus Lite file, all behaving alike.

Differences between them, and between their versions, are evened out here; they are measured (Milvus Lite
3.2.2, Milvus 2.3.5). Collections that other programs made can be searched and read, not changed; their keys may be
text, and then an id is that text.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

from localmcp.arrays import Vectors
from localmcp.config import Settings
from localmcp.errors import InvalidInput, LocalMCPError, ModelMismatch, NotFound
from localmcp.humanize import choices
from localmcp.index.backend import DEFAULT_PARTITION, Neighbor, Record, Space
from localmcp.index.conditions import Condition
from localmcp.milvus import schema
from localmcp.milvus.client import Server, load_library, read_server, release_client, share_client
from localmcp.milvus.failures import is_not_loaded
from localmcp.milvus.rows import (
    BATCH_ROWS,
    DEEPEST,
    VectorQuery,
    batches,
    check_dimension,
    our_schema,
    read_record,
)
from localmcp.milvus.schema import Shape, decode_name, encode_name
from localmcp.schemas import Json

HITS_AT_ONCE = 100_000
"""Queries are sent together while they ask for no more hits than this: an answer may have 64 MB."""
TIES = 16
"""Hits beyond the limit, so that of equal scores at the end the smallest ids are chosen."""
MOST_PARTITIONS = 64
"""Partitions of a collection that are counted one by one."""
SHAPE_SECONDS = 30.0
"""How long the fields of a collection are remembered."""


def open_milvus(settings: Settings) -> MilvusBackend | None:
    """Return the backend that the settings name; None when they name none. Contacts nobody, and imports nothing heavy.

    Raises:
        ConfigurationError: the address cannot be one.
    """
    server = read_server(settings)
    return MilvusBackend(server) if server else None


class MilvusBackend:
    """Holds and searches vectors in Milvus. Thread-safe; each request ends within the server's time-out.

    Every method raises `Unavailable`, `AccessDenied` or `NotFound` (no such database or collection) as far as the
    server gives reason, and `MissingExtra` when pymilvus is not installed.
    """

    name = "milvus"

    def __init__(self, server: Server) -> None:
        self.server = server
        self._client = share_client(server)
        self._lock = threading.Lock()
        self._shapes: dict[str, tuple[float, Shape]] = {}
        self._lite: bool | None = None
        self._closed = False

    # ------------------------------------------------------------ collections and partitions

    def collections(self) -> list[str]:
        """Return names, sorted."""
        return sorted(decode_name(name) for name in self._client.call("list_collections"))

    def describe(self, collection: str) -> Space:
        """Return what the collection holds, counted exactly, with everything that was ever acknowledged."""
        shape = self._shape(collection, fresh=True)
        names = [str(name) for name in self._client.call("list_partitions", shape.name)]
        count = self._count(shape)
        partitions = {decode_name(name): -1 for name in names}
        if len(names) <= MOST_PARTITIONS and not shape.partition_key:
            counts = {decode_name(name): self._count(shape, name) for name in names if len(names) > 1}
            partitions = counts or {DEFAULT_PARTITION: count}
        return Space(collection, shape.dimension, shape.model, count, partitions)

    def count(self, collection: str) -> int:
        """Return the number of records, counted exactly, with everything that was ever acknowledged."""
        return self._count(self._shape(collection))

    def about(self, collection: str) -> Json | None:
        """Return what localmcp wrote about a collection that it made (`model`, `origin`); None for others."""
        return self._shape(collection, fresh=True).about

    def create(self, collection: str, dimension: int, model: str, *, origin: Json | None = None) -> None:
        """Make the collection if it is not there.

        Raises:
            ModelMismatch: it is there with another model or dimension.
        """
        name = encode_name(collection)
        if self._client.call("has_collection", name):
            self._check_same(self._shape(collection, fresh=True), dimension, model)
            return
        library = load_library()
        fields, index = our_schema(library, dimension, model), library.MilvusClient.prepare_index_params()
        index.add_index(schema.VECTOR, index_type="HNSW", metric_type="COSINE", params={"M": 24, "efConstruction": 200})
        about = schema.write_about(model, origin)
        self._client.call(
            "create_collection",
            name,
            schema=fields,
            index_params=index,
            consistency_level="Session",
            properties={schema.PROPERTY: about},
        )
        self._forget(collection)

    def drop(self, collection: str) -> None:
        shape = self._shape(collection, fresh=True)
        self._client.call("drop_collection", shape.name)
        self._forget(collection)

    def _make_partition(self, collection: str, partition: str) -> None:
        """Make the partition if it is not there."""
        name = self._our_shape(collection).name
        encoded = encode_name(partition, "partition")
        if not self._client.call("has_partition", name, encoded):
            self._client.call("create_partition", name, encoded)

    # ------------------------------------------------------------ writing

    def upsert(self, collection: str, records: Sequence[Record], *, moved: bool = True) -> None:
        """Insert, or replace those of the same id; partitions that are not there are made.

        Args:
            moved: a record may be in another partition so far, where it is then deleted.

        Raises:
            InvalidInput: localmcp did not make the collection.
            ModelMismatch: a vector of another length.
        """
        shape = self._our_shape(collection)
        for partition in dict.fromkeys(record.partition for record in records):
            part = [record for record in records if record.partition == partition]
            if partition != DEFAULT_PARTITION:
                self._make_partition(collection, partition)
            for rows in batches(part, shape):
                if moved:
                    self._delete_elsewhere(shape, [row[schema.KEY] for row in rows], partition)
                self._loaded(shape, "upsert", rows, partition_name=encode_name(partition))

    def flush(self, collection: str) -> None:
        """Let what was written be indexed now: Lite compares every vector until then, servers after a while."""
        self._loaded(self._our_shape(collection), "flush")

    def unindexed(self, collection: str) -> int:
        """Return vectors that the server does not hold in an indexed segment yet.

        Up to a few thousand of them are compared one by one. Of more, servers look at an eighth only, until the index
        is made: measured at 10,000 vectors, recall@10 .27, and 1.0 half a minute after `flush`.
        """
        if self._is_lite():
            return 0
        shape = self._our_shape(collection)
        segments = self._loaded(shape, "list_loaded_segments")
        return max(0, self._count(shape) - sum(int(segment.num_rows) for segment in segments))

    def _delete_elsewhere(self, shape: Shape, ids: list[int], partition: str) -> None:
        """Delete the ids from other partitions: on a server an id is unique within a partition only."""
        if len(self._client.call("list_partitions", shape.name)) > 1:
            text = f"{schema.KEY} in {ids} and {schema.PARTITION} != {json.dumps(partition, ensure_ascii=False)}"
            self._loaded(shape, "delete", filter=text)

    def delete(self, collection: str, ids: Sequence[int]) -> None:
        """Delete records; unknown ids are passed over."""
        shape = self._our_shape(collection)
        for start in range(0, len(ids), BATCH_ROWS):
            self._loaded(shape, "delete", ids=list(ids[start : start + BATCH_ROWS]))

    def search(
        self,
        collection: str,
        queries: Vectors,
        limit: int,
        *,
        partition: str | None = None,
        condition: Condition | None = None,
    ) -> list[list[Neighbor]]:
        """Return the nearest of each query, best first; equal scores by id; at most 16,384, which Milvus allows.

        The graph index compares a few hundred vectors a query.
        """
        shape = self._shape(collection)
        check_dimension(shape, collection, queries.shape[1])
        names = [self._require_partition(shape, partition)] if partition is not None else None
        limit = min(limit, DEEPEST)
        search = VectorQuery(shape, names, condition, self._is_lite() if condition else False)
        neighbors_by_query: list[list[Neighbor]] = [[] for _ in queries]
        waiting, depth = list(range(len(queries))), min(limit + TIES, DEEPEST)
        while waiting and limit > 0:
            hits = self._hits(search, [queries[position].tolist() for position in waiting], depth)
            unfinished: list[int] = []
            for query_index, raw in zip(waiting, hits, strict=True):
                neighbors = search.neighbors(raw)
                neighbors_by_query[query_index] = neighbors[:limit]
                if not search.is_complete(raw, neighbors, limit, depth):
                    unfinished.append(query_index)
            waiting, depth = unfinished, min(depth * 4, DEEPEST)
        return neighbors_by_query

    def _hits(self, search: VectorQuery, queries: list[list[float]], depth: int) -> list[list[Any]]:
        """Milvus' own hits, `depth` a query."""
        at_once = max(1, HITS_AT_ONCE // depth // (10 if search.condition else 1))
        answers: list[list[Any]] = []
        for start in range(0, len(queries), at_once):
            part = queries[start : start + at_once]
            answers += self._loaded(search.shape, "search", data=part, limit=depth, **search.options(depth))
        return answers

    # ------------------------------------------------------------ reading

    def fetch(self, collection: str, ids: Sequence[int]) -> dict[int, Record]:
        """Return the records of those ids; missing ones are left out."""
        shape = self._shape(collection)
        records_by_id: dict[int, Record] = {}
        for start in range(0, len(ids), BATCH_ROWS):
            part = list(ids[start : start + BATCH_ROWS])
            rows = self._loaded(shape, "get", ids=part, output_fields=["*"], consistency_level="Strong")
            records_by_id |= {row[shape.key]: read_record(row, shape) for row in rows}
        return records_by_id

    def records(self, collection: str, batch: int = 500) -> Iterator[list[Record]]:
        """Yield every record, by id, in batches."""
        shape = self._shape(collection)
        for rows in self._pages(shape, batch, ["*"]):
            yield [read_record(row, shape) for row in rows]

    def ids(self, collection: str, batch: int = DEEPEST) -> Iterator[list[int]]:
        """Yield every id, ascending, in batches."""
        shape = self._shape(collection)
        for rows in self._pages(shape, batch, [shape.key]):
            yield [row[shape.key] for row in rows]

    def _pages(self, shape: Shape, batch: int, fields: list[str]) -> Iterator[list[Json]]:
        pages = self._loaded(
            shape, "query_iterator", batch_size=min(batch, DEEPEST), output_fields=fields, consistency_level="Strong"
        )
        try:
            while rows := self._client.guard(pages.next):
                yield [dict(row) for row in rows]
        finally:
            pages.close()

    def _count(self, shape: Shape, partition: str | None = None) -> int:
        # Lite counts the whole collection when there is no filter text.
        least = f"{shape.key} > -9223372036854775807" if shape.integer_keys else f'{shape.key} >= ""'
        rows = self._loaded(
            shape,
            "query",
            filter=least,
            output_fields=["count(*)"],
            partition_names=[partition] if partition else None,
            consistency_level="Strong",
        )
        return int(rows[0]["count(*)"])

    # ------------------------------------------------------------ shapes

    def _shape(self, collection: str, *, fresh: bool = False) -> Shape:
        """Return the fields of the collection.

        Raises:
            NotFound: there is no such collection.
        """
        name = encode_name(collection)
        with self._lock:
            since, shape = self._shapes.get(name, (0.0, None))
        if shape is not None and not fresh and time.monotonic() - since < SHAPE_SECONDS:
            return shape
        shape = schema.read_shape(self._client.call("describe_collection", name), self._vector_index(name))
        with self._lock:
            self._shapes[name] = (time.monotonic(), shape)
        return shape

    def _vector_index(self, name: str) -> Json | None:
        described = [
            cast("Json", self._client.call("describe_index", name, index_name))
            for index_name in self._client.call("list_indexes", name)
        ]
        return next((index for index in described if index.get("metric_type")), None)

    def _our_shape(self, collection: str) -> Shape:
        shape = self._shape(collection)
        if not shape.ours:
            raise InvalidInput(
                f"Milvus' collection '{collection}' was made by another program; it can be searched, not changed.",
                hint="Copy it into this file with: localmcp pull",
            )
        return shape

    def _require_partition(self, shape: Shape, partition: str) -> str:
        """Return the partition's encoded name. Lite finds nothing, without a word, in one that is not there."""
        encoded = encode_name(partition, "partition")
        names = [str(name) for name in self._client.call("list_partitions", shape.name)]
        if encoded not in names:
            hint = choices([decode_name(name) for name in names[:20]])
            raise NotFound(f"partition '{partition}' not found", hint=hint)
        return encoded

    def _check_same(self, shape: Shape, dimension: int, model: str) -> None:
        check_dimension(shape, decode_name(shape.name), dimension)
        if model and not shape.model.rpartition("#")[2] == model.rpartition("#")[2]:
            raise ModelMismatch(
                f"Milvus' collection '{decode_name(shape.name)}' is there already, with vectors of "
                f"'{shape.model or 'an unknown model'}', not of '{model}'."
            )

    def _forget(self, collection: str) -> None:
        with self._lock:
            self._shapes.pop(encode_name(collection), None)

    def _loaded(self, shape: Shape, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method on the collection, which is loaded into memory first if that is what lacks."""
        try:
            return self._client.call(method, shape.name, *arguments, **options)
        except LocalMCPError as error:
            # It may have been dropped and made again by somebody else.
            self._forget(decode_name(shape.name))
            if error.__cause__ is None or not is_not_loaded(cast("Exception", error.__cause__)):
                raise
        self._client.call("load_collection", shape.name)
        return self._client.call(method, shape.name, *arguments, **options)

    def _is_lite(self) -> bool:
        if self._lite is None:
            self._lite = str(self._client.call("get_server_version")).startswith("milvus_lite")
        return self._lite

    def close(self) -> None:
        """Give the connection back; it ends when nobody else in this process uses it."""
        if not self._closed:
            self._closed = True
            release_client(self._client)
