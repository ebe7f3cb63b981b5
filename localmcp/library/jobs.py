"""Long work: its progress and report, jobs that go on after their call, what other processes do, and the upkeep."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

import apsw

from localmcp.errors import Interrupted, LocalMCPError, NeedsConfirmation, NotFound
from localmcp.index import vector_queue
from localmcp.index.collections import visible_collections
from localmcp.library.ledger import waiting_pages
from localmcp.schemas import camel_case
from localmcp.storage.database import Database, fetch_all
from localmcp.storage.schema import utc_now
from localmcp.tools import Json, Registry, ReportProgress, Scope, client_call, current_scope, use_scope

if TYPE_CHECKING:
    from localmcp.library.ingest import Library

log = logging.getLogger(__name__)

WAIT_SECONDS = 20.0
"""A call answers within this time, finished or not."""
SCANS = "scans"
"""The lease of who reads scans: one process at a time."""
SCAN_SECONDS = 600.0
"""Whoever has not renewed it for so long has lost it: it is renewed after each scan."""
QUIET_SECONDS = 5.0
"""A call within this time means that somebody is at work: the folders can wait."""
POLL_SECONDS = 2.0
"""Between two looks at the queue of passages without vectors: one look-up in an index."""
LONGEST_PAUSE = 5.0
"""Between two batches of vectors, however many calls there are."""


@dataclass(slots=True)
class Report:
    """The result of a run, counted in documents; what is unchanged, skipped and failed in files."""

    indexed: int = 0
    updated: int = 0
    moved: int = 0
    unchanged: int = 0
    skipped: int = 0
    """Files and whole folders that were passed over; the ledger has each reason."""
    failed: int = 0
    missing: int = 0
    """Gone from the disk, put into the trash."""
    removed: int = 0
    """Put into the trash because the person said so, directly or in an ignore file."""
    restored: int = 0
    chunks_added: int = 0
    chunks_kept: int = 0
    vectors_added: int = 0
    """Of passages that were in the file before this run."""
    waiting: int = 0
    """Passages of the collections that were looked at which have no vector yet."""
    seconds: float = 0.0
    problems: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(path, reason) of the first 50 failures; `failed` counts all."""
    notices: list[str] = field(default_factory=list[str])

    def add_problem(self, path: str, reason: str) -> None:
        """Count a failure, and keep it if it is among the first 50."""
        self.failed += 1
        if len(self.problems) < 50:
            self.problems.append((path, reason))

    def add_notice(self, text: str) -> None:
        """Keep a sentence that the person should read, once."""
        if text and text not in self.notices:
            self.notices.append(text)

    def to_json(self) -> Json:
        """Return it as tools answer it."""
        fields = {camel_case(name): value for name, value in asdict(self).items()}
        problems = [{"path": path, "reason": reason} for path, reason in self.problems]
        return {"status": "done", **fields, "seconds": round(self.seconds, 3), "problems": problems}


@dataclass(slots=True)
class Progress:
    """A run: how far it is, and its report; handed to a callback after each file and each embedded batch."""

    callback: ProgressCallback | None = None
    report: Report = field(default_factory=Report)
    done: int = 0
    """Files finished, of `total` that are to be read; files known to be unchanged are not among them."""
    total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    path: str = ""
    phase: Literal["words", "meaning"] = "words"
    vectors_done: int = 0
    """Characters of the passages that got their vectors, of `vectors_total`."""
    vectors_total: int = 0
    _start: float = field(default_factory=time.perf_counter)

    def tell(self) -> None:
        """Hand it to the callback."""
        if self.callback is not None:
            self.callback(self)

    def leave_vectors(self, left: int) -> None:
        """Note how many characters still wait; the others have vectors, whichever process made them."""
        self.phase = "meaning"
        self.vectors_total = max(self.vectors_total, self.vectors_done + left)
        self.vectors_done = self.vectors_total - left
        self.tell()

    def end(self) -> Report:
        """Return the report, with the time it took."""
        self.report.seconds += time.perf_counter() - self._start
        return self.report


ProgressCallback = Callable[[Progress], None]


