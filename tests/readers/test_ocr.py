"""Scans and pictures are read by whichever engine is installed, page by page, without the network."""

import io
import socket

import pytest
from PIL import Image, ImageDraw, ImageFont

from localmcp.errors import ScannedDocument, UnreadableDocument
from localmcp.readers import ocr
from localmcp.readers.ocr import Line, read_pages, reading_order, scan_document
from localmcp.readers.readers import read_bytes

ENGINES = ["rapidocr", "tesseract"]


def draw(*lines, size=(900, 200)):
    picture = Image.new("RGB", size, "white")
    # Pillow carries this font.
    ImageDraw.Draw(picture).multiline_text((40, 40), "\n".join(lines), font=ImageFont.load_default(40), fill="black")
    return picture


def as_pdf(*pages):
    buffer = io.BytesIO()
    pages[0].save(buffer, "PDF", save_all=True, append_images=pages[1:], resolution=100)
    return buffer.getvalue()


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    """Each engine that is installed here."""
    available = {"rapidocr": ocr.find_spec("rapidocr"), "tesseract": ocr.shutil.which("tesseract")}
    if not available[request.param]:
        pytest.skip(f"{request.param} is not installed")
    monkeypatch.setattr(ocr, "installed_engine", lambda: request.param)

    def refuse(*_arguments, **_options):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    return request.param


def test_a_scan_is_read_page_by_page(engine):
    scan = as_pdf(draw("The boiler code is 4711."), draw("Second page, water pump."))
    first = next(read_pages("scan.pdf", scan))
    [second] = read_pages("scan.pdf", scan, 2)
    assert "4711" in first.text and "water pump" in second.text
    assert first.page == 1 and 0.7 < first.confidence <= 1
    assert second.page == 2
    document = scan_document("scan.pdf", [first, second])
    assert document.page_starts == (0, len(first.text) + 2)
    assert set(document.metadata["ocr"]["pages"]) == {"1", "2"}


def test_pictures_wait_until_they_are_read(engine):
    buffer = io.BytesIO()
    draw("Invoice 2024 total 421").save(buffer, "PNG")
    with pytest.raises(ScannedDocument, match="waits for text recognition: 1 page"):
        read_bytes(buffer.getvalue(), "invoice.png")
    if engine == "tesseract":
        [page] = read_pages("invoice.png", buffer.getvalue())
        assert "421" in page.text


def test_text_on_a_transparent_picture_is_read(engine):
    picture = Image.new("RGBA", (900, 200))
    picture.putalpha(draw("Invoice 2024 total 421").convert("L").point(lambda value: 255 - value))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    [page] = read_pages("invoice.png", buffer.getvalue())
    assert "421" in page.text


def test_damaged_pictures_say_so():
    with pytest.raises(UnreadableDocument, match="damaged"):
        list(read_pages("a.png", b"\x89PNG\r\n\x1a\n\0\0", engine="tesseract"))


def test_columns_are_read_one_after_the_other():
    words = {"left one": (0, 0), "left two": (0, 30), "right one": (500, 0), "right two": (500, 30), "title": (0, -90)}
    lines = [Line(x, y, x + 400, y + 20, text, 1.0) for text, (x, y) in words.items()]
    assert reading_order(lines) == ["title", "", "left one", "left two", "right one", "right two"]


def test_parts_of_one_line_stay_together_though_the_page_is_turned():
    lines = [Line(0, 0, 200, 22, "one", 1.0), Line(190, 8, 400, 30, "line", 1.0), Line(0, 28, 400, 52, "two", 1.0)]
    assert reading_order(lines) == ["one line", "two"]
