"""Store what was read: each group in one transaction, over the versions before. Vectors are made later."""

from __future__ import annotations

import logging
import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import apsw

from localmcp.errors import Interrupted
from localmcp.humanize import counted
from localmcp.index.collections import Collection
from localmcp.index.drafts import SourceDraft
from localmcp.index.sources import Indexed, Pending, put_source, restore_source, trash_sources
from localmcp.index.trash import keep_version
from localmcp.library.ledger import (
    WATCHED,
    Entry,
    forget_root,
    is_at,
    make_root,
    mark,
    owner_of,
    record,
    roots_of,
    save_root,
)
from localmcp.library.reading import Reading, Step, Task, member_uri
from localmcp.library.report import Progress
from localmcp.library.trash import documents_in
from localmcp.library.walk import below
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one

log = logging.getLogger(__name__)

STORAGE_FAULTS = (apsw.TooBigError, apsw.ConstraintError, ValueError, TypeError, OverflowError)
"""What storing one odd source can raise without anything being wrong with the file; `UnicodeError` is a ValueError."""
MOST_PROBLEMS = 5
"""Different problems of a mailbox or an archive that the reason in the ledger names."""
MOST_GONE, MOST_COMPARED = 200, 5
"""Files that are gone among which a new one of another name is looked for, and those whose texts are compared."""
MOSTLY, PARTLY = 0.7, 0.3
"""Share of words that a file moved and edited has in common with what it was; the latter if it kept its name."""
EMPTIED = "empty; what was in it before is in the trash"


class _OddSource(Exception):
    """One source of a group cannot be stored."""


class Stored(NamedTuple):
    """What became of a reading."""

    outcome: str
    """The counter of the report: indexed, updated, moved, restored, unchanged, skipped or failed."""
    indexed: Indexed | None = None


class Place(NamedTuple):
    """The source that a draft continues, if there is one."""

    source_id: int | None = None
    outcome: str = "indexed"
    same: bool = False
    """That source holds these very bytes under this very path."""
    moved_from: str = ""


@dataclass(slots=True)
class _File:
    """The documents of one file, as far as they are stored."""

    last: Reading = field(default_factory=Reading)
    source_id: int | None = None
    """Of its first document."""
    chunks: int = 0
    documents: int = 0
    problems: list[str] = field(default_factory=list[str])
    remark: str = ""
    scans: int = 0
    """Documents in it whose pages are pictures."""
    pages: int = 0
    """Of scans, those that wait for text recognition."""
    uris: set[str] = field(default_factory=set[str])

    @property
    def reason(self) -> str:
        """The reason in the ledger for a file that is indexed but not as a whole."""
        parts = [self.remark] if self.remark else []
        if self.problems:
            total = self.documents + len(self.problems)
            different = list(dict.fromkeys(self.problems))
            more = [f"and {len(different) - MOST_PROBLEMS:,} more"] if len(different) > MOST_PROBLEMS else []
            reasons = "; ".join([*(reason.rstrip(".") for reason in different[:MOST_PROBLEMS]), *more])
            parts.append(f"{len(self.problems):,} of {total:,} documents in it cannot be read: {reasons}")
        if self.scans and self.pages:
            waits = f"{counted(self.scans, 'scan')} in it wait{'s' if self.scans == 1 else ''} for text recognition"
            parts.append(f"{waits}: {counted(self.pages, 'page')}")
        return "; ".join(parts)


