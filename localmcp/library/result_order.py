"""Order and cut the hits of a page: spread over documents, one of each, or as many as fit a budget."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from localmcp.index.candidates import Hit
from localmcp.library.names import shown_id

WINDOW = 20
"""Hits whose order may differ from that of their scores; all pages together stay without gap or repetition."""
FIRST = 5
"""The first hits, among which a document has at most `PER_DOCUMENT`."""
PER_DOCUMENT = 2
_HEADING = re.compile(r"^#.*$", re.MULTILINE)


def document_key(hit: Hit) -> tuple[str | None, str]:
    """Return the identity of a hit's document: its mounted file and its id."""
    return hit.origin, hit.passage.source_uuid


def spread(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits with no words twice, and at most two of one document, among the first five.

    The others keep their order.
    """
    first: list[Hit] = []
    later: list[Hit] = []
    counts: Counter[tuple[str | None, str]] = Counter()
    texts: set[str] = set()
    for hit in hits[:WINDOW]:
        text = _words(hit.passage.text)
        if len(first) < FIRST and counts[document_key(hit)] < PER_DOCUMENT and text not in texts:
            counts[document_key(hit)] += 1
            texts.add(text)
            first.append(hit)
        else:
            later.append(hit)
    return [*first, *later, *hits[WINDOW:]]


def _words(text: str) -> str:
    """Return the words below the headings of a passage: a section that another guide repeats has another number."""
    return " ".join(re.findall(r"\w+", _HEADING.sub("", text))) or text


def group_by_document(hits: Sequence[Hit]) -> tuple[list[Hit], dict[str, int]]:
    """Return the best hit of each document, and by source id how many more hits it has."""
    best = {document_key(hit): hit for hit in reversed(hits)}
    counts = Counter(document_key(hit) for hit in hits)
    ordered = [hit for hit in hits if best[document_key(hit)] is hit]
    return ordered, {shown_id(identity, origin): count - 1 for (origin, identity), count in counts.items()}


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
