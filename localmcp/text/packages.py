"""Opens zip packages (office files, EPUB) and their XML with bounds on what they unpack to."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from xml.parsers import expat

from localmcp.errors import UnreadableDocument
from localmcp.text.document import password_protected, set_fields

MAX_UNPACKED = 400_000_000
"""Most bytes that one office file or EPUB may hold once unpacked, pictures included."""

OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""Old Office files; also the envelope of a .docx, .pptx or .xlsx with a password."""

_DOCTYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be"))

_MEDIA = frozenset(
    ".png .jpg .jpeg .gif .bmp .tif .tiff .emf .wmf .wdp .mp3 .mp4 .m4a .wav .avi .mov .wmv .ttf .otf".split()
)


def suffix_of(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def in_megabytes(size: int) -> str:
    return f"{size / 1_000_000:g} MB"


def open_package(data: bytes, name: str, *, bound: int = MAX_UNPACKED, media: bool = True) -> zipfile.ZipFile:
    """The zip archive of an office file or EPUB, refused when it would unpack to more than `bound` bytes.

    zipfile never yields more than the declared size of a member, so the sum of the sizes is a true bound.
    """
    if data.startswith(OLE_MAGIC):
        raise password_protected(name)
    package = zipfile.ZipFile(io.BytesIO(data))
    members = package.infolist()
    counted = (each.file_size for each in members if media or suffix_of(each.filename) not in _MEDIA)
    if sum(counted) > bound or sum(each.file_size for each in members) > MAX_UNPACKED:
        raise UnreadableDocument(f"{name} unpacks to more than {in_megabytes(bound)}.")
    return package


def open_office(data: bytes, name: str, **bounds: Any) -> dict[str, Any]:
    """Checks an office file before another library opens it; returns its title, author and creation date."""
    with open_package(data, name, **bounds) as package:
        for member in package.infolist():
            if suffix_of(member.filename) in (".xml", ".rels"):
                _refuse_dtd(package, member, name)
        if "docProps/core.xml" not in package.namelist():
            return {}
        elements = {each.tag: each.text for each in xml_elements(package.read("docProps/core.xml"))}
    return set_fields(title=elements.get("title"), author=elements.get("creator"), created=elements.get("created"))


def _refuse_dtd(package: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> None:
    """Office formats forbid document types; one in a part is an attempt to expand entities."""
    with package.open(member) as part:
        before = b""
        while block := part.read(1 << 20):
            if any(mark in before + block for mark in _DOCTYPES):
                raise UnreadableDocument(f"{name} is refused: {member.filename} declares a document type.")
            before = block[-32:]


@dataclass(slots=True)
class XmlElement:
    tag: str
    attributes: dict[str, str]
    text: str = ""


def xml_elements(data: bytes) -> list[XmlElement]:
    """Every element in document order, with the beginning of its own text; entity declarations are refused."""
    elements: list[XmlElement] = []
    stack: list[XmlElement] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        stack.append(XmlElement(tag.rpartition(" ")[2], attributes))
        elements.append(stack[-1])

    def end(_tag: str) -> None:
        stack.pop()

    def text(piece: str) -> None:
        if len(stack[-1].text) < 2000:
            stack[-1].text += piece

    def entity(*_declaration: Any) -> None:
        raise UnreadableDocument("The file is refused: it declares XML entities.")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = text, entity
    parser.Parse(data, True)
    return elements
