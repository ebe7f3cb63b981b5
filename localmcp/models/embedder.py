"""The interface of an embedding model, an identity and three methods; and the one that has no weights."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.errors import ConfigurationError, InvalidInput
from localmcp.models.tokens import TokenCounter

DEFAULT_NAME = "all-MiniLM-L6-v2"
MULTILINGUAL_NAME = "multilingual-e5-small"
WordCode = tuple[str, bytes]
"""A word as written, and the signs of its vector."""
WORD_CODE_BYTES = 48
"""One bit a dimension: as good as bytes, in an eighth of the room."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Which model made a vector; stored beside the vectors so that two models are never mixed (C2-3)."""

    name: str
    sha256: str
    """Of the weights; for an endpoint, whose weights nobody sees, of the model's name."""
    pooling: str
    query_prefix: str
    passage_prefix: str
    dimension: int
    max_tokens: int
    """Tokens of one passage, as `count_tokens` counts them, that the model reads; the rest is ignored."""

    @property
    def fingerprint(self) -> str:
        """16 hex digits that are equal when, and only when, two models make comparable vectors.

        Weights, pooling, prefixes and dimension decide. The name does not: the same weights may be
        called differently, and a longer window changes which text is read, not the space.
        """
        decisive = [self.sha256, self.pooling, self.query_prefix, self.passage_prefix, self.dimension]
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]


class Embedder(Protocol):
    """Turns text into unit vectors. Implementations may be called from several threads at once."""

    @property
    def identity(self) -> ModelIdentity:
        """Which model this is."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`."""
        ...

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,) to compare passages with.

        Raises:
            InvalidInput: the text is empty or only white space.
        """
        ...

    @property
    def count_tokens(self) -> TokenCounter:
        """Counts the tokens of a whole text, without the prefix; picklable for models that come with localmcp."""
        ...


def require_query(text: str) -> str:
    """Return the text itself, or InvalidInput when there is nothing in it to search for."""
    if not text.strip():
        raise InvalidInput(f"query is {text!r}, but must contain at least one visible character.")
    return text


def is_unit_vector(value: Any, dimension: int) -> bool:
    """Return whether a blob that anybody may have written holds a vector of length 1 (or 0) and that dimension."""
    if not isinstance(value, bytes) or len(value) != 4 * dimension:
        return False
    length = float(np.linalg.norm(np.frombuffer(value, "<f4").astype(np.float64)))
    return abs(length - 1) < 0.01 or length == 0


def unit_rows(vectors: NDArray[np.floating[Any]]) -> Vectors:
    """Return each row divided by its Euclidean length, as float32; a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float32, copy=False)


def without_directions(vectors: Vectors, directions: Vectors) -> Vectors:
    """Return each row less its parts along `directions`, unit vectors at right angles of shape (n, dimension).

    Each row is multiplied by itself: how a product of all of them is rounded depends on how many there are, and a text
    has the same vector whatever it is embedded beside.
    """
    rows = vectors[:, None, :]
    return (rows - (rows @ directions.T) @ directions)[:, 0].astype(np.float32, copy=False)


# ---------------------------------------------------------------- a model without weights

_WORD = re.compile(r"\w+")


class HashEmbedder:
    """Random projection of a bag of words: each word is a fixed vector of +1 and -1 made from its SHAKE-256 digest.

    The cosine of two texts is close to the cosine of their word counts, give or take
    1/sqrt(dimension). It knows no synonyms; it is for tests and for trying localmcp without weights.
    """

    def __init__(self, dimension: int = 384) -> None:
        """`dimension` is a multiple of 8 from 64 to 4096.

        Raises:
            ConfigurationError: another dimension.
        """
        if dimension % 8 or not 64 <= dimension <= 4096:
            raise ConfigurationError(f"hash:{dimension} has no such dimension; use a multiple of 8 from 64 to 4096.")
        self.identity = ModelIdentity(
            name="hash",
            sha256=hashlib.sha256(b"localmcp word hash 1").hexdigest(),
            pooling="sum",
            query_prefix="",
            passage_prefix="",
            dimension=dimension,
            max_tokens=256,
        )
        self.count_tokens = count_words

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows."""
        rows = [self._sum_words(text) for text in texts]
        return unit_rows(np.array(rows, np.float32).reshape(len(texts), self.identity.dimension))

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        return self.embed_passages([require_query(text)])[0]

    def _sum_words(self, text: str) -> Vector:
        dimension = self.identity.dimension
        # A text of punctuation alone still needs a direction.
        words = [word.encode("utf-8", "surrogatepass") for word in _WORD.findall(text.casefold()) or [""]]
        digests = b"".join(hashlib.shake_256(word).digest(dimension // 8) for word in words)
        bits = np.unpackbits(np.frombuffer(digests, np.uint8)).reshape(len(words), dimension)
        return bits.sum(axis=0, dtype=np.float32) * 2 - len(words)


def count_words(text: str) -> int:
    """Return the number of words, which are the tokens of this model."""
    return len(_WORD.findall(text))
