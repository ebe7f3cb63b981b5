"""`localmcp quickstarts`: import, find, read and export short guides."""

from __future__ import annotations

import os
from pathlib import Path

import click

from localmcp.cli import render
from localmcp.cli.session import Session, group, pass_session
from localmcp.cli.tool_commands import tool_command
from localmcp.cli.values import write_new
from localmcp.config import sample_directory
from localmcp.errors import InvalidInput, NotFound
from localmcp.quickstarts.catalog import Quickstarts
from localmcp.schemas import Json

FORMATS = {".yml": "yaml", ".yaml": "yaml", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@group()
def quickstarts() -> None:
    """Import, search and read short guides.

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
    if missing := next((path for path in paths if not os.path.exists(path)), None):
        raise NotFound(f"There is no file or folder {missing}.")
    calls = ({"path": os.path.abspath(path)} for path in paths)
    fields = ("added", "updated", "unchanged", "skipped", "warnings")
    total = session.import_each("importQuickstarts", calls, fields)
    counts = [f"{total[key]:,} {key}" for key in ("added", "updated", "unchanged") if total[key]]
    session.answer(total, lambda _: render.echo(", ".join(counts) or "Nothing imported."))
    for warning in total["warnings"]:
        session.remark(f"{warning['where']}: {warning['problem']}")
    return int(bool(total["skipped"]) and not counts)


def _check_search(_session: Session, arguments: Json) -> Json:
    if not any(arguments[name] for name in ("displayName", "name", "description")):
        raise InvalidInput("Say what to search for: words of the title, --name or --description.")
    return arguments


tool_command(
    quickstarts, "search", Quickstarts.search, prepare=_check_search, arguments={"displayName": "[WORDS]..."},
    help="Search by words of the title; typing errors and another word order are forgiven.",
    columns=("score", "name", "displayName", "description", "matchType"),
)  # fmt: skip
tool_command(
    quickstarts, "list", Quickstarts.list_quickstarts, "List the quick starts by title.",
    columns=("name", "displayName", "tasks", "tags"),
)  # fmt: skip
tool_command(
    quickstarts, "show", Quickstarts.show, "Print a quick start, by name or title, as Markdown.",
    arguments={"name": "NAME..."}, show=lambda _, value: render.write(value["markdown"], nl=False),
)  # fmt: skip
tool_command(
    quickstarts, "remove", Quickstarts.remove, "Remove quick starts; importing one again brings it back.",
    arguments={"names": "NAME..."},
)  # fmt: skip


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
    if output and not form and output.suffix.lower() not in FORMATS:
        hint = f"Use one of {', '.join(FORMATS)}, or name the form with --format."
        raise InvalidInput(f"The ending of {output} says no form.", hint=hint)
    chosen = form or (FORMATS[output.suffix.lower()] if output else "yaml")
    exported = session.call("exportQuickstarts", names=list(names) or None, format=chosen, tag=tag).value
    if tag and not exported["count"]:
        hint = "What there is, with its tags: localmcp quickstarts list"
        raise NotFound(f"No quick start has the tag '{tag}'.", hint=hint)
    if output is None:
        session.answer(exported, lambda value: render.write(value["text"], nl=False))
        return
    write_new({str(output): exported["text"]}, force=force)
    session.answer({"count": exported["count"], "format": chosen, "file": str(output)}, session.show)
