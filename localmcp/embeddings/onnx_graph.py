"""A writer of small ONNX graphs: nodes, inputs and named weights whose values are given when the graph is loaded.

The format is protocol buffers (github.com/onnx/onnx, onnx.proto3); the numbers below are its field numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

FLOAT, UINT8, INT8, INT32 = 1, 2, 3, 6
MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's fused operators."""
_IR_VERSION, _OPSET = 9, 17
_EXTERNAL = 1
_FLOAT_ATTRIBUTE, _INT_ATTRIBUTE, _INTS_ATTRIBUTE = 1, 2, 7


class GraphWriter:
    """Collects nodes; every method that adds one returns the name of its first output."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._weights: dict[str, bytes] = {}

    def node(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str] = (), *, domain: str = "", **attributes: Any
    ) -> str:
        """Add a node; its output is named by its place when `outputs` is empty."""
        outputs = outputs or [f"{operator}_{len(self._nodes)}"]
        parts = [_text(1, name) for name in inputs] + [_text(2, name) for name in outputs]
        parts += [_text(4, operator), *(_attribute(name, value) for name, value in attributes.items())]
        self._nodes.append(b"".join((*parts, _text(7, domain))))
        return outputs[0]

    def weight(self, name: str, kind: int, shape: Sequence[int]) -> str:
        """Declare a weight of that element type and shape; its values come with the session's options."""
        place = _text(1, "location") + _text(2, "none")
        dims = b"".join(_number(1, size) for size in shape)
        self._weights[name] = dims + _number(2, kind) + _text(8, name) + _bytes(13, place) + _number(14, _EXTERNAL)
        return name

    def build(self, inputs: Mapping[str, tuple[int, Sequence[str | int]]], outputs: Mapping[str, Any]) -> bytes:
        """Return the model; inputs and outputs are name -> (element type, sizes or names of sizes)."""
        graph = b"".join(
            [_bytes(1, node) for node in self._nodes]
            + [_text(2, "encoder")]
            + [_bytes(5, weight) for weight in self._weights.values()]
            + [_bytes(11, _value(name, *described)) for name, described in inputs.items()]
            + [_bytes(12, _value(name, *described)) for name, described in outputs.items()]
        )
        versions = ((_text(1, "") + _number(2, _OPSET)), (_text(1, MICROSOFT) + _number(2, 1)))
        return _number(1, _IR_VERSION) + _bytes(7, graph) + b"".join(_bytes(8, version) for version in versions)


def _attribute(name: str, value: float | int | Sequence[int]) -> bytes:
    if isinstance(value, float):
        return _bytes(5, _text(1, name) + b"\x15" + struct.pack("<f", value) + _number(20, _FLOAT_ATTRIBUTE))
    if isinstance(value, int):
        return _bytes(5, _text(1, name) + _number(3, value) + _number(20, _INT_ATTRIBUTE))
    numbers = b"".join(_number(8, number) for number in value)
    return _bytes(5, _text(1, name) + numbers + _number(20, _INTS_ATTRIBUTE))


def _value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    sizes = (_number(1, size) if isinstance(size, int) else _text(2, size) for size in shape)
    tensor = _number(1, kind) + _bytes(2, b"".join(_bytes(1, size) for size in sizes))
    return _text(1, name) + _bytes(2, _bytes(1, tensor))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & (1 << 64) - 1)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)
