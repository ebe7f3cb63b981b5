"""What costs seconds to make is made by one worker of a run, and read by the others."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

MOST_SECONDS = 600.0


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder, filled by `make`; a worker that comes later waits until it is whole."""
    whole, failed = folder / ".whole", folder / ".failed"
    try:
        folder.mkdir()
    except FileExistsError:
        deadline = time.monotonic() + MOST_SECONDS
        while not whole.exists():
            if failed.exists() or time.monotonic() > deadline:
                raise RuntimeError(f"{folder} was not made; another worker tells why") from None
            time.sleep(0.1)
        return folder
    try:
        make(folder)
    except BaseException:
        failed.touch()
        raise
    whole.touch()
    return folder
