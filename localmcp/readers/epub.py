"""Reads EPUB books in the order of their spine."""

import logging
import posixpath
import re
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, one_line, set_fields
from localmcp.readers.encodings import declared_encoding, decode_text
from localmcp.readers.html import close_empty, drop_controls, element_markdown, parse_html
from localmcp.readers.office import office_document
from localmcp.readers.packages import Package, attribute, elements, local

logger = logging.getLogger(__name__)

_HEADING = re.compile(r"(?m)^#{1,6} ")
MAX_CHAPTER = 20_000_000
"""Most bytes of one chapter: the tree that the parser makes of it takes 5 to 20 times as much memory."""


def read_epub(data: bytes, name: str) -> Document:
    package = Package(data, name)
    root = next(attribute(file, "full-path") for file in elements(package.root("META-INF/container.xml"), "rootfile"))
    book = package.root(root)
    # A spine that lists a chapter twice would only repeat it.
    paths = list(dict.fromkeys(_member(root, page) for page in _spine(book)))
    _refuse_drm(package, paths)
    titles = _titles(package, root, book)
    chapters = (_with_title(_chapter_markdown(package, path), titles.get(path, "")) for path in paths)
    text = "\n\n".join(filter(None, chapters))
    values = {local(element): element.text or "" for element in reversed([*book.iter()])}
    properties = set_fields(title=values.get("title"), creator=values.get("creator"), created=values.get("date"))
    metadata = set_fields(language=values.get("language"))
    return office_document(name, "epub", text, properties, metadata=metadata)


def _spine(book: Element) -> list[str]:
    """Return the chapters of a book, relative to its package file, in reading order; as listed where none is given."""
    pages = {
        item.get("id", ""): item.get("href", "")
        for item in elements(book, "item")
        if "html" in item.get("media-type", "html")
    }
    order = [reference.get("idref", "") for reference in elements(book, "itemref")]
    return [pages[page] for page in order or pages if page in pages]


def _member(page: str, address: str) -> str:
    """Return the member of the package that an address in one of its pages means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(address.partition("#")[0])))


def _titles(package: Package, root: str, book: Element) -> dict[str, str]:
    """Return member -> its first title in the table of contents; many books print no heading that is one."""
    listed = [item.attrib for item in elements(book, "item") if "href" in item.attrib]
    contents = (item["href"] for item in listed if "nav" in item.get("properties", "").split())
    older = (item["href"] for item in listed if item.get("media-type") == "application/x-dtbncx+xml")
    path = next((_member(root, address) for address in (*contents, *older)), "")
    if path not in package:
        return {}
    try:
        links = _ncx_links(package, path) if path.endswith(".ncx") else _nav_links(package, path)
    except UnreadableDocument as error:
        logger.warning("%s has a damaged table of contents: %s", package.name, error)
        return {}
    return {_member(path, address): title for address, title in reversed(links)}


def _nav_links(package: Package, path: str) -> list[tuple[str, str]]:
    tree = parse_html(close_empty(decode_text(package.read(path, MAX_CHAPTER))[0]))
    links = tree.css('nav[epub\\:type~="toc"] a[href]')
    return [(link.attributes.get("href") or "", one_line(link.text())) for link in links]


def _ncx_links(package: Package, path: str) -> list[tuple[str, str]]:
    links: list[tuple[str, str]] = []
    label = ""
    for element in elements(package.root(path), "text", "content"):
        if local(element) == "text":
            label = one_line(element.text or "")
        else:
            links.append((element.get("src", ""), label))
    return links


def _with_title(chapter: str, title: str) -> str:
    """Return a chapter with the heading that the table of contents gives it, if it has none."""
    if not chapter or not title or _HEADING.search(chapter):
        return chapter
    first, _, following = chapter.partition("\n")
    is_title = " ".join(first.strip("*_ ").split()).casefold() == title.casefold()
    return f"# {title}\n{following}" if is_title else f"# {title}\n\n{chapter}"


def _refuse_drm(package: Package, chapters: list[str]) -> None:
    """Obfuscated fonts are listed in the same file and do no harm."""
    path = "META-INF/encryption.xml"
    listed = elements(package.root(path), "CipherReference") if path in package else ()
    encrypted = {unquote(reference.get("URI", "")) for reference in listed}
    if encrypted.intersection(chapters):
        raise UnreadableDocument(f"{package.name} is protected by DRM: its chapters are encrypted.")


def _chapter_markdown(package: Package, path: str) -> str:
    if path not in package:
        logger.warning("%s lists a chapter that it does not hold: %s", package.name, path)
        return ""
    data = package.read(path, MAX_CHAPTER)
    tree = parse_html(close_empty(decode_text(data, declared_encoding(data))[0]))
    drop_controls(tree)
    return element_markdown(tree.body) if tree.body else ""