@dataclass(slots=True)
class Store:
    """Stores the readings of one run in one collection."""

    database: Database
    collection: Collection
    run: Progress
    beat: Callable[[apsw.Connection, int], None] = lambda connection, files: None
    """Called in each write transaction with the number of files that it completes."""
    gone: Sequence[Entry] = ()
    """Files that are no longer where they were: one that was moved and edited continues what it was."""
    _claimed: set[int] = field(default_factory=set[int])
    """Sources that a moved file took over in this group: of two copies only one can have moved."""
    _files: dict[str, _File] = field(default_factory=lambda: defaultdict[str, _File](_File))
    """Files of which more comes, by path."""

    def put(self, group: Sequence[Step]) -> None:
        """Store a group: all of it or nothing, or one by one if a source cannot be stored."""
        files, missing = deepcopy(self._files), self.run.report.missing
        try:
            stored = self._put_all(group)
        except _OddSource as odd:
            self._files, self.run.report.missing = files, missing
            if len(group) > 1:
                for step in group:
                    self.put([step])
                return
            task, reading = group[0]
            error = odd.__cause__
            if reading is None:
                raise
            log.error("%s cannot be stored", task.file.path, exc_info=error)
            failed = f"cannot be stored: {type(error).__name__}: {error}"[:300]
            group = [(task, replace(reading, draft=None, failed=failed))]
            stored = self._put_all(group)
        for (task, reading), result in zip(group, stored, strict=True):
            self._count(task, reading, result)

    def _put_all(self, group: Sequence[Step]) -> list[Stored]:
        self._claimed.clear()
        pending = Pending()
        with self.database.write() as connection:
            _check_roots(connection, group)
            try:
                stored = [self._put(connection, task, reading, pending) for task, reading in group]
                pending.write(connection)
            except STORAGE_FAULTS as error:
                # Said here, where it is not yet taken for a fault of the file.
                raise _OddSource from error
            self.beat(connection, sum(reading is None for _, reading in group))
        return stored

    def _put(self, connection: apsw.Connection, task: Task, reading: Reading | None, pending: Pending) -> Stored:
        """Store a reading and note it with its file; at the end of the file, record that."""
        path = task.file.path
        if reading is None:
            return self._finish(connection, task, self._files.pop(path, None), pending)
        file = self._files[path]
        stored = self._store(connection, task, reading, pending)
        file.last = replace(reading, draft=None)
        file.uris.add(member_uri(path, reading.member))
        if indexed := stored.indexed:
            file.documents += 1
            file.chunks += indexed.added + indexed.kept
            file.source_id = file.source_id or indexed.source_id
            file.remark = file.remark or (EMPTIED if reading.empty else reading.remark)
        elif reading.member and reading.failed:
            file.problems.append(reading.failed)
        elif reading.skipped:
            file.scans += bool(reading.member)
            file.pages += reading.pages
        return stored

    def _store(self, connection: apsw.Connection, task: Task, reading: Reading, pending: Pending) -> Stored:
        entry, draft = task.entry, reading.draft
        if entry is not None and entry.source_id is not None:
            if reading.unchanged:
                return self._touch(connection, task, reading, entry.source_id, entry.chunks)
            if reading.empty and entry.holds_source:
                return self._empty(connection, task, reading, pending)
        if draft is None:
            return Stored("failed" if reading.failed else "skipped")
        removed = "select 1 from ledger where path = ? and collection_id = ? and status = 'removed'"
        # The person took this document of a file out of the library.
        if reading.member and fetch_one(connection, removed, (draft.uri, draft.collection_id)):
            return Stored("skipped")
        # Looked up again inside the transaction: another process may have stored the file meanwhile.
        place = find_place(connection, draft, self._claimed)
        if place.same and not task.again and place.source_id is not None:
            return self._touch(connection, task, reading, place.source_id)
        if place.source_id is None and self.gone and not reading.member:
            place = self._find_edited(connection, draft)
        if place.moved_from:
            draft = _keep_options(connection, task, draft, place.moved_from)
            mark(connection, self.collection.id, place.moved_from, "moved", f"moved to {task.file.path}")
        return Stored(place.outcome, put_source(connection, draft, {}, None, replaces=place.source_id, pending=pending))

    def _touch(
        self, connection: apsw.Connection, task: Task, reading: Reading, source_id: int, chunks: int | None = None
    ) -> Stored:
        """Store the times of a file whose bytes are as before."""
        path = task.file.path
        times = (reading.size, reading.mtime_ns)
        sql = "update sources set size = ?, mtime_ns = ? where id = ? and uri = ?"
        connection.execute(sql, (*times, source_id, member_uri(path, reading.member)))
        if not reading.member:
            # The documents in it, such as the messages of a mailbox, have the times of their file.
            inside = documents_in(connection, self.collection.id, path)
            connection.executemany(sql, ((*times, number, uri) for number, uri in inside))
        row = fetch_one(connection, "select uuid, chunk_count from sources where id = ?", (source_id,))
        uuid, count = row or ("", 0)
        return Stored("unchanged", Indexed(source_id, uuid, kept=count if chunks is None else chunks))

    def _empty(self, connection: apsw.Connection, task: Task, reading: Reading, pending: Pending) -> Stored:
        """Keep an emptied file as an empty document, what it held in the trash; nothing is left of a mailbox."""
        sql = """
            select id, chunk_count, title, source_type, format, language from sources
            where id = ? and uri = ? and trashed_at is null
        """
        entry, root = task.entry, task.root
        rows = fetch_all(connection, sql, (entry.source_id if entry else None, task.file.path))
        if not rows:
            return Stored("skipped")
        pending.write(connection)
        source_id, chunks, title, source_type, form, language = rows[0]
        if not chunks:
            return self._touch(connection, task, reading, source_id, 0)
        keep_version(connection, source_id)
        draft = SourceDraft(
            root.collection_id, root.partition_id, title, source_type, form, task.file.path, reading.sha256 or "",
            reading.size, reading.mtime_ns, language, root.options.metadata, [],
        )  # fmt: skip
        return Stored("updated", put_source(connection, draft, {}, None, replaces=source_id, pending=pending))

    def _find_edited(self, connection: apsw.Connection, draft: SourceDraft) -> Place:
        """Return the source of a file that is gone, if the draft has its name and a part of its text, or most of it."""
        name, suffix = os.path.basename(draft.uri or ""), os.path.splitext(draft.uri or "")[1]
        few = self.gone if len(self.gone) <= MOST_GONE else ()
        words = Counter("".join(chunk.text for chunk in draft.chunks).split())
        for entries, least in (
            ([entry for entry in self.gone if entry.path.endswith(f"{os.sep}{name}")], PARTLY),
            ([entry for entry in few if os.path.splitext(entry.path)[1] == suffix], MOSTLY),
        ):
            for entry in sorted(entries, key=lambda entry: abs((entry.size or 0) - draft.size))[:MOST_COMPARED]:
                if entry.source_id is None or entry.source_id in self._claimed or not is_at(connection, entry):
                    continue
                sql = "select text from chunks where source_id = ?"
                texts: list[str] = fetch_column(connection, sql, (entry.source_id,))
                before = Counter("".join(texts).split())
                if (words & before).total() >= least * max(words.total(), before.total(), 1):
                    self._claimed.add(entry.source_id)
                    return Place(entry.source_id, "moved", moved_from=entry.path)
        return Place()

    def _finish(self, connection: apsw.Connection, task: Task, file: _File | None, pending: Pending) -> Stored:
        """Record the status of a file, and take out the documents that are no longer in it."""
        path, collection_id, entry = task.file.path, self.collection.id, task.entry
        stored = Stored("" if file else "failed")
        file = file or _File(Reading(task.file.size, task.file.mtime_ns, failed="it holds no document"))
        reading = file.last
        whole_failed = bool(reading.failed) and not reading.member
        is_whole = bool(file.source_id or file.scans or reading.empty) and not whole_failed and not reading.unchanged
        # Where the file as a whole failed after some documents, what it held before stays.
        if is_whole and (reading.member or entry):
            inside = documents_in(connection, collection_id, path)
            if gone := [number for number, uri in inside if uri not in file.uris]:
                pending.write(connection)
                self.run.report.missing += trash_sources(connection, gone)
        if reading.unchanged and entry:
            now = entry
        elif file.source_id is not None and not whole_failed:
            now = Entry(path, "indexed", file.reason, file.source_id, reading.sha256, chunks=file.chunks)
        else:
            # If it was stored before, that version stays.
            keeps = entry is not None and entry.holds_source and not reading.empty
            reason = (file.scans and file.reason) or reading.failed or reading.skipped
            reason += " (the version before is still searched)" if keeps else ""
            now = Entry(path, "failed" if reading.failed or keeps else "skipped", reason, file.source_id)
            if entry and keeps:
                now = replace(now, source_id=file.source_id or entry.source_id, chunks=entry.chunks)
        pages = now.pages if reading.unchanged else file.pages
        now = replace(now, size=reading.size, mtime_ns=reading.mtime_ns, pages=pages)
        record(connection, collection_id, task.root.id, [now])
        return stored

    def _count(self, task: Task, reading: Reading | None, stored: Stored) -> None:
        report, path = self.run.report, task.file.path
        outcome, indexed = stored
        if outcome == "failed":
            reason = reading.failed if reading else "it holds no document"
            report.add_problem(member_uri(path, reading.member if reading else ""), reason)
        elif outcome:
            setattr(report, outcome, getattr(report, outcome) + 1)
        if indexed and outcome != "unchanged":
            report.chunks_added += indexed.added
            report.chunks_kept += indexed.kept
        if reading is None:
            self.run.finish_file(path, task.file.size)


