"""`localmcp eval`: how well the search answers judged questions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from localmcp.cli import render
from localmcp.cli.progress import shown_counts
from localmcp.cli.session import Session, command, pass_session
from localmcp.cli.values import COLLECTIONS
from localmcp.evals.evaluation import Difference, Evaluation, compare, evaluate, read_evaluation, read_questions


@command("eval")
@click.argument("questions", metavar="FILE.jsonl", type=click.Path(path_type=Path, dir_okay=False))
@COLLECTIONS
@click.option("--against", metavar="FILE", type=click.Path(path_type=Path), help="What an earlier --json printed.")
@click.option("--tolerance", type=click.FloatRange(0, 1), default=0.01, show_default=True, help="Loss that passes.")
@pass_session
def evaluate_search(
    session: Session, questions: Path, collections: tuple[str, ...], against: Path | None, tolerance: float
) -> int:
    """Measure how well the search answers the questions of a file.

    It has one JSON object a line: {"query": "…", "relevant": ["a title or path"]}; an empty list where nothing answers.
    The exit code is 1 when hybrid search lost more than the tolerance against an earlier run, and not by chance.

    \b
      localmcp eval questions.jsonl --json > before.json
      localmcp eval questions.jsonl --against before.json
    """
    workspace, settings = session.existing(), session.settings
    asked = read_questions(questions, workspace.database, collections or None)
    before = read_evaluation(against) if against else None
    basis = {"model": settings.model, "semantic_weight": settings.semantic_weight, "adaptive": settings.adaptive_weight}
    with shown_counts(session, "Asking") as show:
        evaluation = evaluate(workspace.index, workspace.embedder, asked, collections or None, basis, show)
    differences = compare(before, evaluation) if before else []
    lost = [difference for difference in differences if difference.mode == "hybrid" and difference.is_loss(tolerance)]
    result = {**asdict(evaluation), "compared": list(map(asdict, differences)), "regressed": bool(lost)}
    session.answer(result, lambda _: _print(session, evaluation, differences))
    session.warn(*(f"Hybrid search lost {-difference.change:.3f} nDCG@10." for difference in lost))
    return int(bool(lost))


# The program looks a command up by its name in the module.
eval = evaluate_search  # noqa: A001


def _print(session: Session, evaluation: Evaluation, differences: list[Difference]) -> None:
    session.warn(*evaluation.notices)
    rows: list[tuple[str, ...]] = []
    for mode, result in evaluation.modes.items():
        anyway = "-" if result.answered_anyway is None else f"{result.answered_anyway:.0%}"
        for kind, measures in {"all": result.overall, **result.kinds}.items():
            means = (f"{measures.ndcg:.3f}", f"{measures.recall:.3f}", f"{measures.mrr:.3f}")
            speed = (anyway, f"{result.p50:.1f}", f"{result.p95:.1f}") if kind == "all" else ("", "", "")
            rows.append((mode, kind, *means, *speed))
    head = ("mode", "kind", "nDCG@10", "recall@10", "MRR", "unanswerable answered", "p50 ms", "p95 ms")
    session.print_table(head, rows, right=range(2, 8))
    for difference in differences:
        low_high = "  (95 %: {:+.3f} to {:+.3f})".format(*difference.interval) if difference.interval else ""
        means = f"{difference.before:.3f} -> {difference.after:.3f}"
        render.echo(f"{difference.mode}: {means}, {difference.change:+.3f}{low_high}")
