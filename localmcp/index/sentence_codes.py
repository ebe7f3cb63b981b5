"""Codes of the sentences of a passage: what a multilingual model says of each alone.

The one vector of a passage about several subjects is near none of them. A question about one of them is also compared
with each sentence, which has been embedded by itself. (Means of the model's outputs within the whole passage do not
serve: right document among the first three .32 instead of .57 of 28 questions about facts in letters.)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import apsw

from localmcp.arrays import Vector, np
from localmcp.index.highlight import LONGEST, sentences
from localmcp.index.vector import estimates, vector_id
from localmcp.models import Embedder
from localmcp.models.word_outputs import WordReader
from localmcp.storage.database import fetch_all, fetch_one
from localmcp.storage.vector_codes import OWN_PRODUCT, code_words, pack_codes

LEAST_WORDS, MOST_SENTENCES = 3, 40
"""Shorter sentences say nothing; a passage with more is a list. Six words and more would be a fifth fewer codes and as
many right documents in letters and manuals, where few answers are so short; of 17 questions across languages about
facts in three to five words .24 instead of .41 would have the right document among three (`--eighth`)."""
NEARER_BY_CHANCE = 0.06
"""How much nearer the nearest of some sentences is than their passage, on average over candidates: three mixed
libraries, .06 to .08. Without it .71 instead of .86 of foreign questions are answered with doubt. It grows with their
number, from .08 of two to .12 of twelve; subtracting that finds no more (nDCG@10 of 21 groups of questions .738 ->
.735), nor does reading sentences only where there are few (at most eight: letters .670 -> .618)."""


def split(text: str) -> list[str]:
    """Return the sentences of a passage that are embedded; none where there are not several."""
    parts = (text[start : min(stop, start + LONGEST)] for start, stop in sentences(text))
    long_enough = list(islice((part for part in parts if len(part.split()) >= LEAST_WORDS), MOST_SENTENCES))
    return long_enough if len(long_enough) > 1 else []


def sentence_codes(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """Return the codes of each text's sentences, one after the other; empty if the model reads no sentences."""
    if not isinstance(embedder, WordReader):
        return [b""] * len(texts)
    passages = [split(text) for text in texts]
    codes = iter(pack_codes(embedder.embed_sentences(passages)))
    return [b"".join(code.tobytes() for code in islice(codes, len(parts))) for parts in passages]


def keep_sentences(connection: apsw.Connection, model_id: int, codes: Mapping[int, bytes]) -> None:
    """Store the codes of sentences by chunk id, of those that have vectors. Part of the caller's write transaction."""
    sql = """
        insert or replace into sentence_codes (id, codes)
        select ?1, ?2 where exists (select 1 from vectors where id = ?1)
    """
    rows = ((vector_id(model_id, chunk_id), code) for chunk_id, code in codes.items() if code)
    connection.executemany(sql, rows)


def read_sentences(connection: apsw.Connection, model_id: int, chunk_ids: Iterable[int]) -> dict[int, bytes]:
    """Return chunk id -> codes of its sentences, from a file that may be somebody else's."""
    ids = array("q", chunk_ids)
    if not ids:
        return {}
    width = _code_bytes(fetch_one(connection, "select dimension from models where id = ?", (model_id,)) or 0)
    sql = """
        select value, codes from carray(?) cross join sentence_codes on id = ? << 40 | value
        where length(codes) between ? and ? and length(codes) % ? = 0
    """
    bindings = (apsw.carray(ids), model_id, width, MOST_SENTENCES * width, width)
    return dict(fetch_all(connection, sql, bindings))


def by_chunk(connection: apsw.Connection, source_id: int, codes: Mapping[bytes, bytes]) -> dict[int, bytes]:
    """Return codes that are known by the digests of a document's chunks by the ids of its chunks."""
    rows = fetch_all(connection, "select id, digest from chunks where source_id = ?", (source_id,)) if codes else []
    return {chunk_id: codes[digest] for chunk_id, digest in rows if digest in codes}


def _code_bytes(dimension: int) -> int:
    """Return the bytes of a sentence's code, by the dimension of passages' vectors."""
    return 16 * code_words(dimension // 2)


def nearest_sentences(
    connection: apsw.Connection, embedder: Embedder, model_id: int, chunk_ids: Iterable[int], question: Vector
) -> dict[int, float]:
    """Return chunk id -> about the cosine of the question with its nearest sentence, where sentences have codes.

    It is on the scale of the cosines with passages.
    """
    if not isinstance(embedder, WordReader) or not (codes := read_sentences(connection, model_id, chunk_ids)):
        return {}
    asked, width = embedder.sentence_question(question), _code_bytes(len(question))
    counts = [len(of_chunk) // width for of_chunk in codes.values()]
    together = np.frombuffer(b"".join(codes.values()), np.uint64).reshape(sum(counts), -1)
    starts = np.cumsum([0, *counts[:-1]])
    best = np.maximum.reduceat(estimates(together.T, asked), starts) / (OWN_PRODUCT * len(asked) ** 0.5)
    return dict(zip(codes, (best - NEARER_BY_CHANCE).tolist(), strict=True))
