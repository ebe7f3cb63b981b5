"""The queue of passages without vectors: which are next, who works on them, and how their vectors are written.

A document is in the queue while one of its passages has no vector of its collection's model. Passages of the kind
`data` are found by their words alone and never wait.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
import uuid
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import apsw

from localmcp.index.collections import ensure_model, find_model
from localmcp.index.drafts import WORD_ONLY
from localmcp.index.lexicon import EMBEDDED_TITLE
from localmcp.index.sentence_codes import sentence_codes
from localmcp.index.vector import Made, add_signs, write_vectors
from localmcp.index.word_vectors import index_words, keep_words, words_of
from localmcp.models import Embedder
from localmcp.readers.chunking import put_below, shorten_prefix, without_addresses
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_one
from localmcp.storage.times import recent_bounds, utc_now

ROUND = 512
"""Passages that are looked up together; what was added meanwhile comes after them."""
NEWEST_SHARE = 4
"""A fourth of a round comes from the newest document, the rest from the smallest ones."""
LEAST_BATCH, MOST_BATCH = 8, 1024
MOST_BEHIND = 16
"""A search does not wait long for so many."""
BATCH_SECONDS = 1.0
"""A batch grows or shrinks towards this time: a kill loses one, and a stop waits for one."""
SHARED_FROM = 200
"""Characters from which equal passages of a collection share a vector whatever their titles: a license in all files."""
LEASE = "vectors"
LEASE_SECONDS = 30.0
"""Whoever has not written for so long has lost the lease."""
WAIT_SECONDS = 0.3

BEHIND, FRONT = 0, 1
"""Ranks of workers: somebody waits in front, nobody does behind; a higher rank takes the lease over."""


# ---------------------------------------------------------------- what waits


@dataclass(frozen=True, slots=True)
class Waiting:
    """The passages without a vector yet."""

    passages: int = 0
    characters: int = 0


def waiting(connection: apsw.Connection, collection_ids: Iterable[int]) -> Waiting:
    """Count what waits in those collections."""
    sql = """
        select coalesce(sum(passages), 0), coalesce(sum(characters), 0) from vector_queue
        cross join sources on sources.id = source_id -- in this order: the queue is mostly empty
        where collection_id in (select value from carray(?))
    """
    ids = array("q", collection_ids)
    return Waiting(*fetch_one(connection, sql, (apsw.carray(ids),))) if ids else Waiting()


def word_only_passages(connection: apsw.Connection, collection_ids: Iterable[int]) -> int:
    """Count the passages of those collections that are indexed by word only."""
    sql = (
        "select coalesce(sum(chunks), 0) from groups where kind = ? and collection_id in (select value from carray(?))"
    )
    ids = array("q", collection_ids)
    return fetch_one(connection, sql, (WORD_ONLY, apsw.carray(ids))) if ids else 0


def requeue(connection: apsw.Connection, source_ids: Iterable[int]) -> None:
    """Count again what waits of those documents. Part of the caller's write transaction."""
    ids = array("q", source_ids)
    if not ids:
        return
    connection.execute("delete from vector_queue where source_id in (select value from carray(?))", (apsw.carray(ids),))
    connection.execute(f"{_INSERT} where sources.id in (select value from carray(?)) and {_WAITS}", (apsw.carray(ids),))


def requeue_collection(connection: apsw.Connection, collection_id: int) -> None:
    """Count again what waits of a collection whose model has changed. Part of the caller's write transaction."""
    sql = "delete from vector_queue where source_id in (select id from sources where collection_id = ?)"
    connection.execute(sql, (collection_id,))
    connection.execute(f"{_INSERT} where sources.collection_id = ? and {_WAITS}", (collection_id,))


_COUNTED = """
    select sources.id, count(*) as passages, sum(stop - start) as characters from sources
    join collections on collections.id = sources.collection_id
    join chunks on chunks.source_id = sources.id join groups on groups.id = group_id
"""
_INSERT = f"insert into vector_queue (source_id, passages, characters) {_COUNTED}"
_WAITS = f"""
    trashed_at is null and groups.kind <> '{WORD_ONLY}' and collections.kind = 'documents'
    and not exists (select 1 from vectors where vectors.id = (coalesce(collections.model_id, 0) << 40 | chunks.id))
    group by sources.id
"""


def miscounted(connection: apsw.Connection) -> int:
    """Count the documents of which the queue says something wrong; 0 in a sound file."""
    expected = f"{_COUNTED} where {_WAITS}"
    return fetch_one(
        connection,
        f"""
        select count(*) from (
            select * from ({expected}) except select source_id, passages, characters from vector_queue
            union all select * from (
                select source_id, passages, characters from vector_queue except select * from ({expected})
            )
        )
        """,
    )


