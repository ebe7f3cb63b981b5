"""`localmcp merge`: copy what another file holds into yours; what is there already stays as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import apsw

from localmcp.errors import InvalidInput, LocalMCPError, ModelMismatch
from localmcp.files import expand_home
from localmcp.index.adaptation import adapt_weights
from localmcp.index.collections import (
    Collection,
    choose_collections,
    claim_collection,
    ensure_collection,
    ensure_model,
    ensure_partition,
    visible_collections,
)
from localmcp.index.drafts import WORD_ONLY, SourceDraft
from localmcp.index.records import FORMAT
from localmcp.index.sources import put_source
from localmcp.index.vector_queue import QueueWorker, passages_of, waiting, write_batch
from localmcp.models import LazyEmbedder, is_unit_vector
from localmcp.packs.incoming import MOST_CHUNKS, MOST_SKIPPED, Incoming, read_incoming
from localmcp.storage.database import Database, fetch_all, fetch_one
from localmcp.storage.schema import VECTOR_ID_BITS
from localmcp.tools import Answer

CHUNKS_TOGETHER = 200
"""Chunks of one transaction, a longer document excepted."""
ROWS_TOGETHER = 100
LONGEST_RULE, LONGEST_QUICKSTART = 20_000, 1_000_000
MOST_CONFLICTS = 200


Call = Callable[[str, dict[str, Any]], Answer]
"""Runs a tool of your file."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something of the same name that is not the same."""

    kind: str
    """document, quick start or rule"""
    name: str
    outcome: str


@dataclass(slots=True)
class MergeReport:
    """Counts of what a merge added and left out; after a dry run, of what it would."""

    added: int = 0
    known: int = 0
    """Documents whose content is there already."""
    chunks: int = 0
    vectors_reused: int = 0
    vectors_made: int = 0
    vectors_missing: int = 0
    """Passages that are found by words only until the next refresh makes their vectors."""
    quickstarts_added: int = 0
    quickstarts_known: int = 0
    rules_added: int = 0
    rules_known: int = 0
    conflicts: list[Conflict] = field(default_factory=list[Conflict])
    skipped: list[str] = field(default_factory=list[str])
    """Documents that cannot be taken over, and why."""
    notices: list[str] = field(default_factory=list[str])

    def note(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)

    def skip(self, why: str) -> None:
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append(why)

    def add_conflict(self, conflict: Conflict) -> None:
        if len(self.conflicts) < MOST_CONFLICTS:
            self.conflicts.append(conflict)


@dataclass(frozen=True, slots=True)
class _Target:
    """The collection into which documents are merged."""

    name: str
    description: str
    their_model: int | None
    dimension: int
    """Of their vectors."""
    reuses: bool
    """Their vectors are of the model that is used here."""
    embeds: bool
    """New vectors can be made here."""
    notice: str = ""
    """What happens to the vectors of documents that are added, if they are not taken over."""


