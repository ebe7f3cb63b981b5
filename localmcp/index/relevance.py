"""Relevance: how likely a passage answers the question, 0..100; calibrated on judged questions.

The scores of a search order its hits and say little about whether any of them is good: the best keyword hit shows 100.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from localmcp.index.keyword import ABSENT, REPAIR_WEIGHT, KeywordQuery
from localmcp.wording.normalize import fold, is_function_word, phrases

LEAST = 50.0
"""Below it a passage hardly answers. If the best of the first is below, the search says `lowConfidence`."""
LOOKED_AT = 3
"""The first hits, of which one should answer."""


class Signals(NamedTuple):
    """Features for and against a passage; also their weights in a logistic map."""

    constant: float
    meaning: float
    """Cosine."""
    far: float
    """How much the cosine is below .25, that of a passage about something else: words shared with it are chance."""
    coverage: float
    """Share of the idf of the question's content words that are in the passage."""
    lacks_number: float
    """1 if the question has a word with a digit (code, year, amount) that the passage lacks."""
    other_language: float
    """1 if question and passage are in different languages: they share few words, and their cosines are lower."""
    words: float
    """Logarithm of 1 + the number of content words: half of two says less than half of six."""


HYBRID = Signals(-4.77, 2.4, -14.36, 6.07, -4.41, 1.35, 1.24)
"""Fitted on the judged questions that `tests/benchmarks/confidence_quality.py` measures. The best sentence by meaning,
the share of the bm25 score, the next passages, ranks and the agreement of both arms gained nothing on sets that were
left out."""
KEYWORD = Signals(-4.25, 0.0, 0.0, 6.19, -3.8, 0.0, 1.31)
SEMANTIC = Signals(-2.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the passages that were found for one question."""

    idf_by_word: dict[str, float]
    """What each content word of the question counts, also those that are in no passage; none if it was not searched by
    words."""
    codes: frozenset[str] = frozenset()
    """Words that are rare codes, if the question is mostly about one, and what is in quotation marks."""
    is_one_word: bool = False
    """The query is a single word, without any other around it."""
    by_words: bool = True
    hybrid: Signals = HYBRID

    def relevance(self, cosine: float | None, matched: Collection[str], *, other_language: bool = False) -> float:
        """Return how likely a passage answers, 0..100.

        `cosine` is None for a passage that was not compared by meaning; `matched`: the words of the question in it.
        """
        weights = KEYWORD if cosine is None else self.hybrid if self.by_words else SEMANTIC
        total = sum(self.idf_by_word.values())
        coverage = sum(idf for word, idf in self.idf_by_word.items() if word in matched) / total if total else 0.0
        signals = Signals(
            1.0,
            cosine or 0.0,
            max(0.25 - (cosine or 0.0), 0.0),
            coverage,
            float(any(has_digit(word) and word not in matched for word in self.idf_by_word)),
            float(other_language),
            math.log(1 + len(self.idf_by_word)),
        )
        likely = 100 / (1 + math.exp(-sum(weight * signal for weight, signal in zip(weights, signals, strict=True))))
        if self.is_one_word and coverage == 1:
            # Who types nothing but a name is answered by a passage that holds it, whatever it is about.
            likely = max(likely, LEAST)
        return likely if self.codes.isdisjoint(matched) else max(likely, 90.0)


def judge(query: KeywordQuery | None, hybrid: Signals = HYBRID) -> Judge:
    """Return the judge of a search; `query` is None if words were not searched."""
    if query is None:
        return Judge({}, by_words=False)
    content = {term.word: term for term in query.terms if not is_function_word(term.word, query.languages)}
    idf_by_word = {word: term.idf * (REPAIR_WEIGHT if term.repair else 1) for word, term in content.items()}
    is_one_word = not query.dropped and len({term.word for term in query.terms}) == 1
    codes = unique_codes(query) | query.quoted
    return Judge(idf_by_word | _missing(query), codes, is_one_word, hybrid=hybrid)


def _missing(query: KeywordQuery) -> dict[str, float]:
    absent = [word for word, reason in query.dropped if reason == ABSENT]
    return {word: query.missing_idf for word in absent if not is_function_word(word, query.languages)}


def unmentioned(query: KeywordQuery, text: str) -> list[str]:
    """Return the content words of a question, as typed, that are in no passage.

    The measure in "how many" is none of them: an answer gives a number instead. Nor are "don't", single letters, and
    neighboring characters of a script without spaces, which need not be a word.
    """
    typed = {
        " ".join(unit): word
        for word in (part.strip(".,;:!?()\"'“”«»") for part in text.split())
        if not re.search(r"n['’]t\Z", word, re.IGNORECASE)
        for unit in phrases(word)
        if any(len(part) > 1 or part.isdigit() for part in unit)
    }
    measures = set(map(fold, re.findall(r"\b(?:how|wie|hoe|hur|hvor) (\w+)", text, re.IGNORECASE)))
    return list(dict.fromkeys(typed[word] for word in _missing(query) if word in typed and word not in measures))


def unique_codes(query: KeywordQuery) -> frozenset[str]:
    """Return the words of the query that are codes in at most three passages, if the query is mostly about one."""
    total = sum(term.idf for term in query.terms)
    return frozenset(
        term.word
        for term in query.terms
        if term.repair is None
        and (has_digit(term.word) and len(term.word) >= 3 and not re.fullmatch(r"(?:19|20)\d\d", term.word))
        and 0 < term.chunks <= 3
        and term.idf >= total / 3
    )


def has_digit(word: str) -> bool:
    """Return whether a word may be a code."""
    return any(character.isdigit() for character in word)
