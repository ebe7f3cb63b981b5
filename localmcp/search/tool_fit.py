"""How likely a tool fits a query: what speaks for it as numbers, and what they add up to.

The weights were fitted by `tests/benchmarks/discovery_quality.py --fit` to the development half of its queries: over
its whole catalogue, over parts of it, and over the catalogue without the very tools that would serve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FEATURES = (
    "cosine",
    "other_cosine",
    "covered",
    "known",
    "strength",
    "same_action",
    "other_action",
    "other_lead",
    "thing_named",
    "unexplained",
)
"""What speaks for one tool, in the order of the columns.

cosine: of the query and the name with the first sentence; other_cosine: the best of the description and the examples;
covered: share of the query's words that the tool has, weighted by place and rarity; known: the same of the words that
any tool has; strength: how much weight of words that is, 1 - exp(-weight / 4); same_action, other_action: 1 when the
query asks for a kind of action and the name for one of these, or only for others; other_lead: 1 when the query begins
with a command that is nothing to the tool; thing_named: share of the things in its name that the query speaks of;
unexplained: share of the query's words that neither the tool nor its program nor its kind of action explains.
"""
WORD_FEATURES = FEATURES[2:]
"""The columns that need no model."""
OF_THE_BEST = ("other_lead", "other_action", "unexplained")
"""Columns of the most relevant tool that tell once more whether any tool serves the query."""

WITH_MODEL = {
    "bias": -7.14,
    "cosine": 3.62,
    "other_cosine": 3.6,
    "covered": 0.3,
    "known": 1.82,
    "strength": 1.68,
    "same_action": 0.47,
    "other_action": -0.55,
    "other_lead": -0.86,
    "thing_named": 0.95,
    "unexplained": -0.93,
}
WITHOUT_MODEL = {
    "bias": -6.17,
    "covered": 0.79,
    "known": 1.81,
    "strength": 3.86,
    "same_action": 0.55,
    "other_action": -0.53,
    "other_lead": -0.71,
    "thing_named": 1.51,
    "unexplained": -1.43,
}
FITS_WITH_COMMANDS = {
    "bias": 5.15,
    "relevance": 0.47,
    "other_lead": -1.27,
    "other_action": -0.13,
    "unexplained": -1.61,
    "elsewhere": -8.35,
    "gap": -2.6,
    "gap_to_tools": -4.62,
}
FITS_WITH_MODEL = {
    "bias": 4.87,
    "relevance": 0.56,
    "other_lead": -1.24,
    "other_action": -0.26,
    "unexplained": -1.22,
    "elsewhere": -8.5,
}
FITS_WITHOUT_MODEL = {
    "bias": 2.4,
    "relevance": 0.55,
    "other_lead": -1.41,
    "other_action": -0.56,
    "unexplained": -1.67,
}
"""From the relevance of a tool to the log odds that it serves the query. `elsewhere`: how much nearer the query is to
something that people ask of other programs; `gap`, `gap_to_tools`: to what these tools do not do."""
LEAST_WITH_COMMANDS, LEAST_WITH_MODEL, LEAST_WITHOUT_MODEL = -0.2, 0.3, 0.8
"""Log odds that the best tool must reach, or nothing fits."""


def relevance(evidence: NDArray[np.float32], names: Sequence[str]) -> NDArray[np.float32]:
    """bias + evidence x weights, one number for each row; the columns are `names`."""
    import numpy as np

    weights = WITH_MODEL if len(names) == len(FEATURES) else WITHOUT_MODEL
    return evidence @ np.array([weights[name] for name in names], np.float32) + np.float32(weights["bias"])


def log_odds(
    relevances: NDArray[np.float32],
    evidence: NDArray[np.float32],
    names: Sequence[str],
    weights: Mapping[str, float],
    **signs: float,
) -> NDArray[np.float32]:
    """Of each tool serving the query, against nothing serving it.

    What speaks against the most relevant tool speaks against all; the others answer for their own besides.

    Args:
        relevances: shape (tools,).
        evidence: shape (tools, columns); the columns are `names`.
        signs: what concerns the query alone: elsewhere, gap, gap_to_tools.
    """
    import numpy as np

    own = evidence[:, [names.index(name) for name in OF_THE_BEST]]
    told = own @ np.array([weights[name] for name in OF_THE_BEST], np.float32)
    told = np.minimum(told, told[relevances.argmax()])
    of_query = weights["bias"] + sum(weights[name] * value for name, value in signs.items())
    return np.float32(weights["relevance"]) * relevances + told + np.float32(of_query)


def probability(odds: float) -> float:
    """Log odds as a number between 0 and 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
