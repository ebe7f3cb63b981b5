"""Reads the pages of scans and pictures by character recognition, with tesseract where it is installed."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from localmcp.errors import ScannedDocument, UnreadableDocument
from localmcp.malloc_trim import return_freed_memory
from localmcp.readers.document import Document, join_pages, make_document
from localmcp.readers.packages import suffix_of
from localmcp.readers.worker import begin_member

PICTURES = frozenset((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp"))
DOTS_PER_INCH = 200
LONGEST_SIDE = 2600
"""Pixels; larger pages are made smaller. A4 at 200 dots per inch has 2339."""


class PageText(NamedTuple):
    """The recognized text of a page."""

    page: int
    """1-based."""
    text: str
    confidence: float
    """Mean over the words, weighted by their length, 0..1; 1 for a page without text."""


def installed_engine() -> str:
    """Return what recognizes characters here, "" for nothing."""
    return "tesseract" if shutil.which("tesseract") else ""


def is_picture(name: str) -> bool:
    """Return whether a file is a picture of a kind that can be read."""
    return suffix_of(name) in PICTURES


def read_pages(name: str, data: bytes, start: int = 1) -> Iterator[PageText]:
    """Yield the text of each page from `start` (1-based) on.

    Raises:
        UnreadableDocument: the file is damaged.
        ScannedDocument: nothing that recognizes characters is installed.
    """
    if not installed_engine():
        raise ScannedDocument(name, 1, can_be_read=False)
    with closing(_open_pages(name, data)) as pages:
        for page in range(start, pages.count + 1):
            begin_member(f"page {page}")
            yield _page_text(page, _recognize(pages.picture(page)))
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


def _recognize(picture: Any) -> str:
    """Return the table of the words that tesseract sees, in the order in which it reads them."""
    import subprocess  # 8 ms, of which the readers need none

    buffer = io.BytesIO()
    picture.save(buffer, "PNG", dpi=(DOTS_PER_INCH, DOTS_PER_INCH))
    command = ["tesseract", "stdin", "stdout", "-l", _languages(), "tsv"]
    try:
        done = subprocess.run(command, input=buffer.getvalue(), capture_output=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnreadableDocument(f"tesseract failed: {error}"[:300]) from error
    return done.stdout.decode("utf-8", "replace")


@cache
def _languages() -> str:
    """Return the installed languages, at most five: each costs time."""
    import subprocess

    listed = subprocess.run(["tesseract", "--list-langs"], capture_output=True, text=True, timeout=30, check=False)
    names = [name for name in listed.stdout.split("\n")[1:] if name and name not in ("osd", "equ")]
    return "+".join(sorted(names, key=lambda name: name != "eng")[:5]) or "eng"


def _page_text(page: int, table: str) -> PageText:
    """Join the words of each line, and part the blocks of a page by an empty line."""
    blocks: dict[str, dict[tuple[str, ...], list[str]]] = {}
    weight = certain = 0.0
    for row in table.split("\n")[1:]:
        cells = row.split("\t")
        if len(cells) == 12 and cells[0] == "5" and (word := cells[11].strip()):
            blocks.setdefault(cells[2], {}).setdefault(tuple(cells[3:5]), []).append(word)
            weight += len(word)
            certain += len(word) * max(float(cells[10]), 0) / 100
    text = "\n\n".join("\n".join(map(" ".join, lines.values())) for lines in blocks.values())
    return PageText(page, text, certain / weight if weight else 1.0)
