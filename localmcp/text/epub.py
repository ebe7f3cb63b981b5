"""Reads EPUB books in the order of their spine."""

import logging
import posixpath
import zipfile
from collections.abc import Iterator
from urllib.parse import unquote

from localmcp.errors import UnreadableDocument
from localmcp.text.document import Document, make_document, set_fields
from localmcp.text.encodings import declared_encoding, decode_text
from localmcp.text.html import NEVER_TEXT, close_empty, element_markdown, parse_html
from localmcp.text.markdown import first_heading
from localmcp.text.packages import XmlElement, open_package, xml_elements

logger = logging.getLogger(__name__)


def read_epub(data: bytes, name: str) -> Document:
    with open_package(data, name) as package:
        root = _epub_root(package)
        elements = xml_elements(package.read(root))
        paths = [posixpath.normpath(posixpath.join(posixpath.dirname(root), href)) for href in _spine(elements)]
        _refuse_drm(package, paths, name)
        text = "\n\n".join(chapter for path in paths if (chapter := _chapter_markdown(package, path, name)))
    found = {each.tag: each.text for each in reversed(elements)}
    metadata = set_fields(author=found.get("creator"), created=found.get("date"), language=found.get("language"))
    title = found.get("title", "") or first_heading(text[:10_000])
    return make_document(name, text, "epub", "markdown", "docs", title=title, metadata=metadata)


def _epub_root(package: zipfile.ZipFile) -> str:
    container = xml_elements(package.read("META-INF/container.xml"))
    return next(each.attributes["full-path"] for each in container if each.tag == "rootfile")


def _spine(elements: list[XmlElement]) -> Iterator[str]:
    """The chapters of a book, relative to its package file, in reading order."""
    pages = {
        each.attributes["id"]: unquote(each.attributes["href"])
        for each in elements
        if each.tag == "item" and "html" in each.attributes.get("media-type", "html")
    }
    for each in elements:
        if each.tag == "itemref" and (href := pages.get(each.attributes["idref"])):
            yield href


def _refuse_drm(package: zipfile.ZipFile, chapters: list[str], name: str) -> None:
    """Obfuscated fonts are listed in the same file and do no harm."""
    if "META-INF/encryption.xml" not in package.namelist():
        return
    listed = xml_elements(package.read("META-INF/encryption.xml"))
    encrypted = {unquote(each.attributes.get("URI", "")) for each in listed if each.tag == "CipherReference"}
    if encrypted.intersection(chapters):
        raise UnreadableDocument(f"{name} is protected by DRM: its chapters are encrypted.")


def _chapter_markdown(package: zipfile.ZipFile, path: str, name: str) -> str:
    if path not in package.namelist():
        logger.warning("%s lists a chapter that it does not hold: %s", name, path)
        return ""
    data = package.read(path)
    tree = parse_html(close_empty(decode_text(data, declared_encoding(data))[0]), name)
    for node in tree.css(NEVER_TEXT):
        node.decompose()
    return element_markdown(tree.body) if tree.body else ""
