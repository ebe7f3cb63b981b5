"""How likely a passage answers the question, 0..100: calibrated on judged questions, the same in every collection.

The scores of a search order its hits and say little about whether any of them is good: the best keyword hit shows 100.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from localmcp.search.keyword import KeywordQuery

LEAST = 50.0
"""Below it a passage hardly answers. If the best one is below, the search says `lowConfidence`."""
LOOKED_AT = 5
"""The first hits, of which one should answer."""
CROWD = slice(1, 6)
"""The second to the sixth nearest passage: where these are as near as the first, near means little."""
TYPICAL_CROWD = 0.35
"""What the crowd is with the default model; cosines of other models are moved there."""
HYBRID = (-2.8, 6.96, 8.56, -4.16)
"""Logistic map: constant, cosine, share of the bm25 that a text with every word of the query could reach, crowd. Fitted
on the 120 sample questions and, as questions without an answer, on the 107 of them that have one, asked without the
documents that answer. Covered words, the best sentence, ranks, agreement of both arms gained nothing on other sets."""
KEYWORD = (-1.98, 0.0, 9.7, 0.0)
SEMANTIC = (-1.99, 9.78, 0.0, -4.8)
OTHER_LANGUAGE = 1.2
"""Added where question and passage are in different languages: they share few words, and their cosines are lower.
Fitted on the sample questions and on XQuAD, asked in Spanish on English texts."""
MISSING_CODE = -3.87
"""Added where the query names a code that no passage holds: what is asked about is not here."""
UNIQUE_CODE = 90.0
"""What a passage shows at least that holds a rare code which the query is mostly about."""
RARE_CHUNKS, CODE_SHARE = 3, 1 / 3
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class Judge:
    """What a search knows of all its candidates, to judge one of them."""

    query: KeywordQuery | None
    crowd: float | None
    """Mean cosine of the second to the sixth nearest passage; None where nothing was searched by meaning."""
    shift: float = 0.0
    """Added to cosines: 0 for the default model."""

    def relevance(self, cosine: float | None, bm25: float, *, other_language: bool = False) -> float:
        """Return how likely a passage answers, 0..100; `cosine` is None for one without a vector."""
        ceiling = self.query.ceiling if self.query else 0.0
        share = bm25 / ceiling if ceiling else 0.0
        constant, by_meaning, by_word, by_crowd = self._map(cosine)
        value = constant + by_meaning * ((cosine or 0.0) + self.shift) + by_word * share
        value += by_crowd * ((self.crowd or 0.0) + self.shift)
        if self.query and any(_is_code(word) for word, reason in self.query.dropped if reason == "stands nowhere"):
            value += MISSING_CODE
        if other_language and self.query and cosine is not None:
            value += OTHER_LANGUAGE
        return 100 / (1 + math.exp(-value))

    def _map(self, cosine: float | None) -> tuple[float, float, float, float]:
        if cosine is None or self.crowd is None:
            return KEYWORD
        return HYBRID if self.query else SEMANTIC


def judge(query: KeywordQuery | None, nearest: Sequence[float], *, calibrated: bool) -> Judge:
    """Return the judge of a search.

    Args:
        query: the keyword query; None if words were not searched.
        nearest: cosines of the nearest passages, nearest first; empty if nothing was searched by meaning.
        calibrated: whether the maps were made for this model. Cosines of another one are moved until its crowd is where
            that of the default model is.
    """
    others = nearest[CROWD]
    crowd = sum(others) / len(others) if others else None
    return Judge(query, crowd, 0.0 if calibrated or crowd is None else TYPICAL_CROWD - crowd)


def unique_codes(query: KeywordQuery | None) -> set[str]:
    """Return the words of the query that are codes in at most three passages, if the query is mostly about one."""
    if query is None:
        return set()
    total = sum(term.idf for term in query.terms)
    return {
        term.word
        for term in query.exact_terms
        if _is_code(term.word) and 0 < term.chunks <= RARE_CHUNKS and term.idf >= CODE_SHARE * total
    }


def _is_code(word: str) -> bool:
    return any(character.isdigit() for character in word) and len(word) >= 3 and not _YEAR.fullmatch(word)
