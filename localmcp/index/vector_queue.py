"""The queue of passages without vectors: which are next, who works on them, and how their vectors are written.

A passage is in the queue while it has no vector of its collection's model. Passages of the kind `data` are found by
their words alone and never wait.

Another model for what is in the file: its vectors are made beside the old ones, which answer until all are there. Only
the vectors of a collection's own model have sign codes, which a search scans, so the switch to other vectors is one
transaction. The old vectors stay until they are cleaned away: with them, the way back is as quick.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import apsw

from localmcp.index.collections import Collection, calibrate, ensure_model, find_model, spec_of, visible_collections
from localmcp.index.drafts import WORD_ONLY
from localmcp.index.multilingual import WordReader, keep_words, sentence_codes, stems_with_codes
from localmcp.index.passages import Passage, load_passages
from localmcp.index.vector import Made, add_signs, write_vectors
from localmcp.models import Embedder
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_column, fetch_one, id_list
from localmcp.storage.schema import utc_now

FIRST_BATCH, LEAST_BATCH, MOST_BATCH = 16, 8, 1024
BATCH_SECONDS = 1.0
"""A batch grows or shrinks towards this time: a kill loses one, and a stop waits for one."""
LEASE = "vectors"
LEASE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """The passages without a vector yet."""

    passages: int = 0
    characters: int = 0


def waiting(connection: apsw.Connection, collection_ids: Iterable[int]) -> Waiting:
    """Count what waits in those collections."""
    among = ",".join(map(str, collection_ids))
    sql = f"select count(*), coalesce(sum(characters), 0) from vector_queue where collection_id in ({among})"
    return Waiting(*fetch_one(connection, sql))


def word_only_passages(connection: apsw.Connection, collection_ids: Iterable[int]) -> int:
    """Count the passages of those collections that are indexed by word only."""
    sql = f"select sum(chunks) from groups where kind = ? and collection_id in ({','.join(map(str, collection_ids))})"
    return fetch_one(connection, sql, (WORD_ONLY,)) or 0


_WAITING = f"""
    select chunks.id, sources.collection_id, stop - start from sources
    join collections on collections.id = sources.collection_id
    join chunks on chunks.source_id = sources.id join groups on groups.id = group_id
    where trashed_at is null and groups.kind <> '{WORD_ONLY}' and collections.kind = 'documents'
        and not exists (select 1 from vectors where vectors.id = (coalesce(collections.model_id, 0) << 40 | chunks.id))
"""


def requeue(connection: apsw.Connection, source_ids: Iterable[int]) -> None:
    """Look again what waits of those documents. Part of the caller's write transaction."""
    ids, among = id_list(source_ids), "in (select value from carray(?))"
    sql = f"delete from vector_queue where chunk_id in (select id from chunks where source_id {among})"
    connection.execute(sql, (ids,))
    connection.execute(f"insert into vector_queue {_WAITING} and sources.id {among}", (ids,))


def requeue_collection(connection: apsw.Connection, collection_id: int) -> None:
    """Look again what waits of a collection whose model has changed. Part of the caller's write transaction."""
    connection.execute("delete from vector_queue where collection_id = ?", (collection_id,))
    connection.execute(f"insert into vector_queue {_WAITING} and sources.collection_id = ?", (collection_id,))


def misqueued(connection: apsw.Connection) -> int:
    """Count the passages that wait and are not in the queue, or the other way round; 0 in a sound file."""
    queued = "select chunk_id, collection_id, characters from vector_queue"
    sql = "select count(*) from (select * from ({}) except select * from ({}))"
    return fetch_one(connection, f"select ({sql.format(_WAITING, queued)}) + ({sql.format(queued, _WAITING)})")


def next_passages(
    connection: apsw.Connection, model_id: int, limit: int, collection_ids: Sequence[int],
    sources: Sequence[int] | None = None,
) -> list[Passage]:  # fmt: skip
    """Return the newest passages of those collections that wait for this model; `sources` restricts them."""
    among = "and chunk_id in (select id from chunks where source_id in (select value from carray(:sources)))"
    sql = f"""
        select chunk_id from vector_queue where collection_id in (
            select id from collections where coalesce(model_id, :model) = :model
                and id in ({",".join(map(str, collection_ids))}))
        {"" if sources is None else among}
        order by chunk_id desc limit :limit
    """
    values = {"model": model_id, "limit": limit, "sources": id_list(sources or ())}
    return [*load_passages(connection, fetch_column(connection, sql, values)).values()]


