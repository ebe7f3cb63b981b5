"""Passages found by the words that mean nearly what those of the question do, in any language.

The vector of a passage says little of a fact in the middle of a letter about several subjects. A question that has the
letter's words finds it by keyword; one in other words, or another language, by what the model says of each word.
(Right document among the first three of three mixed libraries, without and with it: `--sixth` .571 and .726,
`--seventh` .486 and .557, `--eighth` .357 and .429.)
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import apsw

from localmcp.arrays import Vector, np
from localmcp.index.vector import Block, nearest_codes
from localmcp.models import Embedder
from localmcp.models.word_outputs import WORD_CODE_BYTES, WordCode
from localmcp.storage.database import fetch_all, fetch_column
from localmcp.wording.normalize import is_function_word, runs, stem, words_of_run

NEAREST = 30
"""Words of the file that may stand for one of the question."""
MOST_PASSAGES = 400
"""A word in more passages says little."""
MOST_WORDS = 24
"""Words of a question that are looked up."""
_IS_INDEXED = """
    exists (select 1 from collections cross join terms on terms.collection_id = collections.id and term = {word})
"""
_IS_CODE = f"typeof(code) = 'blob' and length(code) = {WORD_CODE_BYTES} and typeof(word) = 'text'"
"""A file from somewhere else may hold anything there."""


@runtime_checkable
class WordReader(Protocol):
    """A model that says something of each word of a text."""

    def read_words(self, texts: Sequence[str]) -> list[list[WordCode]]:
        """Return the words of passages, with the signs of their vectors."""
        ...

    def question_words(self, text: str) -> list[tuple[str, Vector]]:
        """Return the words of a question, with unit vectors to compare with the codes of passages' words."""
        ...


def words_of(embedder: Embedder, texts: Sequence[str]) -> list[list[WordCode]]:
    """Return the words of passages, if the model knows them."""
    return embedder.read_words(texts) if isinstance(embedder, WordReader) else [[] for _ in texts]


def index_words(language: str, words: Sequence[WordCode]) -> list[WordCode]:
    """Return the codes of a text's words by the stems under which the keyword index has them."""
    codes: dict[str, bytes] = {}
    for word, code in words:
        if stemmed := indexed_word(word, language):
            codes.setdefault(stemmed, code)
    return list(codes.items())


def indexed_word(word: str, language: str | None) -> str | None:
    """Return the stem by which the keyword index finds a word; None for one that says nothing, or for several."""
    parts = runs(word)
    folded = next(iter(words_of_run(parts[0])), "") if len(parts) == 1 else ""
    is_content = len(folded) > 1 and not is_function_word(folded, (language,) if language else ())
    return stem(folded, language) if is_content else None


def keep_words(connection: apsw.Connection, model_id: int, words: Mapping[str, bytes]) -> None:
    """Store the codes of words of passages that have none yet. Part of the caller's write transaction."""
    sql = f"""
        insert or ignore into word_vectors (model_id, word, code)
        select ?1, ?2, ?3 where {_IS_INDEXED.format(word="?2")}
    """
    connection.executemany(sql, ((model_id, word, words[word]) for word in sorted(words)))


def read_words(connection: apsw.Connection, model_id: int) -> list[tuple[str, bytes]]:
    """Return the words of a file, which may be somebody else's, with their codes."""
    return fetch_all(connection, f"select word, code from word_vectors where model_id = ? and {_IS_CODE}", (model_id,))


def forget_words(connection: apsw.Connection, words: Iterable[str]) -> None:
    """Delete the codes of those words that are in no passage any more. Part of the caller's write transaction."""
    # Every model by name: by the word alone, SQLite would read the whole table for each one.
    is_one = "model_id in (select id from models) and word = ?1"
    sql = f"delete from word_vectors where {is_one} and not {_IS_INDEXED.format(word='?1')}"
    connection.executemany(sql, ((word,) for word in words))


UNUSED_WORDS = f"delete from word_vectors where not {_IS_INDEXED.format(word='word')}"
"""SQL that deletes the codes of all words that are in no passage."""


class WordIndex:
    """The codes of one model's words in memory. Thread-safe."""

    def __init__(self, model_id: int) -> None:
        self._model_id = model_id
        self._lock = threading.Lock()
        self._generation = -1
        self._codes: tuple[Block, ...] = ()

    def sums(
        self, connection: apsw.Connection, generation: int, question: Sequence[tuple[str, Vector]],
        language: str | None, total: int,
    ) -> dict[int, float]:  # fmt: skip
        """Return chunk id -> the sum, over the words of the question, of its best likeness, squared, times rarity.

        `question`: its words, which are in `language`, with their vectors. `total`: passages that are searched. The
        square lets one translation count more than several words of a like kind.
        """
        codes = self._read(connection, generation)
        vectors = [vector for word, vector in question if indexed_word(word, language)][:MOST_WORDS]
        near = [nearest_codes(codes, vector, NEAREST) for vector in vectors]
        passages = _passages(connection, {word_id for ids, _ in near for word_id in ids.tolist()})
        sums: dict[int, float] = {}
        for ids, likenesses in near:
            best: dict[int, float] = {}
            for word_id, likeness in zip(ids.tolist(), likenesses.tolist(), strict=True):
                chunk_ids = passages.get(word_id, ())
                value = likeness**2 * math.log(1 + total / len(chunk_ids)) if chunk_ids else 0.0
                for chunk_id in chunk_ids:
                    best[chunk_id] = max(best.get(chunk_id, 0.0), value)
            for chunk_id, value in best.items():
                sums[chunk_id] = sums.get(chunk_id, 0.0) + value
        return sums

    def _read(self, connection: apsw.Connection, generation: int) -> tuple[Block, ...]:
        with self._lock:
            if generation != self._generation:
                sql = f"select id, code from word_vectors where model_id = ? and {_IS_CODE} order by id"
                rows = fetch_all(connection, sql, (self._model_id,))
                ids = np.array([row[0] for row in rows], dtype=np.int64)
                bits = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.uint64).reshape(len(ids), -1)
                self._codes = (Block((), ids, ids, np.ascontiguousarray(bits.T)),) if rows else ()
                self._generation = generation
            return self._codes


def _passages(connection: apsw.Connection, word_ids: Iterable[int]) -> dict[int, list[int]]:
    """Return word id -> the passages that hold it, of words that are not in many."""
    sql = "select id, word from word_vectors where id in (select value from carray(?))"
    words = fetch_all(connection, sql, (apsw.carray(array("q", word_ids)),)) if word_ids else []
    sql = f"select rowid from chunks_fts where chunks_fts match ? limit {MOST_PASSAGES + 1}"
    chunk_ids_by_word = {
        word_id: fetch_column(connection, sql, (f'"{word.replace(chr(34), "")}"',)) for word_id, word in words
    }
    return {word_id: chunk_ids for word_id, chunk_ids in chunk_ids_by_word.items() if len(chunk_ids) <= MOST_PASSAGES}
