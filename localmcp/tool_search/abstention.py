"""Order the tools for a request, then decide whether one that serves it is among the first five.

Fitted as `tests/benchmarks/discovery_fit.py --weights` does: the order to queries over whole catalogs, the rest also to
queries over parts of them and over catalogs without the very tools that would serve. Then strength took the weight of
the share of words, and the verb in the name that of the verb in the text and of the kind of action, which went.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from localmcp.arrays import NDArray, np
from localmcp.tool_search.features import FEATURES, Features

SIGNS = ("bias", "relevance", "lead", "verb_not_in_name", "words", "out_of_scope")
"""Of the most relevant tool: its relevance, how far the sixth is behind it, and whether its name lacks the verb of the
query; and of the query: how many words it has, and whether it is rather meant for other programs."""
OPPOSED = 2.0
"""What a tool loses in relevance that does the opposite of what is asked for."""
FIRST = 5
"""Tools that are looked at: it is enough that one of them serves."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One model: weights of FEATURES, weights of SIGNS, and two thresholds of the log odds that these give."""

    order: tuple[float, ...]
    right: tuple[float, ...]
    """Whether a tool that serves is among the first five."""
    possible: float
    """Below this nothing is worth showing."""
    sure: float
    """From here on the tools count as sure."""


WITH_MODEL = Weights(
    order=(4.64, 5.89, 1.27, 0.76, 8.17, 11.78, -11.08, -1.54),
    right=(-1.99, 0.27, 0.24, -0.57, 0.11, -2.24),
    possible=-2.0,
    sure=0.0,
)
WITHOUT_MODEL = Weights(
    order=(0.0, 0.0, 0.0, 6.8, 0.0, 0.0, 0.0, -2.03),
    right=(-2.41, 0.59, 0.05, -0.2, 0.06, 0.0),
    possible=-2.2,
    sure=1.2,
)


def signs_of(relevances: NDArray[np.float32], features: Features) -> tuple[float, ...]:
    """Return the values that the weights of SIGNS belong to."""
    best, behind = int(relevances.argmax()), max(0, len(relevances) - FIRST - 1)
    lead = float(relevances[best] - np.partition(relevances, behind)[behind])
    missing = float(features.rows[best, FEATURES.index("verb_not_in_name")])
    return 1.0, float(relevances[best]), lead, missing, float(features.words), features.out_of_scope


@dataclass(frozen=True, slots=True)
class Judgment:
    """Scores of the tools for one request, and whether any serves it."""

    odds: NDArray[np.float32]
    """Log odds that each tool serves it: the most relevant tool answers for all."""
    possible: bool
    """Whether any of them is worth showing."""
    sure: bool
    """Whether a tool that serves is very likely among the first."""


def judge(features: Features) -> Judgment:
    """Weigh what speaks for each tool."""
    weights = WITH_MODEL if features.with_model else WITHOUT_MODEL
    # Only differences mean anything: how much likelier in log odds one tool is than another.
    relevances = features.rows @ np.array(weights.order, np.float32) - features.opposed * np.float32(OPPOSED)
    signs = signs_of(relevances, features)
    right = sum(weight * sign for weight, sign in zip(weights.right, signs, strict=True))
    if features.opposed[relevances.argmax()]:
        right = min(right, weights.sure - 1)
    odds = relevances - relevances.max() + right
    # By words alone, a request that shares none with any tool has none.
    shares_words = bool(features.rows[:, FEATURES.index("strength")].any())
    return Judgment(odds, right >= weights.possible and (features.with_model or shares_words), right >= weights.sure)


def probability(odds: float) -> float:
    """Return log odds as a number between 0 and 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
