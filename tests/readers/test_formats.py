"""What else people keep: slides and sheets of LibreOffice, saved pages, talk, notes, archives."""

import io
import json
import plistlib
import tarfile
import zipfile

import pytest
from made_files import make_odp, make_ods, make_odt, make_pdf

from localmcp.errors import UnreadableDocument
from localmcp.readers.packages import MOST_UNPACKED, read_archive
from localmcp.readers.readers import read_bytes, read_documents


def test_libreoffice_texts_keep_headings_lists_and_comments():
    document = read_bytes(make_odt(), "guida.odt")
    assert document.text == (
        "# Guida\n\nIl codice del cancello è 4711.\n\nComment by Ada: da verificare\n\n- uno\n- due"
    )


def test_libreoffice_sheets_name_their_values_and_say_what_is_hidden():
    document = read_bytes(make_ods(), "a.ods")
    assert document.text == (
        "## Prezzi\n\nVoce | Prezzo\n\n- Voce: Vite; Prezzo: 1.5\n\n## Segreti (hidden)\n\n- margine; 0.25"
    )


def test_libreoffice_slides_are_pages():
    document = read_bytes(make_odp(), "a.odp")
    assert document.text == "## Piano\n\nSi parte a maggio.\n\n## Costi\n\nSono 900 euro."
    assert (len(document.page_starts), document.title) == (2, "Piano")


RTF = rb"""{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\info{\title Piano}{\author Ada}{\creatim\yr2024\mo5\dy3}}
{\pard\outlinelevel0 Titolo\par}\pard Perch\'e9 no \u8364?12 {\b bold}\par
{\pard\ls1 {\listtext\'b7\tab}one\par two\par}
\trowd\intbl A\cell B\cell\row\trowd\intbl 1\cell 2\cell\row\pard after {\*\bkmkstart x}\emdash  end\par}"""


def test_rich_text_is_read_without_its_marks():
    document = read_bytes(RTF, "a.rtf")
    for part in ("Titolo", "Perché no €12 bold", "one", "two", "after — end"):
        assert part in document.text
    assert document.title == "Piano" and "\\" not in document.text


PAGE = "<html><head><title>Fees</title></head><body><p>The fee is 12 €.</p></body></html>"


def test_saved_pages_keep_their_address():
    mhtml = (
        "From: <Saved by Blink>\nSnapshot-Content-Location: https://example.org/fees\nSubject: Fees\n"
        'Date: Fri, 3 May 2024 10:00:00 +0200\nMIME-Version: 1.0\nContent-Type: multipart/related; boundary="b"\n\n'
        "--b\nContent-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n" + PAGE + "\n--b--\n"
    )
    page = read_bytes(mhtml.encode(), "a.mhtml")
    assert (page.text, page.title, page.metadata["url"]) == ("The fee is 12 €.", "Fees", "https://example.org/fees")
    assert (page.date, page.date_from) == ("2024-05-03T10:00:00+02:00", "time of saving")
    main = {"WebResourceData": PAGE.encode("cp1252"), "WebResourceURL": "https://example.org/"}
    archive = {"WebMainResource": main | {"WebResourceTextEncodingName": "windows-1252"}}
    for kind in (plistlib.FMT_BINARY, plistlib.FMT_XML):
        page = read_bytes(plistlib.dumps(archive, fmt=kind), "a.webarchive")
        assert (page.text, page.metadata["url"]) == ("The fee is 12 €.", "https://example.org/")


def test_subtitles_are_paragraphs_with_their_time():
    srt = "1\n00:00:01,000 --> 00:00:03,000\n<i>Hello.</i>\n\n2\n00:00:04,000 --> 00:00:06,000\nHow are you?\n\n"
    srt += "3\n01:01:30,500 --> 01:01:33,000\nThe code is 4711.\n"
    assert read_bytes(srt.encode(), "a.srt").text == "[0:00:01] Hello. How are you?\n\n[1:01:30] The code is 4711."
    vtt = "WEBVTT\n\nNOTE hidden\n\nintro\n00:05.000 --> 00:07.000 align:left\n<v Ada>Welcome all\n"
    assert read_bytes(vtt.encode(), "a.vtt").text == "[0:00:05] Ada: Welcome all"


def test_exported_conversations_are_documents_of_their_own():
    message = {"author": {"role": "user"}, "create_time": 1714723200.0, "content": {"parts": ["Which boiler?"]}}
    answer = {"author": {"role": "assistant"}, "content": {"parts": ["The small one."]}}
    chatgpt = {
        "id": "c1", "title": "Boilers", "create_time": 1714723200.0, "update_time": 1714723260.0, "current_node": "b",
        "mapping": {"a": {"message": message, "parent": None}, "b": {"message": answer, "parent": "a"}},
    }  # fmt: skip
    claude = {
        "uuid": "c2", "name": "Pumps", "created_at": "2024-05-04T10:00:00Z", "updated_at": "2024-05-04T11:00:00Z",
        "chat_messages": [{"sender": "human", "text": "Which pump?", "created_at": "2024-05-04T10:00:00Z"}],
    }  # fmt: skip
    file = io.BytesIO(json.dumps([chatgpt, claude, {"uuid": "c3", "chat_messages": []}]).encode())
    boilers, pumps, empty = read_documents(file, "conversations.json")
    assert boilers.text == "User (2024-05-03): Which boiler?\n\nAssistant: The small one."
    assert (boilers.title, boilers.member, boilers.date) == ("Boilers", "c1", "2024-05-03T08:01:00+00:00")
    assert pumps.text == "User (2024-05-04): Which pump?" and pumps.metadata["speakers"] == "User"
    assert "holds no text" in empty.failure


