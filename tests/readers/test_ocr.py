"""Scans and pictures are read by tesseract, page by page, without the network."""

import hashlib
import io
import os
import shutil
import socket

import pytest
from PIL import Image, ImageDraw, ImageFont

from localmcp.errors import ScannedDocument, UnreadableDocument
from localmcp.readers import pdf
from localmcp.readers.readers import read_bytes


def draw(*lines, size=(900, 200)):
    picture = Image.new("RGB", size, "white")
    # Pillow carries this font.
    ImageDraw.Draw(picture).multiline_text((40, 40), "\n".join(lines), font=ImageFont.load_default(40), fill="black")
    return picture


def as_png(picture):
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def as_pdf(*pages):
    buffer = io.BytesIO()
    pages[0].save(buffer, "PDF", save_all=True, append_images=pages[1:], resolution=100)
    return buffer.getvalue()


@pytest.fixture
def engine(monkeypatch):
    if not shutil.which("tesseract"):
        pytest.skip("tesseract is not installed")

    def refuse(*_arguments, **_options):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.skipif(os.name == "nt", reason="a script is no program there")
def test_words_are_joined_to_lines_and_blocks(tesseract):
    tesseract(("1\t1\t1", 90, "The"), ("1\t1\t1", 70, "pump"), ("1\t1\t2", 80, "hums."), ("2\t1\t1", 80, "Next"))
    document = read_bytes(as_pdf(draw("The pump")), "scan.pdf", recognize=())
    assert document.text == "The pump\nhums.\n\nNext"
    assert document.metadata["ocr"]["pages"] == {"1": round((3 * 0.9 + 4 * 0.7 + 9 * 0.8) / 16, 3)}


@pytest.mark.skipif(os.name == "nt", reason="a script is no program there")
def test_a_page_of_unsure_words_is_a_picture_and_a_scan_that_is_known_is_not_read_again(tesseract):
    tesseract(("1\t1\t1", 30, "iil"))
    scan = as_pdf(draw("wall"))
    with pytest.raises(ScannedDocument, match="no text was recognized on its 1 pages"):
        read_bytes(scan, "scan.pdf", recognize=())
    with pytest.raises(ScannedDocument, match="before"):
        read_bytes(scan, "scan.pdf", recognize=(hashlib.sha256(scan).hexdigest()[:16],))


def test_a_scan_is_read_page_by_page(engine):
    scan = as_pdf(draw("The boiler code is 4711."), draw("Second page, water pump."))
    document = read_bytes(scan, "scan.pdf", recognize=())
    first, second = document.text[: document.page_starts[1]], document.text[document.page_starts[1] :]
    assert "4711" in first and "water pump" in second
    assert set(document.metadata["ocr"]["pages"]) == {"1", "2"}
    assert 0.7 < document.metadata["ocr"]["pages"]["1"] <= 1


def test_pictures_wait_until_they_are_read(engine):
    picture = as_png(draw("Invoice 2024 total 421"))
    with pytest.raises(ScannedDocument, match="waits for text recognition: 1 page"):
        read_bytes(picture, "invoice.png")
    assert "421" in read_bytes(picture, "invoice.png", recognize=()).text


def test_text_on_a_transparent_picture_is_read(engine):
    picture = Image.new("RGBA", (900, 200))
    picture.putalpha(draw("Invoice 2024 total 421").convert("L").point(lambda value: 255 - value))
    assert "421" in read_bytes(as_png(picture), "invoice.png", recognize=()).text


def test_damaged_pictures_say_so(monkeypatch):
    monkeypatch.setattr(pdf, "installed_engine", lambda: "tesseract")
    with pytest.raises(UnreadableDocument, match="damaged"):
        read_bytes(b"\x89PNG\r\n\x1a\n\0\0", "a.png", recognize=())