@dataclass(slots=True)
class Job:
    """Work that a thread does, or has done."""

    kind: str
    scope: Scope
    listener: ReportProgress | None
    """Told how far the work is, until the call has its answer."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    done: int = 0
    total: int | None = None
    message: str = ""
    result: Json | None = None
    error: LocalMCPError | None = None
    started_at: str = field(default_factory=utc_now)
    finished_at: str | None = None
    cancelled: bool = False
    finished: threading.Event = field(default_factory=threading.Event)

    def tell(self, done: int, total: int, message: str) -> None:
        """Report how far the work is, and what it works on; Interrupted if the job was cancelled."""
        self.done, self.total, self.message = done, total, message
        if self.cancelled:
            raise Interrupted("Cancelled; what was written so far stays.")
        if self.listener is not None:
            self.listener(done, total, message)

    def status(self) -> Json:
        """Return how far it is, as tools answer it: running, done, failed or cancelled."""
        ended = "cancelled" if isinstance(self.error, Interrupted) else "failed" if self.error else "done"
        status: Json = {
            "jobId": self.id,
            "kind": self.kind,
            "status": ended if self.finished.is_set() else "running",
            "done": self.done,
            "total": self.total,
            "message": str(self.error or self.message),
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
        }
        return status if self.result is None else {**status, "result": self.result}


class Jobs:
    """The last jobs of this process."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def run(self, kind: str, work: Callable[[Job], Json], wait: float = WAIT_SECONDS) -> Job:
        """Start a job and wait for its result, or error, up to `wait` seconds; after that it goes on."""
        job = Job(kind, current_scope(), client_call().progress)
        if job.listener is not None:
            job.listener(0, None, kind)
        # A hundred finished ones can still be asked for.
        for other in [other.id for other in self._jobs.values() if other.finished.is_set()][:-100]:
            del self._jobs[other]
        self._jobs[job.id] = job

        def run() -> None:
            try:
                with use_scope(job.scope):
                    job.result = work(job)
            except LocalMCPError as error:
                job.error = error
            except Exception as error:
                log.exception("the job %s failed", kind)
                job.error = LocalMCPError(f"{kind} failed: {type(error).__name__}: {error}")
            job.finished_at = utc_now()
            job.finished.set()

        threading.Thread(target=run, name=f"localmcp-{kind}", daemon=True).start()
        job.finished.wait(wait)
        job.listener = None
        if job.error is not None:
            raise job.error
        return job

    def find(self, job_id: str) -> Job:
        """Return a job of this process; NotFound if there is none that the caller may see."""
        job, allowed = self._jobs.get(job_id), current_scope().collections
        if job is None or (allowed is not None and not allowed.issuperset(job.scope.collections or {""})):
            raise NotFound(f"No job '{job_id}'.", hint="Folders that were added are looked at again by refresh.")
        return job


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a process on the file."""

    kind: Literal["words", "meaning", "scans"]
    done: int = 0
    total: int = 0
    """Files, characters, pages or passages; 0 = unknown. Of meaning and scans, only what is left is known."""
    passages: int = 0
    process: int = 0
    """Its number on this machine; 0 = unknown, or of another machine."""
    job_id: str = ""
    """For `stop`; empty if only its process can stop it."""

    @property
    def is_ours(self) -> bool:
        """Whether this process does it."""
        return self.process == os.getpid()


def end_run(database: Database, job_id: str) -> None:
    """Delete the record of a run; one of another process stops at the next files that it stores."""
    with database.write() as connection:
        connection.execute("delete from jobs where id = ?", (job_id,))


def work_on(connection: apsw.Connection) -> list[Work]:
    """Return what goes on now, the words first."""
    works: list[Work] = []
    sql = "select id, done, total, heartbeat_at from jobs order by started_at"
    for job_id, done, total, beat_at in fetch_all(connection, sql):
        # A run that has written nothing for a minute is over, or its process is.
        if vector_queue.is_alive(job_id, beat_at, 60.0):
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


class Upkeep:
    """A thread that, while nobody asks anything, looks at the added folders again and makes the missing vectors."""

    def __init__(self, library: Library, registry: Registry, seconds: float) -> None:
        """`seconds`: between two looks at the folders; 0 = never. The registry tells when somebody is at work."""
        self._library, self._registry, self._seconds = library, registry, seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="localmcp-upkeep", daemon=True)
        self._last_walk = time.monotonic()

    def start(self) -> None:
        """Begin, once; does nothing after `stop`."""
        if self._thread.ident is None and not self._ended.is_set():
            self._thread.start()

    def stop(self) -> None:
        """End the thread after the walk or the batch that it may be on."""
        self._ended.set()

    def _run(self) -> None:
        if sys.platform == "linux":
            # Elsewhere the priority is that of the process.
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, max(10, os.getpriority(os.PRIO_PROCESS, thread)))
        while not self._ended.wait(min(POLL_SECONDS, self._seconds or POLL_SECONDS)):
            try:
                if walked := self._walk_is_due():
                    self._last_walk = time.monotonic()
                    # A folder waits for the person; the others are done.
                    with suppress(NeedsConfirmation):
                        self._library.refresh(wait=False)
                if self._library.database.is_open:
                    waiting = self._library.make_vectors(behind=True, pause=self._pause).waiting
                    if walked and not waiting:
                        self._library.read_scans(self._pause)
            except LocalMCPError as error:
                # A missing disk, a locked file or the end of the program: the next round, or the person, deals with it.
                log.info("the library was not looked after: %s", error)

    def _walk_is_due(self) -> bool:
        now = time.monotonic()
        return 0 < self._seconds <= now - self._last_walk and now - self._registry.last_call >= QUIET_SECONDS

    def _pause(self) -> bool:
        """Wait while calls come; true when the work must stop, also for a walk that is due."""
        begin = time.monotonic()
        while time.monotonic() - self._registry.last_call < 1.0 and time.monotonic() - begin < LONGEST_PAUSE:
            if self._ended.wait(0.1):
                return True
        return self._walk_is_due() or self._ended.is_set()
