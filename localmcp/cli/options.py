"""Options that several commands have, each declared once, and points in time as a person types them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import click

from localmcp.errors import InvalidInput
from localmcp.storage.times import utc_text

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


_SPAN = re.compile(r"(\d{1,6})\s*(?:(s|min|h|d|w|y)|(sec|min|hour|day|week|year)[a-z]*)( ago)?", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_DAYS_AGO = {"today": 0, "yesterday": 1}
FORM = "30min, 12h, 7d, 2w, 1y, a date like 2027-01-31, or a time like 2027-01-31T12:00"


def parse_time(option: str, text: str | None, *, ahead: bool) -> str | None:
    """Return the time that far ahead or back, or the time itself, as ISO 8601 in UTC; or None.

    An empty time is an error: a shell variable that is not set must not make a key that never ends.

    Raises:
        InvalidInput: neither; names the option.
    """
    if text is None:
        return None
    span, day = _SPAN.fullmatch(text.strip()), _DAYS_AGO.get(text.strip().lower())
    try:
        if span and not (ahead and span[4]):
            distance = timedelta(seconds=int(span[1]) * _SECONDS[(span[2] or span[3])[0].lower()])
            moment = datetime.now(UTC) + (distance if ahead else -distance)
        elif day is not None and not ahead:
            moment = datetime.combine(date.today() - timedelta(day), time()).astimezone(UTC)
        else:
            # Without an offset it is the clock on the person's wall.
            moment = datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(f"{option}: '{text}' is no time; write {FORM}.") from error
    return utc_text(moment)
