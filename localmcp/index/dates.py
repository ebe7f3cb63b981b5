"""Dates of documents: ranges that are searched, questions that ask for the latest, and the order by date.

A document's date is what its own text or properties say, else when its file was changed, else when it was added.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple

from localmcp.errors import InvalidInput
from localmcp.storage.times import days_ago, parse_span
from localmcp.wording.normalize import stop_words, words

Sort = Literal["relevance", "newest"]

_OWN = "iif(json_valid(sources.metadata), sources.metadata ->> '$.date', '')"
SOURCE_DATE = f"""coalesce(
    case when {_OWN} glob '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' then datetime({_OWN}) end,
    datetime(sources.mtime_ns / 1000000000, 'unixepoch'), datetime(sources.created_at)
)"""
"""SQL: the date of a source, `2026-03-14 09:30:00` in UTC."""
NEAR = 0.75
"""Share of the best score from which a passage is about as good as the best, so that its date may decide."""
_DATE = re.compile(r"(\d{4})(?:[-/](\d{1,2})(?:[-/](\d{1,2}))?)?")

_NEWEST = frozenset(
    (
        "latest newest last neueste neuesten neuester neuestes aktuellste letzte letzten letztes "
        "ultimo ultima dernier derniere"
    ).split()
)
_RECENT = {"recent": ("most", "plus"), "recente": ("piu", "mais"), "reciente": ("mas",)}
_FUNCTION_WORDS = frozenset[str]().union(
    *(stop_words(language) for language in ("english", "german", "italian", "spanish", "french", "portuguese"))
)
_REACH = 3
"""What the word may modify: so many words before or after it, as in the last team meeting, acta más reciente."""


class Latest(NamedTuple):
    """A question for the latest of several documents, parsed."""

    word: str
    subjects: frozenset[str]
    """Folded words that it may modify: what there are several of."""

    def is_in(self, title: str) -> bool:
        """Return whether a title holds one of the subjects."""
        return any(_is_alike(subject, word) for subject in self.subjects for word in words(title))


class Dated(NamedTuple):
    """The fields of a hit that an order by date compares."""

    score: float
    date: str
    title: str = ""


def parse_moment(name: str, text: str, today: date, *, end: bool = False) -> str:
    """Return a date as it is compared in SQL; with `end`, the first moment after it.

    Raises:
        InvalidInput: names the field, the value and what is accepted.
    """
    plain = " ".join(text.strip().lower().split())
    span = parse_span(plain)
    try:
        if span and span.unit in ("s", "min", "h"):
            return f"{datetime.now(UTC) - span.length:%Y-%m-%d %H:%M:%S}"
        days = span.length.days if span else days_ago(plain, today)
        if end and plain.startswith("this "):
            days = 0
        if days is not None:
            return _moment(today - timedelta(days=days - end))
        if match := _DATE.fullmatch(plain):
            # The first day of a year, month or day, or the first one after it.
            year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
            first = date(year, month, day)
            if end and match[3]:
                first += timedelta(days=1)
            elif end:
                first = date(year + (month == 12), month % 12 + 1, 1) if match[2] else date(year + 1, 1, 1)
            return _moment(first)
        exact = datetime.fromisoformat(text.strip())
        return (exact.astimezone(UTC) if exact.tzinfo else exact).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{name}: '{text[:40]}' is no date; use a date such as 2026-03-14, 2026-03 or 2026, a time such as "
            "2026-03-14T10:00 (UTC), or a span back from now such as 30min, 12h, 30d, 2w, 6m (months), 1y, this week "
            "or last week."
        ) from error


def parse_range(since: str | None, until: str | None) -> tuple[str | None, str | None]:
    """Return the first moment of a range of dates and the first after it. Raises what `parse_moment` raises."""
    # Moments are in UTC, days that documents name are local: where it is another day, the range holds both.
    days = (datetime.now(UTC).date(), datetime.now().date())
    return (
        parse_moment("since", since, min(days)) if since else None,
        parse_moment("until", until, max(days), end=True) if until else None,
    )


def _moment(day: date) -> str:
    return f"{day.isoformat()} 00:00:00"


def asks_for_latest(text: str) -> Latest | None:
    """Return the word by which a question may ask for the latest of several documents, and what it modifies."""
    read = words(text)
    for number, word in enumerate(read):
        before = read[max(number - _REACH, 0) : number]
        if word in _NEWEST or (before and before[-1] in _RECENT.get(word, ())):
            subjects = {*before, *read[number + 1 : number + 1 + _REACH]} - {*_RECENT.get(word, ())}
            return Latest(word, frozenset(subjects - _FUNCTION_WORDS))
    return None


def _series(title: str) -> tuple[str, ...]:
    """Return what titles of a series have in common: their words without numbers."""
    return tuple(word for word in words(title) if not any(character.isdigit() for character in word))


def _is_alike(subject: str, word: str) -> bool:
    """Return whether the words are one, or one is a part of the other: Sitzung and Vorstandssitzung, bill and bills."""
    shorter, longer = sorted((subject, word), key=len)
    return shorter == longer or (len(shorter) >= 4 and shorter in longer)


def order_by_date(candidates: Sequence[Dated], sort: Sort, latest: Latest | None = None) -> list[int]:
    """Return the numbers of candidates, which come best first, in the order in which they are shown.

    `newest`: those about as good as the best, newest first, then the others. `latest`: of those about as good as the
    best, the ones whose title holds what the question asks the latest of, or that are of a series, newest first in the
    places that they have.
    """
    numbers = list(range(len(candidates)))
    if not candidates or not (latest or sort == "newest"):
        return numbers
    near = [number for number in numbers if candidates[number].score >= NEAR * candidates[0].score]
    if latest and sort != "newest":
        titles = {candidates[number].title for number in near}
        series = Counter(common for title in titles if (common := _series(title)))
        eligible = {title for title in titles if latest.is_in(title) or series[_series(title)] > 1}
        near = [number for number in near if candidates[number].title in eligible]
    newest_first = sorted(near, key=lambda number: candidates[number].date, reverse=True)
    for place, number in zip(near, newest_first, strict=True):
        numbers[place] = number
    return numbers
