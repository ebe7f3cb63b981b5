"""Runs a function over files in worker processes; one whose file exceeds its limits is killed with it.

A thread serves each process: it takes the next item, sends it, and passes on what comes back.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Generic, Literal, TypeVar

from localmcp.errors import LocalMCPError, Unavailable
from localmcp.malloc_trim import return_freed_memory

Item = TypeVar("Item")
Value = TypeVar("Value")

UNDELIVERED_BYTES = 16_000_000
"""When values of this size wait for the caller, the workers wait."""
RETIRE_BYTES = 350_000_000
"""A worker that holds more after a file is replaced, since Python rarely gives memory back."""
TEXT_PER_BYTE = 100
"""Characters that a byte of a file may hold: beyond, it was packed to hold up its reader, and gets no more time."""

_Step = tuple[Any, bytes | str] | Exception | None
"""An item and a value, pickled, or its end, and why if it failed; or why no worker runs; None: a thread has ended."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of reading one file, with all documents in it."""

    seconds: float = 12.0
    """Processor time."""
    seconds_per_megabyte: float = 3.0
    """More processor time for every million characters of text that the file has yielded, up to TEXT_PER_BYTE."""
    memory: int = 1_000_000_000
    """Bytes that the worker holds, its own 50 MB included."""


# ---------------------------------------------------------------- in the worker

_text = 0
"""Characters of the current file."""
_report: Callable[[], None] | None = None


def count_text(characters: int) -> None:
    """Count text of the current file: every MB of it allows more processor time. Does nothing in other processes."""
    global _text
    _text += characters
    # The parent hears at once of much more time.
    if _report and characters > 100_000:
        _report()


def work_for_parent() -> None:
    """Work until stdin ends: first comes (function, bytes of memory), then an item at a time."""
    global _report, _text
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, back = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Libraries must neither print between the frames nor read them.
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY)):
        null = os.open(os.devnull, flags)
        os.dup2(null, descriptor)
        os.close(null)
    work, memory = pickle.load(source)
    if memory and sys.platform != "win32":
        import resource

        # Searches of any process go first; on an idle machine reading is as fast.
        os.nice(5)
        # One sudden allocation fails beyond twice the limit; the parent watches the limit itself.
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (2 * memory if most < 0 else min(2 * memory, most), most))
    # Readers make few cycles of objects: looking for them after every 700 objects took a tenth of the time.
    gc.set_threshold(50_000)

    def send(kind: Literal["begin", "text", "value", "end"], failure: str = "", value: bytes = b"") -> None:
        # With the process and its processor time in seconds, and the characters of the current item. A value comes
        # after its length: the parent takes it when there is room.
        head = (kind, os.getpid(), time.process_time(), _text, failure, len(value))
        pickle.dump(head, back, pickle.HIGHEST_PROTOCOL)
        back.write(value)
        back.flush()

    items = queue.SimpleQueue[Any]()

    def take() -> None:
        # In a thread, which also notices when the parent ends while a file is read.
        with suppress(EOFError, pickle.UnpicklingError):
            while True:
                items.put(pickle.load(source))
        os._exit(0)

    _report = partial(send, "text")
    threading.Thread(target=take, daemon=True).start()
    while True:
        item, _text, failure = items.get(), 0, ""
        send("begin")
        try:
            for value in work(item):
                send("value", value=pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
        except MemoryError:
            failure = f"reading it took more than {memory // 1_000_000} MB of memory"
        except LocalMCPError as error:
            failure = str(error)
        except Exception as error:
            failure = f"unexpected {type(error).__name__}: {error}"[:300]
        send("end", failure)


# ---------------------------------------------------------------- in the parent


@dataclass(frozen=True, slots=True)
class Answer(Generic[Item, Value]):
    """A value of an item, or (once, last) its end, and why it failed: "" if its values were all."""

    item: Item
    value: Value | None = None
    finished: bool = False
    failure: str = ""


class _Worker:
    """A process, and what its current file has cost so far."""

    def __init__(self, work: Callable[[Any], Iterator[Any]], limits: Limits) -> None:
        self.limits = limits
        self.pid = 0
        """Not that of `process` where a launcher is in between, as on Windows; 0 until it runs."""
        self.reading = self.is_behind = False
        """Whether it is on an item; whether it may have told of more text than was taken from it yet."""
        self.size = self.text = self.memory = 0
        self.spent_before = 0.0
        self.why_killed = ""
        entry = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from localmcp.readers import worker_pool; "
        windows = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW if sys.platform == "win32" else 0
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"{entry}worker_pool.work_for_parent()", json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C reaches every process of the terminal's group; the parent decides what ends.
                start_new_session=True,
                creationflags=windows,
            )
        except OSError as error:
            raise Unavailable(f"No process for reading files can be started: {error.strerror or error}.") from error
        assert self.process.stdin and self.process.stdout
        self.input, self.output = self.process.stdin, self.process.stdout
        self.setup = (work, limits.memory)

    def read(self, item: object, size: int, receive: Callable[[IO[bytes], int], bytes]) -> Iterator[bytes | str]:
        """Send an item; yields each value of it, pickled, and last why it failed, or its process died of it, or "".

        `receive` reads so many bytes, or raises EOFError. Unavailable if the process never ran.
        """
        self.size, self.text, self.why_killed = size, 0, ""
        # What cannot be sent shows as the end of the output.
        with suppress(OSError):
            for payload in (item,) if self.pid else (self.setup, item):
                self.input.write(pickle.dumps(payload, pickle.HIGHEST_PROTOCOL))
            self.input.flush()
        with suppress(EOFError, pickle.UnpicklingError):
            while True:
                self.is_behind = False
                kind, self.pid, spent, self.text, failure, length = pickle.load(self.output)
                if kind == "begin":
                    self.spent_before, self.reading = spent, True
                elif kind == "value":
                    # It may be large, and is not held here while the next is waited for. It may wait for room.
                    self.is_behind = True
                    yield receive(self.output, length)
                elif kind == "end":
                    self.reading = False
                    yield failure
                    return
        self.reading = False
        code = self.process.wait()
        if not self.pid:
            hint = f"Check that this works: {sys.executable} -m localmcp --version"
            raise Unavailable(f"No process for reading files can be started (exit code {code}).", hint=hint)
        ending = f"signal {-code}" if code < 0 else f"exit code {code}"
        yield self.why_killed or f"the reader crashed on it ({ending})"

    def check(self) -> None:
        if not self.reading or self.why_killed:
            return
        import psutil  # 12 ms

        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            times, self.memory = process.cpu_times(), process.memory_info().rss
            text = min(self.text, TEXT_PER_BYTE * self.size)
            seconds = self.limits.seconds + self.limits.seconds_per_megabyte * text / 1e6
            if self.memory > self.limits.memory:
                self.why_killed = f"reading it took more than {self.limits.memory // 1_000_000} MB of memory"
            elif times.user + times.system - self.spent_before > seconds and not self.is_behind:
                self.why_killed = f"reading it took more than {seconds:.3g} s of processor time"
            if self.why_killed:
                process.kill()
                self.process.kill()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.input, self.output):
            with suppress(OSError):
                stream.close()


