"""Turns HTML into Markdown: pages without their navigation, header and footer, and books (EPUB)."""

import posixpath
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, declared_encoding, decode_text, make_document, one_line, set_fields
from localmcp.readers.markdown import RAISED, code_fence, pipe_table
from localmcp.readers.office import office_document
from localmcp.readers.outline import scan_markdown
from localmcp.readers.packages import Package, attribute, elements, local

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_INLINE = frozenset(
    "-text a abbr acronym b bdi bdo big br cite code data del dfn em font i img ins kbd label mark math q rp rt ruby s "
    "samp small span strike strong sub sup time tt u var wbr".split()
)
_NO_TEXT = (
    "script, style, template, noscript, noframes, svg, canvas, iframe, object, dialog, button, input, select, "
    "textarea, a.headerlink, a[aria-hidden=true], span[aria-hidden=true], img[aria-hidden=true], a.footnote-back, "
    # The numbers of lines of code.
    ".linenos, .lineno, .rouge-gutter, td.gutter, a[data-nosnippet], "
    ":not(h1, h2, h3, h4, h5, h6) > a[role=doc-backlink]"
)
_ROLES = ("navigation", "banner", "contentinfo", "search")
MOST_COLUMNS, MOST_REPEATED = 200, 1000
"""Columns in which cells may span others, and characters of a cell in the rows below it that it spans: a hostile table
would grow a thousandfold."""
_LINE_BREAK = "\u2028"

LinkTarget = Callable[[str], str]
"""Returns where a link leads that has this address in the source; "" if it is shown as its text only."""


def read_html(data: bytes, name: str, charset: str | None = None) -> Document:
    """Return a page; `charset`: what was said about its encoding when it was sent."""
    text, metadata = decode_text(data, declared_encoding(data, charset or ""))
    tree = parse_html(text)
    title_node = tree.css_first("title")
    title = one_line(title_node.text()) if title_node else ""
    nodes = (tree.css_first(f"meta[{query}]") for query in ("name=author", "property='og:title'"))
    author, shared = (one_line(node.attributes.get("content") or "") if node else "" for node in nodes)
    metadata |= set_fields(author=author)
    # The title to share a page by is without the name of the site, unless all pages of the site have the same.
    is_shared = bool(shared) and title.startswith(shared) and title != shared
    title = shared if is_shared else title
    # With a fifth of addresses in 140 pages of news, hybrid search found words of 570 sentences with an MRR of .847
    # instead of .864, so that those of the web are kept where there are few: .862. So are those of files, which are a
    # fourth of the manual of a library (each type in a heading); but a page of contents is its links.
    links, shown = tree.css("a[href]"), len(tree.body.text(strip=True)) if tree.body else 0
    addresses, has_few = [node.attributes.get("href") or "#" for node in links], dict[bool, bool]()
    for is_web in (True, False):
        length = sum(len(address) for address in addresses if address[0] not in "#/" and ("://" in address) == is_web)
        has_few[is_web] = length < max(500, 0.1 * shown)
    has_few[False] = has_few[False] or 2 * sum(len(node.text(strip=True)) for node in links) > shown

    # What has an anchor -> its first heading, by which a reader finds the place.
    places, passed = dict[str, str](), set[int]()
    for heading in tree.css(", ".join(_HEADINGS)):
        node: LexborNode | None = heading
        while node is not None and node.mem_id not in passed:
            passed.add(node.mem_id)
            places.setdefault(node.attributes.get("id") or "", re.sub(r"\W+", "-", heading.text(strip=True)))
            node = node.parent

    def link_target(address: str) -> str:
        # `/path` leads nowhere in a library.
        if address[:1] == "/" or (address[:1] != "#" and not has_few["://" in address]):
            return ""
        return f"#{place}" if address[:1] == "#" and (place := places.get(address[1:] or "#")) else address

    markdown, root = page_text(tree, link_target)
    headings = [heading for node in (root.css("h1") if root else []) if (heading := one_line(_nested(node, " ")))]
    # The only heading of the first level, unless that names the site; or that of several which the title holds.
    is_section = any(one_line(node.text()) == title for node in (root.css("h2") if root else []))
    is_alone = len(headings) == 1 and not is_section and not is_shared
    held = [heading for heading in headings if heading in title or is_alone]
    title = next(iter(held), title or next(iter(headings), ""))
    return make_document(name, markdown, "html", "markdown", "website", title=title, metadata=metadata)


