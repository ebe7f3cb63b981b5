"""Runs what is in a search line as a call of the tool `search`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from localmcp.errors import NotFound
from localmcp.library.query_line import parse_query_line
from localmcp.tui.session import Draft, Session

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
