"""Dates of documents: ranges that are searched, questions that ask for the latest, and the order by date.

A document's date is what its own text or properties say, else when its file was changed, else when it was added.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple

import apsw

from localmcp.errors import InvalidInput
from localmcp.storage.database import fetch_all
from localmcp.wording.normalize import words

Sort = Literal["relevance", "newest"]

_OWN = "iif(json_valid(sources.metadata), sources.metadata ->> '$.date', '')"
SOURCE_DATE = f"""coalesce(
    case when {_OWN} glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' then datetime({_OWN}) end,
    datetime(sources.mtime_ns / 1000000000, 'unixepoch'), datetime(sources.created_at)
)"""
"""SQL: the date of a source, `2026-03-14 09:30:00` in UTC."""
FORMS = "a date such as 2026-03-14, 2026-03 or 2026, or a span back from today such as 30d, 2w, 6m, 1y or last week"
NEAR = 0.75
"""Share of the best score from which a passage is about as good as the best, so that its date may decide."""
NEWEST_BONUS = 20.0
"""Points of 100 that the newest of them gains on the oldest, where the question asks for the latest."""

_SPAN = re.compile(r"(\d{1,4}) ?(d|w|m|y|days?|weeks?|months?|years?)(?: ago)?")
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}
_NAMED = {"today": 0, "yesterday": 1, "last week": 7, "last month": 30, "last year": 365}
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")

_NEWEST = frozenset("latest newest neueste neuesten neuester neuestes aktuellste".split())
_RECENT = {"recent": ("most", "plus"), "recente": ("piu", "mais"), "reciente": ("mas",)}
_LAST = frozenset("last letzte letzten letztes ultimo ultima dernier derniere".split())
_EVENTS = (
    "meeting report bill letter release sitzung abend protokoll rechnung brief riunione verbale assemblea "
    "fattura lettera reunion acta factura carta compte facture lettre reuniao ata fatura"
).split()
_REACH = 3
"""An event counts so many words before or after "last": the last team meeting, das letzte Protokoll."""


class Dated(NamedTuple):
    """What an order by date looks at."""

    score: float
    date: str


def parse_moment(name: str, text: str, today: date, *, end: bool = False) -> str:
    """Return a date as it is compared in SQL; with `end`, the first moment after it.

    Raises:
        InvalidInput: names the field, the value and what is accepted.
    """
    plain = " ".join(text.strip().lower().split())
    if plain in _NAMED:
        first = today - timedelta(days=_NAMED[plain])
        return _moment(first + timedelta(days=1) if end else first)
    if span := _SPAN.fullmatch(plain):
        first = today - timedelta(days=int(span[1]) * _DAYS[span[2][0]])
        return _moment(first + timedelta(days=1) if end else first)
    try:
        if match := _DATE.fullmatch(plain):
            return _moment(_period(match)[1 if end else 0])
        exact = datetime.fromisoformat(text.strip())
        return (exact.astimezone(UTC) if exact.tzinfo else exact).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{name}: '{text[:40]}' is no date; use {FORMS}.") from error


def _period(match: re.Match[str]) -> tuple[date, date]:
    """Return the first day of a year, month or day, and the first day after it."""
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    first = date(year, month, day)
    if match[3]:
        return first, first + timedelta(days=1)
    return first, date(year + (month == 12), month % 12 + 1, 1) if match[2] else date(year + 1, 1, 1)


def _moment(day: date) -> str:
    return f"{day.isoformat()} 00:00:00"


def asks_for_latest(text: str) -> str | None:
    """Return the word by which a question asks for the latest of several documents, or None."""
    read = words(text)
    for number, word in enumerate(read):
        if word in _NEWEST or read[number - 1 : number] and read[number - 1] in _RECENT.get(word, ()):
            return word
        beside = read[max(number - 1, 0) : number] + read[number + 1 : number + 1 + _REACH]
        if word in _LAST and any(other.endswith(event) for other in beside for event in _EVENTS):
            return word
    return None


def load_dates(connection: apsw.Connection, chunk_ids: Iterable[int]) -> dict[int, str]:
    """Return chunk id -> date of its document."""
    sql = f"""
        select chunks.id, {SOURCE_DATE} from chunks join sources on sources.id = source_id
        where chunks.id in (select value from carray(?))
    """
    ids = array("q", chunk_ids)
    return dict(fetch_all(connection, sql, (apsw.carray(ids),))) if ids else {}


def order_by_date(candidates: Sequence[Dated], sort: Sort, *, latest: bool) -> list[int]:
    """Return the numbers of candidates, which come best first, in the order in which they are shown.

    `newest`: those about as good as the best, newest first, then the others. `latest`: those about as good as the best
    gain by their date. Otherwise nothing changes.
    """
    numbers = list(range(len(candidates)))
    if not candidates or not (latest or sort == "newest"):
        return numbers
    best = candidates[0].score
    near = [number for number in numbers if candidates[number].score >= NEAR * best]
    if sort == "newest":
        newest_first = sorted(near, key=lambda number: candidates[number].date, reverse=True)
        return newest_first + numbers[len(near) :]
    dates = sorted({candidates[number].date for number in near})
    gain = NEWEST_BONUS / max(len(dates) - 1, 1)
    place = {day: gain * rank for rank, day in enumerate(dates)}
    by_both = sorted(near, key=lambda number: -candidates[number].score - place[candidates[number].date])
    return by_both + numbers[len(near) :]
