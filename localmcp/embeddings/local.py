"""The models that are on this machine already, looked for by the name that a file gives its vectors."""

from __future__ import annotations

from localmcp.config import models_directory
from localmcp.embeddings.embedder import DEFAULT_NAME, MULTILINGUAL_NAME, Embedder
from localmcp.embeddings.spec import open_embedder
from localmcp.errors import LocalMCPError


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
    here = {path.name.lower() for path in models_directory().glob("models--*")}
    if not here:
        return None
    from localmcp.embeddings.fastembed_models import list_fastembed_models

    repositories = {model: repository for model, repository, _, _ in list_fastembed_models()}
    folder = f"models--{repositories.get(name, '').lower().replace('/', '--')}"
    return f"fastembed:{name}" if folder in here else None
