"""Reads EPUB books in the order of their spine."""

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, one_line, set_fields
from localmcp.readers.encodings import declared_encoding, decode_text
from localmcp.readers.html import xhtml_markdown
from localmcp.readers.office import office_document
from localmcp.readers.outline import scan_markdown
from localmcp.readers.packages import Package, attribute, elements, local

MAX_CHAPTER = 20_000_000
"""Most bytes of one chapter: the tree that the parser makes of it takes 5 to 20 times as much memory."""


def read_epub(data: bytes, name: str) -> Document:
    """Return the chapters of a book; one that prints no heading has its title of the table of contents."""
    package = Package(data, name)
    root = next(attribute(file, "full-path") for file in elements(package.root("META-INF/container.xml"), "rootfile"))
    book = package.root(root)
    # A spine that lists a chapter twice would only repeat it.
    paths = [path for path in dict.fromkeys(_member(root, page) for page in _spine(book)) if path in package]
    listing = "META-INF/encryption.xml"
    # Obfuscated fonts are listed there too, and do no harm.
    listed = elements(package.root(listing), "CipherReference") if listing in package else ()
    if {unquote(reference.get("URI", "")) for reference in listed}.intersection(paths):
        raise UnreadableDocument(f"{name} is protected by DRM: its chapters are encrypted.")
    titles = _titles(package, root, book)
    chapters: list[str] = []
    for path in paths:
        page = package.read(path, MAX_CHAPTER)
        chapter = xhtml_markdown(decode_text(page, declared_encoding(page))[0])
        chapters.append(_with_title(chapter, titles.get(path, "")))
    values = {local(element): element.text or "" for element in reversed([*book.iter()])}
    properties = set_fields(title=values.get("title"), creator=values.get("creator"), created=values.get("date"))
    metadata = set_fields(language=values.get("language"))
    return office_document(name, "epub", "\n\n".join(filter(None, chapters)), properties, metadata=metadata)


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
    """Return member -> its first title in the table of contents; none if that is missing or damaged."""
    contents = (
        item.get("href", "")
        for item in elements(book, "item")
        if "nav" in item.get("properties", "").split() or "dtbncx" in item.get("media-type", "")
    )
    path = next((_member(root, address) for address in contents), "")
    try:
        links = list(_links(package.root(path))) if path in package else []
    except UnreadableDocument:
        return {}
    return {_member(path, address): title for address, title in reversed(links)}


def _links(contents: Element) -> Iterator[tuple[str, str]]:
    """Yield address and title of each entry of a table of contents, of EPUB 3 or of the older kind."""
    label = ""
    for element in elements(contents, "a", "text", "content"):
        if local(element) == "text":
            label = one_line(element.text or "")
        elif local(element) == "content":
            yield element.get("src", ""), label
        else:
            yield element.get("href", ""), one_line("".join(element.itertext()))


def _with_title(chapter: str, title: str) -> str:
    """Return a chapter with a title, if it has no heading."""
    if not chapter or not title or scan_markdown(chapter)[0]:
        return chapter
    first, _, following = chapter.partition("\n")
    is_title = " ".join(first.strip("*_ ").split()).casefold() == title.casefold()
    return f"# {title}\n{following}" if is_title else f"# {title}\n\n{chapter}"
