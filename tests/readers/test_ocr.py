"""Scans and pictures are read by tesseract, page by page, without the network."""

import io
import os
import shutil
import socket

import pytest
from PIL import Image, ImageDraw, ImageFont

from localmcp.errors import ScannedDocument, UnreadableDocument
from localmcp.readers import ocr
from localmcp.readers.ocr import read_pages, scan_document
from localmcp.readers.readers import read_bytes


def draw(*lines, size=(900, 200)):
    picture = Image.new("RGB", size, "white")
    # Pillow carries this font.
    ImageDraw.Draw(picture).multiline_text((40, 40), "\n".join(lines), font=ImageFont.load_default(40), fill="black")
    return picture


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
def test_words_are_joined_to_lines_and_blocks(tmp_path, monkeypatch):
    words = [("1\t1\t1", 90, "The"), ("1\t1\t1", 70, "pump"), ("1\t1\t2", 80, "hums."), ("2\t1\t1", 80, "Next")]
    rows = [f"5\t1\t{place}\t1\t0\t0\t9\t9\t{sure}\t{word}" for place, sure, word in words]
    (tmp_path / "table").write_text("\n".join(["head", *rows]))
    program = tmp_path / "tesseract"
    program.write_text(f'#!/bin/sh\n[ "$1" = --list-langs ] || cat "{tmp_path}/table"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    [page] = read_pages("scan.pdf", as_pdf(draw("The pump")))
    assert page.text == "The pump\nhums.\n\nNext"
    assert page.confidence == pytest.approx((3 * 0.9 + 4 * 0.7 + 9 * 0.8) / 16)


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
    [page] = read_pages("invoice.png", buffer.getvalue())
    assert "421" in page.text


def test_text_on_a_transparent_picture_is_read(engine):
    picture = Image.new("RGBA", (900, 200))
    picture.putalpha(draw("Invoice 2024 total 421").convert("L").point(lambda value: 255 - value))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    [page] = read_pages("invoice.png", buffer.getvalue())
    assert "421" in page.text


def test_damaged_pictures_say_so(monkeypatch):
    monkeypatch.setattr(ocr, "installed_engine", lambda: "tesseract")
    with pytest.raises(UnreadableDocument, match="damaged"):
        list(read_pages("a.png", b"\x89PNG\r\n\x1a\n\0\0"))
