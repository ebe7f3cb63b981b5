"""`localmcp eval`: how well the search answers, on judged questions or on your own documents."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.progress import shown_counts
from localmcp.cli.session import Session, command, pass_session
from localmcp.cli.values import COLLECTIONS
from localmcp.config import Settings, parse_setting, setting_names, state_directory
from localmcp.errors import InvalidInput, NotFound
from localmcp.evals.questions import Question, make_questions, read_questions
from localmcp.evals.report import draw_plot, kinds_of, mode_cells, write_report
from localmcp.evals.runner import Difference, Evaluation, compare, evaluate, evaluation_from, regressions
from localmcp.humanize import choices


@command("eval")
@click.argument("queries", required=False, type=click.Path(path_type=Path, dir_okay=False))
@COLLECTIONS
@click.option("--per-kind", type=click.IntRange(1, 2000), default=50, show_default=True, help="Made questions a kind.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed makes other questions.")
@click.option("--save", metavar="NAME", help="Keep the result as a baseline.")
@click.option("--against", metavar="NAME", help="Compare with a kept baseline.")
@click.option("--with", "changes", metavar="KEY=VALUE", multiple=True, help="Compare with these settings changed.")
@click.option("--tolerance", type=click.FloatRange(0, 1), default=0.01, show_default=True, help="Loss that passes.")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write a page (Markdown, SVG beside).")
@pass_session
def evaluate_search(session: Session, queries: Path | None, **options: Any) -> int:
    """Measure how well the search answers.

    QUERIES holds judged questions, one JSON object a line: {"query": "…", "relevant": ["a title or path"]}. Without it
    questions are made from your own passages: words in a row, with typos, shuffled, only the rarest, headings, and
    everyday requests that nothing answers.

    The exit code is 1 when hybrid search lost more than the tolerance against the baseline or the changed settings
    (then without them being worse by chance).
    """
    workspace = session.existing()
    collections = options["collections"] or None
    if queries is not None:
        questions = read_questions(queries, workspace.database, collections)
    else:
        questions = make_questions(workspace.database, collections, options["per_kind"], options["seed"])
    baseline = _load(options["against"]) if options["against"] else None
    first = _run(session, session.settings, questions, collections)
    evaluation, before = first, baseline
    if options["changes"]:
        changed = _changed(session.settings, options["changes"])
        _warn_of_no_effect(session, changed)
        evaluation, before = _run(session, changed, questions, collections), first
    differences = compare(before, evaluation) if before else []
    lost = regressions([difference for difference in differences if difference.mode == "hybrid"], options["tolerance"])
    if options["save"]:
        _save(options["save"], evaluation)
    if options["report"]:
        _write_page(options["report"], evaluation, differences)
    compared = [{**asdict(difference), "change": difference.change} for difference in differences]
    result = {**evaluation.as_json(), "compared": compared, "regressed": bool(lost)}
    session.answer(result, lambda _: _print(session, evaluation, differences))
    if lost:
        session.warn(f"Hybrid search lost {-lost[0].change:.3f} nDCG@10.")
    return int(bool(lost))


# The program looks a command up by its name in the module.
eval = evaluate_search  # noqa: A001


def _run(
    session: Session, settings: Settings, questions: list[Question], collections: tuple[str, ...] | None
) -> Evaluation:
    from localmcp.workspace import Workspace

    basis = {"model": settings.model, "semantic_weight": settings.semantic_weight, "adaptive": settings.adaptive_weight}
    with closing(Workspace(settings)) as workspace, shown_counts(session, "Asking") as show:
        index, embedder = workspace.index, workspace.embedder
        return evaluate(index, embedder, questions, collections=collections, settings=basis, progress=show)


def _changed(settings: Settings, changes: tuple[str, ...]) -> Settings:
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or name not in setting_names():
            raise InvalidInput(f"--with {change}: must be KEY=VALUE of a setting.", hint="See: localmcp config show")
        if name in ("database", "model"):
            raise InvalidInput(
                f"--with {change}: another {name} holds other vectors.",
                hint="Measure it by itself: --save a baseline here, then eval with --against it there.",
            )
        settings = replace(settings, **{name: parse_setting(name, value, "--with")})
    return settings


def _warn_of_no_effect(session: Session, changed: Settings) -> None:
    if changed.adaptive_weight and changed.semantic_weight != session.settings.semantic_weight:
        limit = "semantic_weight counts only for text on which the model was not measured yet."
        session.warn(f"{limit} For all text: --with adaptive_weight=false")


def _place(name: str) -> Path:
    if not name.replace("-", "").replace("_", "").isalnum():
        raise InvalidInput(f"A baseline's name has letters, digits, - and _ only, got '{name}'.")
    return state_directory() / "evals" / f"{name}.json"


def _save(name: str, evaluation: Evaluation) -> None:
    place = _place(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(evaluation.as_json()), encoding="utf-8")


def _load(name: str) -> Evaluation:
    place = _place(name)
    if not place.exists():
        saved = choices(sorted(path.stem for path in place.parent.glob("*.json")))
        raise NotFound(f"No baseline '{name}'.", hint=f"{saved} Keep one with: localmcp eval --save {name}")
    try:
        return evaluation_from(json.loads(place.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{place} is not a baseline of this version.", hint="Make it again with --save.") from error


def _write_page(path: Path, evaluation: Evaluation, differences: list[Difference]) -> None:
    picture = path.with_suffix(".svg")
    try:
        picture.write_text(draw_plot(evaluation), encoding="utf-8")
        path.write_text(write_report(evaluation, differences, picture.name), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from error


def _print(session: Session, evaluation: Evaluation, differences: list[Difference]) -> None:
    session.warn(*evaluation.notices)
    rows = [(mode, *mode_cells(result)) for mode, result in evaluation.modes.items()]
    head = ("mode", "nDCG@10", "recall@10", "MRR", "unanswerable answered", "p50 ms", "p95 ms")
    session.print_table(head, rows, right=range(1, 7))
    render.echo()
    for kind in kinds_of(evaluation):
        bars = "  ".join(f"{mode} {result.kinds[kind].ndcg:.2f}" for mode, result in evaluation.modes.items())
        render.echo(f"{kind:<13}{bars}")
    for difference in differences:
        low_high = "  (95 %: {:+.3f} to {:+.3f})".format(*difference.interval) if difference.interval else ""
        means = f"{difference.before:.3f} -> {difference.after:.3f}"
        render.echo(f"{difference.mode}: {means}, {difference.change:+.3f}{low_high}")
