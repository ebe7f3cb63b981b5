"""Copy a collection to Milvus in batches: resumed where it was stopped, checked at the end, then kept up to date.

One process at a time sends to one copy. It sends chunks before it deletes them from the queue: after a kill between
the two they are sent again, which changes nothing.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from localmcp.arrays import np
from localmcp.errors import InvalidInput, LocalMCPError, Unavailable
from localmcp.index import replicas
from localmcp.index.collections import Collection
from localmcp.index.replicas import Replica, model_text, replica_of, same_model
from localmcp.index.vector_queue import FRONT, LEASE_SECONDS, Lease
from localmcp.milvus.backend import MilvusBackend
from localmcp.records.chunk_records import load_records
from localmcp.storage.database import Database, fetch_one

log = logging.getLogger(__name__)

BATCH = 500
SAMPLE = 64
"""Vectors that are read back and compared."""
INDEX_SECONDS = 600
"""How long a push waits until what was sent is indexed; a server needs half a minute for ten thousand."""
COMPARED_ANYWAY = 4000
"""Vectors without an index that a server compares one by one."""
FLUSH_FROM = 2000
"""Changes after which the server is asked to index them."""
ATTEMPTS = 3
"""How often the copy is compared with a file that changes meanwhile, or repaired."""
NEAR_ENOUGH = 1e-4
"""Largest difference of a number in a vector that comes back."""

Progress = Callable[[int, int], None]
"""Called with the vectors that are there, and all of them."""


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a push."""

    replica: Replica
    total: int
    """Vectors that the copy holds."""
    sent: int
    """Vectors sent or deleted there this time."""
    resumed: bool
    """An earlier push had begun."""
    indexed: bool
    """Milvus has indexed all of it; until then searches find less."""


