"""Chunks as they are read: passages with their source, and what is near to several questions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from localmcp.errors import InvalidInput
from localmcp.index.collections import Collection
from localmcp.index.drafts import FORMAT
from localmcp.index.filters import SOURCE_DATE
from localmcp.readers.chunking import put_below, shorten_prefix, without_addresses
from localmcp.schemas import json_or_none, list_of, mapping_of
from localmcp.storage.database import fetch_all, fetch_one, id_list


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
    kind: str
    digest: bytes
    """Equal passages share one vector."""
    format: str
    date: str | None
    """Of the document, `2026-03-14 09:30:00` in UTC."""

    @property
    def headings(self) -> list[str]:
        """The heading path, outermost first."""
        return read_texts(self.headings_json)

    @property
    def identity(self) -> Hashable:
        """What is the same for copies of a file. Each text that comes from no file was put in on purpose."""
        if self.uri is None:
            return self.chunk_id
        return self.sha256, self.start, self.stop, self.title, self.collection_id, self.partition

    @property
    def metadata(self) -> dict[str, Any]:
        return read_metadata(self.metadata_json)

    @property
    def prose(self) -> str:
        """The passage alone; empty for code, which has no sentences."""
        return "" if self.kind == "code" else without_addresses(self.text.strip())

    @property
    def embedded(self) -> str:
        """What is embedded: title, but the made-up one of a record, and headings, then the passage."""
        is_made_up = self.format == FORMAT and not isinstance(self.metadata.get("title"), str)
        prefix = shorten_prefix("" if is_made_up else self.title, tuple(self.headings))
        return put_below(prefix, without_addresses(self.text.strip()))


def read_texts(text: str) -> list[str]:
    """Return a JSON list of texts as stored, such as a heading path; empty for what somebody else wrote there."""
    return [text for text in list_of(json_or_none(text)) if isinstance(text, str)]


def read_metadata(text: str) -> dict[str, Any]:
    """Return metadata as stored; empty for what somebody else wrote there."""
    return mapping_of(json_or_none(text))


_PASSAGE = f"""
    select chunks.id, chunks.uuid, sources.id, sources.uuid, collections.id, collections.name, partitions.name,
        sources.title, source_type, uri, sha256, size, mtime_ns, metadata, chunks.text, position, chunk_count, start,
        stop, headings, first_line, last_line, first_page, last_page, groups.language, groups.kind,
        digest, sources.format, {SOURCE_DATE}
    from chunks
    join sources on sources.id = chunks.source_id
    join collections on collections.id = sources.collection_id
    left join partitions on partitions.id = sources.partition_id
    join groups on groups.id = chunks.group_id
"""


def load_passages(connection: apsw.Connection, chunk_ids: Iterable[int]) -> dict[int, Passage]:
    """Return chunk id -> passage, in the order asked for."""
    ids = list(chunk_ids)
    sql = f"{_PASSAGE} where chunks.id in (select value from carray(?))"
    rows = {row[0]: row for row in fetch_all(connection, sql, (id_list(ids),))}
    return {chunk_id: _passage(rows[chunk_id]) for chunk_id in ids if chunk_id in rows}


def _passage(row: Sequence[Any]) -> Passage:
    passage = Passage(*row)
    if len(passage.chunk_uuid or b"") != 16 or not passage.source_uuid:
        # Here, where it is told as damage of this file.
        raise TypeError("a passage or a document without an id")
    return passage


def find_passage(connection: apsw.Connection, chunk_uuid: bytes) -> Passage | None:
    """Return the chunk of that UUID, unless its source is in the trash."""
    row = fetch_one(connection, f"{_PASSAGE} where chunks.uuid = ? and trashed_at is null", (chunk_uuid,))
    return _passage(row) if row else None


def passages_of_source(
    connection: apsw.Connection, source_id: int, first: int = 0, last: int = 1 << 40
) -> list[Passage]:
    """Return the chunks of a source at positions first..last, in order."""
    sql = f"{_PASSAGE} where chunks.source_id = ? and position between ? and ? order by position"
    return [_passage(row) for row in fetch_all(connection, sql, (source_id, first, last))]


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk that is near one of the queries."""

    chunk_id: int
    cosine: float
    query: int
    """Index of the query that it is nearest to."""


def best_matches(cosines: Sequence[Mapping[int, float]], k: int) -> list[Match]:
    """Return of each query's chunk -> cosine the k best of all, each chunk once; best first, ties by id."""
    best: dict[int, Match] = {}
    for query, cosine_by_id in enumerate(cosines):
        for chunk_id, cosine in cosine_by_id.items():
            if chunk_id not in best or cosine > best[chunk_id].cosine:
                best[chunk_id] = Match(chunk_id, cosine, query)
    return sorted(best.values(), key=lambda match: (-match.cosine, match.chunk_id))[:k]


def whole_sources(connection: apsw.Connection, collection: Collection, ids: Sequence[int]) -> list[int]:
    """Return ids of the sources that consist of those chunks; InvalidInput if only some of a source's are named."""
    sql = """
        select sources.id, title, chunk_count, count(*) from chunks join sources on sources.id = source_id
        where chunks.id in (select value from carray(:ids)) and collection_id = :collection and trashed_at is null
        group by sources.id
    """
    rows = fetch_all(connection, sql, {"ids": id_list(ids), "collection": collection.id})
    for _, title, total, named in rows:
        if named < total:
            raise InvalidInput(
                f"'{title}' has {total} chunks, and only {named} of them would be deleted.",
                hint="A document is removed as a whole: name all its ids, or use remove_source.",
            )
    return [row[0] for row in rows]
