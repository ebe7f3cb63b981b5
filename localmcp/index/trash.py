"""Overwritten documents and records, dropped collections and partitions: kept whole, and brought back."""

from __future__ import annotations

import json
from typing import Any

import apsw

from localmcp.errors import InvalidInput
from localmcp.humanize import command_line
from localmcp.index.collections import Collection, checked_collection_name, ensure_partition
from localmcp.index.drafts import ChunkDraft, SourceDraft
from localmcp.index.records import FORMAT
from localmcp.index.sources import put_source, restore_source, trash_sources
from localmcp.index.vector_queue import requeue_collection
from localmcp.storage.database import bump_generations, fetch_all, fetch_column, fetch_one
from localmcp.storage.times import utc_now
from localmcp.storage.trash import TrashEntry, put_into_trash, read_trashed

DROPPED = "dropped"
"""The `kind` of a collection that is in the trash: with its documents it is there, and nobody sees it."""

_SOURCE = (
    "collection_id", "title", "source_type", "format", "uri", "sha256", "size", "mtime_ns", "language",
)  # fmt: skip
_CHUNK = ("start", "stop", "text", "headings", "first_line", "last_line", "first_page", "last_page")


def keep_version(connection: apsw.Connection, source_id: int) -> None:
    """Put a copy of a document or record into the trash before it is overwritten. Part of the write transaction."""
    columns = (*_SOURCE, "uuid", "metadata")
    sql = f"""
        select {", ".join(f"sources.{name}" for name in columns)}, collections.name, partitions.name from sources
        join collections on collections.id = sources.collection_id
        left join partitions on partitions.id = partition_id where sources.id = ?
    """
    [row] = fetch_all(connection, sql, (source_id,))
    source = dict(zip((*columns, "collection", "partition"), row, strict=True))
    sql = f"""
        select {", ".join(_CHUNK)}, groups.language, groups.kind, hex(digest), chunks.id, hex(uuid) from chunks
        join groups on groups.id = group_id where source_id = ? order by position
    """
    chunks = [list(chunk) for chunk in fetch_all(connection, sql, (source_id,))]
    kind = "record" if source["format"] == FORMAT else "document"
    put_into_trash(connection, kind, source["title"], {"source": source, "chunks": chunks}, source["collection"])


def restore_version(connection: apsw.Connection, entry: TrashEntry) -> int:
    """Bring an overwritten document or record back under its id; what is there now goes into the trash.

    Returns the id of the source, whose changed passages wait for their vectors. Part of the write transaction.

    Raises:
        InvalidInput: its collection is gone.
    """
    content = read_trashed(connection, entry)
    source, chunks = content["source"], content["chunks"]
    sql = "select id, name, description, model_id from collections where id = ? and kind = 'documents'"
    row = fetch_all(connection, sql, (source["collection_id"],))
    if not row:
        raise InvalidInput(f"The collection '{entry.collection}' of '{entry.name}' is gone.", hint="Restore it first.")
    current = fetch_one(connection, "select id from sources where uuid = ?", (source["uuid"],))
    sql = "select 1 from sources where uri = ? and collection_id = ? and trashed_at is null"
    if current is None and fetch_one(connection, sql, (source["uri"], source["collection_id"])):
        raise InvalidInput(f"{source['uri']} is in the library again.", hint="Remove that version first.")
    if current is not None and not restore_source(connection, current):
        keep_version(connection, current)
    draft = SourceDraft(
        partition_id=ensure_partition(connection, Collection(*row[0]), source["partition"]),
        metadata=json.loads(source["metadata"]),
        chunks=[_draft(chunk, is_record=len(chunks) == 1) for chunk in chunks],
        **{name: source[name] for name in _SOURCE},
    )
    source_id = put_source(connection, draft, {}, None, replaces=current).source_id
    connection.execute("update sources set uuid = ? where id = ?", (source["uuid"], source_id))
    return source_id


def _draft(chunk: list[Any], *, is_record: bool) -> ChunkDraft:
    start, stop, text, headings, first_line, last_line, first_page, last_page = chunk[:8]
    language, kind, digest, chunk_id, identity = chunk[8:]
    return ChunkDraft(
        start, stop, text, tuple(json.loads(headings)), first_line, last_line, first_page, last_page, language, kind,
        bytes.fromhex(digest),
        identity=(chunk_id, bytes.fromhex(identity)) if is_record else None,
    )  # fmt: skip


def drop_collection(connection: apsw.Connection, collection: Collection) -> None:
    """Put a collection into the trash with everything in it; its name is free again. Part of the transaction."""
    name = f"{collection.name}\x01{utc_now()}"  # No collection that anybody makes has such a name.
    _move_collection(connection, collection.id, DROPPED, name)
    put_into_trash(connection, "collection", collection.name, {"id": collection.id}, collection.name)


def restore_collection(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Bring a dropped collection back with everything in it. Part of the write transaction.

    Raises:
        InvalidInput: there is a collection of that name again.
    """
    if fetch_one(connection, "select 1 from collections where name = ?", (entry.name,)):
        raise InvalidInput(f"There is a collection '{entry.name}' again.", hint="Drop that one first.")
    collection_id = read_trashed(connection, entry)["id"]
    _move_collection(connection, collection_id, "documents", checked_collection_name(entry.name))


def _move_collection(connection: apsw.Connection, collection_id: int, kind: str, name: str) -> None:
    connection.execute("update collections set kind = ?, name = ? where id = ?", (kind, name, collection_id))
    requeue_collection(connection, collection_id)
    bump_generations(connection, "content", "signs")


def drop_partition(connection: apsw.Connection, collection: Collection, partition_id: int) -> None:
    """Put a partition into the trash with its documents. Part of the write transaction.

    Raises:
        InvalidInput: a folder or file was added into it, which the next refresh would bring back.
    """
    sql = "select path from roots where partition_id = ? and kind not like 'removed %' limit 1"
    if path := fetch_one(connection, sql, (partition_id,)):
        raise InvalidInput(
            f"{path} was added into this partition.",
            hint=f"First remove it: {command_line('localmcp', 'remove', path)}",
        )
    now = utc_now()
    sql = "select id from sources where partition_id = ? and trashed_at is null"
    trash_sources(connection, fetch_column(connection, sql, (partition_id,)), now)
    sql = "update partitions set dropped_at = ? where id = ? returning name"
    name = fetch_one(connection, sql, (now, partition_id))
    put_into_trash(connection, "partition", name, {"id": partition_id, "at": now}, collection.name)


def restore_partition(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Bring a dropped partition back with the documents that were removed with it. Part of the transaction."""
    content = read_trashed(connection, entry)
    sql = "select id from sources where partition_id = :id and trashed_at = :at"
    for source_id in fetch_column(connection, sql, content):
        restore_source(connection, source_id)
    connection.execute("update partitions set dropped_at = null where id = ?", (content["id"],))