# ---------------------------------------------------------------- passages


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage that is to be embedded."""

    chunk_id: int
    source_id: int
    collection_id: int
    text: str
    """As it is embedded: title and headings, then the passage."""
    prose: str
    """The passage alone; empty for code, which has no sentences."""
    language: str
    key: int
    """Passages of one key share one vector."""
    characters: int
    """Of the passage alone, as the queue counts them."""


_PASSAGE = f"""
    select chunks.id, source_id, sources.collection_id, {EMBEDDED_TITLE}, headings, text, groups.language, groups.kind,
        stop - start
    from chunks join sources on sources.id = source_id join groups on groups.id = group_id
"""
_LACKING = f"""
    {_PASSAGE} where trashed_at is null and groups.kind <> '{WORD_ONLY}'
        and not exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
"""


def next_passages(
    connection: apsw.Connection, model_id: int, collection_ids: Sequence[int], sources: Sequence[int] | None = None
) -> list[Passage]:
    """Return a round of passages without a vector: of the newest document, then of the smallest ones.

    `sources` restricts them. Documents of a collection that another model reads are left out.
    """
    restriction = "" if sources is None else "and source_id in (select value from carray(:sources))"
    sql = f"""
        select source_id, passages from vector_queue join sources on sources.id = source_id
        join collections on collections.id = collection_id
        where (model_id is null or model_id = :model) and collection_id in (select value from carray(:collections))
            {restriction}
    """
    values: dict[str, Any] = {"model": model_id, "collections": apsw.carray(array("q", collection_ids))}
    if sources is not None:
        values["sources"] = apsw.carray(array("q", sources))
    newest = fetch_all(connection, f"{sql} order by source_id desc limit 1", values)
    smallest = fetch_all(connection, f"{sql} order by passages, source_id desc limit {ROUND}", values)
    chosen = passages_of(connection, model_id, [row[0] for row in newest], ROUND // NEWEST_SHARE)
    ids = list(_up_to(smallest, ROUND))
    chosen_ids = {passage.chunk_id for passage in chosen}
    others = passages_of(connection, model_id, ids, ROUND)
    return [*chosen, *(passage for passage in others if passage.chunk_id not in chosen_ids)]


def _up_to(rows: Iterable[tuple[int, int]], limit: int) -> Iterator[int]:
    for source_id, passages in rows:
        yield source_id
        limit -= passages
        if limit <= 0:
            return


def passages_of(connection: apsw.Connection, model_id: int, source_ids: Sequence[int], limit: int) -> list[Passage]:
    """Return the passages without a vector of those documents, in their order."""
    sql = f"{_LACKING} and source_id = ? order by position limit ?"
    chosen: list[Passage] = []
    for source_id in source_ids:
        rows = fetch_all(connection, sql, (model_id, source_id, limit - len(chosen)))
        chosen += [_passage(*row) for row in rows]
        if len(chosen) >= limit:
            break
    return chosen


def passages_lacking(connection: apsw.Connection, collection_id: int, model_id: int, limit: int) -> list[Passage]:
    """Return passages of a collection without a vector of that model, which need not be the collection's own."""
    sql = f"{_LACKING} and sources.collection_id = ? order by chunks.id limit ?"
    return [_passage(*row) for row in fetch_all(connection, sql, (model_id, collection_id, limit))]


def _passage(
    chunk_id: int, source_id: int, collection_id: int, title: str, headings: str, text: str, language: str, kind: str,
    characters: int,
) -> Passage:  # fmt: skip
    bare = without_addresses(text.strip())
    embedded = put_below(shorten_prefix(title, tuple(json.loads(headings))), bare)
    # By collection: a vector made below a title of another one would tell by its scores that the text is there too.
    key = _key(f"{collection_id} {bare}" if len(bare) >= SHARED_FROM else embedded)
    return Passage(
        chunk_id, source_id, collection_id, embedded, "" if kind == "code" else bare, language, key, characters
    )


