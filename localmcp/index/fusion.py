"""Hybrid scores: a weighted sum of meaning and words, both known for every candidate. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MatchType = Literal["both", "semantic_only", "keyword_only"]

COSINE_CEILING = 0.8
"""The cosine that counts as a full semantic score: paraphrases rarely get beyond it."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of both arms; they add up to 1 (S3-4: 0.7 x 85.5 + 0.3 x 92.3 = 87.5)."""

    semantic: float = 0.7

    @property
    def keyword(self) -> float:
        return 1.0 - self.semantic


@dataclass(frozen=True, slots=True)
class Fused:
    """One candidate's scores, each 0..100."""

    id: int
    semantic: float
    keyword: float
    combined: float
    match_type: MatchType
    named: float = 0.0
    """How much of its file's name the query holds, up to 1; 0 unless the query names its document."""
    for_language: float = 0.0
    for_meanings: float = 0.0


def semantic_score(cosine: float) -> float:
    """Return 0..100 for a cosine: 100 x min(cosine / 0.8, 1), never negative."""
    return 100.0 * min(max(cosine, 0.0) / COSINE_CEILING, 1.0)


def keyword_score(bm25: float, full: float) -> float:
    """Return 0..100 for a bm25 score; `full`, the best of this search, counts as 100.

    Of fifteen collections none gains more than .002 nDCG@10 if a share of what any text could reach is demanded, and
    titles of packages lose .012.
    """
    return 100.0 * min(bm25 / full, 1.0) if full > 0 else 0.0


def fuse(
    cosines: Mapping[int, float], bm25: Mapping[int, float], full: float, weights: Weights, floor: float
) -> list[Fused]:
    """Return every candidate with both scores, best first; ties by id.

    `cosines` holds every candidate; one that is missing from `bm25` holds no term of the query. `full` is the bm25
    score that counts as 100. Candidates with neither a term nor a cosine of at least `floor` are left out.
    """
    fused = (
        Fused(
            id=chunk_id,
            semantic=(semantic := semantic_score(cosine)),
            keyword=(keyword := keyword_score(bm25.get(chunk_id, 0.0), full)),
            combined=weights.semantic * semantic + weights.keyword * keyword,
            match_type=match_type(cosine >= floor, bm25.get(chunk_id, 0.0) > 0),
        )
        for chunk_id, cosine in cosines.items()
        if cosine >= floor or bm25.get(chunk_id, 0.0) > 0
    )
    return sorted(fused, key=lambda f: (-f.combined, f.id))


def match_type(by_meaning: bool, by_word: bool) -> MatchType:
    """Return `both` when the text holds a query term and its cosine reaches the model's floor."""
    if by_meaning and by_word:
        return "both"
    return "keyword_only" if by_word else "semantic_only"