def _check_roots(connection: apsw.Connection, group: Sequence[Step]) -> None:
    """Stop when somebody has removed a folder or file that is being read.

    Raises:
        Interrupted: names it.
    """
    paths = {task.root.id: task.root.path for task, _ in group if task.root.id is not None}
    sql = f"select id from roots where {WATCHED} and id in (select value from carray(?))"
    there = set(fetch_column(connection, sql, (apsw.carray(array("q", paths)),))) if paths else set[int]()
    if gone := [path for number, path in paths.items() if number not in there]:
        raise Interrupted(f"{gone[0]} was removed meanwhile; nothing more of it is added.")


def find_place(connection: apsw.Connection, draft: SourceDraft, claimed: set[int]) -> Place:
    """Return the source that a draft with a path continues: at that path, or moved there, or back from the trash.

    A source found by its bytes alone is put into `claimed`, and is not found a second time.
    """
    sql = "select id, sha256 from sources where collection_id = ? and uri = ? and trashed_at is null"
    if live := fetch_one(connection, sql, (draft.collection_id, draft.uri)):
        return Place(live[0], "updated", live[1] == draft.sha256)
    rows = fetch_all(
        connection,
        """
        select id, uri, coalesce(metadata ->> '$.container', uri), trashed_at is not null,
            (select status from ledger where path = uri and ledger.collection_id = sources.collection_id)
        from sources
        where collection_id = :collection and sha256 = :sha256 and uri is not null
            and (trashed_at is null or not exists (
                select 1 from sources as live
                where live.collection_id = sources.collection_id and live.uri = sources.uri and live.trashed_at is null
            ))
        """,
        {"collection": draft.collection_id, "sha256": draft.sha256},
    )
    # Not ordered in SQL, because there are none for nearly every file, and SQLite gets ready to sort them.
    for source_id, uri, path, trashed, status in sorted(rows, key=lambda row: (row[1] != draft.uri, row[3])):
        # What the person removed comes back only under its own path.
        elsewhere = not os.path.lexists(path) and (not trashed or status == "missing")
        if source_id not in claimed and (uri == draft.uri or elsewhere):
            claimed.add(source_id)
            if trashed:
                restore_source(connection, source_id)
            has_moved = uri != draft.uri
            outcome = "moved" if has_moved else "restored" if trashed else "updated"
            return Place(source_id, outcome, moved_from=path if has_moved else "")
    return Place()


