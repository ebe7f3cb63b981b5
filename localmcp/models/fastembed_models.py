"""Embedding models that run in this process through fastembed: those of its list, and a folder."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmcp.arrays import Vector, Vectors, np
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.models import native
from localmcp.models.embedder import ModelIdentity, require_query, unit_rows
from localmcp.models.tokens import WordPieces

if TYPE_CHECKING:
    from fastembed import TextEmbedding

_POOLINGS = ("mean", "cls", "last_token", "disabled")
_FASTEMBED_POOLINGS = {"OnnxTextEmbedding": "cls", "PooledEmbedding": "mean", "PooledNormalizedEmbedding": "mean"}

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

FEW_CHARACTERS = 20_000
"""So much text is embedded by the model that is loaded for queries; loading a second copy takes as long."""

_registration = threading.Lock()
_loading = threading.Lock()


class OnnxEmbedder:
    """A loaded fastembed model, safe to call from several threads.

    A query is shared among all threads, which is over a third faster than one alone (4.6 against 7.1 ms). Passages run
    side by side, each on one thread, in a second copy of the model that is loaded when there are many: that takes half
    the processor time of sharing each. onnxruntime keeps working memory for every run, so passages wait for passages
    and queries for queries; a query does not wait for passages.
    """

    batch_characters = 600
    """Texts go through the model together while, padded to the longest, they are no longer than this: long ones are
    faster alone, and short ones together."""

    def __init__(
        self,
        model: TextEmbedding,
        folder: Path,
        *,
        again: Callable[[int], TextEmbedding] | None = None,
        name: str,
        sha256: str,
        pooling: str,
        query_prefix: str = "",
        passage_prefix: str = "",
        threads: int | None = None,
    ) -> None:
        self._model = model
        self._again = again
        self._passage_model: TextEmbedding | None = None
        self._loading = threading.Lock()
        self.count_tokens = WordPieces(folder / "tokenizer.json")
        self._at_once = native.threads_for(threads) if again else 1
        self._passage_slots = threading.BoundedSemaphore(self._at_once)
        self._query_lock = threading.Lock()
        self.identity = ModelIdentity(
            name=name,
            sha256=sha256,
            pooling=pooling,
            query_prefix=query_prefix,
            passage_prefix=passage_prefix,
            dimension=self._run_query("dimension").shape[0],
            max_tokens=self._window() - self.count_tokens(passage_prefix),
        )

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`.

        Text past `identity.max_tokens` is not read.

        Raises:
            ModelUnavailable: there is no room for the second copy of the model.
        """
        few = sum(map(len, texts)) <= FEW_CHARACTERS
        model = self._model if few else self._model_for_passages()
        vectors = np.empty((len(texts), self.identity.dimension), np.float32)

        def embed(rows: list[int]) -> None:
            vectors[rows] = self._run_passages(model, [texts[row] for row in rows])

        batches = self._batches(texts)
        native.run_beside(embed, batches, 1 if few else min(self._at_once, len(batches)))
        return unit_rows(vectors)

    def _batches(self, texts: Sequence[str]) -> deque[list[int]]:
        """Places of texts of similar length, the longest first, so that no thread begins a long one at the end."""
        batches: deque[list[int]] = deque()
        for row in sorted(range(len(texts)), key=lambda row: len(texts[row])):
            if batches and (len(batches[0]) + 1) * len(texts[row]) <= self.batch_characters:
                batches[0].append(row)
            else:
                batches.appendleft([row])
        return batches

    def _model_for_passages(self) -> TextEmbedding:
        if self._at_once == 1 or self._again is None:
            return self._model
        with self._loading:
            if self._passage_model is None:
                with native.explained(self.identity.name, "Free some memory, or set threads to 1."):
                    self._passage_model = self._again(1)
            return self._passage_model

    def _run_passages(self, model: TextEmbedding, texts: Sequence[str]) -> list[Any]:
        batch = [self.identity.passage_prefix + text for text in texts]
        with self._passage_slots, native.native_calls:
            return list(model.passage_embed(batch, batch_size=len(batch)))

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        vector = self._run_query(self.identity.query_prefix + require_query(text))
        return unit_rows(vector[None, :])[0]

    def _run_query(self, text: str) -> Vector:
        with self._query_lock, native.native_calls:
            return np.asarray(next(iter(self._model.query_embed(text))), np.float32)

    def _window(self) -> int:
        inner: Any = self._model.model
        return inner.tokenizer.truncation["max_length"] - inner.tokenizer.num_special_tokens_to_add(False)


class FolderEmbedder(OnnxEmbedder):
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
        model_file = _find_model_file(path)
        # Large models keep their weights in a second file beside the graph.
        beside = [path / f"{model_file}{ending}" for ending in ("_data", ".data")]
        with native.explained(
            str(path), "If its output is one vector a text already, set the option pooling=disabled."
        ):
            pooling = _check_pooling(pooling or _read_pooling(path))
            prompts = _read_prompts(path)
            load = partial(_load_custom, f"localmcp/{model_file}-{pooling}", path, model_file, pooling)
            super().__init__(
                load(native.threads_for(threads)),
                path,
                again=load,
                pooling=pooling,
                threads=threads,
                name=path.name,
                sha256=native.digest_weights([path / model_file, *(file for file in beside if file.is_file())]),
                query_prefix=prompts.get("query", "") if query_prefix is None else query_prefix,
                passage_prefix=prompts.get("document", "") if passage_prefix is None else passage_prefix,
            )


