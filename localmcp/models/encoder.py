"""A BERT encoder as an ONNX graph of fused operators, run with weights that are handed over at load.

Graphs in model files are exported operator by operator: a third of their time goes into steps around the matrix
products, and onnxruntime parses and optimizes them for longer than a search takes. This one needs no optimizing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.models.native import PROVIDERS, import_onnxruntime, native_calls, shorten_spins
from localmcp.models.onnx_graph import FLOAT, INT8, MICROSOFT, GraphWriter

Arithmetic = Literal["float", "int8"]
"""How matrices are multiplied: as floats, or as int8 with activations quantized by text, x 2.5-3 with VNNI."""


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """Sizes of a BERT encoder."""

    layers: int
    heads: int
    width: int
    epsilon: float
    """Added to the variance in every norm."""


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """A matrix of shape (k, n): value x scale of its column."""

    values: NDArray[np.int8]
    scales: Vector
    divisors: Vector | None = None
    """By what the k inputs are divided before they are quantized, so that a few large ones do not set the step for all;
    the values of their rows are as much larger. Shape (k,)."""


class EncoderWeights(Protocol):
    """Weights by part: `norm`, and of each layer `0.qkv`, `0.attended`, `0.attended_norm`, `0.inner`, `0.outer`,
    `0.outer_norm`.
    """

    @property
    def shape(self) -> EncoderShape: ...

    def embed(self, ids: NDArray[np.int64]) -> Vectors:
        """Return the sums of word, position and type vectors before the first norm: shape (tokens, width)."""
        ...

    def matrix(self, part: str) -> Int8Matrix: ...

    def floats(self, name: str) -> Vector:
        """Return `PART.bias`, or `PART.weight` of a norm."""
        ...


class Encoder:
    """Token ids in, one unit vector out, or one of each token. Safe to call from several threads."""

    def __init__(
        self, weights: EncoderWeights, arithmetic: Arithmetic, threads: int, *, layers: int | None = None
    ) -> None:
        """`layers`: build only the first ones, to measure their speed."""
        runtime = import_onnxruntime()
        graph = _EncoderGraph(weights, arithmetic)
        model = graph.build(weights.shape.layers if layers is None else layers)
        options = shorten_spins(runtime.SessionOptions())
        options.intra_op_num_threads = threads
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # The session itself turns int8 into floats, in memory of its own: 30 MB less than handing floats over.
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        # The session does not own the values.
        self._values = [runtime.OrtValue.ortvalue_from_numpy(value) for value in graph.values.values()]
        options.add_external_initializers(list(graph.values), self._values)
        self._weights = weights
        self._session = runtime.InferenceSession(model, options, providers=PROVIDERS)

    def run(self, ids: NDArray[np.int64]) -> Vector:
        """Return the unit vector of shape (width,) of a text's token ids, special ones included."""
        return mean_of(self.outputs(ids))

    def outputs(self, ids: NDArray[np.int64]) -> Vectors:
        """Return a vector of each token: shape (tokens, width)."""
        inputs = {"embedded": self._weights.embed(ids)[None]}
        with native_calls:
            return self._session.run(None, inputs)[0][0]


def mean_of(outputs: Vectors) -> Vector:
    """Return the unit vector of a text, of shape (width,), from those of its tokens."""
    mean = outputs.mean(axis=0)
    return mean / np.linalg.norm(mean)


class _EncoderGraph:
    """Post-norm BERT: every method returns the name of the tensor it makes; `values` holds the weights by name."""

    def __init__(self, weights: EncoderWeights, arithmetic: Arithmetic) -> None:
        self._weights = weights
        self._arithmetic: Arithmetic = arithmetic
        self._graph = GraphWriter()
        self.values: dict[str, Any] = {}

    def build(self, layers: int) -> bytes:
        hidden = self._norm("embedded", "norm")
        for layer in range(layers):
            hidden = self._encode(f"{layer}.", hidden)
        self._graph.node("Identity", [hidden], ["hidden"])
        sizes = (FLOAT, (1, "tokens", self._weights.shape.width))
        return self._graph.build({"embedded": sizes}, {"hidden": sizes})

    def _encode(self, layer: str, hidden: str) -> str:
        attended = self._product(self._attend(layer, hidden), layer + "attended")
        hidden = self._norm(self._graph.node("Add", [attended, hidden]), layer + "attended_norm")
        inner = self._graph.node("Gelu", [self._product(hidden, layer + "inner")], domain=MICROSOFT)
        outer = self._product(inner, layer + "outer")
        return self._norm(self._graph.node("Add", [outer, hidden]), layer + "outer_norm")

    def _attend(self, layer: str, hidden: str) -> str:
        parts = [layer + part for part in ("query", "key", "value")]
        self._graph.node("Split", [self._product(hidden, layer + "qkv")], parts, axis=-1)
        return self._graph.node("MultiHeadAttention", parts, domain=MICROSOFT, num_heads=self._weights.shape.heads)

    def _product(self, hidden: str, part: str) -> str:
        matrix, bias = self._weights.matrix(part), self._floats(part + ".bias")
        factors = [self._value(part, INT8, matrix.values), self._value(part + ".scales", FLOAT, matrix.scales)]
        if matrix.divisors is not None:
            hidden = self._graph.node("Div", [hidden, self._value(part + ".divisors", FLOAT, matrix.divisors)])
        if self._arithmetic == "int8":
            # Between them the zero points, of which a symmetric matrix has none.
            return self._graph.node("DynamicQuantizeMatMul", [hidden, *factors, "", bias], domain=MICROSOFT)
        floats = self._graph.node("DequantizeLinear", factors, axis=1)
        return self._graph.node("Add", [self._graph.node("MatMul", [hidden, floats]), bias])

    def _norm(self, hidden: str, part: str) -> str:
        scales = [self._floats(part + ".weight"), self._floats(part + ".bias")]
        return self._graph.node("LayerNormalization", [hidden, *scales], epsilon=self._weights.shape.epsilon, axis=-1)

    def _floats(self, name: str) -> str:
        return self._value(name, FLOAT, self._weights.floats(name))

    def _value(self, name: str, kind: int, value: NDArray[Any]) -> str:
        self.values[name] = np.ascontiguousarray(value)
        return self._graph.weight(name, kind, value.shape)
