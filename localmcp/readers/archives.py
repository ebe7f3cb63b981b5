"""Reads archives (.zip, .tar and its compressed forms) as folders, file by file."""

from __future__ import annotations

import io
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from lzma import LZMAError
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from localmcp.errors import LocalMCPError, UnreadableDocument
from localmcp.readers.document import Document, failed_member
from localmcp.readers.encodings import decode_text
from localmcp.readers.packages import in_megabytes, most_unpacked

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MOST_MEMBERS, MOST_UNPACKED = 100_000, 20
"""Files of an archive, and times the limit for one file that it may unpack to as a whole."""

ReadDocuments = Callable[[BinaryIO, str], Iterator[Document]]
OpenMember = Callable[[], Any]
"""Opens a file in an archive."""
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, OSError, RuntimeError, ValueError)
"""What the archive libraries raise for damage, passwords and methods that they do not know."""


def is_archive(name: str) -> bool:
    """Return whether a file is an archive by its name."""
    return name.lower().endswith(SUFFIXES)


def read_archive(file: BinaryIO, name: str, read: ReadDocuments, max_bytes: int) -> Iterator[Document]:
    """Yield the documents of the files in an archive; hidden files, and those that macOS adds, are left out.

    Raises:
        UnreadableDocument: it is damaged, or unpacks to more than such a file ever does.
    """
    size_of_archive = file.seek(0, io.SEEK_END)
    file.seek(0)
    most = min(MOST_UNPACKED * max_bytes, most_unpacked(size_of_archive, max_bytes))
    unpacked = 0
    members = _zip_members(file) if name.lower().endswith(".zip") else _tar_members(file)
    try:
        for number, (path, size, open_member) in enumerate(members):
            if number >= MOST_MEMBERS or unpacked + min(size, max_bytes) > most:
                raise UnreadableDocument(f"{name} holds too much: the rest of it is not read.")
            parts = PurePosixPath(path).parts
            if any((part.startswith(".") and part != "..") or part == "__MACOSX" for part in parts):
                continue
            if ".." in parts:
                yield failed_member(path, "Its name leads out of the archive.")
            elif size > max_bytes:
                yield failed_member(path, f"It is larger than {in_megabytes(max_bytes)}.")
            else:
                unpacked += size
                yield from _read_member(path, open_member, read, max_bytes)
    except _DAMAGE as error:
        raise UnreadableDocument(f"{name} is damaged: {' '.join(str(error).split())}"[:300]) from error


def _read_member(path: str, open_member: OpenMember, read: ReadDocuments, max_bytes: int) -> Iterator[Document]:
    try:
        with open_member() as file:
            data = file.read(max_bytes)
        for document in read(io.BytesIO(data), PurePosixPath(path).name):
            inner = f"{path}/{document.member}" if document.member else path
            parent = f"{path}/{document.parent}" if document.parent else (path if document.member else "")
            yield replace(document, member=inner, parent=parent)
    except LocalMCPError as error:
        yield failed_member(path, error)
    except _DAMAGE as error:
        encrypted = "encrypted" in str(error) or "password" in str(error)
        yield failed_member(path, "It is password-protected." if encrypted else f"It is damaged: {error}"[:300])


def _zip_members(file: BinaryIO) -> Iterator[tuple[str, int, OpenMember]]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = member.filename
            if not member.flag_bits & 0x800:
                # It does not say that its name is in UTF-8: Python takes cp437, but many programs write UTF-8.
                try:
                    name = name.encode("cp437").decode()
                except UnicodeError:
                    name = member.filename
            if not member.is_dir():
                yield name, member.file_size, partial(archive.open, member)


def _tar_members(file: BinaryIO) -> Iterator[tuple[str, int, OpenMember]]:
    with tarfile.open(fileobj=file, mode="r:*") as archive:
        for member in archive:
            if member.isreg():
                name = decode_text(member.name.encode(errors="surrogateescape"))[0]
                yield name, member.size, partial(archive.extractfile, member)
