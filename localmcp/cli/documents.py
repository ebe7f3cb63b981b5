"""`localmcp add`, `refresh`, `search`, `show`, `sources`, `why`, `tag`, `remove`, `trash`: documents go in and out."""

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from localmcp.cli import render
from localmcp.cli.options import YES, collection_option, library_path, no_wait, parse_meta, tool_command, tool_options
from localmcp.cli.session import INTERRUPTED, Session, command, group, pass_session, shown_progress, with_commands
from localmcp.errors import ConfigurationError, InvalidInput, NeedsConfirmation, NotFound
from localmcp.files import unicode_path
from localmcp.humanize import FILTERS, command_line, counted, duration, explanation, parse_query_line, short_path, size
from localmcp.index.collections import choose_collections
from localmcp.index.vector_queue import REFRESH, waiting
from localmcp.library.jobs import Report
from localmcp.library.ledger import SOURCE_TYPES, Entry, entries_below
from localmcp.library.library_tools import LibraryTools
from localmcp.library.read import KnowledgeBase
from localmcp.library.reading import add_page
from localmcp.library.search import PassageSearch
from localmcp.milvus.collection import HOW_TO_SET_MILVUS, NO_MILVUS
from localmcp.packs.mounts import collection_of
from localmcp.readers.document import HEAD, decode_text, looks_like_text
from localmcp.records.remote_corpus import RemoteCorpus
from localmcp.schemas import Json
from localmcp.visible_text import visible

FRESHNESS = {"changed": "the file has changed since it was indexed", "missing": "the file is gone"}


