"""The models that are on this machine already, looked for by the name that a file gives its vectors."""

from __future__ import annotations

from pathlib import Path

from localmcp.embeddings.default_model import DEFAULT_NAME
from localmcp.embeddings.embedder import Embedder
from localmcp.embeddings.fastembed_models import list_fastembed_models
from localmcp.embeddings.multilingual_model import MULTILINGUAL_NAME
from localmcp.embeddings.spec import open_embedder
from localmcp.errors import LocalMCPError


def open_local_model(
    name: str, fingerprint: str, dimension: int, models_directory: Path, threads: int | None = None
) -> Embedder | None:
    """Return the model of that name and fingerprint, or None when it is not here.

    The name comes from a file that anybody may have written, so it only chooses among what is on this machine: no
    folder that it names is opened, and no host is contacted.
    """
    spec = _spec(name, dimension, models_directory)
    if spec is None:
        return None
    try:
        embedder = open_embedder(spec, threads=threads, models_directory=models_directory)
    except LocalMCPError:
        return None
    return embedder if embedder.identity.fingerprint == fingerprint else None


def _spec(name: str, dimension: int, models_directory: Path) -> str | None:
    if name == "hash":
        return f"hash:{dimension}"
    if name == DEFAULT_NAME:
        return "default"
    if name == MULTILINGUAL_NAME:
        return "multilingual"
    here = {path.name.lower() for path in models_directory.glob("models--*")}
    if not here:
        return None
    repositories = {model: repository for model, repository, _, _ in list_fastembed_models()}
    folder = f"models--{repositories.get(name, '').lower().replace('/', '--')}"
    return f"fastembed:{name}" if folder in here else None
