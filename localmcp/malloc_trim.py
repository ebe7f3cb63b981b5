"""Memory that was freed goes back to the system, so that a server which runs for days keeps its size.

glibc gives every thread a separate heap (up to 8 a core), and each keeps the holes that its busiest moment left: 32
HTTP clients cost 60 MB that hold nothing, and the sum goes on growing for minutes; loading the embedding model leaves
50 MB. Elsewhere this module does nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

RETURNING_SECONDS = 5.0
"""Between two returns; one takes about a millisecond, and Python goes on meanwhile."""


def limit_heaps() -> bool:
    """Let threads share two heaps, unless MALLOC_ARENA_MAX asks for another number; call it before they start.

    They mostly wait for Python's one lock, so that more heaps make nothing faster. Returns whether this C library could
    be told.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return False
    limit = _glibc("mallopt")
    # -8 is M_ARENA_MAX of glibc's `malloc.h`.
    return limit is not None and limit(-8, 2) == 1


def return_freed_memory() -> bool:
    """Give pages that hold nothing back to the system; False where there is nothing to give, or no way to."""
    import ctypes

    trim = _glibc("malloc_trim")
    return trim is not None and trim(ctypes.c_size_t(0)) == 1


def keep_returning(stopped: threading.Event) -> None:
    """Return freed memory every few seconds, from a thread that ends when `stopped` is set."""

    def run() -> None:
        while not stopped.wait(RETURNING_SECONDS):
            return_freed_memory()

    if _glibc("malloc_trim") is not None:
        threading.Thread(target=run, name="localmcp-freed-memory", daemon=True).start()


def _glibc(function: str) -> Callable[..., Any] | None:
    """That function of the C library; None where it has none."""
    if sys.platform != "linux":
        return None
    # 3 ms that nobody waits for who only starts the program.
    import ctypes

    return getattr(ctypes.CDLL(None), function, None)