def _key(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


# ---------------------------------------------------------------- vectors


def make_vectors(database: Database, embedder: Embedder, passages: Sequence[Passage]) -> dict[int, Made]:
    """Return chunk id -> what the model makes of it; equal passages are read once.

    Raises:
        ModelUnavailable: the model failed.
    """
    with database.read() as connection:
        model_id = find_model(connection, embedder.identity) or 0
        read = _read_already(connection, model_id, {passage.key for passage in passages})
    fresh = {passage.key: passage for passage in passages if passage.key not in read}
    if fresh:
        vectors = embedder.embed_passages([passage.text for passage in fresh.values()])
        rows = (row.tobytes() for row in vectors.astype("<f4", copy=False))
        codes = sentence_codes(embedder, [passage.prose for passage in fresh.values()])
        words = words_of(embedder, [passage.text for passage in fresh.values()])
        stems = map(index_words, (passage.language for passage in fresh.values()), words)
        read |= zip(fresh, map(Made, rows, codes, stems), strict=True)
    return {passage.chunk_id: read[passage.key] for passage in passages}


def _read_already(connection: apsw.Connection, model_id: int, keys: Iterable[int]) -> dict[int, Made]:
    """Return key -> what was made of an equal passage that was read already."""
    sql = f"""
        {_PASSAGE} join equal_passages on chunk_id = chunks.id
        where key in (select value from carray(?)) and exists (select 1 from vectors where id = (? << 40 | chunks.id))
    """
    rows = fetch_all(connection, sql, (apsw.carray(array("q", keys)), model_id))
    # Compared again: a record keeps its id when its text changes.
    equal = {passage.chunk_id: passage.key for row in rows if (passage := _passage(*row))}
    sql = """
        select vectors.id & 1099511627775, embedding, coalesce(codes, x'')
        from vectors left join sentence_codes on sentence_codes.id = vectors.id
        where vectors.id in (select ? << 40 | value from carray(?))
    """
    equal_rows = fetch_all(connection, sql, (model_id, apsw.carray(array("q", equal)))) if equal else []
    return {equal[chunk_id]: Made(embedding, codes) for chunk_id, embedding, codes in equal_rows}


def remember_keys(connection: apsw.Connection, passages: Iterable[Passage]) -> None:
    """Write down whose vectors equal passages can share. Part of the caller's write transaction."""
    sql = "insert or replace into equal_passages (key, chunk_id) values (?, ?)"
    connection.executemany(sql, ((passage.key, passage.chunk_id) for passage in passages))


def still_lacking(connection: apsw.Connection, model_id: int, passages: Sequence[Passage]) -> list[Passage]:
    """Return those that have not left the file meanwhile, nor got their vector from another process."""
    sql = """
        select chunks.id from chunks join sources on sources.id = source_id
        where chunks.id in (select value from carray(?)) and trashed_at is null
            and not exists (select 1 from vectors where vectors.id = (? << 40 | chunks.id))
    """
    ids = apsw.carray(array("q", (passage.chunk_id for passage in passages)))
    lacking = {row[0] for row in fetch_all(connection, sql, (ids, model_id))} if passages else set[int]()
    return [passage for passage in passages if passage.chunk_id in lacking]


def write_batch(
    connection: apsw.Connection, model_id: int, passages: Sequence[Passage], made: Mapping[int, Made]
) -> list[Passage]:
    """Store vectors and take their passages out of the queue; returns the passages that still lacked one.

    Part of the caller's write transaction. A collection without a model is bound to this one.
    """
    written: list[Passage] = []
    for collection_id in dict.fromkeys(passage.collection_id for passage in passages):
        sql = "update collections set model_id = ? where id = ? and coalesce(model_id, ?) = ?"
        connection.execute(sql, (model_id, collection_id, model_id, model_id))
        if not connection.changes():
            continue
        part = still_lacking(connection, model_id, [p for p in passages if p.collection_id == collection_id])
        write_vectors(connection, model_id, {passage.chunk_id: made[passage.chunk_id] for passage in part})
        add_signs(connection, model_id, collection_id, {passage.chunk_id: passage.source_id for passage in part})
        written += part
    remember_keys(connection, written)
    keep_words(connection, model_id, dict(word for passage in written for word in made[passage.chunk_id].words))
    connection.executemany(
        "update vector_queue set passages = passages - 1, characters = characters - ? where source_id = ?",
        ((passage.characters, passage.source_id) for passage in written),
    )
    connection.execute("delete from vector_queue where passages <= 0")
    bump_generations(connection, "signs")
    return written


# ---------------------------------------------------------------- the lease


class Lease:
    """The right to do something, as to make vectors, which one worker of all processes has at a time."""

    ended: ClassVar[set[str]] = set()
    """Workers of this process that ended without giving it back, since the disk was full."""

    def __init__(self, rank: int, name: str = LEASE, seconds: float = LEASE_SECONDS) -> None:
        """`seconds`: whoever has not renewed it for so long has lost it."""
        self.rank = rank
        self.name = name
        self.seconds = seconds
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"

    def take(self, connection: apsw.Connection) -> bool:
        """Take or renew it, unless another worker has it. Part of the caller's write transaction."""
        row = fetch_one(connection, "select holder, rank, beat_at from leases where name = ?", (self.name,))
        if row is not None and row[0] != self.holder and row[1] >= self.rank:
            if is_alive(row[0], row[2], self.seconds):
                return False
        connection.execute(
            "insert or replace into leases (name, holder, rank, beat_at) values (?, ?, ?, ?)",
            (self.name, self.holder, self.rank, utc_now()),
        )
        return True

    def release(self, database: Database) -> None:
        """Give it back, if this worker has it.

        Raises:
            FileUnavailable: the file cannot be written; whoever asks next gets it nevertheless.
        """
        Lease.ended.add(self.holder)
        with database.write() as connection:
            connection.execute("delete from leases where name = ? and holder = ?", (self.name, self.holder))
        Lease.ended.remove(self.holder)


@contextmanager
def front_lease(database: Database) -> Generator[Lease]:
    """Yield the lease in front, once no other worker of this rank has it."""
    lease = Lease(FRONT)
    try:
        while True:
            with database.write() as connection:
                if lease.take(connection):
                    break
            time.sleep(WAIT_SECONDS)
        yield lease
    finally:
        lease.release(database)


def is_alive(holder: str, beat_at: str, seconds: float = LEASE_SECONDS) -> bool:
    """Return whether a holder has renewed its lease in time, and its process is there, as far as one can see."""
    earliest, latest = recent_bounds(seconds)
    if holder in Lease.ended or not earliest <= beat_at <= latest:
        return False
    process = process_of(holder)
    # Asking Windows for a process in this way would end it.
    if not process or sys.platform == "win32":
        return True
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True


def process_of(holder: str) -> int:
    """Return the number of a holder's process; 0 if it is on another machine, or unknown."""
    host, _, process_and_thread = holder.partition(":")
    process = process_and_thread.partition(":")[0]
    return int(process) if host == socket.gethostname() and process.isdigit() else 0


# ---------------------------------------------------------------- working it off

Tell = Callable[[int], None]
"""Called after each batch with the passages that got their vectors in it; 0 while another worker has the lease."""


@dataclass(slots=True)
class QueueWorker:
    """Makes the vectors of one file, batch by batch, as long as it has the lease."""

    database: Database
    embedder: Embedder
    rank: int = FRONT
    most: int = MOST_BATCH
    """Passages of a batch; less where a search must not wait."""
    _size: int = 2 * LEAST_BATCH

    def run(
        self, collection_ids: Sequence[int], *, sources: Sequence[int] | None = None,
        tell: Tell = lambda passages: None, stop: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Work until nothing waits that this model reads, or `stop` says so.

        In front it waits for another worker of its rank; behind it leaves the work to whoever has the lease.

        Raises:
            ModelUnavailable: the model failed; what was made is kept.
            FileUnavailable: the file cannot be written.
        """
        lease, ours = Lease(self.rank), False
        try:
            while not stop() and (passages := self._look_up(collection_ids, sources)):
                with self.database.write() as connection:
                    ours = lease.take(connection)
                if ours:
                    self._work(lease, passages, tell, stop)
                elif self.rank == BEHIND:
                    break
                else:
                    tell(0)
                    time.sleep(WAIT_SECONDS)
        finally:
            if ours:
                lease.release(self.database)

    def _look_up(self, collection_ids: Sequence[int], sources: Sequence[int] | None) -> list[Passage]:
        with self.database.read() as connection:
            model_id = find_model(connection, self.embedder.identity) or 0
            return next_passages(connection, model_id, collection_ids, sources)

    def _work(self, lease: Lease, passages: Sequence[Passage], tell: Tell, stop: Callable[[], bool]) -> None:
        """Embed and write one round, up to a stop or the lease's loss."""
        at = 0
        while at < len(passages) and not stop():
            batch = passages[at : at + self._size]
            begin = time.perf_counter()
            written, ours = self._finish(lease, batch)
            at += len(batch)
            self._adapt(time.perf_counter() - begin, len(batch))
            tell(len(written))
            if not ours:
                return

    def _finish(self, lease: Lease, batch: Sequence[Passage]) -> tuple[list[Passage], bool]:
        """Embed and write one batch; also returns whether the lease is still ours."""
        made = make_vectors(self.database, self.embedder, batch)
        with self.database.write() as connection:
            model_id = ensure_model(connection, self.embedder.identity)
            written = write_batch(connection, model_id, batch, made)
            if not written:
                # The queue is wrong about them: without this they would come again and again.
                requeue(connection, {passage.source_id for passage in batch})
            return written, lease.take(connection)

    def _adapt(self, seconds: float, passages: int) -> None:
        if seconds < BATCH_SECONDS / 2 and passages >= self._size:
            self._size = min(2 * self._size, self.most)
        elif seconds > 2 * BATCH_SECONDS:
            self._size = max(self._size // 2, LEAST_BATCH)
