"""`localmcp show`, `sources`, `why`, `remove` and `trash`: read, list, explain and remove documents."""

from __future__ import annotations

import os
from typing import Any

import click

from localmcp.cli import terminal
from localmcp.cli.files import library_path
from localmcp.cli.options import YES, collection_option
from localmcp.cli.search import find_document, freshness_words, no_document
from localmcp.cli.session import Session, command, group, pass_session
from localmcp.cli.tool_options import tool_options
from localmcp.errors import NotFound
from localmcp.humanize import command_line, local_time
from localmcp.library.documents import KnowledgeBase
from localmcp.library.names import SourceRow
from localmcp.library.origins import is_uuid
from localmcp.schemas import Json
from localmcp.visible_text import visible

MOST_NAMED = 10


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
    document = find_document(session, name, offset=offset)
    if "source" not in document and is_uuid(name):
        around = session.call("get_context", chunkId=name, window=window).value
        session.answer(around, lambda value: _print_context(session, value))
        return 0
    if "source" not in document and not session.as_json:
        raise no_document(session, name, document["message"])
    session.answer(document, lambda value: _print_document(session, value))
    return 0 if "source" in document else 1


def _print_context(session: Session, result: Json) -> None:
    session.note(terminal.bold(result["sourceTitle"]) + "  " + terminal.dim(result["citation"]["label"]))
    for chunk in result["chunks"]:
        mark = "this passage" if chunk["isTarget"] else f"{chunk['relativePosition']:+d}"
        session.remark(f"── {chunk['chunkIndex'] + 1} of {result['chunkTotal']}: {mark} ──")
        terminal.write(chunk["content"].strip("\n"))


def _print_document(session: Session, document: Json) -> None:
    """The whole text; what one call cannot carry is fetched by the next."""
    source = document["source"]
    origin = f"[{source['origin']}]" if "origin" in source else None
    facts = [source.get("path"), origin, source["collection"], freshness_words(source["freshness"])]
    session.note(f"{terminal.bold(source['title'])}  {terminal.dim('  '.join(filter(None, facts)))}")
    terminal.write(source["content"], nl=False)
    while document["truncated"]:
        offset = document["nextOffset"]
        document = session.call("get_document", sourceId=source["id"], offset=offset).value
        terminal.write(document["source"]["content"], nl=False)
    if not document["source"]["content"].endswith("\n"):
        terminal.echo()


@command()
@tool_options(KnowledgeBase.list_sources, spelled={"pathPrefix": "--path"})
@pass_session
def sources(session: Session, **options: Any) -> int:
    """List the documents, the last changed first."""
    if options["pathPrefix"]:
        options["pathPrefix"] = library_path(options["pathPrefix"])
    session.asked = {**options, "offset": options["offset"] or 0, "order": options["order"] or "changed"}
    return session.answer_tool(session.call("list_sources", **session.asked), _print_sources)


def _print_sources(session: Session, result: Json) -> None:
    column, shown_date = ("added", "createdAt") if session.asked["order"] == "added" else ("changed", "changedAt")
    rows = [
        (
            source["title"],
            terminal.short_path(source["path"]) if "path" in source else source["id"],
            (f"[{source['origin']}] " if "origin" in source else "")
            + source["collection"]
            + (f"/{source['partition']}" if "partition" in source else ""),
            f"{source['chunkCount']:,}",
            local_time(source[shown_date])[:10],
            freshness_words(source["freshness"]),
        )
        for source in result["sources"]
    ]
    session.print_table(("title", "path or id", "collection", "passages", column, ""), rows, right=(3,))
    is_part = any(session.asked[name] for name in ("collection", "since", "until", "pathPrefix"))
    empty = "No document fits." if is_part else "No documents yet. Begin with: localmcp add FOLDER"
    session.note_page(session.asked["offset"] + result["count"], result["total"], empty)


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
    session.answer(explained[0] if len(explained) == 1 else {"files": explained}, _print_explanations)


def _print_explanations(answer: Json) -> None:
    for explained in answer.get("files", [answer]):
        _print_explanation(explained)


