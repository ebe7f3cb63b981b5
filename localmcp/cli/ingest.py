"""`localmcp add` and `refresh`: documents go in, and what was indexed or skipped is told."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.documents import parse_metadata
from localmcp.cli.session import INTERRUPTED, Session, command, ended_by_signals, pass_session, shown_progress
from localmcp.cli.values import collection_option, no_wait
from localmcp.errors import InvalidInput, NeedsConfirmation
from localmcp.files import unicode_path
from localmcp.humanize import counted, duration, short_path, size
from localmcp.index.collections import choose_collections, visible_collections
from localmcp.index.vector_queue import REFRESH, waiting
from localmcp.library.jobs import Report
from localmcp.library.ledger import SOURCE_TYPES, Entry, entries_below
from localmcp.readers.document import HEAD, decode_text, looks_like_text
from localmcp.schemas import camel_case


@command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...|URL...|-")
@collection_option("Where they go; made if it is not there.")
@click.option("-p", "--partition", help="A part of the collection; made if it is not there.")
@click.option("--type", "source_type", type=click.Choice(SOURCE_TYPES), help="What kind of source they are.")
@click.option("--meta", metavar="KEY=VALUE", multiple=True, help="Metadata of every document; may be repeated.")
@click.option("--title", help="Title of a single file, or of the text on stdin.")
@click.option(
    "--match", "patterns", metavar="PATTERN", multiple=True, help="Only such files: '*.md'; '!old/' is left out."
)
@click.option("--hidden", is_flag=True, help="Hidden files and folders too.")
@click.option("--replace", is_flag=True, help="The text on stdin may replace another of the same title.")
@no_wait()
@click.option("--allow-private", is_flag=True, help="Web pages of this machine and its network too.")
@pass_session
def add(session: Session, paths: tuple[str, ...], **options: Any) -> int | None:
    """Add files, folders, web pages, or text from stdin (-), and index them.

    Folders are remembered, and `localmcp refresh` looks at them again. Ignore files (.gitignore, .localmcpignore) are
    honored. What is indexed already and has not changed is not read again, so the same command goes on where an
    earlier one was stopped.

    A web page (http:// or https://) is fetched once, and saved as a document with its address and the day.

    Documents are found by their words first; then their meaning is read, which takes longer. It may be stopped at any
    time, and goes on when localmcp runs.
    """
    common = {name: options[name] for name in ("collection", "partition", "source_type", "title")}
    common["metadata"] = parse_metadata(options["meta"])
    library = session.workspace.library
    if paths == ("-",):
        if not common["title"]:
            raise click.UsageError("Text on stdin needs a title: --title TITLE")
        data = sys.stdin.buffer.read()
        if data.startswith(b"%PDF-") or not looks_like_text(data[:HEAD]):
            raise InvalidInput("stdin does not hold text.", hint="Save it as a file, and add that: localmcp add FILE")
        indexed = library.add_text(decode_text(data)[0], replace=options["replace"], **common)
        counts = {"added": indexed.added, "kept": indexed.kept, "removed": indexed.removed}
        session.answer({"sourceId": indexed.uuid, **counts})
        session.note(f"{common['title']}: {counted(indexed.added, 'new passage')}  {render.dim(indexed.uuid)}")
        return None
    # The HTTP client of the standard library, which most commands that add nothing need not import.
    from localmcp.library.web_pages import add_page, is_url

    if pages := [path for path in paths if is_url(path)]:
        if len(pages) < len(paths):
            raise click.UsageError("Add web pages and files with two commands.")
        added, common["title"] = list[dict[str, Any]](), common["title"] or ""
        for url in pages:
            session.note(f"Fetching {url} from the network…")
            indexed = add_page(library, url, allow_private=options["allow_private"], **common)
            added.append({"url": url, "sourceId": indexed.uuid, "added": indexed.added, "kept": indexed.kept})
        session.answer({"status": "done", "pages": added}, session.show)
        return None
    if addresses := [path for path in paths if re.match(r"[a-z][a-z0-9+.-]+://", path, re.I)]:
        raise click.UsageError(f"{addresses[0]} is not a file, and only http:// and https:// are fetched.")

    chosen = {"include_hidden": options["hidden"], "patterns": options["patterns"]}
    work = partial(library.add_paths, paths, wait=False, **chosen, **common)
    target = options["collection"] or session.settings.collection
    return run_ingest(session, target, work, paths, wait=not options["no_wait"])


@command()
@collection_option()
@click.option("--yes", "--confirm-removals", "confirmed", is_flag=True, help="Many files are gone on purpose.")
@no_wait()
@pass_session
def refresh(session: Session, collection: str | None, confirmed: bool, no_wait: bool) -> int:
    """Look at everything that was added again, and index what changed.

    New, changed, moved and deleted files are noticed. If many are gone at once, as when a disk is not mounted, it asks
    first.
    """
    library = session.existing().library
    folders, wait = [root.path for root in library.roots()], not no_wait
    work = partial(library.refresh, collection=collection, wait=False)
    try:
        return run_ingest(session, collection, partial(work, confirm_removals=confirmed), folders, wait=wait)
    except NeedsConfirmation as error:
        if not session.can_ask:
            raise
        session.confirm(f"{error.message} Put those documents into the trash?", yes=False)
        return run_ingest(session, collection, partial(work, confirm_removals=True), folders, wait=wait)


def run_ingest(
    session: Session, collection: str | None, work: Callable[..., Report], paths: Iterable[str], *, wait: bool
) -> int:
    """Index the words, then make the vectors; print a summary; return the exit code: 1 if a file failed,
    130 if the person stopped it.

    Args:
        collection: whose vectors are waited for; None = all.
        work: takes `progress`.
        paths: the summary says why their files were skipped.
        wait: for the vectors, and the pages of scans.
    """
    report, stopped = None, False
    library = session.workspace.library
    with shown_progress(session) as show, ended_by_signals():
        try:
            report = work(progress=show)
            if wait and report.waiting:
                report.take_vectors(library.make_vectors(collection=collection, progress=show))
        except KeyboardInterrupt:
            if report is None:
                session.if_stopped = "What was done is kept. Run the same command again to go on."
                return session.interrupted()
            stopped = True
    counts = {camel_case(name): value for name, value in asdict(report).items()}
    problems = [{"path": path, "reason": reason} for path, reason in report.problems]
    tried = wait and not stopped
    answer = {"status": "done", **counts, "problems": problems}
    session.answer(answer, lambda _: _print_summary(session, report, paths, collection, tried=tried))
    if wait and (pages := library.scanned_pages()):
        scans = counted(pages, "scanned page")
        if stopped:
            session.note(f"Not read yet: {scans}. Text recognition goes on when localmcp runs.")
        else:
            session.note(f"Reading {scans} by text recognition. You can stop; it goes on when localmcp runs.")
            _read_scans(session, collection)
    return INTERRUPTED if stopped else 1 if report.failed else 0


def _read_scans(session: Session, collection: str | None) -> None:
    """Read the pages of scans that wait: last, since a page takes seconds."""
    library = session.workspace.library
    try:
        with ended_by_signals():
            read = library.read_scans()
            library.make_vectors(collection=collection)
    except KeyboardInterrupt:
        session.note("Stopped. The scans that were read are kept.")
    else:
        session.note(f"Read {counted(read, 'page')}.")


def finish_vectors(session: Session, collections: Iterable[str | None], *, wait: bool) -> None:
    """Make the missing vectors of those collections, and say how many are still missing; None = all."""
    workspace = session.existing()
    names = [name for name in collections if name is not None]
    with workspace.database.read() as connection:
        ids = [collection.id for collection in choose_collections(connection, names or None)]
        left = waiting(connection, ids).passages
    if wait and left and workspace.database.is_writable:
        with shown_progress(session) as show, ended_by_signals():
            made = [workspace.library.make_vectors(collection=name, progress=show) for name in names or [None]]
        left = sum(report.waiting for report in made)
    if left:
        passages = counted(left, "passage")
        session.warn(f"{passages} found by word only: their meaning has not been read.")


def _print_summary(
    session: Session, report: Report, paths: Iterable[str], collection: str | None, *, tried: bool
) -> None:
    """Print the summary on stderr; `tried` says that missing vectors were to be made."""
    database, entries = session.workspace.database, list[Entry]()
    session.note(summary(report, database.size()))
    if report.skipped or report.failed:
        name = collection.casefold() if collection else None
        folders = [unicode_path(os.path.realpath(os.path.expanduser(path))) for path in paths]
        with database.read() as connection:
            ids = [c.id for c in visible_collections(connection) if name in (None, c.name.casefold())]
            # A folder may be below another.
            by_path = {
                (number, path): entry
                for number in ids
                for folder in folders
                for path, entry in entries_below(connection, number, folder).items()
            }
        entries = list(by_path.values())
    reasons = Counter(entry.reason for entry in entries if entry.status == "skipped")
    reasons["removed by you"] = sum(entry.status == "removed" and os.path.lexists(entry.path) for entry in entries)
    for reason, number in (+reasons).most_common(6):
        session.note(f"  {number:,} skipped: {reason}")
    failed = dict(report.problems) or {e.path: e.reason for e in entries if e.status == "failed"}
    for path, reason in list(failed.items())[:5]:
        session.warn(f"  failed: {short_path(path)}: {reason}")
    if report.skipped or report.failed:
        session.remark("  All of them, and why: localmcp why FOLDER")
    session.warn(*report.notices)
    if report.waiting:
        words = f"{counted(report.waiting, 'passage')} found by word only so far"
        session.note(f"{words}." if tried else f"{words}. Their meaning is read when localmcp runs, or by: {REFRESH}")
    if report.indexed:
        session.remark('Search it with: localmcp search "…"')


def summary(report: Report, file_bytes: int) -> str:
    """`Indexed 41 documents, 3 unchanged: 268 new passages in 12 s. The file has 1.8 MB.`"""
    counts = {
        "indexed": report.indexed, "updated": report.updated, "moved": report.moved, "restored": report.restored,
        "unchanged": report.unchanged, "gone (in the trash)": report.missing,
        "left out (in the trash)": report.removed,
    }  # fmt: skip
    parts = [f"{number:,} {name}" for name, number in counts.items() if number] or ["nothing to do"]
    documents = ", ".join(parts)
    passages = counted(report.chunks_added, "new passage") if report.chunks_added else "no new passages"
    if report.vectors_added:
        passages += f", {counted(report.vectors_added, 'missing vector')} made"
    return (
        f"{render.bold(documents[:1].upper() + documents[1:])}: {passages} in {duration(report.seconds)}. "
        f"The file has {size(file_bytes)}."
    )
