"""Work that may take longer than a call should: it goes on in a thread of this process, and can be asked for.

When the process ends, the upkeep goes on with the folders that were added, in whichever process runs next.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from localmcp.errors import Interrupted, LocalMCPError, NotFound
from localmcp.storage.times import utc_now
from localmcp.tools import Json, ReportProgress, Scope, current_scope, progress_listener, use_scope

log = logging.getLogger(__name__)

WAIT_SECONDS = 20.0
"""A call answers within this time, finished or not."""
REMEMBERED = 100
"""Finished jobs that can still be asked for."""


class JobStatus(TypedDict):
    """Status of long work."""

    jobId: str
    kind: str
    status: Literal["running", "done", "failed", "cancelled"]
    done: int
    total: int | None
    message: str
    startedAt: str
    finishedAt: str | None
    result: NotRequired[dict[str, Any]]


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
    cancelled: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)

    def tell(self, done: int, total: int, message: str) -> None:
        """Report how far the work is, and what it works on.

        Raises:
            Interrupted: the job was cancelled.
        """
        self.done, self.total, self.message = done, total, message
        if self.cancelled.is_set():
            raise Interrupted("Cancelled; what was written so far stays.")
        if self.listener is not None:
            self.listener(done, total, message)

    def cancel(self) -> None:
        """Stop at the next file or batch, and wait 10 s for it; what is written stays."""
        self.cancelled.set()
        self.finished.wait(10.0)

    def status(self) -> JobStatus:
        """Return how far it is, as tools answer it."""
        ended = "cancelled" if isinstance(self.error, Interrupted) else "failed" if self.error else "done"
        status: JobStatus = {
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

    def run(self, work: Callable[[Job], Json]) -> None:
        """Do the work, and keep its result or its error."""
        try:
            with use_scope(self.scope):
                self.result = work(self)
        except LocalMCPError as error:
            self.error = error
        except Exception as error:
            log.exception("the job %s failed", self.kind)
            self.error = LocalMCPError(f"{self.kind} failed: {type(error).__name__}: {error}")
        self.finished_at = utc_now()
        self.finished.set()


class Jobs:
    """The last jobs of this process."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def run(self, kind: str, work: Callable[[Job], Json], wait: float = WAIT_SECONDS) -> Job:
        """Start a job and wait for its result up to `wait` seconds; after that it goes on.

        Raises:
            LocalMCPError: what the work raised within that time.
        """
        job = Job(kind, current_scope(), progress_listener())
        if job.listener is not None:
            job.listener(0, None, kind)
        for other in [other.id for other in self._jobs.values() if other.finished.is_set()][:-REMEMBERED]:
            del self._jobs[other]
        self._jobs[job.id] = job
        threading.Thread(target=job.run, args=(work,), name=f"localmcp-{kind}", daemon=True).start()
        job.finished.wait(wait)
        job.listener = None
        if job.error is not None:
            raise job.error
        return job

    def find(self, job_id: str) -> Job:
        """Return a job of this process.

        Raises:
            NotFound: there is none that the caller may see.
        """
        job, allowed = self._jobs.get(job_id), current_scope().collections
        if job is None or (allowed is not None and not allowed.issuperset(job.scope.collections or {""})):
            raise NotFound(f"No job '{job_id}'.", hint="Folders that were added are looked at again by refresh.")
        return job
