"""Excerpts: what the text for a language model shows of each passage."""

from __future__ import annotations

from collections.abc import Sequence

from localmcp.index.candidates import Hit, SearchOutcome
from localmcp.index.highlight import matching_paragraphs
from localmcp.index.keyword import KeywordQuery, holds
from localmcp.library.result_order import excerpt_around
from localmcp.readers.chunking import MAIL_HEADER
from localmcp.wording.normalize import index_text, is_function_word

WHOLE_PASSAGES, EXCERPT_CHARS = 2, 300
"""A language model gets the first passages whole, of the others the sentences around the one that answers, unless it
says `maxChars`: 595 questions on 48 articles cost 2,248 characters each, before 3,507, and no answer is lost. With 250
characters of the others, two of 2,400 are."""
WEAK_CHARS, WEAK_SHARE = 150, 0.2
"""Characters that it gets of a passage whose relevance is less than this share of the best one's, or that lacks a word
of the question where the first passage has them all. On 397 German questions .3 loses two answers, .2 none. Of 1,822
questions the first passage has all words for 415; for 4 of them another one answers, mostly the quoted second."""
PROBABLE = 50
"""Where the best passage has at least this relevance, a weak one is only listed: that makes 411 of 1,115 questions
15 % cheaper; of 1,066 answers that were quoted before, one is in a document that is only listed."""
LATER_SHARE = 0.5
"""The same from the third passage on: 5 to 18 % fewer characters; of 2,029 answers none is lost, with .55 one."""
UNLIKELY, UNLIKELY_CHARS = 20, 250
"""In an answer of low confidence, characters of a passage of less than this relevance: searches for what is not in the
documents cost 360 characters less, and none of 107 sample questions loses its answer; with 200 one does."""
FAR_BEHIND = 35
"""A passage whose combined score is so far below the first one's is only listed, where one probably answers."""
BEHIND, SECOND_CHARS = 15, 500
"""Where the second one's is so far below, it is shown with so many characters."""
MOST_WORDS = 0.6
"""From the third on, one that is so far below is only listed if the first passage holds this share of the question's
words, and this one none that the first one lacks."""


def excerpts(outcome: SearchOutcome, relevances: Sequence[int], offset: int) -> list[str]:
    """Return what is shown of each hit of a page; "" for a hit that is only listed.

    Args:
        outcome: the page; its hits are not empty.
        relevances: of the hits, 0..100.
        offset: hits on the pages before.
    """
    page = _Page(outcome, relevances)
    places = enumerate(zip(outcome.hits, relevances, strict=True), offset)
    return [page.excerpt(hit, relevance, place) for place, (hit, relevance) in places]


class _Page:
    """The hits that compete to be quoted."""

    def __init__(self, outcome: SearchOutcome, relevances: Sequence[int]) -> None:
        self.best = max(relevances)
        # What ranks above it without answering, such as another telephone number, is weak.
        likely = [hit for hit, value in zip(outcome.hits, relevances, strict=True) if value >= WEAK_SHARE * self.best]
        self.first = likely[0]
        self.words, self.is_doubtful = _content_words(outcome.query), outcome.doubtful
        self.shared = self.words.intersection(self.first.matched)

    @property
    def is_probable(self) -> bool:
        return self.best >= PROBABLE

    def excerpt(self, hit: Hit, relevance: int, place: int) -> str:
        longest, text = self._longest(hit, relevance, place), hit.passage.text.strip()
        if longest is None:
            return _matching_part(hit, text)
        return excerpt_around(text, longest, _best_place(hit, text)) if longest else ""

    def _longest(self, hit: Hit, relevance: int, place: int) -> int | None:
        """Return how many characters are shown; None for all that matches."""
        is_later = place >= WHOLE_PASSAGES
        if self._is_weak(hit, relevance, is_later=is_later):
            return 0 if self.is_probable else WEAK_CHARS
        if self._lacks_a_word(hit):
            return WEAK_CHARS
        if self.is_doubtful and relevance < UNLIKELY:
            return UNLIKELY_CHARS
        if is_later:
            return EXCERPT_CHARS
        return SECOND_CHARS if self.is_probable and self._gap(hit) > BEHIND else None

    def _is_weak(self, hit: Hit, relevance: int, *, is_later: bool) -> bool:
        if hit is self.first:
            return False
        share = LATER_SHARE if is_later and self.is_probable else WEAK_SHARE
        if relevance < share * self.best or (is_later and self._lacks_a_word(hit)):
            return True
        gap = self._gap(hit)
        has_most_words = len(self.shared) >= MOST_WORDS * len(self.words)
        adds_no_word = has_most_words and self.words.intersection(hit.matched) <= self.shared
        return self.is_probable and (gap > FAR_BEHIND or (is_later and gap > BEHIND and adds_no_word))

    def _gap(self, hit: Hit) -> float:
        """Return how far the combined score is below the first one's; 0 for a hit that was judged by one arm alone.

        A passage in another language holds no word of the question, and bm25 alone leaves answers far behind: in
        keyword mode four of 850 would be lost.
        """
        by_both = hit.matched and hit.scores.semantic
        return self.first.scores.combined - hit.scores.combined if by_both else 0.0

    def _lacks_a_word(self, hit: Hit) -> bool:
        """Return whether the first passage holds every word of the question, and this one does not."""
        return bool(self.words) and self.shared == self.words and not self.words <= set(hit.matched)


def _content_words(query: KeywordQuery | None) -> set[str]:
    if query is None:
        return set()
    words = [*(term.word for term in query.terms), *(word for word, _ in query.dropped)]
    return {word for word in words if not is_function_word(word, query.languages)}


def _best_place(hit: Hit, text: str) -> int:
    """Return where the sentence begins that matches; if none does, as by the title, where the words of a mail begin."""
    header = MAIL_HEADER.match(text)
    return hit.highlight[0] if hit.highlight else header.end() if header else 0


def _matching_part(hit: Hit, text: str) -> str:
    if hit.query is None or _is_asked_for_by_title(hit, hit.query):
        return text
    start, stop = matching_paragraphs(hit.query, text, hit.passage.language)
    return f"{'… ' if start else ''}{text[start:stop]}{' …' if stop < len(text) else ''}"


def _is_asked_for_by_title(hit: Hit, query: KeywordQuery) -> bool:
    title = f" {index_text(hit.passage.title, hit.passage.language)} "
    return all(holds(title, term) for term in query.terms)
