"""One model of each kind in a process: loading one takes up to a second of the processor."""

from __future__ import annotations

import gc
from functools import cache
from types import SimpleNamespace

import pytest

from localmcp.malloc_trim import return_freed_memory
from localmcp.models import embedder, local_model, multilingual_model

DEFAULT, MULTILINGUAL = local_model.DefaultEmbedder, multilingual_model.MultilingualEmbedder


def share_models(patch: pytest.MonkeyPatch) -> None:
    """Let all workspaces of this process have the same models, which are safe to call from several threads."""
    patch.setattr(local_model, "DefaultEmbedder", cache(DEFAULT))
    patch.setattr(multilingual_model, "MultilingualEmbedder", cache(MULTILINGUAL))
    # So a workspace that closes has no model to give back; in the heap of a run that takes up to half a second.
    patch.setattr(embedder, "gc", SimpleNamespace(collect=int))
    patch.setattr(embedder, "return_freed_memory", int)


def load_models_anew(patch: pytest.MonkeyPatch) -> None:
    """Undo it."""
    patch.setattr(local_model, "DefaultEmbedder", DEFAULT)
    patch.setattr(multilingual_model, "MultilingualEmbedder", MULTILINGUAL)
    patch.setattr(embedder, "gc", gc)
    patch.setattr(embedder, "return_freed_memory", return_freed_memory)
