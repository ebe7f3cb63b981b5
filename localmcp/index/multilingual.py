"""What the multilingual model says of the sentences and the words of a passage, apart from its one vector.

The vector of a passage about several subjects is near none of them. A question about one of them is also compared with
each sentence (right document among the first three of three mixed libraries, without and with it: `--sixth` .667 and
.726, `--seventh` .486 and .543, `--eighth` .321 and .393). A question in other words, or another language, finds a
passage by words that mean nearly what its own do (the same: .476 and .726, .443 and .543, .321 and .393).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import apsw

from localmcp.arrays import Vector, np
from localmcp.index.keyword import LONGEST, sentences
from localmcp.index.vector import Block, code_words, estimates, nearest_codes, pack_signs
from localmcp.models import Embedder
from localmcp.models.embedder import WORD_CODE_BYTES, WordCode
from localmcp.storage.database import fetch_all, fetch_column, id_list
from localmcp.wording.normalize import is_function_word, runs, stem, words_of_run

if TYPE_CHECKING:
    from localmcp.index.search import Search

LEAST_WORDS, MOST_SENTENCES = 3, 40
"""Shorter sentences say nothing; a passage with more is a list."""
MOST_PASSAGES = 400
"""A word in more passages says little."""
_IS_INDEXED = """
    exists (select 1 from collections cross join terms on terms.collection_id = collections.id and term = {word})
"""
_IS_CODE = f"typeof(code) = 'blob' and length(code) = {WORD_CODE_BYTES} and typeof(word) = 'text'"
"""A file from somewhere else may hold anything there."""


def sentence_codes(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """Return the codes of each text's sentences, one after the other."""
    passages: list[list[str]] = []
    for text in texts:
        parts = (text[start : min(stop, start + LONGEST)] for start, stop in sentences(text))
        long_enough = list(islice((part for part in parts if len(part.split()) >= LEAST_WORDS), MOST_SENTENCES))
        # One sentence says what the passage says.
        passages.append(long_enough if len(long_enough) > 1 else [])
    fresh = list(dict.fromkeys(sentence for passage in passages for sentence in passage))
    codes = dict(zip(fresh, pack_signs(embedder.embed_passages(fresh)), strict=True)) if fresh else {}
    return [b"".join(codes[sentence].tobytes() for sentence in passage) for passage in passages]


def read_sentences(
    connection: apsw.Connection, model_id: int, dimension: int, chunk_ids: Iterable[int]
) -> dict[int, bytes]:
    """Return chunk id -> codes of its sentences, from a file that may be somebody else's."""
    width = 8 * code_words(dimension)
    sql = """
        select value, codes from carray(?) cross join sentence_codes on id = ? << 40 | value
        where length(codes) between ? and ? and length(codes) % ? = 0
    """
    bindings = (id_list(chunk_ids), model_id, width, MOST_SENTENCES * width, width)
    return dict(fetch_all(connection, sql, bindings))


