"""Opens zip packages (office files, EPUB) and their XML with bounds on what they unpack to."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import IO, Any, Protocol, TypeVar
from xml.parsers import expat

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import password_protected

MAX_UNPACKED = 400_000_000
"""Most bytes that one office file or EPUB may hold once unpacked, pictures included."""

MAX_PART = 100_000_000
"""Most bytes of one part that is held as a whole."""

OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""Old Office files; also the envelope of a .docx, .pptx or .xlsx with a password."""


# Reading one file asks ten times.
@lru_cache(maxsize=16)
def suffix_of(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def in_megabytes(size: int) -> str:
    return f"{size / 1_000_000:g} MB"


HandlerT = TypeVar("HandlerT", bound="XmlHandler")


class Package:
    """The zip archive of an office file or a book; members count towards the limit each time they are unpacked."""

    def __init__(self, data: bytes, name: str) -> None:
        if data.startswith(OLE_MAGIC):
            raise password_protected(name)
        self.name = name
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self._members = {member.filename: member for member in self._archive.infolist()}
        self._unpacked = 0
        if sum(member.file_size for member in self._members.values()) > MAX_UNPACKED:
            raise self._too_large()

    def __contains__(self, path: str) -> bool:
        return path in self._members

    @property
    def paths(self) -> list[str]:
        """The members, in the order of the archive."""
        return list(self._members)

    def read(self, path: str, most: int = MAX_PART) -> bytes:
        """Return the bytes of a member.

        Raises:
            UnreadableDocument: there is none, it is encrypted, or it is too large.
        """
        with self.open(path) as member:
            data = member.read(most + 1)
        if len(data) > most:
            raise UnreadableDocument(f"{self.name} is refused: {path} unpacks to more than {in_megabytes(most)}.")
        return data

    def open(self, path: str) -> IO[bytes]:
        """Open a member, whose declared size is a true bound: zipfile never yields more."""
        member = self._members.get(path)
        if member is None:
            raise UnreadableDocument(f"{self.name} is damaged: it holds no {path}.")
        if member.flag_bits & 1:
            raise password_protected(self.name)
        self._unpacked += member.file_size
        if self._unpacked > MAX_UNPACKED:
            raise self._too_large()
        return self._archive.open(member)

    def walk(self, path: str, handler: XmlHandler) -> None:
        """Hand every element and text of an XML member to `handler`, in document order."""
        with self.open(path) as member:
            walk_xml(member, handler, self.name)

    def walk_all(self, paths: Iterable[str], handler: HandlerT) -> HandlerT:
        """Hand the members that exist to `handler`, and return it."""
        for path in paths:
            if path in self:
                self.walk(path, handler)
        return handler

    def elements(self, *paths: str) -> list[XmlElement]:
        """Return every element of small XML members in document order; none of those that are not there."""
        return [element for path in paths if path in self for element in xml_elements(self.read(path))]

    def _too_large(self) -> UnreadableDocument:
        return UnreadableDocument(f"{self.name} unpacks to more than {in_megabytes(MAX_UNPACKED)}.")


class XmlHandler(Protocol):
    """Receives what an XML parser reads; names come without their namespace (`r:id` keeps its prefix)."""

    def start(self, tag: str, attributes: dict[str, str], /) -> None: ...

    def end(self, tag: str, /) -> None: ...

    def text(self, piece: str, /) -> None: ...


def walk_xml(stream: IO[bytes], handler: XmlHandler, name: str) -> None:
    """Parse XML as it is read; entities, of which a few lines can become gigabytes, are refused."""

    def start(tag: str, attributes: dict[str, str]) -> None:
        handler.start(tag.rpartition(" ")[2], {_local(key): value for key, value in attributes.items()})

    def end(tag: str) -> None:
        handler.end(tag.rpartition(" ")[2])

    def refuse(*_declaration: Any) -> None:
        raise UnreadableDocument(f"{name} is refused: it declares XML entities.")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = handler.text, refuse
    try:
        parser.ParseFile(stream)
    except expat.ExpatError as error:
        raise UnreadableDocument(f"{name} is damaged: {error}.") from error


def _local(key: str) -> str:
    """Return an attribute without its namespace; only those that name a relationship collide with others."""
    space, _, local = key.rpartition(" ")
    return f"r:{local}" if space.endswith("/relationships") else local


@dataclass(slots=True)
class XmlElement:
    tag: str
    attributes: dict[str, str]
    text: str = ""


def xml_elements(data: bytes) -> list[XmlElement]:
    """Return every element in document order, with the beginning of its text; document types are refused."""
    collector = _Collector()
    walk_xml(io.BytesIO(data), collector, "The file")
    return collector.elements


class _Collector:
    def __init__(self) -> None:
        self.elements: list[XmlElement] = []
        self._open: list[XmlElement] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._open.append(XmlElement(tag, attributes))
        self.elements.append(self._open[-1])

    def end(self, _tag: str) -> None:
        self._open.pop()

    def text(self, piece: str) -> None:
        if self._open and len(self._open[-1].text) < 2000:
            self._open[-1].text += piece
