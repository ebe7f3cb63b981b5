"""Turns a file of any supported format into one text that can be chunked, searched and cited.

Text formats keep their decoded text exactly; the others are rendered as Markdown (PDF: plain text). A reader executes
nothing, follows no link and contacts no host; what it unpacks is bounded.
"""

import gzip
import io
import json
import logging
import posixpath
import re
import stat
import threading
import warnings
import zipfile
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, datetime, time
from importlib import import_module
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote
from xml.parsers import expat

from localmcp.errors import LocalMCPError, MissingExtra, NotFound, UnreadableDocument

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser, LexborNode

logger = logging.getLogger(__name__)

Markup = Literal["markdown", "plain", "code"]
SourceType = Literal["text", "website", "docs", "qa"]

MAX_BYTES = 50_000_000
MAX_UNPACKED = 400_000_000
"""Most bytes that one office file or EPUB may hold once unpacked, pictures included."""
MAX_DOM = 60_000_000
"""Most bytes of a .docx without its media: its reader holds the whole XML tree, at 20 to 50 times the size."""
MAX_DEPTH = 10_000
"""Most nested HTML elements: the parser's time grows with the square of the depth."""
MAX_COPIES = 2_000_000
"""Most copies of unclosed formatting that an HTML page may ask for."""
EXCEL_ROWS = 1_048_576
HEAD = 8192


@dataclass(frozen=True, slots=True)
class Document:
    """The text of one source and what is known about it."""

    title: str
    """One line of at most 200 characters; never empty."""
    text: str
    """The whole text: no NUL, no lone surrogate, no byte order mark; text formats keep their line ends."""
    format: str
    """markdown, text, rst, html, pdf, docx, pptx, xlsx, epub, json, jsonl, csv, code or notebook."""
    markup: Markup
    """How to chunk the text."""
    source_type: SourceType
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    """JSON values: front matter, author, created, encoding (if not utf-8), language of code, sheets…"""
    page_starts: tuple[int, ...] = ()
    """Code-point offset in `text` of page (or slide) 1, 2, 3…; empty when the format has no pages."""


Reader = Callable[[bytes, str], Document]
"""Bytes and a file name (for the suffix and the fallback title) to a document."""


# --- The front door ---------------------------------------------------------------------------------------------------


def read(path: Path, *, max_bytes: int = MAX_BYTES) -> Document:
    """The document in a file of at most `max_bytes`, also after decompressing a .gz.

    Raises NotFound for no such file, MissingExtra when an optional library is needed, and UnreadableDocument, saying
    why, for everything else that cannot be turned into text.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableDocument(f"{path} is not a regular file.")
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path}.") from error
    except (OSError, ValueError) as error:
        raise UnreadableDocument(f"{path} cannot be read: {_reason(error)}.") from error
    if len(data) > max_bytes:
        raise UnreadableDocument(f"{path.name} is larger than {_megabytes(max_bytes)}.")
    return _read(data, path.name, max_bytes)


def read_bytes(data: bytes, name: str) -> Document:
    """The document in `data`, as if it were a file called `name`; raises as `read` does."""
    return _read(data, PurePosixPath(PureWindowsPath(name).as_posix()).name, MAX_BYTES)


def read_text(text: str, title: str, *, markup: Markup = "markdown") -> Document:
    """A document from text handed over by a tool call; an empty title is taken from the text."""
    text = text.removeprefix("\ufeff")
    metadata = _front_matter(text)[0] if markup == "markdown" else {}
    found = title if title.strip() or markup != "markdown" else _markdown_title(text)
    kind = {"markdown": "markdown", "plain": "text", "code": "code"}[markup]
    return _document("untitled", text, kind, markup, "text", title=found, metadata=metadata)


def why_skipped(path: Path) -> str | None:
    """Why a file is not worth reading, from its name, its size and its first 8 kB; None when it is. Never raises."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return "not a regular file"
        if status.st_size == 0:
            return "empty file"
        if status.st_size > MAX_BYTES:
            return f"larger than {_megabytes(MAX_BYTES)}"
        with path.open("rb") as file:
            return _why_unreadable(file.read(HEAD), path.name)
    except (OSError, ValueError) as error:
        return _reason(error)


def _read(data: bytes, name: str, max_bytes: int) -> Document:
    if not data:
        raise UnreadableDocument(f"{name} is empty.")
    if name.lower().endswith(".gz") and data.startswith(b"\x1f\x8b"):
        data, name = _gunzip(data, name, max_bytes), name[:-3]
    if reason := _why_unreadable(data[:HEAD], name):
        raise UnreadableDocument(f"{name} cannot be read: {reason}.", hint=_HINTS.get(_suffix(name)))
    reader = _reader_for(name) or _reader_of(data) or _read_plain
    try:
        return reader(data, name)
    except LocalMCPError:
        raise
    except Exception as error:  # The parsers of other projects raise anything on a broken file.
        logger.debug("%s cannot be read", name, exc_info=True)
        raise UnreadableDocument(f"{name} is damaged: {type(error).__name__}: {error}"[:300]) from error


def _reader_for(name: str) -> Reader | None:
    return NAMES.get(name.lower()) or FORMATS.get(_suffix(name))


