"""The sentence of a passage that answers: the one that holds the rarest words of the query."""

from __future__ import annotations

import re
from collections.abc import Iterator

from localmcp.search.keyword import KeywordQuery, holds
from localmcp.wording.normalize import index_text

LONGEST = 400
"""A longer sentence is a table, a log or a list without stops, and is taken in parts."""
PART, MOST_READ = 200, 20_000
"""Characters of such a part, at most, and of a sentence that are looked at: in a damaged file it may be a megabyte."""
HEADING_SHARE = 0.5
"""What words in a heading count: a sentence below it that holds them too says more."""
_END = re.compile(r"(?<=[.!?؟۔])[\"'”»)]*\s+|(?<=[。！？])|\n\s*\n|\n(?=\s*(?:[-*#|>•+]|\d+[.)]\s))|(?<=[|:])[ \t]*\n")


def find_highlight(query: KeywordQuery, text: str, language: str) -> tuple[int, int] | None:
    """Return start and stop, in code points of `text`, of its best sentence; None if it holds no word of the query."""
    best, place = 0.0, None
    for start, stop in sentence_parts(text):
        score = _score(query, text[start:stop], language)
        if score > best:
            best, place = score, (start, stop)
    return place


def sentence_parts(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each sentence; of a long one those of its parts, cut at lines or else between words."""
    for start, end in sentences(text):
        stop = min(end, start + MOST_READ)
        while stop - start > LONGEST:
            window = text[start : start + PART + 1]
            at = start + (max(window.rfind("\n"), 0) or max(window.rfind(" "), 0) or PART)
            yield start, at
            start = at
            while text[start].isspace():
                start += 1
        if start < stop:
            yield start, stop


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each sentence, list item or table row, without the space around it."""
    start = 0
    for end in [*_END.finditer(text), None]:
        stop = end.start() if end else len(text)
        piece = text[start:stop]
        if piece.strip():
            yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
        start = end.end() if end else stop


def _score(query: KeywordQuery, sentence: str, language: str) -> float:
    stems = f" {index_text(sentence, language)} "
    matched = {term.word: term.idf for term in query.terms if holds(stems, term)}
    return sum(matched.values()) * (HEADING_SHARE if sentence.startswith("#") else 1)
