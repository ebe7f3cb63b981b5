"""A writer of small ONNX graphs: nodes, inputs and named weights whose values come when the graph is loaded.

The format is protocol buffers (github.com/onnx/onnx, onnx.proto3); the numbers below are its field numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from localmcp.models.protobuf import message, number, text

FLOAT, INT8 = 1, 3
MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's fused operators."""
_IR_VERSION, _OPSET = 9, 17
_EXTERNAL = 1
_FLOAT_ATTRIBUTE, _INT_ATTRIBUTE = 1, 2


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
        parts = [text(1, name) for name in inputs] + [text(2, name) for name in outputs]
        parts += [text(4, operator), *(_attribute(name, value) for name, value in attributes.items())]
        self._nodes.append(b"".join((*parts, text(7, domain))))
        return outputs[0]

    def weight(self, name: str, kind: int, shape: Sequence[int]) -> str:
        """Declare a weight of that element type and shape; its values come with the session's options."""
        location = text(1, "location") + text(2, "none")
        dims = b"".join(number(1, size) for size in shape)
        self._weights[name] = dims + number(2, kind) + text(8, name) + message(13, location) + number(14, _EXTERNAL)
        return name

    def build(self, inputs: Mapping[str, tuple[int, Sequence[str | int]]], outputs: Mapping[str, Any]) -> bytes:
        """Return the model; inputs and outputs are name -> (element type, sizes or names of sizes)."""
        graph = b"".join(
            [message(1, node) for node in self._nodes]
            + [text(2, "encoder")]
            + [message(5, weight) for weight in self._weights.values()]
            + [message(11, _value(name, *described)) for name, described in inputs.items()]
            + [message(12, _value(name, *described)) for name, described in outputs.items()]
        )
        versions = ((text(1, "") + number(2, _OPSET)), (text(1, MICROSOFT) + number(2, 1)))
        return number(1, _IR_VERSION) + message(7, graph) + b"".join(message(8, version) for version in versions)


def _attribute(name: str, value: float | int) -> bytes:
    if isinstance(value, float):
        return message(5, text(1, name) + b"\x15" + struct.pack("<f", value) + number(20, _FLOAT_ATTRIBUTE))
    return message(5, text(1, name) + number(3, value) + number(20, _INT_ATTRIBUTE))


def _value(name: str, kind: int, shape: Sequence[str | int]) -> bytes:
    sizes = (number(1, size) if isinstance(size, int) else text(2, size) for size in shape)
    tensor = number(1, kind) + message(2, b"".join(message(1, size) for size in sizes))
    return text(1, name) + message(2, message(1, tensor))
