"""Convert chunks of the file to records for Milvus, and back: text, metadata, and position."""

from __future__ import annotations

import json
import uuid
from array import array
from collections.abc import Sequence
from typing import Any, cast

import apsw

from localmcp.arrays import np
from localmcp.index.backend import DEFAULT_PARTITION, Record
from localmcp.index.drafts import ChunkDraft, SourceDraft
from localmcp.index.records import metadata_of
from localmcp.index.vector import Made
from localmcp.schemas import Json
from localmcp.storage.database import fetch_all
from localmcp.storage.schema import VECTOR_ID_BITS

LIVE_CHUNKS = f"""
    from chunks cross join sources on sources.id = chunks.source_id
    cross join vectors on vectors.id = (:model << {VECTOR_ID_BITS} | chunks.id)
    where sources.collection_id = :collection and sources.trashed_at is null
"""
"""The chunks of a collection that a search by meaning may find, with their vectors of one model."""
_CHUNK = ("position", "start", "stop", "headings", "first_line", "last_line", "first_page", "last_page")
_SOURCE = ("title", "source_type", "format", "uri", "sha256", "size", "mtime_ns", "language", "chunk_count", "uuid")

_RECORDS = f"""
    select chunks.id, chunks.text, vectors.embedding, sources.metadata,
        (select name from partitions where partitions.id = sources.partition_id),
        chunks.uuid, chunks.digest,
        (select language from groups where groups.id = group_id), (select kind from groups where groups.id = group_id),
        {", ".join(f"chunks.{name}" for name in _CHUNK)}, {", ".join(f"sources.{name}" for name in _SOURCE)}
    {LIVE_CHUNKS} and chunks.id in (select value from carray(:ids)) order by chunks.id
"""


def load_records(
    connection: apsw.Connection, collection_id: int, model_id: int, chunk_ids: Sequence[int]
) -> list[Record]:
    """Return the chunks of those ids as Milvus is to hold them; those trashed, gone or not embedded are left out."""
    if not chunk_ids:
        return []
    bindings = {"collection": collection_id, "model": model_id, "ids": apsw.carray(array("q", chunk_ids))}
    return [_record(row) for row in fetch_all(connection, _RECORDS, bindings)]


def _record(row: Sequence[Any]) -> Record:
    chunk_id, text, embedding, metadata, partition, chunk_uuid, digest, language, kind, *columns = row
    chunk = dict(zip(_CHUNK, columns, strict=False))
    source = dict(zip(_SOURCE, columns[len(_CHUNK) :], strict=True))
    shown_metadata = metadata_of(metadata, source["uri"], source["title"], chunk["first_page"], source["format"])
    origin: Json = {
        "source": source,
        "chunk": {**chunk, "language": language, "kind": kind, "digest": digest.hex(), "uuid": chunk_uuid.hex()},
        "told": [key for key in shown_metadata if key not in json.loads(metadata)],
    }
    return Record(
        chunk_id, np.frombuffer(embedding, dtype="<f4"), text, shown_metadata, partition or DEFAULT_PARTITION, origin
    )


def is_document(record: Record) -> bool:
    """Return whether the record names the document that it is a chunk of, as localmcp writes it."""
    parts = [(record.origin or {}).get(name) for name in ("source", "chunk")]
    columns = (_SOURCE, (*_CHUNK, "language", "kind", "digest", "uuid"))
    return all(isinstance(part, dict) and part.keys() >= set(keys) for part, keys in zip(parts, columns, strict=True))


def source_of(record: Record) -> Json:
    """Return what the record says of its document."""
    return cast("Json", record.origin)["source"]


def draft_document(
    records: Sequence[Record], collection_id: int, partition_id: int | None, *, ours: bool
) -> tuple[SourceDraft, dict[bytes, Made]]:
    """Return the document whose chunks those records are, and digest -> vector.

    Without `ours` its path may be of another machine, or one that contacts a host when it is looked at: it gets no
    time, and is then never compared with the disk.
    """
    ordered = sorted(records, key=lambda record: _chunk(record)["position"])
    source, metadata = source_of(ordered[0]), _own_metadata(ordered[0])
    chunks = [_draft_chunk(record) for record in ordered]
    embeddings = {
        chunk.digest: Made(np.asarray(record.vector, dtype="<f4").tobytes())
        for chunk, record in zip(chunks, ordered, strict=True)
    }
    columns: Json = {**source, "mtime_ns": source["mtime_ns"] if ours else None}
    columns = {name: columns[name] for name in _SOURCE[:-2]}
    return SourceDraft(collection_id, partition_id, **columns, metadata=metadata, chunks=chunks), embeddings


def _own_metadata(record: Record) -> Json:
    """Return the document's metadata without what was added to every chunk."""
    added_keys = set(cast("Json", record.origin).get("told", ()))
    return {key: value for key, value in record.metadata.items() if key not in added_keys}


def _chunk(record: Record) -> Json:
    return cast("Json", record.origin)["chunk"]


def _draft_chunk(record: Record) -> ChunkDraft:
    chunk = _chunk(record)
    columns = {name: chunk[name] for name in (*_CHUNK[1:], "language", "kind")}
    columns |= {"headings": tuple(json.loads(chunk["headings"])), "digest": bytes.fromhex(chunk["digest"])}
    return ChunkDraft(**columns, text=record.text, identity=(None, uuid.UUID(chunk["uuid"]).bytes))
