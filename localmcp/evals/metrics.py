"""The standard measures of a ranking, each 0..1 and higher is better. Pure functions."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence

from localmcp.arrays import np

BOOTSTRAP_ROUNDS = 1000


def ndcg(ranking: Sequence[str], grades: Mapping[str, float], depth: int = 10) -> float:
    """Normalized discounted cumulative gain: sum of grade / log2(rank + 1), over that of the best possible ranking.

    Args:
        ranking: ids, best first, each once.
        grades: id -> how relevant it is, above 0; others are not relevant.
    """
    best = sorted(grades.values(), reverse=True)[:depth]
    ideal = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, 1))
    gain = sum(grades.get(document, 0.0) / math.log2(rank + 1) for rank, document in enumerate(ranking[:depth], 1))
    return gain / ideal if ideal else 0.0


def recall(ranking: Sequence[str], grades: Mapping[str, float], depth: int = 10) -> float:
    """Return the share of the relevant ids among the first `depth`."""
    relevant = {document for document, grade in grades.items() if grade > 0}
    return len(relevant & set(ranking[:depth])) / len(relevant) if relevant else 0.0


def reciprocal_rank(ranking: Sequence[str], grades: Mapping[str, float], depth: int = 10) -> float:
    """1 / rank of the first relevant id; 0 when there is none among the first `depth`. Its mean is MRR."""
    return next((1 / rank for rank, document in enumerate(ranking[:depth], 1) if grades.get(document, 0.0) > 0), 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which that share (0..1) of the values is, interpolated; 0 for none."""
    return float(np.quantile(values, share)) if values else 0.0


def paired_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of `second - first` over the same questions, by bootstrap."""
    differences = [b - a for a, b in zip(first, second, strict=True)]
    if not differences:
        return 0.0, 0.0
    draw = random.Random(0)
    means = [statistics.fmean(draw.choices(differences, k=len(differences))) for _ in range(BOOTSTRAP_ROUNDS)]
    return round(percentile(means, 0.025), 4), round(percentile(means, 0.975), 4)
