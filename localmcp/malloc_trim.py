"""Memory that was freed goes back to the system, so that a server which runs for days keeps its size.

glibc gives every thread a separate heap (up to 8 a core), and each keeps the holes that its busiest moment left: 32
HTTP clients cost 60 MB that hold nothing, and the sum goes on growing for minutes; loading the embedding model leaves
50 MB. Elsewhere this module does nothing.
"""

import os
import sys
import threading

RETURNING_SECONDS = 5.0
"""Between two returns; one takes about a millisecond, and Python goes on meanwhile."""


def limit_heaps() -> bool:
    """Let threads share two heaps, unless MALLOC_ARENA_MAX asks for another number; False where it cannot be told.

    Call it before they start. They mostly wait for Python's one lock, so that more heaps make nothing faster.
    """
    # -8 is M_ARENA_MAX of glibc's `malloc.h`.
    return "MALLOC_ARENA_MAX" not in os.environ and _call_glibc("mallopt", -8, 2)


def return_freed_memory() -> bool:
    """Give pages that hold nothing back to the system; False where there is nothing to give, or no way to."""
    return _call_glibc("malloc_trim", 0)


def keep_returning(stopped: threading.Event) -> None:
    """Return freed memory every few seconds, from a thread that ends when `stopped` is set."""

    def run() -> None:
        while not stopped.wait(RETURNING_SECONDS):
            return_freed_memory()

    if sys.platform == "linux":
        threading.Thread(target=run, name="localmcp-freed-memory", daemon=True).start()


def _call_glibc(function: str, *numbers: int) -> bool:
    if sys.platform != "linux":
        return False
    # 3 ms that nobody waits for who only starts the program.
    import ctypes

    called = getattr(ctypes.CDLL(None), function, None)
    return called is not None and called(*map(ctypes.c_long, numbers)) == 1
