"""Vectors of the multilingual model for each word of a text; those of a word and its translation are near.

The facts of a letter with several subjects are not in its one vector, but in the model's outputs for its words. (Words
embedded alone are not near their translations: among the first three .26 of questions across languages instead of .61.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Protocol, runtime_checkable

from localmcp.arrays import Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.models.embedder import Embedder, unit_rows, without_directions

WORD_CODE_BYTES = 48
"""One bit a dimension: as good as bytes, in an eighth of the room."""
_WORD = re.compile(r"[^\W_]+")
_SPACE = "\u2581"
"""Stands for a space in pieces."""

WordCode = tuple[str, bytes]
"""A word as written, and the signs of its vector."""


@runtime_checkable
class WordReader(Protocol):
    """A model that says something of each word of a text."""

    def read_passages(self, texts: Sequence[str]) -> tuple[Vectors, list[list[WordCode]]]:
        """Return what `embed_passages` does, and the words of each text."""
        ...

    def embed_sentences(self, passages: Sequence[Sequence[str]]) -> Vectors:
        """Return unit vectors of the sentences of passages, in any language alike: (sentences, half the dimension)."""
        ...

    def sentence_question(self, question: Vector) -> Vector:
        """Return the unit vector by which an embedded question is compared with sentences."""
        ...

    def question_words(self, text: str) -> list[tuple[str, Vector]]:
        """Return the words of a question, with unit vectors to compare with the codes of passages' words."""
        ...

    def reader_of(self, text: str) -> Embedder:
        """Return the part of it that compares texts best with one in this language."""
        ...


def reader_of(text: str, embedder: Embedder) -> Embedder:
    """Return the model itself, or of one for many languages the part that compares texts best with this one."""
    return embedder.reader_of(text) if isinstance(embedder, WordReader) else embedder


def word_codes(read: Sequence[tuple[list[str], Vectors]]) -> list[list[WordCode]]:
    """Return the words of passages with their codes, from what `word_means` has of each passage."""
    mean, _, directions = _constants()
    vectors = np.concatenate([np.empty((0, len(mean)), np.float32), *(means for _, means in read)])
    codes = iter(np.packbits(without_directions(vectors - mean, directions) > 0, axis=1, bitorder="little"))
    return [[(word, next(codes).tobytes()) for word in words] for words, _ in read]


def word_vectors(pieces: Sequence[str], outputs: Vectors) -> list[tuple[str, Vector]]:
    """Return the words of a question with unit vectors, to be compared with the codes of passages' words."""
    words, vectors = word_means(pieces, outputs)
    _, mean, directions = _constants()
    return list(zip(words, unit_rows(without_directions(vectors - mean, directions)), strict=True))


def word_means(pieces: Sequence[str], outputs: Vectors) -> tuple[list[str], Vectors]:
    """Return the words, and the mean output of the pieces of each: shape (words, width)."""
    text = "".join(pieces).replace(_SPACE, " ")
    matches = list(_WORD.finditer(text))
    ends = np.cumsum([len(piece) for piece in pieces])
    first = np.searchsorted(ends, [word.start() for word in matches], side="right")
    after = np.searchsorted(ends, [word.end() for word in matches], side="left") + 1
    sums = np.zeros((len(pieces) + 1, outputs.shape[1]), np.float32)
    np.cumsum(unit_rows(outputs), axis=0, out=sums[1:])
    counts = (after - first).astype(np.float32)
    return [word[0] for word in matches], (sums[after] - sums[first]) / counts[:, None]


@cache
def _constants() -> tuple[Vector, Vector, Vectors]:
    """Return what words of passages and of questions have in common, and the directions in which languages differ."""
    with np.load(packaged_data() / "multilingual_common.npz", allow_pickle=False) as stored:
        directions = np.concatenate([stored["directions"], stored["translations"]])
        return stored["passage_word"], stored["query_word"], directions
