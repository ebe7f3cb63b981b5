"""From a file to a source that is ready to be stored: read, cut into chunks, each with the text that is embedded."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from localmcp.embeddings import Embedder
from localmcp.errors import LocalMCPError
from localmcp.knowledge.ledger import Entry, Root
from localmcp.knowledge.walk import Found
from localmcp.search.lexicon import heading_of
from localmcp.search.sources import ChunkDraft, SourceDraft
from localmcp.text.chunking import Chunk, TokenCounter, split
from localmcp.text.readers import MAX_BYTES, Document, read_bytes, why_skipped
from localmcp.wording.normalize import detect_language

log = logging.getLogger(__name__)

LONGEST_CHUNK = 254
"""Tokens of an embedded text, also for models that read more: shorter passages answer more exactly."""
DEFAULT_LANGUAGE = "english"
CANNOT_BE_READ = "cannot be read"
"""Begins the reason of a file that the system does not let us read."""

GROUP_CHUNKS, GROUP_FILES, GROUP_SECONDS = 1000, 200, 0.5
"""A transaction holds about so many passages, at most so many files, and what was read in about so long."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task:
    """A file that is to be read."""

    file: Found
    root: Root
    known: Entry | None
    forced: bool = False
    """Store it again even if its bytes are the same: something else was said about it."""


@dataclass(slots=True)
class Reading:
    """What reading a file came to: a `draft`, or `unchanged`, or the reason why not."""

    task: Task
    sha256: str | None = None
    size: int = 0
    mtime_ns: int = 0
    draft: SourceDraft | None = None
    unchanged: bool = False
    skipped: str = ""
    failed: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Chunker:
    """How a text is cut for the model at hand."""

    count_tokens: TokenCounter
    limit: int

    @classmethod
    def fitting(cls, embedder: Embedder | None) -> Chunker:
        """For that model; without one, for an estimate of what the default model would count."""
        if embedder is None:
            return cls(estimate_tokens, LONGEST_CHUNK)
        return cls(embedder.count_tokens, min(embedder.identity.max_tokens, LONGEST_CHUNK))


