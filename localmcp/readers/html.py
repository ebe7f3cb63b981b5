"""Turns an HTML page into Markdown, without its navigation, header and footer."""

import re
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from localmcp.readers.document import Document, make_document, one_line
from localmcp.readers.encodings import declared_encoding, decode_text, page_encoding
from localmcp.readers.markdown import RAISED, code_fence, pipe_table

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_INLINE = frozenset(
    "-text a abbr acronym b bdi bdo big br cite code data del dfn em font i img ins kbd label mark math q rp rt ruby s "
    "samp small span strike strong sub sup time tt u var wbr".split()
)
_NEVER_TEXT = (
    "script, style, template, noscript, noframes, svg, canvas, iframe, object, dialog, button, input, select, "
    "textarea, a.headerlink, a[aria-hidden=true], span[aria-hidden=true], img[aria-hidden=true], a.footnote-back, "
    # The numbers of lines of code.
    ".linenos, .lineno, .rouge-gutter, td.gutter, a[data-nosnippet], "
    ":not(h1, h2, h3, h4, h5, h6) > a[role=doc-backlink]"
)
_ROLES = ("navigation", "banner", "contentinfo", "search")
_BOILERPLATE = ", ".join(("nav", "header", "footer", *(f"[role={role}]" for role in _ROLES)))
_NOTE_MARKS = "sup > a[href*='#'], a[href*='#'] > sup, a[role=doc-noteref], a.footnote-ref, a.noteref"
"""What refers to a footnote: its number must not become a part of the word before it."""
_HEADING_LINKS = ", ".join(f"{tag} a[href*='#']" for tag in (*_HEADINGS, "dt"))
_LINK_SIGNS = frozenset(("", "#", "¶", "§", "🔗"))
"""What is shown of a link from a heading to itself."""
LEAST_LINKS, LINKS_SHARE = 3, 0.8
"""Least links of a menu or a table of contents, and least share of its characters that are in them."""
MOST_BLOCKS = 500
"""Blocks of a page, from its top, that are looked at for them."""
MOST_COLUMNS, MOST_REPEATED = 200, 1000
"""Columns in which cells may span others, and characters of a cell in the rows below it that it spans: a hostile table
would grow a thousandfold."""
_LINE_BREAK = "\u2028"


def read_html(data: bytes, name: str, charset: str | None = None) -> Document:
    """Return a page; `charset`: what was said about its encoding when it was sent."""
    text, metadata = decode_text(data, page_encoding(charset or "") or declared_encoding(data))
    tree = _parsed(text)
    title_node, author, site = (tree.css_first(query) for query in ("title", "meta[name=author]", "h1"))
    title = one_line(title_node.text()) if title_node else ""
    if author and author.attributes.get("content"):
        metadata["author"] = one_line(author.attributes["content"] or "")
    # Outside of the text, a heading names the site.
    named_by_site = _nested(site, " ") if site and not title else ""
    markdown, root = _page_text(tree)
    headings = [heading for node in (root.css("h1") if root else []) if (heading := one_line(_nested(node, " ")))]
    # The only heading of the first level, unless that names the site; or that of several which the title holds.
    is_section = any(one_line(node.text()) == title for node in (root.css("h2") if root else []))
    held = [heading for heading in headings if heading in title or (len(headings) == 1 and not is_section)]
    title = next(iter(held), title or next(iter(headings), named_by_site))
    return make_document(name, markdown, "html", "markdown", "website", title=title, metadata=metadata)


def html_markdown(text: str) -> str:
    """Return a page or a mail in HTML as Markdown."""
    return _page_text(_parsed(text))[0]


def xhtml_markdown(text: str) -> str:
    """Return a page of a book, which is all text.

    `<title/>` is an empty element in XHTML, but an HTML parser takes what follows for its content.
    """
    empty = r"<(title|script|style|textarea|iframe|a|div|span|p|td|b|i|em)\b([^<>]*)/>"
    tree = _parsed(re.sub(empty, r"<\1\2></\1>", text))
    return _element_markdown(tree.body) if tree.body else ""


