"""Storing what was read: find what is there already, write each group in one transaction. Vectors follow later."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import apsw

from localmcp.knowledge.ledger import Entry, mark, record
from localmcp.knowledge.reading import Reading
from localmcp.knowledge.report import Run
from localmcp.search.collections import Collection
from localmcp.search.sources import Indexed, SourceDraft, put_source, restore_source
from localmcp.storage.database import Database, fetch_all, fetch_one

log = logging.getLogger(__name__)

STORAGE_FAULTS = (apsw.TooBigError, apsw.ConstraintError, ValueError, TypeError, OverflowError)
"""What storing one odd source can raise without anything being wrong with the file; `UnicodeError` is a ValueError."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a draft belongs."""

    source_id: int | None = None
    """The source that it replaces."""
    uuid: str = ""
    same: bool = False
    """That source holds these very bytes under this very path."""
    trashed: bool = False
    moved_from: str | None = None

    def outcome(self) -> str:
        """Which counter of the report a draft stored here belongs to."""
        if self.moved_from:
            return "moved"
        if self.trashed:
            return "restored"
        return "updated" if self.source_id else "indexed"


@dataclass(slots=True)
class Stored:
    """What one reading came to in a transaction."""

    reading: Reading
    entry: Entry
    indexed: Indexed | None = None
    outcome: str = ""
    """indexed, updated, moved, restored, unchanged, skipped or failed: a counter of the report."""


@dataclass(slots=True)
class Indexer:
    """Stores the readings of one run in one collection."""

    database: Database
    collection: Collection
    run: Run
    _claimed: set[int] = field(default_factory=set[int])
    """Sources that a moved file took over in this group: of two copies only one can have moved."""

    def store(self, group: Sequence[Reading]) -> list[Stored]:
        """Store a group: all of it or nothing, one bad source excepted."""
        start = time.perf_counter()
        self._claimed.clear()
        with self.database.write() as connection:
            stored = [self._write(connection, reading) for reading in group]
        self.run.report.write_seconds += time.perf_counter() - start
        for each in stored:
            self._count(each)
        return stored

    def _write(self, connection: apsw.Connection, reading: Reading) -> Stored:
        stored = _not_stored(reading)
        try:
            # A savepoint: one source that cannot be stored takes nothing else with it.
            with connection:
                stored = self._put(connection, reading)
        except STORAGE_FAULTS as error:
            log.exception("%s cannot be stored", reading.task.file.path)
            reading.failed = f"cannot be stored: {type(error).__name__}: {error}"[:300]
            stored = _not_stored(reading)
        record(connection, self.collection.id, reading.task.root.id, [stored.entry])
        return stored

    def _put(self, connection: apsw.Connection, reading: Reading) -> Stored:
        known = reading.task.known
        if reading.unchanged and known and known.source_id is not None:
            return self._touch(connection, reading, known.source_id)
        if reading.draft is None:
            return _not_stored(reading)
        # Looked up again inside the transaction: another process may have stored the file meanwhile.
        place = find_place(connection, reading.draft, self._claimed)
        if place.same and not reading.task.forced and place.source_id is not None:
            return self._touch(connection, reading, place.source_id)
        if place.trashed and place.source_id is not None:
            restore_source(connection, place.source_id)
        indexed = put_source(connection, reading.draft, {}, None, replaces=place.source_id)
        if place.moved_from:
            mark(connection, self.collection.id, place.moved_from, "moved", f"moved to {reading.draft.uri}")
        return Stored(reading, _indexed_entry(reading, indexed), indexed, place.outcome())

    def _touch(self, connection: apsw.Connection, reading: Reading, source_id: int) -> Stored:
        """The same bytes as before: only the times are noted."""
        row = fetch_one(
            connection,
            "update sources set size = ?, mtime_ns = ? where id = ? returning uuid, chunk_count",
            (reading.size, reading.mtime_ns, source_id),
        )
        uuid, chunks = row or ("", 0)
        indexed = Indexed(source_id, uuid, kept=chunks)
        return Stored(reading, _indexed_entry(reading, indexed), indexed, "unchanged")

    def _count(self, stored: Stored) -> None:
        report, reading = self.run.report, stored.reading
        report.read_seconds += reading.seconds
        if stored.outcome == "failed":
            report.add_problem(reading.task.file.path, reading.failed)
        else:
            setattr(report, stored.outcome, getattr(report, stored.outcome) + 1)
        if stored.indexed and stored.outcome != "unchanged":
            report.chunks_added += stored.indexed.added
            report.chunks_kept += stored.indexed.kept
        self.run.finish_file(reading.task.file.path, reading.task.file.size)


def find_place(connection: apsw.Connection, draft: SourceDraft, claimed: set[int]) -> Place:
    """The source that a draft with a path continues: at that path, or moved there, or in the trash.

    A source found by its bytes alone is put into `claimed`, and is not found a second time.
    """
    live = fetch_one(
        connection,
        "select id, uuid, sha256 from sources where collection_id = ? and uri = ? and trashed_at is null",
        (draft.collection_id, draft.uri),
    )
    if live:
        return Place(live[0], live[1], same=live[2] == draft.sha256)
    rows = fetch_all(
        connection,
        """
        select sources.id, uuid, uri, trashed_at is not null, coalesce(ledger.status, '') from sources
        left join ledger on ledger.path = uri and ledger.collection_id = sources.collection_id
        where sources.collection_id = :collection and sources.sha256 = :sha256 and uri is not null
            and (trashed_at is null or not exists (
                select 1 from sources as live
                where live.collection_id = sources.collection_id and live.uri = sources.uri and live.trashed_at is null
            ))
        order by uri = :uri desc, trashed_at is not null
        """,
        {"collection": draft.collection_id, "sha256": draft.sha256, "uri": draft.uri},
    )
    for source_id, uuid, uri, trashed, status in rows:
        # What the person removed comes back only under its own path.
        elsewhere = not os.path.lexists(uri) and (not trashed or status == "missing")
        if source_id not in claimed and (uri == draft.uri or elsewhere):
            claimed.add(source_id)
            return Place(source_id, uuid, trashed=bool(trashed), moved_from=None if uri == draft.uri else uri)
    return Place()


def _indexed_entry(reading: Reading, indexed: Indexed) -> Entry:
    return Entry(
        reading.task.file.path,
        "indexed",
        source_id=indexed.source_id,
        sha256=reading.sha256,
        size=reading.size,
        mtime_ns=reading.mtime_ns,
        chunks=indexed.added + indexed.kept,
        seconds=round(reading.seconds, 3),
    )


def _not_stored(reading: Reading) -> Stored:
    """A file that was skipped or failed; if it was stored before, that version stays."""
    known = reading.task.known
    keeps = known is not None and known.holds_source
    reason = reading.failed or reading.skipped
    if keeps:
        reason += " (the version before is still searched)"
    entry = Entry(
        reading.task.file.path,
        "failed" if reading.failed or keeps else "skipped",
        reason,
        source_id=known.source_id if known and keeps else None,
        size=reading.size,
        mtime_ns=reading.mtime_ns,
        chunks=known.chunks if known and keeps else 0,
        seconds=round(reading.seconds, 3),
    )
    return Stored(reading, entry, outcome="failed" if reading.failed else "skipped")