def nearest_sentences(
    connection: apsw.Connection, model_id: int, chunk_ids: Mapping[int, float], question: Vector
) -> dict[int, float]:
    """Return chunk id -> about the cosine of the question with its nearest sentence, where sentences have codes."""
    codes = read_sentences(connection, model_id, len(question), chunk_ids) if chunk_ids else {}
    if not codes:
        return {}
    counts = [len(of_chunk) // (8 * code_words(len(question))) for of_chunk in codes.values()]
    together = np.frombuffer(b"".join(codes.values()), np.uint64).reshape(sum(counts), -1)
    starts = np.cumsum([0, *counts[:-1]])
    # What the signs of a vector promise, on average, of the product with itself is .798 times that root.
    best = np.maximum.reduceat(estimates(together.T, question), starts) / (0.798 * len(question) ** 0.5)
    # The nearest of some sentences is nearer than their passage by chance, on average over candidates of three mixed
    # libraries by .06 to .08. Without it .71 instead of .86 of foreign questions are answered with doubt.
    return dict(zip(codes, (best - 0.06).tolist(), strict=True))


@runtime_checkable
class WordReader(Protocol):
    """A model that says something of each word of a text."""

    def read_words(self, texts: Sequence[str]) -> list[list[WordCode]]:
        """Return the words of passages, with the signs of their vectors."""
        ...

    def question_words(self, text: str) -> list[tuple[str, Vector]]:
        """Return the words of a question, with unit vectors to compare with the codes of passages' words."""
        ...


def stems_with_codes(reader: WordReader, texts: Sequence[str], languages: Iterable[str]) -> list[list[WordCode]]:
    """Return the words of passages, by the stems under which the keyword index has them."""
    indexed: list[list[WordCode]] = []
    for language, words in zip(languages, reader.read_words(texts), strict=True):
        codes: dict[str, bytes] = {}
        for word, code in words:
            if stemmed := indexed_word(word, language):
                codes.setdefault(stemmed, code)
        indexed.append(list(codes.items()))
    return indexed


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


UNUSED_WORDS = f"delete from word_vectors where not {_IS_INDEXED.format(word='word')}"
"""SQL that deletes the codes of all words that are in no passage."""


def word_codes(connection: apsw.Connection, model_id: int) -> tuple[Block, ...]:
    """Return the codes of the file's words."""
    sql = f"select id, code from word_vectors where model_id = ? and {_IS_CODE} order by id"
    rows = fetch_all(connection, sql, (model_id,))
    ids = np.array([row[0] for row in rows], dtype=np.int64)
    bits = np.frombuffer(b"".join(row[1] for row in rows), dtype=np.uint64).reshape(len(ids), -1)
    return (Block(ids, ids, np.ascontiguousarray(bits.T)),) if rows else ()


def alike_passages(search: Search, reader: WordReader, language: str) -> dict[int, float]:
    """Return chunk id -> how much it has of words that mean what those of the question do, 0..1 of what the best has.

    It is the sum, over the words of the question, which are in `language`, of the best likeness, squared, times rarity.
    The square lets one translation count more than several words of a like kind.
    """
    connection = search.connection
    words = reader.question_words(search.request.text)
    key = ("codes of words", search.model_id)
    codes = search.index.keep(search.generations.signs, key, lambda: word_codes(connection, search.model_id))
    # Of the first 24 words of the question, thirty of the file that may stand for each.
    vectors = [vector for word, vector in words if indexed_word(word, language)][:24]
    near = [nearest_codes(codes, vector, 30) for vector in vectors]
    passages = _passages(search, {word_id for ids, _ in near for word_id in ids.tolist()})
    sums: Counter[int] = Counter()
    for ids, likenesses in near:
        best: dict[int, float] = {}
        for word_id, likeness in zip(ids.tolist(), likenesses.tolist(), strict=True):
            chunk_ids = passages.get(word_id, ())
            value = likeness**2 * math.log(1 + search.chunks / len(chunk_ids)) if chunk_ids else 0.0
            for chunk_id in chunk_ids:
                best[chunk_id] = max(best.get(chunk_id, 0.0), value)
        sums.update(best)
    most = max(sums.values(), default=0.0)
    return {chunk_id: value / most for chunk_id, value in sums.items() if value > 0}


def _passages(search: Search, word_ids: Iterable[int]) -> dict[int, list[int]]:
    """Return word id -> the passages that hold it and may answer, of words that are not in many."""
    connection, allowed = search.connection, search.allowed
    sql = "select id, word from word_vectors where id in (select value from carray(?))"
    words = fetch_all(connection, sql, (id_list(word_ids),))
    sql = f"select rowid from chunks_fts where chunks_fts match ? limit {MOST_PASSAGES + 1}"
    ids_by_word = {
        word_id: fetch_column(connection, sql, (f'"{word.replace(chr(34), "")}"',)) for word_id, word in words
    }
    few = {word_id: chunk_ids for word_id, chunk_ids in ids_by_word.items() if len(chunk_ids) <= MOST_PASSAGES}
    values = {"collections": id_list(search.embedded), "ids": id_list(set(chain.from_iterable(few.values())))}
    sql = f"""
        select chunks.id from chunks join sources on sources.id = source_id
        where chunks.id in (select value from carray(:ids)) and trashed_at is null
            and collection_id in (select value from carray(:collections))
            {"" if allowed is None else "and source_id in (select value from carray(:allowed))"}
    """
    narrowing = {} if allowed is None else {"allowed": id_list(allowed.tolist())}
    may_answer = set(fetch_column(connection, sql, values | narrowing))
    return {word_id: [row for row in chunk_ids if row in may_answer] for word_id, chunk_ids in few.items()}