def _parsed(text: str) -> "LexborHTMLParser":
    """Return the tree of a page, without what is no text, and with footnote marks in brackets."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(text)
    for node in tree.css(_NEVER_TEXT):
        node.decompose()
    for node in tree.css(_HEADING_LINKS):
        if node.text(strip=True).strip("\u200b") in _LINK_SIGNS:
            node.decompose()
    for node in tree.css("pre br, code br"):
        in_block = node.parent is not None and node.parent.tag == "pre"
        node.replace_with("\n" if in_block else _LINE_BREAK)
    for node in tree.css(_NOTE_MARKS):
        if node.text(strip=True).isdecimal():
            node.replace_with(f" [{node.text(strip=True)}]")
    return tree


def _page_text(tree: "LexborHTMLParser") -> "tuple[str, LexborNode | None]":
    """Return a page without its navigation, and where that text is; if it leaves nothing, the page with it."""
    root = tree.body
    if root is None:
        return "", None
    whole = _element_markdown(root)
    _mark_navigation(tree)
    for node in tree.css(_BOILERPLATE):
        if _in_boilerplate(node):
            node.decompose()
    main = tree.css("main, [role=main]")
    body = _element_markdown(root)
    only = _element_markdown(main[0]) if len(main) == 1 else ""
    if only and len(only) * 5 >= len(body) * 2:
        return only, main[0]
    return body or whole, root


def _mark_navigation(tree: "LexborHTMLParser") -> None:
    """Give its role to a block of nothing but links: a menu above the first heading, or the contents of the page."""
    is_below_heading = tree.css_first("h1, h2, h3") is None
    for node in tree.css(f"ul, ol, dl, div, {', '.join(_HEADINGS)}")[:MOST_BLOCKS]:
        is_below_heading = is_below_heading or node.tag in _HEADINGS
        links = [] if node.tag in _HEADINGS else node.css("a[href]")
        if len(links) < LEAST_LINKS or node.css_first(", ".join(_HEADINGS)):
            continue
        is_contents = not is_below_heading or all((link.attributes.get("href") or "")[:1] == "#" for link in links)
        shown = sum(len(link.text(strip=True)) for link in links)
        if is_contents and shown >= LINKS_SHARE * len(node.text(strip=True)):
            node.attrs["role"] = "navigation"


def _in_boilerplate(node: "LexborNode") -> bool:
    """Return whether an element is boilerplate around the text; the header of an article, or with the h1, is not."""
    element: LexborNode | None = node
    while element is not None:
        if element.tag == "nav" or element.attributes.get("role") in _ROLES:
            return True
        if element.tag in ("header", "footer"):
            holds_title = element.tag == "header" and element.css_first("h1") is not None
            while (element := element.parent) is not None and element.tag not in ("article", "main", "blockquote"):
                pass
            return element is None and not holds_title
        element = element.parent
    return False


def _element_markdown(root: "LexborNode") -> str:
    try:
        return _nested(root)
    except RecursionError:
        lines = (line.strip() for line in root.text(separator="\n").split("\n"))
        return "\n\n".join(line for line in lines if line)


def _nested(node: "LexborNode", separator: str = "\n\n") -> str:
    writer = _MarkdownWriter()
    writer.children(node)
    return writer.text(separator)


class _MarkdownWriter:
    """Writes the content of an HTML element as blocks of Markdown: no escapes, no emphasis, links as their text."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.run: list[str] = []
        """Pieces of the paragraph that is being written."""
        self.readings = ""
        """How the signs of the ruby elements just before are read."""

    def text(self, separator: str = "\n\n") -> str:
        self.flush()
        return separator.join(self.blocks)

    def flush(self) -> None:
        lines = (" ".join(line.split()) for line in "".join(self.run).split("\n"))
        self.run.clear()
        self.add("\n".join(line for line in lines if line))

    def add(self, block: str) -> None:
        if block.strip():
            self.blocks.append(block)

    def children(self, node: "LexborNode") -> None:
        for child in node.iter(include_text=True):
            self.visit(child)

    def visit(self, node: "LexborNode") -> None:
        tag = node.tag or ""
        if node.is_text_node:
            self.run.append(re.sub(r"\s+", " ", node.text_content or ""))
        elif tag in _INLINE:
            self.inline(node, tag)
        elif tag != "-comment":
            self.flush()
            self.block(node, tag)
            self.flush()

    def inline(self, node: "LexborNode", tag: str) -> None:
        if tag == "br":
            self.run.append("\n")
        elif tag == "math":
            # As its author typed it, if the page says so; else its signs in a row.
            source = node.css_first("annotation[encoding*=tex]")
            typed = node.attributes.get("alttext") or (source.text() if source else "")
            self.run.append(one_line(typed or node.text(separator=" ")))
        elif tag == "img":
            self.run.append(f" {node.attributes.get('alt') or ''} ")
        elif tag == "ruby":
            for child in node.iter(include_text=True):
                if child.tag not in ("rt", "rp"):
                    self.visit(child)
            self.readings += "".join(reading.text(strip=True) for reading in node.css("rt"))
            if self.readings and not (node.next and node.next.tag == "ruby"):
                # Behind the last of its word, which they must not cut.
                self.run.append(f"({self.readings})")
                self.readings = ""
        elif tag in ("code", "kbd", "samp") and "`" not in (code := _code_text(node)):
            self.run.append(f"`{code}`" if code else "")
        elif tag == "sup" and (raised := node.text(strip=True)).strip("+-\u2212").isdecimal():
            # Else a power becomes a digit of its base.
            self.run.append(raised.translate(RAISED))
        else:
            self.children(node)

    def block(self, node: "LexborNode", tag: str) -> None:
        if tag in _HEADINGS:
            title = _nested(node, " ").replace("\n", " ")
            self.add(f"{'#' * int(tag[1])} {title}" if title else "")
        elif tag in ("ul", "ol", "menu"):
            self.add("\n".join(_list_items(node, numbered=tag == "ol")))
        elif tag == "pre":
            self.add(_pre_block(node))
        elif tag == "table" and (rows := _table_rows(node)):
            self.add(rows)
        elif tag == "blockquote":
            quote = _nested(node)
            self.add("\n".join(f"> {line}".rstrip() for line in quote.split("\n")) if quote else "")
        else:
            self.children(node)


