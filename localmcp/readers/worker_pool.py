"""Runs a function over files in worker processes; one whose file exceeds its limits is killed with it.

A thread serves each process: it takes the next item, sends it, and passes on what comes back.
"""

from __future__ import annotations

import json
import logging
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from localmcp.errors import Unavailable
from localmcp.readers import worker

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Value = TypeVar("Value")

UNDELIVERED_BYTES = 16_000_000
"""When values of this size wait for the caller, the workers wait."""
WATCH_SECONDS = 0.05
"""Time between two looks at the workers, in which a process can allocate about 100 MB."""
RETIRE_BYTES = 350_000_000
"""A worker that holds more after a file is replaced, since Python rarely gives memory back."""
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


@dataclass(frozen=True, slots=True)
class Answer(Generic[Item, Value]):
    """One step of an item: a value, or why no more follow, or (once, last) its end."""

    item: Item
    value: Value | None = None
    failure: str = ""
    finished: bool = False


class _Worker:
    """A process, and what its current file has cost so far."""

    def __init__(self, work: Callable[[Any], Iterator[Any]], limits: Limits) -> None:
        self.limits = limits
        self.pid = 0
        """Not that of `process` where a launcher is in between, as on Windows; 0 until it runs."""
        self.reading = False
        self.size = self.text = self.memory = 0
        self.spent_before = 0.0
        self.why_killed = ""
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _ENTRY, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C reaches every process of the terminal's group; the parent decides what ends.
                start_new_session=True,
                creationflags=_CREATION_FLAGS,
            )
        except OSError as error:
            raise Unavailable(f"No process for reading files can be started: {error.strerror or error}.") from error
        assert self.process.stdin and self.process.stdout
        self.input, self.output = self.process.stdin, self.process.stdout
        self.setup = (work, limits.memory)

    def read(self, item: object, size: int) -> Iterator[tuple[bytes, bytes]]:
        """Send an item; yields the kind and the pickled value of each frame, an ERROR too if the process dies of it.

        Raises:
            Unavailable: the process never ran.
        """
        self.size, self.text, self.why_killed = size, 0, ""
        # What cannot be sent shows as the end of the output.
        with suppress(OSError):
            if not self.pid:
                worker.send_to(self.input, self.setup)
            worker.send_to(self.input, item)
        while len(header := self.output.read(worker.FRAME.size)) == worker.FRAME.size:
            kind, spent, self.text, length = worker.FRAME.unpack(header)
            payload = self.output.read(length)
            if len(payload) < length:
                break
            if kind in (worker.VALUE, worker.ERROR):
                yield kind, payload
                # It may be large, and is not held here while the next is waited for.
                payload = b""
                continue
            value = pickle.loads(payload)
            if kind == worker.READY:
                self.pid = value
            elif kind == worker.BEGIN:
                self.spent_before, self.reading = spent, True
            elif kind == worker.END:
                self.reading = False
                return
        self.reading = False
        code = self.process.wait()
        if not self.pid:
            raise Unavailable(
                f"No process for reading files can be started (exit code {code}).",
                hint=f"Check that this works: {sys.executable} -m localmcp --version",
            )
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        failure = self.why_killed or f"the reader crashed on it ({ending})"
        log.info("a reading process ended: %s", failure)
        yield worker.ERROR, pickle.dumps(failure)

    def check(self) -> None:
        """Kill the process if its file is over a limit."""
        if not self.reading or self.why_killed:
            return
        import psutil  # 12 ms

        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            times, self.memory = process.cpu_times(), process.memory_info().rss
            text = min(self.text, TEXT_PER_BYTE * self.size)
            seconds = self.limits.seconds + self.limits.seconds_per_megabyte * text / 1e6
            if self.memory > self.limits.memory:
                self.why_killed = too_much_memory(self.limits)
            elif times.user + times.system - self.spent_before > seconds:
                self.why_killed = f"reading it took more than {seconds:.3g} s of processor time"
            if self.why_killed:
                process.kill()
                self.process.kill()

    def end(self) -> None:
        """Kill the process, and wait for it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.input, self.output):
            with suppress(OSError):
                stream.close()


def too_much_memory(limits: Limits) -> str:
    """Return the reason for a file whose reading needs more memory than allowed."""
    return f"reading it took more than {limits.memory // 1_000_000} MB of memory"


class WorkerPool(Generic[Item, Value]):
    """Runs `work` in up to `workers` processes, which stay until `close`; used by one thread at a time.

    `work`, items and values are pickled. `size` gives the bytes of the file of an item.
    """

    def __init__(
        self, work: Callable[[Item], Iterator[Value]], *, workers: int, limits: Limits | None = None,
        size: Callable[[Item], int] = lambda item: 0,
    ) -> None:  # fmt: skip
        self.limits = limits or Limits()
        self._work, self._most, self._size_of = work, workers, size
        self._workers: dict[int, _Worker] = {}
        self._lock, self._room = threading.Lock(), threading.Condition()
        self._undelivered = 0
        self._closed = threading.Event()

    def __enter__(self) -> WorkerPool[Item, Value]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether its processes were ended."""
        return self._closed.is_set()

    def close(self) -> None:
        """End the processes, whatever they are doing; nothing more is answered."""
        self._closed.set()
        with self._room:
            self._room.notify_all()
        with self._lock:
            ended, self._workers = self._workers, {}
        for member in ended.values():
            member.end()

    def run(self, items: Iterable[Item]) -> Iterator[Answer[Item, Value]]:
        """Yield what the workers make of the items, in any order between items.

        Items are taken when a worker is free, in its thread. What a file yielded before a limit or a crash stays.

        Raises:
            Unavailable: no worker process can be started.
        """
        jobs = ((item,) for item in items)
        steps = queue.SimpleQueue[tuple[Item, bytes, bytes] | Exception | None]()
        done = threading.Event()
        threading.Thread(target=self._watch, args=(done,), name="localmcp-limits", daemon=True).start()
        for place in range(self._most):
            threading.Thread(
                target=self._serve, args=(place, jobs, steps), name="localmcp-reading", daemon=True
            ).start()
        serving = self._most
        try:
            while serving:
                step = steps.get()
                if step is None:
                    serving -= 1
                    continue
                if isinstance(step, Exception):
                    raise step
                item, kind, payload = step
                with self._room:
                    self._undelivered -= len(payload)
                    self._room.notify_all()
                value = pickle.loads(payload) if payload else None
                # The bytes are not kept beside what they became while the caller works on that.
                del step, payload
                if kind == worker.VALUE:
                    yield Answer(item, value)
                elif kind == worker.ERROR:
                    yield Answer(item, failure=value or too_much_memory(self.limits))
                else:
                    yield Answer(item, finished=True)
                value = None
        finally:
            done.set()
            if serving:
                self.close()

    def _serve(
        self, place: int, jobs: Iterator[tuple[Item]],
        steps: queue.SimpleQueue[tuple[Item, bytes, bytes] | Exception | None],
    ) -> None:  # fmt: skip
        """Have the process of a place read items until there are none."""
        try:
            while True:
                with self._lock:
                    job = None if self.is_closed else next(jobs, None)
                    if job is None:
                        break
                    member = self._workers.get(place) or _Worker(self._work, self.limits)
                    self._workers[place] = member
                (item,) = job
                for kind, payload in member.read(item, self._size_of(item)):
                    with self._room:
                        self._room.wait_for(lambda: self._undelivered < UNDELIVERED_BYTES or self.is_closed)
                        self._undelivered += len(payload)
                    steps.put((item, kind, payload))
                    del payload
                steps.put((item, worker.END, b""))
                if member.process.poll() is not None or member.memory > RETIRE_BYTES:
                    with self._lock:
                        self._workers.pop(place, None)
                    member.end()
        except Exception as error:
            steps.put(error)
        finally:
            steps.put(None)

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(WATCH_SECONDS):
            for member in list(self._workers.values()):
                member.check()
