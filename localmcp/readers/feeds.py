"""Reads news feeds (RSS, Atom) and the outlines in which their subscriptions are exported (OPML)."""

import io
import re
from html import escape

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, make_document, one_line
from localmcp.readers.encodings import HEAD, declared_encoding, decode_text
from localmcp.readers.html import html_markdown
from localmcp.readers.packages import walk_xml

_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<[?!][^>]*>\s*)*<(?:rss|feed|opml|rdf:RDF[^>]*purl\.org/rss)\b")
_DECLARATION = re.compile(r"\A\s*(?:<\?xml\b[^>]*\?>)?")
_PARTS = ("channel", "feed", "head", "item", "entry")
_ABOUT = (("pubDate", "date", "published", "updated"), ("creator", "author"), ("link",))
_BODY = ("encoded", "content", "description", "summary", "subtitle")
"""The whole text of an entry comes before its summary."""


def looks_like_feed(data: bytes) -> bool:
    return _ROOT.match(data[:HEAD]) is not None


def read_feed(data: bytes, name: str) -> Document:
    """Return the entries of a feed, or the items of an outline, each below its title."""
    text, metadata = decode_text(data, declared_encoding(data))
    walker = _Walker()
    # Once it is decoded, the encoding that it declares is no longer true.
    xml = _DECLARATION.sub("", text)
    try:
        walk_xml(io.BytesIO(xml.encode()), walker, name)
    except UnreadableDocument:
        # A feed that is cut short, or broken further below, is read up to there.
        if not walker.parts:
            raise
    blocks = [block for level, part in walker.parts for block in _blocks(level, part, name)]
    title = walker.parts[0][1].get("title", "") if walker.parts else ""
    text = "\n\n".join((*blocks, "\n".join(walker.items)))
    return make_document(name, text, "feed", "markdown", "website", title=title, metadata=metadata)


def _blocks(level: int, part: dict[str, str], name: str) -> list[str]:
    """Return title, date, author and address, and text of a feed or of an entry."""
    fields = {key: html_markdown(value, name) for key, value in part.items()}
    about = (next((one_line(fields[key]) for key in keys if fields.get(key)), "") for keys in _ABOUT)
    body = next((fields[key] for key in _BODY if fields.get(key)), "")
    title = one_line(fields.get("title", "")) or "(no title)"
    return [block for block in (f"{'#' * level} {title}", " · ".join(filter(None, about)), body) if block]


class _Walker:
    """Gathers the texts of a feed and of its entries by their elements; markup in them is written out again."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, dict[str, str]]] = []
        """Level of the heading and texts: of the feed, then of each entry."""
        self.items: list[str] = []
        """The lines of an outline."""
        self._open: list[str] = []
        self._part = 0
        """How many elements are open around the texts of the part that is read."""
        self._pieces: list[str] = []
        self._is_html = False
        """Whether the text that is read is markup, as most are in RSS; in Atom it has to say so."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in _PARTS:
            self.parts.append((2 if self.parts else 1, {}))
            self._part = len(self._open) + 1
        elif tag == "outline":
            texts = (one_line(attributes.get(key, "")) for key in ("text", "_note", "xmlUrl", "url"))
            self.items.append(f"{'  ' * self._open.count(tag)}- {': '.join(filter(None, texts))}")
        elif len(self._open) == self._part:
            is_page = tag == "link" and attributes.get("rel", "alternate") == "alternate"
            self._pieces = [escape(attributes.get("href", ""))] if is_page else []
            plain = ("text", "xhtml") if self._open[:1] == ["feed"] else ()
            self._is_html = tag != "link" and attributes.get("type", "text") not in plain
        else:
            self._pieces.append(f"<{tag}>")
        self._open.append(tag)

    def end(self, tag: str) -> None:
        self._open.pop()
        if len(self._open) != self._part:
            self._pieces.append(f"</{tag}>")
        elif self.parts and (text := "".join(self._pieces).strip()):
            # Podcasts repeat a title in the words of another namespace.
            self.parts[-1][1].setdefault(tag, text)

    def text(self, piece: str) -> None:
        self._pieces.append(piece if self._is_html else escape(piece))