def parse_html(text: str) -> "LexborHTMLParser":
    """Return the tree of a page, without what is no text, and with footnote marks in brackets."""
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(text)
    for node in reversed(tree.css(_NO_TEXT)):
        node.decompose()
    for node in tree.css(", ".join(f"{tag} a[href*='#']" for tag in (*_HEADINGS, "dt"))):
        # What is shown of a link from a heading to itself.
        if node.text(strip=True).strip("\u200b") in ("", "#", "¶", "§", "🔗"):
            node.decompose()
    for node in tree.css("pre br, code br"):
        in_block = node.parent is not None and node.parent.tag == "pre"
        node.replace_with("\n" if in_block else _LINE_BREAK)
    # The number of a footnote must not become a part of the word before it.
    for node in tree.css("sup > a[href*='#'], a[href*='#'] > sup, a[role=doc-noteref], a.footnote-ref, a.noteref"):
        if node.text(strip=True).isdecimal():
            node.replace_with(f" [{node.text(strip=True)}]")
    return tree


def page_text(tree: "LexborHTMLParser", link: LinkTarget | None = None) -> "tuple[str, LexborNode | None]":
    """Return a page without its navigation, and where that text is; if it leaves nothing, the page with it.

    Links are their text, or with `link` those of Markdown.
    """
    root = tree.body
    if root is None:
        return "", None
    whole, headings = _element_markdown(root, link), ", ".join(_HEADINGS)
    # An article has its own header, and lists of links are a part of it.
    content, parts = ("article", "main", "[role=main]", "blockquote"), "header footer aside ul ol dl".split()
    in_content = {node.mem_id for place in content for part in parts for node in tree.css(f"{place} {part}")}
    # A block of nothing but links is a menu if it is above the first heading, or the contents of the page. Lists beside
    # the article are menus too, unless links are what the page is for.
    linked = sum(len(node.text(strip=True)) for node in tree.css("a[href]"))
    is_beside = any(_articles(tree)) and linked < 0.7 * len(root.text(strip=True))
    is_below_heading = tree.css_first("h1, h2, h3") is None
    for node in tree.css(f"ul, ol, dl, div, {headings}")[:500]:
        is_below_heading = is_below_heading or node.tag in _HEADINGS
        links = [] if node.tag in _HEADINGS else node.css("a[href]")
        if len(links) < 3 or node.css_first(headings):
            continue
        is_menu = not is_below_heading or all((link.attributes.get("href") or "")[:1] == "#" for link in links)
        is_menu = is_menu or (is_beside and node.tag != "div" and node.mem_id not in in_content)
        if is_menu and sum(len(link.text(strip=True)) for link in links) >= 0.8 * len(node.text(strip=True)):
            node.attrs["role"] = "navigation"
    frame: list[LexborNode] = []
    roles = ", ".join(f"[role={role}]" for role in _ROLES)
    for node in tree.css(f"nav, header, footer, {roles}{', aside' if is_beside else ''}"):
        # A header with the h1 is the title.
        is_title = node.tag in ("header", "aside") and node.css_first("h1") is not None
        is_part = node.tag in parts and (is_title or node.mem_id in in_content)
        if not is_part or node.attributes.get("role") in _ROLES:
            frame.append(node)
    # The inner ones first: what is in a node goes with it.
    for node in reversed(frame):
        node.decompose()
    shown = len(root.text(strip=True))
    for places, least in zip(_articles(tree), (0.25, 0.4), strict=True):
        if len(places) == 1 and len(places[0].text(strip=True)) >= least * shown:
            if only := _element_markdown(places[0], link):
                return only, places[0]
    return _element_markdown(root, link) or whole, root


