"""Opens zip packages (office files, EPUB) and their XML with bounds on what they unpack to."""

from __future__ import annotations

import io
import posixpath
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import password_protected

MAX_UNPACKED, MAX_PART = 400_000_000, 100_000_000
"""Most bytes that one office file or EPUB may hold once unpacked, pictures included, and of one part."""
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
        """Return the bytes of a member.

        Raises:
            UnreadableDocument: there is none, it is encrypted, or it is too large.
        """
        member = self._members.get(path)
        if member is None and path == "content.xml" and b"encryption-data" in self.read("META-INF/manifest.xml"):
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

        Raises:
            UnreadableDocument: it is damaged, or declares entities, of which a few lines can become gigabytes.
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
