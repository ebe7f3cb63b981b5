"""Another model for what is in the file: its vectors are made beside the old ones, which answer until all are there.

Only the vectors of a collection's own model have sign codes. They are what a search scans, so the switch to other
vectors is one transaction: the collection names the model, and the sign codes are made again. The old vectors stay
until they are cleaned away: with them, the way back is as quick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import apsw

from localmcp.index.collections import (
    Collection,
    calibrate,
    choose_collections,
    ensure_model,
    spec_of,
    visible_collections,
)
from localmcp.index.vector import add_signs
from localmcp.index.vector_queue import (
    Lease,
    count_lacking,
    make_vectors,
    passages_lacking,
    requeue_collection,
    write_batch,
)
from localmcp.models import Embedder
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_column, fetch_one

REFRESH = "localmcp refresh"
"""The command that makes missing vectors."""
BATCH = 192
"""Passages of one transaction; a kill loses the embedding of so many."""

Tell = Callable[[int, int], None]
"""Called with the passages that are done, of all that have to be."""


@dataclass(slots=True)
class Reembedded:
    """Status of one collection."""

    collection: str
    model: str
    """Whose vectors answer from here on."""
    before: str | None
    """The setting of the model whose vectors answered; None when there were none."""
    embedded: int = 0
    """Vectors that were made in this run."""
    switched: bool = False


def reembed(
    database: Database, collection: Collection, embedder: Embedder, tell: Tell = lambda done, total: None
) -> Reembedded:
    """Give every passage of a collection a vector of `embedder`, then let these answer. Goes on where a run was killed.

    Raises:
        ModelUnavailable: the model failed; what it made is kept.
        FileUnavailable: the file cannot be written.
    """
    with database.write() as connection:
        model_id = ensure_model(connection, embedder.identity)
        before = _bound_model(connection, collection)
        total = count_lacking(connection, collection.id, model_id)
    calibrate(database, embedder)
    done = Reembedded(collection.name, embedder.identity.name, spec_of(*before[1:]) if before else None)
    tell(0, total)
    lease = Lease()
    with lease.held(database):
        while True:
            with database.write() as connection:
                model_id = ensure_model(connection, embedder.identity)
                passages = passages_lacking(connection, collection.id, model_id, BATCH)
                if not passages:
                    done.switched = _switch(connection, collection, model_id)
                    return done
            made = make_vectors(database, embedder, passages)
            with database.write() as connection:
                model_id = ensure_model(connection, embedder.identity)
                done.embedded += write_batch(connection, model_id, passages, made)
                lease.take(connection)
            tell(min(done.embedded, total), total)


def _switch(connection: apsw.Connection, collection: Collection, model_id: int) -> bool:
    """Let the model's vectors answer; False if they do already. Part of the caller's write transaction."""
    before = _bound_model(connection, collection)
    if before is not None and before[0] == model_id:
        return False
    connection.execute("update collections set model_id = ? where id = ?", (model_id, collection.id))
    rebuild_signs(connection, collection.id, model_id)
    requeue_collection(connection, collection.id)
    # How much meaning counts was measured with the other model.
    connection.execute("update groups set gap = null, measured_chunks = 0 where collection_id = ?", (collection.id,))
    bump_generations(connection, "content")
    return True


def _bound_model(connection: apsw.Connection, collection: Collection) -> tuple[int, str, int] | None:
    """Return id, name and dimension of the model whose vectors answer."""
    sql = """
        select models.id, models.name, dimension from models join collections on models.id = model_id
        where collections.id = ?
    """
    return fetch_one(connection, sql, (collection.id,))


def clean(database: Database, collection: Collection) -> int:
    """Delete the vectors of a collection that another model than its own made; returns how many. In small steps."""
    sql = """
        delete from vectors where id in (
            select vectors.id from models join vectors
                on vectors.id between models.id << 40 and (models.id + 1 << 40) - 1
            join chunks on chunks.id = vectors.id & 1099511627775 join sources on sources.id = source_id
            where collection_id = :collection
                and models.id is not (select model_id from collections where id = :collection)
            limit :limit
        )
    """
    removed = 0
    while True:
        with database.write() as connection:
            connection.execute(sql, {"collection": collection.id, "limit": 2000})
            if not connection.changes():
                forget_unused_models(connection)
                return removed
            removed += connection.changes()


def rebuild_signs(connection: apsw.Connection, collection_id: int, model_id: int) -> int:
    """Make the sign codes of a collection again, from its vectors of that model. Part of the caller's transaction.

    Returns how many passages that are not in the trash have such a vector.
    """
    connection.execute("delete from signs where collection_id = ?", (collection_id,))
    sql = """
        select chunks.id, source_id from chunks join sources on sources.id = source_id
        where collection_id = ? and trashed_at is null
            and exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
        order by chunks.id
    """
    source_ids: dict[int, int] = dict(fetch_all(connection, sql, (collection_id, model_id)))
    add_signs(connection, model_id, collection_id, source_ids)
    bump_generations(connection, "signs")
    return len(source_ids)


def forget_unused_models(connection: apsw.Connection) -> None:
    """Delete models that nothing in the file comes from. Part of the caller's write transaction."""
    connection.execute("""
        delete from models where id not in (select model_id from collections where model_id is not null)
            and not exists (
                select 1 from vectors where vectors.id between models.id << 40 and (models.id + 1 << 40) - 1)
    """)


def collections_to_reembed(connection: apsw.Connection, name: str | None = None) -> list[Collection]:
    """Return the collection of that name, or (for None) those of documents that have passages, as the caller sees them.

    Raises:
        NotFound: there is no such collection.
    """
    if name:
        return choose_collections(connection, [name])
    filled = set(fetch_column(connection, "select distinct collection_id from sources where chunk_count > 0"))
    return [collection for collection in visible_collections(connection) if collection.id in filled]