def _reader_of(data: bytes) -> Reader | None:
    """The reader for content that announces itself, such as a download or standard input without a suffix."""
    if data.startswith(b"%PDF-"):
        return _read_pdf
    return _read_html if re.match(rb"\s*<(!doctype\s+html|html)\b", data[:HEAD], re.I) else None


def _why_unreadable(head: bytes, name: str) -> str | None:
    suffix = _suffix(name)
    if suffix == ".gz":
        inner = _suffix(name[:-3])
        return None if inner in FORMATS and head.startswith(b"\x1f\x8b") else "compressed file"
    if suffix in _NO_READER:
        return f"no reader for {suffix} ({_NO_READER[suffix]})"
    if FORMATS.get(suffix) in _BINARY_READERS or head.startswith(b"%PDF-"):
        return None
    if kind := _magic(head):
        return f"binary file ({kind})"
    if _looks_like_text(head):
        return None
    return "binary file" if _reader_for(name) else f"no reader for {suffix or 'binary files'}"


def _magic(head: bytes) -> str | None:
    if head[4:8] == b"ftyp":
        return "MP4 video"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)


def _looks_like_text(head: bytes) -> bool:
    if head.startswith(tuple(bom for bom, _ in _BOMS)) or _wide_encoding(head):
        return True
    controls = sum(head.count(code) for code in _CONTROLS)
    return controls * 50 <= len(head)


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:g} MB"


def _gunzip(data: bytes, name: str, max_bytes: int) -> bytes:
    try:
        with gzip.open(io.BytesIO(data)) as file:
            content = file.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableDocument(f"{name} is damaged: {error}.") from error
    if len(content) > max_bytes:
        raise UnreadableDocument(f"{name} is larger than {_megabytes(max_bytes)} once decompressed.")
    return content


# --- Building a document ----------------------------------------------------------------------------------------------


def _document(
    name: str,
    text: str,
    kind: str,
    markup: Markup,
    source_type: SourceType,
    *,
    title: str = "",
    metadata: dict[str, Any] | None = None,
    page_starts: tuple[int, ...] = (),
) -> Document:
    if not text.strip():
        raise UnreadableDocument(f"{name} holds no text.")
    line = _one_line(title) or _readable_stem(name)
    return Document(line, _clean(text), kind, markup, source_type, metadata or {}, page_starts)


def _clean(text: str) -> str:
    """NUL and lone surrogates, which SQLite and UTF-8 cannot hold, become U+FFFD: offsets stay as they are."""
    return re.sub("[\x00\ud800-\udfff]", "\ufffd", text)


def _one_line(text: str) -> str:
    return " ".join(_clean(text[:2000]).split())[:200].strip()