def _code_text(node: "LexborNode") -> str:
    """Return code within a line: ends of lines in the source of the page are spaces, breaks begin a line."""
    return re.sub(r"[ \t\r\n\f]+", " ", node.text()).replace(_LINE_BREAK, "\n").strip()


def _list_items(node: "LexborNode", *, numbered: bool) -> Iterator[str]:
    start = node.attributes.get("start") or ""
    number = int(start) if re.fullmatch(r"\d{1,9}", start, re.A) else 1
    for item in node.iter(include_text=True):
        mark = f"{number}. " if numbered else "- "
        writer = _MarkdownWriter()
        writer.visit(item)
        if content := writer.text("\n"):
            yield mark + content.replace("\n", "\n" + " " * len(mark))
        number += item.tag == "li"


def _pre_block(node: "LexborNode") -> str:
    code = node.text().strip("\n")
    inner = node.css_first("code")
    classes = " ".join(tag.attributes.get("class") or "" for tag in (node, inner, node.parent) if tag)
    language = re.search(r"(?:^|\s)(?:language|lang|highlight|highlight-source)-(\w[\w+#-]*)", classes)
    return code_fence(code, language[1] if language else "") if code.strip() else ""


def _table_rows(table: "LexborNode") -> str:
    """A table of data as `|` rows; "" for a table that lays out a page: one column, or a cell with blocks in it."""
    if table.css_first("table table, td ul, td ol, td pre, td h1, td h2, td h3"):
        return ""
    rows = _grid(table)
    if max(map(len, rows), default=0) < 2:
        return ""
    caption = table.css_first("caption")
    return (f"{one_line(caption.text())}\n\n" if caption else "") + pipe_table(rows)


def _grid(table: "LexborNode") -> list[list[str]]:
    """Return the text in each column of each row: a cell that spans rows is in all of them."""
    rows: list[list[str]] = []
    spanned: dict[int, tuple[int, str]] = {}  # column -> how many rows below it is taken in, and by what
    for row in table.css("tr"):
        cells = deque(cell for cell in row.iter() if cell.tag in ("td", "th"))
        texts: list[str] = []
        while cells or spanned.get(len(texts), (0, ""))[0]:
            below, text = spanned.get(len(texts), (0, ""))
            if below:
                spanned[len(texts)] = (below - 1, text)
                texts.append(text)
                continue
            cell = cells.popleft()
            spans = (cell.attributes.get(name) or "" for name in ("rowspan", "colspan"))
            is_narrow = len(texts) < MOST_COLUMNS
            rows_below, beside = (int(n) - 1 if is_narrow and re.fullmatch("[1-9][0-9]?", n) else 0 for n in spans)
            for text in (_nested(cell, " "), *[""] * beside):
                spanned[len(texts)] = (rows_below, text if rows_below * len(text) <= MOST_REPEATED else "")
                texts.append(text)
        rows.append(texts)
    return rows
