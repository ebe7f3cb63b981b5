"""Points in time as a person types them: a date, or how far away it is."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from localmcp.errors import InvalidInput
from localmcp.storage.times import utc_text

_SPAN = re.compile(r"(\d{1,6})\s*(s|min|h|d|w|y)", re.IGNORECASE)
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
FORM = "30min, 12h, 7d, 2w, 1y, a date like 2027-01-31, or a time like 2027-01-31T12:00"


def parse_time(option: str, text: str | None, *, ahead: bool) -> str | None:
    """Return the time that far ahead or back, or the time itself; ISO 8601 in UTC. None if the option was not given:
    an empty time, from a shell variable that is not set, must not make a key that never ends.

    Raises:
        InvalidInput: neither; names the option.
    """
    if text is None:
        return None
    span = _SPAN.fullmatch(text.strip())
    try:
        if span:
            distance = timedelta(seconds=int(span[1]) * _SECONDS[span[2].lower()])
            moment = datetime.now(UTC) + (distance if ahead else -distance)
        else:
            # Without an offset it is the clock on the person's wall.
            moment = datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInput(f"{option}: '{text}' is no time; write {FORM}.") from error
    return utc_text(moment)
