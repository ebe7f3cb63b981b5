"""Collections and their copies in Milvus: push, pull, status, and the thread that sends what has changed since."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from localmcp.errors import ConfigurationError, LocalMCPError, NotFound
from localmcp.index.collections import choose_collections, visible_collections
from localmcp.index.replicas import Replica, end_replica, replica_of, replicas
from localmcp.milvus.backend import MilvusBackend
from localmcp.models import LazyEmbedder
from localmcp.records.incoming import Pulled, Receiver
from localmcp.records.outgoing import Copied, Progress, Sender
from localmcp.storage.database import Database, fetch_one
from localmcp.tools import CallRecord, Json, current_scope

log = logging.getLogger(__name__)

SETTLE_AT_MOST = 2000
"""Changes that a search waits for; the rest follows."""
RETRY_SECONDS = 30.0
"""After a failure the server is left alone for so long by what nobody waits for."""
GATHER_SECONDS = 1.0
"""Changes often come in a row: they are sent together."""
IDLE_SECONDS = 60.0
"""How often changes of other processes are looked for."""


class Replication:
    """The copies of one file's collections in one Milvus. Thread-safe; contacts the server only when it has to."""

    def __init__(self, database: Database, milvus: MilvusBackend | None, embedder: LazyEmbedder) -> None:
        self._database = database
        self._milvus = milvus
        self._embedder = embedder
        self._sender = Sender(database, milvus) if milvus else None

    def push(self, collection: str, name: str | None = None, progress: Progress | None = None) -> Copied:
        """Copy a collection to Milvus (under `name`), or complete and check a copy that is there.

        Raises:
            NotFound: the caller sees no such collection.
            InvalidInput: it has no vectors; the name is taken by another collection.
            ConfigurationError: no Milvus is set.
            Unavailable, AccessDenied: the server; what was copied is kept, and the next push goes on.
        """
        sender = self._needed(self._sender)
        with self._database.read() as connection:
            own_collection = choose_collections(connection, [collection])[0]
        return sender.copy(own_collection, name, progress)

    def stop(self, collection: str, *, drop: bool = False) -> Replica:
        """Search a collection in the file alone again; with `drop` its copy is deleted first.

        Raises:
            NotFound: no such collection, or it has no copy.
            Unavailable: the copy cannot be deleted now; nothing was changed.
        """
        with self._database.read() as connection:
            own_collection = choose_collections(connection, [collection])[0]
            replica = replica_of(connection, own_collection.id)
        if replica is None:
            raise NotFound(f"Collection '{own_collection.name}' has no copy in Milvus.")
        self.forget(own_collection.id, drop=drop)
        return replica

    def forget(self, collection_id: int, *, drop: bool = False) -> None:
        """Forget a collection's copy, if it has one; with `drop` the copy is deleted first."""
        with self._database.read() as connection:
            replica = replica_of(connection, collection_id)
            file_id = fetch_one(connection, "select id from file")
        if replica is None:
            return
        if drop:
            self._drop(replica, file_id)
        with self._database.write() as connection:
            end_replica(connection, collection_id)

    def _drop(self, replica: Replica, file_id: str) -> None:
        milvus = self._needed(self._milvus)
        try:
            about: Json = milvus.about(replica.name) or {}
        except NotFound:
            return
        # Somebody may have put another collection under that name.
        if (about.get("origin") or {}).get("file") == file_id:
            milvus.drop(replica.name)

    def pull(
        self,
        name: str,
        collection: str | None = None,
        *,
        assume_model: bool = False,
        progress: Progress | None = None,
    ) -> Pulled:
        """Copy Milvus' collection `name` into the file, by default under the same name.

        Raises:
            NotFound: Milvus has no such collection.
            ModelMismatch: its vectors come from another model than the file's collection, or from an unknown one and
                `assume_model` (the model at hand) is false.
            ConfigurationError, Unavailable, AccessDenied: as for `push`.
        """
        milvus = self._needed(self._milvus)
        allowed = current_scope().collections
        if allowed is not None and name not in allowed:
            raise NotFound(f"No collection '{name}'.")
        assumed = self._embedder.get().identity if assume_model else None
        copy = self._copy_called(name, collection)
        if copy is not None:
            self._needed(self._sender).follow(copy.collection_id)
        target = collection or (copy.collection if copy else name)
        pulled = Receiver(self._database, milvus).pull(name, target, assumed, progress)
        if copy is not None and (pulled.added or pulled.updated):
            # What came from there has another id here.
            self.push(copy.collection)
        return pulled

    def _copy_called(self, name: str, collection: str | None) -> Replica | None:
        """Return the copy of that name, if it is the collection's own."""
        with self._database.read() as connection:
            visible = {collection.name for collection in visible_collections(connection)}
            matching = [
                replica for replica in replicas(connection) if replica.name == name and replica.collection in visible
            ]
        return next((match for match in matching if collection in (None, match.collection)), None)

    def settle(self, collection_id: int) -> None:
        """Send what waits for a copy that searches use, so that they find it; nothing to do in most cases.

        Raises:
            Unavailable, AccessDenied, NotFound: the server.
        """
        if self._sender is None:
            return
        with self._database.read() as connection:
            replica = replica_of(connection, collection_id)
        if replica is not None and replica.ready and replica.pending:
            self._sender.follow(collection_id, SETTLE_AT_MOST)

    def follow(self) -> int:
        """Send everything that waits, except to a server that has just failed; returns how many chunks.

        Failures are kept in the file; `copies` returns them.
        """
        if self._sender is None:
            return 0
        with self._database.read() as connection:
            waiting = [replica for replica in replicas(connection) if _is_due(replica)]
        sent = 0
        for due in waiting:
            try:
                # If it was embedded again, the old vectors are useless.
                sent += self._sender.follow(due.collection_id) if due.current else self.push(due.collection).sent
            except LocalMCPError as error:
                log.warning("changes of '%s' that wait for Milvus: %d. %s", due.collection, due.pending, error)
        return sent

    @property
    def server(self) -> str | None:
        """The address of the Milvus that is set, without credentials."""
        return self._milvus.server.uri if self._milvus else None

    def copies(self) -> list[Replica]:
        """Return the copies of the visible collections, by name; asks no server."""
        with self._database.read() as connection:
            visible = {collection.name for collection in visible_collections(connection)}
            return [replica for replica in replicas(connection) if replica.collection in visible]

    def flush(self) -> None:
        """Send what waits before the program ends, if it has looked at the file at all."""
        if self._sender is None or not self._database.is_open:
            return
        try:
            self.follow()
        except LocalMCPError as error:
            # The file: what waits stays in it.
            log.info("nothing was sent to Milvus: %s", error)

    def _needed(self, part: Any) -> Any:
        if part is None:
            raise ConfigurationError(
                "No Milvus is set.",
                hint="Set one with: localmcp config set milvus_address http://HOST:19530   (or MILVUS_ADDRESS)",
            )
        return part


def _is_due(replica: Replica) -> bool:
    """Return whether something waits for a copy that is complete, and the server has not failed a moment ago."""
    if replica.state != "following" or (replica.current and not replica.pending):
        return False
    soon = datetime.now(UTC) - timedelta(seconds=RETRY_SECONDS)
    return not replica.problem or (replica.tried_at or "") < soon.isoformat(timespec="milliseconds")


class Follower:
    """Runs `Replication.follow` after calls, and now and then; opens no file before the first call."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._called = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, once; does nothing after `stop`."""
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="localmcp-follower", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread after what it may be sending."""
        self._ended.set()
        self._called.set()

    def note_call(self, record: CallRecord) -> None:
        """Observer of the registry: after a call there may be something to send."""
        del record
        self._called.set()

    def _run(self) -> None:
        self._called.wait()
        while not self._ended.wait(GATHER_SECONDS):
            self._called.clear()
            try:
                self._replication.follow()
            except LocalMCPError as error:
                # A locked or missing file: the next round deals with it.
                log.info("nothing was sent to Milvus: %s", error)
            except Exception:
                # Later changes still have to follow.
                log.exception("nothing was sent to Milvus")
            self._called.wait(IDLE_SECONDS)