def _articles(tree: "LexborHTMLParser") -> "tuple[list[LexborNode], list[LexborNode]]":
    # Those with a heading of the first level, and what says that it is the main part.
    return [article for article in tree.css("article") if article.css_first("h1")], tree.css("main, [role=main]")


def _element_markdown(root: "LexborNode", link: LinkTarget | None) -> str:
    try:
        return _nested(root, link=link)
    except RecursionError:
        lines = (line.strip() for line in root.text(separator="\n").split("\n"))
        return "\n\n".join(line for line in lines if line)


def _nested(node: "LexborNode", separator: str = "\n\n", link: LinkTarget | None = None) -> str:
    writer = _MarkdownWriter(link)
    writer.children(node)
    return writer.text(separator)


class _MarkdownWriter:
    """Writes the content of an HTML element as blocks of Markdown: no escapes, no emphasis."""

    def __init__(self, link: LinkTarget | None) -> None:
        self.link = link
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
        elif tag in ("code", "kbd", "samp") and "`" not in (code := node.text()):
            # Ends of lines in the source of the page are spaces, breaks begin a line.
            code = re.sub(r"[ \t\r\n\f]+", " ", code).replace(_LINE_BREAK, "\n").strip()
            self.run.append(f"`{code}`" if code else "")
        elif tag == "sup" and (raised := node.text(strip=True)).strip("+-\u2212").isdecimal():
            # Else a power becomes a digit of its base.
            self.run.append(raised.translate(RAISED))
        elif tag == "a" and self.link and (address := node.attributes.get("href")):
            blocks, before = len(self.blocks), len(self.run)
            self.children(node)
            words = "".join(self.run[before:])
            target = re.sub(r"[\s()<>|]", lambda sign: quote(sign[0]), self.link(address.strip()))
            # An address that is shown is a link already, brackets would end it, and numbers are of pages and notes.
            is_text = len(self.blocks) == blocks and re.search(r"[^\W\d]", words) and not re.search(r"[][]|://", words)
            # Headings lead back to the contents of the page.
            is_text = is_text and not (target[:1] == "#" and node.parent and node.parent.tag in _HEADINGS)
            if is_text and 0 < len(target) <= 200 and not re.match("(?i)(?:javascript|data|mailto|tel):", target):
                self.run[before:] = [words.replace(words.strip(), f"[{words.strip()}]({target})", 1)]
        else:
            self.children(node)

    def block(self, node: "LexborNode", tag: str) -> None:
        if tag in _HEADINGS:
            title = _nested(node, " ", self.link).replace("\n", " ")
            self.add(f"{'#' * int(tag[1])} {title}" if title else "")
        elif tag in ("ul", "ol", "menu"):
            start = node.attributes.get("start") or ""
            number = int(start) if re.fullmatch(r"\d{1,9}", start, re.A) else 1
            items: list[str] = []
            for item in node.iter(include_text=True):
                mark = f"{number}. " if tag == "ol" else "- "
                writer = _MarkdownWriter(self.link)
                writer.visit(item)
                if content := writer.text("\n"):
                    items.append(mark + content.replace("\n", "\n" + " " * len(mark)))
                number += item.tag == "li"
            self.add("\n".join(items))
        elif tag == "pre":
            code = node.text().strip("\n")
            around = (node, node.css_first("code"), node.parent)
            classes = " ".join(element.attributes.get("class") or "" for element in around if element)
            language = re.search(r"(?:^|\s)(?:language|lang|highlight|highlight-source)-(\w[\w+#-]*)", classes)
            self.add(code_fence(code, language[1] if language else "") if code.strip() else "")
        elif tag == "table" and (rows := _table_rows(node, self.link)):
            self.add(rows)
        elif tag == "blockquote":
            quoted = _nested(node, link=self.link)
            self.add("\n".join(f"> {line}".rstrip() for line in quoted.split("\n")) if quoted else "")
        else:
            self.children(node)


