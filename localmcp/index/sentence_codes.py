"""Codes of the sentences of a passage: what the multilingual model says of each alone.

The one vector of a passage about several subjects is near none of them. A question about one of them is also compared
with each sentence. (Right document among the first three of three mixed libraries, without and with it: `--sixth` .655
and .726, `--seventh` .486 and .557, `--eighth` .321 and .429. Codes of two bits a number gain nothing.)
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import apsw

from localmcp.arrays import Vector, np
from localmcp.index.highlight import LONGEST, sentences
from localmcp.index.vector import code_words, estimates, pack_signs
from localmcp.models import MULTILINGUAL_NAME, Embedder
from localmcp.storage.database import fetch_all

LEAST_WORDS, MOST_SENTENCES = 3, 40
"""Shorter sentences say nothing; a passage with more is a list."""
OWN_PRODUCT = 0.798
"""What the signs of a vector promise, on average, of the product with itself, over the root of the dimension."""
NEARER_BY_CHANCE = 0.06
"""How much nearer the nearest of some sentences is than their passage, on average over candidates: three mixed
libraries, .06 to .08. Without it .71 instead of .86 of foreign questions are answered with doubt."""


def sentence_codes(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """Return the codes of each text's sentences, one after the other; empty if the model reads no sentences."""
    if embedder.identity.name != MULTILINGUAL_NAME:
        return [b""] * len(texts)
    passages = [_split(text) for text in texts]
    fresh = list(dict.fromkeys(sentence for passage in passages for sentence in passage))
    codes = dict(zip(fresh, pack_signs(embedder.embed_passages(fresh)), strict=True)) if fresh else {}
    return [b"".join(codes[sentence].tobytes() for sentence in passage) for passage in passages]


def _split(text: str) -> list[str]:
    """Return the sentences of a passage that are embedded; none where there are not several."""
    parts = (text[start : min(stop, start + LONGEST)] for start, stop in sentences(text))
    long_enough = list(islice((part for part in parts if len(part.split()) >= LEAST_WORDS), MOST_SENTENCES))
    return long_enough if len(long_enough) > 1 else []


def read_sentences(
    connection: apsw.Connection, model_id: int, dimension: int, chunk_ids: Iterable[int]
) -> dict[int, bytes]:
    """Return chunk id -> codes of its sentences, from a file that may be somebody else's."""
    width = 8 * code_words(dimension)
    sql = """
        select value, codes from carray(?) cross join sentence_codes on id = ? << 40 | value
        where length(codes) between ? and ? and length(codes) % ? = 0
    """
    bindings = (apsw.carray(array("q", chunk_ids)), model_id, width, MOST_SENTENCES * width, width)
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
    best = np.maximum.reduceat(estimates(together.T, question), starts) / (OWN_PRODUCT * len(question) ** 0.5)
    return dict(zip(codes, (best - NEARER_BY_CHANCE).tolist(), strict=True))
