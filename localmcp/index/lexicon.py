"""The words of the file: rows of the keyword index, and how many chunks hold each word and each stem."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

import apsw

from localmcp.index.drafts import IndexedWords, heading_of, index_words
from localmcp.storage.database import fetch_one

LONGEST_WORD = 32
"""Longer runs of letters are data, not words that somebody misspells."""
WORDS_IN_MEMORY = 32_000_000
"""Bytes of words that FTS5 collects before it writes them."""
FORMAT = "record"
"""`sources.format` of a record: its title, unless the metadata hold one, is the beginning of its text."""
EMBEDDED_TITLE = f"iif(sources.format = '{FORMAT}' and json_type(metadata, '$.title') is not 'text', '', sources.title)"
"""SQL of the title that is embedded with a chunk: the made-up one of a record is not."""


def prepare_for_many(connection: apsw.Connection) -> None:
    """Let a transaction keep its words in memory and write them as one piece: a third less work than a piece a MB.

    Part of the caller's write transaction; the file remembers it.
    """
    if fetch_one(connection, "select v from chunks_fts_config where k = 'hashsize'") != WORDS_IN_MEMORY:
        sql = "insert into chunks_fts (chunks_fts, rank) values ('hashsize', ?)"
        connection.execute(sql, (WORDS_IN_MEMORY,))


def add_to_index(connection: apsw.Connection, collection_id: int, chunk_ids: Iterable[int]) -> None:
    """Index stored chunks for keyword search and count their words. Part of the caller's write transaction."""
    rows = [(chunk_id, _stored_words(connection, chunk_id)) for chunk_id in chunk_ids]
    write_words(connection, collection_id, rows)
    connection.executemany("update chunks set words = ? where id = ?", ((words.length, row) for row, words in rows))


def write_words(connection: apsw.Connection, collection_id: int, rows: Sequence[tuple[int, IndexedWords]]) -> None:
    """Put the words of chunks of a collection into the keyword index, and count them.

    Part of the caller's write transaction.
    """
    sql = "insert into chunks_fts (rowid, title, text) values (?, ?, ?)"
    connection.executemany(sql, [(chunk_id, words.title, words.text) for chunk_id, words in rows])
    _count(connection, collection_id, [words for _, words in rows], 1)


def remove_from_index(connection: apsw.Connection, collection_id: int, chunk_ids: Sequence[int]) -> Iterable[str]:
    """Take stored chunks out of the keyword index and the counts; returns their stems.

    Part of the caller's write transaction.
    """
    passages = [_stored_words(connection, chunk_id) for chunk_id in chunk_ids]
    connection.executemany("delete from chunks_fts where rowid = ?", ((row_id,) for row_id in chunk_ids))
    return _count(connection, collection_id, passages, -1)


def _stored_words(connection: apsw.Connection, chunk_id: int) -> IndexedWords:
    """Return a stored chunk as the keyword index sees it."""
    sql = """
        select sources.title, chunks.headings, chunks.text, groups.language
        from chunks join sources on sources.id = chunks.source_id join groups on groups.id = chunks.group_id
        where chunks.id = ?
    """
    title, headings, text, language = fetch_one(connection, sql, (chunk_id,))
    return index_words(heading_of(title, json.loads(headings)), text, language)


def _count(
    connection: apsw.Connection, collection_id: int, passages: Sequence[IndexedWords], sign: int
) -> Iterable[str]:
    """Count the words to which spelling is corrected, and all stems, in (+1) or out (-1); returns the stems."""
    words = Counter(chain.from_iterable(passage.distinct.split() for passage in passages))
    words = {word: count for word, count in words.items() if word.isalpha() and len(word) <= LONGEST_WORD}
    stems = Counter(chain.from_iterable(passage.terms.split() for passage in passages))
    for table, column, counter in (("words", "word", words), ("terms", "term", stems)):
        # In key order, so that neighboring rows of the B-tree are written together.
        rows = [(collection_id, word, sign * counter[word]) for word in sorted(counter)]
        connection.executemany(
            f"""
            insert into {table} (collection_id, {column}, chunks) values (?, ?, ?)
            on conflict (collection_id, {column}) do update set chunks = chunks + excluded.chunks
            """,
            rows,
        )
        if sign < 0:
            sql = f"delete from {table} where collection_id = ? and {column} = ? and chunks <= 0"
            connection.executemany(sql, (row[:2] for row in rows))
    return stems