def _readable_stem(name: str) -> str:
    """'retry-policy_v2.md' as 'retry policy v2'; hyphens between digits (dates, versions) stay."""
    stem = re.sub(r"_|(?<!\d)-|-(?!\d)", " ", PurePosixPath(name).stem)
    return _one_line(stem) or _one_line(name) or "untitled"


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {_clean(str(key)): _json_value(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set):
        return [_json_value(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if value is None or isinstance(value, bool) or (isinstance(value, int) and value.bit_length() < 64):
        return value
    return value if isinstance(value, float) and abs(value) < float("inf") else _clean(str(value))


# --- Text -------------------------------------------------------------------------------------------------------------


def _decode(data: bytes, declared: str | None = None) -> tuple[str, dict[str, Any]]:
    """The text and its encoding as metadata: byte order mark, UTF-8, the declared encoding, then the likeliest one."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(encoding, "replace"), _encoding_metadata(encoding)
    if encoding := _wide_encoding(data[:HEAD]):
        return data.decode(encoding, "replace"), _encoding_metadata(encoding)
    try:
        return data.decode("utf-8"), {}
    except UnicodeDecodeError:
        encoding = declared or _mostly_utf8(data) or _western(data) or _guessed_encoding(data)
    return data.decode(encoding, "replace"), _encoding_metadata(encoding)


def _encoding_metadata(encoding: str) -> dict[str, Any]:
    return {} if encoding == "utf-8" else {"encoding": encoding}


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 without a byte order mark, told by NULs in every other byte of mostly Latin text."""
    half = len(head) // 2
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if half < 2 or max(even, odd) * 10 < half * 7 or min(even, odd) * 20 > half:
        return None
    return "utf-16-le" if odd > even else "utf-16-be"


def _mostly_utf8(data: bytes) -> str | None:
    """UTF-8 in which a few bytes are broken: one bad byte must not turn every accent of the file into two letters."""
    text = data[:1_000_000].decode("utf-8", "replace")
    broken = text.count("\ufffd")
    foreign = sum(character > "\x7f" for character in text) - broken
    return "utf-8" if foreign > 4 * broken else None


def _western(data: bytes) -> str | None:
    """cp1252 when every high byte is a letter or sign of Western European prose and most letters are plain ones."""
    sample = data[:1_000_000]
    high = [byte for byte in sample if byte > 0x7F]
    if len(high) * 4 > len(sample):
        return None
    return "cp1252" if _WESTERN.issuperset(high) else None


def _guessed_encoding(data: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(data[:200_000]).best()
    return best.encoding if best else "cp1252"


def _read_plain(data: bytes, name: str) -> Document:
    text, metadata = _decode(data)
    return _document(name, text, "text", "plain", "text", title=_underlined_title(text, 300), metadata=metadata)


def _read_data(kind: str) -> Reader:
    def reader(data: bytes, name: str) -> Document:
        text, metadata = _decode(data)
        return _document(name, text, kind, "plain", "text", metadata=metadata)

    return reader


def _read_code(language: str) -> Reader:
    def reader(data: bytes, name: str) -> Document:
        text, metadata = _decode(data)
        metadata["language"] = language
        return _document(name, text, "code", "code", "text", title=name, metadata=metadata)

    return reader


def _read_rst(data: bytes, name: str) -> Document:
    text, metadata = _decode(data)
    return _document(name, text, "rst", "plain", "docs", title=_underlined_title(text, 5000), metadata=metadata)


def _underlined_title(text: str, within: int) -> str:
    """The first heading whose next line is a row of one punctuation sign, in the first `within` characters."""
    lines = [line.rstrip() for line in text[:within].splitlines()]
    for title, line in zip(lines, lines[1:], strict=False):
        if re.search(r"\w", title) and re.fullmatch(r"([=\-~^\"#*+])\1{2,}", line) and len(line) >= len(title):
            return title
    return ""


# --- Markdown and notebooks -------------------------------------------------------------------------------------------


def _read_markdown(data: bytes, name: str) -> Document:
    text, metadata = _decode(data)
    front, _ = _front_matter(text)
    return _document(
        name, text, "markdown", "markdown", "docs", title=_markdown_title(text), metadata={**front, **metadata}
    )


def _markdown_title(text: str) -> str:
    front, start = _front_matter(text)
    return str(front.get("title") or "") or _first_heading(text[start : start + 10_000])


def _front_matter(text: str) -> tuple[dict[str, Any], int]:
    """The YAML between two `---` lines at the top, as JSON values, and the offset at which the body begins."""
    match = re.match(r"---[ \t]*\r?\n(.{0,65536}?)^(?:---|\.\.\.)[ \t]*\r?$", text, re.S | re.M)
    if not match:
        return {}, 0
    yaml = import_module("yaml")
    try:
        # Aliases let a few lines grow into millions of values.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(match[1], yaml.SafeLoader)):
            return {}, match.end()
        front = yaml.safe_load(match[1])
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        logger.debug("front matter is not YAML: %s", error)
        return {}, match.end()
    return (_json_value(front), match.end()) if isinstance(front, dict) else ({}, 0)


def _first_heading(markdown: str) -> str:
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(markdown)
    for opening, inline in zip(tokens, tokens[1:], strict=False):
        if opening.type == "heading_open":
            parts = (child.content for child in inline.children or () if child.type != "html_inline")
            if title := "".join(parts).strip():
                return title
    return ""


def _read_notebook(data: bytes, name: str) -> Document:
    """Markdown cells as they are, code cells as fences; outputs are left out."""
    notebook = json.loads(_decode(data)[0])
    cells: list[dict[str, Any]] = notebook.get("cells") or [
        cell for sheet in notebook.get("worksheets", []) for cell in sheet["cells"]
    ]
    language = str(notebook.get("metadata", {}).get("language_info", {}).get("name", "python"))
    text = "\n\n".join(block for cell in cells if (block := _cell_markdown(cell, language)))
    metadata = {"language": _one_line(language)}
    return _document(name, text, "notebook", "markdown", "docs", title=_first_heading(text[:10_000]), metadata=metadata)


def _cell_markdown(cell: dict[str, Any], language: str) -> str:
    source = cell.get("source", cell.get("input", ""))
    text = "".join(source).strip("\n")
    if cell["cell_type"] != "code" or not text.strip():
        return text
    return _fence(text, language)


def _fence(code: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall("`{3,}", code)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}{language}\n{code}\n{marks}"


# --- HTML -------------------------------------------------------------------------------------------------------------


def _read_html(data: bytes, name: str) -> Document:
    text, metadata = _decode(data, _declared_encoding(data))
    tree = _parse_html(text, name)
    title = tree.css_first("title")
    author = tree.css_first("meta[name=author]")
    if author and author.attributes.get("content"):
        metadata["author"] = _one_line(author.attributes["content"] or "")
    page_title = title.text() if title else ""
    first = tree.css_first("h1")
    heading = first.text(separator=" ") if first and not _in_boilerplate(first) else ""
    markdown = _page_markdown(tree)
    return _document(
        name, markdown, "html", "markdown", "website", title=heading.strip() or page_title, metadata=metadata
    )


def _declared_encoding(data: bytes) -> str | None:
    """The encoding named in the first 4 kB, if it is one that pages are written in (codecs also has rot13 and idna)."""
    match = re.search(rb"(?:charset|encoding)\s*=\s*[\"']?\s*([\w.-]+)", data[:4096], re.I)
    name = match[1].decode("ascii", "replace").lower() if match else ""
    if name in ("iso-8859-1", "latin1", "latin-1", "us-ascii"):
        return "cp1252"
    return name if re.fullmatch(_PAGE_ENCODINGS, name) else None


def _parse_html(text: str, name: str) -> "LexborHTMLParser":
    from selectolax.lexbor import LexborHTMLParser

    _check_nesting(text, name)
    return LexborHTMLParser(text)


def _check_nesting(text: str, name: str) -> None:
    """Refuses pages that would cost the parser minutes or gigabytes, by an upper estimate of what is open at each tag.

    Elements that close by themselves do not count. Open formatting is copied into every paragraph that follows.
    """
    opened = Counter[str]()
    depth = formatting = copies = 0
    for match in re.finditer(r"<(/?)([a-zA-Z][^\s/>]*)", text):
        tag = match[2].lower()
        copies += 0 if match[1] else formatting
        step = -1 if match[1] else 1
        if tag in _SELF_CLOSING or opened[tag] + step < 0:
            continue
        opened[tag] += step
        depth += step
        formatting += step if tag in _FORMATTING else 0
        if depth > MAX_DEPTH or copies > MAX_COPIES:
            raise UnreadableDocument(f"{name} is refused: its elements are nested too deeply.")


def _page_markdown(tree: "LexborHTMLParser") -> str:
    """A page without its navigation; if that leaves nothing, the page with it."""
    for node in tree.css(_NEVER_TEXT):
        node.decompose()
    root = tree.body
    if root is None:
        return ""
    whole = _element_markdown(root)
    for node in tree.css(_BOILERPLATE):
        if _in_boilerplate(node):
            node.decompose()
    main = tree.css("main, [role=main]")
    body = _element_markdown(root)
    only = _element_markdown(main[0]) if len(main) == 1 else ""
    if only and len(only) * 5 >= len(body) * 2:
        return only
    return body or whole


def _in_boilerplate(node: "LexborNode") -> bool:
    """Whether an element is part of the frame around the text: the header of an article, or with the h1, is not."""
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


def _element_markdown(root: "LexborNode") -> str:
    writer = _MarkdownWriter()
    try:
        writer.children(root)
    except RecursionError:
        return re.sub(r"\s*\n\s*", "\n\n", root.text(separator="\n")).strip()
    return writer.text()


class _MarkdownWriter:
    """Writes the content of an HTML element as blocks of Markdown: no escapes, no emphasis, links as their text."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.run: list[str] = []
        """Pieces of the paragraph that is being written."""

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
        elif tag == "img":
            self.run.append(node.attributes.get("alt") or "")
        elif tag in ("code", "kbd", "samp") and "`" not in (code := node.text().strip()):
            self.run.append(f"`{code}`" if code else "")
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
            self.add("\n".join(f"> {line}".rstrip() for line in _nested(node).split("\n")) if _nested(node) else "")
        else:
            self.children(node)


def _nested(node: "LexborNode", separator: str = "\n\n") -> str:
    writer = _MarkdownWriter()
    writer.children(node)
    return writer.text(separator)


def _list_items(node: "LexborNode", *, numbered: bool) -> Iterator[str]:
    items = (child for child in node.iter(include_text=False))
    for number, item in enumerate(items, 1):
        mark = f"{number}. " if numbered else "- "
        content = _nested(item, "\n")
        if content:
            yield mark + content.replace("\n", "\n" + " " * len(mark))


def _pre_block(node: "LexborNode") -> str:
    code = node.text().strip("\n")
    inner = node.css_first("code")
    classes = " ".join(each.attributes.get("class") or "" for each in (node, inner, node.parent) if each)
    language = re.search(r"(?:^|\s)(?:language|lang|highlight|highlight-source)-(\w[\w+#-]*)", classes)
    return _fence(code, language[1] if language else "") if code.strip() else ""


def _table_rows(table: "LexborNode") -> str:
    """A table of data as `|` rows; "" for a table that lays out a page: one column, or a cell with blocks in it."""
    if table.css_first("table table, td ul, td ol, td pre, td h1, td h2, td h3"):
        return ""
    rows = [[_nested(cell, " ") for cell in row.iter() if cell.tag in ("td", "th")] for row in table.css("tr")]
    if max(map(len, rows), default=0) < 2:
        return ""
    caption = table.css_first("caption")
    return (f"{_one_line(caption.text())}\n\n" if caption else "") + _pipe_table(rows)


def _pipe_table(rows: list[list[str]]) -> str:
    rows = [[cell.replace("\n", " ").replace("|", "\\|") for cell in row] for row in rows if any(row)]
    width = max(map(len, rows), default=0)
    lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
    lines[1:1] = ["|" + " --- |" * width] if lines else []
    return "\n".join(lines)


# --- PDF --------------------------------------------------------------------------------------------------------------

_pdfium = threading.Lock()
"""PDFium may be used by one thread at a time."""


def _read_pdf(data: bytes, name: str) -> Document:
    pdfium = import_module("pypdfium2")
    with _pdfium:
        try:
            with closing(pdfium.PdfDocument(data)) as pdf:
                info: dict[str, str] = pdf.get_metadata_dict()
                pages = [_page_text(pdf, number, name) for number in range(len(pdf))]
        except pdfium.PdfiumError as error:
            if getattr(error, "err_code", None) == _PDF_PASSWORD:
                raise _password_protected(name) from error
            raise UnreadableDocument(f"{name} is not a readable PDF: {error}") from error
    if not any(page.strip() for page in pages):
        raise UnreadableDocument(
            f"{name} has no text layer: its {len(pages)} pages are probably scanned.",
            hint="Run it through OCR first (for example ocrmypdf).",
        )
    text, starts = _join_pages(pages)
    metadata = _set_fields(author=info.get("Author"), created=_pdf_date(info.get("CreationDate", "")))
    title = info.get("Title", "")
    named_by_program = re.search(r"^(untitled|microsoft \w+ - )|\.(docx?|pptx?|tex|dvi|indd|pdf)$", title.strip(), re.I)
    return _document(
        name,
        text,
        "pdf",
        "plain",
        "docs",
        title="" if named_by_program else title,
        metadata=metadata | {"pages": len(pages)},
        page_starts=starts,
    )


def _page_text(pdf: Any, number: int, name: str) -> str:
    """The text of one page; a damaged page among good ones is empty, and logged."""
    try:
        with closing(pdf[number]) as page, closing(page.get_textpage()) as layer:
            text: str = layer.get_text_bounded()
    except import_module("pypdfium2").PdfiumError as error:
        logger.warning("%s: page %d cannot be read: %s", name, number + 1, error)
        return ""
    # PDFium marks a hyphen that ends a line, and swallows the line end: 'exam\x02ple' is 'exam-' above 'ple'.
    text = re.sub("[\x02\ufffe](?=[a-z\u00df-\u00ff])", "", text)
    return re.sub("[\x02\ufffe]", "-", text).replace("\r\n", "\n")


def _join_pages(pages: list[str]) -> tuple[str, tuple[int, ...]]:
    """The pages with an empty line between them, and the offset at which each begins."""
    starts: list[int] = []
    offset = 0
    for page in pages:
        starts.append(offset)
        offset += len(page) + 2
    return "\n\n".join(pages), tuple(starts)


def _pdf_date(value: str) -> str | None:
    match = re.match(r"(?:D:)?(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?", value)
    if not match:
        return None
    year, month, day, *clock = match.groups()
    return f"{year}-{month}-{day}" + (f"T{':'.join(clock)}" if clock[0] else "")


def _password_protected(name: str) -> UnreadableDocument:
    return UnreadableDocument(f"{name} is password-protected.", hint="Save a copy without the password and add that.")


def _set_fields(**fields: str | None) -> dict[str, Any]:
    return {key: _one_line(value) for key, value in fields.items() if value and value.strip()}


# --- Office -----------------------------------------------------------------------------------------------------------


def _office_library(module: str, suffix: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(f"Reading {suffix} files", "office") from error


def _open_package(data: bytes, name: str, *, bound: int = MAX_UNPACKED, media: bool = True) -> zipfile.ZipFile:
    """The zip archive of an office file or EPUB, refused when it would unpack to more than `bound` bytes.

    zipfile never yields more than the declared size of a member, so the sum of the sizes is a true bound.
    """
    if data.startswith(_OLE):
        raise _password_protected(name)
    package = zipfile.ZipFile(io.BytesIO(data))
    members = package.infolist()
    counted = (each.file_size for each in members if media or _suffix(each.filename) not in _MEDIA)
    if sum(counted) > bound or sum(each.file_size for each in members) > MAX_UNPACKED:
        raise UnreadableDocument(f"{name} unpacks to more than {_megabytes(bound)}.")
    return package


def _open_office(data: bytes, name: str, **bounds: Any) -> dict[str, Any]:
    """Checks an office file before another library opens it; returns its title, author and creation date."""
    with _open_package(data, name, **bounds) as package:
        for member in package.infolist():
            if _suffix(member.filename) not in _MEDIA:
                _refuse_dtd(package, member, name)
        if "docProps/core.xml" not in package.namelist():
            return {}
        elements = {each.tag: each.text for each in _xml_elements(package.read("docProps/core.xml"))}
    return _set_fields(title=elements.get("title"), author=elements.get("creator"), created=elements.get("created"))


def _refuse_dtd(package: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> None:
    """Office formats forbid document types; one in a part is an attempt to expand entities."""
    with package.open(member) as part:
        before = b""
        while block := part.read(1 << 20):
            if any(mark in before + block for mark in _DOCTYPES):
                raise UnreadableDocument(f"{name} is refused: {member.filename} declares a document type.")
            before = block[-32:]


@dataclass(slots=True)
class _Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""


def _xml_elements(data: bytes) -> list[_Element]:
    """Every element in document order, by local name; entity declarations are refused."""
    elements: list[_Element] = []
    stack: list[_Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        stack.append(_Element(tag.rpartition(" ")[2], attributes))
        elements.append(stack[-1])

    def end(_tag: str) -> None:
        stack.pop()

    def text(piece: str) -> None:
        stack[-1].text += piece

    def entity(*_declaration: Any) -> None:
        raise UnreadableDocument("The file is refused: it declares XML entities.")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = text, entity
    parser.Parse(data, True)
    return elements


def _no_attributes(_image: Any) -> dict[str, str]:
    return {}


def _read_docx(data: bytes, name: str) -> Document:
    mammoth = _office_library("mammoth", ".docx")
    metadata = _open_office(data, name, bound=MAX_DOM, media=False)
    # Pictures are named by their alternative text only; mammoth would otherwise put their bytes into the HTML.
    pictures = mammoth.images.img_element(_no_attributes)
    styles = "p[style-name='Title'] => h1:fresh"
    page: str = mammoth.convert_to_html(io.BytesIO(data), convert_image=pictures, style_map=styles).value
    body = _parse_html(page, name).body
    text = _element_markdown(body) if body else ""
    title = metadata.pop("title", "") or _first_heading(text[:10_000])
    return _document(name, text, "docx", "markdown", "docs", title=title, metadata=metadata)


def _read_pptx(data: bytes, name: str) -> Document:
    pptx = _office_library("pptx", ".pptx")
    metadata = _open_office(data, name)
    slides = [_slide_blocks(slide) for slide in pptx.Presentation(io.BytesIO(data)).slides]
    if not any(title or blocks for title, blocks in slides):
        raise UnreadableDocument(f"{name} holds no text: its slides are pictures.")
    pages = [
        "\n\n".join([f"## {title or f'Slide {number}'}", *blocks]) for number, (title, blocks) in enumerate(slides, 1)
    ]
    text, starts = _join_pages(pages)
    title = metadata.pop("title", "")
    if title in ("", "PowerPoint Presentation", "Presentazione standard di PowerPoint"):
        title = next(title for title, _ in slides if title) if any(title for title, _ in slides) else ""
    metadata["slides"] = len(slides)
    return _document(name, text, "pptx", "markdown", "docs", title=title, metadata=metadata, page_starts=starts)


def _slide_blocks(slide: Any) -> tuple[str, list[str]]:
    """The title of a slide and its text: paragraphs, lists by level, tables, then the speaker's notes."""
    heading = slide.shapes.title
    title = _one_line(heading.text_frame.text) if heading is not None else ""
    body = [shape for shape in _flat_shapes(slide.shapes) if heading is None or shape.shape_id != heading.shape_id]
    blocks = [block for shape in body if (block := _shape_markdown(shape))]
    if slide.has_notes_slide and (frame := slide.notes_slide.notes_text_frame) and frame.text.strip():
        blocks.append(f"Notes: {_office_lines(frame.text)}")
    return title, blocks


def _flat_shapes(shapes: Any) -> Iterator[Any]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _flat_shapes(shape.shapes)
        else:
            yield shape


def _shape_markdown(shape: Any) -> str:
    if getattr(shape, "has_table", False):
        return _pipe_table([[_office_lines(cell.text) for cell in row.cells] for row in shape.table.rows])
    if not shape.has_text_frame:
        return ""
    paragraphs = [(paragraph.level, _office_lines(paragraph.text)) for paragraph in shape.text_frame.paragraphs]
    written = [(level, text) for level, text in paragraphs if text]
    if len(written) < 2 or not shape.is_placeholder:
        return "\n\n".join(text for _, text in written)
    return "\n".join("  " * level + "- " + text.replace("\n", " ") for level, text in written)


def _office_lines(text: str) -> str:
    """PowerPoint writes a line break inside a paragraph as a vertical tab."""
    return text.replace("\v", "\n").strip()


def _read_xlsx(data: bytes, name: str) -> Document:
    openpyxl = _office_library("openpyxl", ".xlsx")
    metadata = _open_office(data, name)
    # openpyxl warns about every feature that it does not keep when writing; nothing is written here.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"openpyxl\.")
    with closing(openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)) as book:
        sheets = {sheet.title: "\n".join(_sheet_lines(sheet)) for sheet in book.worksheets}
    text = "\n\n".join(f"## {_one_line(title)}\n\n{body}" for title, body in sheets.items() if body)
    title = metadata.pop("title", "")
    metadata["sheets"] = [_one_line(sheet) for sheet in sheets]
    return _document(name, text, "xlsx", "markdown", "docs", title=title, metadata=metadata)


def _sheet_lines(sheet: Any) -> Iterator[str]:
    """One list item a row. Below a row of column names it reads `- name: value; name: value`, so that a chunk from
    the middle of a long sheet still says what its values are.
    """
    header: list[str] = []
    listing = False
    for row in _filled_rows(sheet):
        cells = [_cell_text(value) for value in row]
        filled = [cell for cell in cells if cell]
        if not header and not listing and (len(filled) == 1 or _is_header(row)):
            header = cells if len(filled) > 1 else []
            yield f"{' | '.join(filled)}\n"
            continue
        listing = True
        yield "- " + "; ".join(_named_cell(header, column, cell) for column, cell in enumerate(cells) if cell)


def _filled_rows(sheet: Any) -> Iterator[tuple[Any, ...]]:
    """The rows that hold anything; a sheet that claims more rows than Excel has is refused."""
    sheet.reset_dimensions()
    for number, row in enumerate(sheet.iter_rows(values_only=True)):
        if number > EXCEL_ROWS:
            raise UnreadableDocument(f"The sheet {sheet.title!r} claims more than {EXCEL_ROWS:,} rows.")
        if any(value is not None and value != "" for value in row):
            yield row


def _is_header(row: tuple[Any, ...]) -> bool:
    names = [value for value in row if value is not None and value != ""]
    return len(names) > 1 and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def _named_cell(header: list[str], column: int, cell: str) -> str:
    name = header[column] if column < len(header) else ""
    return f"{name}: {cell}" if name else cell


def _cell_text(value: Any) -> str:
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else " ".join(str(value).split())


# --- EPUB -------------------------------------------------------------------------------------------------------------


def _read_epub(data: bytes, name: str) -> Document:
    with _open_package(data, name) as package:
        root = _epub_root(package)
        elements = _xml_elements(package.read(root))
        paths = [posixpath.normpath(posixpath.join(posixpath.dirname(root), href)) for href in _spine(elements)]
        _refuse_drm(package, paths, name)
        text = "\n\n".join(chapter for path in paths if (chapter := _chapter_markdown(package, path, name)))
    found = {each.tag: each.text for each in reversed(elements)}
    metadata = _set_fields(author=found.get("creator"), created=found.get("date"), language=found.get("language"))
    title = found.get("title", "") or _first_heading(text[:10_000])
    return _document(name, text, "epub", "markdown", "docs", title=title, metadata=metadata)


def _epub_root(package: zipfile.ZipFile) -> str:
    container = _xml_elements(package.read("META-INF/container.xml"))
    return next(each.attributes["full-path"] for each in container if each.tag == "rootfile")


def _spine(elements: list[_Element]) -> Iterator[str]:
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
    listed = _xml_elements(package.read("META-INF/encryption.xml"))
    encrypted = {unquote(each.attributes.get("URI", "")) for each in listed if each.tag == "CipherReference"}
    if encrypted.intersection(chapters):
        raise UnreadableDocument(f"{name} is protected by DRM: its chapters are encrypted.")


def _chapter_markdown(package: zipfile.ZipFile, path: str, name: str) -> str:
    if path not in package.namelist():
        logger.warning("%s lists a chapter that it does not hold: %s", name, path)
        return ""
    data = package.read(path)
    tree = _parse_html(_close_empty(_decode(data, _declared_encoding(data))[0]), name)
    for node in tree.css(_NEVER_TEXT):
        node.decompose()
    return _element_markdown(tree.body) if tree.body else ""


def _close_empty(xhtml: str) -> str:
    """`<title/>` is an empty element in XHTML, but an HTML parser takes what follows for its content."""
    return re.sub(r"<(title|script|style|textarea|iframe|a|div|span|p|td|b|i|em)\b([^<>]*)/>", r"<\1\2></\1>", xhtml)


# --- What is known ----------------------------------------------------------------------------------------------------

_PDF_PASSWORD = 4
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""Old Office files; also the envelope of a .docx, .pptx or .xlsx with a password."""
_DOCTYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be"))
_BOMS = (
    (BOM_UTF8, "utf-8"),
    (BOM_UTF32_LE, "utf-32-le"),
    (BOM_UTF32_BE, "utf-32-be"),
    (BOM_UTF16_LE, "utf-16-le"),
    (BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes(code for code in range(32) if code not in b"\b\t\n\f\r\x1b")
_WESTERN = frozenset(
    "àáâäãåæçèéêëìíîïñòóôöõøùúûüßœÀÁÂÄÃÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÖÕØÙÚÛÜŒ€£§°ºª«»“”‘’„–—…•·©®™¿¡\xa0".encode("cp1252")
)
_PAGE_ENCODINGS = r"utf-8|windows-125\d|cp\d{3,4}|iso-8859-\d+|koi8-[ru]|gb2312|gbk|gb18030|big5|shift_jis|euc-(jp|kr)"

_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_INLINE = frozenset(
    "-text a abbr acronym b bdi bdo big br cite code data del dfn em font i img ins kbd label mark math q rp rt ruby s "
    "samp small span strike strong sub sup time tt u var wbr".split()
)
_SELF_CLOSING = frozenset(
    "area base br col colgroup dd dt embed hr img input li link meta optgroup option p param rp rt source tbody td "
    "tfoot th thead tr track wbr".split()
)
_FORMATTING = frozenset("a b big code em font i nobr s small strike strong tt u".split())
_NEVER_TEXT = (
    "script, style, template, noscript, svg, canvas, iframe, object, dialog, button, input, select, textarea, "
    "a.headerlink, a[aria-hidden=true], span[aria-hidden=true]"
)
_BOILERPLATE = "nav, header, footer, [role=navigation], [role=banner], [role=contentinfo], [role=search]"

_MEDIA = frozenset(
    ".png .jpg .jpeg .gif .bmp .tif .tiff .emf .wmf .wdp .mp3 .mp4 .m4a .wav .avi .mov .wmv .ttf .otf".split()
)
_NO_READER = {
    ".doc": "old Word format",
    ".xls": "old Excel format",
    ".ppt": "old PowerPoint format",
    ".odt": "OpenDocument text",
    ".ods": "OpenDocument spreadsheet",
    ".odp": "OpenDocument slides",
    ".rtf": "Rich Text Format",
    ".mobi": "Kindle book",
    ".azw3": "Kindle book",
    ".svg": "SVG image",
    ".eps": "PostScript",
}
_HINTS = {
    ".doc": "Save it as .docx.",
    ".odt": "Save it as .docx.",
    ".rtf": "Save it as .docx.",
    ".xls": "Save it as .xlsx.",
    ".ods": "Save it as .xlsx.",
    ".ppt": "Save it as .pptx.",
    ".odp": "Save it as .pptx.",
    ".mobi": "Convert it to .epub.",
    ".azw3": "Convert it to .epub.",
}
_MAGIC = (
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"RIFF", "RIFF media"),
    (b"II*\0", "TIFF image"),
    (b"MM\0*", "TIFF image"),
    (b"\0\0\1\0", "icon"),
    (b"%!PS", "PostScript"),
    (b"PK\3\4", "zip archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ", "xz archive"),
    (b"7z\xbc\xaf", "7z archive"),
    (b"(\xb5/\xfd", "zstd archive"),
    (b"Rar!", "RAR archive"),
    (b"\x7fELF", "ELF program"),
    (b"MZ\x90", "Windows program"),
    (b"\xcf\xfa\xed\xfe", "macOS program"),
    (b"\xca\xfe\xba\xbe", "Java class"),
    (b"\0asm", "WebAssembly"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"\x1aE\xdf\xa3", "Matroska video"),
    (b"PAR1", "Parquet table"),
    (b"wOF", "web font"),
    (_OLE, "old Office file"),
)

_LANGUAGE_SUFFIXES = """
assembly .asm .s | batch .bat .cmd | c .c .h | clojure .clj .cljs .cljc .edn | cmake .cmake
cpp .cpp .cc .cxx .hpp .hh .hxx .ino | csharp .cs .csx | css .css .scss .sass .less | cuda .cu .cuh | dart .dart
elixir .ex .exs | elm .elm | erlang .erl .hrl | fortran .f .f90 .f95 | fsharp .fs .fsx | go .go | graphql .graphql .gql
groovy .groovy .gradle | haskell .hs | hcl .tf .hcl | ini .ini .cfg .conf .properties | java .java
javascript .js .mjs .cjs .jsx | julia .jl | kotlin .kt .kts | lisp .lisp .el .scm .rkt | lua .lua | makefile .mk
matlab .m | nim .nim | nix .nix | objective-c .mm | ocaml .ml .mli | pascal .pas | perl .pl .pm | php .php
powershell .ps1 .psm1 | protobuf .proto | python .py .pyi .pyw .pyx | r .r | ruby .rb .rake .gemspec | rust .rs
scala .scala .sc | shell .sh .bash .zsh .fish | solidity .sol | sql .sql | svelte .svelte | swift .swift | toml .toml
typescript .ts .tsx .mts .cts | vb .vb .bas | verilog .v .sv | vhdl .vhd .vhdl | vue .vue | xml .xml .xsd .xsl .plist
yaml .yaml .yml | zig .zig
"""
LANGUAGES = {
    suffix: language
    for language, *suffixes in (
        entry.split() for entry in _LANGUAGE_SUFFIXES.replace("\n", "|").split("|") if entry.strip()
    )
    for suffix in suffixes
}
"""Source-code suffix to the language named in the metadata."""

FORMATS: dict[str, Reader] = {
    **{suffix: _read_code(language) for suffix, language in LANGUAGES.items()},
    **dict.fromkeys((".md", ".markdown", ".mdx", ".mdown", ".mkd", ".qmd", ".rmd"), _read_markdown),
    **dict.fromkeys((".txt", ".text", ".log", ".adoc", ".asciidoc", ".org", ".tex", ".srt", ".vtt"), _read_plain),
    **dict.fromkeys((".rst", ".rest"), _read_rst),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _read_html),
    **dict.fromkeys((".json", ".jsonc", ".json5", ".geojson"), _read_data("json")),
    **dict.fromkeys((".jsonl", ".ndjson"), _read_data("jsonl")),
    **dict.fromkeys((".csv", ".tsv"), _read_data("csv")),
    ".ipynb": _read_notebook,
    ".pdf": _read_pdf,
    **dict.fromkeys((".docx", ".docm"), _read_docx),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx"), _read_pptx),
    **dict.fromkeys((".xlsx", ".xlsm"), _read_xlsx),
    ".epub": _read_epub,
}
"""Lower-case suffix to reader; any other file that looks like text is read as plain text."""

NAMES: dict[str, Reader] = {
    **dict.fromkeys(("dockerfile", "containerfile"), _read_code("dockerfile")),
    **dict.fromkeys(("makefile", "gnumakefile", "justfile"), _read_code("makefile")),
    **dict.fromkeys(("gemfile", "rakefile", "vagrantfile", "brewfile"), _read_code("ruby")),
    **dict.fromkeys(("license", "licence", "copying", "notice", "authors"), _read_plain),
    **dict.fromkeys(("readme", "changelog", "changes", "news", "todo"), _read_plain),
    "jenkinsfile": _read_code("groovy"),
    "cmakelists.txt": _read_code("cmake"),
}
"""Lower-case name of a well-known file to reader; it wins over the suffix."""

_BINARY_READERS = (_read_pdf, _read_docx, _read_pptx, _read_xlsx, _read_epub)
