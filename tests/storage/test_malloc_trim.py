"""Freed memory goes back to the system, where the C library can be told to."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FREED = """
import sys, threading
from pathlib import Path
from localmcp import malloc_trim

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

# Blocks of 60 kB come from the heap; a small one between each two keeps the heap from shrinking by itself.
blocks = [(bytes(60_000), bytes(600)) for _ in range(2500)]
kept = [each[1] for each in blocks]
full = resident()
del blocks
malloc_trim.RETURNING_SECONDS = 0.01
stopped = threading.Event()
malloc_trim.keep_returning(stopped)
[thread] = [each for each in threading.enumerate() if each.name == "localmcp-freed-memory"]
while resident() > full - 80:
    stopped.wait(0.01)
stopped.set()
thread.join()
"""

HEAPS = """
import threading
from pathlib import Path
from localmcp.malloc_trim import limit_heaps

told = limit_heaps()
ready, release = threading.Barrier(13), threading.Event()
kept = []

def hold():
    kept.append(bytes(60_000))
    ready.wait()
    release.wait()

threads = [threading.Thread(target=hold) for _ in range(12)]
for each in threads:
    each.start()
ready.wait()
places = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
# The heaps of threads begin at multiples of 64 MB.
print(told, sum(int(start, 16) % 2**26 == 0 for start, _ in places))
release.set()
"""


HAS_GLIBC = sys.platform == "linux" and "CS_GNU_LIBC_VERSION" in os.confstr_names
pytestmark = pytest.mark.skipif(not HAS_GLIBC, reason="only glibc keeps what was freed and gives threads their heaps")


def run(program: str, **more: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env={**kept, **more}).stdout


def test_what_was_freed_leaves_the_process_by_itself() -> None:
    assert run(FREED) == ""


def test_many_threads_share_two_heaps_unless_the_environment_says_otherwise() -> None:
    told, heaps = run(HEAPS).split()
    assert (told, int(heaps) <= 2) == ("True", True)
    told, heaps = run(HEAPS, MALLOC_ARENA_MAX="12").split()
    assert (told, int(heaps) > 2) == ("False", True)
