"""Background work on a file, in whichever process: its kind, its progress, and how to stop it."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass, field
from typing import Literal

import apsw

from localmcp.errors import Interrupted
from localmcp.index import vector_queue
from localmcp.index.collections import visible_collections
from localmcp.library.ledger import waiting_pages
from localmcp.storage.database import Database, fetch_all
from localmcp.storage.times import recent_bounds, utc_now

SCANS = "scans"
"""The lease of who reads scans: one process at a time."""
SCAN_SECONDS = 600.0
"""Whoever has not renewed it for so long has lost it: it is renewed after each scan."""
FEWEST_FILES = 10
"""A run of fewer files is over before somebody could look."""
SILENT_SECONDS = 60.0
"""A run that has written nothing for so long is over, or its process is."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a process on the file."""

    kind: Literal["words", "meaning", "scans"]
    done: int = 0
    total: int = 0
    """Files, characters, pages or passages; 0 = unknown. Of meaning and scans, only what is left is known."""
    passages: int = 0
    """Of meaning: how many wait."""
    process: int = 0
    """Its number on this machine; 0 = unknown, or of another machine."""
    job_id: str = ""
    """For `stop`; empty if only its process can stop it."""

    @property
    def is_ours(self) -> bool:
        """Whether this process does it."""
        return self.process == os.getpid()


@dataclass(slots=True)
class Announcement:
    """A run that reads files, recorded in the file so that other processes can show and stop it."""

    total: int
    id: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}")

    def begin(self, connection: apsw.Connection) -> None:
        """Record the run, and delete those of processes that are no more. Part of the caller's write transaction."""
        for (job_id,) in fetch_all(connection, "select id from jobs"):
            if not vector_queue.is_alive(job_id, utc_now()):
                connection.execute("delete from jobs where id = ?", (job_id,))
        if self.total >= FEWEST_FILES:
            sql = "insert into jobs (id, kind, arguments, status, total, started_at, heartbeat_at)"
            values = (self.id, self.total, utc_now(), utc_now())
            connection.execute(f"{sql} values (?, 'words', '{{}}', 'running', ?, ?, ?)", values)

    def beat(self, connection: apsw.Connection, files: int) -> None:
        """Note that so many more files are stored. Part of the caller's write transaction.

        Raises:
            Interrupted: somebody has stopped the run.
        """
        sql = "update jobs set done = done + ?, heartbeat_at = ? where id = ? and status = 'running'"
        connection.execute(sql, (files, utc_now(), self.id))
        if self.total >= FEWEST_FILES and not connection.changes():
            raise Interrupted("Stopped from another window; what was read stays, and refresh goes on with the rest.")

    def end(self, connection: apsw.Connection) -> None:
        """Delete the record. Part of the caller's write transaction."""
        connection.execute("delete from jobs where id = ?", (self.id,))


def stop(database: Database, job_id: str) -> None:
    """Stop a run of another process at the next files that it stores."""
    with database.write() as connection:
        connection.execute("update jobs set status = 'failed' where id = ?", (job_id,))


def work_on(connection: apsw.Connection) -> list[Work]:
    """Return what goes on now, the words first."""
    works: list[Work] = []
    sql = """
        select id, done, coalesce(total, 0) from jobs
        where status = 'running' and heartbeat_at between ? and ? order by started_at
    """
    for job_id, done, total in fetch_all(connection, sql, recent_bounds(SILENT_SECONDS)):
        if vector_queue.is_alive(job_id, utc_now()):
            works.append(Work("words", done, total, process=vector_queue.process_of(job_id), job_id=job_id))
    collections = [collection.id for collection in visible_collections(connection)]
    for name, holder, beat_at in fetch_all(connection, "select name, holder, beat_at from leases order by name desc"):
        if not vector_queue.is_alive(holder, beat_at, SCAN_SECONDS if name == SCANS else vector_queue.LEASE_SECONDS):
            continue
        process = vector_queue.process_of(holder)
        if name == vector_queue.LEASE and (left := vector_queue.waiting(connection, collections)).passages:
            works.append(Work("meaning", 0, left.characters, left.passages, process))
        elif name == SCANS and (pages := waiting_pages(connection, collections)):
            works.append(Work("scans", 0, pages, process=process))
    return works
