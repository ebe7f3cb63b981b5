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

WITH_MODEL = {}
WITHOUT_MODEL = {}
FITS_WITH_COMMANDS = {}
FITS_WITH_MODEL = {}
FITS_WITHOUT_MODEL = {}
"""From the relevance of a tool to the log odds that it serves the query. `elsewhere`: how much nearer the query is to
something that people ask of other programs; `gap`, `gap_to_tools`: to what these tools do not do."""
LEAST_WITH_COMMANDS, LEAST_WITH_MODEL, LEAST_WITHOUT_MODEL = 0.2, 0.2, 0.8
"""Log odds that the best tool must reach, or nothing fits."""


def relevance(evidence: NDArray[np.float32], names: Sequence[str]) -> NDArray[np.float32]:
    """bias + evidence x weights, one number for each row; the columns are `names`."""
    import numpy as np

    weights = WITH_MODEL if len(names) == len(FEATURES) else WITHOUT_MODEL
    return evidence @ np.array([weights[name] for name in names], np.float32) + np.float32(weights["bias"])


def signs(
    best: Sequence[float], names: Sequence[str], elsewhere: float, gap: tuple[float, float] | None
) -> dict[str, float]:
    """What tells whether any tool serves the query, beside the relevance; `best` is the row of the most relevant."""
    found = {name: float(best[names.index(name)]) for name in OF_THE_BEST} | {"elsewhere": elsewhere}
    return found if gap is None else found | {"gap": gap[0], "gap_to_tools": gap[1]}


def log_odds(relevance: float, signs: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Of a tool serving the query, against nothing serving it; signs without a weight do not count."""
    told = sum(weights.get(name, 0.0) * value for name, value in signs.items())
    return weights["bias"] + weights["relevance"] * relevance + told


def probability(odds: float) -> float:
    """Log odds as a number between 0 and 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
