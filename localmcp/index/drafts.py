"""A document on its way into the index: its passages, and what the keyword index gets of each.

Worker processes make drafts, so nothing here opens a database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from localmcp.readers.chunking import Chunk, TokenCounter
from localmcp.wording.codes import indexed_runs
from localmcp.wording.normalize import index_runs, stems, words_of_run

WORD_ONLY = "data"
"""`kind` of passages that are indexed by word only."""
DEFAULT_LANGUAGE = "english"
"""Of a text whose language is undecided."""
FORMAT = "record"
"""`sources.format` of a record: its title, unless the metadata hold one, is the beginning of its text."""
EMBEDDED_TITLE = f"iif(sources.format = '{FORMAT}' and json_type(metadata, '$.title') is not 'text', '', sources.title)"
"""SQL of the title that is embedded with a chunk: the made-up one of a record is not."""


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
    return ChunkDraft(
        start=chunk.start,
        stop=chunk.stop,
        text=chunk.text,
        headings=chunk.headings,
        first_line=chunk.first_line,
        last_line=chunk.last_line,
        first_page=chunk.first_page,
        last_page=chunk.last_page,
        language=language,
        kind=kind,
        digest=digest_of(language, kind, heading, chunk.whole_text(embedded_title)),
        words=index_words(heading, chunk.text, language) if with_words else None,
    )


def digest_of(*parts: str) -> bytes:
    """Return 16 bytes that are equal when nothing that is embedded or indexed of a chunk differs.

    The whole heading is in it beside the embedded text, whose headings may be cut: words are counted out of the
    index under the headings that are stored.
    """
    # As json.dumps writes a list, which takes longer.
    text = f"[{', '.join(map(encode_basestring_ascii, parts))}]"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


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
    return IndexedWords(title, body, _count(title) + _count(body), " ".join(distinct), terms)


def _count(indexed: str) -> int:
    """Count what is separated by spaces; a run of underscores has no words, and leaves an empty place."""
    uneven = not indexed or "  " in indexed or " " in (indexed[0], indexed[-1])
    return len(indexed.split()) if uneven else indexed.count(" ") + 1


@lru_cache(maxsize=64)
def _index_heading(heading: str, language: str) -> tuple[frozenset[str], str]:
    """Return the runs of a heading, which many passages share, and its stems."""
    heading_runs = indexed_runs(heading)
    return frozenset(heading_runs), index_runs(heading_runs, language)
