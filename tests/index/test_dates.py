"""Time: ranges narrow before ranking, and only a question for the latest prefers newer documents."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from library import Library

from localmcp.errors import InvalidInput
from localmcp.index.filters import Filters, asks_for_latest, parse_moment, parse_range
from localmcp.index.search import SearchOutcome, SearchRequest, shown_order
from localmcp.storage.database import Database

TODAY = date(2026, 6, 15)
Order = Literal["relevance", "newest"]


@pytest.mark.parametrize(
    ("text", "first", "after"),
    [
        ("2026-03-14", "2026-03-14 00:00:00", "2026-03-15 00:00:00"),
        ("2026/3/14", "2026-03-14 00:00:00", "2026-03-15 00:00:00"),
        ("2026-12", "2026-12-01 00:00:00", "2027-01-01 00:00:00"),
        ("2025", "2025-01-01 00:00:00", "2026-01-01 00:00:00"),
        ("30d", "2026-05-16 00:00:00", "2026-05-17 00:00:00"),
        ("2 weeks ago", "2026-06-01 00:00:00", "2026-06-02 00:00:00"),
        ("6m", "2025-12-17 00:00:00", "2025-12-18 00:00:00"),
        ("last week", "2026-06-08 00:00:00", "2026-06-09 00:00:00"),
        ("This  week", "2026-06-15 00:00:00", "2026-06-16 00:00:00"),
        ("this month", "2026-06-01 00:00:00", "2026-06-16 00:00:00"),
        ("this year", "2026-01-01 00:00:00", "2026-06-16 00:00:00"),
        ("2026-03-14T10:00+02:00", "2026-03-14 08:00:00", "2026-03-14 08:00:00"),
    ],
)
def test_dates_and_spans_become_moments(text: str, first: str, after: str) -> None:
    assert parse_moment("since", text, TODAY) == first
    assert parse_moment("until", text, TODAY, end=True) == after


@pytest.mark.parametrize("text", ["3h", "3 hours ago", "180min", "180 minutes ago"])
def test_hours_are_counted_from_now(text: str) -> None:
    moment = datetime.fromisoformat(parse_moment("since", text, TODAY)).replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - moment - timedelta(hours=3)) < timedelta(minutes=1)


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone cannot be changed here")
@pytest.mark.parametrize(("zone", "hours"), [("<-12>12", -12), ("<+14>-14", 14)])
def test_today_is_the_day_here_and_the_day_in_utc(monkeypatch: pytest.MonkeyPatch, zone: str, hours: int) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        first, after = parse_range("today", "today")
    finally:
        monkeypatch.undo()
        time.tzset()
    now = datetime.now(UTC)
    days = sorted((now.date(), now.astimezone(timezone(timedelta(hours=hours))).date()))
    assert (first, after) == (f"{days[0]} 00:00:00", f"{days[1] + timedelta(days=1)} 00:00:00")


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "99999y", "9999y", "14.3.2026", "9999"])
def test_what_is_no_date_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(InvalidInput, match=f"until: '{text}' is no date; use a date such as"):
        parse_moment("until", text, TODAY, end=True)


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("latest release", True), ("most recent bill", True), ("the last team meeting", True),
        ("das letzte Protokoll", True), ("ultima riunione", True), ("factura más reciente", True),
        ("dernier compte rendu", True), ("a ata mais recente", True), ("lasting peace", False),
        ("recent changes", False), ("what is new", False), ("", False),
    ],
)  # fmt: skip
def test_questions_for_the_latest_are_recognized_in_six_languages(question: str, asks: bool) -> None:
    assert bool(asks_for_latest(question)) == asks


@pytest.mark.parametrize(
    ("sort", "question", "order"),
    [
        ("relevance", "bill", [0, 1, 2]),
        ("relevance", "the latest bill in my diaries", [0, 2, 1]),
        ("relevance", "name of the latest epoch", [0, 1, 2]),
        ("newest", "", [2, 1, 0, 3]),
    ],
)
def test_what_the_word_modifies_decides_which_documents_are_put_by_date_and_weak_ones_stay_behind(
    sort: Order, question: str, order: list[int]
) -> None:
    documents = [(90, "2020-01-01", "Diary"), (89, "2021-01-01", "Bill"), (88, "2026-01-01", "Bill")]
    documents.append((20, "2027-01-01", "Letter"))
    ranked: list[Any] = [(score, SimpleNamespace(date=day, title=title), None) for score, day, title in documents]
    shown = shown_order(SearchRequest(question, sort=sort), ranked, SearchOutcome([], 0))
    assert shown[: len(order)] == order


def test_a_narrow_range_loses_no_hit_and_the_latest_comes_first_only_when_it_is_asked_for(database: Database) -> None:
    library = Library(database, None)
    for month in range(1, 10):
        metadata = {"date": f"2026-{month:02}-10"}
        library.put("Minutes of the garden club meeting.", title=f"Meeting {month}", metadata=metadata)
    library.put("Minutes of the garden club meeting, undated.", title="Undated", metadata={"date": "spring"})

    def found(text: str, sort: Order = "relevance", **filters: str) -> list[str]:
        request = SearchRequest(text, "keyword", limit=20, sort=sort, filters=Filters(**filters))  # type: ignore[arg-type]
        return [hit.passage.title for hit in library.index.search(request).hits if hit.passage.title != "Undated"]

    narrow = found("garden club", since="2026-03-10 00:00:00", until="2026-05-01 00:00:00")
    assert sorted(narrow) == ["Meeting 3", "Meeting 4"]
    assert found("latest garden club meeting")[0] == "Meeting 9"
    assert found("garden club meeting")[0] == "Meeting 1"
    assert found("garden club", sort="newest") == [f"Meeting {month}" for month in range(9, 0, -1)]
