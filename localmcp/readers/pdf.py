"""Reads PDF files page by page: their text layer; scans and pictures with tesseract, where it is installed."""

import ctypes
import io
import re
import shutil
from contextlib import closing
from functools import cache
from importlib import import_module
from itertools import islice, pairwise
from math import pi
from typing import Any
from unicodedata import normalize

from localmcp.errors import ScannedDocument, UnreadableDocument
from localmcp.malloc_trim import return_freed_memory
from localmcp.readers.document import Document, iso_date, join_pages, make_document, password_protected, set_fields
from localmcp.readers.packages import suffix_of
from localmcp.wording.spelling import model_vocabulary

_HYPHEN = re.compile("(\\w*)(\xad\n|\u2010\n(?=[a-z\u00df-\u00ff])|[\x02\ufffe])(\\w*)")
"""The end of a line within a word. PDFium has one sign for a hyphen with the line end: `exam\\x02ple`."""

_NO_TITLE = re.compile(
    r"(?i)^(untitled|microsoft \w+ - |powerpoint[ -]pr\S+$|pr\S+ (de )?powerpoint$)"
    r"|\.(docx?|pptx?|xlsx?|od[tps]|tex|dvi|indd|pdf)$"
)


def read_pdf(data: bytes, name: str) -> Document:
    """Return the pages; the bookmarks are the headings. A few damaged pages among good ones are empty.

    ScannedDocument if no page has text, UnreadableDocument if it is damaged or encrypted.
    """
    pdfium, raw = import_module("pypdfium2"), import_module("pypdfium2.raw")
    try:
        with closing(pdfium.PdfDocument(data)) as pdf:
            pdf.init_forms()
            keys = (b"Title", b"Author", b"CreationDate")
            title, author, created = (_read(raw, raw.FPDF_GetMetaText, pdf, key) for key in keys)
            page_texts = [_page_text(pdf, raw, number) for number in range(len(pdf))]
            path: tuple[str, ...] = ()
            bookmarks: list[tuple[int, tuple[str, ...]]] = []
            """The page, from 0, and the path of each one that is in order."""
            for bookmark in islice(pdf.get_toc(), 5000):
                place, name_of_part = bookmark.get_dest(), _read(raw, raw.FPDFBookmark_GetTitle, bookmark)[:200]
                page = place.get_index() if place else None
                if name_of_part and page is not None and (bookmarks[-1][0] if bookmarks else 0) <= page < len(pdf):
                    path = (*path[: bookmark.level], name_of_part)
                    bookmarks.append((page, path))
    except pdfium.PdfiumError as error:
        # PDFium's code for a password.
        if getattr(error, "err_code", None) == 4:
            raise password_protected(name) from error
        raise UnreadableDocument(f"{name} is not a readable PDF: {error}") from error
    pages, damaged = [page or "" for page in page_texts], page_texts.count(None)
    remark = f"{damaged} of its {len(pages)} pages cannot be read"
    if damaged * 2 > len(pages):
        raise UnreadableDocument(f"{name} is damaged: {remark}.")
    if not any(page.strip() for page in pages):
        raise scanned(len(pages))
    text, starts = join_pages(pages)
    # D:20240503101112+02'00', or the day alone.
    moment = re.match(r"(?:D:)?(\d{4})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?", created)
    made = iso_date("{}-{}-{}T{}:{}:{}".format(*moment.groups(""))) if moment else ""
    metadata = set_fields(author=author, created=made)
    fields: dict[str, Any] = {"page_starts": starts, "headings": _headings(bookmarks, text, starts)}
    fields |= {"date": metadata.get("created", ""), "date_from": "document properties"}
    # Some programs name it after themselves or the file.
    fields |= {"title": "" if _NO_TITLE.search(title) else title, "remark": remark if damaged else ""}
    return make_document(name, text, "pdf", "plain", metadata=metadata | {"pages": len(pages)}, **fields)


