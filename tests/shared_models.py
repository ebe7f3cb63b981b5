"""One model of each kind in a process: loading one takes up to a second of the processor."""

from __future__ import annotations

from functools import cache

import pytest

from localmcp.models import local_model, multilingual_model

DEFAULT, MULTILINGUAL = local_model.DefaultEmbedder, multilingual_model.MultilingualEmbedder


def share_models(patch: pytest.MonkeyPatch) -> None:
    """Let all workspaces of this process have the same models, which are safe to call from several threads."""
    patch.setattr(local_model, "DefaultEmbedder", cache(DEFAULT))
    patch.setattr(multilingual_model, "MultilingualEmbedder", cache(MULTILINGUAL))


def load_models_anew(patch: pytest.MonkeyPatch) -> None:
    """Undo it."""
    patch.setattr(local_model, "DefaultEmbedder", DEFAULT)
    patch.setattr(multilingual_model, "MultilingualEmbedder", MULTILINGUAL)
