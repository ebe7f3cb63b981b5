"""`localmcp search`, `show`, `sources`, `why`, `tag`, `remove` and `trash`: find, read, list and remove documents."""

from __future__ import annotations

import os
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.session import COMMAND_OF_TOOL, Session, command, group, pass_session
from localmcp.cli.tool_commands import tool_command, tool_options
from localmcp.cli.values import YES, collection_option, json_or_text, library_path, split_pair
from localmcp.errors import InvalidInput, NotFound
from localmcp.humanize import FILTERS, command_line, counted, explanation, parse_query_line
from localmcp.library.library_tools import LibraryTools
from localmcp.library.lists import KnowledgeBase
from localmcp.library.names import is_uuid, nearest_source
from localmcp.library.search import PassageSearch
from localmcp.schemas import Json
from localmcp.visible_text import visible

FRESHNESS = {"changed": "the file has changed since it was indexed", "missing": "the file is gone"}


@command()
@tool_options(
    PassageSearch.search,
    arguments={"query": "QUERY..."},
    spelled={"sourceType": "--type", "pathPrefix": "--path", "sourceId": "--source"},
    without=("metadata",),
)
@click.option("--meta", metavar="KEY=VALUE", multiple=True, help="Only documents with this metadata; may be repeated.")
@pass_session
def search(session: Session, meta: tuple[str, ...], **arguments: Any) -> int:
    """Search by meaning and by word.

    Words of a code or a name, a question, or what the text is about: any of them will do. Misspelled words are
    corrected, and the correction is shown. Filters may be among the words: tag:ops, collection:notes, path:~/docs.
    """
    arguments["query"], filters = parse_query_line(arguments["query"] or "")
    if not arguments["query"]:
        raise InvalidInput("QUERY is empty.", hint='Say what to look for, such as: localmcp search "boiler fault"')
    arguments |= {FILTERS[name]: values[-1] for name, values in filters.items()}
    for name in ("pathPrefix", "sourceId"):
        arguments[name] = library_path(arguments[name]) if arguments[name] else None
    arguments["metadata"] = parse_metadata(meta) or None
    if arguments["mode"] != "keyword" and session.settings.database.exists():
        session.embedder.start_loading()
    answer = session.call_in(session.existing(), "search", arguments, lean=not session.as_json)
    code, explains = session.answer_tool(answer), arguments["explain"] and not session.as_json
    for number, hit in enumerate(answer.value["results"], 1):
        if hit.get("freshness") in FRESHNESS:
            session.warn(f"{hit['sourceTitle']}: {FRESHNESS[hit['freshness']]}")
        if explains:
            render.echo(f"[{number}]\n{render.facts(explanation(answer.value, hit).items())}\n")
    if explains:
        render.echo(render.render(answer.value["explain"]))
    return code


def parse_metadata(pairs: tuple[str, ...]) -> Json:
    """`("year=2024", "tags=[1, 2]", "author=Ada")` as `{"year": 2024, "tags": [1, 2], "author": "Ada"}`."""
    wrong = "--meta: '{}' must be KEY=VALUE, such as author=Ada or year=2024."
    return {key: json_or_text(value) for key, value in (split_pair(pair, wrong.format(pair)) for pair in pairs)}


@command()
@click.argument("name", metavar="ID|PATH|TITLE")
@click.option("--window", type=click.IntRange(0, 50), default=2, show_default=True, help="Passages around a passage.")
@click.option("--offset", type=click.IntRange(0), default=0, help="First passage of a document.")
@pass_session
def show(session: Session, name: str, window: int, offset: int) -> int:
    """Print a document, or the passages around one.

    Takes the id, path or title of a document, or the id of a passage (see search --json). The text goes to stdout as it
    was indexed.
    """
    path = library_path(name)
    document = session.call("get_document", sourceId=path, offset=offset).value if path != name else {}
    if "source" not in document:
        document = session.call("get_document", sourceId=name, offset=offset).value
    if "source" not in document and is_uuid(name):
        around = session.call("get_context", chunkId=name, window=window).value
        session.answer(around, lambda value: render.write(value["concatenatedContent"]))
        return 0
    if "source" not in document and not session.as_json:
        with session.existing().database.read() as connection:
            near = None if os.path.exists(name) else nearest_source(connection, name)
        hint = "List the documents with: localmcp sources"
        if near or os.path.exists(name):
            advice = f"Did you mean '{near}'?" if near else f"See why with: localmcp why {command_line(name)}"
            hint = f"{advice}   ({hint})"
        raise NotFound(document["message"], hint=hint)

    def print_document(page: Json) -> None:
        """Print the whole text; what one call cannot carry is fetched by the next."""
        source = page["source"]
        places = (source.get("path"), source.get("origin"), source["collection"], source["freshness"])
        session.note(f"{render.bold(source['title'])}  {render.dim('  '.join(filter(None, places)))}")
        render.write(source["content"], nl=False)
        while page["truncated"]:
            page = session.call("get_document", sourceId=source["id"], offset=page["nextOffset"]).value
            render.write(page["source"]["content"], nl=False)
        if not page["source"]["content"].endswith("\n"):
            render.echo()

    session.answer(document, print_document)
    return 0 if "source" in document else 1


