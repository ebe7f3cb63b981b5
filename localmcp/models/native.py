"""Calls into onnxruntime: its import, its ending with the process, threads, and what it raises."""

from __future__ import annotations

import atexit
import hashlib
import mmap
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from localmcp.errors import LocalMCPError, ModelUnavailable

Item = TypeVar("Item")


class NativeCalls:
    """Counts the calls into onnxruntime, so that the process ends between them.

    Python freezes daemon threads at exit, and a call frozen half-way makes onnxruntime abort the
    process with a core dump.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False
        atexit.register(self.close)

    def __enter__(self) -> None:
        with self._changed:
            if self._closed:
                raise ModelUnavailable("The program is ending.")
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let no further call begin, and wait up to 20 seconds for those under way; busy machines take long."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._running, 20)


native_calls = NativeCalls()


@contextmanager
def explained(name: str, hint: str) -> Generator[None, None, None]:
    """Turn whatever a library raises while it loads a model into ModelUnavailable."""
    try:
        with native_calls:
            yield
    except LocalMCPError:
        raise
    except Exception as error:
        raise ModelUnavailable(f"The model {name} cannot be loaded: {error}".rstrip(".") + ".", hint=hint) from error


def import_onnxruntime() -> Any:
    """Import onnxruntime and keep it from reporting to its makers.

    Without the variable its wheels from 1.29 on make a device id and a database in the user's cache at their import,
    and send what they note to Microsoft; turning events off afterwards is too late for the first. Windows' own
    tracing in other wheels knows only the call (onnxruntime/Privacy.md).
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    runtime: Any = onnxruntime
    runtime.disable_telemetry_events()
    return runtime


def make_session(model: bytes | str, threads: int, weights: Mapping[str, Any] | None = None) -> Any:
    """Return a session of a model's file, or of one in memory with `weights`: OrtValues, which the caller keeps."""
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    # A thread that waits for work spins for half a millisecond only. It is as fast, but a search takes a third less of
    # the processor (30 instead of 46 ms at 100,000 passages).
    options.add_session_config_entry("session.intra_op.spin_duration_us", "500")
    if weights is not None:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # The session itself turns int8 into floats, in memory of its own: 30 MB less than handing floats over.
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.add_external_initializers(list(weights), list(weights.values()))
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def threads_for(requested: int | None) -> int:
    """Threads of the model: those requested, else as many as cores, up to 4."""
    return requested or min(4, os.cpu_count() or 1)


def run_beside(work: Callable[[Item], None], items: Iterable[Item], threads: int) -> None:
    """Work on all items in this thread and `threads` - 1 others, or fewer where the system gives no more.

    After a failure the rest is left undone, and its exception is raised.
    """
    waiting: SimpleQueue[Item] = SimpleQueue()
    for item in items:
        waiting.put(item)
    failures: list[BaseException] = []

    def attempt() -> None:
        try:
            while not failures:
                work(waiting.get_nowait())
        except Empty:
            pass
        except BaseException as error:
            failures.append(error)

    helpers = [threading.Thread(target=attempt, name="localmcp-passages", daemon=True) for _ in range(threads - 1)]
    with suppress(RuntimeError):
        for helper in helpers:
            helper.start()
    attempt()
    for helper in helpers:
        if helper.ident is not None:
            helper.join()
    if failures:
        raise failures[0]


def digest_weights(paths: Iterable[Path]) -> str:
    """Return the sha256 of the files' bytes one after the other; 14 ms for the 23 MB of the default model."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def map_file(path: Path) -> mmap.mmap:
    """Map a file into memory to read."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def map_checked(path: Path, sha256: str, hint: str) -> mmap.mmap:
    """Map a file of weights whose bytes are known; 14 ms for 23 MB.

    Raises:
        ModelUnavailable: its bytes are others.
    """
    mapped = map_file(path)
    digest = hashlib.sha256(mapped).hexdigest()
    if digest != sha256:
        raise ModelUnavailable(f"{path} is not the file localmcp was made with (sha256 {digest}).", hint=hint)
    if sys.platform != "win32":
        # Only what is used later needs to stay in memory.
        mapped.madvise(mmap.MADV_DONTNEED)
    return mapped
