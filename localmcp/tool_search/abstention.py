"""How likely a tool serves a request: an order of the tools, then whether the first of them serves at all.

Fitted by `tests/benchmarks/discovery_fit.py --weights` to queries over whole catalogs, over parts of them, and over
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
    """One model: weights of FEATURES, and weights of SIGNS for two questions, each with a threshold of log odds."""

    order: tuple[float, ...]
    serves: tuple[float, ...]
    """Whether any tool serves the request."""
    possible: float
    """Below this nothing is worth showing."""
    right: tuple[float, ...]
    """Whether a tool that serves is among the first five."""
    sure: tuple[float, float]
    """Where both answers reach so much, the tools count as sure."""


WITH_MODEL = Weights(
    order=(8.65, 9.18, 3.33, 0.33, -0.24, -0.58, -1.65),
    serves=(-0.67, 0.39, 0.17, -1.47, -6.75),
    possible=-2.6,
    right=(-1.67, 0.28, 1.82, -0.75, -3.88),
    sure=(0.6, 0.1),
)
WITHOUT_MODEL = Weights(
    order=(0.0, 0.0, 0.0, 0.99, 5.31, -0.65, -1.93),
    serves=(-1.17, 0.52, -0.77, -0.64, 0.0),
    possible=-2.0,
    right=(-2.08, 0.46, 2.76, -0.34, 0.0),
    sure=(1.0, 1.0),
)


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


@dataclass(frozen=True, slots=True)
class Judgment:
    """What is thought of the tools for one request."""

    odds: NDArray[np.float32]
    """Log odds that each tool serves it: the most relevant tool answers for all."""
    possible: bool
    """Whether any of them is worth showing."""
    sure: bool
    """Whether a tool that serves is very likely among the first."""


def judge(features: Features) -> Judgment:
    """Weigh what speaks for each tool."""
    weights = WITH_MODEL if features.with_model else WITHOUT_MODEL
    relevances = relevance(features.rows, weights)
    signs = signs_of(relevances, features)
    serves, right = (
        sum(weight * sign for weight, sign in zip(question, signs, strict=True))
        for question in (weights.serves, weights.right)
    )
    odds = relevances - relevances.max() + serves
    # By words alone, a request that shares none with any tool has none.
    shares_words = bool(features.rows[:, FEATURES.index("strength")].any())
    sure = serves >= weights.sure[0] and right >= weights.sure[1]
    return Judgment(odds, serves >= weights.possible and (features.with_model or shares_words), sure)


def probability(odds: float) -> float:
    """Return log odds as a number between 0 and 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
