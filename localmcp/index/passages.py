"""Chunks as they are read: text, place, and the source they are in."""

from __future__ import annotations

import json
from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import apsw

from localmcp.index.dates import SOURCE_DATE
from localmcp.schemas import list_of, mapping_of
from localmcp.storage.database import fetch_all, fetch_one


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk with its source; the fields are the columns of the query, in order."""

    chunk_id: int
    chunk_uuid: bytes
    source_id: int
    source_uuid: str
    collection_id: int
    collection: str
    partition: str | None
    title: str
    source_type: str
    uri: str | None
    sha256: str
    size: int
    mtime_ns: int | None
    metadata_json: str
    text: str
    position: int
    chunk_total: int
    start: int
    stop: int
    headings_json: str
    first_line: int
    last_line: int
    first_page: int | None
    last_page: int | None
    language: str
    format: str
    date: str | None
    """Of the document, `2026-03-14 09:30:00` in UTC."""

    @property
    def headings(self) -> list[str]:
        """The heading path, outermost first."""
        return read_texts(self.headings_json)

    @property
    def identity(self) -> Hashable:
        """What is the same for copies of a file: where they are kept, title, bytes, and place in them.

        Texts that come from no file have no copies: each was put in on purpose.
        """
        if self.uri is None:
            return self.chunk_id
        return self.sha256, self.start, self.stop, self.title, self.collection_id, self.partition

    @property
    def metadata(self) -> dict[str, Any]:
        return read_metadata(self.metadata_json)


def read_texts(text: str) -> list[str]:
    """Return a JSON list of texts as stored, such as a heading path; empty for what somebody else wrote there."""
    return [text for text in list_of(_read_json(text)) if isinstance(text, str)]


def read_metadata(text: str) -> dict[str, Any]:
    """Return metadata as stored; empty for what somebody else wrote there."""
    return mapping_of(_read_json(text))


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


_PASSAGE = f"""
    select chunks.id, chunks.uuid, sources.id, sources.uuid, collections.id, collections.name, partitions.name,
        sources.title, source_type, uri, sha256, size, mtime_ns, metadata, chunks.text, position, chunk_count, start,
        stop, headings, first_line, last_line, first_page, last_page, groups.language, sources.format,
        {SOURCE_DATE}
    from chunks
    join sources on sources.id = chunks.source_id
    join collections on collections.id = sources.collection_id
    left join partitions on partitions.id = sources.partition_id
    join groups on groups.id = chunks.group_id
"""


def load_passages(connection: apsw.Connection, chunk_ids: Iterable[int]) -> dict[int, Passage]:
    """Return chunk id -> passage, in the order asked for."""
    ids = array("q", chunk_ids)
    sql = f"{_PASSAGE} where chunks.id in (select value from carray(?))"
    rows = {row[0]: row for row in fetch_all(connection, sql, (apsw.carray(ids),))} if ids else {}
    if any(row[1] is None or row[3] is None for row in rows.values()):
        # Here, where it is told as damage of this file.
        raise TypeError("a passage or a document without an id")
    return {chunk_id: Passage(*rows[chunk_id]) for chunk_id in ids if chunk_id in rows}


def find_passage(connection: apsw.Connection, chunk_uuid: bytes) -> Passage | None:
    """Return the chunk of that UUID, unless its source is in the trash."""
    row = fetch_one(connection, f"{_PASSAGE} where chunks.uuid = ? and trashed_at is null", (chunk_uuid,))
    return Passage(*row) if row else None


def passages_of_source(
    connection: apsw.Connection, source_id: int, first: int = 0, last: int = 1 << 40
) -> list[Passage]:
    """Return the chunks of a source at positions first..last, in order."""
    sql = f"{_PASSAGE} where chunks.source_id = ? and position between ? and ? order by position"
    return [Passage(*row) for row in fetch_all(connection, sql, (source_id, first, last))]