def estimate_tokens(text: str) -> int:
    """About the WordPieces of a text, rather more than fewer: a third of each word's bytes, and each other sign."""
    return sum(-(-len(part.encode()) // 3) for part in re.findall(r"\w+|[^\w\s]", text))


# ---------------------------------------------------------------- files


def read_file(task: Task, chunker: Chunker, max_bytes: int) -> Reading:
    """Read and cut one file. Never raises: what went wrong is in `skipped` or `failed`."""
    start = time.perf_counter()
    reading = Reading(task, size=task.file.size, mtime_ns=task.file.mtime_ns)
    try:
        _read(reading, chunker, max_bytes)
    except OSError as error:
        reading.failed = f"{CANNOT_BE_READ}: {(error.strerror or str(error)).lower()}"
    except LocalMCPError as error:
        reading.failed = str(error)
    except Exception as error:
        log.exception("%s cannot be indexed", task.file.path)
        reading.failed = f"unexpected {type(error).__name__}: {error}"[:300]
    reading.seconds = time.perf_counter() - start
    return reading


def _read(reading: Reading, chunker: Chunker, max_bytes: int) -> None:
    path = Path(reading.task.file.path)
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        reading.size, reading.mtime_ns = status.st_size, status.st_mtime_ns
        reading.skipped = _why_skipped(path, status.st_size, max_bytes) or ""
        if reading.skipped:
            return
        data = file.read(max_bytes + 1)
    if not data.strip():
        reading.skipped = "only white space"
        return
    reading.sha256 = hashlib.sha256(data).hexdigest()
    known = reading.task.known
    if known and known.status == "indexed" and known.sha256 == reading.sha256 and not reading.task.forced:
        reading.unchanged = True
        return
    document = read_bytes(data, path.name)
    del data
    _draft(reading, document, chunker)


def _why_skipped(path: Path, size: int, max_bytes: int) -> str | None:
    if size > max_bytes:
        return f"larger than {max_bytes // 1_000_000} MB (setting max_file_mb)"
    # A person may allow larger files than the readers' own bound; what they are is then seen while reading.
    return why_skipped(path) if size <= MAX_BYTES else None


def _draft(reading: Reading, document: Document, chunker: Chunker) -> None:
    root = reading.task.root
    reading.draft = draft_source(
        document,
        chunker,
        Origin(
            collection_id=root.collection_id,
            partition_id=root.partition_id,
            uri=reading.task.file.path,
            sha256=reading.sha256 or "",
            size=reading.size,
            mtime_ns=reading.mtime_ns,
            title=root.title,
            source_type=root.source_type,
            metadata=root.metadata,
        ),
    )


def read_groups(tasks: Iterator[Task], chunker: Chunker, max_bytes: int) -> Iterator[list[Reading]]:
    """Readings in groups, each of which is one transaction: of 1000 chunks, or what was read in half a second."""
    group: list[Reading] = []
    chunks, start = 0, time.monotonic()
    for task in tasks:
        reading = read_file(task, chunker, max_bytes)
        group.append(reading)
        chunks += len(reading.draft.chunks) if reading.draft else 0
        if chunks >= GROUP_CHUNKS or len(group) >= GROUP_FILES or time.monotonic() - start > GROUP_SECONDS:
            yield group
            group, chunks, start = [], 0, time.monotonic()
    if group:
        yield group


# ---------------------------------------------------------------- in the background


def until(stop: threading.Event, tasks: Iterable[Task]) -> Iterator[Task]:
    """The tasks, up to the moment when `stop` is set."""
    for task in tasks:
        if stop.is_set():
            return
        yield task


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The items in order, the next one made in a thread while the caller works on this one.

    The thread is a daemon: after Ctrl-C nobody waits for a large file to be read.
    """
    following = _in_thread(items)
    while (item := following.result()) is not None:
        following = _in_thread(items)
        yield item


def _in_thread(items: Iterator[T]) -> Future[T | None]:
    future: Future[T | None] = Future()

    def make() -> None:
        try:
            future.set_result(next(items, None))
        except BaseException as error:
            # Raised again where the result is asked for.
            future.set_exception(error)

    threading.Thread(target=make, name="localmcp-reader", daemon=True).start()
    return future


# ---------------------------------------------------------------- drafts


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document comes from and what the person said about it; None and {} leave the document's own words."""

    collection_id: int
    partition_id: int | None
    uri: str | None
    sha256: str
    size: int
    mtime_ns: int | None = None
    title: str | None = None
    source_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


def draft_source(document: Document, chunker: Chunker, origin: Origin) -> SourceDraft:
    """Return the source to store."""
    title = origin.title or document.title
    language = detect_language(document.text) or DEFAULT_LANGUAGE
    chunks = split(
        document.text,
        markup=document.markup,
        count_tokens=chunker.count_tokens,
        title=title,
        page_starts=document.page_starts,
        row_starts=document.row_starts,
        appendix=document.appendix,
        limit=chunker.limit,
        target=min(200, chunker.limit),
    )
    return SourceDraft(
        collection_id=origin.collection_id,
        partition_id=origin.partition_id,
        title=title,
        source_type=origin.source_type or document.source_type,
        format=document.format,
        uri=origin.uri,
        sha256=origin.sha256,
        size=origin.size,
        mtime_ns=origin.mtime_ns,
        language=language,
        metadata={**document.metadata, **origin.metadata},
        chunks=[_draft_chunk(chunk, title, language) for chunk in chunks],
    )


def _draft_chunk(chunk: Chunk, title: str, document_language: str) -> ChunkDraft:
    language = detect_language(chunk.text) or document_language
    return ChunkDraft(
        start=chunk.start,
        stop=chunk.stop,
        text=chunk.text,
        headings=chunk.headings,
        first_line=chunk.first_line,
        last_line=chunk.last_line,
        first_page=chunk.first_page,
        last_page=chunk.last_page,
        language=language,
        kind=chunk.kind,
        digest=_digest(chunk, title, language),
    )


def _digest(chunk: Chunk, title: str, language: str) -> bytes:
    """16 bytes that are equal when nothing that is embedded or indexed of a chunk differs.

    The whole heading is in it beside the embedded text, whose headings may be cut: words are counted out of the
    index under the headings that are stored.
    """
    parts = [language, chunk.kind, heading_of(title, chunk.headings), chunk.embedded_text(title)]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).digest()
