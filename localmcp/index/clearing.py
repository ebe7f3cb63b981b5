"""Collections, partitions and sources taken away for good, with everything that is known of them."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from localmcp.errors import InvalidInput
from localmcp.humanize import command_line
from localmcp.index.sources import trash_sources
from localmcp.index.vector import remove_vectors
from localmcp.index.word_vectors import UNUSED_WORDS
from localmcp.storage.database import Database, bump_generations, fetch_column, fetch_one

AT_ONCE = 200
"""Sources deleted in one transaction, so that others get to write in between."""


def drop_collection(database: Database, collection_id: int) -> None:
    """Delete a collection with its documents, also those in the trash.

    The work is done in parts. After an interruption the collection is still there with what is left of it, and
    dropping it again completes the work.
    """
    _delete_sources(database, "collection_id = ?", (collection_id,))
    with database.write() as connection:
        for table in ("words", "terms", "signs"):
            connection.execute(f"delete from {table} where collection_id = ?", (collection_id,))
        connection.execute("delete from collections where id = ?", (collection_id,))
        connection.execute(UNUSED_WORDS)
        bump_generations(connection, "content", "words", "signs")


def drop_partition(database: Database, collection_id: int, partition_id: int) -> None:
    """Delete a partition with its documents, also those in the trash.

    Raises:
        InvalidInput: a folder or file was added into it, which the next refresh would bring back.
    """
    with database.read() as connection:
        path = fetch_one(
            connection,
            "select path from roots where partition_id = ? and kind not like 'removed %' limit 1",
            (partition_id,),
        )
    if path is not None:
        raise InvalidInput(
            f"{path} was added into this partition.",
            hint=f"First remove it: {command_line('localmcp', 'remove', path)}",
        )
    _delete_sources(database, "collection_id = ? and partition_id = ?", (collection_id, partition_id))
    with database.write() as connection:
        connection.execute("delete from roots where partition_id = ?", (partition_id,))
        connection.execute("delete from partitions where id = ?", (partition_id,))
        connection.execute(UNUSED_WORDS)
        bump_generations(connection, "content", "signs")


def _delete_sources(database: Database, which: str, bindings: Sequence[int]) -> None:
    while True:
        with database.write() as connection:
            sql = f"select id from sources where {which} order by id limit {AT_ONCE}"
            ids = fetch_column(connection, sql, bindings)
            if not ids:
                return
            _delete(connection, ids)


def _delete(connection: apsw.Connection, source_ids: Sequence[int]) -> None:
    trash_sources(connection, source_ids)
    for source_id in source_ids:
        remove_vectors(connection, fetch_column(connection, "select id from chunks where source_id = ?", (source_id,)))
        connection.execute("delete from sources where id = ?", (source_id,))