class Merge:
    """Takes another file into yours, document by document: stopped in the middle, it goes on where it was."""

    def __init__(self, database: Database, embedder: LazyEmbedder, call: Call) -> None:
        self._database = database
        self._embedder = embedder
        self._call = call

    def run(
        self, path: Path, collections: Sequence[str] | None = None, *, dry_run: bool = False, wait: bool = True,
        say: Callable[[MergeReport], None] = lambda _: None,
    ) -> MergeReport:  # fmt: skip
        """Merge the file at `path`; only those of its collections, if they are named.

        Missing vectors are made at the end, unless `wait` is false: then a program that has the file open makes them.

        Raises:
            InvalidInput: it is your file.
            NotFound: it has no such collection.
            FileUnavailable, NotOurFile, FileTooNew: a file cannot be opened or written.
        """
        path = expand_home(path).absolute()
        if path.exists() and self._database.path.exists() and path.samefile(self._database.path):
            raise InvalidInput(f"{path} is the file that is open.")
        report = MergeReport()
        other = Database(path, read_only=True, foreign=True)
        try:
            if not dry_run:
                self._database.ensure_writable()
            with other.read() as theirs:
                chosen = choose_collections(theirs, list(collections) if collections else None)
                targets = [self._merge_collection(theirs, collection, report, dry_run, say) for collection in chosen]
                if not collections:
                    self._merge_quickstarts(theirs, report, dry_run)
                    self._merge_rules(theirs, report, dry_run)
        finally:
            other.close()
        if wait and not dry_run:
            self._make_vectors([target.name for target in targets if target.embeds], report)
        return report

    # ------------------------------------------------------------ documents

    def _merge_collection(
        self, theirs: apsw.Connection, collection: Collection, report: MergeReport, dry_run: bool,
        say: Callable[[MergeReport], None],
    ) -> _Target:  # fmt: skip
        target, added_before = self._target(theirs, collection, report), report.added
        with self._database.read() as connection:
            own = _OwnContents.of(connection, collection.name)
        group: list[Incoming] = []
        for incoming in read_incoming(theirs, collection.id, report.skipped):
            if not self._is_new(incoming, own, report):
                for source_id in own.waiting_for(incoming.draft):
                    self._take_vectors(theirs, target, incoming, source_id, report, dry_run)
                continue
            group.append(incoming)
            if sum(len(document.chunk_ids) for document in group) >= CHUNKS_TOGETHER:
                self._store(theirs, target, group, report, dry_run)
                group = []
                say(report)
        if group:
            self._store(theirs, target, group, report, dry_run)
        if target.notice and report.added > added_before:
            report.note(target.notice)
        return target

    def _take_vectors(
        self, theirs: apsw.Connection, target: _Target, incoming: Incoming, source_id: int, report: MergeReport,
        dry_run: bool,
    ) -> None:  # fmt: skip
        """Give the passages of a document that wait for their vectors those that the other file has of equal ones."""
        reused = _reused(theirs, target, incoming)
        if not reused:
            return
        with self._database.read() if dry_run else self._database.write() as connection:
            vectors = _by_chunk(connection, source_id, reused)
            sql = "select model_id from collections where name = ?"
            model_id = fetch_one(connection, sql, (target.name,)) or 0
            lacking = passages_of(connection, model_id, [source_id], MOST_CHUNKS)
            passages = [passage for passage in lacking if passage.chunk_id in vectors]
            if not dry_run:
                model_id = self._model(connection, ensure_collection(connection, target.name), report)
                if model_id is None:
                    return
                passages = write_batch(connection, model_id, passages, vectors)
        report.vectors_reused += len(passages)

    def _target(self, theirs: apsw.Connection, collection: Collection, report: MergeReport) -> _Target:
        """Return what happens to the vectors: they are those of the model in use here, or others are made."""
        sql = "select fingerprint, name, dimension from models where id = ?"
        fingerprint, model_name, dimension = fetch_one(theirs, sql, (collection.model_id,)) or (None, "", 0)
        with self._database.read() as connection:
            bound = fetch_one(
                connection,
                "select fingerprint from collections join models on models.id = model_id where collections.name = ?",
                (collection.name,),
            )
        # A collection without a vector yet needs them made too; one without documents needs no model.
        live = "select 1 from sources where collection_id = ? and trashed_at is null limit 1"
        used = self._used(report) if fetch_one(theirs, live, (collection.id,)) else None
        ours, notice = bound or used, ""
        if fingerprint is not None and ours is not None and fingerprint != ours:
            then = "they are made again" if used == ours else "others wait for that model"
            notice = f"Vectors of '{model_name}' are not those of the model of '{collection.name}' here; {then}."
        return _Target(
            collection.name, collection.description, collection.model_id, dimension,
            reuses=fingerprint is not None and fingerprint == ours, embeds=used is not None and used == ours,
            notice=notice,
        )  # fmt: skip

    def _used(self, report: MergeReport) -> str | None:
        try:
            return self._embedder.get().identity.fingerprint
        except LocalMCPError as error:
            report.note(f"Without vectors for now: {error.message}")
            return None

    def _is_new(self, incoming: Incoming, own: _OwnContents, report: MergeReport) -> bool:
        """Return whether the content is not here yet; another of the same place or title is a conflict."""
        draft = incoming.draft
        if own.has(draft):
            report.known += 1
            return False
        if same := own.namesake(draft):
            outcome = f"other content than {same}; both are kept"
            report.add_conflict(Conflict("document", draft.uri or draft.title, outcome))
        own.note(draft)
        return True

    def _store(
        self, theirs: apsw.Connection, target: _Target, group: Sequence[Incoming], report: MergeReport, dry_run: bool
    ) -> None:
        """Store documents in one transaction; the vectors that they do not bring are made later."""
        reused = [_reused(theirs, target, incoming) for incoming in group]
        if not dry_run:
            with self._database.write() as connection:
                for document, of_document in zip(group, reused, strict=True):
                    self._put(connection, target, document, of_document, report)
        report.added += len(group)
        for document, of_document in zip(group, reused, strict=True):
            without = [chunk for chunk in document.draft.chunks if chunk.digest not in of_document]
            report.chunks += len(document.chunk_ids)
            report.vectors_reused += len(document.chunk_ids) - len(without)
            report.vectors_missing += sum(chunk.kind != WORD_ONLY for chunk in without)

    def _make_vectors(self, collections: Sequence[str], report: MergeReport) -> None:
        """Make the vectors that the other file did not bring, its own queue among them, and weigh them."""
        if not collections:
            return
        with self._database.read() as connection:
            # One that brought no document was not made here.
            names = {name.casefold() for name in collections}
            visible = visible_collections(connection)
            ids = [collection.id for collection in visible if collection.name.casefold() in names]
            missing = waiting(connection, ids).passages
        try:
            if missing:
                QueueWorker(self._database, self._embedder.get()).run(ids)
            adapt_weights(self._database, self._embedder.get())
        except LocalMCPError as error:
            report.note(f"Without vectors for now: {error.message}")
        with self._database.read() as connection:
            report.vectors_made = missing - waiting(connection, ids).passages
        report.vectors_missing = max(report.vectors_missing - report.vectors_made, 0)

    def _put(
        self, connection: apsw.Connection, target: _Target, incoming: Incoming, reused: dict[bytes, bytes],
        report: MergeReport,
    ) -> None:  # fmt: skip
        collection = ensure_collection(connection, target.name)
        if target.description and not collection.description:
            sql = "update collections set description = ? where id = ?"
            connection.execute(sql, (target.description, collection.id))
        model_id = self._model(connection, collection, report) if reused else None
        draft = replace(
            incoming.draft,
            collection_id=collection.id,
            partition_id=ensure_partition(connection, collection, incoming.partition),
            uri=_free_uri(connection, collection.id, incoming.draft.uri),
        )
        put_source(connection, draft, reused if model_id is not None else {}, model_id)

    def _model(self, connection: apsw.Connection, collection: Collection, report: MergeReport) -> int | None:
        """Return the model of the collection, which is bound to it if it was not."""
        if collection.model_id is not None:
            return collection.model_id
        model_id = ensure_model(connection, self._embedder.get().identity)
        try:
            return claim_collection(connection, collection, model_id).model_id
        except ModelMismatch as error:
            report.note(error.message)
            return None

    # ------------------------------------------------------------ quick starts and rules

    def _merge_quickstarts(self, theirs: apsw.Connection, report: MergeReport, dry_run: bool) -> None:
        missing: list[dict[str, Any]] = []
        sql = "select name, content from quickstarts where deleted_at is null order by id"
        for name, content in theirs.execute(sql):
            if len(content) > LONGEST_QUICKSTART:
                report.skip(f"quick start {name[:80]} is too long")
                continue
            with self._database.read() as connection:
                own = fetch_one(
                    connection, "select content from quickstarts where name = ? and deleted_at is null", (name,)
                )
            if own is None:
                missing.append({"name": name, "content": _json(content)})
            elif _json(own) == _json(content):
                report.quickstarts_known += 1
            else:
                report.add_conflict(Conflict("quick start", str(name)[:100], "yours differs and is kept"))
        report.quickstarts_added += len(missing)
        self._import("importQuickstarts", [] if dry_run else missing, report)

    def _merge_rules(self, theirs: apsw.Connection, report: MergeReport, dry_run: bool) -> None:
        columns = ("rule_text", "category", "context", "project", "globs", "always_apply", "weight")
        sql = """
            select rule_text, category, context, project, globs, always_apply, relevance_score from rules
            where retired_at is null order by id
        """
        missing: list[dict[str, Any]] = []
        for row in theirs.execute(sql):
            rule: dict[str, Any] = dict(zip(columns, row, strict=True))
            rule |= {"globs": _json(rule["globs"]), "always_apply": bool(rule["always_apply"])}
            if any(
                len(str(rule[name] or "")) > LONGEST_RULE for name in ("rule_text", "context", "project", "category")
            ):
                report.skip("a rule is too long to be one")
                continue
            own = self._own_rule(rule)
            if own is None:
                missing.append(rule)
                continue
            report.rules_known += 1
            if own != (rule["category"], rule["context"]):
                outcome = "yours has another category or context, and is kept"
                report.add_conflict(Conflict("rule", str(rule["rule_text"])[:80], outcome))
        report.rules_added += len(missing)
        self._import("importRules", [] if dry_run else missing, report)

    def _own_rule(self, rule: dict[str, Any]) -> tuple[str, str] | None:
        sql = "select category, context from rules where rule_text = ? and project is ? and retired_at is null limit 1"
        with self._database.read() as connection:
            return fetch_one(connection, sql, (rule["rule_text"], rule["project"]))

    def _import(self, tool: str, rows: Sequence[dict[str, Any]], report: MergeReport) -> None:
        """Hand rows to the tool that checks and stores them."""
        for start in range(0, len(rows), ROWS_TOGETHER):
            lines = [json.dumps(row, ensure_ascii=False, default=str) for row in rows[start : start + ROWS_TOGETHER]]
            answer = self._call(tool, {"text": "\n".join(lines), "format": "jsonl"}).value
            for skipped in answer.get("skipped", ()):
                report.skip(f"{tool}: {skipped['problem']}")


