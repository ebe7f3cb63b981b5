"""`localmcp merge`: copy the content of another file into yours."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from localmcp.cli import terminal
from localmcp.cli.files import existing_file
from localmcp.cli.session import Session, command, pass_session

Json = dict[str, Any]
SHOWN_CONFLICTS = 20


@command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-c", "--collection", "collections", multiple=True, help="Only this collection; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
@click.option("--no-wait", is_flag=True, help="Return when everything is found by its words.")
@pass_session
def merge(session: Session, file: Path, collections: tuple[str, ...], dry_run: bool, no_wait: bool) -> None:
    """Take the documents, quick starts and rules of another file into yours.

    A document whose content is there already is left out. Where a place or title is the same and the content is not,
    both are kept and listed; of quick starts of one name, yours stays. Vectors are taken over if the same model made
    them, and made again if not. Stopped in the middle, the same command goes on.
    """
    from localmcp.packs.merge import MergeReport
    from localmcp.tools import Scope

    existing_file(file)

    def say(report: MergeReport) -> None:
        if session.verbosity:
            session.note(f"{report.added:,} documents, {report.chunks:,} passages …")

    workspace = session.existing() if dry_run else session.workspace
    merging = workspace.merging(lambda name, arguments: workspace.registry.call(name, arguments, Scope(caller="cli")))
    report = merging.run(file, collections or None, dry_run=dry_run, wait=not no_wait, say=say)
    result = {"path": str(file.expanduser().absolute()), "dryRun": dry_run, **_camel(asdict(report))}
    session.answer(result, lambda value: terminal.echo("\n".join(_lines(value))))


def _camel(report: Json) -> Json:
    names = {name: "".join([part.title() if i else part for i, part in enumerate(name.split("_"))]) for name in report}
    return {names[name]: value for name, value in report.items()}


def _lines(result: Json) -> list[str]:
    would = "would be " if result["dryRun"] else ""
    passages = terminal.counted(result["chunks"], "passage")
    lines = [
        f"{terminal.counted(result['added'], 'document')} {would}added ({passages}), {result['known']:,} known",
        f"vectors: {result['vectorsReused']:,} taken over, {result['vectorsMade']:,} made, "
        f"{result['vectorsMissing']:,} {'to make' if result['dryRun'] else 'still missing'}",
    ]
    if result["quickstartsAdded"] or result["quickstartsKnown"]:
        lines.append(f"quick starts: {result['quickstartsAdded']:,} {would}added, {result['quickstartsKnown']:,} known")
    if result["rulesAdded"] or result["rulesKnown"]:
        lines.append(f"rules: {result['rulesAdded']:,} {would}added, {result['rulesKnown']:,} known")
    lines += [
        f"{terminal.warned('conflict')}  {conflict['kind']} {conflict['name']}: {conflict['outcome']}"
        for conflict in result["conflicts"][:SHOWN_CONFLICTS]
    ]
    if len(result["conflicts"]) > SHOWN_CONFLICTS:
        lines.append(terminal.dim(f"{len(result['conflicts']) - SHOWN_CONFLICTS} more conflicts: --json"))
    lines += [f"{terminal.warned('left out')}  {skipped}" for skipped in result["skipped"]]
    return [*lines, *(terminal.dim(notice) for notice in result["notices"])]
