"""Opens zip packages (office files, EPUB), their XML and archives with bounds on what they unpack to."""

from __future__ import annotations

import io
import posixpath
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from lzma import LZMAError
from pathlib import PurePosixPath
from typing import Any, BinaryIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from localmcp.errors import LocalMCPError, UnreadableDocument
from localmcp.readers.document import Document, decode_text, failed_member, password_protected

MAX_UNPACKED, MAX_PART = 400_000_000, 100_000_000
"""Most bytes that one office file or EPUB may hold once unpacked, pictures included, and of one part."""
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MOST_MEMBERS, MOST_UNPACKED = 100_000, 20
"""Files of an archive, and times the limit for one file that it may unpack to as a whole."""
OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""Old Office files; also the envelope of a .docx, .pptx or .xlsx with a password."""


def suffix_of(name: str) -> str:
    """Return the end of a file's name from its last dot, in lower case."""
    return PurePosixPath(name).suffix.lower()


def in_megabytes(size: int) -> str:
    """Return a size in bytes as people read it."""
    return f"{size / 1_000_000:g} MB"


def most_unpacked(packed: int, max_bytes: int) -> int:
    """Return what that many packed bytes may unpack to: 100 times as many, or 10 MB.

    Text packs to a tenth. What packs to a thousandth is made to hold up its reader, and to fill the memory of whoever
    stores it, which takes 9 MB for each MB of text.
    """
    return max(min(2 * max_bytes, 10_000_000), 100 * packed)


