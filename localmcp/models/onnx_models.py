"""ONNX models in a folder of a person, and those of fastembed's list, which fastembed downloads."""

from __future__ import annotations

import hashlib
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmcp.arrays import Ids, Vector, np
from localmcp.config import models_directory
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.models.embedder import ModelIdentity
from localmcp.models.local_model import (
    LocalModel,
    Run,
    WordPieces,
    explained,
    import_onnxruntime,
    make_session,
    threads_for,
)
from localmcp.schemas import did_you_mean

if TYPE_CHECKING:
    from fastembed import TextEmbedding

POOLINGS = ("mean", "cls", "last_token", "disabled")
_FASTEMBED_POOLINGS = {
    "OnnxTextEmbedding": "cls",
    "PooledEmbedding": "mean",
    "PooledNormalizedEmbedding": "mean",
    "LastTokenNormalizedEmbedding": "last_token",
    "CLIPOnnxEmbedding": "disabled",
    "BuiltinSentenceEmbedding": "disabled",
}
"""By fastembed's class; others need more than a text's tokens, or no onnxruntime."""
_RETRIEVE = "Represent this sentence for searching relevant passages: "
_PREFIXES: tuple[tuple[str, str, str], ...] = (
    # Start of the name, query prefix, passage prefix: from the models' cards; fastembed adds none itself.
    ("baai/bge-small-en", _RETRIEVE, ""),
    ("baai/bge-base-en", _RETRIEVE, ""),
    ("baai/bge-large-en", _RETRIEVE, ""),
    ("google/embeddinggemma", "task: search result | query: ", "title: none | text: "),
    ("intfloat/multilingual-e5", "query: ", "passage: "),
    ("mixedbread-ai/mxbai-embed", _RETRIEVE, ""),
    ("nomic-ai/nomic-embed", "search_query: ", "search_document: "),
    ("snowflake/snowflake-arctic-embed", _RETRIEVE, ""),
)


@dataclass(frozen=True, slots=True)
class _Files:
    """A model on this machine, and how it is to be read."""

    name: str
    model: Path
    pooling: str
    query_prefix: str
    passage_prefix: str
    output: int = 0
    """Which of the model's outputs is pooled."""


class OnnxModel(LocalModel):
    """An ONNX file of token ids in and vectors of tokens or of the text out, beside its tokenizer."""

    def __init__(self, folder: Path, files: _Files, threads: int | None) -> None:
        """`folder` holds the tokenizer."""
        if files.pooling not in POOLINGS:
            raise ConfigurationError(f"pooling is '{files.pooling}', but must be one of {', '.join(POOLINGS)}.")
        self._files = files
        tokens = WordPieces(folder / "tokenizer.json")
        config = _read_json(folder / "tokenizer_config.json")
        # transformers writes 1e30 for not known; special tokens are read as well.
        sizes = [config.get(key) for key in ("model_max_length", "max_length")]
        window = min((size for size in sizes if isinstance(size, int) and 0 < size < 1_000_000), default=512)
        window -= len(tokens.model_ids("", 1))
        digest = hashlib.sha256()
        # Large models keep their weights in a second file beside the graph.
        for part in (files.model.with_name(files.model.name + ending) for ending in ("", "_data", ".data")):
            if part.is_file():
                with part.open("rb") as file:
                    hashlib.file_digest(file, lambda: digest)
        run = self._open(threads_for(threads))
        identity = ModelIdentity(
            name=files.name,
            sha256=digest.hexdigest(),
            pooling=files.pooling,
            query_prefix=files.query_prefix,
            passage_prefix=files.passage_prefix,
            dimension=len(run(tokens.model_ids("dimension", window))),
            max_tokens=window - tokens(files.passage_prefix),
        )
        super().__init__(run, tokens, identity, window, threads_for(threads))

    def _load_for_passages(self) -> Run:
        return self._run_question if self._threads == 1 else self._open(1)

    def _open(self, threads: int) -> Run:
        file, pooling, output = self._files.model, self._files.pooling, self._files.output
        session = make_session(str(file), threads)
        names = {node.name for node in session.get_inputs()}
        if extra := names - {"input_ids", "attention_mask", "token_type_ids"}:
            raise ModelUnavailable(f"{file} needs {', '.join(sorted(extra))}, which only its makers' code gives.")

        def run(ids: Ids) -> Vector:
            row = ids[None]
            inputs = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
            outputs = session.run(None, {name: inputs[name] for name in names})[output][0]
            if outputs.ndim > 1:
                place = {"mean": slice(None), "cls": slice(1), "last_token": slice(-1, None)}.get(pooling)
                if place is None:
                    raise ModelUnavailable(f"{file} gives a vector of each token, which pooling has to join.")
                outputs = outputs[place].mean(axis=0)
            return (outputs / max(np.linalg.norm(outputs), 1e-12)).astype(np.float32, copy=False)

        return run


