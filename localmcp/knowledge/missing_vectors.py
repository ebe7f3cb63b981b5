"""Vectors for chunks that were stored without one, because there was no model at the time."""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw

from localmcp.knowledge.indexing import BATCH, Indexer
from localmcp.search.collections import Collection, find_model
from localmcp.search.records import EMBEDDED_TITLE
from localmcp.search.sources import chunks_without_vector
from localmcp.search.vector import vector_id, write_vectors
from localmcp.storage.database import Database, bump_generations, fetch_one
from localmcp.text.chunking import shorten_prefix

AT_ONCE = 10_000
"""Chunks that are looked up together: the look-up reads the index of all chunks."""


def lacks_vectors(database: Database, collection: Collection) -> bool:
    """Whether a collection has chunks without a vector of its model; asks no model."""
    with database.read() as connection:
        return bool(chunks_without_vector(connection, collection.id, collection.model_id or 0, 1))


def fill_vectors(database: Database, indexer: Indexer) -> None:
    """Embed what lacks a vector, in small transactions; stops when the model fails."""
    while indexer.embedder is not None and indexer.can_embed:
        with database.read() as connection:
            model_id = find_model(connection, indexer.embedder.identity) or 0
            pairs = chunks_without_vector(connection, indexer.collection.id, model_id, AT_ONCE)
        if not pairs:
            return
        for start in range(0, len(pairs), BATCH):
            if not _fill(database, indexer, pairs[start : start + BATCH]):
                return


def _fill(database: Database, indexer: Indexer, pairs: Sequence[tuple[int, int]]) -> bool:
    """Embed and write one batch of (chunk id, source id); False when no vector could be made."""
    with database.read() as connection:
        texts = {str(chunk_id).encode(): _embedded_text(connection, chunk_id) for chunk_id, _ in pairs}
        title = _title(connection, pairs[0][1])
    embeddings = indexer.make_vectors({key: text for key, text in texts.items() if text is not None}, title)
    if texts and not embeddings:
        return False
    with database.write() as connection:
        model_id = indexer.claim(connection, bool(embeddings))
        if model_id is None:
            return False
        ready = [
            pair for pair in pairs if str(pair[0]).encode() in embeddings and _still_lacks(connection, model_id, *pair)
        ]
        ids = [chunk_id for chunk_id, _ in ready]
        blobs = [embeddings[str(chunk_id).encode()] for chunk_id in ids]
        write_vectors(connection, model_id, indexer.collection.id, [source for _, source in ready], ids, blobs)
        bump_generations(connection, "signs")
    indexer.run.report.vectors_added += len(ready)
    return True


def _embedded_text(connection: apsw.Connection, chunk_id: int) -> str | None:
    """The text as ingest embeds it; None for a chunk that is gone meanwhile."""
    row = fetch_one(
        connection,
        f"""
        select {EMBEDDED_TITLE}, headings, text from chunks join sources on sources.id = source_id where chunks.id = ?
        """,
        (chunk_id,),
    )
    if row is None:
        return None
    title, headings, text = row
    prefix = shorten_prefix(title, tuple(json.loads(headings)))
    return f"{prefix}\n{text.strip()}" if prefix else text.strip()


def _title(connection: apsw.Connection, source_id: int) -> str:
    return fetch_one(connection, "select title from sources where id = ?", (source_id,)) or ""


def _still_lacks(connection: apsw.Connection, model_id: int, chunk_id: int, source_id: int) -> bool:
    """Looked up again inside the transaction: the chunk may be gone, or have got its vector from another process."""
    sql = """
        select 1 from chunks join sources on sources.id = source_id
        where chunks.id = ? and source_id = ? and trashed_at is null
            and not exists (select 1 from vectors where vectors.id = ?)
    """
    return fetch_one(connection, sql, (chunk_id, source_id, vector_id(model_id, chunk_id))) is not None
