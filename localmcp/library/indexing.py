"""Store what was read: each group in one transaction, over the versions before. Vectors are made later."""

from __future__ import annotations

import logging
import os
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import apsw

from localmcp.errors import Interrupted
from localmcp.humanize import counted
from localmcp.index.collections import Collection
from localmcp.index.drafts import SourceDraft
from localmcp.index.sources import Indexed, Pending, put_source, restore_source, trash_sources
from localmcp.library.ledger import WATCHED, Entry, mark, record
from localmcp.library.reading import Reading, Step, Task, member_uri
from localmcp.library.report import Progress
from localmcp.library.trash import documents_in
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one

log = logging.getLogger(__name__)

STORAGE_FAULTS = (apsw.TooBigError, apsw.ConstraintError, ValueError, TypeError, OverflowError)
"""What storing one odd source can raise without anything being wrong with the file; `UnicodeError` is a ValueError."""


MOST_PROBLEMS = 5
"""Different problems of a mailbox or an archive that the reason in the ledger names."""


class _OddSource(Exception):
    """One source of a group cannot be stored."""


@dataclass(frozen=True, slots=True)
class Place:
    """The source that a draft replaces, if there is one."""

    source_id: int | None = None
    same: bool = False
    """That source holds these very bytes under this very path."""
    outcome: str = "indexed"
    """The counter of the report that a draft stored here belongs to."""
    moved_from: str = ""


@dataclass(slots=True)
class _File:
    """The documents of one file, as far as they are stored."""

    source_id: int | None = None
    """Of its first document."""
    chunks: int = 0
    documents: int = 0
    problems: list[str] = field(default_factory=list[str])
    remark: str = ""
    scans: int = 0
    """Documents in it whose pages are pictures."""
    pages: int = 0
    """Of them, those that wait for text recognition."""
    uris: set[str] = field(default_factory=set[str])
    seconds: float = 0.0

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
        if self.pages:
            waits = f"{counted(self.scans, 'scan')} in it wait{'s' if self.scans == 1 else ''} for text recognition"
            parts.append(f"{waits}: {counted(self.pages, 'page')}")
        return "; ".join(parts)


