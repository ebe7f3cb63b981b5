"""ONNX models in a folder of a person, and those of fastembed's list, which fastembed downloads."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmcp.arrays import Ids, Vector, np
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.models import native
from localmcp.models.embedder import ModelIdentity
from localmcp.models.local_model import LocalModel, Run
from localmcp.models.tokens import WordPieces

if TYPE_CHECKING:
    from fastembed import TextEmbedding

POOLINGS = ("mean", "cls", "last_token", "disabled")
INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
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


class OnnxModel(LocalModel):
    """An ONNX file of token ids in and vectors of tokens or of the text out, beside its tokenizer."""

    def __init__(
        self,
        folder: Path,
        model_file: str,
        *,
        name: str,
        pooling: str,
        query_prefix: str,
        passage_prefix: str,
        threads: int | None,
        output: int = 0,
    ) -> None:
        """`output`: which of the model's outputs is pooled."""
        if pooling not in POOLINGS:
            raise ConfigurationError(f"pooling is '{pooling}', but must be one of {', '.join(POOLINGS)}.")
        self._file, self._pooling, self._output = folder / model_file, pooling, output
        tokens = WordPieces(folder / "tokenizer.json")
        window = _read_window(folder) - tokens.special_tokens()
        # Large models keep their weights in a second file beside the graph.
        files = [folder / f"{model_file}{ending}" for ending in ("", "_data", ".data")]
        run = self._open(native.threads_for(threads))
        identity = ModelIdentity(
            name=name,
            sha256=native.digest_weights(file for file in files if file.is_file()),
            pooling=pooling,
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            dimension=len(run(tokens.model_ids("dimension", window))),
            max_tokens=window - tokens(passage_prefix),
        )
        super().__init__(run, tokens, identity, window, native.threads_for(threads))

    def _load_for_passages(self) -> Run:
        return self._run_question if self._threads == 1 else self._open(1)

    def _open(self, threads: int) -> Run:
        session = native.make_session(str(self._file), threads)
        names = {node.name for node in session.get_inputs()}
        if extra := names - INPUTS:
            raise ModelUnavailable(f"{self._file} needs {', '.join(sorted(extra))}, which only its makers' code gives.")

        def run(ids: Ids) -> Vector:
            row = ids[None]
            inputs = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
            outputs = session.run(None, {name: inputs[name] for name in names})[self._output][0]
            if outputs.ndim > 1:
                place = {"mean": slice(None), "cls": slice(1), "last_token": slice(-1, None)}.get(self._pooling)
                if place is None:
                    raise ModelUnavailable(f"{self._file} gives a vector of each token, which pooling has to join.")
                outputs = outputs[place].mean(axis=0)
            return (outputs / max(np.linalg.norm(outputs), 1e-12)).astype(np.float32, copy=False)

        return run


class FolderEmbedder(OnnxModel):
    """A folder with model.onnx (or onnx/model.onnx), tokenizer.json and tokenizer_config.json.

    Pooling and prefixes are taken from the files that sentence-transformers writes
    (`1_Pooling/config.json`, `config_sentence_transformers.json`) unless they are given; without
    either, pooling is the mean and there are no prefixes.

    Raises:
        ModelUnavailable: a file is missing, or the model cannot be loaded.
        ConfigurationError: an unknown pooling.
    """

    def __init__(
        self,
        path: Path,
        *,
        pooling: str | None = None,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
        threads: int | None = None,
    ) -> None:
        path = path.absolute()
        model_file = "model.onnx" if (path / "model.onnx").is_file() else "onnx/model.onnx"
        for file in (model_file, "tokenizer.json", "tokenizer_config.json"):
            if not (path / file).is_file():
                raise ModelUnavailable(
                    f"The model folder {path} has no {file.removeprefix('onnx/')}.",
                    hint="It must hold model.onnx (or onnx/model.onnx), tokenizer.json and tokenizer_config.json.",
                )
        with native.explained(str(path), "Its files are damaged, or of a kind that onnxruntime does not know."):
            modes = _read_json(path / "1_Pooling" / "config.json")
            kinds = {"cls": "pooling_mode_cls_token", "last_token": "pooling_mode_lasttoken"}
            prompts: dict[str, str] = _read_json(path / "config_sentence_transformers.json").get("prompts") or {}
            super().__init__(
                path,
                model_file,
                name=path.name,
                pooling=pooling or next((kind for kind, mode in kinds.items() if modes.get(mode)), "mean"),
                query_prefix=prompts.get("query", "") if query_prefix is None else query_prefix,
                passage_prefix=prompts.get("document", "") if passage_prefix is None else passage_prefix,
                threads=threads,
            )


