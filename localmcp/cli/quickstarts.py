"""`localmcp quickstarts`: import, find, read, work through and export short guides."""

from __future__ import annotations

import os
from pathlib import Path

import click

from localmcp.cli import terminal
from localmcp.cli.session import Session, group, pass_session
from localmcp.cli.tool_options import tool_command
from localmcp.config import sample_directory
from localmcp.errors import InvalidInput, NotFound
from localmcp.quickstarts.catalog import Quickstarts
from localmcp.schemas import Json

FORMATS = {".yml": "yaml", ".yaml": "yaml", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}
MOST_WARNINGS = 10


@group()
def quickstarts() -> None:
    """Import, search, read and work through short guides.

    \b
      localmcp quickstarts import --samples
      localmcp quickstarts search "geting startd"
      localmcp quickstarts show first-search
    """


@quickstarts.command("import")
@click.argument("paths", nargs=-1, metavar="FILE|FOLDER...")
@click.option("--samples", is_flag=True, help="The guides to localmcp that come with it.")
@pass_session
def import_files(session: Session, paths: tuple[str, ...], samples: bool) -> int:
    """Import YAML, JSON and JSON Lines: ConsoleQuickStart documents, or rows {name, content}.

    Quick starts that are known by name are updated. A file that cannot be read is reported and left out.
    """
    if samples:
        paths = (*paths, str(sample_directory() / "quickstarts"))
    if not paths:
        raise InvalidInput("Name a file or folder, or say --samples.")
    total: Json = {"added": 0, "updated": 0, "unchanged": 0, "skipped": [], "warnings": []}
    if missing := next((path for path in paths if not os.path.exists(path)), None):
        raise NotFound(f"There is no file or folder {missing}.")
    for path in paths:
        # The workspace is made if it is not there: importing is a beginning.
        report = session.call_in(session.workspace, "importQuickstarts", {"path": os.path.abspath(path)}).value
        total = {key: total[key] + report[key] for key in total}
    session.answer(total, lambda report: _print_report(session, report))
    nothing_read = total["added"] + total["updated"] + total["unchanged"] == 0
    return 1 if total["skipped"] and nothing_read else 0


def _print_report(session: Session, report: Json) -> None:
    parts = [f"{report[key]:,} {key}" for key in ("added", "updated", "unchanged") if report[key]]
    terminal.echo(", ".join(parts) or "Nothing imported.")
    for skipped in report["skipped"]:
        terminal.echo(f"{terminal.warned('left out')} {skipped['where']}: {skipped['problem']}", err=True)
    warnings = report["warnings"]
    for warning in warnings[:MOST_WARNINGS]:
        session.remark(f"{warning['where']}: {warning['problem']}")
    if len(warnings) > MOST_WARNINGS:
        session.remark(f"… and {len(warnings) - MOST_WARNINGS} more (--json lists all)")


def _check_search(_session: Session, arguments: Json) -> Json:
    if not any(arguments[name] for name in ("displayName", "name", "description")):
        raise InvalidInput("Say what to search for: words of the title, --name or --description.")
    return arguments


@tool_command(quickstarts, "search", Quickstarts.search, prepare=_check_search, arguments={"displayName": "[WORDS]..."})
def print_quickstarts(session: Session, value: Json) -> None:
    """Search by words of the title; typing errors and another word order are forgiven."""
    session.warn(*value.get("notices", ()))
    if not value["results"]:
        session.note(value["message"])
        return
    for result in value["results"]:
        kind = result["matchType"].removesuffix("_match")
        title = terminal.bold(result["displayName"] or result["name"])
        terminal.echo(f"{result['score']:>4}  {title}  {terminal.dim(kind)}")
        terminal.echo(f"      {terminal.dim(result['name'])}  {result['description']}")


@tool_command(quickstarts, "list", Quickstarts.list_quickstarts)
def list_catalog(session: Session, value: Json) -> None:
    """List the quick starts by title."""
    rows = [
        (
            "★" if quickstart["favourite"] else "",
            quickstart["name"],
            quickstart["displayName"],
            _status(quickstart),
            ", ".join(quickstart["tags"]),
        )
        for quickstart in value["quickstarts"]
    ]
    session.print_table(("", "name", "title", "status", "tags"), rows)
    if value["total"] > value["count"]:
        session.remark(f"{value['count']} of {value['total']:,}; see --limit and --offset")
    if not value["total"]:
        empty = "No quick starts. Begin with: localmcp quickstarts import --samples"
        session.note("No quick start is like that." if value["tags"] else empty)


