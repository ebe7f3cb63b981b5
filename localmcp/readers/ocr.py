"""Reads the pages of scans and pictures by character recognition, with tesseract where it is installed."""

from __future__ import annotations

import io
import shutil
from contextlib import closing
from importlib import import_module
from typing import Any

from localmcp.errors import ScannedDocument, UnreadableDocument
from localmcp.malloc_trim import return_freed_memory
from localmcp.readers.document import Document, join_pages, make_document
from localmcp.readers.packages import suffix_of

PICTURES = frozenset((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp"))
DOTS_PER_INCH = 200
LONGEST_SIDE = 2600
"""Pixels; larger pages are made smaller. A4 at 200 dots per inch has 2339."""


def installed_engine() -> str:
    """Return what recognizes characters here, "" for nothing."""
    return "tesseract" if shutil.which("tesseract") else ""


def scanned(name: str, pages: int) -> ScannedDocument:
    """Return the error for a file of pictures, which is read when everything else is done."""
    counted = "1 page" if pages == 1 else f"{pages:,} pages"
    if installed_engine():
        return ScannedDocument(f"waits for text recognition: {counted}", pages)
    hint = "Install tesseract, which recognizes text, then run: localmcp refresh"
    return ScannedDocument(f"{name} has no text layer: {counted}, probably scanned.", pages, hint=hint)


def read_picture(data: bytes, name: str) -> Document:
    """Raise ScannedDocument for a picture: its text is recognized when everything else is done."""
    source, count = _open_pages(name, data)
    with closing(source):
        raise scanned(name, count)


def read_scan(data: bytes, name: str, digest: str = "") -> Document:
    """Return the document in the text that is recognized on the pages of a PDF or a picture.

    Its metadata names the pages with their confidence, and the digest, by which the same scan is known again.

    Raises:
        ScannedDocument: there is no text, or nothing that recognizes it.
        UnreadableDocument: the file is damaged, or the program fails on each page.
    """
    texts: list[str] = []
    confidences: dict[str, float] = {}
    failure = None
    source, count = _open_pages(name, data)
    with closing(source):
        if not installed_engine():
            raise scanned(name, count)
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


def _open_pages(name: str, data: bytes) -> tuple[Any, int]:
    """Return an open PDF or picture, and its number of pages."""
    try:
        if data.startswith(b"%PDF-"):
            pdf = import_module("pypdfium2").PdfDocument(data)
            return pdf, len(pdf)
        picture = import_module("PIL.Image").open(io.BytesIO(data))
        return picture, getattr(picture, "n_frames", 1)
    except Exception as error:  # Both libraries raise anything on a broken file.
        raise UnreadableDocument(f"{name} is damaged: {type(error).__name__}.") from error


def _picture(source: Any, page: int, *, is_pdf: bool) -> Any:
    """Return a page, from 0, as an RGB picture of Pillow."""
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


def _recognize(picture: Any) -> tuple[str, float]:
    """Return the text of a page, its blocks parted by an empty line, and how sure it is, weighted by length: 0..1."""
    import subprocess  # 8 ms, of which the readers need none

    buffer = io.BytesIO()
    picture.save(buffer, "PNG", dpi=(DOTS_PER_INCH, DOTS_PER_INCH))
    try:
        listed = subprocess.run(["tesseract", "--list-langs"], capture_output=True, text=True, timeout=30, check=False)
        # At most five languages: each costs time.
        names = [name for name in listed.stdout.split("\n")[1:] if name and name not in ("osd", "equ")]
        languages = "+".join(sorted(names, key=lambda name: name != "eng")[:5]) or "eng"
        command = ["tesseract", "stdin", "stdout", "-l", languages, "tsv"]
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
