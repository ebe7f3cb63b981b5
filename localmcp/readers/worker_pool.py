"""Runs a function over files in worker processes, each file under limits of time, memory and text."""

from __future__ import annotations

import json
import logging
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from localmcp.errors import Unavailable
from localmcp.readers import worker

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Value = TypeVar("Value")

AHEAD, SMALL = 3072, 768
"""A worker queues items up to this sum of shares, so that it is busy while the caller writes. SMALL is the default
share of an item."""
UNDELIVERED_BYTES = 64_000_000
"""When values of this size wait for the caller, the workers wait."""
WATCH_SECONDS = 0.05
"""Time between two looks at the workers, in which a process can allocate about 100 MB."""
RETIRE_BYTES = 350_000_000
"""A worker that holds more after a file is replaced, since Python rarely gives memory back."""
DOCUMENTS = 20
TEXT_PER_BYTE = 100
"""Characters that a byte of a file may hold: beyond, it was packed to hold up its reader, and gets no more time."""

_ENTRY = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from localmcp.readers import worker; worker.run()"

if sys.platform == "win32":
    _CREATION_FLAGS = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
else:
    _CREATION_FLAGS = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of reading one file, with all documents in it."""

    seconds: float = 12.0
    """Processor time."""
    seconds_per_megabyte: float = 3.0
    """More processor time for every million characters of text that the file has yielded, up to TEXT_PER_BYTE."""
    memory: int = 1_000_000_000
    """Bytes that the worker holds, its own 50 MB included."""
    text: int = 50_000_000
    """Characters of one document; those of a mailbox or an archive together may have DOCUMENTS times as many."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[Item, Value]):
    """One step of an item: a value, a document that was given up, or (once, last) the end of the item."""

    item: Item
    value: Value | None = None
    failure: str = ""
    member: str = ""
    """Name of the document that failed, if it is one of a container."""
    finished: bool = False


@dataclass(slots=True)
class _Job:
    item: Any
    share: int
    size: int


@dataclass(slots=True, eq=False)
class _Worker:
    """A process, what it has been handed, and what its current file has cost so far."""

    process: subprocess.Popen[bytes]
    jobs: deque[_Job] = field(default_factory=deque[_Job])
    """The first is being worked on, or its values are still to be delivered."""
    sizes: deque[int] = field(default_factory=deque[int])
    """Bytes of the files whose reading has not begun."""
    size: int = 0
    """Bytes of the current file."""
    load: int = 0
    """Sum of their shares."""
    pid: int = 0
    """Not that of `process` where a launcher is in between, as in a virtual environment on Windows."""
    busy: bool = False
    member: str = ""
    """The document of a container that is being read."""
    spent_before: float = 0.0
    text: int = 0
    memory: int = 0
    why_killed: str = ""
    retired: bool = False
    """It gets no more items."""


class _Event(NamedTuple):
    worker: _Worker
    kind: bytes
    """Empty: the worker has ended."""
    payload: bytes = b""
    member: str = ""