class Sender:
    """Sends the collections of one file to one Milvus. Thread-safe."""

    def __init__(self, database: Database, milvus: MilvusBackend) -> None:
        self._database = database
        self._milvus = milvus
        self._lock = threading.Lock()
        self._locks: dict[int, threading.RLock] = {}
        self._leases: dict[int, Lease] = {}

    # ------------------------------------------------------------ copying

    def copy(self, collection: Collection, name: str | None, progress: Progress | None = None) -> Copied:
        """Copy a collection, or complete a copy that was begun; then searches use it.

        Raises:
            InvalidInput: no vectors yet; the name is taken by another collection; it is copied under another name.
            Unavailable: the server does not answer, or another process sends. What was copied is kept.
        """
        resumed = self._prepare(collection, name)
        with self._sending(collection.id, wait=True):
            sent = self._copy_remaining(collection.id, progress) + self._send_changes(collection.id)
            indexed = self._index(collection.id, flush=sent > 0)
            total, corrected = self._complete(collection.id)
            if progress:
                progress(total, total)
        return Copied(self._replica(collection.id), total, sent + corrected, resumed, indexed)

    def _index(self, collection_id: int, *, flush: bool) -> bool:
        """Let Milvus index what was sent, and wait for it; return False if that takes too long."""
        name = self._replica(collection_id).name
        if flush:
            self._milvus.flush(name)
        for _ in range(INDEX_SECONDS):
            if self._milvus.unindexed(name) <= COMPARED_ANYWAY:
                return True
            with self._database.write() as connection:
                self._renew(connection, collection_id)
            time.sleep(1)
        log.warning("Milvus has not indexed '%s' after %d s; until then searches find less.", name, INDEX_SECONDS)
        return False

    def _prepare(self, collection: Collection, name: str | None) -> bool:
        """Make the collection in Milvus and the row in the file; return whether both were there."""
        if collection.model_id is None:
            raise InvalidInput(f"Collection '{collection.name}' has no vectors yet.", hint="Add documents to it first.")
        with self._database.read() as connection:
            replica = replica_of(connection, collection.id)
            model = model_text(connection, collection.model_id)
            origin = _origin(connection, collection)
        if replica is not None and name not in (None, replica.name):
            raise InvalidInput(
                f"Collection '{collection.name}' is copied to Milvus as '{replica.name}'.",
                hint=f"End that first: localmcp push {collection.name} --stop",
            )
        target = name or (replica.name if replica else collection.name)
        was_there = self._make(target, model, origin)
        if replica is None or not was_there or not replica.current:
            with self._database.write() as connection:
                replicas.begin_replica(connection, collection.id, target, collection.model_id)
            return False
        return True

    def _make(self, name: str, model: str, origin: dict[str, Any]) -> bool:
        """Make the collection in Milvus; return whether it was there, of this file and this model."""
        if name in self._milvus.collections():
            about = self._milvus.about(name) or {}
            theirs: dict[str, Any] = about.get("origin") or {}
            if any(theirs.get(key) != origin[key] for key in ("file", "collectionId")):
                whose = "another localmcp file" if about else "another program"
                raise InvalidInput(
                    f"Milvus has a collection '{name}' already, made by {whose}.", hint="Choose a name with --as NAME."
                )
            if same_model(str(about.get("model", "")), model):
                return True
            # Embedded again by another model: the old vectors are useless.
            self._milvus.drop(name)
        dimension = int(origin["identity"]["dimension"])
        self._milvus.create(name, dimension, model, origin=origin)
        return False

    def _copy_remaining(self, collection_id: int, progress: Progress | None) -> int:
        """Send what follows the last chunk that was copied; returns how many."""
        done, total = self._progress(collection_id)
        sent = 0
        while (replica := self._replica(collection_id)).state == "copying":
            with self._database.read() as connection:
                ids = replicas.chunk_ids_after(connection, collection_id, replica.model_id, replica.copied, BATCH)
                records = load_records(connection, collection_id, replica.model_id, ids)
            if not ids:
                break
            self._milvus.upsert(replica.name, records, moved=False)
            with self._database.write() as connection:
                self._renew(connection, collection_id)
                replicas.write_copied(connection, collection_id, ids[-1])
            sent += len(records)
            if progress:
                progress(done + sent, max(total, done + sent))
        return sent

    def _progress(self, collection_id: int) -> tuple[int, int]:
        """Return vectors that have been copied, and all of them."""
        replica = self._replica(collection_id)
        with self._database.read() as connection:
            args = (connection, collection_id, replica.model_id)
            return replicas.count_chunks(*args, up_to=replica.copied), replicas.count_chunks(*args)

    # ------------------------------------------------------------ checking

    def _complete(self, collection_id: int) -> tuple[int, int]:
        """Compare the copy with the file, correct differences, and let searches use it.

        Returns its count, and how many vectors were corrected.
        """
        expected = remote_count = corrected = 0
        for _ in range(ATTEMPTS):
            corrected += self._send_changes(collection_id)
            replica = self._replica(collection_id)
            with self._database.read() as connection:
                expected = replicas.count_chunks(connection, collection_id, replica.model_id)
            remote_count = self._milvus.count(replica.name)
            if self._replica(collection_id).pending:
                continue
            if remote_count == expected and self._sample_agrees(replica):
                with self._database.write() as connection:
                    self._renew(connection, collection_id)
                    replicas.write_complete(connection, collection_id)
                return remote_count, corrected
            self._repair(replica)
        raise Unavailable(
            f"The copy in Milvus has {remote_count:,} of {expected:,} vectors, and other programs keep changing "
            "one of them.",
            hint="Run the same push again; what was copied is kept.",
        )

    def _sample_agrees(self, replica: Replica) -> bool:
        """Read some vectors back, and compare them and their texts with the file's."""
        with self._database.read() as connection:
            last = fetch_one(connection, "select coalesce(max(id), 0) from chunks") or 0
            starts = {random.randint(0, last) for _ in range(SAMPLE)}
            args = (connection, replica.collection_id, replica.model_id)
            ids = {chunk_id for start in starts for chunk_id in replicas.chunk_ids_after(*args, start, 1)}
            ours = load_records(*args, sorted(ids))
        theirs = self._milvus.fetch(replica.name, [our.id for our in ours])
        for record in ours:
            copy = theirs.get(record.id)
            if copy is None or copy.partition != record.partition:
                return False
            if not np.allclose(copy.vector, record.vector, atol=NEAR_ENOUGH) or not record.text.startswith(copy.text):
                return False
        return True

    def _repair(self, replica: Replica) -> None:
        """Compare every id; send what lacks and delete what is too much. If no id differs, send everything again."""
        theirs = {row_id for ids in self._milvus.ids(replica.name) for row_id in ids}
        ours: set[int] = set()
        after = -1
        with self._database.read() as connection:
            args = (connection, replica.collection_id, replica.model_id)
            while ids := replicas.chunk_ids_after(*args, after, 10_000):
                ours.update(ids)
                after = ids[-1]
        differing = sorted(ours ^ theirs) or sorted(ours)
        with self._database.write() as connection:
            replicas.note_changes(connection, replica.collection_id, differing)

    # ------------------------------------------------------------ following

    def follow(self, collection_id: int, most: int | None = None) -> int:
        """Send what has changed since, at most `most` chunks; returns how many. Nothing if another process sends.

        Raises:
            Unavailable, AccessDenied, NotFound: why it could not be sent; the row keeps the reason.
        """
        try:
            with self._sending(collection_id, wait=False) as ours:
                return self._send_changes(collection_id, most) if ours else 0
        except LocalMCPError as error:
            with self._database.write() as connection:
                replicas.write_problem(connection, collection_id, str(error))
            raise

    def _send_changes(self, collection_id: int, most: int | None = None) -> int:
        sent = 0
        while most is None or sent < most:
            with self._database.read() as connection:
                replica = replica_of(connection, collection_id)
                changes = replicas.next_changes(connection, collection_id, BATCH)
                if replica is None or not changes:
                    break
                ids = [chunk_id for _, chunk_id in changes]
                records = load_records(connection, collection_id, replica.model_id, ids)
            self._send(replica.name, ids, records)
            with self._database.write() as connection:
                self._renew(connection, collection_id)
                replicas.forget_changes(connection, [change_id for change_id, _ in changes])
                if replica.problem:
                    replicas.write_problem(connection, collection_id, None)
            sent += len(ids)
        if sent >= FLUSH_FROM:
            self._milvus.flush(self._replica(collection_id).name)
        return sent

    def _send(self, name: str, ids: Sequence[int], records: Sequence[Any]) -> None:
        there = {record.id for record in records}
        gone = [row_id for row_id in ids if row_id not in there]
        if gone:
            self._milvus.delete(name, gone)
        if records:
            self._milvus.upsert(name, records)

    # ------------------------------------------------------------ one sender at a time

    @contextmanager
    def _sending(self, collection_id: int, *, wait: bool) -> Generator[bool]:
        """Be the only sender for the block; without `wait`, yield False when there is another."""
        lease = self._lease(collection_id)
        with self._locks[collection_id]:
            with self._database.write() as connection:
                ours = lease.take(connection)
            if not ours and wait:
                raise Unavailable(
                    "Another process is sending this collection to Milvus.", hint="Try again when it has finished."
                )
            try:
                yield ours
            finally:
                if ours:
                    lease.release(self._database)

    def _lease(self, collection_id: int) -> Lease:
        with self._lock:
            self._locks.setdefault(collection_id, threading.RLock())
            seconds = LEASE_SECONDS + 3 * self._milvus.server.timeout
            return self._leases.setdefault(collection_id, Lease(FRONT, f"replica {collection_id}", seconds))

    def _renew(self, connection: Any, collection_id: int) -> None:
        """Renew the lease, in every transaction of a sender: if another has taken over, the transaction fails."""
        if not self._leases[collection_id].take(connection):
            raise Unavailable("Another process has begun to send this collection to Milvus.")

    def _replica(self, collection_id: int) -> Replica:
        with self._database.read() as connection:
            replica = replica_of(connection, collection_id)
        if replica is None:
            raise Unavailable("The copy was given up by another process.")
        return replica


def _origin(connection: Any, collection: Collection) -> dict[str, Any]:
    """Return where the vectors come from, and what made them."""
    names = ("name", "sha256", "pooling", "query_prefix", "passage_prefix", "dimension", "max_tokens")
    row = connection.execute(f"select {', '.join(names)} from models where id = ?", (collection.model_id,)).get
    return {
        "file": fetch_one(connection, "select id from file"),
        "collection": collection.name,
        "collectionId": collection.id,
        "identity": dict(zip(names, row, strict=True)),
    }
