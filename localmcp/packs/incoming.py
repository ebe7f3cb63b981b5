"""Documents of a file from elsewhere, read as drafts; those that cannot be right are left out.

The rows are a copy of theirs in a schema of ours: types are right, and lengths are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import apsw

from localmcp.index.drafts import ChunkDraft, SourceDraft
from localmcp.index.passages import read_metadata, read_texts
from localmcp.storage.database import fetch_all, fetch_column, fetch_one
from localmcp.wording.languages import LANGUAGES

MOST_CHARACTERS = {"title": 2_000, "place": 4_000, "metadata": 1_000_000, "text": 1_000_000, "type": 100, "format": 100}
MOST_CHUNKS = 200_000
MOST_SKIPPED = 50


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
    row = fetch_one(connection, sql, (source_id,))
    title, source_type, kind, uri, sha256, size, language, metadata, partition = row
    texts = {"title": title, "place": uri, "metadata": metadata, "type": source_type, "format": kind}
    for name, text in texts.items():
        _check_length(name, text or "")
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError("its hash is none")
    chunks, ids = _read_chunks(connection, source_id)
    draft = SourceDraft(
        0, None, title, source_type, kind, uri, sha256, max(size, 0), None, _known(language), read_metadata(metadata),
        chunks,
    )  # fmt: skip
    return Incoming(draft, partition and partition[:100], ids)


def _read_chunks(connection: apsw.Connection, source_id: int) -> tuple[list[ChunkDraft], list[int]]:
    """Return the chunks in order; their spans are counted again, so that they partition the text."""
    sql = """
        select chunks.id, text, headings, first_line, last_line, first_page, last_page, language, kind, digest
        from chunks join groups on groups.id = group_id where source_id = ? order by position limit ?
    """
    chunks: list[ChunkDraft] = []
    ids: list[int] = []
    at = 0
    for chunk_id, text, headings, first_line, last_line, first_page, last_page, language, kind, digest in fetch_all(
        connection, sql, (source_id, MOST_CHUNKS)
    ):
        _check_length("text", text)
        # Chunks of one digest are equal; one that is none is made unique.
        key = digest if len(digest) == 16 else chunk_id.to_bytes(16, "big")
        draft = ChunkDraft(
            at, at + len(text), text, tuple(read_texts(headings)), first_line, last_line, first_page, last_page,
            _known(language), "code" if kind == "code" else "prose", key,
        )  # fmt: skip
        chunks.append(draft)
        ids.append(chunk_id)
        at = draft.stop
    return chunks, ids


def _check_length(name: str, text: str) -> None:
    if len(text) > MOST_CHARACTERS[name]:
        raise ValueError(f"its {name} has {len(text):,} characters; {MOST_CHARACTERS[name]:,} are the most")


def _known(language: str | None) -> str:
    return language if language in LANGUAGES else "english"
