"""Which collections have a copy in Milvus, and the queue of what has changed in the file since.

A change is only the id of a chunk: what is sent for it is what the file holds when it is sent, so the order of changes
and a change that is sent twice do not matter.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apsw

from localmcp.storage.database import fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import VECTOR_ID_BITS
from localmcp.storage.times import utc_now


@dataclass(frozen=True, slots=True)
class Replica:
    """The copy of a collection's vectors in another place."""

    collection_id: int
    collection: str
    """The name in the file."""
    backend: str
    """`milvus`."""
    name: str
    """The name there."""
    model_id: int
    """The model whose vectors were copied."""
    model: str
    """Text form of its identity, `name#fingerprint`."""
    state: Literal["copying", "following"]
    copied: int
    """While copying: chunks up to this id are there."""
    pushed_at: str | None
    """When the copy was last found complete; ISO 8601 UTC."""
    problem: str | None
    """Why what waits could not be sent, at `tried_at`."""
    tried_at: str | None
    pending: int
    """Changes that wait."""
    current: bool
    """The collection's vectors still come from `model_id`."""

    @property
    def ready(self) -> bool:
        """Whether searches by meaning may use the copy."""
        return self.state == "following" and self.current


_SELECT = """
    select collection_id, collections.name, backend, replicas.name, replicas.model_id,
           models.name || '#' || fingerprint, state, copied, pushed_at,
           problem, tried_at,
           (select count(*) from replica_changes where replica_changes.collection_id = replicas.collection_id),
           coalesce(collections.model_id = replicas.model_id, 0)
    from replicas join collections on collections.id = collection_id join models on models.id = replicas.model_id
"""


def replica_of(connection: apsw.Connection, collection_id: int) -> Replica | None:
    """Return the collection's copy, or None."""
    row = fetch_one(connection, f"{_SELECT} where collection_id = ?", (collection_id,))
    return _replica(row) if row else None


def replicas(connection: apsw.Connection) -> list[Replica]:
    """Return every copy, by the collection's name."""
    rows = fetch_all(connection, f"{_SELECT} order by collections.name")
    return [_replica(row) for row in rows]


def _replica(row: tuple[Any, ...]) -> Replica:
    return Replica(*row[:12], current=bool(row[12]))


def model_text(connection: apsw.Connection, model_id: int | None) -> str:
    """Return a model's identity as text, `name#fingerprint`; models whose text ends alike make comparable vectors."""
    row = fetch_one(connection, "select name, fingerprint from models where id = ?", (model_id,))
    return f"{row[0]}#{row[1]}" if row else ""


def same_model(first: str, second: str) -> bool:
    """Return whether two identities of `model_text` represent comparable vectors."""
    return first.rpartition("#")[2] == second.rpartition("#")[2]


# ---------------------------------------------------------------- the queue


def note_changes(connection: apsw.Connection, collection_id: int, chunk_ids: Iterable[int]) -> None:
    """Queue chunks whose vector, text, metadata or partition changes, or that go. Part of the write transaction.

    Does nothing for a collection without a copy.
    """
    if fetch_one(connection, "select 1 from replicas where collection_id = ?", (collection_id,)) is None:
        return
    # Replaced rows get a new id, so that a change that comes while an earlier one is being sent is sent again.
    connection.executemany(
        "insert or replace into replica_changes (collection_id, chunk_id) values (?, ?)",
        ((collection_id, row_id) for row_id in chunk_ids),
    )


def note_source(connection: apsw.Connection, source_id: int) -> None:
    """Queue every chunk of a source. Part of the write transaction."""
    sql = "select collection_id from sources where id = ?"
    chunk_ids = fetch_column(connection, "select id from chunks where source_id = ?", (source_id,))
    note_changes(connection, fetch_one(connection, sql, (source_id,)), chunk_ids)


def next_changes(connection: apsw.Connection, collection_id: int, limit: int) -> list[tuple[int, int]]:
    """Return (change id, chunk id), the oldest first."""
    sql = "select id, chunk_id from replica_changes where collection_id = ? order by id limit ?"
    return fetch_all(connection, sql, (collection_id, limit))


def forget_changes(connection: apsw.Connection, change_ids: Sequence[int]) -> None:
    """Take what was sent out of the queue. Part of the write transaction."""
    sql = "delete from replica_changes where id in (select value from carray(?))"
    if change_ids:
        connection.execute(sql, (apsw.carray(array("q", change_ids)),))


# ---------------------------------------------------------------- the row


def begin_replica(connection: apsw.Connection, collection_id: int, name: str, model_id: int) -> None:
    """Remember that the collection is being copied to Milvus under that name, from its first chunk on."""
    connection.execute(
        """
        insert into replicas (collection_id, backend, name, model_id, state) values (?, 'milvus', ?, ?, 'copying')
        on conflict (collection_id) do update set name = excluded.name, model_id = excluded.model_id,
            state = 'copying', copied = 0, pushed_at = null, problem = null
        """,
        (collection_id, name, model_id),
    )
    connection.execute("delete from replica_changes where collection_id = ?", (collection_id,))


def end_replica(connection: apsw.Connection, collection_id: int) -> None:
    """Forget the copy, and what waits for it."""
    connection.execute("delete from replicas where collection_id = ?", (collection_id,))


def write_copied(connection: apsw.Connection, collection_id: int, chunk_id: int) -> None:
    """Note that chunks up to this id have been copied."""
    connection.execute("update replicas set copied = ? where collection_id = ?", (chunk_id, collection_id))


def write_complete(connection: apsw.Connection, collection_id: int) -> None:
    """Note that the copy was found complete: from here on searches use it."""
    sql = "update replicas set state = 'following', pushed_at = ?, problem = null where collection_id = ?"
    connection.execute(sql, (utc_now(), collection_id))


def write_problem(connection: apsw.Connection, collection_id: int, problem: str | None) -> None:
    """Note why what waits could not be sent; None when it was."""
    sql = "update replicas set problem = ?, tried_at = ? where collection_id = ?"
    connection.execute(sql, (problem, utc_now(), collection_id))


# ---------------------------------------------------------------- what is to be there

LIVE_CHUNKS = f"""
    from chunks cross join sources on sources.id = chunks.source_id
    cross join vectors on vectors.id = (:model << {VECTOR_ID_BITS} | chunks.id)
    where sources.collection_id = :collection and sources.trashed_at is null
"""
"""The chunks of a collection that a search by meaning may find, with their vectors of one model."""


def count_chunks(
    connection: apsw.Connection, collection_id: int, model_id: int, *, up_to: int = (1 << VECTOR_ID_BITS) - 1
) -> int:
    """Return how many vectors a complete copy has, or those of chunks up to an id."""
    sql = f"select count(*) {LIVE_CHUNKS} and chunks.id <= :up_to"
    return fetch_one(connection, sql, {"model": model_id, "collection": collection_id, "up_to": up_to})


def chunk_ids_after(
    connection: apsw.Connection, collection_id: int, model_id: int, after: int, limit: int
) -> list[int]:
    """Return the next ids that a complete copy has, ascending."""
    sql = f"select chunks.id {LIVE_CHUNKS} and chunks.id > :after order by chunks.id limit :limit"
    bindings = {"model": model_id, "collection": collection_id, "after": after, "limit": limit}
    return fetch_column(connection, sql, bindings)
