"""`localmcp merge`: copy what another file holds into yours; what is there already stays as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import apsw

from localmcp.errors import InvalidInput, LocalMCPError, ModelMismatch
from localmcp.files import expand_home, scratch_folder
from localmcp.index.adaptation import adapt_weights
from localmcp.index.collections import (
    Collection,
    choose_collections,
    claim_collection,
    ensure_collection,
    ensure_model,
    ensure_partition,
)
from localmcp.index.drafts import WORD_ONLY, SourceDraft
from localmcp.index.records import FORMAT
from localmcp.index.sentence_codes import read_sentences
from localmcp.index.sources import put_source
from localmcp.index.vector import Made
from localmcp.index.vector_queue import QueueWorker, waiting
from localmcp.index.word_vectors import keep_words, read_words
from localmcp.models import LazyEmbedder, is_unit_vector
from localmcp.packs.incoming import MOST_SKIPPED, Incoming, read_incoming
from localmcp.storage.adoption import KeptPowers, copy_rows
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
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
    """Passages that are found by words only until their vectors are made."""
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
        if not dry_run:
            self._database.ensure_writable()
        with scratch_folder(self._database.path.parent) as scratch:
            copy_rows(path, scratch / "theirs", KeptPowers())
            other = Database(scratch / "theirs", read_only=True, foreign=True)
            with closing(other), other.read() as theirs:
                chosen = choose_collections(theirs, list(collections) if collections else None)
                for collection in chosen:
                    self._merge_collection(theirs, collection, report, dry_run, say)
                if not collections:
                    self._merge_quickstarts(theirs, report, dry_run)
                    self._merge_rules(theirs, report, dry_run)
        if wait and not dry_run and report.vectors_missing + report.vectors_reused:
            self._make_vectors([collection.name for collection in chosen], report)
        return report

    # ------------------------------------------------------------ documents

    def _merge_collection(
        self, theirs: apsw.Connection, collection: Collection, report: MergeReport, dry_run: bool,
        say: Callable[[MergeReport], None],
    ) -> None:  # fmt: skip
        with self._database.read() as connection:
            own = _OwnContents(connection, collection.name)
        dimension, group, added = self._reused_dimension(theirs, collection, report), list[Incoming](), report.added
        for incoming in read_incoming(theirs, collection.id, report.skipped):
            if not own.add(incoming.draft, report):
                continue
            group.append(incoming)
            if sum(len(document.chunk_ids) for document in group) >= CHUNKS_TOGETHER:
                self._store(theirs, collection, dimension, group, report, dry_run)
                group = []
                say(report)
        self._store(theirs, collection, dimension, group, report, dry_run)
        if dimension and report.added > added and not dry_run:
            with self._database.write() as connection:
                model_id = fetch_one(connection, "select model_id from collections where name = ?", (collection.name,))
                if model_id is not None:
                    keep_words(connection, model_id, dict(read_words(theirs, collection.model_id or 0)))

    def _reused_dimension(self, theirs: apsw.Connection, collection: Collection, report: MergeReport) -> int:
        """Return the length of their vectors if those are of the model that is used here; 0 if others are made."""
        sql = "select fingerprint, name, dimension from models where id = ?"
        fingerprint, model_name, dimension = fetch_one(theirs, sql, (collection.model_id,)) or (None, "", 0)
        live = "select 1 from sources where collection_id = ? and trashed_at is null limit 1"
        if not fetch_one(theirs, live, (collection.id,)):
            return 0
        with self._database.read() as connection:
            sql = "select fingerprint from collections join models on models.id = model_id where collections.name = ?"
            ours = fetch_one(connection, sql, (collection.name,))
        try:
            ours = ours or self._embedder.get().identity.fingerprint
        except LocalMCPError as error:
            report.note(f"Without vectors for now: {error.message}")
        if fingerprint == ours:
            return dimension
        if fingerprint is not None and ours is not None:
            text = f"Vectors of '{model_name}' are not those of the model of '{collection.name}' here"
            report.note(f"{text}; that model makes others.")
        return 0

    def _store(
        self, theirs: apsw.Connection, collection: Collection, dimension: int, group: Sequence[Incoming],
        report: MergeReport, dry_run: bool,
    ) -> None:  # fmt: skip
        """Store documents in one transaction, with the vectors that they bring and that can be used here."""
        brought = [_vectors(theirs, collection.model_id or 0, dimension, incoming) for incoming in group]
        if group and not dry_run:
            with self._database.write() as connection:
                for document, vectors in zip(group, brought, strict=True):
                    self._put(connection, collection, document, vectors, report)
        report.added += len(group)
        for document, vectors in zip(group, brought, strict=True):
            without = [chunk for chunk in document.draft.chunks if chunk.digest not in vectors]
            report.chunks += len(document.chunk_ids)
            report.vectors_reused += len(document.chunk_ids) - len(without)
            report.vectors_missing += sum(chunk.kind != WORD_ONLY for chunk in without)

    def _put(
        self, connection: apsw.Connection, theirs: Collection, incoming: Incoming, vectors: dict[bytes, Made],
        report: MergeReport,
    ) -> None:  # fmt: skip
        collection, model_id = ensure_collection(connection, theirs.name), None
        if theirs.description and not collection.description:
            sql = "update collections set description = ? where id = ?"
            connection.execute(sql, (theirs.description, collection.id))
        if vectors:
            try:
                model_id = collection.model_id or ensure_model(connection, self._embedder.get().identity)
                claim_collection(connection, collection, model_id)
            except ModelMismatch as error:
                report.note(error.message)
                vectors = {}
        draft = replace(
            incoming.draft,
            collection_id=collection.id,
            partition_id=ensure_partition(connection, collection, incoming.partition),
            uri=_free_uri(connection, collection.id, incoming.draft.uri),
        )
        put_source(connection, draft, vectors, model_id)

    def _make_vectors(self, collections: Sequence[str], report: MergeReport) -> None:
        """Make the vectors that the other file did not bring, and weigh all."""
        with self._database.read() as connection:
            names = json.dumps(collections)
            sql = "select id from collections where name collate nocase in (select value from json_each(?))"
            ids = fetch_column(connection, sql, (names,))
            queued = waiting(connection, ids).passages
        try:
            if queued:
                QueueWorker(self._database, self._embedder.get()).run(ids)
            adapt_weights(self._database, self._embedder.get())
        except LocalMCPError as error:
            report.note(f"Without vectors for now: {error.message}")
        with self._database.read() as connection:
            report.vectors_made = queued - waiting(connection, ids).passages
        report.vectors_missing = max(report.vectors_missing - report.vectors_made, 0)

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


def _vectors(theirs: apsw.Connection, model_id: int, dimension: int, incoming: Incoming) -> dict[bytes, Made]:
    """Return digest -> what their model made of the chunk, where it can be used here; nothing with dimension 0."""
    vectors: dict[bytes, Made] = {}
    sentences = read_sentences(theirs, model_id, dimension, incoming.chunk_ids) if dimension else {}
    for chunk_id, chunk in zip(incoming.chunk_ids, incoming.draft.chunks, strict=True) if dimension else ():
        sql = "select embedding from vectors where id = ?"
        vector = fetch_one(theirs, sql, (model_id << VECTOR_ID_BITS | chunk_id,))
        if is_unit_vector(vector, dimension):
            vectors[chunk.digest] = Made(vector, sentences.get(chunk_id, b""))
    return vectors


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


class _OwnContents:
    """Contents, places and titles of your collection, with which incoming documents are compared."""

    def __init__(self, connection: apsw.Connection, collection: str) -> None:
        self._contents: set[tuple[str, str]] = set()
        self._places: dict[str, list[str]] = {}
        """File name -> places, with slashes."""
        self._titles: dict[str, bool] = {}
        """Title -> whether a document of that title has no place."""
        sql = """
            select sha256, iif(format = ?, sources.metadata, ''), uri, title
            from sources join collections on collections.id = collection_id where name = ? and trashed_at is null
        """
        for row in fetch_all(connection, sql, (FORMAT, collection)):
            self._note(*row)

    def add(self, draft: SourceDraft, report: MergeReport) -> bool:
        """Return whether the content is not here yet; another of the same place or title is a conflict."""
        # Records share texts: those with the same metadata are the same.
        metadata = json.dumps(draft.metadata, ensure_ascii=False) if draft.format == FORMAT else ""
        if (draft.sha256, metadata) in self._contents:
            report.known += 1
            return False
        if same := self._namesake(draft):
            outcome = f"other content than {same}; both are kept"
            report.add_conflict(Conflict("document", draft.uri or draft.title, outcome))
        self._note(draft.sha256, metadata, draft.uri, draft.title)
        return True

    def _namesake(self, draft: SourceDraft) -> str | None:
        """Return a document of the same place, or of the same title where one of the two has no place."""
        if draft.uri is not None:
            incoming_place = draft.uri.replace("\\", "/")
            for place in self._places.get(incoming_place.rpartition("/")[2], ()):
                if place == incoming_place or place.endswith(f"/{incoming_place}"):
                    return place
        if draft.title in self._titles and (draft.uri is None or self._titles[draft.title]):
            return f"'{draft.title}'"
        return None

    def _note(self, sha256: str, metadata: str, uri: str | None, title: str) -> None:
        self._contents.add((sha256, metadata))
        self._titles[title] = self._titles.get(title, False) or uri is None
        if uri is not None:
            place = uri.replace("\\", "/")
            self._places.setdefault(place.rpartition("/")[2], []).append(place)
