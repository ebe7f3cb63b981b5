"""What stands in a search line, as arguments of the tool `search`."""

from __future__ import annotations

from typing import Any

from localmcp.errors import NotFound
from localmcp.knowledge.query_line import parse_query_line
from localmcp.tui.session import Session


def search_arguments(session: Session, line: str, mode: str) -> dict[str, Any]:
    """Words and filters; for a thread that may wait.

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
    }
