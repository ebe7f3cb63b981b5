"""A collection taken away for good, with everything that is known of it."""

from __future__ import annotations

from localmcp.index.sources import trash_sources
from localmcp.index.vector import remove_vectors
from localmcp.index.word_vectors import UNUSED_WORDS
from localmcp.storage.database import Database, bump_generations, fetch_column

AT_ONCE = 200
"""Sources deleted in one transaction, so that others get to write in between."""


def clear_collection(database: Database, collection_id: int) -> None:
    """Delete a collection with its documents, also those in the trash, in parts."""
    sql = f"select id from sources where collection_id = ? order by id limit {AT_ONCE}"
    while True:
        with database.write() as connection:
            source_ids = fetch_column(connection, sql, (collection_id,))
            trash_sources(connection, source_ids)
            for source_id in source_ids:
                chunk_ids = fetch_column(connection, "select id from chunks where source_id = ?", (source_id,))
                remove_vectors(connection, chunk_ids)
                connection.execute("delete from sources where id = ?", (source_id,))
            if source_ids:
                continue
            for table in ("words", "terms", "signs"):
                connection.execute(f"delete from {table} where collection_id = ?", (collection_id,))
            connection.execute("delete from collections where id = ?", (collection_id,))
            connection.execute(UNUSED_WORDS)
            bump_generations(connection, "content", "words", "signs")
            return
