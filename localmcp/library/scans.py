"""Read the pages of scans and pictures by text recognition, one by one, when everything else is done."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO

import apsw

from localmcp.errors import LocalMCPError, ScannedDocument, UnreadableDocument
from localmcp.index.collections import Collection
from localmcp.index.drafts import SourceDraft, Window
from localmcp.index.sources import put_source, restore_source
from localmcp.index.vector_queue import BEHIND, FRONT, Lease
from localmcp.library import ledger
from localmcp.library.indexing import Indexer, find_place
from localmcp.library.ledger import Entry, Root, owner_of
from localmcp.library.reading import Origin, Reading, Step, Task, draft_source, member_uri, open_regular
from localmcp.library.report import Run
from localmcp.library.walk import File
from localmcp.readers.ocr import PageText, installed_engine, read_pages, scan_document
from localmcp.readers.worker_pool import Answer, Limits, WorkerPool
from localmcp.storage.database import Database, fetch_all, fetch_one, upsert_rows

log = logging.getLogger(__name__)

PAGE_LIMITS = Limits(seconds=600, seconds_per_megabyte=0, memory=1_500_000_000)
"""Of each page."""
LEAST_CONFIDENCE = 0.6
"""Below it a page is a picture, in whose shapes letters were seen."""
LEASE = "scans"
"""One process at a time reads the scans of a file."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A file whose pages wait."""

    path: str
    pages: int
    done: int
    entry: Entry


def waiting_scans(connection: apsw.Connection, collection_id: int) -> list[Scan]:
    """Return the scans of a collection, those with the fewest pages first."""
    rows = fetch_all(
        connection,
        """
        select path, status, reason, source_id, sha256, size, mtime_ns, chunks, seconds,
            (select count(*) from scanned_pages where scanned_pages.path = ledger.path)
        from ledger where collection_id = ? and status in ('skipped', 'failed')
            and (reason like ? or reason like '%has no text layer:%')
        """,
        (collection_id, f"{ScannedDocument.WAITS}%"),
    )
    scans = [Scan(row[0], _pages_in(row[2]), row[-1], Entry(*row[:-1])) for row in rows]
    return sorted(scans, key=lambda scan: (scan.pages, scan.path))


def waiting_pages(connection: apsw.Connection, collection_ids: Sequence[int]) -> int:
    """Count the pages that wait in those collections."""
    scans = (scan for collection_id in collection_ids for scan in waiting_scans(connection, collection_id))
    return sum(max(scan.pages - scan.done, 0) for scan in scans)


def _pages_in(reason: str) -> int:
    match = re.search(r": (\d[\d,]*) pages?", reason)
    return int(match[1].replace(",", "")) if match else 1


Pages = tuple[str, int]
"""Path of a file, and its first page to read."""


