"""Scans are read when everything else is done, and cited as what they are."""

import io
import os
from email.message import EmailMessage

import pytest
from made_files import make_zip
from PIL import Image, ImageDraw, ImageFont

import localmcp

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a script is no program there")


def draw(words):
    picture = Image.new("RGB", (900, 200), "white")
    ImageDraw.Draw(picture).text((40, 60), words, font=ImageFont.load_default(40), fill="black")
    return picture


def make_scan(path, *pages):
    first, *rest = map(draw, pages)
    buffer = io.BytesIO()
    first.save(buffer, "PDF", save_all=True, append_images=rest, resolution=100)
    path.write_bytes(buffer.getvalue())
    return path


@pytest.fixture
def file(tmp_path, monkeypatch, tesseract):
    """A file beside a program that sees a word on each page of a scan, by the order in which the pages are read."""
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    tesseract(*((f"{number}\t1\t1", 90, word) for number, word in enumerate(("boiler", "code", "4711"), 1)))
    (tmp_path / "home").mkdir()
    return localmcp.open(tmp_path / "home" / "kb.localmcp")


def why(file, path):
    return file.workspace.library.why(path)["entries"][0]


def test_a_fact_on_a_scanned_page_is_found_and_marked(tmp_path, file):
    folder = tmp_path / "scans"
    folder.mkdir()
    scan = make_scan(folder / "boiler.pdf", "First page about nothing.", "The boiler code is 4711.")
    (folder / "note.md").write_text("# Note\n\nNothing here.")
    file.workspace.library.add_paths([folder], wait=False)
    assert why(file, scan)["reason"] == "waits for text recognition: 2 pages"
    assert file.call("get_stats")["scannedPagesWaiting"] == 2
    assert file.workspace.library.read_scans() == 2
    assert why(file, scan)["status"] == "indexed"
    hit = file.call("search", query="boiler code 4711", mode="keyword")["results"][0]
    page = hit["citation"]["startPage"]
    assert (page in (1, 2), hit["citation"]["ocr"], hit["citation"]["confidence"]) == (True, True, 0.9)
    assert hit["citation"]["label"] == f"{scan} p. {page}"
    assert "scannedPagesWaiting" not in file.call("get_stats")
    file.refresh()
    assert (why(file, scan)["status"], file.call("get_stats").get("scannedPagesWaiting")) == ("indexed", None)


def test_pictures_are_read_and_photos_without_words_say_so(tmp_path, file, tesseract):
    draw("Invoice total 421 EUR").save(tmp_path / "invoice.png")
    file.add(tmp_path / "invoice.png")
    assert file.call("search", query="boiler", mode="keyword")["results"][0]["sourceTitle"] == "invoice"
    tesseract()
    Image.new("RGB", (300, 300), "gray").save(tmp_path / "wall.jpg")
    file.add(tmp_path / "wall.jpg")
    entry = why(file, tmp_path / "wall.jpg")
    assert (entry["status"], entry["reason"]) == ("skipped", "no text was recognized on its 1 pages")
    assert "scannedPagesWaiting" not in file.call("get_stats")


def test_scans_in_a_mail_and_in_an_archive_are_read_and_cited_through_it(tmp_path, file, tesseract):
    folder = tmp_path / "post"
    folder.mkdir()
    scan = make_scan(tmp_path / "contract.pdf", "First page.", "The contract number is 8815.").read_bytes()
    mail = EmailMessage()
    mail["From"], mail["Subject"], mail["Message-ID"] = "jo@x.example", "Contract", "<1@x.example>"
    mail.set_content("Please sign.")
    mail.add_attachment(scan, maintype="application", subtype="pdf", filename="contract.pdf")
    (folder / "contract.eml").write_bytes(mail.as_bytes())
    (tmp_path / "scans.zip").write_bytes(
        make_zip({"old/letter.pdf": make_scan(tmp_path / "b.pdf", "Zebra crossing").read_bytes()})
    )
    file.workspace.library.add_paths([folder], wait=False)
    file.workspace.library.add_paths([tmp_path / "scans.zip"], wait=False)
    entry = why(file, folder / "contract.eml")
    assert (entry["status"], entry["reason"]) == ("indexed", "1 scan in it waits for text recognition: 2 pages")
    assert why(file, tmp_path / "scans.zip")["status"] == "skipped"
    os.utime(folder / "contract.eml")
    file.workspace.library.refresh(wait=False)
    assert why(file, folder / "contract.eml")["reason"] == "1 scan in it waits for text recognition: 2 pages"
    assert file.workspace.library.read_scans() == 3

    labels = {
        hit["citation"]["path"]: hit["sourceTitle"]
        for hit in file.call("search", query="boiler code 4711", mode="keyword")["results"]
    }
    assert labels == {f"{folder / 'contract.eml'}": "contract", f"{tmp_path / 'scans.zip'}": "letter"}

    tesseract()  # It would see nothing now.
    with (folder / "contract.eml").open("ab") as changed:
        changed.write(b"\n")
    before = file.call("list_sources")["total"]
    file.workspace.library.refresh()
    assert "scannedPagesWaiting" not in file.call("get_stats"), "a scan that has not changed is not read again"
    assert file.call("list_sources")["total"] == before

    (tmp_path / "scans.zip").unlink()
    file.workspace.library.refresh()
    assert file.call("list_sources")["total"] == before - 1
