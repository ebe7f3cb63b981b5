"""Turns an HTML page into Markdown, without its navigation, header and footer."""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from localmcp.readers.document import Document, make_document, one_line
from localmcp.readers.encodings import declared_encoding, decode_text, page_encoding
from localmcp.readers.markdown import RAISED, code_fence, pipe_table

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))

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

_NOTE_MARKS = "sup > a[href*='#'], a[href*='#'] > sup, a[role=doc-noteref], a.footnote-ref, a.noteref"
"""What refers to a footnote: its number must not become a part of the word before it."""

_LINE_BREAK = "\u2028"
_HEADING_LINKS = ", ".join(f"{tag} a[href*='#']" for tag in (*sorted(_HEADINGS), "dt"))
_LINK_SIGNS = frozenset(("", "#", "¶", "§", "🔗"))
"""What is shown of a link from a heading to itself."""

MOST_COLUMNS = 200
MOST_REPEATED = 1000
"""Characters of a cell in the rows below it that it spans."""

_BOILERPLATE = "nav, header, footer, [role=navigation], [role=banner], [role=contentinfo], [role=search]"

_TURNING, MOST_TURNING = "a[accesskey][href], a[rel~=prev], a[rel~=next]", 500
"""Links to the page before, after or above, as generators of manuals write them; most characters of what holds them."""

_PROSE = "p, pre, blockquote, h1, h2, h3, h4, h5, h6"
"""What a block that only turns pages does not hold."""

_CONTENTS = "a[href^='#']"
"""Links to places of the page itself."""

MOST_LINKS = 300
"""Links, from the first, that are looked at for navigation and tables of contents."""

CONTENTS_LINKS, CONTENTS_SHARE = 3, 0.8
"""Least links of a table of contents or a menu, and least share of its characters that are in them."""

_BLOCKS = frozenset(("table", "ul", "ol", "dl", "p", "div", "section"))
CLIMBED = 8
"""Elements around a link, the nearest first, among which a block that holds it and others is looked for."""


def read_html(data: bytes, name: str, charset: str | None = None) -> Document:
    """Return a page; `charset`: what was said about its encoding when it was sent."""
    text, metadata = decode_text(data, page_encoding(charset or "") or declared_encoding(data))
    tree = parse_html(text)
    title = tree.css_first("title")
    author = tree.css_first("meta[name=author]")
    if author and author.attributes.get("content"):
        metadata["author"] = one_line(author.attributes["content"] or "")
    markdown, root = _page_text(tree)
    # Outside of the text, a heading names the site.
    named = _title(root.css("h1") if root else [], title.text() if title else "")
    if not named.strip() and (heading := tree.css_first("h1")):
        named = _nested(heading, " ")
    return make_document(name, markdown, "html", "markdown", "website", title=named, metadata=metadata)


def _title(headings: "list[LexborNode]", title: str) -> str:
    """Return the only heading of the first level, or that of several which the title holds, or the title."""
    names = [_nested(heading, " ") for heading in headings]
    if len(names) == 1 or not title.strip():
        return next(filter(None, names), title)
    return next((name for name in names if name and one_line(name) in one_line(title)), title)


def html_markdown(text: str) -> str:
    """Return a page or a mail in HTML as Markdown."""
    return _page_text(parse_html(text))[0]


def parse_html(text: str) -> "LexborHTMLParser":
    from selectolax.lexbor import LexborHTMLParser

    return LexborHTMLParser(text)


def _page_text(tree: "LexborHTMLParser") -> "tuple[str, LexborNode | None]":
    """Return a page without its navigation, and where that text is; if it leaves nothing, the page with it."""
    if tree.body is None and (frameless := tree.css_first("noframes")):
        # The text of a page of frames, which the parser does not read as markup.
        tree = type(tree)(frameless.text())
    drop_controls(tree)
    root = tree.body
    if root is None:
        return "", None
    whole = element_markdown(root)
    _mark_navigation(tree)
    for node in tree.css(_BOILERPLATE):
        if _in_boilerplate(node):
            node.decompose()
    main = tree.css("main, [role=main]")
    body = element_markdown(root)
    only = element_markdown(main[0]) if len(main) == 1 else ""
    if only and len(only) * 5 >= len(body) * 2:
        return only, main[0]
    return body or whole, root


def _mark_navigation(tree: "LexborHTMLParser") -> None:
    """Give its role to what turns pages, to a table of contents, to menus above the first heading, to a site's name."""
    title, headings = _shown(tree.css_first("title")), tree.css("h1, h2")[:2]
    if title and [node.tag for node in headings] == ["h1", "h2"] and _shown(headings[1]) == title:
        # The first names the site.
        headings[0].attrs["role"] = "navigation"
    for block in _blocks_around(tree.css(_TURNING), least=2):
        is_short = len(block.text(strip=True)) <= MOST_TURNING
        holds_prose = any(node.mem_id != block.mem_id for node in block.css(_PROSE))
        if is_short and not holds_prose and len(block.css(_TURNING)) == len(block.css("a[href]")):
            block.attrs["role"] = "navigation"
    for block in _blocks_around(tree.css(_CONTENTS), least=CONTENTS_LINKS):
        if len(block.css(_CONTENTS)) == len(block.css("a[href]")) and _is_of_links(block):
            block.attrs["role"] = "navigation"
    above = list(takewhile(lambda node: node.tag not in _HEADINGS, tree.css(f"ul, ol, {', '.join(sorted(_HEADINGS))}")))
    for menu in above[:MOST_LINKS] if tree.css_first("h1, h2, h3") else ():
        if _is_of_links(menu):
            menu.attrs["role"] = "navigation"


