"""Embedders on our own graph: queries as floats, passages as int8 where the processor gains from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.embeddings.embedder import ModelIdentity, require_query, unit_rows
from localmcp.embeddings.encoder import Arithmetic, Encoder, EncoderWeights
from localmcp.embeddings.native import native_calls, run_beside, threads_for
from localmcp.embeddings.tokens import TokenCounter, Tokens

SHORT_CHARACTERS = 300
"""Texts up to this length are embedded as floats: tools, rules and titles keep their exact vectors."""
FEW_PASSAGES = 16
"""So few are embedded in the calling thread alone, whose priority may be low."""
TRIAL_TOKENS = 64
MIN_SPEEDUP = 1.15
MIN_COSINE = 0.97
"""Below it the processor's int8 instructions saturate (AVX2 without VNNI): such vectors are not used."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial of int8 on this processor has shown."""

    arithmetic: Arithmetic
    """How passages are embedded from then on."""
    speedup: float
    """Time of a text as floats over its time as int8."""
    cosine: float
    """Between its two vectors."""


@dataclass(frozen=True, slots=True)
class Common:
    """What the vectors of all texts share, and the directions in which languages differ."""

    query: Vectors
    passage: Vectors
    """Means of shape (dimension,)."""
    directions: Vectors
    """Unit vectors of shape (n, dimension)."""

    def subtract_from(self, vectors: Vectors, mean: Vectors) -> Vectors:
        """Return the vectors without what is common, as unit rows of shape (n, dimension)."""
        rest = vectors - mean
        return unit_rows(rest - (rest @ self.directions.T) @ self.directions)


class EncoderEmbedder:
    """A BERT encoder with its tokenizer; safe to call from several threads.

    A query is shared among all threads. Passages run one text at a time, side by side, each on one thread: activations
    are quantized by text, so a text has the same vector whatever it is embedded beside.
    """

    def __init__(
        self,
        weights: EncoderWeights,
        tokens: Tokens,
        *,
        name: str,
        sha256: str,
        max_tokens: int,
        query_prefix: str = "",
        passage_prefix: str = "",
        threads: int | None = None,
        arithmetic: Arithmetic | None = None,
        common: Common | None = None,
    ) -> None:
        """`max_tokens`: what the model reads of a text, special tokens and prefix included.

        `common`: what is subtracted from every vector.
        `arithmetic`: that of passages; None tries which is faster here.
        """
        self.count_tokens: TokenCounter = tokens
        self._tokens = tokens
        self._weights = weights
        self._common = common
        self._threads = threads_for(threads)
        self._queries = Encoder(weights, "float", self._threads)
        self._passages: Encoder | None = None
        self._trial = Trial(arithmetic, 1.0, 1.0) if arithmetic else None
        self._loading = threading.Lock()
        self._query_lock = threading.Lock()
        self._passage_slots = threading.BoundedSemaphore(self._threads)
        self._first, self._last = tokens.ends
        self._kept = max_tokens - 2
        self.identity = ModelIdentity(
            name=name,
            sha256=sha256,
            pooling="mean" if common is None else "mean, less the common part",
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            dimension=weights.shape.width,
            max_tokens=self._kept - self.count_tokens(passage_prefix),
        )

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`.

        Text past `identity.max_tokens` is not read.
        """
        vectors = np.empty((len(texts), self.identity.dimension), np.float32)
        short = [row for row, text in enumerate(texts) if len(text) <= SHORT_CHARACTERS]
        for row in short:
            vectors[row] = self._run_query(self.identity.passage_prefix + texts[row])
        # The longest first, so that no thread begins a long one at the end.
        long = sorted(set(range(len(texts))).difference(short), key=lambda row: -len(texts[row]))
        if long:
            self._embed_long(texts, long, vectors)
        return vectors if self._common is None else self._common.subtract_from(vectors, self._common.passage)

    def _embed_long(self, texts: Sequence[str], rows: Sequence[int], vectors: Vectors) -> None:
        encoder = self._passage_encoder()

        def embed(row: int) -> None:
            ids = self._token_ids(self.identity.passage_prefix + texts[row])
            with self._passage_slots:
                vectors[row] = encoder.run(ids)

        run_beside(embed, rows, 1 if len(rows) <= FEW_PASSAGES else self._threads)

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        vector = self._run_query(self.identity.query_prefix + require_query(text))
        return vector if self._common is None else self._common.subtract_from(vector[None], self._common.query)[0]

    def passage_arithmetic(self) -> Trial:
        """Say how long passages are embedded on this processor; tries it if that was not done yet (50 ms)."""
        self._passage_encoder()
        assert self._trial is not None
        return self._trial

    def _run_query(self, text: str) -> Vector:
        ids = self._token_ids(text)
        with self._query_lock:
            return self._queries.run(ids)

    def _token_ids(self, text: str) -> NDArray[np.int64]:
        return np.array([self._first, *self._tokens.ids(text)[: self._kept], self._last], np.int64)

    def _passage_encoder(self) -> Encoder:
        with self._loading, native_calls:
            if self._passages is None:
                self._trial = self._trial or self._try()
                self._passages = Encoder(self._weights, self._trial.arithmetic, 1)
            return self._passages

    def _try(self) -> Trial:
        """Compare the arithmetics: vectors by the whole model, times by its first layer."""
        ids = np.arange(1000, 1000 + TRIAL_TOKENS, dtype=np.int64)
        cosine = float(Encoder(self._weights, "int8", 1).run(ids) @ self._queries.run(ids))
        speedup = self._layer_seconds("float", ids) / self._layer_seconds("int8", ids)
        gains = speedup >= MIN_SPEEDUP and cosine >= MIN_COSINE
        return Trial("int8" if gains else "float", round(speedup, 2), round(cosine, 4))

    def _layer_seconds(self, arithmetic: Arithmetic, ids: NDArray[np.int64]) -> float:
        """Return the best of five runs, so that a busy machine decides as an idle one."""
        layer = Encoder(self._weights, arithmetic, 1, layers=1)
        times: list[float] = []
        for _ in range(5):
            start = time.perf_counter()
            layer.run(ids)
            times.append(time.perf_counter() - start)
        return min(times)
