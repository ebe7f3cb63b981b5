"""An evaluation of the search as a page: a table of the ways to search, and a plot by kind of question."""

from __future__ import annotations

import json

from textual.content import Content

from localmcp.humanize import bar
from localmcp.schemas import Json

WIDTH = 30
"""Signs of the longest bar, which is 1.0."""
TONES = {"keyword": "$warning", "semantic": "$secondary", "hybrid": "$success"}


def evaluation_page(printed: str) -> Content:
    """Return the page of what `localmcp --json eval` prints."""
    evaluation: Json = json.loads(printed.splitlines()[0])
    asked = ", ".join(f"{count} {kind}" for kind, count in evaluation["questions"].items())
    modes: dict[str, Json] = evaluation["modes"]
    parts = [Content(f"Questions: {asked}."), _table(modes), _plot(evaluation["questions"], modes)]
    parts += [Content.styled(notice, "$warning") for notice in evaluation["notices"]]
    return Content("\n\n").join(parts)


def _table(modes: dict[str, Json]) -> Content:
    columns = ("nDCG@10", "recall", "MRR", "p50 ms", "p95 ms")
    head = f"{'mode':<10}{''.join(f'{column:>8}' for column in columns)}  unanswerable"
    lines = [Content.styled(head, "$muted")]
    for name, mode in modes.items():
        overall = mode["overall"]
        measures = "".join(f"{overall[measure]:>8.3f}" for measure in ("ndcg", "recall", "mrr"))
        anyway = "-" if mode["answered_anyway"] is None else f"{mode['answered_anyway']:.0%}"
        times = f"{mode['p50']:>8.1f}{mode['p95']:>8.1f}"
        lines.append(Content.assemble((f"{name:<10}", "bold"), f"{measures}{times}  {anyway}"))
    return Content("\n").join(lines)


def _plot(kinds: Json, modes: dict[str, Json]) -> Content:
    """Draw nDCG@10 by kind of question: a bar for each way to search."""
    lines = [Content.styled("nDCG@10 by kind of question", "$muted")]
    for kind in ("all", *kinds):
        measured = {name: mode["overall"] if kind == "all" else mode["kinds"].get(kind) for name, mode in modes.items()}
        for number, (name, measures) in enumerate(measured.items()):
            if measures:
                label = f"{kind if not number else '':<14}{name:<9} "
                lines.append(
                    Content.assemble(label, (bar(measures["ndcg"], WIDTH), TONES[name]), f" {measures['ndcg']:.2f}")
                )
    return Content("\n").join(lines)