class FastEmbedModel(OnnxEmbedder):
    """A model of fastembed's list, from `cache_dir`; it is downloaded only with `local_files_only=False`.

    Prefixes are those of the model's card unless they are given.

    Raises:
        ConfigurationError: fastembed knows no such model; names the nearest.
        ModelUnavailable: the model is not on this machine, or the download failed.
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
        # A static model is not run by onnxruntime and warns about its options.
        static = str(described["model_file"]).endswith(".safetensors")

        def load(threads: int) -> TextEmbedding:
            options: dict[str, Any] = {} if static else {"threads": threads, "providers": native.PROVIDERS}
            with _short_spins():
                return text_embedding(name, str(cache_dir), local_files_only=local_files_only, **options)

        card_query_prefix, card_passage_prefix = _card_prefixes(name)
        with native.explained(name, hint if local_files_only else "Check the network, then try again."):
            model = load(native.threads_for(threads))
            inner: Any = model.model
            folder = Path(inner._model_dir)
            files = [described["model_file"], *described["additional_files"]]
            super().__init__(
                model,
                folder,
                again=None if static else load,
                name=described["model"],
                sha256=native.digest_weights(folder / file for file in files),
                pooling=_FASTEMBED_POOLINGS.get(type(inner).__name__, type(inner).__name__),
                query_prefix=card_query_prefix if query_prefix is None else query_prefix,
                passage_prefix=card_passage_prefix if passage_prefix is None else passage_prefix,
                threads=threads,
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
        _import_urllib3()
        from fastembed import TextEmbedding
        from loguru import logger  # Brought by fastembed, which logs through it.

        # Our own errors say what went wrong; its log lines beside them would be noise on stderr.
        logger.disable("fastembed")
        return TextEmbedding


def _import_urllib3() -> None:
    """urllib3, which fastembed brings for downloads, without the socket that it binds at its import.

    It learns by that whether this machine has IPv6, unless Python says that it has none. Downloads, which are asked
    for, may use both families.
    """
    import socket
    import sys
    from importlib.util import find_spec

    if "urllib3.util.connection" in sys.modules or find_spec("urllib3") is None:
        return
    has_ipv6 = socket.has_ipv6
    socket.has_ipv6 = False
    try:
        import urllib3.util.connection as connection
    finally:
        socket.has_ipv6 = has_ipv6
    connection.HAS_IPV6 = has_ipv6


def _load_custom(name: str, folder: Path, model_file: str, pooling: str, threads: int) -> TextEmbedding:
    """Return a model outside fastembed's list. With `specific_model_path` it looks nothing up and contacts nobody."""
    text_embedding = _import_fastembed()
    from fastembed.common.model_description import ModelSource, PoolingType

    with _registration:
        if not any(name.lower() == model["model"].lower() for model in text_embedding.list_supported_models()):
            text_embedding.add_custom_model(
                name,
                pooling=PoolingType[pooling.upper()],
                normalization=True,
                sources=ModelSource(hf="localmcp/unused"),
                dim=1,  # Required, and only shown in its list; the real one is read from a vector.
                model_file=model_file,
            )
    with _short_spins():
        return text_embedding(name, specific_model_path=str(folder), threads=threads, providers=native.PROVIDERS)


@contextmanager
def _short_spins() -> Generator[None, None, None]:
    """Models that are loaded inside spin for half a millisecond only; fastembed hands no such option on."""
    runtime = native.import_onnxruntime()
    plain = runtime.SessionOptions

    def options() -> Any:
        return native.shorten_spins(plain())

    with _loading:
        runtime.SessionOptions = options
        try:
            yield
        finally:
            runtime.SessionOptions = plain


def _find_model_file(path: Path) -> str:
    """Return the model file of a folder, relative to it; complains about the first file that is missing."""
    model_file = "model.onnx" if (path / "model.onnx").is_file() else "onnx/model.onnx"
    for needed, shown in ((model_file, "model.onnx"), *((f, f) for f in ("tokenizer.json", "tokenizer_config.json"))):
        if not (path / needed).is_file():
            raise ModelUnavailable(
                f"The model folder {path} has no {shown}.",
                hint="It must hold model.onnx (or onnx/model.onnx), tokenizer.json and tokenizer_config.json.",
            )
    return model_file


def _check_pooling(pooling: str) -> str:
    if pooling in _POOLINGS:
        return pooling
    raise ConfigurationError(f"pooling is '{pooling}', but must be one of {', '.join(_POOLINGS)}.")


def _read_pooling(path: Path) -> str:
    """Return the pooling that sentence-transformers recorded; the mean when it recorded none."""
    modes = _read_json(path / "1_Pooling" / "config.json")
    if modes.get("pooling_mode_cls_token"):
        return "cls"
    return "last_token" if modes.get("pooling_mode_lasttoken") else "mean"


def _read_prompts(path: Path) -> dict[str, str]:
    """Return the prefixes that sentence-transformers recorded, by what they are for."""
    return _read_json(path / "config_sentence_transformers.json").get("prompts") or {}


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _describe(text_embedding: type[TextEmbedding], name: str) -> dict[str, Any]:
    models = {m["model"].lower(): m for m in text_embedding.list_supported_models()}
    if model := models.get(name.lower()):
        return model
    import difflib

    near = [models[n]["model"] for n in difflib.get_close_matches(name.lower(), models, 3, 0.4)]
    raise ConfigurationError(
        f"fastembed knows no model '{name}'.", hint=f"Near names: {', '.join(near)}." if near else None
    )


def _card_prefixes(name: str) -> tuple[str, str]:
    for start, query, passage in _PREFIXES:
        if name.lower().startswith(start):
            return query, passage
    return "", ""
