"""Reads the text layer of PDF files, page by page."""

import ctypes
import json
import re
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from importlib import import_module
from itertools import islice, pairwise
from math import pi
from typing import Any
from unicodedata import normalize

from localmcp.config import packaged_data
from localmcp.errors import UnreadableDocument
from localmcp.readers.document import (
    Document,
    iso_date,
    join_pages,
    make_document,
    one_line,
    password_protected,
    set_fields,
)
from localmcp.readers.ocr import scanned

_PASSWORD = 4
"""PDFium's code of that error."""
MOST_BOOKMARKS = 5000

LEAST_GAP = 0.25
"""Share of a letter's width from which two letters are apart."""
LEAST_PART = 4
"""Letters of each part of a compound: `con-tends` and `sub-system` are none."""
LEAST_SPACE, LARGEST_SPACE = 1.5, 12
"""Points between two signs from which they are two words, and up to which they are in one column."""
_HYPHEN = re.compile("(\\w*)(\xad\n|\u2010\n(?=[a-z\u00df-\u00ff])|[\x02\ufffe])(\\w*)")
"""The end of a line within a word. PDFium has one sign for a hyphen with the line end: `exam\\x02ple`."""
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]\r\n")
_SHAPES_OF_LETTERS = re.compile("[\ufb00-\ufdff\ufe70-\ufefc]+")
"""Ligatures, and the forms that Arabic letters have within a word."""
_NAMED_BY_PROGRAM = re.compile(r"^(untitled|microsoft \w+ - )|\.(docx?|pptx?|tex|dvi|indd|pdf)$", re.I)


def read_pdf(data: bytes, name: str) -> Document:
    """Return the pages; the bookmarks are the headings. A few damaged pages among good ones are empty.

    Raises:
        ScannedDocument: no page has text.
        UnreadableDocument: it is damaged or encrypted.
    """
    pdfium, raw = import_module("pypdfium2"), import_module("pypdfium2.raw")
    try:
        with closing(pdfium.PdfDocument(data)) as pdf:
            pdf.init_forms()
            keys = (b"Title", b"Author", b"CreationDate")
            title, author, created = (_read(raw, raw.FPDF_GetMetaText, pdf, key) for key in keys)
            found = [_page_text(pdf, raw, number) for number in range(len(pdf))]
            bookmarks = list(_bookmarks(pdf, raw))
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) == _PASSWORD:
            raise password_protected(name) from error
        raise UnreadableDocument(f"{name} is not a readable PDF: {error}") from error
    pages, damaged = [page or "" for page in found], found.count(None)
    said = f"{damaged} of its {len(pages)} pages cannot be read"
    if damaged * 2 > len(pages):
        raise UnreadableDocument(f"{name} is damaged: {said}.")
    if not any(page.strip() for page in pages):
        raise scanned(name, len(pages))
    text, starts = join_pages(pages)
    metadata = set_fields(author=author, created=_pdf_date(created))
    return make_document(
        name,
        text,
        "pdf",
        "plain",
        title="" if _NAMED_BY_PROGRAM.search(title) else title,
        metadata=metadata | {"pages": len(pages)},
        page_starts=starts,
        headings=_headings(bookmarks, text, starts),
        date=metadata.get("created", ""),
        date_from="document properties",
        remark=said if damaged else "",
    )


