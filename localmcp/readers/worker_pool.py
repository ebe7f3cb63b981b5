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
from typing import Any, Generic, TypeVar

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


@dataclass(slots=True, eq=False)
class _Worker:
    """A process, what it has been handed, and what its current file has cost so far."""

    process: subprocess.Popen[bytes]
    jobs: deque[Any] = field(default_factory=deque[Any])
    """Items; the first is being worked on, or its values are still to be delivered."""
    load: int = 0
    """Sum of their shares."""
    pid: int = 0
    """Not that of `process` where a launcher is in between, as in a virtual environment on Windows; 0 until it runs."""
    reading: bool = False
    size: int = 0
    """Bytes of the current file."""
    member: str = ""
    """The document of a container that is being read."""
    spent_before: float = 0.0
    text: int = 0
    memory: int = 0
    why_killed: str = ""
    retired: bool = False
    """It gets no more items."""

    def reap(self) -> int:
        """Wait for the process, which has ended; returns its exit code, negative for a signal."""
        code = self.process.wait()
        self.hang_up()
        return code

    def hang_up(self) -> None:
        """Let the process end after its last item."""
        if self.process.stdin:
            with suppress(OSError):  # What was still to be written is for nobody.
                self.process.stdin.close()


class WorkerPool(Generic[Item, Value]):
    """Worker processes that turn items into values; they start with the first item and end with the pool.

    `work`: picklable generator function of an item. `size`: bytes of an item's file.
    """

    def __init__(
        self, work: Callable[[Item], Iterator[Value]], *, workers: int = 0, limits: Limits | None = None,
        share: Callable[[Item], int] = lambda item: SMALL, size: Callable[[Item], int] = lambda item: 1 << 40,
    ) -> None:  # fmt: skip
        self._share, self._size_of = share, size
        self.limits = limits or Limits()
        self._setup = (work, self.limits.memory, self.limits.text)
        self._most = workers or os.cpu_count() or 1
        self._workers: list[_Worker] = []
        self._events: queue.SimpleQueue[tuple[_Worker, bytes, bytes, str]] = queue.SimpleQueue()
        self._undelivered = 0
        self._room = threading.Condition()
        self._closed = threading.Event()

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
            member.reap()
        self._workers.clear()

    def run(self, items: Iterable[Item]) -> Iterator[Answer[Item, Value]]:
        """Yield what the workers make of the items, in any order between items.

        Items are taken lazily, in the caller's thread. What a file yielded before a limit or a crash stays.

        Raises:
            Unavailable: no worker process can be started.
        """
        jobs = ((item,) for item in items)
        again: deque[tuple[Item]] = deque()
        try:
            self._hand_out(jobs, again)
            while any(member.jobs for member in self._workers):
                yield from self._answers(*self._events.get(), again)
                self._hand_out(jobs, again)
        finally:
            if any(member.jobs for member in self._workers):
                self.close()

    # ------------------------------------------------------------ in the caller's thread

    def _hand_out(self, jobs: Iterator[tuple[Item]], again: deque[tuple[Item]]) -> None:
        """Give each item to the worker that holds least, and start workers while there are items."""
        while True:
            active = [member for member in self._workers if not member.retired]
            member = min(active, key=lambda member: member.load, default=None)
            if len(active) < self._most and (member is None or member.jobs):
                member = None
            elif member is None or member.load >= AHEAD:
                return
            job = again.popleft() if again else next(jobs, None)
            if job is None:
                return
            member, item = member or self._start(), job[0]
            member.jobs.append(item)
            member.load += self._share(item)
            assert member.process.stdin
            with suppress(OSError):  # A worker that has died ends its output, and the item is handed to another.
                worker.send_to(member.process.stdin, (item, self._size_of(item)))

    def _answers(
        self, member: _Worker, kind: bytes, payload: bytes, document: str, again: deque[tuple[Item]]
    ) -> Iterator[Answer[Item, Value]]:
        if kind == worker.VALUE:
            with self._room:
                self._undelivered -= len(payload)
                self._room.notify_all()
            yield Answer(member.jobs[0], pickle.loads(payload))
        elif kind == worker.ERROR:
            yield Answer(member.jobs[0], failure=pickle.loads(payload) or self._too_much_memory(), member=document)
        elif kind == worker.END:
            item = member.jobs.popleft()
            member.load -= self._share(item)
            yield Answer(item, finished=True)
            member.retired = member.retired or member.memory > RETIRE_BYTES
            if member.retired and not member.jobs:
                member.hang_up()
        elif member in self._workers:
            yield from self._bury(member, again)

    def _bury(self, dead: _Worker, again: deque[tuple[Item]]) -> Iterator[Answer[Item, Value]]:
        """Give up the file that a dead worker was reading, and have its other items read by the next."""
        code = dead.reap()
        self._workers.remove(dead)
        if not dead.pid:
            raise Unavailable(
                f"No process for reading files can be started (exit code {code}).",
                hint=f"Check that this works: {sys.executable} -m localmcp --version",
            )
        if dead.reading:
            lost: Item = dead.jobs.popleft()
            ending = f"signal {-code}" if code < 0 else f"exit code {code}"
            failure = dead.why_killed or f"the reader crashed on it ({ending})"
            log.info("a reading process ended: %s", failure)
            yield Answer(lost, failure=failure, member=dead.member)
            yield Answer(lost, finished=True)
        again.extend((item,) for item in dead.jobs)
        dead.jobs.clear()

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
        assert process.stdin
        with suppress(OSError):  # Its output ends then, too, and the exit code is reported.
            worker.send_to(process.stdin, self._setup)
        if not self._workers:
            threading.Thread(target=self._watch, name="localmcp-limits", daemon=True).start()
        self._workers.append(member)
        threading.Thread(target=self._listen, args=(member,), name="localmcp-worker", daemon=True).start()
        return member

    def _listen(self, member: _Worker) -> None:
        """Turn a worker's frames into events, until its output ends."""
        stream = member.process.stdout
        assert stream
        with stream:
            while len(header := stream.read(worker.HEADER.size)) == worker.HEADER.size:
                kind, spent, size = worker.HEADER.unpack(header)
                payload = stream.read(size)
                if kind == worker.READY:
                    member.pid = pickle.loads(payload)
                elif kind == worker.TEXT:
                    member.text += pickle.loads(payload)
                elif kind == worker.MEMBER:
                    member.member = pickle.loads(payload)
                elif kind == worker.BEGIN:
                    member.spent_before, member.member, member.text = spent, "", 0
                    member.size, member.reading = pickle.loads(payload), True
                else:
                    self._queue(member, kind, payload)
        self._events.put((member, b"", b"", ""))

    def _queue(self, member: _Worker, kind: bytes, payload: bytes) -> None:
        if kind == worker.VALUE:
            with self._room:
                self._room.wait_for(lambda: self._undelivered < UNDELIVERED_BYTES or self._closed.is_set())
                self._undelivered += len(payload)
        self._events.put((member, kind, payload, member.member))
        if kind == worker.END:
            member.reading = False

    def _watch(self) -> None:
        """Kill workers whose file is over its limits, as long as there are any."""
        import psutil

        while not self._closed.wait(WATCH_SECONDS) and self._workers:
            for member in list(self._workers):
                if not (member.pid and member.reading and not member.why_killed):
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
        """Return which limit a worker is over, "" for none."""
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
