"""How likely a tool fits a query: what speaks for it as numbers, and what they add up to.

First the tools are put in order: weights under which the tool that serves is the likeliest choice. Then it is asked
whether the first of them serves at all. Both were fitted by `tests/benchmarks/discovery_quality.py --fit` to the
development half of its queries: over its whole catalogue, over parts of it, and over the catalogue without the very
tools that would serve.
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
    "name_cosine",
    "known",
    "strength",
    "verb_named",
    "verb_told",
    "verb_missing",
    "other_action",
    "thing_named",
    "thing_asked",
    "other_thing",
    "unexplained",
)
"""What speaks for one tool, in the order of the columns.

cosine: of the query and the name with the first sentence; other_cosine: the best of the description and the examples;
name_cosine: of the name alone; known: share of the query's words, of those that any tool has, that this one has,
weighted by place and rarity; strength: how much weight of words that is, 1 - exp(-weight / 3);
verb_named, verb_told, verb_missing: 1 where a verb that does what is asked for is the tool's, is only spoken of, or
is nowhere; other_action: 1 when the query asks for a kind of action and the name only for others; thing_named: share
of the things in its name that the query speaks of; thing_asked: what the thing that is asked for counts at the tool;
other_thing: 1 when something is to be done to a thing that is not in the tool's name;
unexplained: share of the query's words that neither the tool nor its program nor its kind of action explains.
"""
WORD_FEATURES = FEATURES[3:]
"""The columns that need no model."""
OF_THE_BEST = ("unexplained", "verb_told", "verb_missing", "thing_asked", "other_thing")
"""Columns of the most relevant tool that tell once more whether any tool serves the query."""

WITH_MODEL = {
    "cosine": 5.56,
    "other_cosine": 6.66,
    "name_cosine": 3.02,
    "known": 2.04,
    "strength": 1.67,
    "verb_named": 1.73,
    "verb_told": -0.11,
    "verb_missing": -1.42,
    "other_action": -0.69,
    "thing_named": 0.63,
    "thing_asked": 0.91,
    "other_thing": -0.2,
    "unexplained": -1.86,
}
WITHOUT_MODEL = {
    "known": 3.67,
    "strength": 4.22,
    "verb_named": 1.86,
    "verb_told": -0.85,
    "verb_missing": -1.41,
    "other_action": -0.92,
    "thing_named": 0.77,
    "thing_asked": 2.02,
    "other_thing": -0.29,
    "unexplained": -2.22,
}
FITS_WITH_COMMANDS = {
    "bias": 1.56,
    "relevance": 0.25,
    "unexplained": -1.81,
    "verb_told": -1.21,
    "verb_missing": -1.92,
    "thing_asked": 0.27,
    "other_thing": -0.43,
    "elsewhere": -7.75,
    "gap": -2.07,
    "gap_to_tools": -4.57,
}
FITS_WITH_MODEL = {
    "bias": 0.83,
    "relevance": 0.3,
    "unexplained": -1.56,
    "verb_told": -1.05,
    "verb_missing": -1.84,
    "thing_asked": 0.01,
    "other_thing": -0.64,
    "elsewhere": -7.71,
}
FITS_WITHOUT_MODEL = {
    "bias": -0.39,
    "relevance": 0.32,
    "unexplained": -2.15,
    "verb_told": -0.29,
    "verb_missing": -1.76,
    "thing_asked": -0.22,
    "other_thing": -0.77,
}
"""From the relevance of the best tool to the log odds that it serves the query. `elsewhere`: how much nearer the query
is to something that people ask of other programs; `gap`, `gap_to_tools`: to what these tools do not do."""
LEAST_WITH_COMMANDS, LEAST_WITH_MODEL, LEAST_WITHOUT_MODEL = 0.0, 0.0, 0.5
"""Log odds that the best tool must reach, or nothing fits."""


def relevance(evidence: NDArray[np.float32], names: Sequence[str]) -> NDArray[np.float32]:
    """evidence x weights, one number for each row; the columns are `names`. Only differences mean anything: how much
    likelier, in log odds, one tool is the one that is meant than another."""
    import numpy as np

    weights = WITH_MODEL if len(names) == len(FEATURES) else WITHOUT_MODEL
    return evidence @ np.array([weights[name] for name in names], np.float32)


def log_odds(
    relevances: NDArray[np.float32],
    evidence: NDArray[np.float32],
    names: Sequence[str],
    weights: Mapping[str, float],
    **signs: float,
) -> NDArray[np.float32]:
    """Of each tool serving the query, against nothing serving it: the most relevant tool answers for all.

    Args:
        relevances: shape (tools,).
        evidence: shape (tools, columns); the columns are `names`.
        signs: what concerns the query alone: elsewhere, gap, gap_to_tools.
    """
    best = int(relevances.argmax())
    told = {name: float(evidence[best, names.index(name)]) for name in OF_THE_BEST}
    told |= {"bias": 1.0, "relevance": float(relevances[best]), **signs}
    of_best = sum(weights[name] * value for name, value in told.items())
    return relevances - relevances[best] + of_best


def probability(odds: float) -> float:
    """Log odds as a number between 0 and 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
