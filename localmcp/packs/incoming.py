"""Documents of an untrusted file, read as drafts; those that cannot be right are left out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apsw

from localmcp.index.drafts import ChunkDraft, SourceDraft
from localmcp.index.passages import read_metadata, read_texts
from localmcp.storage.database import fetch_all, fetch_column
from localmcp.wording.languages import LANGUAGES

LONGEST_TITLE, LONGEST_PLACE, LONGEST_WORD = 2_000, 4_000, 40
MOST_CHUNKS = 200_000
MOST_SKIPPED = 50
LONGEST_CHUNK = 1_000_000
LONGEST_METADATA = 1_000_000
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Incoming:
    """A document of the other file."""

    draft: SourceDraft
    """Not yet in a collection or partition of yours; its path is that in the other file."""
    partition: str | None
    chunk_ids: list[int]
    """In the other file."""


def read_incoming(connection: apsw.Connection, collection_id: int, skipped: list[str]) -> Iterator[Incoming]:
    """Yield the documents of a collection in the order they came; `skipped` gets those that cannot be used."""
    sql = "select id from sources where collection_id = ? and trashed_at is null order by id"
    for source_id in fetch_column(connection, sql, (collection_id,)):
        try:
            yield _read(connection, source_id)
        except ValueError as error:
            if len(skipped) < MOST_SKIPPED:
                skipped.append(f"document {source_id}: {error}")


def _read(connection: apsw.Connection, source_id: int) -> Incoming:
    sql = """
        select title, source_type, format, uri, sha256, size, language, sources.metadata, partitions.name from sources
        left join partitions on partitions.id = partition_id where sources.id = ?
    """
    title, source_type, kind, uri, sha256, size, language, metadata, partition = fetch_all(
        connection, sql, (source_id,)
    )[0]
    _check_text("title", title, LONGEST_TITLE)
    _check_text("place", uri or "", LONGEST_PLACE)
    _check_text("metadata", metadata, LONGEST_METADATA)
    for name, value in (("type", source_type), ("format", kind), ("partition", partition or "")):
        _check_text(name, value, 100)
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError("its hash is none")
    chunks, ids = _read_chunks(connection, source_id)
    draft = SourceDraft(
        0, None, title, source_type, kind, uri, sha256, max(int(size), 0), None, _language(language),
        read_metadata(metadata), chunks,
    )  # fmt: skip
    return Incoming(draft, partition, ids)


def _read_chunks(connection: apsw.Connection, source_id: int) -> tuple[list[ChunkDraft], list[int]]:
    """Return the chunks in order; their spans are counted again, so that they partition the text."""
    sql = """
        select chunks.id, text, headings, first_line, last_line, first_page, last_page, language, kind, digest
        from chunks join groups on groups.id = group_id where source_id = ? order by position limit ?
    """
    chunks: list[ChunkDraft] = []
    ids: list[int] = []
    at = 0
    for chunk_id, text, headings, *lines, language, kind, digest in connection.execute(sql, (source_id, MOST_CHUNKS)):
        _check_text("text", text, LONGEST_CHUNK)
        first_line, last_line, first_page, last_page = (_number(line) for line in lines)
        draft = ChunkDraft(
            at, at + len(text), text, tuple(read_texts(headings)), first_line or 1, last_line or 1, first_page,
            last_page, _language(language), "code" if kind == "code" else "prose", _digest(digest, chunk_id),
        )  # fmt: skip
        chunks.append(draft)
        ids.append(chunk_id)
        at = draft.stop
    return chunks, ids


def _check_text(name: str, value: Any, most: int) -> None:
    if not isinstance(value, str):
        raise ValueError(f"its {name} is no text")
    if len(value) > most:
        raise ValueError(f"its {name} has {len(value):,} characters; {most:,} are the most")


def _number(value: Any) -> int | None:
    """Return a line or a page."""
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else None


def _language(value: Any) -> str:
    return value if value in LANGUAGES else "english"


def _digest(value: Any, chunk_id: int) -> bytes:
    """Return their digest, by which chunks are equal, or a unique one for a chunk without."""
    return value if isinstance(value, bytes) and len(value) == 16 else hashlib.md5(str(chunk_id).encode()).digest()
