"""The sentence of a passage that answers: the one that holds the rarest words of the query."""

from __future__ import annotations

import re
from collections.abc import Iterator

from localmcp.index.keyword import KeywordQuery, holds
from localmcp.readers.outline import HEADING
from localmcp.wording.codes import indexed_text

LONGEST = 400
"""A longer sentence is a table, a log or a list without stops, and is taken in parts."""
PART, MOST_READ = 200, 20_000
"""Characters of such a part, at most, and of a sentence that are looked at: in a damaged file it may be a megabyte."""
LEAST_SHARE = 0.25
"""A paragraph matches if its words count at least this share of what those of the best one count; with .35 one of 108
questions about the samples loses its answer."""
_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")
_END = re.compile(
    r"(?<=[.!?؟۔])(?<!\n\d\.)(?<!\n\d\d\.)[\"'”»)]*\s+|(?<=[。！？])|\n\s*\n"
    r"|\n(?!([-=~^\"*+#])\1{2,}[ \t]*(?:\n|\Z))(?=\s*(?:[-*#|>•+]|\d+[.)]\s))|(?<=[|:])[ \t]*\n"
)


def find_highlight(query: KeywordQuery, text: str, language: str) -> tuple[int, int] | None:
    """Return start and stop, in code points of `text`, of its best sentence; None if it holds no word of the query."""
    best, place = 0.0, None
    for start, stop in sentence_parts(text):
        score = _score(query, text[start:stop], language)
        if score > best:
            best, place = score, (start, stop)
    return place


def matching_paragraphs(query: KeywordQuery, text: str, language: str) -> tuple[int, int]:
    """Return start and stop of the paragraphs that hold words of the query, with one before and one after them.

    A step, or what a table says, mostly comes right after the words that it is asked for with; what another heading is
    above does not. Where no paragraph holds a word, it is the whole text.
    """
    places = list(_paragraphs(text))
    scores = [_score(query, text[start:stop], language) for start, stop in places]
    least = LEAST_SHARE * max(scores)
    matching = [index for index, score in enumerate(scores) if 0 < score >= least]
    if not matching:
        return 0, len(text)
    first, last = matching[0], matching[-1]
    if first and not _begins_section(text, places[first][0]):
        first -= 1
    if last + 1 < len(places) and not _begins_section(text, places[last + 1][0]):
        last += 1
    return places[first][0], places[last][1]


def _begins_section(text: str, start: int) -> bool:
    end = _BLANK_LINE.search(text, start)
    return HEADING.match(text, start, end.start() if end else len(text)) is not None


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each paragraph; a heading is part of the next one."""
    start = begin = 0
    for end in _BLANK_LINE.finditer(text):
        is_heading = HEADING.fullmatch(text, begin, end.start())
        begin = end.end()
        if not is_heading:
            yield start, end.start()
            start = begin
    yield start, len(text)


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
    stems = f" {indexed_text(sentence, language)} "
    matched = {term.word: term.idf for term in query.terms if holds(stems, term)}
    # A sentence below a heading that holds the same words says more.
    return sum(matched.values()) * (0.5 if HEADING.match(sentence) else 1)