def open_folder(path: Path, threads: int | None = None, **options: str) -> OnnxModel:
    """Return the model of a folder with model.onnx (or onnx/model.onnx), tokenizer.json and tokenizer_config.json.

    Pooling and prefixes are taken from the files that sentence-transformers writes
    (`1_Pooling/config.json`, `config_sentence_transformers.json`) unless they are in `options`; without
    either, pooling is the mean and there are no prefixes.

    Raises:
        ModelUnavailable: a file is missing, or the model cannot be loaded.
        ConfigurationError: an unknown pooling.
    """
    path = path.absolute()
    model = path / "model.onnx" if (path / "model.onnx").is_file() else path / "onnx" / "model.onnx"
    for file in (model, path / "tokenizer.json", path / "tokenizer_config.json"):
        if not file.is_file():
            raise ModelUnavailable(
                f"The model folder {path} has no {file.name}.",
                hint="It must hold model.onnx (or onnx/model.onnx), tokenizer.json and tokenizer_config.json.",
            )
    with explained(str(path), "Its files are damaged, or of a kind that onnxruntime does not know."):
        modes = _read_json(path / "1_Pooling" / "config.json")
        kinds = {"cls": "pooling_mode_cls_token", "last_token": "pooling_mode_lasttoken"}
        prompts: dict[str, str] = _read_json(path / "config_sentence_transformers.json").get("prompts") or {}
        found: dict[str, Any] = {
            "pooling": next((kind for kind, mode in kinds.items() if modes.get(mode)), "mean"),
            "query_prefix": prompts.get("query", ""),
            "passage_prefix": prompts.get("document", ""),
        }
        return OnnxModel(path, _Files(path.name, model, **(found | dict[str, Any](options))), threads)


def open_fastembed(
    name: str, cache_dir: Path, threads: int | None = None, *, download: bool = False, **options: str
) -> OnnxModel:
    """Return a model of fastembed's list, from `cache_dir`; it is fetched only if `download`.

    Prefixes are those of the model's card unless they are in `options`.

    Raises:
        ConfigurationError: fastembed knows no such model; names the nearest.
        ModelUnavailable: the model is not on this machine, the download failed, or onnxruntime alone cannot run it.
    """
    text_embedding = _import_fastembed()
    models = {model["model"].lower(): model for model in text_embedding.list_supported_models()}
    described = models.get(name.lower())
    if described is None:
        names = [model["model"] for model in models.values()]
        raise ConfigurationError(f"fastembed knows no model '{name}'.", hint=did_you_mean(name, names) or None)
    hint = f"Download it once with: localmcp models add fastembed:{described['model']}"
    query, passage = next((prefixes for start, *prefixes in _PREFIXES if name.lower().startswith(start)), ("", ""))
    with explained(name, "Check the network, then try again." if download else hint):
        inner: Any = text_embedding(name, str(cache_dir), local_files_only=not download, lazy_load=True).model
        kind, folder = type(inner).__name__, Path(inner._model_dir)
        if kind not in _FASTEMBED_POOLINGS:
            raise ModelUnavailable(f"{name} is no model that localmcp can run.", hint="See: localmcp models list")
        found: dict[str, Any] = {"pooling": _FASTEMBED_POOLINGS[kind], "query_prefix": query, "passage_prefix": passage}
        found["output"] = int(kind == "BuiltinSentenceEmbedding")
        files = _Files(described["model"], folder / described["model_file"], **(found | dict[str, Any](options)))
        return OnnxModel(folder, files, threads)


def list_fastembed_models(everything: bool = False) -> list[tuple[str, bool, str]]:
    """Return what setting chooses a model of fastembed's list, whether it is here, and its size; no network. Those that
    are here only count if some are, or `everything` does."""
    here = {path.name.lower() for path in models_directory().glob("models--*") if path.is_dir()}
    if not everything and not here:
        return []
    return [
        (
            f"fastembed:{model['model']}",
            f"models--{str(model['sources'].get('hf') or model['model']).lower().replace('/', '--')}" in here,
            f"{model['dim']} dimensions, {model['size_in_GB']:.2g} GB",
        )
        for model in _import_fastembed().list_supported_models()
    ]


def _import_fastembed() -> type[TextEmbedding]:
    """Import fastembed's class on first use: 0.45 s of CPU together with numpy and onnxruntime."""
    with explained("runtime fastembed", "Reinstall localmcp."):
        import_onnxruntime()
        has_ipv6, socket.has_ipv6 = socket.has_ipv6, False
        try:
            # What fastembed imports binds a socket to learn of IPv6, unless Python says that there is none.
            import urllib3.util.connection as connection
        finally:
            socket.has_ipv6 = has_ipv6
        connection.HAS_IPV6 = has_ipv6
        from fastembed import TextEmbedding
        from loguru import logger  # Brought by fastembed, which logs through it.

        # Our own errors say what went wrong; its log lines beside them would be noise on stderr.
        logger.disable("fastembed")
        return TextEmbedding


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
