"""From what speaks for a tool to how likely it is the one that is meant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for one tool, each 0..1 unless it says otherwise."""

    phrase: float
    """How well its best example phrase is said."""
    words: float
    """Share of the words known to any tool that this one has, weighted by place and rarity."""
    strength: float
    """How much weight of words that is: 1 - exp(-weight / 2)."""
    strange: float
    """Share of the sentence's telling words that neither the tool knows nor the phrase explains."""
    lacking: float
    """1 when an argument is required that nothing in the sentence can be."""
    homeless: float
    """Share of the sentence's paths, ids, numbers and quotations that no parameter can take."""
    housed: float
    """1 when a path or an id is in the sentence and a parameter asks for one."""
    example: float | None = None
    """Cosine of the sentence and the nearest example phrase, -1..1; this and what follows are None without a model."""
    description: float | None = None
    """Cosine of the sentence and the tool's title and description."""
    bare_example: float | None = None
    """As `example`, of the sentence without the words that no tool knows: what is done, without what it is done to."""
    bare_description: float | None = None
    """As `description`, of that."""


WITH_MODEL = {
    "bias": -7.48,
    "phrase": 0.39,
    "said": 1.45,
    "words": 2.62,
    "strength": 4.75,
    "strange": -3.32,
    "lacking": -1.35,
    "homeless": -0.7,
    "housed": 2.24,
    "example": 2.38,
    "description": 2.05,
    "bare_example": 2.32,
    "bare_description": 2.39,
}
WITHOUT_MODEL = {
    "bias": -5.84,
    "phrase": 0.79,
    "said": 2.41,
    "words": 2.75,
    "strength": 6.36,
    "strange": -4.0,
    "lacking": -1.34,
    "homeless": -0.98,
    "housed": 2.83,
}
"""Weights of the evidence, fitted by `tests/benchmarks/router_quality.py --fit` to its development half."""


SURE_BY_WORDS = 0.9
"""From this certainty on, by phrases and words, the model is not asked: 5 to 30 ms a sentence."""
NONE_AT_MOST, LEAST = 0.4, 0.25
"""A tool is worth a call if "none of them" is not likelier than this, and the tool itself at least this likely."""


def weigh(evidence: Evidence) -> float:
    """bias + sum of weight x evidence: the log odds of this tool against "none of them"."""
    weights = WITHOUT_MODEL if evidence.example is None else WITH_MODEL
    return sum(weight * value for weight, value in zip(weights.values(), features(evidence), strict=True))


def features(evidence: Evidence) -> list[float]:
    """The numbers that the weights belong to. A phrase counts twice, the second time only if it is said in full."""
    meaning = (evidence.example, evidence.description, evidence.bare_example, evidence.bare_description)
    words = (evidence.words, evidence.strength, evidence.strange, evidence.lacking, evidence.homeless, evidence.housed)
    return [1.0, evidence.phrase, evidence.phrase**4, *words, *(share for share in meaning if share is not None)]


def share_certainty(weighed: Sequence[float]) -> list[float]:
    """Log odds as probabilities that, together with "none of them" (log odds 0), sum to 1."""
    highest = max([0.0, *weighed])
    odds = [math.exp(weight - highest) for weight in weighed]
    total = math.exp(-highest) + sum(odds)
    return [odd / total for odd in odds]
