"""A small process that ends the servers that are left when localmcp is killed.

Run as a script (POSIX only; on Windows a job object does the same). It reads `+GROUP` and `-GROUP` lines of process
groups on stdin. When stdin ends, which it does however localmcp dies, it ends the groups that are left.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial

assert sys.platform != "win32"

LEAVING_SECONDS, ENDING_SECONDS = 2.0, 1.0
"""How long a server may take after its stdin has closed, and after SIGTERM."""


def main() -> None:
    """Keep the list until stdin ends, then end what is on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line.startswith("+") else groups.discard)(int(line[1:]))
    end_groups(groups)


def end_groups(groups: Iterable[int]) -> None:
    """Wait for the groups to leave, then send SIGTERM, then SIGKILL."""
    left = _wait(groups, LEAVING_SECONDS)
    for number, seconds in ((signal.SIGTERM, ENDING_SECONDS), (signal.SIGKILL, 0.0)):
        for group in left:
            _tried(partial(os.killpg, group, number))
        left = _wait(left, seconds)


def _wait(groups: Iterable[int], seconds: float) -> list[int]:
    """Return the groups that are still there after `seconds`."""
    end = time.monotonic() + seconds
    while left := [group for group in groups if _tried(partial(os.killpg, group, 0))]:
        if time.monotonic() >= end:
            return left
        time.sleep(0.02)
    return []


def _tried(act: Callable[[], None]) -> bool:
    """Return whether there was a group to act on."""
    try:
        act()
    except ProcessLookupError:
        return False
    except PermissionError:
        # On macOS of groups whose members are all dead; else of another user's group, which is not ours to end.
        return False
    return True


if __name__ == "__main__":
    main()