def _shown(node: "LexborNode | None") -> str:
    return one_line(node.text()) if node else ""


def _is_of_links(block: "LexborNode") -> bool:
    links = block.css("a[href]")
    in_links = sum(len(link.text(strip=True)) for link in links)
    return len(links) >= CONTENTS_LINKS and in_links >= CONTENTS_SHARE * len(block.text(strip=True))


def _blocks_around(links: "list[LexborNode]", least: int) -> "Iterator[LexborNode]":
    """Yield the nearest block around each link that holds at least so many, each once."""
    looked_at: dict[int, bool] = {}
    for link in links[:MOST_LINKS]:
        node = link.parent
        for _ in range(CLIMBED):
            if node is None or node.tag in ("body", "main", "article"):
                break
            if node.tag in _BLOCKS and node.mem_id not in looked_at:
                looked_at[node.mem_id] = len(node.css("a[href]")) >= least
                if looked_at[node.mem_id]:
                    yield node
            if looked_at.get(node.mem_id):
                break
            node = node.parent


def drop_controls(tree: "LexborHTMLParser") -> None:
    """Remove what is no text from a page, and set its footnote marks in brackets."""
    for node in tree.css(_NEVER_TEXT):
        node.decompose()
    for node in tree.css(_HEADING_LINKS):
        if node.text(strip=True).strip("\u200b") in _LINK_SIGNS:
            node.decompose()
    for node in tree.css("pre br"):
        node.replace_with("\n")
    for node in tree.css("code br"):
        node.replace_with(_LINE_BREAK)
    for node in tree.css(_NOTE_MARKS):
        if node.text(strip=True).isdecimal():
            node.replace_with(f" [{node.text(strip=True)}]")


def _in_boilerplate(node: "LexborNode") -> bool:
    """Return whether an element is boilerplate around the text; the header of an article, or with the h1, is not."""
    current: LexborNode | None = node
    while current is not None:
        if current.tag == "nav" or current.attributes.get("role") in ("navigation", "banner", "contentinfo", "search"):
            return True
        if current.tag in ("header", "footer"):
            return not _holds_text(current)
        current = current.parent
    return False


def _holds_text(node: "LexborNode") -> bool:
    if node.tag == "header" and node.css_first("h1"):
        return True
    parent = node.parent
    while parent is not None:
        if parent.tag in ("article", "main", "blockquote"):
            return True
        parent = parent.parent
    return False


def element_markdown(root: "LexborNode") -> str:
    writer = _MarkdownWriter()
    try:
        writer.children(root)
    except RecursionError:
        lines = (line.strip() for line in root.text(separator="\n").split("\n"))
        return "\n\n".join(line for line in lines if line)
    return writer.text()


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
            self.run.append(_formula(node))
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


def _nested(node: "LexborNode", separator: str = "\n\n") -> str:
    writer = _MarkdownWriter()
    writer.children(node)
    return writer.text(separator)


def _code_text(node: "LexborNode") -> str:
    """Return code within a line: ends of lines in the source of the page are spaces, breaks begin a line."""
    return re.sub(r"[ \t\r\n\f]+", " ", node.text()).replace(_LINE_BREAK, "\n").strip()


def _formula(node: "LexborNode") -> str:
    """Return a formula as its author typed it, if the page says so; else its signs in a row."""
    source = node.css_first("annotation[encoding*=tex]")
    typed = node.attributes.get("alttext") or (source.text() if source else "")
    return one_line(typed or node.text(separator=" "))


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
    """Return the text in each column of each row: a cell that spans rows is in all of them.

    Only short texts are repeated, and cells beyond MOST_COLUMNS span nothing, or a hostile table would grow a
    thousandfold.
    """
    rows: list[list[str]] = []
    spanned: dict[int, tuple[int, str]] = {}  # column -> how many rows below it is taken in, and by what
    for row in table.css("tr"):
        texts: list[str] = []
        for cell in (cell for cell in row.iter() if cell.tag in ("td", "th")):
            texts += _from_above(spanned, len(texts))
            is_narrow = len(texts) < MOST_COLUMNS
            below, beside = (_span(cell, name) - 1 if is_narrow else 0 for name in ("rowspan", "colspan"))
            for text in (_nested(cell, " "), *[""] * beside):
                spanned[len(texts)] = (below, text if below * len(text) <= MOST_REPEATED else "")
                texts.append(text)
        rows.append([*texts, *_from_above(spanned, len(texts))])
    return rows


def _from_above(spanned: dict[int, tuple[int, str]], column: int) -> Iterator[str]:
    """Yield the texts that take the columns from this one on."""
    while (left := spanned.get(column, (0, "")))[0]:
        spanned[column] = (left[0] - 1, left[1])
        yield left[1]
        column += 1


def _span(cell: "LexborNode", attribute: str) -> int:
    value = cell.attributes.get(attribute) or ""
    return max(int(value), 1) if re.fullmatch(r"\d{1,2}", value, re.A) else 1


def close_empty(xhtml: str) -> str:
    """`<title/>` is an empty element in XHTML, but an HTML parser takes what follows for its content."""
    return re.sub(r"<(title|script|style|textarea|iframe|a|div|span|p|td|b|i|em)\b([^<>]*)/>", r"<\1\2></\1>", xhtml)