def _print_explanation(explained: Json) -> None:
    terminal.echo(f"{terminal.bold(terminal.short_path(explained['path']))}: {explained['explanation']}")
    for entry in explained["entries"]:
        facts = {
            "title": entry.get("title"),
            "id": entry.get("sourceId"),
            "size": terminal.size(entry["size"]) if entry["size"] is not None else None,
            "modified": local_time(entry["modified"]) if entry["modified"] else None,
            "on disk": entry["onDisk"],
            "looked at": local_time(entry["seenAt"]),
            "added as": entry["addedAs"],
        }
        for name, value in facts.items():
            if value:
                terminal.echo(f"  {terminal.dim(name.ljust(9))}  {value}")
    for left_out in explained.get("leftOut", ()):
        place = terminal.short_path(left_out["path"])
        terminal.echo(f"  {left_out['status']:7}  {place}: {terminal.dim(left_out['reason'])}")
    counts = explained.get("counts", {})
    if more := counts.get("skipped", 0) + counts.get("failed", 0) - len(explained.get("leftOut", ())):
        terminal.echo(f"  …        {more:,} more; ask for a folder in it")
    for nearest in explained["nearest"]:
        terminal.echo(f"  {terminal.dim('similar')}    {terminal.short_path(nearest)}")


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
    removals = [_removable(session, target, collection) for target in targets]
    removed = {row.id for rows, _ in removals for row in rows}
    documents = terminal.counted(len(removed), "document")
    places = ", ".join(visible(target) for target in targets)
    question = f"Put {documents} ({places}) into the trash?"
    if not removed:
        question = f"Nothing of {places} is in the file. Look at it no longer?"
    if any(filling for _, filling in removals):
        more = "what comes from there until it is removed goes too, and no more of it is added."
        question = f"Files are being added at this moment: {more} {question}"
    session.confirm(question, yes)
    report = library.remove(targets, collection=collection)
    removed_words = f"{terminal.counted(report.removed, 'document')} put into the trash."
    if not report.removed:
        removed_words = f"Nothing of {places} was in the file; it is no longer looked at."
    session.answer({"removed": report.removed}, lambda _: session.note(removed_words))
    if report.removed:
        session.remark(f"Bring back with: localmcp trash restore {command_line(*targets)}   (localmcp trash list)")


def _removable(session: Session, target: str, collection: str | None) -> tuple[list[SourceRow], bool]:
    try:
        return session.existing().library.removable(target, collection=collection)
    except NotFound as error:
        origin = find_document(session, target).get("source", {}).get("origin")
        if origin is None:
            raise
        message = f"'{target}' is in the mounted file '{origin}', which is only read."
        raise NotFound(message, hint=f"Search without all of it: localmcp unmount {origin}") from error


@group()
def trash() -> None:
    """List, restore or empty the trash."""


@trash.command("list")
@pass_session
def list_trash(session: Session) -> None:
    """List what is in the trash, the latest first."""
    trashed = session.existing().library.trashed()
    items = [{**_trashed_json(row), "trashedAt": since} for row, since in trashed]
    rows = [
        (row.uuid, local_time(day)[:10], row.title, terminal.short_path(row.uri) if row.uri else "")
        for row, day in trashed
    ]
    head = ("id", "since", "title", "path")
    session.answer(
        {"count": len(items), "sources": items}, lambda _: session.print_table(head, rows, empty="The trash is empty.")
    )


def _trashed_json(row: SourceRow) -> Json:
    return {"id": row.uuid, "title": row.title, "path": row.uri}


@trash.command("restore")
@click.argument("ids", nargs=-1, required=True, metavar="ID|PATH|TITLE...")
@pass_session
def restore(session: Session, ids: tuple[str, ...]) -> None:
    """Bring documents back by id, path, folder or title, with their vectors."""
    restored = session.existing().library.restore(*ids)
    words = f"{len(restored):,} documents are back."
    if len(restored) <= MOST_NAMED:
        words = "\n".join(f"{row.title} is back." for row in restored)
    session.answer({"restored": list(map(_trashed_json, restored))}, lambda _: session.note(words))


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
    words = f"{terminal.counted(purged, 'document')} deleted for good."
    session.answer({"purged": purged}, lambda _: session.note(words))
