"""Reading a file from elsewhere in a process that is killed when it takes too long.

One step of SQLite may take hours, such as an expression of a schema that a stranger wrote; no handler ends it.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from localmcp.errors import FileUnavailable, LocalMCPError

LEAST_SECONDS, BYTES_A_SECOND = 6.0, 5_000_000
"""Processor time that a file may take, and more by its size; ours take a tenth."""
WAITED_SECONDS = 60.0
"""How much longer it may take on a busy machine, or where processor time is not limited (Windows)."""
_ENTRY = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from localmcp.storage.killable import run; run()"

P = ParamSpec("P")
Result = TypeVar("Result")


def run_killable(path: Path, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Return `work(*args, **kwargs)` of a module's function that reads the file at `path`, run in its own process.

    Raises:
        FileUnavailable: it takes too long, or crashes.
        LocalMCPError: what `work` raises.
    """
    seconds = LEAST_SECONDS + path.stat().st_size / BYTES_A_SECOND
    command = [sys.executable, "-c", _ENTRY, json.dumps(sys.path)]
    task = pickle.dumps((int(seconds), work, args, kwargs))
    try:
        done = subprocess.run(command, input=task, capture_output=True, timeout=seconds + WAITED_SECONDS, check=False)
        was_killed = done.returncode < 0
    except subprocess.TimeoutExpired:
        done, was_killed = None, True
    if was_killed:
        raise FileUnavailable(f"{path} takes too long to read.", hint="Ask for the file again.")
    if done is None or done.returncode or not done.stdout:
        raise FileUnavailable(f"{path} cannot be read.")
    outcome: Any = pickle.loads(done.stdout)
    if isinstance(outcome, LocalMCPError):
        raise outcome
    return outcome


def run() -> None:
    """Do what the other process asks for on stdin; the result, or the error, goes to stdout."""
    seconds, work, args, kwargs = pickle.loads(sys.stdin.buffer.read())
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        outcome = work(*args, **kwargs)
    except LocalMCPError as error:
        outcome = error
    sys.stdout.buffer.write(pickle.dumps(outcome))
