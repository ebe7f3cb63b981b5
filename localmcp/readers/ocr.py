"""Reads the pages of scans and pictures by character recognition, with what is installed: rapidocr or tesseract."""

from __future__ import annotations

import io
import logging
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from localmcp.errors import ScannedDocument, Unavailable, UnreadableDocument
from localmcp.malloc_trim import return_freed_memory
from localmcp.readers.document import Document, join_pages, make_document
from localmcp.readers.packages import suffix_of
from localmcp.readers.worker import begin_member

Engine = Literal["rapidocr", "tesseract", ""]

PICTURES = frozenset((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp"))
DOTS_PER_INCH = 200
LONGEST_SIDE = 2600
"""Pixels; larger pages are made smaller. A4 at 200 dots per inch has 2339."""
SEARCHED_SIDE = 1280
"""Pixels of the page on which lines are looked for; they are read from the page itself. With all pixels it took a fifth
more time and a third more memory, and read no more words."""


class PageText(NamedTuple):
    """The recognized text of a page."""

    page: int
    """1-based."""
    text: str
    confidence: float
    """Mean over the lines, weighted by their length, 0..1; 1 for a page without text."""


class Line(NamedTuple):
    """A recognized line and its box in pixels."""

    left: float
    top: float
    right: float
    bottom: float
    text: str
    confidence: float


def installed_engine() -> Engine:
    """Return what can recognize characters here, "" for nothing."""
    if find_spec("rapidocr"):
        return "rapidocr"
    return "tesseract" if shutil.which("tesseract") else ""


def is_picture(name: str) -> bool:
    """Return whether a file is a picture of a kind that can be read."""
    return suffix_of(name) in PICTURES


def read_pages(name: str, data: bytes, start: int | None = None, engine: Engine = "") -> Iterator[PageText]:
    """Yield the text of each page from `start` (1-based) on; in a worker process each has its own limits.

    `engine`: which one reads; the best that is installed by default.

    Raises:
        UnreadableDocument: the file is damaged.
        ScannedDocument: nothing that recognizes characters is installed.
    """
    engine = engine or installed_engine()
    if not engine:
        raise ScannedDocument(name, 1, can_be_read=False)
    recognize = _recognize if engine == "rapidocr" else _run_tesseract
    with closing(_open_pages(name, data)) as pages:
        for page in range(start or 1, pages.count + 1):
            begin_member(f"page {page}")
            yield _page_text(page, recognize(pages.picture(page)))
            # Else each page adds 50 to 100 MB that hold nothing.
            return_freed_memory()


def read_picture(data: bytes, name: str) -> Document:
    """Refuse a picture for now: its text is recognized when everything else is done.

    Raises:
        ScannedDocument: always, unless the file is damaged.
    """
    with closing(_open_pages(name, data)) as pages:
        raise ScannedDocument(name, pages.count, can_be_read=bool(installed_engine()), data=data)


def scan_document(name: str, pages: list[PageText], title: str = "") -> Document:
    """Return the document in the recognized pages, which its metadata names with their confidence."""
    text, starts = join_pages([page.text for page in pages])
    confidence = {str(page.page): round(page.confidence, 3) for page in pages if page.text}
    kind = suffix_of(name).lstrip(".") or "scan"
    metadata = {"pages": len(pages), "ocr": {"engine": installed_engine(), "pages": confidence}}
    return make_document(name, text, kind, "plain", "docs", title=title, metadata=metadata, page_starts=starts)


@dataclass(slots=True)
class _Pages:
    """The pages of a PDF or a picture."""

    source: Any
    count: int
    is_pdf: bool

    def picture(self, page: int) -> Any:
        """Return a page as an RGB picture of Pillow."""
        if self.is_pdf:
            with closing(self.source[page - 1]) as sheet:
                longest = max(*sheet.get_size(), 1)
                scale = min(DOTS_PER_INCH / 72, LONGEST_SIDE / longest)
                return sheet.render(scale=scale).to_pil().convert("RGB")
        self.source.seek(page - 1)
        picture = import_module("PIL.ImageOps").exif_transpose(self.source)
        if picture.has_transparency_data:
            # What is transparent may be black, as the text is.
            layer, picture = picture.convert("RGBA"), import_module("PIL.Image").new("RGB", picture.size, "white")
            picture.paste(layer, mask=layer)
        picture = picture.convert("RGB")
        picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        return picture

    def close(self) -> None:
        self.source.close()


def _open_pages(name: str, data: bytes) -> _Pages:
    try:
        if data.startswith(b"%PDF-"):
            pdf = import_module("pypdfium2").PdfDocument(data)
            return _Pages(pdf, len(pdf), True)
        picture = import_module("PIL.Image").open(io.BytesIO(data))
        return _Pages(picture, getattr(picture, "n_frames", 1), False)
    except Exception as error:  # Both libraries raise anything on a broken file.
        raise UnreadableDocument(f"{name} is damaged: {type(error).__name__}.") from error


def _recognize(picture: Any) -> list[Line]:
    numpy = import_module("numpy")
    # The engine reads as OpenCV does: blue, green, red.
    result = _rapidocr()(numpy.asarray(picture)[:, :, ::-1])
    if result.boxes is None:
        return []
    regions = zip(result.boxes, result.txts, result.scores, strict=True)
    return [
        Line(*map(float, (*box.min(axis=0), *box.max(axis=0))), text=text.strip(), confidence=float(score))
        for box, text, score in regions
        if text.strip()
    ]


@cache
def _rapidocr() -> Any:
    """Return the engine on the models of its wheel; named by their paths, nothing is downloaded."""
    package = import_module("rapidocr")
    folder = Path(package.__file__ or "").parent / "models"
    params: dict[str, Any] = {"Global.log_level": "error", "Global.max_side_len": LONGEST_SIDE}
    params |= {"Det.limit_type": "max", "Det.limit_side_len": SEARCHED_SIDE}
    for task in ("det", "cls", "rec"):
        model = next(folder.glob(f"*_{task}_*.onnx"), None)
        if model is None:
            raise Unavailable(
                f"rapidocr comes without its model ({task}).", hint="Install the version that localmcp[ocr] names."
            )
        params[f"{task.capitalize()}.model_path"] = str(model)
    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    return package.RapidOCR(params=params)


def _run_tesseract(picture: Any) -> list[Line]:
    import subprocess  # 8 ms, of which the readers need none

    buffer = io.BytesIO()
    picture.save(buffer, "PNG", dpi=(DOTS_PER_INCH, DOTS_PER_INCH))
    command = ["tesseract", "stdin", "stdout", "-l", _tesseract_languages(), "tsv"]
    try:
        done = subprocess.run(command, input=buffer.getvalue(), capture_output=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnreadableDocument(f"tesseract failed: {error}"[:300]) from error
    return list(_tesseract_lines(done.stdout.decode("utf-8", "replace")))


@cache
def _tesseract_languages() -> str:
    """Return the installed languages, at most five: each costs time."""
    import subprocess

    listed = subprocess.run(["tesseract", "--list-langs"], capture_output=True, text=True, timeout=30, check=False)
    names = [name for name in listed.stdout.split("\n")[1:] if name and name not in ("osd", "equ")]
    return "+".join(sorted(names, key=lambda name: name != "eng")[:5]) or "eng"


def _tesseract_lines(table: str) -> Iterator[Line]:
    """Join the words of each line, in the order in which tesseract reads them."""
    lines: dict[tuple[str, ...], list[Line]] = {}
    for row in table.split("\n")[1:]:
        cells = row.split("\t")
        if len(cells) == 12 and cells[11].strip() and cells[0] == "5":
            left, top, width, height = map(float, cells[6:10])
            word = Line(left, top, left + width, top + height, cells[11].strip(), max(float(cells[10]), 0) / 100)
            lines.setdefault(tuple(cells[1:5]), []).append(word)
    for number, words in enumerate(lines.values()):
        confidence = sum(word.confidence for word in words) / len(words)
        # One below the other: the order is known already.
        yield Line(0, number, 1, number + 1, " ".join(word.text for word in words), confidence)


def _page_text(page: int, lines: list[Line]) -> PageText:
    weight = sum(len(line.text) for line in lines)
    confidence = sum(len(line.text) * line.confidence for line in lines) / weight if weight else 1.0
    return PageText(page, "\n".join(reading_order(lines)), confidence)


def reading_order(lines: list[Line]) -> list[str]:
    """Return the lines of a page as they are read: column by column, from top to bottom, paragraphs apart."""
    if len(lines) < 2:
        return [line.text for line in lines]
    height = sorted(line.bottom - line.top for line in lines)[len(lines) // 2]
    for low, high, gap in ((1, 3, 0.6 * height), (0, 2, 0.8 * height)):
        bands = _split(lines, low, high, gap)
        if len(bands) > 1:
            separator = [""] if low else []
            return [
                text for number, band in enumerate(bands) for text in separator * bool(number) + reading_order(band)
            ]
    return _rows(lines, height)


def _split(lines: list[Line], low: int, high: int, gap: float) -> list[list[Line]]:
    """Cut where a gap goes through all lines: between rows (low=1, high=3) or between columns (low=0, high=2)."""
    bands: list[list[Line]] = []
    end = 0.0
    for line in sorted(lines, key=lambda line: line[low]):
        if not bands or float(line[low]) - end > gap:
            bands.append([])
            end = float(line[high])
        bands[-1].append(line)
        end = max(end, float(line[high]))
    return bands


def _rows(lines: list[Line], height: float) -> list[str]:
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.top + line.bottom):
        above = rows[-1][0] if rows else None
        if above and line.top + line.bottom - above.top - above.bottom < height:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [" ".join(line.text for line in sorted(row)) for row in rows]