# ---------------------------------------------------------------- helpers of one document


def _by_chunk(connection: apsw.Connection, source_id: int, vectors: Mapping[bytes, bytes]) -> dict[int, bytes]:
    """Return vectors that are known by the digests of a document's chunks by the ids of its chunks."""
    rows = fetch_all(connection, "select id, digest from chunks where source_id = ?", (source_id,)) if vectors else []
    return {chunk_id: vectors[digest] for chunk_id, digest in rows if digest in vectors}


def _reused(theirs: apsw.Connection, target: _Target, incoming: Incoming) -> dict[bytes, bytes]:
    """Return what can be used here."""
    if not target.reuses:
        return {}
    vectors_by_digest: dict[bytes, bytes] = {}
    for chunk_id, chunk in zip(incoming.chunk_ids, incoming.draft.chunks, strict=True):
        key = (target.their_model or 0) << VECTOR_ID_BITS | chunk_id
        vector = fetch_one(theirs, "select embedding from vectors where id = ?", (key,))
        if is_unit_vector(vector, target.dimension):
            vectors_by_digest[chunk.digest] = vector
    return vectors_by_digest


def _free_uri(connection: apsw.Connection, collection_id: int, uri: str | None) -> str | None:
    """Return the place, with a number before it if another document of the collection has it."""
    if uri is None:
        return None
    sql = "select 1 from sources where collection_id = ? and uri = ? and trashed_at is null"
    places = (f"{number}/{uri}" if number > 1 else uri for number in range(1, 10_000))
    return next((candidate for candidate in places if not fetch_one(connection, sql, (collection_id, candidate))), None)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}


