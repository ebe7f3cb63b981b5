"""Options that several commands have, each declared once, and points in time as a person types them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import click

from localmcp.errors import InvalidInput
from localmcp.storage.times import days_ago, parse_span, utc_text

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
    is_unclear = ahead and span is not None and (span.is_ago or text.strip().lower().endswith("m"))
    try:
        if span and not is_unclear:
            moment = datetime.now(UTC) + (span.length if ahead else -span.length)
        elif day is not None and not ahead:
            moment = datetime.combine(date.today() - timedelta(day), time()).astimezone(UTC)
        else:
            # Without an offset it is the clock on the person's wall.
            moment = datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(f"{option}: '{text}' is no time; write {FORM}.") from error
    return utc_text(moment)
