"""What is in a search line: the call of the tool that it makes, its filters, and the lines of earlier searches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp.errors import NotFound
from localmcp.humanize import counted
from localmcp.library.query_line import parse_query_line
from localmcp.tui.passages import STATES
from localmcp.tui.session import Draft, Session

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

HITS = 10
"""Passages on a page, about a screen; the next page comes when the last one is reached."""
HITS_LOOKED_AT = 50
"""Passages on a page of which those of one state are shown."""
MOST_SIMILAR_CHARACTERS = 2000
"""Of a passage that others are compared with."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of a search."""

    line: str
    mode: str
    by_date: bool = False
    state: str = ""
    """Only documents in this state; empty = all."""


def run_search(
    session: Session, asked: Asked, *, similar_to: str = "", cursor: str | None = None, at_least: int = 0
) -> Draft:
    """Search, for a thread that may wait.

    `similar_to`: a passage to compare with instead of the words; `at_least`: how many passages are shown now.

    Raises:
        NotFound: `source:` names no document.
    """
    arguments = search_arguments(session, asked.line, asked.mode)
    if similar_to:
        arguments |= {"query": similar_to[:MOST_SIMILAR_CHARACTERS], "mode": "semantic"}
    sort = "newest" if asked.by_date else None
    limit = HITS_LOOKED_AT if asked.state else min(max(at_least, HITS), HITS_LOOKED_AT)
    draft = session.draft("search", **arguments, limit=limit, explain=True, cursor=cursor, sort=sort)
    hits = draft.answer.value["results"]
    if asked.state:
        hits = [hit for hit in hits if hit["freshness"] == asked.state]
    if asked.by_date:
        # The tool puts the newest of those that answer first; a person who sorts sees dates in their order.
        hits = sorted(hits, key=lambda hit: str(hit.get("date") or ""), reverse=True)
    return replace(draft, answer=replace(draft.answer, value={**draft.answer.value, "results": hits}))


def search_arguments(session: Session, line: str, mode: str) -> dict[str, Any]:
    """Return words and filters; for a thread that may wait.

    Raises:
        NotFound: `source:` names no document.
    """
    parsed = parse_query_line(line)
    source = None
    if name := parsed.last("source"):
        source = session.look(lambda workspace: workspace.inventory.find(name))
        if source is None:
            raise NotFound(f"source: no document is called '{name}'.", hint="See the Library.")
    tags = parsed.filters.get("tag")
    return {
        "query": parsed.words,
        # Until the model is loaded, words answer; the search is repeated then.
        "mode": "keyword" if session.model_loading else mode,
        "collection": parsed.last("collection"),
        "partition": parsed.last("partition"),
        "sourceType": parsed.last("type"),
        "pathPrefix": parsed.last("path"),
        "sourceId": source.id if source else None,
        "metadata": {"tags": tags} if tags else None,
        "since": parsed.last("since"),
        "until": parsed.last("until"),
    }


TYPES = ("text", "docs", "code", "website", "qa")
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
