"""Read files that are named on the command line, the JSON in them, and values typed there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import expand_home, unicode_path


def existing_file(file: Path, *, hint: str | None = None) -> Path:
    """Return the file with `~` expanded.

    Raises:
        NotFound: there is none.
    """
    path = expand_home(file)
    if path.is_dir():
        raise NotFound(f"{file} is a folder; a file is needed.", hint=hint)
    if not path.is_file():
        raise NotFound(f"There is no file {file}.", hint=hint)
    return path


def library_path(path: str) -> str:
    """Return a path as the library knows it if it is there; any other may be a part of one."""
    expanded = os.path.expanduser(path)
    return unicode_path(os.path.realpath(expanded)) if os.path.exists(expanded) else path


def read_bytes(file: str) -> bytes:
    """Return what is in a file; `-` is stdin.

    Raises:
        NotFound: there is no such file.
        InvalidInput: it cannot be read.
    """
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return expand_home(file).read_bytes()
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {file}.") from error
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}.") from error


def parse_json(text: str | bytes, subject: str, hint: str | None = None) -> Any:
    """Return the value of a JSON text.

    Raises:
        InvalidInput: it is not JSON; the message begins with `subject`, such as `notes.json is`.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{subject} not JSON: {error}.", hint=hint) from error


def split_pair(pair: str, message: str, hint: str | None = None) -> tuple[str, str]:
    """Return the key and the value of `key=value`.

    Raises:
        InvalidInput: it has no `=`, or nothing before it; says `message`.
    """
    key, equals, value = pair.partition("=")
    if not equals or not key.strip():
        raise InvalidInput(message, hint=hint)
    return key.strip(), value


def json_or_text(text: str) -> Any:
    """Return the value of a JSON text, or the text itself where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text
