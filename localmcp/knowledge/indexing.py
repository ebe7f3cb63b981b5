"""Storing what was read: find what is known already, embed what is missing, write each group in one transaction."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import apsw

from localmcp.embeddings import Embedder
from localmcp.errors import ModelUnavailable
from localmcp.knowledge.ledger import Entry, mark, record
from localmcp.knowledge.reading import Reading
from localmcp.knowledge.report import Run
from localmcp.search.collections import Collection, claim_collection, ensure_model, find_model
from localmcp.search.sources import Indexed, SourceDraft, put_source, restore_source
from localmcp.storage.database import Database, fetch_all, fetch_one
from localmcp.storage.migrations import VECTOR_ID_BITS, utc_now

log = logging.getLogger(__name__)

BATCH = 96
"""Texts given to the model at once: twelve of its batches, and a few seconds between two signs of life."""
SAVE_FROM = 200
"""A group with more new texts than this saves its vectors as it goes, so that a kill loses one batch at most."""

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
    embedder: Embedder | None
    run: Run
    _gave_up: bool = False
    _claimed: set[int] = field(default_factory=set[int])
    """Sources that a moved file took over in this group: of two copies only one can have moved."""

    @property
    def can_embed(self) -> bool:
        """Whether there is a model, and it has not failed in this run."""
        return self.embedder is not None and not self._gave_up

    def store(self, group: Sequence[Reading]) -> list[Stored]:
        """Store a group: all of it or nothing, one bad source excepted."""
        longest = max(group, key=lambda reading: len(reading.texts))
        embeddings = self.make_vectors(self._missing_texts(group), longest.task.file.path)
        start = time.perf_counter()
        self._claimed.clear()
        with self.database.write() as connection:
            model_id = self.claim(connection, bool(embeddings))
            stored = [self._write(connection, reading, embeddings, model_id) for reading in group]
            drop_pending(connection, model_id, embeddings)
        self.run.report.write_seconds += time.perf_counter() - start
        for each in stored:
            self._count(each)
        return stored

    # ------------------------------------------------------------ embedding

    def _missing_texts(self, group: Sequence[Reading]) -> dict[bytes, str]:
        """Digest -> text of the chunks that have no vector of this model yet."""
        if self.embedder is None or self._gave_up:
            return {}
        missing: dict[bytes, str] = {}
        self._claimed.clear()
        with self.database.read() as connection:
            model_id = find_model(connection, self.embedder.identity)
            for reading in group:
                if reading.draft is None:
                    continue
                place = find_place(connection, reading.draft, self._claimed)
                if not place.same or reading.task.forced:
                    digests = digests_without_vector(connection, reading.draft, place.source_id, model_id)
                    missing.update((digest, reading.texts[digest]) for digest in digests)
        return missing

    def make_vectors(self, texts: Mapping[bytes, str], label: str) -> dict[bytes, bytes]:
        """Digest -> vector of each text, from an earlier run that was killed or from the model.

        `label` is the path that the progress names. A model that fails on the way leaves the rest without vectors.
        """
        if not texts or self.embedder is None:
            return {}
        embeddings = self._find_pending(texts)
        rest = [(digest, text) for digest, text in texts.items() if digest not in embeddings]
        parts = max(-(-len(rest) // BATCH), 1)
        try:
            for part in (rest[at::parts] for at in range(parts)):
                fresh = self.embed(part)
                if len(rest) > SAVE_FROM:
                    self._save_pending(fresh)
                embeddings |= fresh
                self.run.finish_chunks(label, len(part))
        except ModelUnavailable as error:
            self._give_up(error)
        return embeddings

    def embed(self, texts: Sequence[tuple[bytes, str]]) -> dict[bytes, bytes]:
        """Digest -> float32 vector, little endian."""
        if not texts or self.embedder is None:
            return {}
        start = time.perf_counter()
        vectors = self.embedder.embed_passages([text for _, text in texts]).astype("<f4", copy=False)
        self.run.report.embed_seconds += time.perf_counter() - start
        return {digest: row.tobytes() for (digest, _), row in zip(texts, vectors, strict=True)}

    def _give_up(self, error: ModelUnavailable) -> None:
        """Go on without more vectors; the next refresh makes them."""
        log.warning("no more vectors are made: %s", error)
        self._gave_up = True
        self.run.report.add_notice(no_model_notice(error))

    def _find_pending(self, texts: Iterable[bytes]) -> dict[bytes, bytes]:
        assert self.embedder is not None
        with self.database.read() as connection:
            model_id = find_model(connection, self.embedder.identity)
            sql = "select embedding from pending_vectors where model_id = ? and digest = ?"
            found = {digest: fetch_one(connection, sql, (model_id, digest)) for digest in texts}
        return {digest: embedding for digest, embedding in found.items() if embedding is not None}

    def _save_pending(self, embeddings: Mapping[bytes, bytes]) -> None:
        assert self.embedder is not None
        now = utc_now()
        with self.database.write() as connection:
            model_id = ensure_model(connection, self.embedder.identity)
            connection.executemany(
                "insert or ignore into pending_vectors (model_id, digest, embedding, created_at) values (?, ?, ?, ?)",
                ((model_id, digest, embedding, now) for digest, embedding in embeddings.items()),
            )

    # ------------------------------------------------------------ writing

    def claim(self, connection: apsw.Connection, has_vectors: bool) -> int | None:
        """Bind the collection to the model once vectors are written; returns the model's id, or None without."""
        if self.embedder is None or not has_vectors:
            return None
        model_id = ensure_model(connection, self.embedder.identity)
        claim_collection(connection, self.collection, model_id)
        return model_id

    def _write(
        self, connection: apsw.Connection, reading: Reading, embeddings: Mapping[bytes, bytes], model_id: int | None
    ) -> Stored:
        stored = _not_stored(reading)
        try:
            # A savepoint: one source that cannot be stored takes nothing else with it.
            with connection:
                stored = self._put(connection, reading, embeddings, model_id)
        except STORAGE_FAULTS as error:
            log.exception("%s cannot be stored", reading.task.file.path)
            reading.failed = f"cannot be stored: {type(error).__name__}: {error}"[:300]
            stored = _not_stored(reading)
        record(connection, self.collection.id, reading.task.root.id, [stored.entry])
        return stored

    def _put(
        self, connection: apsw.Connection, reading: Reading, embeddings: Mapping[bytes, bytes], model_id: int | None
    ) -> Stored:
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
        indexed = put_source(connection, reading.draft, embeddings, model_id, replaces=place.source_id)
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


def drop_pending(connection: apsw.Connection, model_id: int | None, used: Iterable[bytes]) -> None:
    """Delete the saved vectors that have found their chunks. Part of the caller's write transaction."""
    if model_id is not None:
        sql = "delete from pending_vectors where model_id = ? and digest = ?"
        connection.executemany(sql, ((model_id, digest) for digest in used))


def no_model_notice(error: ModelUnavailable) -> str:
    """What the person is told when text is stored without vectors."""
    return f"Found by words only until a refresh finds the model: {error}"


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


def digests_without_vector(
    connection: apsw.Connection, draft: SourceDraft, source_id: int | None, model_id: int | None
) -> list[bytes]:
    """Digests of a draft that occur more often than the stored source has them with a vector."""
    have: Counter[bytes] = Counter()
    if source_id is not None and model_id is not None:
        sql = """
            select digest from chunks where source_id = ?
                and exists (select 1 from vectors where vectors.id = (? << ? | chunks.id))
        """
        have.update(row[0] for row in fetch_all(connection, sql, (source_id, model_id, VECTOR_ID_BITS)))
    return list(Counter(chunk.digest for chunk in draft.chunks) - have)


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
