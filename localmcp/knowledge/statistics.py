"""Collections and mounted files in numbers, for `get_stats`."""

from __future__ import annotations

from typing import Any

import apsw

from localmcp.knowledge.document_records import CollectionStats
from localmcp.search.collections import Collection, visible_collections
from localmcp.search.index import Index
from localmcp.storage.database import fetch_one


def collection_stats(connection: apsw.Connection, collection: Collection) -> CollectionStats:
    sources, chunks = fetch_one(
        connection,
        """
        select count(*), coalesce(sum(chunk_count), 0) from sources where collection_id = ? and trashed_at is null
        """,
        (collection.id,),
    )
    return {
        "name": collection.name,
        "description": collection.description,
        "sources": sources,
        "chunks": chunks,
        "model": fetch_one(connection, "select name from models where id = ?", (collection.model_id,)),
    }


def embedded_chunks(connection: apsw.Connection, collection: Collection) -> int:
    """Chunks that a search by meaning sees: those with a sign code of the collection's model."""
    sql = "select coalesce(sum(count), 0) from signs where collection_id = ? and model_id = ?"
    return fetch_one(connection, sql, (collection.id, collection.model_id))


def mount_stats(index: Index, name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    with index.database.read() as connection:
        collections = visible_collections(connection)
        stats = [collection_stats(connection, collection) for collection in collections]
        quickstarts = fetch_one(connection, "select count(*) from quickstarts where deleted_at is null")
        rules = fetch_one(connection, "select count(*) from rules where retired_at is null")
    return {
        "name": name,
        "sources": sum(stat["sources"] for stat in stats),
        "chunks": sum(stat["chunks"] for stat in stats),
        "collections": [collection.name for collection in collections],
        **({"quickstarts": quickstarts} if quickstarts else {}),
        **({"rules": rules} if rules else {}),
    }
