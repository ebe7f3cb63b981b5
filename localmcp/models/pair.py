"""Two models at once: a vector holds those of both, side by side, and a product is the mean of what both say."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from localmcp.arrays import Vector, Vectors, np
from localmcp.models.calibration import measure_model
from localmcp.models.embedder import Embedder, ModelIdentity
from localmcp.models.tokens import TokenCounter


class PairEmbedder:
    """Both models read every text; each counts by the range of its own cosines, so that none drowns the other."""

    def __init__(self, first: Embedder, second: Embedder) -> None:
        self._models = (first, second)
        factors = [measure_model(model).factor for model in self._models]
        self._shares = [round(factor / sum(factors), 2) for factor in factors]
        ours, theirs = first.identity, second.identity
        decisive = f"{ours.fingerprint} {theirs.fingerprint} {self._shares}"
        self.identity = ModelIdentity(
            name=f"{ours.name}+{theirs.name}",
            sha256=hashlib.sha256(decisive.encode()).hexdigest(),
            pooling="pair",
            # Each model adds its own; here they only say whether questions and passages are read alike.
            query_prefix=f"{ours.query_prefix}|{theirs.query_prefix}",
            passage_prefix=f"{ours.passage_prefix}|{theirs.passage_prefix}",
            dimension=ours.dimension + theirs.dimension,
            max_tokens=min(ours.max_tokens, theirs.max_tokens),
        )

    @property
    def count_tokens(self) -> TokenCounter:
        """Counts the tokens of the first model."""
        return self._models[0].count_tokens

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`."""
        return self._joined([model.embed_passages(texts) for model in self._models])

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        return self._joined([model.embed_query(text)[None] for model in self._models])[0]

    def _joined(self, vectors: Sequence[Vectors]) -> Vectors:
        parts = [share**0.5 * part for share, part in zip(self._shares, vectors, strict=True)]
        return np.concatenate(parts, axis=1).astype(np.float32, copy=False)