@command()
@tool_options(
    PassageSearch.search,
    arguments={"query": "QUERY..."},
    spelled={"sourceType": "--type", "pathPrefix": "--path", "sourceId": "--source"},
    says={"maxChars": "Characters of passages at most; all of them if left out"},
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
    arguments["metadata"] = parse_meta(meta) or None
    if arguments["mode"] != "keyword" and session.settings.database.exists():
        session.embedder.start_loading()
    answer = session.call_in(session.existing(), "search", arguments, lean=not session.as_json)
    # What an assistant hands on are commands and options here; passages stay as they are.
    head, blank, passages = answer.text.partition("\n\n")
    passages = re.sub(r"^More: cursor=(\S+)\Z", r"More: --cursor \1", passages, flags=re.MULTILINE)
    answer = replace(answer, text=f"{with_commands(head)}{blank}{passages}")
    code, explains = session.answer_tool(answer), arguments["explain"] and not session.as_json
    for number, hit in enumerate(answer.value["results"], 1):
        if hit.get("freshness") in FRESHNESS:
            session.warn(f"{hit['sourceTitle']}: {FRESHNESS[hit['freshness']]}")
        if explains:
            render.echo(f"[{number}]\n{render.facts(explanation(answer.value, hit).items())}\n")
    if explains:
        render.echo(render.render(answer.value["explain"]))
    return code


@command()
@click.argument("name", metavar="ID|PATH|TITLE")
@click.option("--window", type=click.IntRange(0, 50), default=2, show_default=True, help="Passages around a passage.")
@click.option("--offset", type=click.IntRange(0), default=0, help="First passage of a document.")
@pass_session
def show(session: Session, name: str, window: int, offset: int) -> int:
    """Print a document, or the passages around one.

    Takes the id, path or title of a document, or the id of a passage (see search). The text goes to stdout as it
    was indexed.
    """
    document: Json = {}
    for written in dict.fromkeys((library_path(name), name)):
        if "source" not in document:
            document = session.call("get_document", sourceId=written, offset=offset).value
    if "source" not in document and re.fullmatch(r"(.+:)?[0-9a-f]{8}[0-9a-f-]{0,28}", name, re.IGNORECASE):
        # Of a passage, as search prints it.
        with suppress(NotFound):
            around = session.call("get_context", chunkId=name, window=window).value
            session.answer(around, lambda value: render.write(value["concatenatedContent"]))
            return 0
    if "source" not in document and not session.as_json:
        raise NotFound(document["message"], hint=document["hint"])

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
    says={"until": "Only changed until then: 2026-11-01, yesterday", "title": "Only those with this in their titles"},
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
    nothing = f"No document was removed. {places}: no longer looked at."
    session.note(f"{counted(report.removed, 'document')} put into the trash." if report.removed else nothing)
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
@click.option("--to", metavar="milvus://NAME", help="Into a collection in Milvus alone; the file keeps nothing of it.")
@click.option("--replace", is_flag=True, help="The text on stdin may replace another of the same title.")
@no_wait()
@click.option("--allow-private", is_flag=True, help="Web pages of this machine and its network too.")
@pass_session
def add(session: Session, paths: tuple[str, ...], **options: Any) -> int | None:
    """Add files, folders, web pages, or text from stdin (-), and index them.

    Folders are remembered, and `localmcp refresh` looks at them again. Ignore files (.gitignore, .localmcpignore) are
    honored. What is indexed already and has not changed is not read again, so the same command goes on where an
    earlier one was stopped.

    With --to, they are read and embedded here, and stored in Milvus alone; the same command stores what has changed.

    A web page (http:// or https://) is fetched once, and saved as a document with its address and the day.

    Documents are found by their words first; then their meaning is read, which takes longer. It may be stopped at any
    time, and goes on when localmcp runs.
    """
    common = {name: options[name] for name in ("collection", "partition", "source_type", "title")}
    common["metadata"] = parse_meta(options["meta"])
    chosen = {"include_hidden": options["hidden"], "patterns": options["patterns"]}
    if options["to"]:
        if options["replace"] or options["no_wait"] or any(path == "-" or "://" in path for path in paths):
            raise click.UsageError("--to takes files and folders alone, and ends when they are stored.")
        return _add_to_milvus(session, options["to"], paths, **common, **chosen)
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
    if pages := [path for path in paths if path.lower().startswith(("http://", "https://"))]:
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

    work = partial(library.add_paths, paths, wait=False, **chosen, **common)
    target = options["collection"] or session.settings.collection
    return run_ingest(session, target, work, paths, wait=not options["no_wait"])


def _add_to_milvus(session: Session, to: str, paths: tuple[str, ...], collection: str | None, **options: Any) -> int:
    name, milvus = collection_of(Path(to)), session.workspace.milvus
    if not name or collection is not None:
        raise click.UsageError("--to takes milvus://NAME, the name of a collection in Milvus, and no --collection.")
    if milvus is None:
        raise ConfigurationError(NO_MILVUS, hint=HOW_TO_SET_MILVUS)
    corpus = RemoteCorpus(session.settings, milvus, session.workspace.embedder, name)
    session.if_stopped = "What was stored is kept. The same command goes on."
    with shown_progress(session) as show:
        answer = corpus.add(paths, show, **options)
    session.answer(answer, lambda _: session.show({key: value for key, value in answer.items() if value}))
    session.remark(f"Search it with: localmcp mount milvus:{name}")
    return 1 if answer["failed"] else 0


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
    with shown_progress(session) as show:
        try:
            report = work(progress=show)
            if wait and report.waiting:
                library.make_vectors(collection=collection, progress=show, report=report)
        except KeyboardInterrupt:
            if report is None:
                session.if_stopped = "What was done is kept. Run the same command again to go on."
                return session.interrupted()
            stopped = True
    tried = wait and not stopped
    session.answer(report.to_json(), lambda _: _print_summary(session, report, paths, collection, tried=tried))
    if tried and (pages := library.scanned_pages()):
        # Last, since a page takes seconds.
        scans = counted(pages, "scanned page")
        session.note(f"Reading {scans} by text recognition. You can stop; it goes on when localmcp runs.")
        try:
            with shown_progress(session):
                session.note(f"Read {counted(library.read_scans(), 'page')}.")
                library.make_vectors(collection=collection)
        except KeyboardInterrupt:
            session.note("Stopped. The scans that were read are kept.")
    return INTERRUPTED if stopped else 1 if report.failed else 0


def finish_vectors(session: Session, collections: Iterable[str | None], *, wait: bool) -> None:
    """Make the missing vectors of those collections, and say how many are still missing; None = all."""
    workspace = session.existing()
    names = [name for name in collections if name is not None]
    with workspace.database.read() as connection:
        ids = [collection.id for collection in choose_collections(connection, names or None)]
        left = waiting(connection, ids).passages
    if wait and left and workspace.database.is_writable:
        with shown_progress(session) as show:
            made = [workspace.library.make_vectors(collection=name, progress=show) for name in names or [None]]
        left = sum(report.waiting for report in made)
    if left:
        passages = counted(left, "passage")
        session.warn(f"{passages} found by word only: their meaning has not been read.")


def _print_summary(
    session: Session, report: Report, paths: Iterable[str], collection: str | None, *, tried: bool
) -> None:
    database, entries = session.workspace.database, list[Entry]()
    session.note(summary(report, database.size()))
    if report.skipped or report.failed:
        folders = [unicode_path(os.path.realpath(os.path.expanduser(path))) for path in paths]
        with database.read() as connection:
            # A folder may be below another.
            by_path = {
                (owner.id, path): entry
                for owner in choose_collections(connection, [collection] if collection else None)
                for folder in folders
                for path, entry in entries_below(connection, owner.id, folder).items()
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