# ---------------------------------------------------------------- what you have


@dataclass(slots=True)
class _OwnContents:
    """Contents, places and titles of your collection, with which incoming documents are compared."""

    contents: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    places: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """File name -> places, with slashes."""
    titles: dict[str, bool] = field(default_factory=dict[str, bool])
    """Title -> whether a document of that title has no place."""
    waiting: dict[tuple[str, str], list[int]] = field(default_factory=dict[tuple[str, str], list[int]])
    """Content -> ids of the documents whose passages wait for their vectors."""

    @classmethod
    def of(cls, connection: apsw.Connection, collection: str) -> _OwnContents:
        """Return what is in the collection of that name; nothing if there is none."""
        own = cls()
        waits = "exists (select 1 from vector_queue where source_id = sources.id)"
        sql = f"""
            select sha256, iif(format = ?, sources.metadata, ''), uri, title, sources.id,
                {waits}
            from sources join collections on collections.id = collection_id where name = ? and trashed_at is null
        """
        for sha256, metadata, uri, title, source_id, waits in fetch_all(connection, sql, (FORMAT, collection)):
            own._add(sha256, metadata, uri, title)
            if waits:
                own.waiting.setdefault((sha256, metadata), []).append(source_id)
        return own

    def has(self, draft: SourceDraft) -> bool:
        """Return whether the same content is there; of records, which share texts, with the same metadata."""
        return (draft.sha256, _record_metadata(draft)) in self.contents

    def waiting_for(self, draft: SourceDraft) -> list[int]:
        """Return documents of the same content that wait for vectors; once, since equal ones may come twice."""
        return self.waiting.pop((draft.sha256, _record_metadata(draft)), [])

    def namesake(self, draft: SourceDraft) -> str | None:
        """Return a document of the same place, or of the same title where one of the two has no place."""
        if draft.uri is not None:
            incoming_place = draft.uri.replace("\\", "/")
            for place in self.places.get(_name_in(incoming_place), ()):
                if place == incoming_place or place.endswith(f"/{incoming_place}"):
                    return place
        if draft.title in self.titles and (draft.uri is None or self.titles[draft.title]):
            return f"'{draft.title}'"
        return None

    def note(self, draft: SourceDraft) -> None:
        """Count an incoming document among them."""
        self._add(draft.sha256, _record_metadata(draft), draft.uri, draft.title)

    def _add(self, sha256: str, metadata_text: str, uri: str | None, title: str) -> None:
        self.contents.add((sha256, metadata_text))
        self.titles[title] = self.titles.get(title, False) or uri is None
        if uri is not None:
            place = uri.replace("\\", "/")
            self.places.setdefault(_name_in(place), []).append(place)


def _record_metadata(draft: SourceDraft) -> str:
    return json.dumps(draft.metadata, ensure_ascii=False) if draft.format == FORMAT else ""


def _name_in(place: str) -> str:
    return place.rpartition("/")[2]
