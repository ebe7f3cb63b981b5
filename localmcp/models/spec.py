"""The grammar by which a person names an embedding model, and the opening of what it names.

    default                       all-MiniLM-L6-v2, shipped with localmcp; no network
    multilingual                  multilingual-e5-small, from the extra of that name; 100 languages, no network
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

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

from localmcp import config
from localmcp.config import Settings
from localmcp.errors import ConfigurationError, LocalMCPError
from localmcp.http import split_model_url
from localmcp.models.embedder import DEFAULT_NAME, MULTILINGUAL_NAME, Embedder
from localmcp.models.endpoint import EndpointEmbedder
from localmcp.models.hashing import HashEmbedder
from localmcp.models.lazy import LazyEmbedder
from localmcp.schemas import nearest

ACCEPTED = (
    "Accepted: default, multilingual, hash, hash:DIMENSION, fastembed:NAME, folder:PATH, openai:MODEL, ollama:MODEL,"
    " http://HOST/v1#MODEL or https://HOST/v1#MODEL."
)

_BARE = ("default", "multilingual", "hash")
_PREFIXES = ("query_prefix", "passage_prefix")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "multilingual": (),
    "hash": (),
    "fastembed": _PREFIXES,
    "folder": (*_PREFIXES, "pooling"),
    "endpoint": (*_PREFIXES, "dimension", "max_tokens"),
}
_SERVICES = {"openai": "https://api.openai.com/v1", "ollama": "http://127.0.0.1:11434/v1"}


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A parsed model setting: nothing is opened yet."""

    kind: str
    """default, multilingual, hash, fastembed, folder or endpoint."""
    target: str = ""
    """Dimension, name, path, or URL of the endpoint, by kind."""
    model: str = ""
    """The model an endpoint is asked for."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])


def open_embedder(
    spec: str,
    *,
    api_key: str | None = None,
    threads: int | None = None,
    models_directory: Path | None = None,
    download: bool = False,
) -> Embedder:
    """Return the model that `spec` names, loaded and ready.

    Args:
        api_key: for endpoints only.
        threads: for models that run here; None or 0 means up to 4, by the number of cores.
        models_directory: where models are kept; that of the configuration by default.
        download: let `fastembed:` fetch a missing model; only for a command the person typed.

    Raises:
        ConfigurationError: the spec does not follow the grammar; says what is accepted.
        ModelUnavailable: the model cannot be loaded or reached; says the next step.
    """
    parsed = parse_spec(spec)
    options, folder = parsed.options, models_directory or config.models_directory()
    match parsed.kind:
        case "default":
            from localmcp.models.default_model import DefaultEmbedder

            return DefaultEmbedder(threads=threads)
        case "multilingual":
            from localmcp.models.multilingual_model import MultilingualEmbedder

            return MultilingualEmbedder(threads=threads)
        case "hash":
            return HashEmbedder(_number(parsed.target, "hash:DIMENSION")) if parsed.target else HashEmbedder()
        case "folder":
            from localmcp.models.fastembed_models import FolderEmbedder

            return FolderEmbedder(Path(parsed.target), threads=threads, **options)
        case "fastembed":
            from localmcp.models.fastembed_models import FastEmbedModel

            return FastEmbedModel(parsed.target, folder, local_files_only=not download, threads=threads, **options)
        case _:
            return _open_endpoint(parsed, api_key)


def configured_embedder(settings: Settings) -> LazyEmbedder:
    """Return the embedder of the model that the settings choose; nothing is loaded yet."""

    key, threads = settings.model_api_key or None, settings.threads or None
    return LazyEmbedder(lambda: open_embedder(settings.model, api_key=key, threads=threads))


def parse_spec(spec: str) -> ModelSpec:
    """`spec` taken apart by the grammar above, without opening anything.

    Raises:
        ConfigurationError: it does not follow the grammar.
    """
    text = spec.strip()
    folder = _expand_home(text)
    if text not in _BARE and os.path.isdir(folder):
        return ModelSpec("folder", folder)
    body, _, query = text.partition("?")
    parsed = _parse_body(body)
    if query:
        parsed = ModelSpec(parsed.kind, parsed.target, parsed.model, _parse_options(parsed.kind, query))
    return parsed


def _parse_body(body: str) -> ModelSpec:
    scheme, colon, target = body.partition(":")
    if scheme.lower() in ("http", "https"):
        parts = split_model_url(body, "The model", "LOCALMCP_MODEL_API_KEY", ACCEPTED)
        return ModelSpec("endpoint", body.partition("#")[0], parts.fragment)
    if body in _BARE:
        return ModelSpec(body)
    if colon and target and scheme in _SERVICES:
        return ModelSpec("endpoint", _SERVICES[scheme], target)
    if colon and target and scheme == "folder":
        return ModelSpec(scheme, _expand_home(target))
    if colon and target and scheme in ("hash", "fastembed"):
        return ModelSpec(scheme, target)
    raise ConfigurationError(f"'{body}' names no embedding model.{_guess(body)}", hint=ACCEPTED)


def _expand_home(path: str) -> str:
    """`~` and `~/…` only: looking up `~name` fails in its own ways on text that is no path at all."""
    return os.path.expanduser(path) if path == "~" or path.startswith(("~/", "~\\")) else path


def _guess(body: str) -> str:
    if body.startswith("text-embedding-"):
        return f" Did you mean openai:{body}?"
    if body.count("/") == 1 and ":" not in body:
        return f" It is not a folder; did you mean fastembed:{body}?"
    near = nearest(body, _BARE)
    return f" Did you mean {near}?" if near else ""


def _parse_options(kind: str, query: str) -> dict[str, str]:
    allowed = _OPTIONS[kind]
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in allowed:
            raise ConfigurationError(
                f"'{name}' is not an option of a model of the kind {kind}.",
                hint=f"Its options: {', '.join(allowed) or 'none'}.",
            )
    return options


def _open_endpoint(parsed: ModelSpec, api_key: str | None) -> EndpointEmbedder:
    options = parsed.options
    service = "OpenAI" if parsed.target == _SERVICES["openai"] else None
    if service and not api_key:
        raise ConfigurationError(
            f"openai:{parsed.model} needs an API key.", hint="Set LOCALMCP_MODEL_API_KEY, or use the default model."
        )
    # 8191 is the window of OpenAI's models; the model behind another address is unknown, and 512 is common.
    window = options.get("max_tokens", "8191" if service else "512")
    dimension = options.get("dimension")
    return EndpointEmbedder(
        parsed.target,
        parsed.model,
        api_key,
        dimension=_number(dimension, "dimension") if dimension is not None else None,
        max_tokens=_number(window, "max_tokens"),
        query_prefix=options.get("query_prefix", ""),
        passage_prefix=options.get("passage_prefix", ""),
    )


def _number(text: str, name: str) -> int:
    if text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000:
        return int(text)
    raise ConfigurationError(f"{name} is '{text}', but must be a whole number above 0.")


# ---------------------------------------------------------------- by the name that a file gives its vectors


def open_local_model(name: str, fingerprint: str, dimension: int, threads: int | None = None) -> Embedder | None:
    """Return the model of that name and fingerprint, or None when it is not here.

    The name comes from a file that anybody may have written, so it only chooses among what is on this machine: no
    folder that it names is opened, and no host is contacted.
    """
    spec = _spec(name, dimension)
    if spec is None:
        return None
    try:
        embedder = open_embedder(spec, threads=threads)
    except LocalMCPError:
        return None
    return embedder if embedder.identity.fingerprint == fingerprint else None


def _spec(name: str, dimension: int) -> str | None:
    own_specs = {"hash": f"hash:{dimension}", DEFAULT_NAME: "default", MULTILINGUAL_NAME: "multilingual"}
    if name in own_specs:
        return own_specs[name]
    here = {path.name.lower() for path in config.models_directory().glob("models--*")}
    if not here:
        return None
    from localmcp.models.fastembed_models import list_fastembed_models

    repositories = {model: repository for model, repository, _, _ in list_fastembed_models()}
    folder = f"models--{repositories.get(name, '').lower().replace('/', '--')}"
    return f"fastembed:{name}" if folder in here else None