def _page_text(pdf: Any, raw: Any, number: int) -> str | None:
    try:
        page = pdf[number]
        is_annotated, is_turned = raw.FPDFPage_GetAnnotCount(page) > 0, page.get_rotation() != 0
        if is_annotated:
            # What was filled in or typed onto the page becomes a part of it.
            page.flatten()
        if is_turned:
            # PDFium mixes the lines of a page that is to be turned.
            page.set_rotation(0)
        if is_annotated or is_turned:
            page.close()
            page = pdf[number]
        with closing(page), closing(page.get_textpage()) as layer:
            text: str = layer.get_text_range()
            if any(raw.FPDFText_GetCharAngle(layer, at) > 0 for at in (0, len(text) // 2)):
                text = _with_gaps(raw, layer, text)
            if "\u0627\u0644" in text:
                text = _with_ligatures(raw, layer, text)
            if _RIGHT_TO_LEFT.search(text):
                text = _with_parts_in_order(raw, layer, text)
    except import_module("pypdfium2").PdfiumError:
        return None
    text = _SHAPES_OF_LETTERS.sub(lambda match: normalize("NFKC", match[0]), text.replace("\r\n", "\n"))
    return _HYPHEN.sub(_without_hyphen, text)


def _box(raw: Any, layer: Any, at: int) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top of the room that a character takes."""
    box = raw.FS_RECTF()
    raw.FPDFText_GetLooseCharBox(layer, at, box)
    return box.left, box.right, box.bottom, box.top


def _with_gaps(raw: Any, layer: Any, text: str) -> str:
    """Return a text that is written upwards or downwards with a space in each gap, which PDFium only sees sideways."""
    pieces: list[str] = []
    last_end = 0.0
    for at, sign in enumerate(text):
        _, _, bottom, top = _box(raw, layer, at)
        upwards = raw.FPDFText_GetCharAngle(layer, at) > pi
        start, end = (bottom, top) if upwards else (-top, -bottom)
        is_gap = pieces and sign.isalnum() and pieces[-1].isalnum() and start - last_end > LEAST_GAP * (end - start)
        pieces += [" ", sign] if is_gap else [sign]
        last_end = end
    return "".join(pieces)


def _with_ligatures(raw: Any, layer: Any, text: str) -> str:
    """Return Arabic with lam before alef where one sign is both: PDFium turns them around with the line."""
    signs = list(text)
    for match in re.finditer("\u0627\u0644", text):
        at = match.start()
        if _box(raw, layer, at) == _box(raw, layer, at + 1):
            signs[at : at + 2] = "\u0644\u0627"
    return "".join(signs)


def _with_parts_in_order(raw: Any, layer: Any, text: str) -> str:
    """Return Hebrew or Arabic whose signs a program drew one by one, each a line from left to right for PDFium."""
    lines: list[list[tuple[str, float, float, float]]] = []
    """Parts (text, left, right, bottom) of each printed line."""
    at = 0
    for line in text.split("\r\n"):
        boxes = [_box(raw, layer, at + place) for place, sign in enumerate(line) if not sign.isspace()]
        y = ctypes.c_double()
        raw.FPDFText_GetCharOrigin(layer, at, ctypes.c_double(), y)
        left, right = min((box[0] for box in boxes), default=0), max((box[1] for box in boxes), default=0)
        before = lines[-1][-1] if lines else ("", 0, 0, 0)
        goes_on = boxes and before[0] and before[3] == y.value and -2 < left - before[2] < LARGEST_SPACE
        if goes_on and line.isdigit() and before[0].isdigit():
            lines[-1][-1] = (before[0] + line, before[1], right, y.value)
        elif goes_on:
            lines[-1].append((line, left, right, y.value))
        else:
            lines.append([(line, left, right, y.value)])
        at += len(line) + 2
    written: list[str] = []
    for parts in lines:
        words = parts[-1][0]
        for (_, begin, _, _), (part, _, end, _) in pairwise(reversed(parts)):
            words += (" " if begin - end > LEAST_SPACE else "") + part
        written.append(words)
    return "\r\n".join(written)


def _without_hyphen(match: re.Match[str]) -> str:
    """Return the two parts of a word as one, unless only the parts are words: `price-determining`."""
    before, hyphen, after = match.groups()
    if hyphen[0] == "\xad":
        return before + after
    words = _known_words()
    whole, parts = f"{before}{after}".lower(), (before.lower(), after.lower())
    are_words = min(map(len, parts)) >= LEAST_PART and words.issuperset(parts)
    is_compound = whole not in words and (len(before) == 1 or are_words)
    return f"{before}-{after}" if is_compound or not after[:1].islower() else before + after


@cache
def _known_words() -> frozenset[str]:
    """Return 20,000 words, mostly English: those that the tokenizer of the default model has whole."""
    pieces = json.loads((packaged_data() / "tokenizer.json").read_bytes())["model"]["vocab"]
    return frozenset(piece for piece in pieces if piece.isalpha())


def _bookmarks(pdf: Any, raw: Any) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the page, from 0, and the path of each bookmark that is in order."""
    path: tuple[str, ...] = ()
    last = 0
    for bookmark in islice(pdf.get_toc(), MOST_BOOKMARKS):
        place, title = bookmark.get_dest(), one_line(_read(raw, raw.FPDFBookmark_GetTitle, bookmark))
        page = place.get_index() if place else None
        if title and page is not None and last <= page < len(pdf):
            path, last = (*path[: bookmark.level], title), page
            yield page, path


def _headings(
    bookmarks: list[tuple[int, tuple[str, ...]]], text: str, starts: tuple[int, ...]
) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return where the section of each bookmark begins: at its title on that page, else with the page."""
    sections: list[tuple[int, tuple[str, ...]]] = []
    end = 0
    for page, path in bookmarks:
        begin, stop = max(starts[page], end), (*starts, len(text))[page + 1]
        words = r"\s+".join(map(re.escape, path[-1].split()))
        # "2.1 Names", "Chapter 2: Names", and not "Many names".
        line = rf"^(?:\w{{1,20}}\b)?(?:\d|[^\w\n]){{0,12}}{words}[ ]*$"
        title = re.compile(line, re.M | re.I).search(text, begin, stop)
        begin = title.start() if title else begin
        # The number of a page or the name of the book above a heading is no section.
        if end <= starts[page] and text.count("\n", starts[page], begin) == 1:
            begin = starts[page]
        if sections and not text[end:begin].strip():
            begin = sections.pop()[0]
        sections.append((begin, path))
        end = title.end() if title else begin
    return tuple(sections)


def _pdf_date(value: str) -> str:
    """Return `D:20240503101112+02'00'` as ISO 8601."""
    match = re.match(r"(?:D:)?(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?", value)
    day, clock = (match.groups()[:3], match.groups()[3:]) if match else ((), ())
    return iso_date("-".join(day) + (f"T{':'.join(clock)}" if all(clock) else ""))


def _read(raw: Any, read: Any, *place: Any) -> str:
    """Return the text that a function of PDFium writes as UTF-16, on one line."""
    buffer = ctypes.create_string_buffer(read(*place, None, 0))
    read(*place, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), len(buffer))
    return " ".join(buffer.raw.decode("utf-16-le", errors="ignore").rstrip("\0").split())
