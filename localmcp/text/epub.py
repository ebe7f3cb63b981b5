"""Reads EPUB books in the order of their spine."""

import logging
import posixpath
from urllib.parse import unquote

from localmcp.errors import UnreadableDocument
from localmcp.text.document import Document, set_fields
from localmcp.text.encodings import declared_encoding, decode_text
from localmcp.text.html import close_empty, drop_controls, element_markdown, parse_html
from localmcp.text.office import office_document
from localmcp.text.packages import Package, XmlElement, xml_elements

logger = logging.getLogger(__name__)

MAX_CHAPTER = 20_000_000
"""Most bytes of one chapter: the tree that the parser makes of it takes 5 to 20 times as much memory."""


def read_epub(data: bytes, name: str) -> Document:
    package = Package(data, name)
    root = _epub_root(package)
    elements = xml_elements(package.read(root))
    # A spine that lists a chapter twice would only repeat it.
    paths = list(
        dict.fromkeys(posixpath.normpath(posixpath.join(posixpath.dirname(root), h)) for h in _spine(elements))
    )
    _refuse_drm(package, paths)
    text = "\n\n".join(chapter for path in paths if (chapter := _chapter_markdown(package, path)))
    values = {element.tag: element.text for element in reversed(elements)}
    metadata = set_fields(author=values.get("creator"), created=values.get("date"), language=values.get("language"))
    return office_document(name, "epub", text, metadata | set_fields(title=values.get("title")))


def _epub_root(package: Package) -> str:
    container = xml_elements(package.read("META-INF/container.xml"))
    return next(element.attributes["full-path"] for element in container if element.tag == "rootfile")


def _spine(elements: list[XmlElement]) -> list[str]:
    """Return the chapters of a book, relative to its package file, in reading order; as listed where none is given."""
    pages = {
        element.attributes["id"]: unquote(element.attributes["href"])
        for element in elements
        if element.tag == "item" and "html" in element.attributes.get("media-type", "html")
    }
    order = [element.attributes["idref"] for element in elements if element.tag == "itemref"]
    return [pages[page] for page in order or pages if page in pages]


def _refuse_drm(package: Package, chapters: list[str]) -> None:
    """Obfuscated fonts are listed in the same file and do no harm."""
    listed = package.elements("META-INF/encryption.xml")
    encrypted = {unquote(element.attributes.get("URI", "")) for element in listed if element.tag == "CipherReference"}
    if encrypted.intersection(chapters):
        raise UnreadableDocument(f"{package.name} is protected by DRM: its chapters are encrypted.")


def _chapter_markdown(package: Package, path: str) -> str:
    if path not in package:
        logger.warning("%s lists a chapter that it does not hold: %s", package.name, path)
        return ""
    data = package.read(path, MAX_CHAPTER)
    tree = parse_html(close_empty(decode_text(data, declared_encoding(data))[0]), package.name)
    drop_controls(tree)
    return element_markdown(tree.body) if tree.body else ""
