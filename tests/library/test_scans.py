"""Scans are read page by page when everything else is done, and cited as what they are."""

import io
import shutil
from email.message import EmailMessage
from pathlib import Path

import pytest
from made_files import make_zip
from PIL import Image, ImageDraw, ImageFont

import localmcp
from localmcp.library import scans
from localmcp.readers import ocr
from localmcp.storage.database import Database, fetch_all


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
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    for module in (ocr, scans):
        monkeypatch.setattr(module, "installed_engine", lambda: "tesseract")
    (tmp_path / "home").mkdir()
    return localmcp.open(tmp_path / "home" / "kb.localmcp")


needs_tesseract = pytest.mark.skipif(not shutil.which("tesseract"), reason="tesseract is not installed")


def why(file, path):
    return file.workspace.library.why(path)["entries"][0]


@needs_tesseract
def test_a_fact_on_a_scanned_page_is_found_and_marked(tmp_path, file):
    folder = tmp_path / "scans"
    folder.mkdir()
    scan = make_scan(folder / "boiler.pdf", "First page about nothing.", "The boiler code is 4711.")
    file.add(folder)
    assert why(file, scan)["status"] == "indexed"
    hit = file.call("search", query="boiler code 4711", mode="keyword")["results"][0]
    citation = hit["citation"]
    assert (citation["startPage"], citation["ocr"]) == (2, True) and 0.6 < citation["confidence"] <= 1
    assert citation["label"] == f"{scan} p. 2"
    assert "scannedPagesWaiting" not in file.call("get_stats")
    file.refresh()
    with file.workspace.database.write() as connection:
        connection.execute("update roots set options = '{}'")  # As an earlier version left it.
    file.workspace.library.refresh(wait=False)
    assert (why(file, scan)["status"], file.call("get_stats").get("scannedPagesWaiting")) == ("indexed", None)


@needs_tesseract
def test_reading_goes_on_at_the_page_where_it_was_stopped(tmp_path, file, monkeypatch):
    scan = make_scan(tmp_path / "long.pdf", "Page one.", "Page two.", "Page three.")
    library = file.workspace.library
    library.add_paths([scan], wait=False)
    assert why(file, scan)["reason"] == "waits for text recognition: 3 pages"
    assert file.call("get_stats")["scannedPagesWaiting"] == 3
    calls = iter([False, True])
    assert library.read_scans(lambda: next(calls)) == 1
    assert file.call("get_stats")["scannedPagesWaiting"] == 2
    assert library.read_scans() == 2
    assert why(file, scan)["status"] == "indexed"
    with file.workspace.database.read() as connection:
        assert fetch_all(connection, "select * from scanned_pages") == []


@needs_tesseract
def test_others_may_write_while_the_reader_of_scans_waits_for_its_turn(tmp_path, file):
    scan = make_scan(tmp_path / "long.pdf", "Page one.")
    file.workspace.library.add_paths([scan], wait=False)
    other = Database(file.workspace.database.path)

    def write():
        with other.write() as connection:
            connection.execute("pragma busy_timeout = 100")
            connection.execute("update state set content = content + 1")
        return False

    assert file.workspace.library.read_scans(write) == 1
    other.close()


@needs_tesseract
def test_pictures_are_read_and_photos_without_words_say_so(tmp_path, file):
    folder = tmp_path / "pictures"
    folder.mkdir()
    draw("Invoice total 421 EUR").save(folder / "invoice.png")
    Image.new("RGB", (300, 300), "gray").save(folder / "wall.jpg")
    file.add(folder)
    assert file.call("search", query="invoice total", mode="keyword")["results"][0]["sourceTitle"] == "invoice"
    assert why(file, folder / "wall.jpg")["reason"] == "no text was recognized on its 1 pages"


def test_without_text_recognition_the_reason_says_what_helps(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    monkeypatch.setattr("localmcp.readers.pdf.installed_engine", lambda: "")
    from localmcp.errors import ScannedDocument
    from localmcp.readers.readers import read_bytes

    scan: Path = make_scan(tmp_path / "a.pdf", "Words")
    with pytest.raises(ScannedDocument, match="Install tesseract"):
        read_bytes(scan.read_bytes(), scan.name)


@needs_tesseract
def test_scans_in_a_mail_and_in_an_archive_are_read_and_cited_through_it(tmp_path, file):
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
    file.add(folder)
    file.add(tmp_path / "scans.zip")

    [hit] = file.call("search", query="contract number 8815", mode="keyword", limit=1)["results"]
    citation = hit["citation"]
    assert (citation["startPage"], citation["ocr"]) == (2, True)
    assert citation["path"] == f"{folder / 'contract.eml'}"
    [hit] = file.call("search", query="zebra crossing", mode="keyword", limit=1)["results"]
    assert (hit["citation"]["path"], hit["sourceTitle"]) == (f"{tmp_path / 'scans.zip'}", "letter")

    with (folder / "contract.eml").open("ab") as changed:
        changed.write(b"\n")
    before = file.call("list_sources")["total"]
    file.workspace.library.refresh()
    assert "scannedPagesWaiting" not in file.call("get_stats"), "a scan that has not changed is not read again"
    assert file.call("list_sources")["total"] == before

    (tmp_path / "scans.zip").unlink()
    file.workspace.library.refresh()
    assert file.call("list_sources")["total"] == before - 1