def make_vectors(database: Database, embedder: Embedder, passages: Sequence[Passage]) -> dict[int, Made]:
    """Return chunk id -> what the model makes of it (ModelUnavailable); equal passages, and those of copies of a file,
    are read once."""
    # Of the same passage in another copy of its file, also of one in the trash.
    sql = """
        select chunks.digest, embedding, coalesce(codes, x'') from sources
        join sources as copy on copy.sha256 = sources.sha256 and copy.id <> sources.id
        join chunks on chunks.source_id = copy.id
        join vectors on vectors.id = (:model << 40 | chunks.id)
        left join sentence_codes on sentence_codes.id = vectors.id
        where sources.id in (select value from carray(:sources))
            and chunks.digest in (select value from carray(:digests))
    """
    sources = id_list({passage.source_id for passage in passages})
    digests = apsw.carray(tuple({passage.digest for passage in passages}))
    with database.read() as connection:
        values = {"model": find_model(connection, embedder.identity) or 0, "sources": sources, "digests": digests}
        made = {digest: Made(embedding, codes) for digest, embedding, codes in fetch_all(connection, sql, values)}
    fresh = {passage.digest: passage for passage in passages if passage.digest not in made}
    if fresh:
        texts = [passage.embedded for passage in fresh.values()]
        rows = (row.tobytes() for row in embedder.embed_passages(texts).astype("<f4", copy=False))
        codes: list[Sequence[Any]] = []
        if isinstance(embedder, WordReader):
            codes.append(sentence_codes(embedder, [passage.prose for passage in fresh.values()]))
            codes.append(stems_with_codes(embedder, texts, [passage.language for passage in fresh.values()]))
        made |= zip(fresh, map(Made, rows, *codes), strict=True)
    return {passage.chunk_id: made[passage.digest] for passage in passages}


def write_batch(
    connection: apsw.Connection, model_id: int, passages: Sequence[Passage], made: Mapping[int, Made]
) -> int:
    """Store the vectors of passages that still lack one and take them out of the queue; returns how many were stored.

    Part of the caller's write transaction. A collection without a model is bound to this one; in a collection that
    another model reads, the vectors answer nothing yet.
    """
    sql = """
        select chunks.id from chunks join sources on sources.id = source_id
        where chunks.id in (select value from carray(?)) and trashed_at is null
            and not exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
    """
    ids = id_list(passage.chunk_id for passage in passages)
    lacking = {row[0] for row in fetch_all(connection, sql, (ids, model_id))}
    written = [passage for passage in passages if passage.chunk_id in lacking]
    write_vectors(connection, model_id, {passage.chunk_id: made[passage.chunk_id] for passage in written})
    keep_words(connection, model_id, dict(word for passage in written for word in made[passage.chunk_id].words))
    for collection_id in dict.fromkeys(passage.collection_id for passage in passages):
        sql = "update collections set model_id = ? where id = ? and coalesce(model_id, ?) = ?"
        connection.execute(sql, (model_id, collection_id, model_id, model_id))
        if connection.changes():
            part = [passage for passage in written if passage.collection_id == collection_id]
            add_signs(connection, model_id, collection_id, {passage.chunk_id: passage.source_id for passage in part})
            # Also what lacks nothing: it would come again and again.
            sql = "delete from vector_queue where chunk_id in (select value from carray(?)) and collection_id = ?"
            connection.execute(sql, (ids, collection_id))
    bump_generations(connection, "signs")
    return len(written)


class Lease:
    """The right to do something, as to make vectors, which one worker of all processes has at a time."""

    ended: ClassVar[set[str]] = set()
    """Holders of this process that ended, also those that could not give it back since the disk was full."""

    def __init__(self, name: str = LEASE, seconds: float = LEASE_SECONDS) -> None:
        """`seconds`: whoever has not renewed it for so long has lost it."""
        self.name = name
        self.seconds = seconds
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"

    def take(self, connection: apsw.Connection) -> bool:
        """Take or renew it, unless another worker has it. Part of the caller's write transaction."""
        row = fetch_one(connection, "select holder, beat_at from leases where name = ?", (self.name,))
        if row is not None and row[0] != self.holder and is_alive(row[0], row[1], self.seconds):
            return False
        sql = "insert or replace into leases (name, holder, beat_at) values (?, ?, ?)"
        connection.execute(sql, (self.name, self.holder, utc_now()))
        return True

    def give_back(self, connection: apsw.Connection) -> None:
        """Give it back, if this worker has it. Part of the caller's write transaction."""
        connection.execute("delete from leases where name = ? and holder = ?", (self.name, self.holder))

    def release(self, database: Database) -> None:
        """Give it back for good; where the file cannot be written, whoever asks next gets it nevertheless."""
        Lease.ended.add(self.holder)
        with database.write() as connection:
            self.give_back(connection)


def is_alive(holder: str, beat_at: str, seconds: float = LEASE_SECONDS) -> bool:
    """Return whether a holder has renewed its lease in time, and its process is there, as far as one can see."""
    # Later times were written before a clock was set back.
    if holder in Lease.ended or not utc_now(seconds) <= beat_at <= utc_now(-seconds):
        return False
    process = process_of(holder)
    # Asking Windows for a process in this way would end it.
    if process and sys.platform != "win32":
        try:
            os.kill(process, 0)
        except (OSError, OverflowError) as error:
            return isinstance(error, PermissionError)
    return True