def _page_text(pdf: Any, raw: Any, number: int) -> str | None:
    try:
        page = pdf[number]
        is_annotated, is_turned = raw.FPDFPage_GetAnnotCount(page) > 0, page.get_rotation() != 0
        if is_annotated:
            # What was filled in or typed onto the page becomes a part of it.
            raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY)
        if is_turned:
            # PDFium mixes the lines of a page that is to be turned.
            page.set_rotation(0)
        if is_annotated or is_turned:
            page.close()
            page = pdf[number]
        with closing(page), closing(page.get_textpage()) as layer:
            text: str = layer.get_text_range()
            for match in re.finditer("[\u0622\u0623\u0625\u0627]\u0644", text):
                # Lam before alef where one sign is both: PDFium turns them around with the line.
                at = match.start()
                if _box(raw, layer, at) == _box(raw, layer, at + 1):
                    text = f"{text[:at]}\u0644{match[0][0]}{text[at + 2 :]}"
            if any(raw.FPDFText_GetCharAngle(layer, at) > 0 for at in (0, len(text) // 2)):
                text = _with_gaps(raw, layer, text)
            elif re.search("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]\r\n", text):
                text = _with_parts_in_order(raw, layer, text)
            else:
                text = _with_rows_whole(raw, layer, text)
                text = _columns(layer, text) or text
    except import_module("pypdfium2").PdfiumError:
        return None
    # Ligatures, and the forms that Arabic letters have within a word.
    shapes = re.compile("[\ufb00-\ufdff\ufe70-\ufefc]+")
    text = shapes.sub(lambda match: normalize("NFKC", match[0]), text.replace("\r\n", "\n"))
    # PDFium moves the space behind a Latin word to its other end.
    text = re.sub("(?<=[A-Za-z])(?=[\u0621-\u064a])", " ", text)
    return _HYPHEN.sub(_without_hyphen, text)


def _box(raw: Any, layer: Any, at: int) -> tuple[float, float, float, float]:
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
        is_gap = pieces and sign.isalnum() and pieces[-1].isalnum() and start - last_end > 0.25 * (end - start)
        pieces += [" ", sign] if is_gap else [sign]
        last_end = end
    return "".join(pieces)


def _with_rows_whole(raw: Any, layer: Any, text: str) -> str:
    """Return a text whose rows go on behind one sign that is drawn by itself, a raised one, and what follows that.

    PDFium begins a line at each.
    """
    for match in reversed([*re.finditer(r"(?<=\S)\r\n(?: ?(?=\S))", text)]):
        at, after = match.span()
        before, sign = _box(raw, layer, at - 1), _box(raw, layer, after)
        low, high = sorted((before[3] - before[2], sign[3] - sign[2]))
        gap, shared = sign[0] - before[1], min(before[3], sign[3]) - max(before[2], sign[2])
        is_raised = low < 0.85 * high and shared > low / 2 and -0.3 * low <= gap < 0.6 * high
        is_alone = not text[after + 1 : after + 2].strip() and gap >= 0 and abs(sign[2] - before[2]) < 1
        if is_raised or is_alone:
            are_words = gap > 0.15 * high or (text[at - 1].isalnum() and text[after].isalnum())
            text = f"{text[:at]}{' ' if is_alone or are_words or after > at + 2 else ''}{text[after:]}"
    return text


def _columns(layer: Any, text: str) -> str:
    """Return a page of prose in two columns that a program drew row by row, the left one first; "" for any other."""
    boxes = [layer.get_rect(number) for number in range(layer.count_rects())]
    # Left, bottom, right, top in points: of two boxes in one line, the one drawn after the other, with a gap.
    beside = ((one, two) for one, two in pairwise(boxes) if two[0] - one[2] > 8)
    rows = [(one, two) for one, two in beside if abs(one[1] - two[1]) < (one[3] - one[1]) / 2]
    gutter = max((one[2] for one, _ in rows), default=0.0)
    wide = sum(min(one[2] - one[0], two[2] - two[0]) > 150 for one, two in rows)
    if wide < max(8, 0.35 * len(boxes)) or any(two[0] <= gutter for _, two in rows):
        return ""
    lines, right = list[str](), list[str]()
    for box in boxes:
        if box[0] <= gutter < box[2]:
            # A heading above both.
            lines, right = [*lines, *right], []
        (right if box[0] > gutter else lines).append(layer.get_text_bounded(*box).strip())
    lines += right
    # Most lines of prose go on from the one above; cells of a table begin with capitals and numbers.
    is_prose = sum(line[:1].islower() for line in lines) > 0.4 * len(lines)
    is_whole = len("".join(text.split())) == len("".join("".join(lines).split()))
    return "\r\n".join(lines).replace("-\r\n", "\x02") if is_prose and is_whole else ""


def _with_parts_in_order(raw: Any, layer: Any, text: str) -> str:
    """Return Hebrew or Arabic whose signs a program drew one by one, each a line from left to right for PDFium."""
    lines: list[str] = []
    at, part, end, baseline = 0, "", 0.0, 0.0
    for following in text.split("\r\n"):
        boxes = [_box(raw, layer, at + place) for place, sign in enumerate(following) if not sign.isspace()]
        y = ctypes.c_double()
        raw.FPDFText_GetCharOrigin(layer, at, ctypes.c_double(), y)
        # Points to the part before: up to 12 they are in one column, from 1.5 on they are two words.
        gap = min((box[0] for box in boxes), default=0) - end
        if not (boxes and part and baseline == y.value and -2 < gap < 12):
            lines.append(following)
        elif following.isdigit() and part.isdigit():
            lines[-1] = part + following + lines[-1][len(part) :]
        else:
            lines[-1] = following + (" " if gap > 1.5 else "") + lines[-1]
        at += len(following) + 2
        # Digits of a number go on from left to right.
        part = lines[-1][: len(part) + len(following)] if part.isdigit() and following.isdigit() else following
        end, baseline = max((box[1] for box in boxes), default=0), y.value
    return "\r\n".join(lines)


def _without_hyphen(match: re.Match[str]) -> str:
    """Return the two parts of a word as one, unless only the parts are words: `price-determining`."""
    before, hyphen, after = match.groups()
    if hyphen[0] == "\xad":
        return before + after
    # 20,000 words, mostly English. Each part of a compound has four letters: `con-tends` and `sub-system` are none.
    words = model_vocabulary()
    whole, parts = f"{before}{after}".lower(), (before.lower(), after.lower())
    are_words = min(map(len, parts)) >= 4 and all(part in words for part in parts)
    is_compound = whole not in words and (len(before) == 1 or are_words)
    return f"{before}-{after}" if is_compound or not after[:1].islower() else before + after


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


def _read(raw: Any, read: Any, *place: Any) -> str:
    """Return the text that a function of PDFium writes as UTF-16, on one line."""
    buffer = ctypes.create_string_buffer(read(*place, None, 0))
    read(*place, ctypes.cast(buffer, ctypes.POINTER(ctypes.c_ushort)), len(buffer))
    return " ".join(buffer.raw.decode("utf-16-le", errors="ignore").replace("\0", "").split())


# ---------------------------------------------------------------- scans and pictures

PICTURES = frozenset((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp"))
DOTS_PER_INCH = 200
LONGEST_SIDE = 2600
"""Pixels; larger pages are made smaller. A4 at 200 dots per inch has 2339."""


def installed_engine() -> str:
    """Return what recognizes characters here, "" for nothing."""
    return "tesseract" if shutil.which("tesseract") else ""


def scanned(pages: int) -> ScannedDocument:
    """Return the error for a file of pictures, which is read when everything else is done."""
    if installed_engine():
        counted = "1 page" if pages == 1 else f"{pages:,} pages"
        return ScannedDocument(f"waits for text recognition: {counted}", pages)
    hint = "Install tesseract, which recognizes text, then run: localmcp refresh"
    # The same for all of them: they are counted by their reason.
    return ScannedDocument("no text layer, probably scanned.", pages, hint=hint)


def read_picture(data: bytes, name: str) -> Document:
    """Raise ScannedDocument for a picture: its text is recognized when everything else is done."""
    source, count = _open_pages(data)
    with closing(source):
        raise scanned(count)


def read_scan(data: bytes, name: str, digest: str = "") -> Document:
    """Return the document in the text that is recognized on the pages of a PDF or a picture.

    Its metadata names the pages with their confidence, and the digest, by which the same scan is known again.

    ScannedDocument if there is no text, or nothing that recognizes it; UnreadableDocument if the file is damaged, or
    the program fails on each page.
    """
    texts: list[str] = []
    confidences: dict[str, float] = {}
    failure = None
    source, count = _open_pages(data)
    with closing(source):
        if not installed_engine():
            raise scanned(count)
        for page in range(count):
            text, confidence = "", 0.0
            try:
                text, confidence = _recognize(_picture(source, page, is_pdf=data.startswith(b"%PDF-")))
            except UnreadableDocument as error:
                failure = error
            # Below it is a picture, in whose shapes letters were seen.
            texts.append(text if confidence >= 0.6 else "")
            if texts[-1]:
                confidences[str(page + 1)] = round(confidence, 3)
            # Else each page adds 50 to 100 MB that hold nothing.
            return_freed_memory()
    if not confidences:
        raise failure or ScannedDocument(f"no text was recognized on its {count} pages")
    joined, starts = join_pages(texts)
    kind = suffix_of(name).lstrip(".") or "scan"
    metadata = {"pages": count, "ocr": {"engine": installed_engine(), "pages": confidences, "of": digest}}
    return make_document(name, joined, kind, "plain", metadata=metadata, page_starts=starts)


def _open_pages(data: bytes) -> tuple[Any, int]:
    if data.startswith(b"%PDF-"):
        pdf = import_module("pypdfium2").PdfDocument(data)
        return pdf, len(pdf)
    picture = import_module("PIL.Image").open(io.BytesIO(data))
    return picture, getattr(picture, "n_frames", 1)


def _picture(source: Any, page: int, *, is_pdf: bool) -> Any:
    if is_pdf:
        with closing(source[page]) as sheet:
            scale = min(DOTS_PER_INCH / 72, LONGEST_SIDE / max(*sheet.get_size(), 1))
            return sheet.render(scale=scale).to_pil().convert("RGB")
    source.seek(page)
    picture = import_module("PIL.ImageOps").exif_transpose(source)
    if picture.has_transparency_data:
        # What is transparent may be black, as the text is.
        layer, picture = picture.convert("RGBA"), import_module("PIL.Image").new("RGB", picture.size, "white")
        picture.paste(layer, mask=layer)
    picture = picture.convert("RGB")
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    return picture


@cache
def _installed_languages() -> str:
    import subprocess

    listed = subprocess.run(["tesseract", "--list-langs"], capture_output=True, text=True, timeout=30, check=False)
    # At most five: each costs time.
    names = [name for name in listed.stdout.split("\n")[1:] if name and name not in ("osd", "equ")]
    return "+".join(sorted(names, key=lambda name: name != "eng")[:5]) or "eng"


def _recognize(picture: Any) -> tuple[str, float]:
    """Return the text of a page, its blocks parted by an empty line, and how sure it is, weighted by length: 0..1."""
    import subprocess  # 8 ms, of which the readers need none

    buffer = io.BytesIO()
    picture.save(buffer, "PNG", dpi=(DOTS_PER_INCH, DOTS_PER_INCH))
    try:
        command = ["tesseract", "stdin", "stdout", "-l", _installed_languages(), "tsv"]
        done = subprocess.run(command, input=buffer.getvalue(), capture_output=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnreadableDocument(f"tesseract failed: {error}"[:300]) from error
    blocks: dict[str, dict[tuple[str, ...], list[str]]] = {}
    weight = certain = 0.0
    for row in done.stdout.decode("utf-8", "replace").split("\n")[1:]:
        cells = row.split("\t")
        if len(cells) == 12 and cells[0] == "5" and (word := cells[11].strip()):
            blocks.setdefault(cells[2], {}).setdefault(tuple(cells[3:5]), []).append(word)
            weight += len(word)
            certain += len(word) * max(float(cells[10]), 0) / 100
    text = "\n\n".join("\n".join(map(" ".join, lines.values())) for lines in blocks.values())
    return text, certain / weight if weight else 1.0