def local(element: Element) -> str:
    """Return an element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def attribute(element: Element, name: str, default: str = "") -> str:
    """Return an attribute by its name without a namespace."""
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), default)


def elements(root: Element, *names: str) -> Iterator[Element]:
    """Yield the elements with one of these names, in document order."""
    return (element for element in root.iter() if local(element) in names)


class Package:
    """The zip archive of an office file or a book."""

    def __init__(self, data: bytes, name: str) -> None:
        if data.startswith(OLE_MAGIC):
            raise password_protected(name)
        self.name = name
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self._members = {member.filename: member for member in self._archive.infolist()}
        if sum(member.file_size for member in self._members.values()) > MAX_UNPACKED:
            raise UnreadableDocument(f"{name} unpacks to more than {in_megabytes(MAX_UNPACKED)}.")

    def __contains__(self, path: str) -> bool:
        return path in self._members

    def read(self, path: str, most: int = MAX_PART) -> bytes:
        """Return the bytes of a member; UnreadableDocument if there is none, it is encrypted, or it is too large."""
        member = self._members.get(path)
        if path == "content.xml" and "META-INF/manifest.xml" in self:
            # LibreOffice encrypts each member, or all of them as one.
            sign = rb"encryption-data" if member is None else rb'"content\.xml"[^<>]*>\s*<[\w:]*encryption-data'
            if re.search(sign, self.read("META-INF/manifest.xml")):
                raise password_protected(self.name)
        if member is None:
            raise UnreadableDocument(f"{self.name} is damaged: it holds no {path}.")
        if member.flag_bits & 1:
            raise password_protected(self.name)
        # zipfile never yields more than the declared size.
        if member.file_size > most:
            raise UnreadableDocument(f"{self.name} is refused: {path} unpacks to more than {in_megabytes(most)}.")
        return self._archive.read(member)

    def root(self, path: str) -> Element:
        """Return the root of an XML member; raises as `read`.

        UnreadableDocument also if it is damaged, or declares entities, of which a few lines can become gigabytes.
        """
        data = self.read(path)
        if b"<!ENTITY" in data.replace(b"\0", b""):
            raise UnreadableDocument(f"{self.name} is refused: it declares XML entities.")
        try:
            return ElementTree.fromstring(data)
        except ElementTree.ParseError as error:
            raise UnreadableDocument(f"{self.name} is damaged: {error}.") from error

    def related(self, path: str) -> dict[str, tuple[str, str]]:
        """Return relation id -> (kind, path) of the parts of an office file that a part refers to."""
        folder, file = posixpath.split(path)
        listing = posixpath.join(folder, "_rels", f"{file}.rels")
        parts: dict[str, tuple[str, str]] = {}
        for relation in self.root(listing) if listing in self else ():
            if relation.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join(folder, relation.get("Target", ""))).lstrip("/")
                parts[relation.get("Id", "")] = (relation.get("Type", "").rpartition("/")[2], target)
        return parts

    def main_part(self, usual: str) -> str:
        """Return the path of the part that an office file is about."""
        main = (path for kind, path in self.related("").values() if kind == "officeDocument")
        return usual if usual in self else next(main, usual)

    def properties(self, path: str = "docProps/core.xml") -> dict[str, str]:
        """Return title, creator, created, modified and so on, as far as an office file says."""
        if path not in self:
            return {}
        values = {local(element): element.text for element in self.root(path).iter()}
        values["created"] = values.get("created") or values.get("creation-date")
        values["modified"] = values.get("modified") or values.get("date")
        values["creator"] = values.get("initial-creator") or values.get("creator")
        return {key: value for key, value in values.items() if value and value.strip()}


# ---------------------------------------------------------------- archives, which are read as folders

ReadDocuments = Callable[[BinaryIO, str], Iterator[Document]]
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, OSError, RuntimeError, ValueError)
"""What the archive libraries raise for damage, passwords and methods that they do not know."""


def read_archive(file: BinaryIO, name: str, read: ReadDocuments, max_bytes: int) -> Iterator[Document]:
    """Yield the documents of the files in an archive; hidden files, and those that macOS adds, are left out.

    UnreadableDocument if it is damaged, or unpacks to more than such a file ever does.
    """
    most = min(MOST_UNPACKED * max_bytes, most_unpacked(file.seek(0, io.SEEK_END), max_bytes))
    file.seek(0)
    unpacked = 0
    try:
        for number, (path, size, open_member) in enumerate(_members(file, is_zip=name.lower().endswith(".zip"))):
            if number >= MOST_MEMBERS or unpacked + min(size, max_bytes) > most:
                raise UnreadableDocument(f"{name} holds too much: the rest of it is not read.")
            # `..` would lead out of the archive.
            if any(part.startswith(".") or part == "__MACOSX" for part in PurePosixPath(path).parts):
                continue
            if size > max_bytes:
                yield failed_member(path, f"It is larger than {in_megabytes(max_bytes)}.")
                continue
            unpacked += size
            try:
                with open_member() as member:
                    data = member.read(max_bytes)
                for document in read(io.BytesIO(data), PurePosixPath(path).name):
                    inner = f"{path}/{document.member}" if document.member else path
                    parent = f"{path}/{document.parent}" if document.parent else path if document.member else ""
                    yield replace(document, member=inner, parent=parent)
            except LocalMCPError as error:
                yield failed_member(path, error)
            except _DAMAGE as error:
                is_locked = "encrypted" in str(error) or "password" in str(error)
                yield failed_member(path, "It is password-protected." if is_locked else f"It is damaged: {error}"[:300])
    except _DAMAGE as error:
        raise UnreadableDocument(f"{name} is damaged: {' '.join(str(error).split())}"[:300]) from error


def _members(file: BinaryIO, *, is_zip: bool) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    if not is_zip:
        with tarfile.open(fileobj=file, mode="r:*") as tar:
            for entry in tar:
                if entry.isreg():
                    name = decode_text(entry.name.encode(errors="surrogateescape"))[0]
                    yield name, entry.size, partial(tar.extractfile, entry)
        return
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            name = member.filename
            if not member.flag_bits & 0x800:
                # It does not say that its name is in UTF-8: Python takes cp437, but many programs write UTF-8.
                with suppress(UnicodeError):
                    name = name.encode("cp437").decode()
            if not member.is_dir():
                yield name, member.file_size, partial(archive.open, member)