def _table_rows(table: "LexborNode", link: LinkTarget | None) -> str:
    """A table of data as `|` rows; "" for a table that lays out a page: one column, or a cell with blocks in it."""
    if table.css_first("table table, td ul, td ol, td pre, td h1, td h2, td h3"):
        return ""
    rows: list[list[str]] = []
    # A cell that spans rows is in all of them.
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
            for text in (_nested(cell, " ", link), *[""] * beside):
                spanned[len(texts)] = (rows_below, text if rows_below * len(text) <= MOST_REPEATED else "")
                texts.append(text)
        rows.append(texts)
    caption = table.css_first("caption")
    above = f"{one_line(caption.text())}\n\n" if caption else ""
    return above + pipe_table(rows) if max(map(len, rows), default=0) > 1 else ""


# ---------------------------------------------------------------- books


def read_epub(data: bytes, name: str) -> Document:
    """Return the chapters of a book; one that prints no heading has its title of the table of contents."""
    package = Package(data, name)
    root = next(attribute(file, "full-path") for file in elements(package.root("META-INF/container.xml"), "rootfile"))
    book = package.root(root)
    items = list(elements(book, "item"))
    pages = {e.get("id", ""): e.get("href", "") for e in items if "html" in e.get("media-type", "html")}
    # As listed where no order is given; a spine that lists a chapter twice would only repeat it.
    order = [reference.get("idref", "") for reference in elements(book, "itemref")] or list(pages)
    paths = [path for path in dict.fromkeys(_member(root, pages.get(page, "")) for page in order) if path in package]
    if "META-INF/encryption.xml" in package:
        # Obfuscated fonts are listed there too, and do no harm.
        locked = elements(package.root("META-INF/encryption.xml"), "CipherReference")
        if {unquote(reference.get("URI", "")) for reference in locked}.intersection(paths):
            raise UnreadableDocument(f"{name} is protected by DRM: its chapters are encrypted.")
    listed = (e for e in items if "nav" in e.get("properties", "").split() or "dtbncx" in e.get("media-type", ""))
    contents = next((_member(root, item.get("href", "")) for item in listed), "")
    titles: dict[str, str] = {}
    # As EPUB 3 or an older one lists them; one that is damaged takes none of the chapters with it.
    with suppress(UnreadableDocument):
        for entry in elements(package.root(contents), "a", "navPoint") if contents in package else ():
            label, target = (next(elements(entry, name), entry) for name in ("text", "content"))
            address = target.get("src") or target.get("href", "")
            titles.setdefault(_member(contents, address), one_line("".join(label.itertext())))

    def link_target(page: str, address: str) -> str:
        # In a book a place is found by its heading; those of other addresses are on the web.
        title = titles.get(_member(page, address), "")
        return "#" + re.sub(r"\W+", "-", title) if title else address if "://" in address else ""

    chapters: list[str] = []
    for path in paths:
        # The tree that the parser makes of a chapter takes 5 to 20 times as much memory.
        page = package.read(path, 20_000_000)
        text, title = decode_text(page, declared_encoding(page))[0], titles.get(path, "")
        # `<title/>` is an empty element in XHTML, but an HTML parser takes what follows for its content.
        empty = r"<(title|script|style|textarea|iframe|a|div|span|p|td|b|i|em)\b([^<>]*)/>"
        body = parse_html(re.sub(empty, r"<\1\2></\1>", text)).body
        chapter = _element_markdown(body, partial(link_target, path)) if body else ""
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
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(address.partition("#")[0])))
