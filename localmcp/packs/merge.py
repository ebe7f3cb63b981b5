"""`localmcp merge`: copy what another file holds into yours; what is there already stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import apsw

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.files import expand_home, scratch_folder
from localmcp.index import collections as places
from localmcp.index.drafts import DEFAULT_LANGUAGE, FORMAT, WORD_ONLY, ChunkDraft, SourceDraft
from localmcp.index.fusion import adapt_weights
from localmcp.index.multilingual import keep_words, read_sentences, read_words
from localmcp.index.passages import read_metadata, read_texts
from localmcp.index.sources import put_source
from localmcp.index.vector import Made
from localmcp.index.vector_queue import next_passages, waiting, work_off
from localmcp.models.embedder import LazyEmbedder, is_unit_vector
from localmcp.storage.adoption import copy_rows
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import VECTOR_ID_BITS
from localmcp.tools import Answer
from localmcp.wording.normalize import LANGUAGES

CHUNKS_TOGETHER, ROWS_TOGETHER = 200, 20
"""Chunks of one transaction, a longer document excepted; quick starts or rules of one call."""
LONGEST_ROW, LONGEST_TEXT = 200_000, 1_000_000
"""Characters of a quick start or a rule, and of a text of a document."""

Call = Callable[[str, dict[str, Any]], Answer]
"""Runs a tool of your file."""
Incoming = tuple[SourceDraft, str | None, dict[bytes, Made]]
"""A document of the other file, its path that there and not yet in a collection of yours; its partition; its vectors
that can be used here, by digest of the chunk."""


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
    conflicts: list[str] = field(default_factory=list[str])
    """Quick starts of the same name that are not the same: yours are kept."""
    skipped: list[str] = field(default_factory=list[str])
    """What cannot be taken over, and why."""
    notices: list[str] = field(default_factory=list[str])


def _tell(sentences: list[str], sentence: str) -> None:
    # Of a report; once, if there is room for it.
    if sentence not in sentences and len(sentences) < 200:
        sentences.append(sentence)


class Merge:
    """Takes another file into yours, document by document: stopped in the middle, it goes on where it was."""

    def __init__(self, database: Database, embedder: LazyEmbedder, call: Call) -> None:
        self._database, self._embedder, self._call = database, embedder, call
        self._report, self._dry_run = MergeReport(), False

    def run(
        self, path: Path, collections: Sequence[str] | None = None, *, dry_run: bool = False, wait: bool = True,
        say: Callable[[MergeReport], None] = lambda _: None,
    ) -> MergeReport:  # fmt: skip
        """Merge the file at `path`; only those of its collections, if they are named.

        Missing vectors are made at the end, unless `wait` is false: then a program that has the file open makes them.
        InvalidInput if it is your file; NotFound if it has no such collection; FileUnavailable, NotOurFile, FileTooNew
        if a file cannot be opened or written.
        """
        path = expand_home(path).absolute()
        if path.exists() and self._database.path.exists() and path.samefile(self._database.path):
            raise InvalidInput(f"{path} is the file that is open.")
        report, self._dry_run = self._report, dry_run
        if not dry_run:
            self._database.ensure_writable()
        with scratch_folder(self._database.path.parent) as scratch:
            # In a copy of ours types are right, and nothing of another schema is evaluated.
            copy_rows(path, scratch / "theirs")
            other = Database(scratch / "theirs", read_only=True, foreign=True)
            with closing(other), other.read() as theirs:
                chosen = places.choose_collections(theirs, list(collections) if collections else None)
                for collection in chosen:
                    self._merge_collection(theirs, collection, say)
                if not collections:
                    self._merge_guides(theirs)
        if not wait or dry_run or not report.vectors_missing + report.vectors_reused:
            return report
        # What the other file did not bring.
        names = {collection.name.casefold() for collection in chosen}
        with self._database.read() as connection:
            ids = [own.id for own in places.choose_collections(connection, None) if own.name.casefold() in names]
            queued = waiting(connection, ids).passages
        try:
            if queued:
                work_off(self._database, self._embedder.get(), partial(next_passages, collection_ids=ids))
            adapt_weights(self._database, self._embedder.get())
        except LocalMCPError as error:
            _tell(report.notices, f"Without vectors for now: {error.message}")
        with self._database.read() as connection:
            report.vectors_made = queued - waiting(connection, ids).passages
        report.vectors_missing = max(report.vectors_missing - report.vectors_made, 0)
        return report

    def _merge_collection(
        self, theirs: apsw.Connection, collection: places.Collection, say: Callable[[MergeReport], None]
    ) -> None:
        # Those whose content is not here yet, a group in each transaction.
        report = self._report
        sql = """
            select sha256, iif(format = ?, sources.metadata, '')
            from sources join collections on collections.id = collection_id where name = ? and trashed_at is null
        """
        with self._database.read() as connection:
            own_contents = {*fetch_all(connection, sql, (FORMAT, collection.name))}
            sql = "select fingerprint from collections join models on models.id = model_id where collections.name = ?"
            ours: str | None = fetch_one(connection, sql, (collection.name,))
        sql = "select id from sources where collection_id = ? and trashed_at is null order by id"
        source_ids, group = fetch_column(theirs, sql, (collection.id,)), list[Incoming]()
        if not source_ids:
            return
        sql = "select fingerprint, name, dimension from models where id = ?"
        fingerprint, model_name, dimension = fetch_one(theirs, sql, (collection.model_id,)) or (None, "", 0)
        try:
            ours = ours or self._embedder.get().identity.fingerprint
        except LocalMCPError as error:
            _tell(report.notices, f"Without vectors for now: {error.message}")
        if fingerprint != ours:
            dimension = 0  # Others are made.
            if fingerprint is not None and ours is not None:
                text = f"Vectors of '{model_name}' are not those of the model of '{collection.name}' here"
                _tell(report.notices, f"{text}; that model makes others.")
        for number, source_id in enumerate(source_ids, 1):
            try:
                incoming = _read_document(theirs, source_id, collection.model_id or 0, dimension)
            except ValueError as error:
                _tell(report.skipped, f"document {source_id}: {error}")
            else:
                draft = incoming[0]
                # Records share texts: those with the same metadata are the same.
                metadata = json.dumps(draft.metadata, ensure_ascii=False) if draft.format == FORMAT else ""
                if (draft.sha256, metadata) in own_contents:
                    report.known += 1
                else:
                    own_contents.add((draft.sha256, metadata))
                    group.append(incoming)
            is_full = sum(len(draft.chunks) for draft, _, _ in group) >= CHUNKS_TOGETHER
            if group and (is_full or number == len(source_ids)):
                self._store(collection, group)
                group = []
                say(report)
        if report.vectors_reused and not self._dry_run:
            # What their model made of single words.
            with self._database.write() as connection:
                model_id = fetch_one(connection, "select model_id from collections where name = ?", (collection.name,))
                if model_id is not None:
                    keep_words(connection, model_id, dict(read_words(theirs, collection.model_id or 0)))

    def _store(self, theirs: places.Collection, group: Sequence[Incoming]) -> None:
        report, model_id = self._report, None
        for draft, _, vectors in group:
            kinds = [(chunk.kind, chunk.digest in vectors) for chunk in draft.chunks]
            report.chunks += len(kinds)
            report.vectors_reused += sum(has_vector for _, has_vector in kinds)
            report.vectors_missing += sum(not has_vector and kind != WORD_ONLY for kind, has_vector in kinds)
        report.added += len(group)
        if self._dry_run:
            return
        with self._database.write() as connection:
            collection = places.ensure_collection(connection, theirs.name)
            if theirs.description and not collection.description:
                sql = "update collections set description = ? where id = ?"
                connection.execute(sql, (theirs.description, collection.id))
            if any(vectors for _, _, vectors in group):
                model_id = collection.model_id or places.ensure_model(connection, self._embedder.get().identity)
                places.claim_collection(connection, collection, model_id)
            for draft, partition, vectors in group:
                uri = draft.uri
                if uri is not None:
                    is_used = "select 1 from sources where collection_id = ? and uri = ? and trashed_at is null"
                    # With a number before it where another document of the collection has the place.
                    uris = chain([uri], (f"{number}/{uri}" for number in count(2)))
                    uri = next(uri for uri in uris if not fetch_one(connection, is_used, (collection.id, uri)))
                partition_id = places.ensure_partition(connection, collection, partition)
                draft = replace(draft, collection_id=collection.id, partition_id=partition_id, uri=uri)
                put_source(connection, draft, vectors, model_id if vectors else None)

    def _merge_guides(self, theirs: apsw.Connection) -> None:
        # The tools check and store them.
        report, quickstarts, rules = self._report, list[Any](), list[Any]()
        sql_of_quickstarts = "select name, content from quickstarts where deleted_at is null"
        columns = ("rule_text", "project", "category", "context", "globs", "always_apply", "weight")
        sql_of_rules = """
            select rule_text, project, category, context, globs, always_apply, relevance_score from rules
            where retired_at is null order by id
        """
        with self._database.read() as connection:
            own = dict(fetch_all(connection, sql_of_quickstarts))
            own_rules = {(text, project) for text, project, *_ in fetch_all(connection, sql_of_rules)}
        for name, content in theirs.execute(sql_of_quickstarts):
            if name not in own:
                quickstarts.append({"name": name, "content": read_metadata(content)})
            elif read_metadata(own[name]) == read_metadata(content):
                report.quickstarts_known += 1
            else:
                _tell(report.conflicts, f"quick start '{name[:100]}': yours differs and is kept")
        for text, project, *more in theirs.execute(sql_of_rules):
            if (text, project) in own_rules:
                report.rules_known += 1
            else:
                rule = dict(zip(columns, (text, project, *more), strict=True))
                rules.append(rule | {"globs": read_texts(rule["globs"]), "always_apply": rule["always_apply"] == 1})
        report.quickstarts_added += len(quickstarts)
        report.rules_added += len(rules)
        for tool, rows in (("importQuickstarts", quickstarts), ("importRules", rules)):
            for start in range(0, 0 if self._dry_run else len(rows), ROWS_TOGETHER):
                together = rows[start : start + ROWS_TOGETHER]
                lines = [json.dumps(row, ensure_ascii=False, default=str) for row in together]
                short = [line for line in lines if len(line) <= LONGEST_ROW]
                if len(short) < len(lines):
                    _tell(report.skipped, f"{tool}: a row of more than {LONGEST_ROW:,} characters")
                answer = self._call(tool, {"text": "\n".join(short), "format": "jsonl"}).value
                for skipped in answer.get("skipped", ()):
                    _tell(report.skipped, f"{tool}: {skipped['problem']}")


def _read_document(theirs: apsw.Connection, source_id: int, model_id: int, dimension: int) -> Incoming:
    # With the vectors of `model_id`, none if `dimension` is 0. ValueError: it cannot be right.
    sql = """
        select title, source_type, format, uri, sha256, size, language, sources.metadata, partitions.name, tables
        from sources left join partitions on partitions.id = partition_id where sources.id = ?
    """
    row = fetch_one(theirs, sql, (source_id,))
    title, source_type, kind, uri, sha256, size, language, metadata, partition, tables = row
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError("its hash is none")
    sql = """
        select chunks.id, text, headings, first_line, last_line, first_page, last_page, language, kind, digest
        from chunks join groups on groups.id = group_id where source_id = ? order by position
    """
    # The spans of passages are counted again, so that they partition the text.
    start, chunks = 0, dict[int, ChunkDraft]()
    for row in fetch_all(theirs, sql, (source_id,)):
        chunk_id, text, headings, first_line, last_line, first_page, last_page, spoken, chunk_kind, digest = row
        # Passages of one digest are equal; one that is none is made unique.
        key = digest if len(digest) == 16 else chunk_id.to_bytes(16, "big")
        stop = start + len(text)
        chunks[chunk_id] = ChunkDraft(
            start, stop, text, tuple(read_texts(headings)), first_line, last_line, first_page, last_page,
            _language(spoken), "code" if chunk_kind == "code" else "prose", key,
        )  # fmt: skip
        start = stop
    texts = (title, source_type, kind, uri or "", metadata, *(chunk.text for chunk in chunks.values()))
    if max(map(len, texts)) > LONGEST_TEXT:
        raise ValueError(f"a text in it has more than {LONGEST_TEXT:,} characters")
    draft = SourceDraft(
        0, None, title, source_type, kind, uri, sha256, max(size, 0), None, _language(language),
        read_metadata(metadata), [*chunks.values()], tables=tables,
    )  # fmt: skip
    vectors: dict[bytes, Made] = {}
    sentences = read_sentences(theirs, model_id, dimension, list(chunks)) if dimension else {}
    for chunk_id, chunk in chunks.items() if dimension else ():
        sql = "select embedding from vectors where id = ?"
        vector = fetch_one(theirs, sql, (model_id << VECTOR_ID_BITS | chunk_id,))
        if is_unit_vector(vector, dimension):
            vectors[chunk.digest] = Made(vector, sentences.get(chunk_id, b""))
    return draft, partition and partition[:100], vectors


def _language(name: str | None) -> str:
    return name if name in LANGUAGES else DEFAULT_LANGUAGE