def test_notes_have_tags_links_and_a_date():
    note = "---\ntags: [home, heating]\ndate: 2024-05-03\n---\n# Boiler\n\nSee [[Pumps|the pump]] #repair `#not`\n"
    document = read_bytes(f"{note}[in this page](#boiler)\n\n[here]: #boiler\n".encode(), "a.md")
    assert document.metadata["tags"] == ["home", "heating", "repair"] and document.metadata["links"] == ["Pumps"]
    assert (document.date, document.date_from) == ("2024-05-03", "front matter")


def test_org_and_tex_become_markdown_line_by_line():
    org = "#+TITLE: House\n#+DATE: <2024-05-03 Fri>\n* TODO Boiler :repair:\n[[https://x.org][the manual]]\n"
    document = read_bytes(org.encode(), "a.org")
    assert document.text.split("\n")[2] == "# TODO Boiler"
    assert (document.title, document.date) == ("House", "2024-05-03")
    tex = "\\documentclass{article}\n\\title{Pumps}\n\\begin{document}\n\\section{Sizes} % note\n"
    document = read_bytes(tex.encode(), "a.tex")
    assert document.text.split("\n")[3] == "## Sizes" and document.title == "Pumps"


def make_archive(name):
    files = {
        "notes/a.md": b"# Note\n\nwords",
        "b.bin": b"\x7fELF\0\0",
        "__MACOSX/c.md": b"x",
        "box.eml": b"Subject: Inside\nFrom: a@example.org\n\nmail words\n",
    }
    buffer = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(buffer, "w") as archive:
            for path, content in files.items():
                archive.writestr(path, content)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for path, content in files.items():
                member = tarfile.TarInfo(path)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tgz"])
def test_archives_are_folders_when_asked(name):
    note, program, mail = read_documents(io.BytesIO(make_archive(name)), name, archive=True)
    assert (note.title, note.member, note.parent) == ("Note", "notes/a.md", "")
    assert "no reader for .bin" in program.failure and program.member == "b.bin"
    assert (mail.title, mail.member) == ("Inside", "box.eml")
    with pytest.raises(UnreadableDocument):
        read_bytes(make_archive(name), name)


@pytest.mark.parametrize("make", [make_odt, make_ods, make_odp])
def test_damaged_and_encrypted_libreoffice_files_say_so(make):
    whole = make()
    with zipfile.ZipFile(io.BytesIO(whole)) as package:
        parts = {part: package.read(part) for part in package.namelist()}
    name = f"a.{make.__name__[-3:]}"
    for content in (b"", b"<x/>", parts["content.xml"][:200]):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as package:
            for part, old in parts.items():
                package.writestr(part, content if part == "content.xml" else old)
        with pytest.raises(UnreadableDocument):
            read_bytes(buffer.getvalue(), name)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as package:
        package.writestr("META-INF/manifest.xml", "<manifest><file-entry><encryption-data/></file-entry></manifest>")
    with pytest.raises(UnreadableDocument, match="password-protected"):
        read_bytes(buffer.getvalue(), name)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.rtf", b"no rtf"),
        ("a.rtf", b"{\\rtf1 }"),
        ("a.rtf", b"{\\rtf1 " + b"{" * 100_000),
        ("a.srt", b"no subtitles here"),
        ("a.webarchive", b"bplist00"),
    ],
)
def test_what_holds_nothing_says_so(name, data):
    with pytest.raises(UnreadableDocument):
        read_bytes(data, name)


def test_a_title_of_a_pdf_that_is_no_unicode_and_a_day_that_no_calendar_has_are_left_out():
    info = "/Title <FEFF0041D8000042> /CreationDate (D:20240230120000)"
    document = read_bytes(make_pdf([["Hello"]], info=info), "a.pdf")
    assert (document.title, document.text, document.date) == ("AB", "Hello", "")


@pytest.mark.parametrize(
    ("files", "size", "max_bytes"),
    [(MOST_UNPACKED + 3, 1_000, 1_000), (15, 900_000, 1_000_000), (1, 30_000_000, 50_000_000)],
    ids=["as a whole", "a thousand times its size", "one file"],
)
def test_an_archive_that_unpacks_to_too_much_is_given_up_early(files, size, max_bytes):
    packed, unpacked = io.BytesIO(), []
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(files):
            archive.writestr(f"{number}.txt", b"a" * size)

    def count(file, name):
        unpacked.append(len(file.read()))
        yield from ()

    with pytest.raises(UnreadableDocument, match="holds too much"):
        list(read_archive(packed, "a.zip", count, max_bytes=max_bytes))
    assert sum(unpacked) <= max(20_000, 10 * len(packed.getvalue()), 10_000_000)
