"""Models in one file, for machines that never see a network: written where they are, unpacked where they are not.

A parcel is a zip with a `parcel.json` that names every file with its sha256. Nothing in it is trusted before that was
compared, and nothing is written outside the folder of models.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from localmcp.embeddings.e5_model import E5_FILE, E5_FOLDER, find_e5_file
from localmcp.embeddings.fastembed_models import list_fastembed_models
from localmcp.embeddings.spec import parse_spec
from localmcp.errors import InvalidInput, ModelUnavailable, UnreadableDocument

PARCEL, FORM = "parcel.json", "localmcp-model-1"
MOST_FILES, MOST_BYTES = 200, 20_000_000_000
MOST_LIST_BYTES = 1_000_000
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is in a parcel."""

    spec: str
    """The setting that chooses the model."""
    folder: str
    """Its folder below the folder of models."""
    files: dict[str, str]
    """Path below that folder, with slashes -> sha256."""


def write_parcel(spec: str, target: Path, models_directory: Path) -> Parcel:
    """Write the files of a model that is on this machine to a zip, whole or not at all.

    Raises:
        InvalidInput: a model that has no files here to give, or the target exists.
        ModelUnavailable: the model is not on this machine, or the target cannot be written.
    """
    target = target.expanduser().absolute()
    if target.exists():
        raise InvalidInput(f"{target} is there already.", hint="Name another file.")
    folder, files = _model_files(spec, models_directory)
    parcel = Parcel(spec, folder, {name: _digest(path) for name, path in files.items()})
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
            told = {"form": FORM, "spec": spec, "folder": folder, "files": parcel.files}
            archive.writestr(PARCEL, json.dumps(told, indent=1))
            for name, path in files.items():
                archive.write(path, name)
        os.replace(part, target)
    except OSError as error:
        raise ModelUnavailable(f"{target} cannot be written: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)
    return parcel


def _model_files(spec: str, models_directory: Path) -> tuple[str, dict[str, Path]]:
    """Return the folder's name below the folder of models, and path in it -> file."""
    if parse_spec(spec).kind == "multilingual":
        return E5_FOLDER, {E5_FILE: find_e5_file(models_directory)}
    folder = model_folder(spec, models_directory)
    return folder.name, {path.relative_to(folder).as_posix(): path for path in _files_of(folder)}


def model_folder(spec: str, models_directory: Path) -> Path:
    """Where the files of a model lie.

    Raises:
        InvalidInput: it comes with localmcp, is a folder of the person's own, or lives on another machine.
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
    wanted = f"models--{repository.replace('/', '--')}".lower()
    for each in models_directory.glob("*"):
        if repository and each.is_dir() and each.name.lower() == wanted:
            return each
    raise ModelUnavailable(f"{spec} is not on this machine.", hint=f"Fetch it with: localmcp models add {spec}")


def _files_of(folder: Path) -> Iterator[Path]:
    """The files themselves; Hugging Face's cache has links to them, which become files of their own."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in ("blobs", ".locks"))
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not name.endswith((".lock", ".incomplete", ".part")):
                yield path


# ---------------------------------------------------------------- in


def read_parcel(path: Path) -> Parcel:
    """What a parcel says is in it.

    Raises:
        UnreadableDocument: it is no parcel, or one that would write elsewhere.
    """
    with _opened(path) as archive:
        return _described(archive, path)


def unpack_parcel(path: Path, models_directory: Path) -> Parcel:
    """Put a parcel's model into the folder of models; an earlier one there is replaced when all of it was checked.

    Raises:
        UnreadableDocument: it is no parcel, is damaged, or would write elsewhere.
        ModelUnavailable: the folder cannot be written.
    """
    try:
        models_directory.mkdir(parents=True, exist_ok=True)
        with _opened(path) as archive, tempfile.TemporaryDirectory(prefix=".import-", dir=models_directory) as scratch:
            parcel = _described(archive, path)
            fresh = Path(scratch) / "fresh"
            for name, sha256 in parcel.files.items():
                _unpack(archive, name, sha256, fresh, path)
            _take_place(fresh, models_directory / parcel.folder, Path(scratch) / "old")
    except OSError as error:
        raise ModelUnavailable(f"{models_directory} cannot be written: {error.strerror or error}.") from error
    return parcel


def _opened(path: Path) -> zipfile.ZipFile:
    if not path.is_file():
        raise UnreadableDocument(f"There is no file {path}.")
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableDocument(f"{path} is not a zip file: {error}.") from error


def _described(archive: zipfile.ZipFile, path: Path) -> Parcel:
    try:
        if archive.getinfo(PARCEL).file_size > MOST_LIST_BYTES:
            raise ValueError("its list of files is too long")
        parcel = _parse(json.loads(archive.read(PARCEL)))
        _check_members(archive, parcel)
    except (KeyError, ValueError, TypeError, RecursionError, zipfile.BadZipFile, NotImplementedError) as error:
        raise UnreadableDocument(
            f"{path} is not a model that localmcp exported: {error}.", hint="Make one with: localmcp models export"
        ) from error
    return parcel


def _parse(said: Any) -> Parcel:
    if not isinstance(said, dict) or cast("dict[str, Any]", said).get("form") != FORM:
        raise ValueError(f"it does not say that it is of the form {FORM}")
    table = cast("dict[str, Any]", said)
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
    if not all(isinstance(each, str) and len(each) == 64 for each in named.values()):
        raise ValueError("a sha256 is missing")
    return Parcel(spec, folder, named)


def _check_name(name: str) -> None:
    """Only plain relative paths: no drive, no root, no way up, nothing that another system reads otherwise."""
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") or part.rstrip(". ") != part for part in parts):
        raise ValueError(f"'{name}' would be written elsewhere")
    if any(character in name for character in '\\:*?"<>|') or not name.isprintable():
        raise ValueError(f"'{name}' cannot be a file's name everywhere")


def _check_members(archive: zipfile.ZipFile, parcel: Parcel) -> None:
    sizes = {each.filename: each.file_size for each in archive.infolist()}
    if set(sizes) != {*parcel.files, PARCEL} or len(archive.infolist()) != len(sizes):
        raise ValueError("its files are not those it names")
    if not parcel.files or len(sizes) > MOST_FILES or sum(sizes.values()) > MOST_BYTES:
        raise ValueError(f"{len(sizes)} files of {sum(sizes.values())} bytes are no model")


def _unpack(archive: zipfile.ZipFile, name: str, sha256: str, folder: Path, path: Path) -> None:
    target = folder.joinpath(*name.split("/"))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with archive.open(name) as source, target.open("wb") as file:
            found = _copy(source, file, archive.getinfo(name).file_size)
    except (zipfile.BadZipFile, EOFError, RuntimeError) as error:
        raise UnreadableDocument(f"{path} is damaged: {error}.") from error
    if found != sha256:
        raise UnreadableDocument(f"{path} is damaged: {name} is not what was exported.")


def _copy(source: IO[bytes], target: IO[bytes], most: int) -> str:
    digest, seen = hashlib.sha256(), 0
    while block := source.read(BLOCK):
        seen += len(block)
        if seen > most:
            raise zipfile.BadZipFile("a file is longer than it says")
        digest.update(block)
        target.write(block)
    return digest.hexdigest()


def _take_place(fresh: Path, place: Path, old: Path) -> None:
    """Between the two renames nothing is there; the old one comes back if the second fails."""
    if place.exists():
        os.replace(place, old)
    try:
        os.replace(fresh, place)
    except OSError:
        if old.exists():
            os.replace(old, place)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
