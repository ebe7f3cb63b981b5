"""Writing a setting that can be used."""

from __future__ import annotations

import os
from pathlib import Path

from localmcp.config import write_setting
from localmcp.errors import ConfigurationError


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
