"""Times as the file holds them: ISO 8601 in UTC, with milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def utc_text(moment: datetime) -> str:
    """ISO 8601 UTC with milliseconds, as every time in the file is written."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_moment(text: str) -> datetime:
    """Return a time in UTC; one without an offset is taken as UTC.

    Raises:
        TypeError, ValueError, OverflowError: not ISO 8601.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def utc_now(ago: float = 0.0) -> str:
    """Return the time `ago` seconds before now, as it is written in the file."""
    return utc_text(datetime.now(UTC) - timedelta(seconds=ago))