class WorkerPool(Generic[Item, Value]):
    """Runs `work` in up to `workers` processes, which stay until `close`; used by one thread at a time.

    `work`, items (never None) and values are pickled. `size` gives the bytes of the file of an item.
    """

    def __init__(
        self, work: Callable[[Item], Iterator[Value]], *, workers: int, limits: Limits | None = None,
        size: Callable[[Item], int] = lambda item: 0,
    ) -> None:  # fmt: skip
        self.limits = limits or Limits()
        self.is_closed = False
        self._work, self._most, self._size_of = work, workers, size
        self._workers: dict[int, _Worker] = {}
        self._lock, self._room = threading.Lock(), threading.Condition()
        self._undelivered = 0

    def __enter__(self) -> WorkerPool[Item, Value]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, whatever they are doing; nothing more is answered."""
        self.is_closed = True
        self._make_room(0)
        with self._lock:
            ended, self._workers = self._workers, {}
        for member in ended.values():
            member.end()

    def run(self, items: Iterable[Item]) -> Iterator[Answer[Item, Value]]:
        """Yield what the workers make of the items, in any order between items.

        Items are taken when a worker is free, in its thread. What a file yielded before a limit or a crash stays.
        Unavailable if no worker process can be started.
        """
        jobs, steps, done = iter(items), queue.SimpleQueue[_Step](), threading.Event()
        threading.Thread(target=self._watch, args=(done,), name="localmcp-limits", daemon=True).start()
        for place in range(self._most):
            work = partial(self._serve, place, jobs, steps)
            threading.Thread(target=work, name="localmcp-reading", daemon=True).start()
        serving = self._most
        try:
            while serving:
                step = steps.get()
                if step is None:
                    serving -= 1
                    continue
                if isinstance(step, Exception):
                    raise step
                item, result = step
                del step
                if isinstance(result, bytes):
                    size, value = len(result), pickle.loads(result)
                    # The bytes are not kept beside what they became while the caller works on that.
                    result = b""
                    if size > 1_000_000:
                        return_freed_memory()  # Else the heap of each thread keeps those of its largest value.
                    self._make_room(size)
                    yield Answer(item, value)
                    value = None
                else:
                    yield Answer(item, finished=True, failure=result)
        finally:
            done.set()
            if serving:
                self.close()

    def _watch(self, done: threading.Event) -> None:
        # In the time between two looks a process can allocate about 100 MB.
        while not done.wait(0.05):
            for member in list(self._workers.values()):
                member.check()

    def _serve(self, place: int, jobs: Iterator[Item], steps: queue.SimpleQueue[_Step]) -> None:
        """Work off the jobs with one process, and another one where that has ended or grown."""
        try:
            while True:
                with self._lock:
                    item = None if self.is_closed else next(jobs, None)
                    if item is None:
                        break
                    member = self._workers.get(place) or _Worker(self._work, self.limits)
                    self._workers[place] = member
                for result in member.read(item, self._size_of(item), self._receive):
                    steps.put((item, result))
                    del result
                if member.process.poll() is not None or member.memory > RETIRE_BYTES:
                    self._workers.pop(place, None)
                    member.end()
        except Exception as error:
            steps.put(error)
        finally:
            steps.put(None)

    def _receive(self, stream: IO[bytes], size: int) -> bytes:
        # What waits for room waits in its worker: of two large values one is here.
        with self._room:
            self._room.wait_for(lambda: self._undelivered < UNDELIVERED_BYTES or self.is_closed)
            self._undelivered += size
        payload = stream.read(size)
        if len(payload) < size:
            self._make_room(size)
            raise EOFError
        return payload

    def _make_room(self, size: int) -> None:
        with self._room:
            self._undelivered -= size
            self._room.notify_all()
