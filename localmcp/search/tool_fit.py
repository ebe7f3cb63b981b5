"""How likely a tool fits a query: what speaks for it as numbers, and what they add up to.

The weights were fitted by `tests/benchmarks/discovery_quality.py --fit` to the development half of its queries, over
its whole catalogue and over parts of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEATURES = ("cosine", "other_cosine", "covered", "known", "strength", "same_action", "other_action")
"""What speaks for one tool, in the order of the columns.

cosine: of the query and the name with the first sentence; other_cosine: the best of the description and the examples;
covered: share of the query's words that the tool has, weighted by place and rarity; known: the same of the words that
any tool has; strength: how much weight of words that is, 1 - exp(-weight / 4); same_action, other_action: 1 when the
query asks for a kind of action and the name for one of these, or only for others.
"""
WORD_FEATURES = FEATURES[2:]
"""The columns that need no model."""

WITH_MODEL = {
    "bias": -8.25,
    "cosine": 3.82,
    "other_cosine": 3.83,
    "covered": 3.06,
    "known": 1.79,
    "strength": 1.65,
    "same_action": 0.75,
    "other_action": -0.69,
}
WITHOUT_MODEL = {
    "bias": -7.38,
    "covered": 4.25,
    "known": 1.28,
    "strength": 4.48,
    "same_action": 0.8,
    "other_action": -0.68,
}
FITS_WITH_MODEL = {"bias": 4.72, "relevance": 0.76, "elsewhere": -8.2}
FITS_WITHOUT_MODEL = {"bias": 1.99, "relevance": 0.82, "elsewhere": 0.0}
"""From the relevance of a tool to the log odds that it serves the query; `elsewhere`: how much nearer the query is to
something that people ask of other programs."""
LEAST_WITH_MODEL, LEAST_WITHOUT_MODEL = 0.2, 0.8
"""Log odds that the best tool must reach, or nothing fits."""


def relevance(evidence: NDArray[np.float32], names: Sequence[str]) -> NDArray[np.float32]:
    """bias + evidence x weights, one number for each row; the columns are `names`."""
    import numpy as np

    weights = WITH_MODEL if len(names) == len(FEATURES) else WITHOUT_MODEL
    return evidence @ np.array([weights[name] for name in names], np.float32) + np.float32(weights["bias"])


def log_odds(relevance: float, elsewhere: float, weights: Mapping[str, float]) -> float:
    """Of a tool serving the query, against nothing serving it."""
    return weights["bias"] + weights["relevance"] * relevance + weights["elsewhere"] * elsewhere


def probability(odds: float) -> float:
    """Log odds as a number between 0 and 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
