"""The tools that make, list, describe and drop collections and partitions (S4-13)."""

from __future__ import annotations

from typing import Annotated

import apsw

from localmcp.errors import InvalidInput, LocalMCPError, NeedsConfirmation
from localmcp.humanize import counted
from localmcp.index.collections import (
    DEFAULT_PARTITION,
    choose_collections,
    ensure_collection,
    ensure_partition,
    find_partition,
    partition_names,
    visible_collections,
)
from localmcp.index.passages import count_vectors
from localmcp.index.sources import drop_collection, drop_partition
from localmcp.milvus.collection import Milvus
from localmcp.records.retriever import find_named, find_on_server
from localmcp.storage.database import Database, fetch_one
from localmcp.tools import Json, Param, current_scope, hidden_change, hidden_tool

Name = Annotated[str, Param("The collection.", min_length=1, max_length=100)]
PartitionName = Annotated[str, Param("The partition.", min_length=1, max_length=100)]


class Collections:
    """Makes, describes and drops collections."""

    def __init__(self, database: Database, milvus: Milvus | None) -> None:
        self.database = database
        self.milvus = milvus

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
            sql = "select 1 from partitions where collection_id = ? and name = ?"
            before = fetch_one(connection, sql, (collection.id, partition_name))
            if partition_name != DEFAULT_PARTITION:
                ensure_partition(connection, collection, partition_name)
        return {"name": partition_name, "created": before is None and partition_name != DEFAULT_PARTITION}

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
                documents, chunks = _count(connection, collection.id, live=True)
                about = {"name": collection.name, "description": collection.description}
                partitions = partition_names(connection, collection.id)
                counts = {"documents": documents, "chunks": chunks, "partitions": partitions}
                listed.append({**about, **counts, "searchedIn": "file"})
        result: Json = {"count": len(listed), "collections": listed}
        if self.milvus is None:
            return result
        allowed, ours = current_scope().collections, {item["name"].casefold() for item in listed}
        try:
            result["onlyOnMilvus"] = [
                name
                for name in self.milvus.names()
                if name.casefold() not in ours and (allowed is None or name in allowed)
            ]
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
            own = find_named(visible_collections(connection), collection_name)
        collection = None if own else find_on_server(self.milvus, collection_name)
        if collection is not None:
            return {
                "name": collection_name,
                "description": "",
                "vectors": collection.count(),
                "model": collection.model,
                "dimension": collection.dimension,
                "partitions": collection.partitions(),
                "searchedIn": "milvus",
            }
        with self.database.read() as connection:
            [stored] = choose_collections(connection, [collection_name])
            vectors = count_vectors(connection, stored)
            documents, chunks = _count(connection, stored.id, live=True)
            created = fetch_one(connection, "select created_at from collections where id = ?", (stored.id,))
        return {
            "name": stored.name,
            "description": stored.description,
            "documents": documents,
            "chunks": chunks,
            **vectors,
            "searchedIn": "file",
            "createdAt": created,
        }

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
            documents = _confirm(connection, f"Collection '{collection.name}'", collection.id, None, confirm)
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
            target = f"Partition '{partition_name}' of '{collection.name}'"
            documents = _confirm(connection, target, collection.id, partition_id, confirm)
        with self.database.write() as connection:
            drop_partition(connection, collection, partition_id)
        return {"dropped": partition_name, "documents": documents}


def _count(
    connection: apsw.Connection, collection_id: int, partition_id: int | None = None, *, live: bool = False
) -> tuple[int, int]:
    """Return documents and chunks; only those outside the trash if `live`."""
    sql = """
        select count(*), coalesce(sum(chunk_count), 0) from sources where collection_id = :collection
            and (:partition is null or partition_id = :partition) and (not :live or trashed_at is null)
    """
    return fetch_one(connection, sql, {"collection": collection_id, "partition": partition_id, "live": live})


def _confirm(
    connection: apsw.Connection, target: str, collection_id: int, partition_id: int | None, confirmed: bool
) -> int:
    """Return how many documents would go.

    Raises:
        NeedsConfirmation: there are some, and nobody said yes.
    """
    documents, chunks = _count(connection, collection_id, partition_id)
    if documents and not confirmed:
        content = f"{counted(documents, 'document')} ({counted(chunks, 'chunk')}; the trash counts, too)"
        raise NeedsConfirmation(
            f"{target} holds {content}, which would go into the trash. Nothing was done.",
            hint="If that is wanted, say so with confirm: true (--yes).",
        )
    return documents
