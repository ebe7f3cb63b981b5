"""Changing settings: a value is checked before it is written, and a model reads the file before it is used."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from localmcp.config import write_setting
from localmcp.errors import ConfigurationError

if TYPE_CHECKING:
    from localmcp.index.collections import Collection
    from localmcp.index.reembedding import Reembedded, Tell
    from localmcp.workspace import Workspace


def change_setting(name: str, value: str) -> Path:
    """Write one setting to `config.toml` and return the file; no model is opened.

    Raises:
        ConfigurationError: an unknown setting, or a value that cannot be used, such as a model that there cannot be.
        InvalidInput: no collection can be called so.
    """
    if name == "model":
        from localmcp.models import parse_spec

        spec = parse_spec(value)
        if spec.kind == "folder" and not os.path.isdir(spec.target):
            raise ConfigurationError(f"model is '{value}', but there is no folder {spec.target}.")
    elif name == "collection":
        from localmcp.index.collections import checked_collection_name

        checked_collection_name(value)
    elif name == "language_model" and value:
        from localmcp.models.language_model import parse_address

        parse_address(value)
    return write_setting(name, value)


def reembed_file(
    workspace: Workspace, name: str | None, watch: Callable[[Collection], AbstractContextManager[Tell]]
) -> tuple[list[Reembedded], int]:
    """Let the model of a workspace read one collection, or (for None) all and the rules; return what was done.

    `watch` gives what takes the progress of a collection. Stopped, the same call goes on.

    Raises:
        ModelUnavailable: it cannot be opened, or failed; what it made is kept.
        FileUnavailable: the file cannot be written.
    """
    from localmcp.index.adaptation import adapt_weights
    from localmcp.index.reembedding import collections_to_reembed, reembed

    with workspace.database.read() as connection:
        collections = collections_to_reembed(connection, name)
    workspace.database.ensure_writable()
    embedder = workspace.embedder.get()
    done: list[Reembedded] = []
    for collection in collections:
        with watch(collection) as tell:
            done.append(reembed(workspace.database, collection, embedder, tell))
        if done[-1].switched and workspace.settings.semantic_weight is None:
            adapt_weights(workspace.database, embedder)
    return done, 0 if name else workspace.rules.embed_missing()
