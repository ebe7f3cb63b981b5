"""Filters: what a caller wants to search in, resolved to source ids before either arm looks."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, NamedTuple

import apsw

from localmcp.arrays import Ids, np
from localmcp.errors import InvalidInput
from localmcp.index.collections import DEFAULT_PARTITION, Collection
from localmcp.index.conditions import And, Condition, parse_condition, sql_condition
from localmcp.index.drafts import TITLE_COLUMN
from localmcp.storage.database import fetch_column
from localmcp.storage.schema import days_ago, parse_span
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
        if span is not None and re.match(r"\d+ ?(?:s|min|h)", plain):
            return f"{datetime.now(UTC) - span:%Y-%m-%d %H:%M:%S}"
        days = days_ago(plain, today) if span is None else span.days
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


KINDS = {
    "md": ("markdown", "md"),
    "sheet": ("xlsx", "xls", "xlsb", "ods", "csv", "tsv"),
    "slides": ("pptx", "odp"),
    "word": ("docx", "odt", "rtf"),
    "book": ("epub",),
}
"""Kind of file, as a person names it, to formats and endings; any other name is one of these itself."""
SOURCE_COLUMNS = {"title": TITLE_COLUMN, "path": "sources.uri"}
"""What replaces these fields where a source's own metadata has no such key."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that all must hold; None or empty = any."""

    partitions: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()
    """UUIDs."""
    source_types: tuple[str, ...] = ()
    path_prefix: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """A condition in its short form, such as key -> value, or a list of values of which any will do."""
    condition: Condition | None = None
    """A further condition on the metadata, the title and the path."""
    since: str | None = None
    until: str | None = None
    """First moment of a document's date, and the first after it, as `parse_moment` gives them."""

    def __post_init__(self) -> None:
        """Refuse what SQLite cannot compare.

        Raises:
            InvalidInput: names the field and the value.
        """
        if self.metadata:
            parse_condition(self.metadata, "metadata")
        texts = {"partition": self.partitions, "sourceType": self.source_types, "pathPrefix": (self.path_prefix or "",)}
        for name, values in texts.items():
            if re.search("[\ud800-\udfff]", "".join(values)):
                raise InvalidInput(f"{name}: half a character cannot be compared; use text.")

    def __bool__(self) -> bool:
        return self != Filters()


def allowed_sources(connection: apsw.Connection, collections: Sequence[Collection], filters: Filters) -> Ids:
    """Return ids of the sources in those collections that pass the filters, ascending."""
    sql, bindings = f"trashed_at is null and collection_id in ({_marks(collections)})", list[Any]()
    bindings += [collection.id for collection in collections]
    if filters.partitions:
        unnamed = "or partition_id is null" if DEFAULT_PARTITION in filters.partitions else ""
        named = f"select id from partitions where name in ({_marks(filters.partitions)})"
        sql += f" and (partition_id in ({named}) {unnamed})"
        bindings += filters.partitions
    if filters.source_ids:
        sql += f" and uuid in ({_marks(filters.source_ids)})"
        bindings += filters.source_ids
    if filters.source_types:
        is_kind, values = type_condition(filters.source_types)
        sql += f" and {is_kind}"
        bindings += values
    if filters.path_prefix is not None:
        below, values = path_condition(filters.path_prefix)
        sql += f" and {below}"
        bindings += values
    for moment, sign in ((filters.since, ">="), (filters.until, "<")):
        if moment:
            sql += f" and {SOURCE_DATE} {sign} ?"
            bindings.append(moment)
    rows = fetch_column(connection, f"select id from sources where {sql} order by id", bindings)
    source_ids = np.array(rows, np.int64)
    if conditions := tuple(filter(None, (parse_condition(filters.metadata), filters.condition))):
        fulfils, named = sql_condition(And(conditions), "sources.metadata", SOURCE_COLUMNS)
        fulfilling = fetch_column(connection, f"select id from sources where {fulfils}", named)
        return np.intersect1d(source_ids, np.array(fulfilling, np.int64))
    return source_ids


def type_condition(types: Sequence[str]) -> tuple[str, list[Any]]:
    """Return SQL for documents of any of those types, formats or kinds of file."""
    names = [name.lower().lstrip(".") for name in types]
    kinds = [form for name in names for form in KINDS.get(name, (name,))]
    suffix = " or ".join(["uri like ?"] * len(kinds))
    sql = f"(source_type in ({_marks(types)}) or format in ({_marks(kinds)}) or {suffix})"
    return sql, [*types, *kinds, *(f"%.{kind}" for kind in kinds)]


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))


def path_condition(prefix: str) -> tuple[str, list[Any]]:
    """Return SQL for a file, the documents in a mailbox or archive, or a folder; relative paths match anywhere."""
    if "\0" in prefix:  # no path holds one, and the system refuses to look
        return "0", []
    path_below = os.path.normpath(os.path.expanduser(prefix))
    if os.path.isabs(path_below):
        folder = path_below.rstrip(os.sep) + os.sep
        member = f"{path_below}#"
        in_file = "substr(uri, 1, ?) = ? and instr(sources.metadata, '\"container\"')"
        bindings = [path_below, len(folder), folder, len(member), member]
        return f"(uri = ? or substr(uri, 1, ?) = ? or ({in_file}))", bindings
    in_file = "instr(uri, ?) and instr(sources.metadata, '\"container\"')"
    bindings = [os.sep, f"{os.sep}{path_below}{os.sep}", f"{os.sep}{path_below}#"]
    return f"(instr(uri || ?, ?) or ({in_file}))", bindings
