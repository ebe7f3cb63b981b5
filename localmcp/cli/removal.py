"""`localmcp remove` and `trash`: documents go out, and come back."""

from __future__ import annotations

import click

from localmcp.cli import terminal
from localmcp.cli.session import Session, command, group, pass_session


@command()
@click.argument("targets", nargs=-1, required=True, metavar="ID|PATH|TITLE...")
@click.option("-c", "--collection", help="Only in this collection.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_session
def remove(session: Session, targets: tuple[str, ...], collection: str | None, yes: bool) -> int:
    """Put documents into the trash, by id, path or title.

    A folder goes with everything in it and is no longer looked at. The files themselves are not touched. The trash
    keeps documents for 30 days (the setting trash_days).
    """
    library = session.existing().library
    removed = {row.id for target in targets for row in library.removable(target, collection=collection)}
    documents = terminal.counted(len(removed), "document")
    if not session.confirmed(f"Put {documents} ({', '.join(targets)}) into the trash?", yes):
        return 1
    report = library.remove(targets, collection=collection)
    removed_words = f"{terminal.counted(report.removed, 'document')} put into the trash."
    session.answer({"removed": report.removed}, lambda _: session.note(removed_words))
    session.note(terminal.dim("Bring one back with: localmcp trash restore ID   (localmcp trash list)"))
    return 0


@group()
def trash() -> None:
    """List, restore or empty the trash."""


@trash.command("list")
@pass_session
def list_trash(session: Session) -> None:
    """List what is in the trash, the latest first."""
    trashed = session.existing().library.trashed()
    if session.as_json:
        items = [{"id": row.uuid, "title": row.title, "path": row.uri, "trashedAt": since} for row, since in trashed]
        session.print_json({"count": len(items), "sources": items})
        return
    rows = [(row.uuid, day[:10], row.title, terminal.short_path(row.uri) if row.uri else "") for row, day in trashed]
    session.print_table(("id", "since", "title", "path"), rows, empty="The trash is empty.")


@trash.command("restore")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@pass_session
def restore(session: Session, ids: tuple[str, ...]) -> None:
    """Bring documents back, with their vectors."""
    library = session.existing().library
    restored = [library.restore(id_) for id_ in ids]
    for row in restored:
        session.note(f"{row.title} is back.")
    if session.as_json:
        session.print_json({"restored": [{"id": row.uuid, "title": row.title, "path": row.uri} for row in restored]})


@trash.command("empty")
@click.option("--older-than", "days", type=click.FloatRange(0), default=0, metavar="DAYS", help="Only what is older.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_session
def empty(session: Session, days: float, yes: bool) -> int:
    """Delete what is in the trash for good."""
    library = session.existing().library
    if not session.confirmed("Delete what is in the trash for good?", yes):
        return 1
    purged = library.empty_trash(days)
    words = f"{terminal.counted(purged, 'document')} deleted for good."
    session.answer({"purged": purged}, lambda _: session.note(words))
    return 0