class FastEmbedModel(OnnxModel):
    """A model of fastembed's list, from `cache_dir`; it is downloaded only with `local_files_only=False`.

    Prefixes are those of the model's card unless they are given.

    Raises:
        ConfigurationError: fastembed knows no such model; names the nearest.
        ModelUnavailable: the model is not on this machine, the download failed, or onnxruntime alone cannot run it.
    """

    def __init__(
        self,
        name: str,
        cache_dir: Path,
        *,
        local_files_only: bool = True,
        query_prefix: str | None = None,
        passage_prefix: str | None = None,
        threads: int | None = None,
    ) -> None:
        text_embedding = _import_fastembed()
        described = _describe(text_embedding, name)
        hint = f"Download it once with: localmcp models add fastembed:{described['model']}"
        card = next((prefixes for start, *prefixes in _PREFIXES if name.lower().startswith(start)), ["", ""])
        with native.explained(name, hint if local_files_only else "Check the network, then try again."):
            inner: Any = text_embedding(name, str(cache_dir), local_files_only=local_files_only, lazy_load=True).model
            kind = type(inner).__name__
            if kind not in _FASTEMBED_POOLINGS:
                raise ModelUnavailable(f"{name} is no model that localmcp can run.", hint="See: localmcp models list")
            super().__init__(
                Path(inner._model_dir),
                described["model_file"],
                name=described["model"],
                pooling=_FASTEMBED_POOLINGS[kind],
                query_prefix=card[0] if query_prefix is None else query_prefix,
                passage_prefix=card[1] if passage_prefix is None else passage_prefix,
                threads=threads,
                output=int(kind == "BuiltinSentenceEmbedding"),
            )


def list_fastembed_models() -> list[tuple[str, str, int, float]]:
    """Return what fastembed can download: (name, repository, dimension, gigabytes). Needs no network."""
    return [
        (model["model"], str(model["sources"].get("hf") or model["model"]), model["dim"], model["size_in_GB"])
        for model in _import_fastembed().list_supported_models()
    ]


def _import_fastembed() -> type[TextEmbedding]:
    """fastembed's class, imported on first use: 0.45 s of CPU together with numpy and onnxruntime."""
    with native.explained("runtime fastembed", "Reinstall localmcp."):
        native.import_onnxruntime()
        has_ipv6, socket.has_ipv6 = socket.has_ipv6, False
        try:
            # It binds a socket at its import to learn of IPv6, unless Python says that there is none.
            import urllib3.util.connection as connection

            connection.HAS_IPV6 = has_ipv6
        except ImportError:
            pass  # Newer versions of fastembed may do without.
        finally:
            socket.has_ipv6 = has_ipv6
        from fastembed import TextEmbedding
        from loguru import logger  # Brought by fastembed, which logs through it.

        # Our own errors say what went wrong; its log lines beside them would be noise on stderr.
        logger.disable("fastembed")
        return TextEmbedding


def _describe(text_embedding: type[TextEmbedding], name: str) -> dict[str, Any]:
    models = {model["model"].lower(): model for model in text_embedding.list_supported_models()}
    if model := models.get(name.lower()):
        return model
    import difflib

    near = [models[match]["model"] for match in difflib.get_close_matches(name.lower(), models, 3, 0.4)]
    raise ConfigurationError(
        f"fastembed knows no model '{name}'.", hint=f"Near names: {', '.join(near)}." if near else None
    )


def _read_window(folder: Path) -> int:
    """Return how many tokens the model reads, special ones included; transformers writes 1e30 for not known."""
    config = _read_json(folder / "tokenizer_config.json")
    sizes = [config.get(key) for key in ("model_max_length", "max_length")]
    return min((size for size in sizes if isinstance(size, int) and 0 < size < 1_000_000), default=512)


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
