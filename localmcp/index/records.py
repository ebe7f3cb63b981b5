"""Records: short texts with metadata, each a separate source with one chunk, as vector databases know them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localmcp.errors import InvalidInput
from localmcp.index.drafts import DEFAULT_LANGUAGE, ChunkDraft, SourceDraft, digest_of, draft_chunk, heading_of
from localmcp.index.drafts import FORMAT as FORMAT
from localmcp.index.drafts import Window as Window
from localmcp.readers.chunking import shorten_prefix, split
from localmcp.readers.document import Document
from localmcp.schemas import mapping_of, without_surrogates
from localmcp.wording.languages import detect_language

LONGEST_RECORD = 254
"""Tokens of an embedded text that the default model reads."""
TITLE_CHARACTERS = 80

TITLE_COLUMN = f"iif(sources.format = '{FORMAT}', null, sources.title)"
"""SQL of the title in a chunk's metadata."""


@dataclass(frozen=True, slots=True)
class RecordText:
    """A text and its metadata."""

    text: str
    metadata: Mapping[str, Any]
    partition_id: int | None = None

    @property
    def title(self) -> str:
        """The title that the metadata give, or empty."""
        own_title = self.metadata.get("title")
        return " ".join(own_title.split())[:200] if isinstance(own_title, str) else ""

    @property
    def shown_title(self) -> str:
        """Its title in lists, or the beginning of its text."""
        if self.title:
            return self.title
        line = " ".join(self.text[: 4 * TITLE_CHARACTERS].split())
        return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1].rstrip()}…"

    @property
    def embedded(self) -> str:
        """The text that is embedded: the title, if one is set, then the text."""
        prefix = shorten_prefix(self.title, ())
        return f"{prefix}\n{self.text.strip()}" if prefix else self.text.strip()


def metadata_of(
    metadata_json: str, uri: str | None, title: str, page: int | None, kind: str | None = None
) -> dict[str, Any]:
    """Return the metadata of a chunk: the source's own, and path, title and page where they have no such keys.

    `kind` is the source's format; the made-up title of a record is not told.
    """
    own_metadata = mapping_of(json.loads(metadata_json))
    added = {"path": uri, "title": title if kind != FORMAT else None, "page": page}
    return {**{key: value for key, value in added.items() if value not in (None, "")}, **own_metadata}


def check_metadata(metadata: Mapping[str, Any], place: str = "metadata") -> dict[str, Any]:
    """Return metadata as they can be stored.

    Raises:
        InvalidInput: they are not JSON, or hold text that UTF-8 cannot write.
    """
    try:
        text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{place} cannot be stored as JSON: {error}.") from error
    return json.loads(text)


def clean_text(text: str, place: str = "text") -> str:
    """Return the text as it is stored: no NUL and no half characters.

    Raises:
        InvalidInput: nothing visible is in it.
    """
    cleaned = without_surrogates(text.replace("\0", "\ufffd"))
    if not cleaned.strip():
        raise InvalidInput(f"{place} is {text[:20]!r}, but must contain at least one visible character.")
    return cleaned


# ---------------------------------------------------------------- drafts


def draft_whole(
    record: RecordText, collection_id: int, identity: tuple[int, bytes] | None = None
) -> tuple[SourceDraft, dict[bytes, str]]:
    """Return the source of one chunk that holds the whole text, and digest -> embedded text."""
    language = detect_language(record.text) or DEFAULT_LANGUAGE
    digest = digest_of(language, heading_of(record.shown_title, ()), record.embedded)
    lines = record.text.rstrip().count("\n") + 1
    chunk = ChunkDraft(
        0, len(record.text), record.text, (), 1, lines, None, None, language, "prose", digest, identity
    )  # fmt: skip
    return _source(record, collection_id, language, [chunk]), {digest: record.embedded}


def draft_split(record: RecordText, collection_id: int, window: Window) -> tuple[SourceDraft, dict[bytes, str]]:
    """Return the source of as many chunks as the text needs, and digest -> embedded text."""
    language = detect_language(record.text) or DEFAULT_LANGUAGE
    document = Document(record.title, record.text, FORMAT, "plain", "text")
    chunks = split(document, window.count_tokens, limit=window.limit)
    drafts = [
        draft_chunk(chunk, record.shown_title, record.title, detect_language(chunk.text) or language, chunk.kind)
        for chunk in chunks
    ]
    texts = [chunk.embedded_text(record.title) for chunk in chunks]
    return _source(record, collection_id, language, drafts), {
        draft.digest: text for draft, text in zip(drafts, texts, strict=True)
    }


def _source(record: RecordText, collection_id: int, language: str, chunks: list[ChunkDraft]) -> SourceDraft:
    data = record.text.encode()
    return SourceDraft(
        collection_id=collection_id,
        partition_id=record.partition_id,
        title=record.shown_title,
        source_type="text",
        format=FORMAT,
        uri=None,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        mtime_ns=None,
        language=language,
        metadata=record.metadata,
        chunks=chunks,
    )