class ScanReader:
    """Reads the scans of collections; every page is kept as it is read, so that a kill loses one."""

    def __init__(self, database: Database, window: Callable[[], Window], max_bytes: int) -> None:
        self._database = database
        self._window = window
        self._max_bytes = max_bytes

    def run(self, collections: Sequence[Collection], run: Run, stop: Callable[[], bool], *, behind: bool) -> int:
        """Read what waits until `stop` says true, or a process in front takes over; returns how many pages were read.

        Raises:
            FileUnavailable: the file cannot be written.
        """
        with self._database.read() as connection:
            scans = [(owner, scan) for owner in collections for scan in waiting_scans(connection, owner.id)]
        if not scans or not installed_engine():
            return 0
        lease, read = Lease(BEHIND if behind else FRONT, LEASE), 0

        def must_stop() -> bool:
            if stop():  # It may wait for seconds, so not in the transaction.
                return True
            with self._database.write() as connection:
                return not lease.take(connection)

        try:
            with WorkerPool(_recognize, workers=1, limits=PAGE_LIMITS) as pool:
                for collection, scan in scans:
                    if must_stop():
                        break
                    read += self._read(collection, scan, pool, run, must_stop)
        finally:
            lease.release(self._database)
        return read

    def _read(
        self, collection: Collection, scan: Scan, pool: WorkerPool[Pages, PageText], run: Run, stop: Callable[[], bool]
    ) -> int:
        try:
            sha256, size = self._identity(scan)
        except (OSError, LocalMCPError) as error:
            self._give_up(collection, scan, str(error))
            return 0
        pages = self._pages_read(scan.path, sha256)
        read = 0
        first = max(pages, default=0) + 1
        for answer in pool.run([(scan.path, first)]) if first <= scan.pages else ():
            if answer.failure and not answer.member:
                self._give_up(collection, scan, answer.failure)
                return read
            if page := _page_of(answer):
                self._store_page(scan.path, sha256, page)
                pages[page.page] = page
                read += 1
            if stop() and not answer.finished:
                return read
        self._store(collection, scan, sha256, size, [pages[number] for number in sorted(pages)], run)
        return read

    def _identity(self, scan: Scan) -> tuple[str, int]:
        """Return SHA-256 and size of a scan: of a file as it is now, of a document in a file as it was read."""
        if split_uri(scan.path)[1]:
            return scan.entry.sha256 or "", scan.entry.size or 0
        with open_regular(Path(scan.path)) as file:
            data = file.read(self._max_bytes + 1)
        return hashlib.sha256(data).hexdigest(), len(data)

    def _pages_read(self, path: str, sha256: str) -> dict[int, PageText]:
        """Return the pages that were read before, unless the file has changed since."""
        sql = "select page, text, confidence from scanned_pages where path = ? and sha256 = ?"
        with self._database.read() as connection:
            return {row[0]: PageText(*row) for row in fetch_all(connection, sql, (path, sha256))}

    def _store_page(self, path: str, sha256: str, page: PageText) -> None:
        with self._database.write() as connection:
            connection.execute("delete from scanned_pages where path = ? and sha256 <> ?", (path, sha256))
            row = {"path": path, "sha256": sha256, **page._asdict()}
            upsert_rows(connection, "scanned_pages", ("path", "page"), [row])

    def _store(
        self, collection: Collection, scan: Scan, sha256: str, size: int, pages: list[PageText], run: Run
    ) -> None:
        path, member = split_uri(scan.path)
        with self._database.read() as connection:
            roots = ledger.roots_of(connection, [collection.id])
            parent = _parent_of(connection, collection.id, path, member)
        root = owner_of(path, roots) or Root(path, "file", collection.id)
        mtime_ns = scan.entry.mtime_ns or 0
        task = Task(File(scan.path, size, mtime_ns), root, scan.entry, forced=True)
        reading = Reading(size=size, mtime_ns=mtime_ns, sha256=sha256)
        try:
            document = scan_document(PurePath(scan.path).name, pages, title=root.title or "")
            origin = Origin(
                collection.id, root.partition_id, scan.path, sha256, size, mtime_ns,
                None if member else root.title, root.source_type,
                root.metadata | ({"container": path, "parent": parent} if member else {}),
            )  # fmt: skip
            reading.draft = draft_source(document, self._window(), origin)
        except LocalMCPError:
            reading.skipped = f"no text was recognized on its {len(pages)} pages"
        if not member:
            Indexer(self._database, collection, run).store([Step(task, reading, last=True)])
        elif reading.draft:
            self._put_member(collection, scan, reading.draft)
            run.report.indexed += 1
        else:
            self._give_up(collection, scan, reading.skipped)
        with self._database.write() as connection:
            connection.execute("delete from scanned_pages where path = ?", (scan.path,))

    def _put_member(self, collection: Collection, scan: Scan, draft: SourceDraft) -> None:
        """Store what was read of a document in a file, whose other documents stay as they are."""
        with self._database.write() as connection:
            place = find_place(connection, draft, set())
            if place.trashed and place.source_id is not None:
                restore_source(connection, place.source_id)
            indexed = put_source(connection, draft, {}, None, replaces=place.source_id)
            ledger.forget(connection, collection.id, [scan.path])
            sql = """
                update ledger set reason = iif(status = 'skipped', '', reason), status = 'indexed',
                    source_id = coalesce(source_id, ?), chunks = chunks + ?
                where collection_id = ? and path = ?
            """
            values = (indexed.source_id, indexed.added, collection.id, split_uri(scan.path)[0])
            connection.execute(sql, values)

    def _give_up(self, collection: Collection, scan: Scan, reason: str) -> None:
        with self._database.write() as connection:
            ledger.mark(connection, collection.id, scan.path, "failed", reason)


def _recognize(item: Pages) -> Iterator[PageText]:
    """Read the pages of a file from a page on; runs in a worker process."""
    uri, first = item
    path, member = split_uri(uri)
    with open_regular(Path(path)) as file:
        data = _scan_in(file, PurePath(path).name, member) if member else file.read()
    yield from read_pages(PurePath(uri).name, data, first)


def _scan_in(file: BinaryIO, name: str, member: str) -> bytes:
    """Return a document in a container, whose pages are pictures."""
    from localmcp.readers.readers import read_documents  # 60 ms: every reader

    for document in read_documents(file, name, archive=True):
        if document.member == member and document.scan:
            return document.scan
    raise UnreadableDocument(f"{name} no longer holds {member}.")


def split_uri(uri: str) -> tuple[str, str]:
    """Return the file of a scan, and the name of the document in it; "" for the file itself."""
    marks = [] if os.path.lexists(uri) else [mark.start() for mark in re.finditer("#", uri)]
    at = next((at for at in marks if os.path.lexists(uri[:at])), len(uri))
    return uri[:at], uri[at + 1 :]


def _parent_of(connection: apsw.Connection, collection_id: int, path: str, member: str) -> str:
    """Return the uri of the document that a scan belongs to: the mail that it was attached to, or else the file."""
    uri = member_uri(path, member.rpartition("/")[0])
    sql = "select uri from sources where collection_id = ? and uri = ? and trashed_at is null"
    return fetch_one(connection, sql, (collection_id, uri)) or path


def _page_of(answer: Answer[Pages, PageText]) -> PageText | None:
    """Return the page in an answer; one over its limits, or on which nothing is sure, is empty."""
    if answer.failure:
        number = re.search(r"\d+", answer.member)
        return PageText(int(number[0]), "", 0.0) if number else None
    page = answer.value
    return page._replace(text="") if page and page.confidence < LEAST_CONFIDENCE else page