@dataclass(slots=True)
class Indexer:
    """Stores the readings of one run in one collection."""

    database: Database
    collection: Collection
    run: Progress
    beat: Callable[[apsw.Connection, int], None] = lambda connection, files: None
    """Called in each write transaction with the number of files that it completes."""
    _claimed: set[int] = field(default_factory=set[int])
    """Sources that a moved file took over in this group: of two copies only one can have moved."""
    _files: dict[str, _File] = field(default_factory=lambda: defaultdict[str, _File](_File))
    """Files of which more documents come, by path."""

    def store(self, group: Sequence[Step]) -> None:
        """Store a group: all of it or nothing, or one by one if a source cannot be stored."""
        files, missing = deepcopy(self._files), self.run.report.missing
        try:
            outcomes = self._store(group)
        except _OddSource as odd:
            self._files, self.run.report.missing = files, missing
            if len(group) > 1:
                for step in group:
                    self.store([step])
                return
            reading, error = group[0].reading, odd.__cause__
            log.error("%s cannot be stored", group[0].task.file.path, exc_info=error)
            reading.draft, reading.failed = None, f"cannot be stored: {type(error).__name__}: {error}"[:300]
            outcomes = self._store(group)
        for step, outcome in zip(group, outcomes, strict=True):
            self._count(step, outcome)

    def _store(self, group: Sequence[Step]) -> list[Outcome]:
        self._claimed.clear()
        pending = Pending()
        with self.database.write() as connection:
            _check_roots(connection, group)
            try:
                outcomes = [self._write(connection, step, pending) for step in group]
                pending.write(connection)
            except STORAGE_FAULTS as error:
                # Said here, where it is not yet taken for a fault of the file.
                raise _OddSource from error
            self.beat(connection, sum(step.last for step in group))
        return outcomes

    def _write(self, connection: apsw.Connection, step: Step, pending: Pending) -> Outcome:
        """Store a reading, add its outcome to its file, and record the file when it is the last."""
        task, reading = step.task, step.reading
        file = self._files[task.file.path]
        file.seconds += reading.seconds
        outcome, indexed = self._put(connection, task, reading, pending)
        if indexed is not None:
            file.documents += 1
            file.chunks += indexed.added + indexed.kept
            file.source_id = file.source_id or indexed.source_id
            file.remark = file.remark or reading.remark
        elif reading.member and reading.failed:
            file.problems.append(reading.failed)
        elif reading.scan_pages is not None:
            file.scans += 1
            file.pages += reading.scan_pages
        file.uris.add(member_uri(task.file.path, reading.member))
        if step.last:
            self._finish(connection, step, self._files.pop(task.file.path), pending)
        return outcome, indexed

    def _put(self, connection: apsw.Connection, task: Task, reading: Reading, pending: Pending) -> Outcome:
        if reading.unchanged and task.entry and task.entry.source_id is not None:
            return self._touch(connection, task, reading, task.entry.source_id)
        draft = reading.draft
        if draft is None:
            return "failed" if reading.failed else "skipped", None
        removed = "select 1 from ledger where path = ? and collection_id = ? and status = 'removed'"
        # The person took this document of a file out of the library.
        if reading.member and fetch_one(connection, removed, (draft.uri, draft.collection_id)):
            return "skipped", None
        # Looked up again inside the transaction: another process may have stored the file meanwhile.
        place = find_place(connection, draft, self._claimed)
        if place.same and not task.forced and place.source_id is not None:
            return self._touch(connection, task, reading, place.source_id)
        indexed = put_source(connection, draft, {}, None, replaces=place.source_id, pending=pending)
        if place.moved_from:
            mark(connection, self.collection.id, place.moved_from, "moved", f"moved to {task.file.path}")
        return place.outcome, indexed

    def _touch(self, connection: apsw.Connection, task: Task, reading: Reading, source_id: int) -> Outcome:
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
        uuid, chunks = row or ("", 0)
        if reading.unchanged and task.entry:
            chunks = task.entry.chunks
        return "unchanged", Indexed(source_id, uuid, kept=chunks)

    def _finish(self, connection: apsw.Connection, step: Step, file: _File, pending: Pending) -> None:
        """Record the status of a file, and take out the documents that are no longer in it."""
        task, reading = step.task, step.reading
        path, collection_id = task.file.path, self.collection.id
        whole_failed = bool(reading.failed) and not reading.member
        is_whole = bool(file.source_id or file.scans) and not whole_failed and not reading.unchanged
        # Where the file as a whole failed after some documents, what it held before stays.
        if is_whole and (reading.member or task.entry):
            stored = documents_in(connection, collection_id, path)
            if gone := [number for number, uri in stored if uri not in file.uris]:
                pending.write(connection)
                self.run.report.missing += trash_sources(connection, gone)
        if file.source_id is None or whole_failed:
            entry = _not_stored(step, file)
        else:
            entry = Entry(
                path, "indexed", file.reason, file.source_id, reading.sha256, reading.size, reading.mtime_ns,
                file.chunks, round(file.seconds, 3),
            )  # fmt: skip
        record(connection, collection_id, task.root.id, [entry])

    def _count(self, step: Step, outcome: Outcome) -> None:
        report, reading, path = self.run.report, step.reading, step.task.file.path
        name, indexed = outcome
        report.read_seconds += reading.seconds
        if name == "failed":
            report.add_problem(member_uri(path, reading.member), reading.failed)
        else:
            setattr(report, name, getattr(report, name) + 1)
        if indexed and name != "unchanged":
            report.chunks_added += indexed.added
            report.chunks_kept += indexed.kept
        if step.last:
            self.run.finish_file(path, step.task.file.size)


Outcome = tuple[str, Indexed | None]
"""Of a reading: indexed, updated, moved, restored, unchanged, skipped or failed, and the source that was stored."""


def _check_roots(connection: apsw.Connection, group: Sequence[Step]) -> None:
    """Stop when somebody has removed a folder or file that is being read.

    Raises:
        Interrupted: names it.
    """
    paths = {step.task.root.id: step.task.root.path for step in group if step.task.root.id is not None}
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
        return Place(live[0], live[1] == draft.sha256, "updated")
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
            return Place(source_id, outcome=outcome, moved_from=path if has_moved else "")
    return Place()


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


def _not_stored(step: Step, file: _File) -> Entry:
    """Return the entry of a file that was skipped or failed; if it was stored before, that version stays."""
    task, reading, entry = step.task, step.reading, step.task.entry
    keeps = entry is not None and entry.holds_source
    reason = (file.scans and file.reason) or reading.failed or reading.skipped
    if keeps:
        reason += " (the version before is still searched)"
    return Entry(
        task.file.path,
        "failed" if reading.failed or keeps else "skipped",
        reason,
        source_id=file.source_id or (entry.source_id if entry and keeps else None),
        size=reading.size,
        mtime_ns=reading.mtime_ns,
        chunks=entry.chunks if entry and keeps else 0,
        seconds=round(file.seconds, 3),
    )
