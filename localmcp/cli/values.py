"""Options that several commands have, and what is typed for them: files, JSON, `key=value`, points in time."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, cast

import click

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import expand_home, unicode_path
from localmcp.schemas import Json
from localmcp.storage.schema import days_ago, parse_span, utc_text

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
COLLECTIONS = click.option(
    "-c", "--collection", "collections", multiple=True, help="Only this collection; may be repeated."
)


def collection_option(says: str = "Only this collection.") -> Option:
    """Return `--collection`, one at most."""
    return click.option("-c", "--collection", help=says)


def no_wait(says: str = "Return when everything is found by its words.") -> Option:
    """Return `--no-wait`, for a command that waits until passages have vectors."""
    return click.option("--no-wait", is_flag=True, help=says)


def existing_file(file: Path, *, hint: str | None = None) -> Path:
    """Return the file with `~` expanded.

    Raises:
        NotFound: there is none.
    """
    path = expand_home(file)
    if not path.is_file():
        problem = f"{file} is a folder; a file is needed." if path.is_dir() else f"There is no file {file}."
        raise NotFound(problem, hint=hint)
    return path


def library_path(path: str) -> str:
    """Return a path as the library knows it if it is there; any other may be a part of one."""
    expanded = os.path.expanduser(path)
    return unicode_path(os.path.realpath(expanded)) if os.path.exists(expanded) else path


def read_bytes(file: str) -> bytes:
    """Return what is in a file; `-` is stdin. Raises as `existing_file`."""
    return sys.stdin.buffer.read() if file == "-" else existing_file(Path(file)).read_bytes()


def parse_object(text: str | bytes, subject: str, hint: str | None = None) -> Json:
    """Return the object of a JSON text.

    Raises:
        InvalidInput: it is not JSON, or no object; the message begins with `subject`, such as `The arguments are`.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{subject} not JSON: {error}.", hint=hint) from error
    if not isinstance(value, dict):
        raise InvalidInput(f"{subject} not an object.", hint=hint)
    return cast("Json", value)


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


FORM = "30min, 12h, 7d, 2w, 6 months, 1y, a date like 2027-01-31, or a time like 2027-01-31T12:00"


def parse_time(option: str, text: str | None, *, ahead: bool) -> str | None:
    """Return the time that far ahead or back, or the time itself, as ISO 8601 in UTC; or None.

    A bare `m` is months, as in every span; ahead it is refused, because who means minutes would get a key for years.
    An empty time is an error: a shell variable that is not set must not make a key that never ends.

    Raises:
        InvalidInput: neither; names the option.
    """
    if text is None:
        return None
    span, day = parse_span(text), days_ago(text, date.today())
    is_unclear = ahead and text.strip().lower().endswith(("ago", "m"))
    try:
        if span is not None and not is_unclear:
            moment = datetime.now(UTC) + (span if ahead else -span)
        elif day is not None and not ahead:
            moment = datetime.combine(date.today() - timedelta(day), time()).astimezone(UTC)
        else:
            # Without an offset it is the clock on the person's wall.
            moment = datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(f"{option}: '{text}' is no time; write {FORM}.") from error
    return utc_text(moment)
