"""Jobs: work that may take longer than a call should. It runs in a thread, and survives the process that began it."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from localmcp.errors import Interrupted, LocalMCPError, NotFound
from localmcp.storage.database import Database, fetch_all, fetch_one, insert_row
from localmcp.storage.times import is_recent, utc_now
from localmcp.tools import Json, ReportProgress, Scope, current_scope, progress_listener, use_scope

log = logging.getLogger(__name__)

WAIT_SECONDS = 20.0
"""A call answers within this time, finished or not."""
HEARTBEAT_SECONDS = 10.0
ABANDONED_SECONDS = 60.0
"""A job whose heartbeat is older belongs to nobody."""
KEPT_DAYS = 7
REMEMBERED = 100

CANCELLED = "Cancelled; what was written so far stays."
CANCEL_SECONDS = 10.0
"""How long a cancellation waits for the work to stop."""
READY_SECONDS = 0.5
"""A call whose result is ready waits so long for the end of the job, which spares the caller a second question."""
LOOK_SECONDS = 0.3
"""How often a call that waits for another process's job looks at it."""


@dataclass(frozen=True, slots=True)
class JobState:
    """Status of a job."""

    id: str
    kind: str
    status: Literal["running", "done", "failed", "cancelled"]
    done: int
    total: int | None
    message: str
    """The file it is at, or why it failed."""
    result: Json | None
    """While it runs: what is ready."""
    started_at: str
    finished_at: str | None


Work = Callable[[Json, "Execution"], Json]
"""Runs a job from its arguments and returns its result. It may run again after a kill, so it is incremental."""


class Jobs:
    """The jobs in one file; any process may ask for them, and resume one that no process works on."""

    def __init__(self, database: Database, kinds: Mapping[str, Work]) -> None:
        self._database = database
        self._kinds = kinds
        self._lock = threading.Lock()
        self._ours: dict[str, Execution] = {}

    def run(self, kind: str, arguments: Json, *, wait: float = WAIT_SECONDS) -> JobState:
        """Start a job and wait up to `wait` seconds for its result; after that it goes on in its thread.

        Raises:
            LocalMCPError: what the work raised, if it did so within that time.
        """
        scope = current_scope()
        listener = progress_listener()
        listener(0, None, kind)
        job = Execution(uuid.uuid4().hex, kind, arguments, scope, listener=listener)
        description = json.dumps({"arguments": arguments, **_scope_json(scope)}, ensure_ascii=False)
        with self._database.write() as connection:
            connection.execute("delete from jobs where finished_at < ?", (utc_now(86_400 * KEPT_DAYS),))
            row = {"id": job.id, "kind": kind, "arguments": description, "status": "running"}
            insert_row(connection, "jobs", {**row, "started_at": job.started_at, "heartbeat_at": job.started_at})
        self._start(job)
        if job.has_result.wait(wait):
            job.finished.wait(min(wait, READY_SECONDS))
        job.listener = None
        if job.error is not None:
            raise job.error
        return job.state()

    def cancel(self, job_id: str) -> JobState:
        """Stop a job at the next file or batch; what is written stays. One that is over stays as it is.

        Raises:
            NotFound: there is no such job that the caller may see.
        """
        state = self.state(job_id)
        if state.status != "running":
            return state
        job = self._ours.get(job_id)
        if job is not None:
            job.cancelled.set()
            job.finished.wait(CANCEL_SECONDS)
            return job.state()
        with self._database.write() as connection:
            # The process that works on it notices at its next heartbeat.
            sql = "update jobs set status = ?, message = ?, finished_at = ? where id = ? and status = 'running'"
            connection.execute(sql, ("cancelled", CANCELLED, utc_now(), job_id))
        return self.state(job_id)

    def state(self, job_id: str, *, wait: float = 0.0) -> JobState:
        """Return the status of a job, after waiting up to `wait` seconds for its end; resume an abandoned one.

        Raises:
            NotFound: there is no such job that the caller may see.
        """
        deadline = time.monotonic() + wait
        state = self._state(job_id, wait)
        while state.status == "running" and (left := deadline - time.monotonic()) > 0:
            # Another process works on it; only the file tells how far it is.
            time.sleep(min(LOOK_SECONDS, left))
            state = self._state(job_id, max(0.0, deadline - time.monotonic()))
        return state

    def _state(self, job_id: str, wait: float) -> JobState:
        with self._database.read() as connection:
            sql = "select kind, arguments, status, done, total, message, result, started_at, finished_at, heartbeat_at"
            row = fetch_one(connection, f"{sql} from jobs where id = ?", (job_id,))
        if row is None or not _may_see(json.loads(row[1])):
            raise NotFound(f"No job '{job_id}'.", hint=f"Jobs are kept for {KEPT_DAYS} days.")
        job = self._ours.get(job_id)
        if job is None and row[2] == "running" and not is_recent(row[9], ABANDONED_SECONDS):
            job = self._take_over(job_id, row[0], json.loads(row[1]), row[9])
        if job is not None:
            job.finished.wait(wait)
            return job.state()
        result = json.loads(row[6]) if row[6] else None
        return JobState(job_id, row[0], row[2], row[3], row[4], row[5], result, row[7], row[8])

    def resume_abandoned(self) -> list[str]:
        """Carry on every job whose process is gone; returns their ids."""
        with self._database.read() as connection:
            rows = fetch_all(connection, "select id, kind, arguments, heartbeat_at from jobs where status = 'running'")
        abandoned = (row for row in rows if row[0] not in self._ours and not is_recent(row[3], ABANDONED_SECONDS))
        theirs = ((row[0], row[1], json.loads(row[2]), row[3]) for row in abandoned)
        return [row[0] for row in theirs if _may_see(row[2]) and self._take_over(*row)]

    def _take_over(self, job_id: str, kind: str, description: Json, heartbeat: str) -> Execution | None:
        """Claim a job by its old heartbeat: of several processes that try, one succeeds."""
        if kind not in self._kinds:
            return None
        with self._database.write() as connection:
            sql = "update jobs set heartbeat_at = ? where id = ? and heartbeat_at = ? and status = 'running'"
            connection.execute(sql, (utc_now(), job_id, heartbeat))
            if not connection.changes():
                return None
        job = Execution(job_id, kind, description["arguments"], _scope_of(description))
        self._start(job)
        return job

    # ------------------------------------------------------------ running

    def _start(self, job: Execution) -> None:
        with self._lock:
            finished = [our.id for our in self._ours.values() if our.finished.is_set()]
            for job_id in finished[:-REMEMBERED]:
                del self._ours[job_id]
            self._ours[job.id] = job
        for target in (self._work, self._beat):
            threading.Thread(target=target, args=(job,), name=f"localmcp-{job.kind}", daemon=True).start()

    def _work(self, job: Execution) -> None:
        try:
            with use_scope(job.scope):
                job.result = self._kinds[job.kind](job.arguments, job)
        except LocalMCPError as error:
            job.error = error
        except Exception as error:
            log.exception("the job %s failed", job.kind)
            job.error = LocalMCPError(f"{job.kind} failed: {type(error).__name__}: {error}")
        job.finished_at = utc_now()
        try:
            self._write_end(job)
        except LocalMCPError as error:
            # The row keeps its old heartbeat, so the job is run again by whoever asks for it.
            log.warning("the end of job %s could not be written: %s", job.id, error)
        finally:
            job.finished.set()
            job.has_result.set()

    def _beat(self, job: Execution) -> None:
        sql = "update jobs set heartbeat_at = ?, done = ?, total = ?, message = ? where id = ? and status = 'running'"
        while not job.finished.wait(HEARTBEAT_SECONDS):
            try:
                with self._database.write() as connection:
                    connection.execute(sql, (utc_now(), job.done, job.total, job.message, job.id))
                    if not connection.changes():
                        job.cancelled.set()
            except LocalMCPError as error:
                log.warning("no heartbeat for job %s: %s", job.id, error)

    def _write_end(self, job: Execution) -> None:
        state = job.state(over=True)
        with self._database.write() as connection:
            connection.execute(
                """
                update jobs set status = :status, done = :done, total = :total, message = :message, result = :result,
                    arguments = :arguments, heartbeat_at = :finished_at, finished_at = :finished_at
                where id = :id and status = 'running'
                """,
                {
                    **asdict(state),
                    "result": None if state.result is None else json.dumps(state.result, ensure_ascii=False),
                    # The arguments may hold a whole text, which nobody needs a second time.
                    "arguments": json.dumps(_scope_json(job.scope)),
                },
            )


