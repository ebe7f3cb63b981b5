"""Filters of a search: the ones in the line as chips, and the list that puts them there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp.humanize import counted
from localmcp.library.query_line import parse_query_line

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

TYPES = ("text", "docs", "code", "website", "qa")
STATES = {"fresh": "as it was read", "changed": "changed since it was read", "missing": "the file is gone"}
STATE = "state"
"""The filter that is applied to the answer, not to the search."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A value of a filter that can be chosen."""

    name: str
    value: str
    note: str = ""


def with_filter(line: str, name: str, value: str | None) -> str:
    """Return a search line in which that filter has that value alone; None = the line without it."""
    words = " ".join(re.sub(rf'(?<!\S){name}:(?:"[^"]*"?|\S*)', " ", line, flags=re.IGNORECASE).split())
    if value is None:
        return words
    shown = f'"{value}"' if re.search(r"\s", value) else value
    return f"{words} {name}:{shown}".strip()


def notices_of(result: dict[str, Any]) -> str:
    """Return which words were corrected, and what else the person should know of an answer."""
    repairs = ", ".join(f"{repair['replacement']} instead of {repair['word']}" for repair in result.get("repairs", ()))
    corrected = f"Searched for {repairs} (a takes it over)." if repairs else ""
    return "  ".join(filter(None, (corrected, *result.get("notices", ()))))


def chips_of(line: str, state: str, by_date: bool, mode: str, notices: str = "") -> Content:
    """Return the filters of a line: set ones highlighted, the others only without notices."""
    filters = parse_query_line(line).filters
    names = ("collection", "type", "since", "until", "tag", "path")
    values = {name: ", ".join(filters[name]) if name in filters else "" for name in names}
    values |= {"state": state, "order": "by date" if by_date else "", "mode": "" if mode == "hybrid" else mode}
    parts = [
        Content.assemble((f" {name} {value} ", "bold $accent")) if value else Content.styled(f" {name} ", "$muted")
        for name, value in values.items()
        if value or not notices
    ]
    return Content("·").join([*parts, Content.styled(f" {notices}", "$warning")] if notices else parts)


def choices_for(workspace: Workspace) -> list[Choice]:
    """Return what can be chosen in this file; for a thread that may wait."""
    # The library's modules are not needed for the first paint.
    from localmcp.tui.library_rows import CollectionRow, first_level

    choices: list[Choice] = []
    for row in (row for row in first_level(workspace) if isinstance(row, CollectionRow)):
        name = f"mount:{row.origin}/{row.name}" if row.origin else row.name
        choices.append(Choice("collection", name, counted(row.documents, "document")))
    choices += [Choice("type", kind) for kind in TYPES]
    spans = {"the last 7 days": 7, "the last 30 days": 30, "the last year": 365}
    choices += [Choice("since", f"{date.today() - timedelta(days)}", words) for words, days in spans.items()]
    return [*choices, *(Choice(STATE, state, words) for state, words in STATES.items())]


def filter_rows(choices: Sequence[Choice], active: set[tuple[str, str]]) -> list[tuple[Content | str, Choice | None]]:
    """Return the rows of a list of filters: headings, and values with what choosing one sets.

    Choosing a value of `active`, pairs of filter and value, clears that filter.
    """
    rows: list[tuple[Content | str, Choice | None]] = []
    for number, choice in enumerate(choices):
        if number == 0 or choices[number - 1].name != choice.name:
            rows.append((choice.name, None))
        is_set = (choice.name, choice.value) in active
        text = Content.assemble((" ✓ " if is_set else "   ", "$accent"), choice.value, (f"  {choice.note}", "$muted"))
        rows.append((text, Choice(choice.name, "") if is_set else choice))
    return rows
