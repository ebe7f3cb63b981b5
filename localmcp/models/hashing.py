"""An embedder without a model: texts that share words get close vectors, the same in every process."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from localmcp.arrays import Vector, Vectors, np
from localmcp.errors import ConfigurationError
from localmcp.models.embedder import ModelIdentity, require_query, unit_rows

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
