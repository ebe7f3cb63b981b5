"""Which hits a page of a search shows: spread over documents, one of each, or as many as fit a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from localmcp.search.candidates import Hit

WINDOW = 20
"""Hits whose order may differ from that of their scores; all pages together stay without gap or repetition."""
FIRST = 5
"""The first hits, among which a document has at most `PER_DOCUMENT`."""
PER_DOCUMENT = 2


def document_of(hit: Hit) -> tuple[str | None, str]:
    """Return what tells one document from another: its mounted file and its id."""
    return hit.origin, hit.passage.source_uuid


def spread(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits with at most two passages of one document among the first five; the rest keeps its order."""
    first: list[Hit] = []
    later: list[Hit] = []
    counts: Counter[tuple[str | None, str]] = Counter()
    for hit in hits[:WINDOW]:
        if len(first) < FIRST and counts[document_of(hit)] < PER_DOCUMENT:
            counts[document_of(hit)] += 1
            first.append(hit)
        else:
            later.append(hit)
    return [*first, *later, *hits[WINDOW:]]


def group_by_document(hits: Sequence[Hit]) -> tuple[list[Hit], dict[str, int]]:
    """Return the best hit of each document, and by source id how many more hits it has."""
    best = {document_of(hit): hit for hit in reversed(hits)}
    counts = Counter(document_of(hit) for hit in hits)
    ordered = [hit for hit in hits if best[document_of(hit)] is hit]
    more = {_shown_id(document): count - 1 for document, count in counts.items()}
    return ordered, more


def _shown_id(document: tuple[str | None, str]) -> str:
    origin, identity = document
    return f"{origin}:{identity}" if origin else identity


def fitting(texts: Sequence[str], budget: int | None) -> int:
    """Return how many of the texts fit the budget in characters; at least one, all for None."""
    if budget is None:
        return len(texts)
    used = 0
    for count, text in enumerate(texts):
        used += len(text)
        if used > budget and count:
            return count
    return len(texts)


def shortened(text: str, longest: int | None, shows: int = 0) -> str:
    """Return the text, cut after a word with an ellipsis if it is longer; from the line of `shows` if that is far."""
    if longest is None or len(text) <= longest:
        return text
    if shows > longest // 2:
        begins = min(text.rfind("\n", 0, shows) + 1 or shows, len(text) - longest)
        return "… " + shortened(text[begins:].lstrip(), longest)
    return text[: longest - 2].rsplit(None, 1)[0] + " …"
