"""Times as the file holds them: ISO 8601 in UTC, with milliseconds; and spans as people type them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta


def utc_text(moment: datetime) -> str:
    """ISO 8601 UTC with milliseconds, as every time in the file is written."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_moment(text: str) -> datetime:
    """Return a time in UTC, which one without an offset is; TypeError, ValueError, OverflowError: not ISO 8601."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def utc_now(ago: float = 0.0) -> str:
    """Return the time `ago` seconds before now, as it is written in the file."""
    return utc_text(datetime.now(UTC) - timedelta(seconds=ago))


def days_ago(words: str, today: date) -> int | None:
    """Return how many days ago it began: `yesterday`, `this week` (from Monday on), `last month` (30 days); or None."""
    plain = " ".join(words.lower().split())
    begun = {"this week": today.weekday(), "this month": today.day - 1, "this year": today.timetuple().tm_yday - 1}
    return {"today": 0, "yesterday": 1, "last week": 7, "last month": 30, "last year": 365, **begun}.get(plain)


def parse_span(text: str) -> timedelta | None:
    """Return the length of time that a person typed: `30min`, `12h ago`, `7d`, `6m` (of 30 days), `1y`; else None."""
    units = "s|secs?|seconds?|mins?|minutes?|h|hours?|d|days?|w|weeks?|m|months?|y|years?"
    match = re.fullmatch(rf"(\d{{1,6}}) ?({units})( ago)?", " ".join(text.split()), re.IGNORECASE)
    if match is None:
        return None
    unit = match[2].lower()
    unit = "min" if unit.startswith("min") else unit[0]
    seconds = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, "m": 30 * 86_400, "y": 365 * 86_400}[unit]
    return timedelta(seconds=int(match[1]) * seconds)
