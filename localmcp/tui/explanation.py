"""Why a passage ranks where it does, in a few lines."""

from __future__ import annotations

from typing import Any

from textual.content import Content

from localmcp.humanize import counted

Json = dict[str, Any]


def explanation_of(result: Json, hit: Json) -> Content:
    """Return score by score, the words that were searched for, and the status of the others."""
    arms, query = hit["explain"], result["explain"]
    meaning, words = arms["semantic"], arms["keyword"]
    rows = {
        "score": _formula(hit, meaning, words),
        "meaning": f"{_rank(meaning)}   cosine {meaning['raw']:.3f}",
        "words": f"{_rank(words)}   bm25 {words['raw']:.2f}   matched: {', '.join(arms['matchedWords']) or 'none'}",
        "searched": " · ".join(_term(term) for term in query["terms"]) or "no words",
        "left out": ", ".join(f"{dropped['word']} ({dropped['reason']})" for dropped in query["dropped"]),
        "repaired": ", ".join(f"{repair['word']} → {repair['replacement']}" for repair in result.get("repairs", ())),
        "notices": " ".join(result.get("notices", ())),
        "file": {
            "fresh": "as it was read",
            "changed": "has changed since it was read",
            "missing": "is no longer there",
            "unverifiable": "not a file of this machine",
        }[hit["freshness"]],
    }
    lines = [
        Content.assemble((f"{name:<9} ", "$muted"), value if name != "score" else (value, "bold"))
        for name, value in rows.items()
        if value
    ]
    return Content("\n").join(lines)


def _formula(hit: Json, meaning: Json, words: Json) -> str:
    """Return the sum that makes the score; with one arm alone, that arm."""
    score = hit["combinedScore"]
    total = meaning["weight"] * meaning["score"] + words["weight"] * words["score"]
    if abs(total - score) < 0.02:
        return (
            f"{score:.1f} = {meaning['weight']:.2g} × {meaning['score']:.1f} meaning + "
            f"{words['weight']:.2g} × {words['score']:.1f} words"
        )
    return f"{score:.1f} by {'meaning' if meaning['score'] == score else 'words'} alone"


def _rank(arm: Json) -> str:
    return f"rank {arm['rank']}" if arm["rank"] else "not among its first"


def _term(term: Json) -> str:
    return f"{term['word']} in {counted(term['chunks'], 'passage')}"
