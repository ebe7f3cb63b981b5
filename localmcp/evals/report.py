"""An evaluation as a page that a person reads: tables in Markdown, and a plot in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from localmcp.evals.runner import Difference, Evaluation, ModeResult

COLORS = {"keyword": "#b58900", "semantic": "#268bd2", "hybrid": "#2aa198"}
_ROW, _LEFT, _WIDTH = 26, 170, 420


def write_report(evaluation: Evaluation, differences: Sequence[Difference] = (), plot: str | None = None) -> str:
    """Markdown: what was asked, each mode's measures by kind, speed, and the comparison if there is one.

    Args:
        plot: name of the picture to show.
    """
    asked = ", ".join(f"{count} {kind}" for kind, count in evaluation.questions.items())
    lines = ["# How well the search answers", "", f"Questions: {asked}.", ""]
    lines += [f"- {name}: {value}" for name, value in evaluation.settings.items()]
    lines += [f"- note: {notice}" for notice in evaluation.notices]
    if plot:
        lines += ["", f"![nDCG@10 by kind of question]({plot})"]
    lines += ["", "| mode | questions | nDCG@10 | recall@10 | MRR@10 | unanswerable answered | p50 ms | p95 ms |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for name, result in evaluation.modes.items():
        lines.append(f"| {' | '.join((name, str(result.overall.questions), *mode_cells(result)))} |")
    lines += ["", "## By kind (nDCG@10)", "", *_kind_table(evaluation)]
    lines += ["", "## Where the time goes (median ms)", ""]
    for mode, result in evaluation.modes.items():
        lines.append(f"- {mode}: {', '.join(f'{name} {lap:.1f}' for name, lap in result.arms.items())}")
    if differences:
        lines += ["", "## Compared", "", *comparison_lines(differences)]
    return "\n".join([*lines, ""])


def mode_cells(result: ModeResult) -> tuple[str, ...]:
    """Return nDCG, recall, MRR, the share of unanswerable questions that were answered, p50 and p95 in ms."""
    overall, answered = result.overall, result.answered_anyway
    measures = (f"{overall.ndcg:.3f}", f"{overall.recall:.3f}", f"{overall.mrr:.3f}")
    return (*measures, "-" if answered is None else f"{answered:.0%}", f"{result.p50:.1f}", f"{result.p95:.1f}")


def _kind_table(evaluation: Evaluation) -> list[str]:
    modes = list(evaluation.modes)
    rows = [f"| kind | {' | '.join(modes)} |", f"|---|{'---|' * len(modes)}"]
    for kind in kinds_of(evaluation):
        cells = (f"{evaluation.modes[mode].kinds[kind].ndcg:.3f}" for mode in modes)
        rows.append(f"| {kind} | {' | '.join(cells)} |")
    return rows


def kinds_of(evaluation: Evaluation) -> list[str]:
    """Return the kinds of answerable questions that every mode was asked."""
    return [kind for kind in evaluation.questions if all(kind in result.kinds for result in evaluation.modes.values())]


def comparison_lines(differences: Sequence[Difference]) -> list[str]:
    """Return a Markdown table of the changes."""
    rows = ["| mode | before | after | change | 95 % interval | time |", "|---|---|---|---|---|---|"]
    for difference in differences:
        interval = (
            "other questions"
            if difference.interval is None
            else f"{difference.interval[0]:+.3f} … {difference.interval[1]:+.3f}"
        )
        rows.append(
            f"| {difference.mode} | {difference.before:.3f} | {difference.after:.3f} | {difference.change:+.3f} | "
            f"{interval} | x {difference.p50_ratio:.2f} |"
        )
    return rows


def draw_plot(evaluation: Evaluation) -> str:
    """nDCG@10 of every mode for every kind of question, as horizontal bars; an SVG document."""
    bars: list[str] = []
    top = 34
    for kind in ("all", *kinds_of(evaluation)):
        bars.append(f'<text x="{_LEFT - 10}" y="{top + 13}" text-anchor="end" class="kind">{escape(kind)}</text>')
        for mode, result in evaluation.modes.items():
            value = (result.overall if kind == "all" else result.kinds[kind]).ndcg
            bars.append(_bar(top, value, mode))
            top += _ROW - 8
        top += 12
    legend = [
        f'<rect x="{_LEFT + 110 * n}" y="8" width="12" height="12" fill="{COLORS[mode]}"/>'
        f'<text x="{_LEFT + 110 * n + 18}" y="18">{mode}</text>'
        for n, mode in enumerate(evaluation.modes)
    ]
    style = "text{font:13px system-ui,sans-serif;fill:#555}.kind{font-weight:600}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 60} {top}" role="img" '
        f'aria-label="nDCG@10 by kind of question"><style>{style}</style>{"".join(legend)}{"".join(bars)}</svg>\n'
    )


def _bar(top: int, value: float, mode: str) -> str:
    width = round(value * _WIDTH, 1)
    return (
        f'<rect x="{_LEFT}" y="{top}" width="{width}" height="{_ROW - 12}" rx="2" fill="{COLORS[mode]}"/>'
        f'<text x="{_LEFT + width + 6}" y="{top + 12}">{value:.2f}</text>'
    )