@dataclass(slots=True)
class Execution:
    """A job that a thread of this process works on, or has finished. The work calls it to report how far it is."""

    id: str
    kind: str
    arguments: Json
    scope: Scope
    done: int = 0
    total: int | None = None
    message: str = ""
    result: Json | None = None
    error: LocalMCPError | None = None
    listener: ReportProgress | None = None
    """Who asked how far the call is; told until the call has its answer."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    started_at: str = field(default_factory=utc_now)
    finished_at: str | None = None
    finished: threading.Event = field(default_factory=threading.Event)
    has_result: threading.Event = field(default_factory=threading.Event)

    def __call__(self, done: int, total: int, message: str) -> None:
        """Report how far the work is, and what it works on."""
        self.done, self.total, self.message = done, total, message
        if self.cancelled.is_set():
            raise Interrupted(CANCELLED)
        if self.listener is not None:
            self.listener(done, total, message)

    def ready(self, result: Json) -> None:
        """Give the call its result although the job goes on."""
        self.result = result
        self.has_result.set()

    def state(self, *, over: bool = False) -> JobState:
        stopped = "cancelled" if isinstance(self.error, Interrupted) else "failed"
        status = "running" if not (over or self.finished.is_set()) else stopped if self.error else "done"
        message = str(self.error) if self.error else self.message
        return JobState(
            self.id, self.kind, status, self.done, self.total, message, self.result, self.started_at, self.finished_at
        )


# ---------------------------------------------------------------- scope


_NAMES = {"collections": "collections", "tools": "tools", "providers": "provider_names", "rights": "rights"}
"""Sets of names in a scope: as a job writes them down -> the field."""


def _scope_json(scope: Scope) -> Json:
    names = {key: getattr(scope, field_name) for key, field_name in _NAMES.items()}
    listed = {key: None if value is None else sorted(value) for key, value in names.items()}
    return {"caller": scope.caller, "trusted": scope.trusted, **listed}


def _scope_of(description: Mapping[str, Any]) -> Scope:
    """Return the scope in which the job was started: whoever carries it on lends it no rights."""
    # A job that an older version wrote down says nothing of rights; only who had them could start one.
    names: dict[str, Any] = {
        field_name: frozenset(description[key])
        for key, field_name in _NAMES.items()
        if description.get(key) is not None
    }
    return Scope(description["caller"], bool(description["trusted"]), **names)


def _may_see(description: Mapping[str, Any]) -> bool:
    allowed = current_scope().collections
    theirs = cast("list[str] | None", description.get("collections"))
    return allowed is None or (theirs is not None and allowed.issuperset(theirs))
