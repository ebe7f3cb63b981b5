"""Documents and passages as `get_document` and `get_context` answer them."""

from __future__ import annotations

from typing import Any

from localmcp.knowledge.citations import cite
from localmcp.knowledge.document_parts import fitting_entries, fitting_passages, from_offset, outline_of
from localmcp.knowledge.document_records import (
    ContextChunk,
    ContextResult,
    DocumentChunk,
    DocumentResult,
    DocumentSource,
    SourceItem,
)
from localmcp.knowledge.origins import shown_id
from localmcp.search.passages import Passage
from localmcp.text.signals import signals

JOINT = "\n\n---\n\n"


def document_of(item: SourceItem, passages: list[Passage], offset: int, budget: int | None) -> DocumentResult:
    """Return the document from an offset on, as much of it as fits."""
    origin = item.get("origin")
    begun, read = from_offset(passages, offset)
    shown, rest = fitting_passages(begun, budget, read)
    result: DocumentResult = {
        "source": _document_source(item, shown),
        "chunks": [_document_chunk(p, origin) for p in shown],
    }
    if seen := signals(item["title"], *(passage.text for passage in shown)):
        result["source"]["signals"] = seen
    if shown:
        result["startLine"], result["endLine"] = shown[0].first_line, shown[-1].last_line
    result["truncated"] = rest is not None
    if rest is not None:
        result["nextOffset"] = rest
    return result


def document_outline(item: SourceItem, passages: list[Passage], budget: int | None) -> DocumentResult:
    """Return the headings instead of the text."""
    entries = outline_of(passages)
    kept = entries[: fitting_entries(entries, budget)]
    result: DocumentResult = {
        "source": _document_source(item, []),
        "chunks": [],
        "outline": kept,
        "truncated": len(kept) < len(entries),
    }
    if len(kept) < len(entries):
        result["nextOffset"] = entries[len(kept)]["offset"]
    return result


def _document_source(item: SourceItem, shown: list[Passage]) -> DocumentSource:
    source: DocumentSource = {
        "id": item["id"],
        "title": item["title"],
        "sourceType": item["sourceType"],
        "content": "".join(passage.text for passage in shown),
        "metadata": item["metadata"],
        "createdAt": item["createdAt"],
        "updatedAt": item["updatedAt"],
        "collection": item["collection"],
        "freshness": item["freshness"],
    }
    if "path" in item:
        source["path"] = item["path"]
    if "origin" in item:
        source["origin"] = item["origin"]
    return source


def _document_chunk(passage: Passage, origin: str | None) -> DocumentChunk:
    metadata: dict[str, Any] = {
        "start": passage.start,
        "stop": passage.stop,
        "startLine": passage.first_line,
        "endLine": passage.last_line,
        "headings": passage.headings,
    }
    if passage.first_page is not None:
        metadata["page"] = passage.first_page
    return {
        "id": shown_id(passage.chunk_uuid, origin),
        "content": passage.text,
        "chunkIndex": passage.position,
        "chunkTotal": passage.chunk_total,
        "metadata": metadata,
    }


def context_around(target: Passage, around: list[Passage], window: int, origin: str | None) -> ContextResult:
    result: ContextResult = {
        "targetChunkId": shown_id(target.chunk_uuid, origin),
        "window": window,
        "sourceId": shown_id(target.source_uuid, origin),
        "sourceTitle": target.title,
        "sourceType": target.source_type,
        "chunkTotal": target.chunk_total,
        "chunksRetrieved": len(around),
        "chunks": [_context_chunk(passage, target, origin) for passage in around],
        "concatenatedContent": JOINT.join(passage.text.strip() for passage in around),
        "citation": cite(target),
    }
    if origin is not None:
        result["origin"] = origin
    if seen := signals(target.title, *(passage.text for passage in around)):
        result["signals"] = seen
    return result


def _context_chunk(passage: Passage, target: Passage, origin: str | None) -> ContextChunk:
    return {
        "id": shown_id(passage.chunk_uuid, origin),
        "content": passage.text,
        "chunkIndex": passage.position,
        "isTarget": passage.chunk_id == target.chunk_id,
        "relativePosition": passage.position - target.position,
    }
