"""Read files that are named on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

from localmcp.errors import InvalidInput, NotFound


def existing_file(file: Path, *, hint: str | None = None) -> Path:
    """Return the file with `~` expanded.

    Raises:
        NotFound: there is none.
    """
    path = file.expanduser()
    if not path.is_file():
        raise NotFound(f"There is no file {file}.", hint=hint)
    return path


def read_bytes(file: str) -> bytes:
    """Return what is in a file; `-` is stdin.

    Raises:
        NotFound: there is no such file.
        InvalidInput: it cannot be read.
    """
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).expanduser().read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {file}.") from error
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}.") from error
