"""How likely a tool serves a request: an order of the tools, then whether the first of them serves at all.

Fitted by `tests/benchmarks/discovery_quality.py --fit` to queries over whole catalogs, over parts of them, and over
catalogs without the very tools that would serve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localmcp.tool_search.features import FEATURES, Features

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SIGNS = ("bias", "relevance", "share", "verb_missing", "out_of_scope")
"""Of the most relevant tool: its relevance, its share among the tools (the softmax of their relevances), and whether
it lacks the query's verb; and of the query: whether it is rather meant for other programs."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One model: weights of FEATURES, weights of SIGNS, and two thresholds of log odds."""

    order: tuple[float, ...]
    signs: tuple[float, ...]
    sure: float
    """From here on the answer counts as sure."""
    possible: float
    """Below this nothing is worth showing."""


WITH_MODEL = Weights(
    order=(7.77, 7.73, 3.21, 1.54, 3.47, -0.78, -2.3),
    signs=(-1.47, 0.22, 1.5, -1.5, -6.62),
    sure=0.0,
    possible=-2.6,
)
WITHOUT_MODEL = Weights(
    order=(0.0, 0.0, 0.0, 5.17, 7.5, -1.1, -2.81),
    signs=(-2.47, 0.36, 0.36, -1.13, 0.0),
    sure=0.73,
    possible=-2.0,
)


def weights_for(features: Features) -> Weights:
    """Return the weights for features with or without cosines."""
    return WITH_MODEL if features.with_model else WITHOUT_MODEL


def relevance(rows: NDArray[np.float32], weights: Weights) -> NDArray[np.float32]:
    """Return rows x weights: only differences mean anything, how much likelier in log odds one tool is than another."""
    import numpy as np

    return rows @ np.array(weights.order, np.float32)


def signs_of(relevances: NDArray[np.float32], features: Features) -> tuple[float, ...]:
    """Return the values that the weights of SIGNS belong to."""
    import numpy as np

    best = int(relevances.argmax())
    share = 1 / float(np.exp(np.maximum(relevances - relevances[best], -30)).sum())
    missing = float(features.rows[best, FEATURES.index("verb_missing")])
    return 1.0, float(relevances[best]), share, missing, features.out_of_scope


def log_odds(features: Features) -> NDArray[np.float32]:
    """Return, per tool, the log odds that it serves the request: the most relevant tool answers for all."""
    weights = weights_for(features)
    relevances = relevance(features.rows, weights)
    of_best = sum(w * v for w, v in zip(weights.signs, signs_of(relevances, features), strict=True))
    return relevances - relevances.max() + of_best


def probability(odds: float) -> float:
    """Return log odds as a number between 0 and 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