sources = tool_command(
    None, "sources", KnowledgeBase.list_sources, "List the documents, the last changed first.",
    spelled={"pathPrefix": "--path"},
    prepare=lambda _, values: {
        **values, "pathPrefix": values["pathPrefix"] and library_path(values["pathPrefix"]),
        "order": values["order"] or "changed",
    },
    columns=("title", "path", "collection", "chunkCount", "changedAt", "freshness", "origin"),
)  # fmt: skip


@command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@pass_session
def why(session: Session, paths: tuple[str, ...]) -> None:
    """Say why a file was indexed, skipped or failed, or that it is missing or was never seen.

    Of a folder, what was skipped or failed in it is listed. With --json, one path is answered by an object, several by
    {"files": [...]}.
    """
    library = session.existing().library
    explained = [dict(library.why(os.path.abspath(os.path.expanduser(path)))) for path in paths]
    answer: Json = explained[0] if len(explained) == 1 else {"files": explained}
    session.answer(answer, "\n\n".join(map(render.render, explained)))


# ---------------------------------------------------------------- tags

COMMAND_OF_TOOL["tag_document"] = "localmcp tag"


@command(context_settings={"allow_interspersed_args": False})
@click.argument("name", metavar="ID|PATH|TITLE")
@click.argument("changes", nargs=-1, required=True, metavar="+TAG|-TAG...", type=click.UNPROCESSED)
@pass_session
def tag(session: Session, name: str, changes: tuple[str, ...]) -> int:
    """Add tags to a document (+garage), or take them away (-old).

    They stay with the document when its file is edited, renamed or moved. Search by them with tag:garage.
    """
    if wrong := [change for change in changes if change[0] not in "+-"]:
        raise InvalidInput(f"'{wrong[0]}' is neither +TAG nor -TAG.")
    add, remove = ([change[1:] for change in changes if change[0] == sign] for sign in "+-")
    arguments = {"sourceId": library_path(name), "add": add or None, "remove": remove or None}
    answer = session.call_in(session.existing(), "tag_document", arguments)
    return session.answer_tool(
        answer, lambda session, value: session.note(f"{value['title']}: {', '.join(value['tags']) or 'no tags'}")
    )


tags = tool_command(
    None, "tags", LibraryTools.list_tags, "List the tags of the documents, the most used first.",
    columns=("tag", "documents"),
)  # fmt: skip


@command()
@click.argument("targets", nargs=-1, required=True, metavar="ID|PATH|TITLE...")
@collection_option("Only in this collection.")
@YES
@pass_session
def remove(session: Session, targets: tuple[str, ...], collection: str | None, yes: bool) -> None:
    """Put documents into the trash, by id, path or title.

    A folder goes with everything in it and is no longer looked at. The files themselves are not touched. The trash
    keeps documents for 30 days (the setting trash_days).
    """
    library = session.existing().library
    ids = {row.id for target in targets for row in library.removable(target, collection=collection)}
    places = ", ".join(visible(target) for target in targets)
    question = f"Put {counted(len(ids), 'document')} ({places}) into the trash?"
    session.confirm(question if ids else f"Nothing of {places} is in the file. Look at it no longer?", yes)
    report = library.remove(targets, collection=collection)
    session.answer({"removed": report.removed})
    session.note(f"{counted(report.removed, 'document')} put into the trash.")
    if report.removed:
        session.remark(f"Bring back with: localmcp trash restore {command_line(*targets)}   (localmcp trash list)")


@group()
def trash() -> None:
    """List, restore or empty the trash."""


tool_command(
    trash, "list", LibraryTools.list_trash, "List what is in the trash, the latest first.",
    columns=("sourceId", "title", "path", "trashedAt"),
)  # fmt: skip
tool_command(
    trash, "restore", LibraryTools.restore_source, arguments={"paths": "ID|PATH|TITLE..."}, without=("sourceId",),
    help="Bring documents back by id, path, folder or title, with their vectors.",
)  # fmt: skip


@trash.command("empty")
@click.option(
    "--older-than", "days", type=click.IntRange(0, 3650), default=0, metavar="DAYS", help="Only what is older."
)
@YES
@pass_session
def empty(session: Session, days: int, yes: bool) -> None:
    """Delete what is in the trash for good."""
    library = session.existing().library
    session.confirm("Delete what is in the trash for good?", yes)
    purged = library.empty_trash(days)
    session.answer({"purged": purged})
    session.note(f"{counted(purged, 'document')} deleted for good.")
