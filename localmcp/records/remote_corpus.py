"""A corpus that never was in one file: read and embedded here, stored in Milvus; here stays the ledger alone."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import apsw

from localmcp.config import Settings, state_directory
from localmcp.errors import InvalidInput, ModelUnavailable, NeedsConfirmation, NotFound, Unavailable
from localmcp.files import make_private_folder
from localmcp.humanize import command_line, counted
from localmcp.index.vector_queue import Lease
from localmcp.library.ingest import Library
from localmcp.library.jobs import Progress, ProgressCallback
from localmcp.milvus.collection import ALLOWED, NAME, Milvus, MilvusCollection
from localmcp.models import LazyEmbedder
from localmcp.records.copies import BATCH, NOT_INDEXED, about_copy, live_chunks, load_rows, open_copy, send
from localmcp.records.records import find_named
from localmcp.schemas import Json
from localmcp.storage.database import Database, fetch_column, fetch_one

HELD = 10_000
"""Passages that wait in the ledger's file, and a group of files more at most: 40 MB."""

_FORGET = """
    insert into chunks_fts (chunks_fts) values ('delete-all');
    delete from chunks where id <= :last; delete from vectors where id & 1099511627775 <= :last;
    delete from signs; delete from words; delete from terms;
"""


class RemoteCorpus:
    """Files that become documents of one collection in Milvus, and of nothing else.

    The ledger is a localmcp file. Passages are in it until Milvus has them: those that are, wait for it.
    """

    def __init__(self, settings: Settings, milvus: Milvus, embedder: LazyEmbedder, name: str) -> None:
        """`name`: of the collection in Milvus, which is made if it is not there; InvalidInput if it cannot be one."""
        if not NAME.fullmatch(name):
            raise InvalidInput(f"'{name}' cannot be a name in Milvus: {ALLOWED}.")
        self._milvus, self._name, self._lease = milvus, name, Lease("milvus", 3600)
        self._sent = self._unsent = 0
        place = hashlib.sha256(f"{milvus.uri} {settings.milvus_database}".encode()).hexdigest()[:8]
        self.ledger = state_directory() / "milvus" / f"{name}-{place}.localmcp"
        make_private_folder(self.ledger.parent)
        self._database = Database(self.ledger)
        self._library = Library(self._database, embedder, replace(settings, database=self.ledger, collection=name))

    def add(
        self, paths: Iterable[str | os.PathLike[str]], progress: ProgressCallback | None = None, **options: Any
    ) -> Json:
        """Store what is new or has changed since the last call, and delete what is gone; goes on where one stopped.

        `options` and errors are those of `Library.add_paths`; InvalidInput if Milvus has a collection of that name that
        comes from elsewhere, Unavailable if it does not answer: what was not stored waits for the next call.
        """
        stored = 0

        def tell(run: Progress) -> None:
            nonlocal stored
            if progress:
                progress(run)
            if run.phase == "words" and run.report.chunks_added - stored >= HELD:
                stored = run.report.chunks_added
                self._store(progress)

        try:
            self._check()
            self._store(progress)
            report = self._library.add_paths(paths, progress=tell, **options)
            target = self._store(progress)
        except NeedsConfirmation as error:
            confirm = command_line("localmcp", "--db", self.ledger, "refresh", "--yes")
            hint = f"If they were deleted on purpose: {confirm}   and then this command again."
            raise NeedsConfirmation(error.message, hint=hint) from error
        finally:
            self._lease.release(self._database)
        if target and self._sent and not target.make_index(600):
            report.add_notice(NOT_INDEXED)
        if self._unsent:
            unsent = counted(self._unsent, "passage")
            report.add_notice(f"{unsent} of rows of data, which have no vectors, were not stored.")
        counts = {"sent": self._sent, "vectors": target.count() if target else 0}
        return {**report.to_json(), "name": self._name, **counts, "ledger": str(self.ledger)}

    def _check(self) -> None:
        # Before anything is read.
        is_there, sql = self._name in self._milvus.names(), "select 1 from sources where chunk_count > 0 and not exists"
        with self._database.write() as connection:
            self._hold(connection)
            was_stored = fetch_one(connection, f"{sql} (select 1 from chunks where source_id = sources.id)")
        if is_there and self._milvus.open(self._name).about.get("file") != self._database.file_id:
            raise InvalidInput(f"Milvus has a collection '{self._name}' already.", hint="Choose another name.")
        if was_stored and not is_there:
            message = f"Milvus no longer has the collection '{self._name}', in which documents were stored."
            raise NotFound(message, hint=f"To store them again, first delete {self.ledger}")

    def _hold(self, connection: apsw.Connection) -> None:
        # Another run would forget what this one has not stored yet.
        if not self._lease.take(connection):
            raise Unavailable(f"Another process adds to '{self._name}' at the moment.")

    def _store(self, progress: ProgressCallback | None) -> MilvusCollection | None:
        # Everything that waits goes to Milvus. Done twice, it has the same result.
        made = self._library.make_vectors(progress=progress)
        if made.waiting:
            raise ModelUnavailable(" ".join(made.notices))
        with self._database.read() as connection:
            own = find_named(connection, self._name)
            if own is None or own.model_id is None:
                return None
            ids, about = live_chunks(connection, own), about_copy(connection, own)
            waiting = "id in (select source_id from chunks) and updated_at <> created_at"
            replaced = fetch_column(connection, f"select uuid from sources where {waiting}")
            gone = fetch_column(connection, "select uuid from sources where trashed_at is not null or chunk_count = 0")
            sql = "select count(*) from chunks join sources on sources.id = source_id where trashed_at is null"
            self._unsent += fetch_one(connection, sql) - len(ids)
            # What another program adds meanwhile, as a refresh of the ledger, waits for the next time.
            last = fetch_one(connection, "select coalesce(max(id), 0) from chunks")
        target = open_copy(self._milvus, self._name, about)
        for start in range(0, len(ids), BATCH):
            with self._database.read() as connection:
                rows = load_rows(connection, own, ids[start : start + BATCH])
            send(target, rows)
            self._sent += len(rows)
        # Ids only grow: those of the versions before are lower.
        target.delete_documents(replaced, before=ids[0] if ids else None)
        target.delete_documents(gone)
        with self._database.write() as connection:
            self._hold(connection)
            connection.execute(_FORGET, {"last": last})
        self._library.empty_trash()
        return target
