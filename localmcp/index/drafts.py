"""A document or record on its way into the index: its passages, and what the keyword index gets of each.

Records are short texts with metadata, each a separate source with one chunk, as vector databases know them.

Worker processes make drafts, so nothing here opens a database.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from localmcp.errors import InvalidInput
from localmcp.readers.chunking import Chunk, TokenCounter, split
from localmcp.readers.document import Document
from localmcp.schemas import mapping_of
from localmcp.wording.normalize import detect_language, index_runs, indexed_runs, stems, words_of_run

WORD_ONLY = "data"
"""`kind` of passages that are indexed by word only."""
DEFAULT_LANGUAGE = "english"
"""Of a text whose language is undecided."""
FORMAT = "record"
"""`sources.format` of a record: its title, unless the metadata hold one, is the beginning of its text."""


@dataclass(frozen=True, slots=True)
class Window:
    """The text that fits one vector."""

    count_tokens: TokenCounter
    limit: int
    """Tokens, also of models that read more."""


class IndexedWords(NamedTuple):
    """One passage as the keyword index sees it."""

    title: str
    """Stems of the heading, separated by spaces."""
    text: str
    length: int
    """Words of both."""
    distinct: str
    """Each folded surface word of both once, separated by spaces: so they are handed on and counted quickest."""
    terms: str
    """Each stem of both once, separated by spaces."""


class ChunkDraft(NamedTuple):
    """A span of a source that is to be searched; a tuple, which is quickly handed from process to process."""

    start: int
    stop: int
    text: str
    headings: tuple[str, ...]
    first_line: int
    last_line: int
    first_page: int | None
    last_page: int | None
    language: str
    kind: str
    digest: bytes
    """Of all that is embedded and indexed (text, title, headings, language, kind): a chunk of the same source with the
    same digest keeps its id, its vector and its words."""
    identity: tuple[int | None, bytes] | None = None
    """Id and UUID for a chunk that continues one whose text was another; None = new ones."""
    words: IndexedWords | None = None
    """None = not split yet."""


@dataclass(frozen=True, slots=True)
class SourceDraft:
    """A document that is to be stored; its text is its chunks in order."""

    collection_id: int
    partition_id: int | None
    title: str
    source_type: str
    format: str
    uri: str | None
    sha256: str
    size: int
    mtime_ns: int | None
    language: str
    metadata: Mapping[str, Any]
    chunks: Sequence[ChunkDraft]
    date: str = ""
    """When the document says it was written, ISO 8601; "" when it does not say."""
    date_from: str = ""
    """front matter, mail header, document properties, export or time of saving."""
    tables: str | None = None
    """JSON: what is in each table of it; None for none."""


def draft_chunk(
    chunk: Chunk, title: str, embedded_title: str, language: str, kind: str, *, with_words: bool = False
) -> ChunkDraft:
    """Return a chunk as it is stored; its words are split only `with_words`."""
    heading = heading_of(title, chunk.headings)
    place = chunk.start, chunk.stop, chunk.text, chunk.headings
    lines = chunk.first_line, chunk.last_line, chunk.first_page, chunk.last_page
    # The whole heading is in it beside the embedded text, whose headings may be cut: words are counted out of the index
    # under the headings that are stored.
    parts = (language, kind, heading, chunk.whole_text(embedded_title))
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).digest()
    words = index_words(heading, chunk.text, language) if with_words else None
    return ChunkDraft(*place, *lines, language, kind, digest, words=words)


def heading_of(title: str, headings: Sequence[str]) -> str:
    """Return what is in the title column: the title, then the heading path without repeating the title."""
    return "\n".join([title, *(heading for heading in headings if heading != title)])


def index_words(heading: str, text: str, language: str) -> IndexedWords:
    """Return a passage as the keyword index sees it."""
    heading_runs, title = _index_heading(heading, language)
    text_runs = indexed_runs(text)
    body = index_runs(text_runs, language)
    distinct = set(chain.from_iterable(map(words_of_run, heading_runs.union(text_runs))))
    terms = " ".join(set(stems(distinct, language)))
    count = sum(text.count(" ") + 1 for text in (title, body) if text)
    return IndexedWords(title, body, count, " ".join(distinct), terms)


@lru_cache(maxsize=64)
def _index_heading(heading: str, language: str) -> tuple[frozenset[str], str]:
    heading_runs = indexed_runs(heading)  # Many passages share them.
    return frozenset(heading_runs), index_runs(heading_runs, language)


# ---------------------------------------------------------------- records

LONGEST_RECORD = 254
"""Tokens of an embedded text that the default model reads."""
TITLE_CHARACTERS = 80


def metadata_of(
    metadata_json: str, uri: str | None, title: str, page: int | None, source_format: str
) -> dict[str, Any]:
    """Return the metadata of a chunk: the source's own, and path, title and page where they have no such keys."""
    own_metadata = mapping_of(json.loads(metadata_json))
    # The made-up title of a record is not told.
    added = {"path": uri, "title": title if source_format != FORMAT else None, "page": page}
    return {**{key: value for key, value in added.items() if value not in (None, "")}, **own_metadata}


def check_metadata(metadata: Mapping[str, Any], place: str = "metadata") -> dict[str, Any]:
    """Return metadata as stored; InvalidInput if they are not JSON, or hold text that UTF-8 cannot write."""
    try:
        text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{place} cannot be stored as JSON: {error}.") from error
    return json.loads(text)


def draft_record(
    text: str, metadata: Mapping[str, Any], window: Window | None = None
) -> tuple[SourceDraft, dict[bytes, str]]:
    """Return a source, in no collection yet, of one chunk or as many as fit a window, and digest -> embedded text."""
    language, own_title = detect_language(text) or DEFAULT_LANGUAGE, metadata.get("title")
    own_title = " ".join(own_title.split())[:200] if isinstance(own_title, str) else ""
    beginning = " ".join(text[: 4 * TITLE_CHARACTERS].split())
    if len(beginning) > TITLE_CHARACTERS:
        beginning = f"{beginning[: TITLE_CHARACTERS - 1].rstrip()}…"
    title = own_title or beginning
    if window is None:
        lines = text.rstrip().count("\n") + 1
        chunks = [Chunk(0, len(text), text, (), 1, lines, None, None, "prose")]
    else:
        document = Document(own_title, text, FORMAT, "plain", "text")
        chunks = split(document, window.count_tokens, limit=window.limit)
    drafts, texts = list[ChunkDraft](), dict[bytes, str]()
    for chunk in chunks:
        spoken = (window and detect_language(chunk.text)) or language
        drafts.append(draft_chunk(chunk, title, own_title, spoken, chunk.kind))
        texts[drafts[-1].digest] = chunk.embedded_text(own_title)
    content = text.encode()
    sha256, size = hashlib.sha256(content).hexdigest(), len(content)
    return SourceDraft(0, None, title, "text", FORMAT, None, sha256, size, None, language, metadata, drafts), texts
