"""`localmcp quickstarts`: import, find, read and export short guides."""

from __future__ import annotations

import os

import click

from localmcp.cli import render
from localmcp.cli.session import Session, group, pass_session
from localmcp.cli.tool_commands import refuse_blank, tool_command
from localmcp.config import sample_directory
from localmcp.errors import InvalidInput, NotFound
from localmcp.quickstarts.catalog import Quickstarts


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
    session.answer(total, ", ".join(counts) or "Nothing imported.")
    for warning in total["warnings"]:
        session.remark(f"{warning['where']}: {warning['problem']}")
    return int(bool(total["skipped"]) and not counts)


tool_command(
    quickstarts, "search", Quickstarts.search, arguments={"displayName": "[WORDS]..."},
    prepare=refuse_blank(
        "Say what to search for: words of the title, --name or --description.", "displayName", "name", "description"
    ),
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


tool_command(
    quickstarts, "export", Quickstarts.export, arguments={"names": "[NAME]..."},
    help="Print quick starts, all or the named ones, so that `import` reads them back without a difference.",
    show=lambda _, value: render.write(value["text"], nl=False),
)  # fmt: skip
