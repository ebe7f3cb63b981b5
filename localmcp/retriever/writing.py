"""Write records into the file: drafts, their vectors, and changes that keep what they do not name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import apsw

from localmcp.embeddings import Embedder
from localmcp.errors import InvalidInput, NotFound
from localmcp.retriever.record_input import Change, NewRecord
from localmcp.search.backend import DEFAULT_PARTITION
from localmcp.search.collections import Collection, ensure_partition
from localmcp.search.drafts import SourceDraft
from localmcp.search.records import (
    FORMAT,
    LONGEST_RECORD,
    RecordText,
    Window,
    check_metadata,
    clean_text,
    draft_split,
    draft_whole,
)
from localmcp.search.replicas import note_source
from localmcp.search.sources import put_source
from localmcp.storage.database import bump_generations, fetch_column, fetch_one
from localmcp.tools import Json, without_none

EMBEDDED_AT_ONCE = 96


@dataclass(frozen=True, slots=True)
class RecordRow:
    """A record as it is in the file."""

    source_id: int
    uuid: bytes
    text: str
    metadata: Mapping[str, Any]
    partition: str | None
    digest: bytes
    chunks: int


def window_of(embedder: Embedder) -> Window:
    return Window(embedder.count_tokens, min(embedder.identity.max_tokens, LONGEST_RECORD))


def draft_new(record: NewRecord, embedder: Embedder, split: bool) -> tuple[SourceDraft, dict[bytes, str]]:
    """Return the source to be, not yet in a collection or partition."""
    window = window_of(embedder)
    text = RecordText(clean_text(record.text, record.place), check_metadata(record.metadata, record.place))
    if split and window.count_tokens(text.embedded) > window.limit:
        return draft_split(text, 0, window)
    check_length(text.embedded, record.place, window)
    return draft_whole(text, 0)


def check_length(embedded: str, place: str, window: Window) -> None:
    tokens = window.count_tokens(embedded)
    if tokens > window.limit:
        raise InvalidInput(
            f"{place} has {tokens} tokens, and one vector stands for {window.limit} at most.",
            hint="Shorten it, or let it be split (split: true, --split).",
        )


def embed_texts(embedder: Embedder, texts: Mapping[bytes, str]) -> dict[bytes, bytes]:
    """Return digest -> float32 vector, little endian."""
    pairs, vectors_by_digest = list(texts.items()), dict[bytes, bytes]()
    for start in range(0, len(pairs), EMBEDDED_AT_ONCE):
        part = pairs[start : start + EMBEDDED_AT_ONCE]
        vectors = embedder.embed_passages([text for _, text in part]).astype("<f4", copy=False)
        vectors_by_digest |= {digest: row.tobytes() for (digest, _), row in zip(part, vectors, strict=True)}
    return vectors_by_digest


def store_record(
    connection: apsw.Connection, target: Collection, record: NewRecord, draft: SourceDraft,
    embeddings: Mapping[bytes, bytes],
) -> list[int]:  # fmt: skip
    name = None if record.partition == DEFAULT_PARTITION else record.partition
    partition_id = ensure_partition(connection, target, name)
    placed = replace(draft, collection_id=target.id, partition_id=partition_id)
    source_id = put_source(connection, placed, embeddings, target.model_id).source_id
    return fetch_column(connection, "select id from chunks where source_id = ? order by position", (source_id,))


def find_record(connection: apsw.Connection, target: Collection, change: Change) -> RecordRow:
    row = fetch_one(
        connection,
        """
        select sources.id, chunks.uuid, chunks.text, metadata, partitions.name, chunks.digest, chunk_count, format,
            title
        from chunks join sources on sources.id = source_id left join partitions on partitions.id = partition_id
        where chunks.id = ? and sources.collection_id = ? and trashed_at is null
        """,
        (change.id, target.id),
    )
    if row is None:
        raise NotFound(f"{change.place}: no record {change.id} in collection '{target.name}'.")
    source_id, uuid, text, metadata, partition, digest, chunks, kind, title = row
    if kind != FORMAT:
        raise InvalidInput(
            f"{change.place}: {change.id} belongs to the document '{title}', not to a record.",
            hint="Change the file and refresh, or use add_document with replace.",
        )
    if chunks > 1 and (change.text is not None or "title" in (change.metadata or {})):
        raise InvalidInput(
            f"{change.place}: {change.id} is one of {chunks} chunks of a text that was split; its text and title stay.",
            hint="Delete it and insert it again.",
        )
    return RecordRow(source_id, uuid, text, json.loads(metadata), partition, digest, chunks)


def _merged(stored: RecordRow, change: Change) -> Json:
    """Return the metadata with the changes; null takes a key away."""
    return without_none({**stored.metadata, **(change.metadata or {})})


def redraft(target: Collection, stored: RecordRow, change: Change) -> tuple[SourceDraft | None, dict[bytes, str]]:
    """Return the record as it is to be; None for a split one, of which only metadata and partition change."""
    if stored.chunks > 1:
        return None, {}
    text = RecordText(stored.text if change.text is None else change.text, _merged(stored, change))
    return draft_whole(text, target.id, (change.id, stored.uuid))


def rewrite_record(
    connection: apsw.Connection, target: Collection, stored: RecordRow, change: Change, draft: SourceDraft | None,
    embeddings: Mapping[bytes, bytes], model_id: int,
) -> None:  # fmt: skip
    name = change.partition or stored.partition
    partition_id = ensure_partition(connection, target, None if name == DEFAULT_PARTITION else name)
    if draft is not None:
        placed = replace(draft, partition_id=partition_id)
        put_source(connection, placed, embeddings, model_id, replaces=stored.source_id)
        return
    metadata = json.dumps(_merged(stored, change), ensure_ascii=False)
    connection.execute(
        "update sources set metadata = ?, partition_id = ? where id = ?", (metadata, partition_id, stored.source_id)
    )
    note_source(connection, stored.source_id)
    bump_generations(connection, "content")