def _status(quickstart: Json) -> str:
    if quickstart["tasks"] or quickstart["status"] != "Not started":
        return quickstart["status"]
    return "link" if "link" in quickstart else ""


@tool_command(quickstarts, "show", Quickstarts.show, arguments={"name": "NAME..."})
def show(_session: Session, value: Json) -> None:
    """Print a quick start, by name or title, as Markdown."""
    terminal.write(value["markdown"], nl=False)


@quickstarts.command("favourite")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--off", is_flag=True, help="Take the mark away.")
@pass_session
def favourite(session: Session, names: tuple[str, ...], off: bool) -> None:
    """Mark quick starts as favorites."""
    session.existing().quickstarts.require(names)
    marked: list[Json] = [session.call("favouriteQuickstart", name=name, favourite=not off).value for name in names]
    if session.as_json:
        session.print_json(marked)
    else:
        session.note(f"{terminal.counted(len(marked), 'favorite')} {'removed' if off else 'marked'}.")


def _progress(_session: Session, arguments: Json) -> Json:
    failed: bool = arguments.pop("failed")
    if failed and arguments["task"] is None:
        raise InvalidInput("--failed needs --task.")
    return {**arguments, "passed": None if arguments["task"] is None else not failed}


@tool_command(
    quickstarts, "progress", Quickstarts.set_progress, prepare=_progress, arguments={"name": "NAME"},
    options=[click.option("--failed", is_flag=True, help="Its review failed.")], without=("passed",),
)  # fmt: skip
def progress(_session: Session, value: Json) -> None:
    """Record how far you are, or show it."""
    done = f"{len(value['done'])} of {terminal.counted(value['tasks'], 'task')} done" if value["tasks"] else "no tasks"
    failed = f", failed: {', '.join(map(str, value['failed']))}" if value["failed"] else ""
    terminal.echo(f"{value['name']}: {value['status']} ({done}{failed})")


@tool_command(quickstarts, "remove", Quickstarts.remove, arguments={"names": "NAME..."})
def remove(session: Session, value: Json) -> None:
    """Remove quick starts; importing one again brings it back, with its mark and progress."""
    session.note(f"Removed {', '.join(value['removed'])}.")


def _form_of(output: Path) -> str:
    """Return the form that the ending of a file says.

    Raises:
        InvalidInput: it says none.
    """
    form = FORMATS.get(output.suffix.lower())
    if form is None:
        hint = f"Use one of {', '.join(FORMATS)}, or name the form with --format."
        raise InvalidInput(f"The ending of {output} says no form.", hint=hint)
    return form


@quickstarts.command("export")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write this file: .yaml, .json or .jsonl.")
@click.option("--format", "form", type=click.Choice(["yaml", "json", "jsonl"]), help="Form; yaml if nothing says.")
@click.option("--tag", help="Only with this tag: VALUE or KIND:VALUE.")
@click.option("--force", is_flag=True, help="A file that is there may be replaced.")
@pass_session
def export(
    session: Session, names: tuple[str, ...], output: Path | None, form: str | None, tag: str | None, force: bool
) -> None:
    """Print quick starts, all or the named ones, so that `import` reads them back without a difference."""
    if output and output.is_file() and not force:
        raise InvalidInput(f"{output} is there already.", hint="Name another file, or replace it with --force.")
    chosen = form or (_form_of(output) if output else "yaml")
    exported = session.call("exportQuickstarts", names=list(names) or None, format=chosen, tag=tag).value
    if tag and not exported["count"]:
        hint = "What there is, with its tags: localmcp quickstarts list"
        raise NotFound(f"No quick start has the tag '{tag}'.", hint=hint)
    if output is None:
        session.answer(exported, lambda value: terminal.write(value["text"], nl=False))
        return
    try:
        output.write_text(exported["text"], encoding="utf-8", newline="\n")
    except OSError as error:
        raise NotFound(f"{output} cannot be written: {error.strerror}.") from error
    words = f"{terminal.counted(exported['count'], 'quick start')} written to {output}."
    written = {"count": exported["count"], "format": chosen, "file": str(output)}
    session.answer(written, lambda _: session.note(words))
