"""What is known of words: the keyword index's rows, and how many chunks hold each word and each stem."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import apsw

from localmcp.storage.database import fetch_one
from localmcp.wording.normalize import stems, words

LONGEST_WORD = 32
"""Longer runs of letters are data, not words that somebody misspells."""

FORMAT = "record"
"""`sources.format` of a record: its title, unless the metadata hold one, is the beginning of its text."""
EMBEDDED_TITLE = f"iif(sources.format = '{FORMAT}' and json_type(metadata, '$.title') is not 'text', '', sources.title)"
"""SQL of the title that is embedded with a chunk: the made-up one of a record is not."""


@dataclass(frozen=True, slots=True)
class IndexedText:
    """One chunk as the keyword index sees it."""

    chunk_id: int
    heading: str
    """Title and heading path; weighs twice the text in bm25."""
    text: str
    language: str


@dataclass(slots=True)
class _Counts:
    """Changes of `words` and `terms` within one transaction."""

    words: Counter[str] = field(default_factory=Counter[str])
    terms: Counter[str] = field(default_factory=Counter[str])

    def add(self, surface: Sequence[str], terms: Iterable[str]) -> None:
        self.words.update({word for word in surface if word.isalpha() and len(word) <= LONGEST_WORD})
        self.terms.update(set(terms))


def heading_of(title: str, headings: Sequence[str]) -> str:
    """What stands in the title column: the title, then the heading path without repeating the title."""
    return "\n".join([title, *(heading for heading in headings if heading != title)])


def add_to_index(connection: apsw.Connection, collection_id: int, texts: Iterable[IndexedText]) -> None:
    """Index chunks for keyword search and count their words. Part of the caller's write transaction."""
    counts = _Counts()
    for each in texts:
        heading, text = words(each.heading), words(each.text)
        heading_terms, text_terms = stems(heading, each.language), stems(text, each.language)
        counts.add([*heading, *text], [*heading_terms, *text_terms])
        connection.execute(
            "insert into chunks_fts (rowid, title, text) values (?, ?, ?)",
            (each.chunk_id, " ".join(heading_terms), " ".join(text_terms)),
        )
        connection.execute("update chunks set words = ? where id = ?", (len(heading) + len(text), each.chunk_id))
    _shift(connection, collection_id, counts, 1)


def remove_from_index(connection: apsw.Connection, collection_id: int, chunk_ids: Sequence[int]) -> None:
    """Take stored chunks out of the keyword index and the counts. Part of the caller's write transaction."""
    counts = _Counts()
    for each in indexed_texts(connection, chunk_ids):
        surface = [*words(each.heading), *words(each.text)]
        counts.add(surface, stems(surface, each.language))
    connection.executemany("delete from chunks_fts where rowid = ?", ((each,) for each in chunk_ids))
    _shift(connection, collection_id, counts, -1)


def indexed_texts(connection: apsw.Connection, chunk_ids: Iterable[int]) -> Iterator[IndexedText]:
    """Stored chunks as the keyword index sees them, one at a time."""
    sql = """
        select chunks.id, sources.title, chunks.headings, chunks.text, groups.language
        from chunks join sources on sources.id = chunks.source_id join groups on groups.id = chunks.group_id
        where chunks.id = ?
    """
    for each in chunk_ids:
        chunk_id, title, headings, text, language = fetch_one(connection, sql, (each,))
        yield IndexedText(chunk_id, heading_of(title, json.loads(headings)), text, language)


def _shift(connection: apsw.Connection, collection_id: int, counts: _Counts, sign: int) -> None:
    for table, column, counter in (("words", "word", counts.words), ("terms", "term", counts.terms)):
        # In key order, so that neighbouring rows of the B-tree are written together.
        rows = [(collection_id, word, sign * count) for word, count in sorted(counter.items())]
        connection.executemany(
            f"""
            insert into {table} (collection_id, {column}, chunks) values (?, ?, ?)
            on conflict (collection_id, {column}) do update set chunks = chunks + excluded.chunks
            """,
            rows,
        )
        if sign < 0:
            connection.executemany(
                f"delete from {table} where collection_id = ? and {column} = ? and chunks <= 0",
                (row[:2] for row in rows),
            )