def process_of(holder: str) -> int:
    """Return the number of a holder's process; 0 if it is on another machine, or unknown."""
    host, _, process_and_thread = holder.partition(":")
    process = process_and_thread.partition(":")[0]
    return int(process) if host == socket.gethostname() and process.isdigit() else 0


def work_off(
    database: Database, embedder: Embedder, next_of: Callable[[apsw.Connection, int, int], list[Passage]], *,
    behind: bool = False, tell: Callable[[int], None] = lambda passages: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Make vectors of what `next_of` gives until that is nothing, or `stop` says so; it gets the id of the model, 0 for
    a new one, and how many passages to give at most.

    Somebody waits in front: it waits for another worker, and keeps the lease to the end. `behind` leaves the work to
    whoever has the lease, and gives it back after each batch. `tell` is called after each batch with the passages that
    got their vectors in it; with 0 while another worker has the lease. ModelUnavailable if the model fails; what was
    made is kept.
    """
    lease, ours = Lease(), False
    # A search does not wait long for 16.
    size, most = FIRST_BATCH, 16 if behind else MOST_BATCH
    try:
        while not stop():
            with database.read() as connection:
                model_id = find_model(connection, embedder.identity) or 0
                passages = next_of(connection, model_id, size)
            if not passages:
                return
            if not ours:
                with database.write() as connection:
                    ours = lease.take(connection)
            if not ours:
                if behind:
                    return
                tell(0)
                time.sleep(0.3)
                continue
            begin = time.perf_counter()
            made = make_vectors(database, embedder, passages)
            with database.write() as connection:
                written = write_batch(connection, ensure_model(connection, embedder.identity), passages, made)
                if behind:
                    lease.give_back(connection)
                ours = not behind and lease.take(connection)
            growth = min(BATCH_SECONDS / max(time.perf_counter() - begin, 1e-3), 2.0)
            size = min(max(int(size * growth), LEAST_BATCH), most)
            if not model_id:
                calibrate(database, embedder)
            tell(written)
    finally:
        if ours:
            lease.release(database)


# ---------------------------------------------------------------- another model

REFRESH = "localmcp refresh"
"""The command that makes missing vectors."""


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
    database: Database, collection: Collection, embedder: Embedder,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Reembedded:  # fmt: skip
    """Give every passage of a collection a vector, then let these answer; goes on where a run was killed."""
    lacking = f"""
        select chunks.id from chunks
        cross join sources on sources.id = source_id cross join groups on groups.id = group_id
        where sources.collection_id = ? and trashed_at is null and groups.kind <> '{WORD_ONLY}'
            and not exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
    """
    sql = "select models.name, dimension from models join collections on models.id = model_id where collections.id = ?"
    with database.write() as connection:
        model_id = ensure_model(connection, embedder.identity)
        before = fetch_one(connection, sql, (collection.id,))
        total = fetch_one(connection, f"select count(*) from ({lacking})", (collection.id, model_id))
    calibrate(database, embedder)
    done = Reembedded(collection.name, embedder.identity.name, spec_of(*before) if before else None)

    def count(passages: int) -> None:
        done.embedded += passages
        tell(min(done.embedded, total), total)

    def next_lacking(connection: apsw.Connection, model_id: int, limit: int) -> list[Passage]:
        sql = f"{lacking} order by chunks.id limit ?"
        return [*load_passages(connection, fetch_column(connection, sql, (collection.id, model_id, limit))).values()]

    while not done.switched:
        work_off(database, embedder, next_lacking, tell=count)
        with database.write() as connection:
            model_id = ensure_model(connection, embedder.identity)
            if next_lacking(connection, model_id, 1):
                continue
            sql = "update collections set model_id = ?1 where id = ?2 and model_id is not ?1"
            connection.execute(sql, (model_id, collection.id))
            if not connection.changes():
                break
            rebuild_signs(connection, collection.id, model_id)
            requeue_collection(connection, collection.id)
            # How much meaning counts was measured with the other model.
            sql = "update groups set gap = null, measured_chunks = 0 where collection_id = ?"
            connection.execute(sql, (collection.id,))
            bump_generations(connection, "content")
            done.switched = True
    return done


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
    """Make a collection's sign codes again from its vectors of that model; returns how many. Part of a transaction."""
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
    """Delete vectors of rules that no longer answer, and models that nothing comes from. Part of a transaction."""
    connection.execute("""
        delete from vectors where id in (select (models.id << 40) + (1 << 39) + rules.id from models cross join rules)
            and id not in (select embedding from rules where embedding is not null);
        delete from models where id not in (select model_id from collections where model_id is not null)
            and not exists (
                select 1 from vectors where vectors.id between models.id << 40 and (models.id + 1 << 40) - 1)
    """)


def filled_collections(connection: apsw.Connection) -> list[Collection]:
    """Return the visible collections that have passages."""
    filled = set(fetch_column(connection, "select distinct collection_id from sources where chunk_count > 0"))
    return [collection for collection in visible_collections(connection) if collection.id in filled]
