"""Embedders on our own graph: passages as int8 where the processor gains from it, queries as floats or int8 too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.models.embedder import ModelIdentity, require_query, unit_rows, without_directions
from localmcp.models.encoder import Arithmetic, Encoder, EncoderWeights, mean_of
from localmcp.models.native import native_calls, run_beside, threads_for
from localmcp.models.tokens import TokenCounter, Tokens

Read = TypeVar("Read")

SHORT_CHARACTERS = 300
"""Texts up to this length are embedded as floats: tools, rules and titles keep their exact vectors."""
FEW_PASSAGES = 16
"""So few are embedded in the calling thread alone, whose priority may be low."""
TRIAL_TOKENS = 64
MIN_SPEEDUP = 1.15
"""From here on passages are embedded as int8. Sums of two products are cut at 16 bits where the processor
has AVX2 without VNNI: vectors are nearly as near to those of floats all the same (cosine .9930 instead of .9960,
calculated)."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a trial of int8 on this processor."""

    arithmetic: Arithmetic
    """How passages are embedded from then on."""
    speedup: float
    """Time of a text as floats over its time as int8."""


@dataclass(frozen=True, slots=True)
class Common:
    """The mean of all vectors, and the directions in which languages differ."""

    query: Vectors
    passage: Vectors
    """Means of shape (dimension,)."""
    directions: Vectors
    """Unit vectors of shape (n, dimension)."""

    def subtract_from(self, vectors: Vectors, mean: Vectors) -> Vectors:
        """Return the vectors without what is common, as unit rows of shape (n, dimension)."""
        return unit_rows(without_directions(vectors - mean, self.directions))


class EncoderEmbedder:
    """A BERT encoder with its tokenizer; safe to call from several threads.

    A query is shared among all threads, or `question_threads` of them. Passages run one text at a time, side by side,
    each on one thread: activations are quantized by text, so a text has the same vector whatever it is embedded beside.
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
        question_threads: int | None = None,
        arithmetic: Arithmetic | None = None,
        question_arithmetic: Arithmetic = "float",
        common: Common | None = None,
    ) -> None:
        """`max_tokens`: what the model reads of a text, special tokens and prefix included.

        `common`: what is subtracted from every vector.
        `arithmetic`: that of passages; None tries which is faster here. Where it and the threads are those of
        questions, both share one copy of the model.
        """
        self.count_tokens: TokenCounter = tokens
        self._tokens = tokens
        self._weights = weights
        self._common = common
        self._threads = threads_for(threads)
        question_threads = question_threads or self._threads
        self._queries = Encoder(weights, question_arithmetic, question_threads)
        self._passages = self._queries if (question_threads, arithmetic) == (1, question_arithmetic) else None
        self._trial = Trial(arithmetic, 1.0) if arithmetic else None
        self._loading = threading.Lock()
        self._query_slots = threading.BoundedSemaphore(max(1, self._threads // question_threads))
        self._passage_slots = threading.BoundedSemaphore(self._threads)
        self._first, self._last = tokens.ends
        self._most_tokens = max_tokens - 2
        self.identity = ModelIdentity(
            name=name,
            sha256=sha256,
            pooling="mean" if common is None else "mean, less the common part",
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            dimension=weights.shape.width,
            max_tokens=self._most_tokens - self.count_tokens(passage_prefix),
        )

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`.

        Text past `identity.max_tokens` is not read.
        """
        return self._less_common(self._for_each(self._passage_vector, texts))

    def _for_each(self, read: Callable[[str], Read], texts: Sequence[str]) -> list[Read]:
        """Return what `read` makes of each text, in their order; they are read side by side."""
        made: dict[int, Read] = {}

        def read_row(row: int) -> None:
            made[row] = read(texts[row])

        if any(len(text) > SHORT_CHARACTERS for text in texts):
            self._passage_encoder()
        threads = 1 if len(texts) <= FEW_PASSAGES else self._threads
        # The longest first, so that no thread begins a long one at the end.
        run_beside(read_row, sorted(range(len(texts)), key=lambda row: -len(texts[row])), threads)
        return [made[row] for row in range(len(texts))]

    def _passage_vector(self, text: str) -> Vector:
        return mean_of(self._passage_outputs(self._passage_ids(text), text))

    def _passage_ids(self, text: str) -> NDArray[np.int64]:
        return self._token_ids(self.identity.passage_prefix + text)

    def _passage_outputs(self, ids: NDArray[np.int64], text: str) -> Vectors:
        if len(text) <= SHORT_CHARACTERS:
            return self._query_outputs(ids)
        encoder = self._passage_encoder()
        with self._passage_slots:
            return encoder.outputs(ids)

    def _less_common(self, vectors: Sequence[Vector]) -> Vectors:
        rows = np.array(vectors, np.float32).reshape(-1, self.identity.dimension)
        return rows if self._common is None else self._common.subtract_from(rows, self._common.passage)

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        vector = self._query_vector(self.identity.query_prefix + require_query(text))
        return vector if self._common is None else self._common.subtract_from(vector[None], self._common.query)[0]

    def passage_arithmetic(self) -> Trial:
        """Say how long passages are embedded on this processor; tries it if that was not done yet (50 ms)."""
        self._passage_encoder()
        assert self._trial is not None
        return self._trial

    def _query_vector(self, text: str) -> Vector:
        return mean_of(self._query_outputs(self._token_ids(text)))

    def _query_outputs(self, ids: NDArray[np.int64]) -> Vectors:
        with self._query_slots:
            return self._queries.outputs(ids)

    def _token_ids(self, text: str) -> NDArray[np.int64]:
        return np.array([self._first, *self._tokens.ids(text)[: self._most_tokens], self._last], np.int64)

    def _passage_encoder(self) -> Encoder:
        with self._loading, native_calls:
            if self._passages is None:
                self._trial = self._trial or self._try()
                self._passages = Encoder(self._weights, self._trial.arithmetic, 1)
            return self._passages

    def _try(self) -> Trial:
        """Compare the times that the model's first layer takes."""
        ids = np.arange(1000, 1000 + TRIAL_TOKENS, dtype=np.int64)
        speedup = self._layer_seconds("float", ids) / self._layer_seconds("int8", ids)
        return Trial("int8" if speedup >= MIN_SPEEDUP else "float", round(speedup, 2))

    def _layer_seconds(self, arithmetic: Arithmetic, ids: NDArray[np.int64]) -> float:
        """Return the best of five runs, so that a busy machine decides as an idle one."""
        layer = Encoder(self._weights, arithmetic, 1, layers=1)
        times: list[float] = []
        for _ in range(5):
            start = time.perf_counter()
            layer.run(ids)
            times.append(time.perf_counter() - start)
        return min(times)
