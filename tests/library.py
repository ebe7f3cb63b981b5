"""Sources for tests: cut, embedded and stored as ingest does it, without files and walks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from localmcp.index.collections import claim_collection, ensure_collection, ensure_model, ensure_partition
from localmcp.index.drafts import ChunkDraft, SourceDraft
from localmcp.index.filters import Filters
from localmcp.index.search import Index, SearchOutcome, SearchRequest
from localmcp.index.sources import Indexed, put_source
from localmcp.index.vector import Made
from localmcp.models import Embedder, LazyEmbedder
from localmcp.readers.chunking import Chunk, split
from localmcp.readers.document import Document
from localmcp.storage.database import Database
from localmcp.wording.normalize import detect_language


class Library:
    """Stores texts in a database, and searches them."""

    def __init__(self, database: Database, embedder: Embedder | None) -> None:
        self.database = database
        self.embedder = embedder
        self.index = Index(database, LazyEmbedder(lambda: embedder))  # type: ignore[arg-type,return-value]

    def search(self, text: str, filters: Filters | None = None) -> SearchOutcome:
        """What is found by words."""
        return self.index.search(SearchRequest(text, "keyword", limit=20, filters=filters or Filters()))

    def put(
        self,
        text: str,
        *,
        title: str = "A text",
        collection: str = "default",
        partition: str | None = None,
        uri: str | None = None,
        source_type: str = "docs",
        metadata: Mapping[str, Any] | None = None,
        replaces: int | None = None,
        paragraphs: bool = False,
        language: str | None = None,
    ) -> Indexed:
        """Store a text (or the file at `uri`); with `paragraphs`, each one is a chunk of its own."""
        size, mtime = len(text.encode()), None
        if uri and Path(uri).exists():
            size, mtime = Path(uri).stat().st_size, Path(uri).stat().st_mtime_ns
        pieces = _paragraphs(text) if paragraphs else _split(text, title, self.embedder)
        drafts = [_draft(piece, title, language) for piece in pieces]
        vectors = self._embed(drafts, title)
        with self.database.write() as connection:
            place = ensure_collection(connection, collection)
            model_id = ensure_model(connection, self.embedder.identity) if self.embedder else None
            if model_id is not None:
                place = claim_collection(connection, place, model_id)
            partition_id = ensure_partition(connection, place, partition)
            kind = (title, source_type, "markdown", uri, hashlib.sha256(text.encode()).hexdigest(), size, mtime)
            source = SourceDraft(place.id, partition_id, *kind, language or "english", metadata or {}, drafts)
            return put_source(connection, source, vectors, model_id, replaces)

    def _embed(self, drafts: Sequence[ChunkDraft], title: str) -> dict[bytes, Made]:
        if self.embedder is None or not drafts:
            return {}
        vectors = self.embedder.embed_passages([f"{title}\n{draft.text.strip()}" for draft in drafts])
        return {
            draft.digest: Made(vector.astype("<f4").tobytes()) for draft, vector in zip(drafts, vectors, strict=True)
        }


def _split(text: str, title: str, embedder: Embedder | None) -> list[Chunk]:
    def count(text: str) -> int:
        return embedder.count_tokens(text) if embedder else len(text.split())

    return split(Document(title, text, "markdown", "markdown", "docs"), count)


def _paragraphs(text: str) -> list[Chunk]:
    """Each paragraph with the empty line behind it."""
    pieces, start, line = [], 0, 1
    for part in text.split("\n\n"):
        stop = min(start + len(part) + 2, len(text))
        piece = text[start:stop]
        pieces.append(Chunk(start, stop, piece, (), line, line + part.count("\n"), None, None, "prose"))
        start, line = stop, line + piece.count("\n")
    return [piece for piece in pieces if piece.text]


def _draft(piece: Chunk, title: str, language: str | None) -> ChunkDraft:
    spoken = language or detect_language(piece.text) or "english"
    embedded = f"{spoken}\0{piece.kind}\0{title}\0{piece.headings}\0{piece.text.strip()}"
    digest = hashlib.blake2b(embedded.encode(), digest_size=16).digest()
    return ChunkDraft(*astuple(piece)[:8], spoken, piece.kind, digest)