def _keep_options(connection: apsw.Connection, task: Task, draft: SourceDraft, moved_from: str) -> SourceDraft:
    """Return the draft of a file that moved, with what was said of it where it was; that goes on to hold for it."""
    root, collection_id = task.root, draft.collection_id
    roots = roots_of(connection, [collection_id])
    before = owner_of(moved_from, [*roots, *roots_of(connection, [collection_id], removed=True)])
    if before is None or below(root.path, before.path):
        return draft
    if before.path == moved_from:
        forget_root(connection, collection_id, moved_from)
    own = make_root(task.file.path, "file", collection_id, root.partition_id, root.options, before)
    own.options = replace(own.options, title=root.options.title or before.options.title)
    if own.values == root.values:
        return draft
    save_root(connection, own)
    options = own.options
    return replace(
        draft,
        partition_id=own.partition_id,
        source_type=options.source_type or draft.source_type,
        metadata={**draft.metadata, **options.metadata},
    )


def recognized_in(connection: apsw.Connection, collection_id: int, path: str) -> frozenset[str]:
    """Return the digests of the scans inside a file whose text is there already."""
    sql = """
        select metadata ->> '$.ocr.of' from sources
        where collection_id = ? and uri > ? and uri < ? and trashed_at is null and metadata ->> '$.ocr' is not null
    """
    return frozenset(fetch_column(connection, sql, (collection_id, f"{path}#", f"{path}$")))


def find_text(
    connection: apsw.Connection, collection: Collection, title: str, uri: str | None
) -> tuple[Indexed | None, str]:
    """Return the text from that uri, or without one the text of that title, as it is stored; and its SHA-256."""
    test = "uri = ?" if uri else "uri is null and title = ?"
    sql = f"select id, uuid, chunk_count, sha256 from sources where collection_id = ? and trashed_at is null and {test}"
    row = fetch_one(connection, f"{sql} order by id desc limit 1", (collection.id, uri or title))
    return (Indexed(row[0], row[1], kept=row[2]), row[3]) if row else (None, "")
