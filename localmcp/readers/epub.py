"""Reads EPUB books in the order of their spine."""

import posixpath
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
    pages = {
        item.get("id", ""): item.get("href", "")
        for item in elements(book, "item")
        if "html" in item.get("media-type", "html")
    }
    # As listed where no order is given; a spine that lists a chapter twice would only repeat it.
    order = [reference.get("idref", "") for reference in elements(book, "itemref")] or list(pages)
    paths = [path for path in dict.fromkeys(_member(root, pages.get(page, "")) for page in order) if path in package]
    if "META-INF/encryption.xml" in package:
        # Obfuscated fonts are listed there too, and do no harm.
        locked = elements(package.root("META-INF/encryption.xml"), "CipherReference")
        if {unquote(reference.get("URI", "")) for reference in locked}.intersection(paths):
            raise UnreadableDocument(f"{name} is protected by DRM: its chapters are encrypted.")
    titles = _titles(package, root, book)
    chapters: list[str] = []
    for path in paths:
        page = package.read(path, MAX_CHAPTER)
        chapter, title = xhtml_markdown(decode_text(page, declared_encoding(page))[0]), titles.get(path, "")
        if chapter and title and not scan_markdown(chapter)[0]:
            first, _, following = chapter.partition("\n")
            is_title = " ".join(first.strip("*_ ").split()).casefold() == title.casefold()
            chapter = f"# {title}\n{following}" if is_title else f"# {title}\n\n{chapter}"
        chapters.append(chapter)
    values = {local(element): element.text or "" for element in reversed([*book.iter()])}
    properties = set_fields(title=values.get("title"), creator=values.get("creator"), created=values.get("date"))
    metadata = set_fields(language=values.get("language"))
    return office_document(name, "epub", "\n\n".join(filter(None, chapters)), properties, metadata=metadata)


def _member(page: str, address: str) -> str:
    """Return the member of the package that an address in one of its pages means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(address.partition("#")[0])))


def _titles(package: Package, root: str, book: Element) -> dict[str, str]:
    """Return member -> its first title in the table of contents, of EPUB 3 or older; none if it is damaged."""
    contents = (
        item.get("href", "")
        for item in elements(book, "item")
        if "nav" in item.get("properties", "").split() or "dtbncx" in item.get("media-type", "")
    )
    path = next((_member(root, address) for address in contents), "")
    titles: dict[str, str] = {}
    label = ""
    try:
        for element in elements(package.root(path), "a", "text", "content") if path in package else ():
            if local(element) == "text":
                label = one_line(element.text or "")
            elif local(element) == "content":
                titles.setdefault(_member(path, element.get("src", "")), label)
            else:
                titles.setdefault(_member(path, element.get("href", "")), one_line("".join(element.itertext())))
    except UnreadableDocument:
        return {}
    return titles