class WorkerPool(Generic[Item, Value]):
    """Worker processes that turn items into values; they start with the first item and end with the pool.

    `work`: picklable generator function of an item.
    """

    def __init__(
        self, work: Callable[[Item], Iterator[Value]], *, workers: int = 0, limits: Limits | None = None,
        share: Callable[[Item], int] = lambda item: SMALL, size: Callable[[Item], int] = lambda item: 1 << 40,
    ) -> None:  # fmt: skip
        """`size`: bytes of an item's file."""
        self._share, self._size_of = share, size
        self.limits = limits or Limits()
        self._setup = (work, self.limits.memory, self.limits.text)
        self._size = workers or os.cpu_count() or 1
        self._workers: list[_Worker] = []
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._undelivered = 0
        self._room = threading.Condition()
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> WorkerPool[Item, Value]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the workers at once; nothing more is answered."""
        self._closed.set()
        with self._room:
            self._room.notify_all()
        for member in self._workers:
            member.process.kill()
        for member in self._workers:
            _reap(member.process)
        self._workers.clear()

    def run(self, items: Iterable[Item]) -> Iterator[Answer[Item, Value]]:
        """Yield what the workers make of the items, in any order between items.

        Items are taken lazily, in the caller's thread. What a file yielded before a limit or a crash stays.

        Raises:
            Unavailable: no worker process can be started.
        """
        jobs = (_Job(item, self._share(item), self._size_of(item)) for item in items)
        again: deque[_Job] = deque()
        try:
            self._hand_out(jobs, again)
            while any(member.jobs for member in self._workers):
                event = self._events.get()
                yield from self._answers(event, again)
                self._hand_out(jobs, again)
        finally:
            if any(member.jobs for member in self._workers):
                self.close()

    # ------------------------------------------------------------ in the caller's thread

    def _hand_out(self, jobs: Iterator[_Job], again: deque[_Job]) -> None:
        """Give each item to the worker that holds least, and start workers while there are items."""
        while True:
            active = [member for member in self._workers if not member.retired]
            member = min(active, key=lambda member: member.load, default=None)
            if len(active) < self._size and (member is None or member.jobs):
                member = None
            elif member is None or member.load >= AHEAD:
                return
            job = again.popleft() if again else next(jobs, None)
            if job is None:
                return
            self._assign(member or self._start(), job)

    def _assign(self, member: _Worker, job: _Job) -> None:
        member.jobs.append(job)
        member.sizes.append(job.size)
        member.load += job.share
        assert member.process.stdin
        with suppress(OSError):  # A worker that has died ends its output, and the job is handed to another.
            worker.send_to(member.process.stdin, job.item)

    def _answers(self, event: _Event, again: deque[_Job]) -> Iterator[Answer[Item, Value]]:
        member = event.worker
        if event.kind == worker.VALUE:
            with self._room:
                self._undelivered -= len(event.payload)
                self._room.notify_all()
            yield Answer(member.jobs[0].item, pickle.loads(event.payload))
        elif event.kind == worker.ERROR:
            failure = pickle.loads(event.payload) or self._too_much_memory()
            yield Answer(member.jobs[0].item, failure=failure, member=event.member)
        elif event.kind == worker.END:
            job = member.jobs.popleft()
            member.load -= job.share
            yield Answer(job.item, finished=True)
            member.retired = member.retired or member.memory > RETIRE_BYTES
            if member.retired and not member.jobs and member.process.stdin:
                with suppress(OSError):
                    member.process.stdin.close()
        elif event.kind == worker.LOG:
            name, level, message = pickle.loads(event.payload)
            logging.getLogger(name).log(level, "%s", message)
        elif not event.kind:
            yield from self._bury(member, again)

    def _bury(self, member: _Worker, again: deque[_Job]) -> Iterator[Answer[Item, Value]]:
        """Give up the file that a dead worker was reading, and have its other items read by the next."""
        code = _reap(member.process)
        if member not in self._workers:
            return
        self._workers.remove(member)
        if not member.pid:
            raise Unavailable(
                f"No process for reading files can be started (exit code {code}).",
                hint=f"Check that this works: {sys.executable} -m localmcp --version",
            )
        if member.busy:
            yield from self._give_up(member, member.jobs.popleft(), code)
        again.extend(member.jobs)
        member.jobs.clear()

    def _give_up(self, dead: _Worker, job: _Job, code: int) -> Iterator[Answer[Item, Value]]:
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        failure = dead.why_killed or f"the reader crashed on it ({ending})"
        log.info("a reading process ended: %s", failure)
        yield Answer(job.item, failure=failure, member=dead.member)
        yield Answer(job.item, finished=True)

    # ------------------------------------------------------------ workers and the threads that watch them

    def _start(self) -> _Worker:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _ENTRY, json.dumps(sys.path)],
                bufsize=worker.BUFFER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C reaches every process of the terminal's group; the parent decides what ends.
                start_new_session=True,
                creationflags=_CREATION_FLAGS,
            )
        except OSError as error:
            raise Unavailable(f"No process for reading files can be started: {error.strerror or error}.") from error
        member = _Worker(process)
        self._workers.append(member)
        assert process.stdin
        with suppress(OSError):  # Its output ends then, too, and the exit code is reported.
            worker.send_to(process.stdin, self._setup)
        threading.Thread(target=self._listen, args=(member,), name="localmcp-worker", daemon=True).start()
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="localmcp-limits", daemon=True)
            self._watcher.start()
        return member

    def _listen(self, member: _Worker) -> None:
        """Turn a worker's frames into events, until its output ends."""
        stream = member.process.stdout
        assert stream
        with stream:
            while len(header := stream.read(worker.HEADER.size)) == worker.HEADER.size:
                kind, spent, size = worker.HEADER.unpack(header)
                self._hear(member, kind, spent, stream.read(size))
        self._events.put(_Event(member, b""))

    def _hear(self, member: _Worker, kind: bytes, spent: float, payload: bytes) -> None:
        if kind == worker.READY:
            member.pid = pickle.loads(payload)
        elif kind == worker.TEXT:
            member.text += pickle.loads(payload)
        elif kind == worker.MEMBER:
            member.member = pickle.loads(payload)
        elif kind == worker.BEGIN:
            member.spent_before, member.member, member.text = spent, "", 0
            member.size, member.busy = member.sizes.popleft(), True
        else:
            self._queue(_Event(member, kind, payload, member.member))
        if kind == worker.END:
            member.busy = False

    def _queue(self, event: _Event) -> None:
        if event.kind == worker.VALUE:
            with self._room:
                self._room.wait_for(lambda: self._undelivered < UNDELIVERED_BYTES or self._closed.is_set())
                self._undelivered += len(event.payload)
        self._events.put(event)

    def _watch(self) -> None:
        """Kill workers whose file is over its limits."""
        import psutil

        while not self._closed.wait(WATCH_SECONDS):
            for member in list(self._workers):
                if not (member.pid and member.busy and not member.why_killed):
                    continue
                try:
                    process = psutil.Process(member.pid)
                    times, member.memory = process.cpu_times(), process.memory_info().rss
                except psutil.Error:
                    continue
                if why := self._over(member, times.user + times.system):
                    member.why_killed = why
                    process.kill()
                    member.process.kill()

    def _over(self, member: _Worker, spent: float) -> str:
        limits = self.limits
        if member.memory > limits.memory:
            return self._too_much_memory()
        if member.text > DOCUMENTS * limits.text:
            return f"its documents together hold more than {DOCUMENTS * limits.text // 1_000_000} MB of text"
        text = min(member.text, TEXT_PER_BYTE * member.size)
        allowed = limits.seconds + limits.seconds_per_megabyte * text / 1e6
        if spent - member.spent_before > allowed:
            setting = f"setting reader_seconds: {limits.seconds:g}"
            return f"reading it took more than {allowed:.3g} s of processor time ({setting})"
        return ""

    def _too_much_memory(self) -> str:
        return f"reading it took more than {self.limits.memory // 1_000_000} MB of memory (setting reader_memory_mb)"


def _reap(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that has ended; returns its exit code, negative for a signal."""
    code = process.wait()
    if process.stdin:
        with suppress(OSError):  # What was still to be written is for nobody.
            process.stdin.close()
    return code
