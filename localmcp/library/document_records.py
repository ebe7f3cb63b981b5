"""The answers of the tools that read, list and count documents (S3-5 to S3-8)."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from localmcp.library.citations import Citation, Freshness


class ContextChunk(TypedDict):
    """A chunk near the target (S3-5)."""

    id: str
    content: str
    chunkIndex: int
    isTarget: bool
    relativePosition: int


class ContextResult(TypedDict):
    """The answer of `get_context`."""

    targetChunkId: str
    window: int
    sourceId: str
    sourceTitle: str
    sourceType: str
    chunkTotal: int
    chunksRetrieved: int
    chunks: list[ContextChunk]
    concatenatedContent: str
    citation: Citation
    truncated: NotRequired[bool]
    """Chunks farthest from the target were left out, to keep within maxChars."""
    origin: NotRequired[str]
    signals: NotRequired[list[str]]


class SourceItem(TypedDict):
    """A document as lists show it."""

    id: str
    title: str
    sourceType: str
    metadata: dict[str, Any]
    createdAt: str
    updatedAt: str
    changedAt: str
    """When the file, or the text that was handed over, was last changed."""
    collection: str
    partition: NotRequired[str]
    path: NotRequired[str]
    chunkCount: int
    freshness: Freshness
    origin: NotRequired[str]


class DocumentChunk(TypedDict):
    """A chunk of a whole document."""

    id: str
    content: str
    chunkIndex: int
    chunkTotal: int
    metadata: dict[str, Any]


class DocumentSource(TypedDict):
    """The document itself; `content` is the text of the chunks that are returned, joined exactly."""

    id: str
    title: str
    sourceType: str
    content: str
    metadata: dict[str, Any]
    createdAt: str
    updatedAt: str
    collection: str
    path: NotRequired[str]
    freshness: Freshness
    origin: NotRequired[str]
    signals: NotRequired[list[str]]


class DocumentResult(TypedDict, total=False):
    """The answer of `get_document`: a document, or an error with a hint."""

    source: DocumentSource
    chunks: list[DocumentChunk]
    outline: list[dict[str, Any]]
    startLine: int
    endLine: int
    truncated: bool
    nextOffset: int
    error: str
    sourceId: str
    message: str
    hint: str


class SourcesResult(TypedDict):
    """The answer of `list_sources`."""

    count: int
    total: int
    order: NotRequired[str]
    sources: list[SourceItem]
    notices: NotRequired[list[str]]
    nextOffset: NotRequired[int]


class CollectionStats(TypedDict):
    """One collection in numbers."""

    name: str
    description: str
    sources: int
    chunks: int
    model: str | None


class StatsResult(TypedDict):
    """The answer of `get_stats`."""

    totalSources: int
    totalChunks: int
    chunksWithEmbeddings: int
    chunksWithoutEmbeddings: int
    """Those that wait for one."""
    chunksByWordOnly: int
    """Those that never get one: lock files, minified code, tables of numbers."""
    collections: list[CollectionStats]
    languages: dict[str, int]
    languageNotice: NotRequired[str]
    """Only where the model in use does not know the languages of a good part: what helps."""
    trashedSources: int
    scannedPagesWaiting: NotRequired[int]
    """Pages that text recognition has still to read; left out when there are none."""
    fileBytes: NotRequired[int]
    """Told only to callers who see every collection."""
    mounts: NotRequired[list[dict[str, Any]]]
    """Mounted files: name, sources, chunks, names of collections, and how many quick starts and rules if there are any.
    The totals count your file alone."""
