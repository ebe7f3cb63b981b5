"""How the scores of a hit come about, for `explain`."""

from __future__ import annotations

from typing import Any

from localmcp.search.candidates import Hit
from localmcp.tools import current_scope


def explain_hit(hit: Hit) -> dict[str, Any]:
    """Return ranks, scores and weights of both arms, and what the keyword score counts for more."""
    weights = hit.weights
    # bm25 counts the whole file, so its raw value is told only to callers who see all of it.
    raw = {"raw": round(hit.keyword.raw, 4)} if current_scope().collections is None else {}
    reasons = {"another language": hit.scores.for_language, "words of like meaning": hit.scores.for_meanings}
    added = [{"reason": reason, "points": round(points, 2)} for reason, points in reasons.items() if points >= 0.005]
    return {
        "semantic": {
            "rank": hit.semantic.rank,
            "raw": round(hit.semantic.raw, 4),
            "score": round(hit.scores.semantic, 2),
            "weight": weights.semantic,
        },
        "keyword": {
            "rank": hit.keyword.rank,
            **raw,
            "score": round(hit.scores.keyword, 2),
            "weight": round(weights.keyword, 6),
            **({"added": added} if added else {}),
        },
        "matchedWords": hit.matched,
        "language": hit.passage.language,
    }
