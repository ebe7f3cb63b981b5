"""Models in one file, for machines without a network: exported on one machine, imported on another.

An archive is a zip with a `parcel.json` that names every file with its sha256. Nothing in it is used before that was
compared, and nothing is written outside the folder of models.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from localmcp.errors import InvalidInput, ModelUnavailable, UnreadableDocument
from localmcp.files import expand_home
from localmcp.models.e5_model import E5_FILE, E5_FOLDER, find_e5_file
from localmcp.models.fastembed_models import list_fastembed_models
from localmcp.models.native import digest_weights
from localmcp.models.spec import parse_spec

DESCRIPTION, FORM = "parcel.json", "localmcp-model-1"
MOST_FILES, MOST_BYTES = 200, 20_000_000_000
MOST_LIST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ModelArchive:
    """The contents of a model's archive."""

    spec: str
    """The setting that chooses the model."""
    folder: str
    """Its folder below the folder of models."""
    files: dict[str, str]
    """Path below that folder, with slashes -> sha256."""


def write_archive(spec: str, target: Path, models_directory: Path) -> ModelArchive:
    """Write the files of a model that is on this machine to a zip, whole or not at all.

    Raises:
        InvalidInput: a model that has no files here to give, or the target exists.
        ModelUnavailable: the model is not on this machine, or the target cannot be written.
    """
    target = expand_home(target).absolute()
    if target.exists():
        raise InvalidInput(f"{target} is there already.", hint="Name another file.")
    folder, files = _model_files(spec, models_directory)
    content = ModelArchive(spec, folder, {name: digest_weights([path]) for name, path in files.items()})
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        # Files of the time 0 count as of 1980.
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
            description = {"form": FORM, "spec": spec, "folder": folder, "files": content.files}
            archive.writestr(DESCRIPTION, json.dumps(description, indent=1))
            for name, path in files.items():
                archive.write(path, name)
        os.replace(part, target)
    except OSError as error:
        raise ModelUnavailable(f"{target} cannot be written: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)
    return content


def _model_files(spec: str, models_directory: Path) -> tuple[str, dict[str, Path]]:
    """Return the folder's name below the folder of models, and path in it -> file."""
    if parse_spec(spec).kind == "multilingual":
        return E5_FOLDER, {E5_FILE: find_e5_file(models_directory)}
    folder = model_folder(spec, models_directory)
    return folder.name, {path.relative_to(folder).as_posix(): path for path in _files_of(folder)}


def model_folder(spec: str, models_directory: Path) -> Path:
    """Return the place of a model's files.

    Raises:
        InvalidInput: it comes with localmcp, is a folder that the person keeps, or is on another machine.
        ModelUnavailable: it is not on this machine.
    """
    parsed = parse_spec(spec)
    if parsed.kind != "fastembed":
        why = {"default": "comes with localmcp", "hash": "has no files", "folder": "is a folder that can be copied"}
        raise InvalidInput(
            f"{spec} {why.get(parsed.kind, 'is not on this machine')}; there is nothing to put into a file.",
            hint="Give multilingual, or fastembed:NAME (localmcp models list).",
        )
    repository = next((r for name, r, _, _ in list_fastembed_models() if name.lower() == parsed.target.lower()), "")
    folder_name = f"models--{repository.replace('/', '--')}".lower()
    for folder in models_directory.glob("*"):
        if repository and folder.is_dir() and folder.name.lower() == folder_name:
            return folder
    raise ModelUnavailable(f"{spec} is not on this machine.", hint=f"Fetch it with: localmcp models add {spec}")


def _files_of(folder: Path) -> Iterator[Path]:
    """Yield the files themselves; Hugging Face's cache has links to them, which become separate files."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(folder for folder in folders if folder not in ("blobs", ".locks"))
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not name.endswith((".lock", ".incomplete", ".part")):
                yield path


# ---------------------------------------------------------------- importing


def unpack_archive(path: Path, models_directory: Path) -> ModelArchive:
    """Put an archive's model into the folder of models; an earlier one is replaced once the whole new one was checked.

    Raises:
        UnreadableDocument: it is no such archive, is damaged, or would write elsewhere.
        ModelUnavailable: the folder cannot be written.
    """
    try:
        models_directory.mkdir(parents=True, exist_ok=True)
        with _opened(path) as archive, tempfile.TemporaryDirectory(prefix=".import-", dir=models_directory) as scratch:
            content = _described(archive, path)
            fresh = Path(scratch) / "fresh"
            for name, sha256 in content.files.items():
                _unpack(archive, name, sha256, fresh, path)
            _take_place(fresh, models_directory / content.folder, Path(scratch) / "old")
    except OSError as error:
        raise ModelUnavailable(f"{models_directory} cannot be written: {error.strerror or error}.") from error
    return content


def _opened(path: Path) -> zipfile.ZipFile:
    if not path.is_file():
        raise UnreadableDocument(f"There is no file {path}.")
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableDocument(f"{path} is not a zip file: {error}.") from error


def _described(archive: zipfile.ZipFile, path: Path) -> ModelArchive:
    try:
        if archive.getinfo(DESCRIPTION).file_size > MOST_LIST_BYTES:
            raise ValueError("its list of files is too long")
        content = _parse(json.loads(archive.read(DESCRIPTION)))
        _check_members(archive, content)
    except (KeyError, ValueError, TypeError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise UnreadableDocument(
            f"{path} is not a model that localmcp exported: {error}.", hint="Make one with: localmcp models export"
        ) from error
    return content


def _parse(description: Any) -> ModelArchive:
    if not isinstance(description, dict) or cast("dict[str, Any]", description).get("form") != FORM:
        raise ValueError(f"it does not say that it is of the form {FORM}")
    table = cast("dict[str, Any]", description)
    spec, folder, files = table["spec"], table["folder"], table["files"]
    if not isinstance(spec, str) or not isinstance(folder, str) or not isinstance(files, dict):
        raise ValueError("its description is not of the right form")
    named = cast("dict[str, Any]", files)
    kind = parse_spec(spec).kind
    if kind not in ("fastembed", "multilingual"):
        raise ValueError(f"{spec} is not a model that is kept in files")
    if folder != E5_FOLDER if kind == "multilingual" else not folder.startswith("models--"):
        raise ValueError(f"'{folder}' is not the folder of {spec}")
    for name in (folder, *named):
        _check_name(name)
    if PurePosixPath(folder).name != folder:
        raise ValueError(f"'{folder}' is not a plain name")
    if not all(isinstance(sha256, str) and len(sha256) == 64 for sha256 in named.values()):
        raise ValueError("a sha256 is missing")
    return ModelArchive(spec, folder, named)


def _check_name(name: str) -> None:
    """Only plain relative paths: no drive, no root, no way up, nothing that another system reads otherwise."""
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") or part.rstrip(". ") != part for part in parts):
        raise ValueError(f"'{name}' would be written elsewhere")
    if any(character in name for character in '\\:*?"<>|') or not name.isprintable():
        raise ValueError(f"'{name}' cannot be a file's name everywhere")


def _check_members(archive: zipfile.ZipFile, content: ModelArchive) -> None:
    sizes = {member.filename: member.file_size for member in archive.infolist()}
    if set(sizes) != {*content.files, DESCRIPTION} or len(archive.infolist()) != len(sizes):
        raise ValueError("its files are not those it names")
    if not content.files or len(sizes) > MOST_FILES or sum(sizes.values()) > MOST_BYTES:
        raise ValueError(f"{len(sizes)} files of {sum(sizes.values())} bytes are no model")


def _unpack(archive: zipfile.ZipFile, name: str, sha256: str, folder: Path, path: Path) -> None:
    target = folder.joinpath(*name.split("/"))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with archive.open(name) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UnreadableDocument(f"{path} is damaged: {error}.") from error
    if digest_weights([target]) != sha256:
        raise UnreadableDocument(f"{path} is damaged: {name} is not what was exported.")


def _take_place(fresh: Path, place: Path, old: Path) -> None:
    """Replace the folder of an earlier import, which comes back if the second rename fails."""
    if place.exists():
        os.replace(place, old)
    try:
        os.replace(fresh, place)
    except OSError:
        if old.exists():
            os.replace(old, place)
        raise
    shutil.rmtree(old, ignore_errors=True)
