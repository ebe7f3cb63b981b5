"""Files as programs write them that go their own way: every fact in them is read, and nothing else."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path

import pytest
from made_files import make_pdf, make_zip

from localmcp.readers.chunking import split
from localmcp.readers.document import Document
from localmcp.readers.outline import read_outline
from localmcp.readers.readers import read_bytes, read_documents

HEAD = b"From: jo@x.example\r\nDate: Mon, 3 Mar 2025 10:00:00 +0100\r\nMIME-Version: 1.0\r\n"
EVENT = (
    "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Dentist\\, upstairs\r\nDTSTART;TZID=Europe/Rome:20250310T090000\r\n"
    "LOCATION:Room 4 of the very long\r\n  corridor\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


def read_all(data: bytes, name: str) -> list[Document]:
    return list(read_documents(io.BytesIO(data), name, archive=True))


def test_a_line_that_begins_with_from_does_not_end_a_mail() -> None:
    mails = (
        b"From a@x Tue Mar  4 10:00:00 2025\n%s\nOne.\n\nFrom here on it rains.\n\n"
        b"From b@x Tue Mar  4 11:00:00 2025\n%s\nTwo.\n"
    )
    documents = read_all(mails % (HEAD, HEAD), "box.mbox")
    assert [document.failure for document in documents] == ["", ""]
    assert documents[0].text.endswith("From here on it rains.")


def test_a_subject_in_bytes_that_no_encoding_was_declared_for_is_read() -> None:
    [mail] = read_all(HEAD + "Subject: Münze für 5 €\r\n\r\nText".encode("cp1252"), "mail.eml")
    assert mail.title == "Münze für 5 €"


def test_an_invitation_without_other_text_says_what_when_and_where() -> None:
    head = HEAD + b"Subject: Invitation\r\nContent-Type: text/calendar; charset=utf-8; method=REQUEST\r\n\r\n"
    [mail] = read_all(head + EVENT.encode(), "invitation.eml")
    assert mail.text.endswith(
        "## Dentist, upstairs\n\n- From: 2025-03-10 09:00\n- Location: Room 4 of the very long corridor"
    )


def test_a_calendar_is_its_events_and_tasks() -> None:
    alarm = "BEGIN:VALARM\r\nDESCRIPTION:Reminder\r\nEND:VALARM\r\nEND:VEVENT"
    note = "DESCRIPTION:Open C:\\\\new\\nthen call\r\nEND:VTODO"
    task = "BEGIN:VTODO\r\nSUMMARY:Order wood\r\nDUE;VALUE=DATE:20250901\r\nEND:VTODO\r\n"
    source = EVENT.replace("END:VEVENT", alarm).replace("END:VCALENDAR", task + "END:VCALENDAR")
    source = source.replace("END:VTODO", note).replace("BEGIN:VEVENT", "X-WR-CALNAME:Home\\, Kiel\r\nBEGIN:VEVENT")
    document = read_bytes(source.encode(), "home.ics")
    assert document.title == "Home, Kiel"
    assert document.text == (
        "## Dentist, upstairs\n\n- From: 2025-03-10 09:00\n- Location: Room 4 of the very long corridor\n\n"
        "## Order wood\n\n- Due: 2025-09-01\n- Description: Open C:\\new then call"
    )


def test_an_address_book_is_its_people_without_their_pictures() -> None:
    source = (
        "BEGIN:VCARD\r\nVERSION:3.0\r\nN:Okafor;Chidi;;;\r\nFN:Chidi Okafor\r\nitem1.TEL;TYPE=CELL:+44 7700 900123\r\n"
        "NOTE:Knows the sandbanks\\, call early.\\nLate is bad.\r\nPHOTO;ENCODING=b:/9j/4AAQ\r\n  SkZJRg==\r\n"
        "END:VCARD\r\nBEGIN:VCARD\r\nVERSION:2.1\r\n"
        "N;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCl=\r\nler;J=C3=BCrgen\r\nADR;HOME:;;Hafen 3;Kiel;;24103;\r\n"
        "END:VCARD\r\n"
    )
    assert read_bytes(source.encode(), "people.vcf").text == (
        "## Chidi Okafor\n\n- Phone: +44 7700 900123\n- Note: Knows the sandbanks, call early. Late is bad.\n\n"
        "## Jürgen Müller\n\n- Address: Hafen 3, Kiel, 24103"
    )
    assert read_bytes(b"##fileformat=VCFv4.2\n#CHROM\tPOS\n", "genome.vcf").format == "text"


def test_what_was_attached_in_a_conversation_is_read() -> None:
    message = {
        "sender": "human", "text": "Where to?", "content": [],
        "attachments": [{"file_name": "plan.txt", "extracted_content": "Tarn, two nights."}],
    }  # fmt: skip
    export = json.dumps([{"uuid": "1", "name": "Trip", "chat_messages": [message]}]).encode()
    [conversation] = read_all(export, "conversations.json")
    assert conversation.text == "User: Where to?\n\nAttached plan.txt:\n\nTarn, two nights."


@pytest.mark.parametrize("name", ["paper.txt", "paper.md", "paper.docx", "paper"])
def test_a_pdf_is_read_as_one_under_any_name(name: str) -> None:
    assert "sixty degrees" in read_bytes(make_pdf([["sixty degrees"]]), name).text


def test_a_password_protects_a_member_only() -> None:
    data = bytearray(make_zip({"a.txt": "Locked.", "b.txt": "Open."}))
    for signature in (b"PK\x03\x04", b"PK\x01\x02"):
        at = data.index(signature) + (6 if signature == b"PK\x03\x04" else 8)
        data[at] |= 1
    assert zipfile.is_zipfile(io.BytesIO(bytes(data)))
    locked, readable = read_all(bytes(data), "some.zip")
    assert locked.failure == "It is password-protected." and readable.text == "Open."


def test_a_heading_has_no_link_to_itself_and_the_name_of_a_site_is_no_title() -> None:
    page = (
        "<title>File system | Docs</title><header><h1>Docs</h1></header><main>"
        '<h2>File system<span><a class="mark" href="#fs">#</a></span></h2><p>Open a file first.</p>'
        '<h3>Modes <a href="#modes">¶</a></h3><p>Read or write.</p></main>'
    )
    document = read_bytes(page.encode(), "fs.html")
    assert document.text == "## File system\n\nOpen a file first.\n\n### Modes\n\nRead or write."
    assert document.title == "File system | Docs"


def test_what_is_underlined_in_a_printed_listing_is_no_heading() -> None:
    text = "Output:\n\nFiles that were not found:\n-------------------------------\nmfg.c\n\nThe next chapter."
    chunks = split(Document("a", text, "pdf", "plain", "docs", page_starts=(0,)), len)
    assert {chunk.headings for chunk in chunks} == {()}


def test_a_formula_of_a_page_is_one_text() -> None:
    sign = "<mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup>"
    tex = r'<annotation encoding="application/x-tex">E=mc^2</annotation>'
    page = (
        f"<p>So <math>{sign}</math> holds.</p>"
        f"<p>So <math><semantics><mrow>{sign}</mrow>{tex}</semantics></math> holds.</p>"
        f'<p>So <math alttext="E=mc^2">{sign}</math><img aria-hidden="true" alt="E=mc^2" src="e.svg"> holds.</p>'
    )
    text = read_bytes(page.encode(), "a.html").text
    assert text == "So E = m c 2 holds.\n\nSo E=mc^2 holds.\n\nSo E=mc^2 holds."


def test_asciidoc_has_its_headings_and_listings() -> None:
    source = (
        "= Guide to Bees\nAda <ada@example.org>\n\n== Hives\n\n[source,ruby]\n----\n== not a heading\n----\n\n"
        "====\nA hive is a box.\n====\n"
    )
    document = read_bytes(source.encode(), "bees.adoc")
    assert (document.title, document.text.count("\n")) == ("Guide to Bees", source.count("\n"))
    sections, _, _ = read_outline(document.text, document.markup)
    assert [section.path for section in sections] == [("Guide to Bees",), ("Guide to Bees", "Hives")]
    assert "```\n== not a heading\n```" in document.text


def test_a_manual_page_is_read_without_what_typesets_it() -> None:
    source = (
        '.\\" A note\n.de XX\nunseen\n..\n.TH SNOW 1 2024-05-03 "Winter 2"\n'
        ".  LINKSTYLE blue R < >\n.SH NAME\nsnow \\- make it \\fIwhite\\fP\n"
        '.SH\nOPTIONS\n.TP\n.BR \\-d ", " \\-\\-depth =\\fICM\\fR\nHow deep; see\n.BR rain (1).\n.IP \\(bu 2\nOne.\n'
        ".SS Examples\n.nf\n# snow -d 3\n.fi\nIt says \\e.\n.ie n \\{\\\nplain\n.\\}\n.el \\{\\\nprinted\n.\\}\n"
    )
    document = read_bytes(gzip.compress(source.encode()), "snow.1.gz")
    assert (document.title, document.date) == ("snow(1)", "2024-05-03")
    assert [line.rstrip() for line in document.text.split("\n") if line] == (
        ["# snow(1)", "## NAME", "snow - make it white", "## OPTIONS", "-d, --depth=CM", "How deep; see", "rain(1)."]
        + ["•", "One.", "### Examples", "    # snow -d 3", "It says \\.", "plain"]
    )
    assert document.text.count("\n") == source.count("\n")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ('<h1 align="center">\n  <img src="x.png" alt="logo"> Bees &amp; more\n</h1>\n\n## Features\n', "Bees & more"),
        ('<div align="center">\n<h1>Bees</h1>\n</div>', "Bees"),
        ('<h1><img src="x.png"></h1>\n\n# Bees\n', "Bees"),
        ("```html\n<h1>Wasps</h1>\n```\n\n# Bees\n", "Bees"),
    ],
)
def test_a_first_heading_in_html_is_the_title_of_a_readme(text: str, title: str) -> None:
    assert read_bytes(text.encode(), "README.md").title == title


def test_a_title_between_two_rows_may_be_indented() -> None:
    assert read_bytes(b"==========\n Copying\n==========\n\nText.\n", "COPYING.txt").title == "Copying"
    assert read_bytes(b"###########\n# Profile #\n###########\n\nText.\n", "profile.txt").title == "profile"


def test_a_label_above_a_heading_is_in_its_section() -> None:
    text = "One\n===\n\nText.\n\n.. _two:\n\n.. _second:\n\nTwo\n===\n\nMore.\n"
    (first, second), _, _ = read_outline(text, "plain")
    assert text[first.start : first.stop].rstrip().endswith("Text.")
    assert second.path == ("Two",)


def test_colors_and_struck_over_letters_of_a_terminal_are_no_text() -> None:
    log = b"\x1b[1mNROFF\x1b[22m reads \x1b[38;5;2mmacros\x1b[0m.\nN\x08NA\x08AM\x08ME\x08E _\x08o_\x08f\n"
    assert read_bytes(log, "build.log").text == "NROFF reads macros.\nNAME of\n"


@pytest.mark.parametrize(
    "bad",
    ["title: Plan: phase two", "source: @smith", "globs: *.tsx, **/*.ts", 'says: "unclosed', "made: {{date}}", "x: %5"],
)
def test_one_bad_line_of_front_matter_leaves_the_others(bad: str) -> None:
    text = f"---\n{bad}\ndate: 2026-03-04\ntags:\n  - heat\n---\n# Section\n"
    document = read_bytes(text.encode(), "a.md")
    assert document.title == ("Plan: phase two" if bad.startswith("title") else "Section")
    assert (document.date, document.metadata["tags"]) == ("2026-03-04", ["heat"])
    assert bad in document.remark


def test_signs_that_nobody_sees_do_not_cut_words() -> None:
    text = "Der Wasser\u00adschaden wird am Folge\u200btag gemeldet."
    assert read_bytes(text.encode(), "a.md").text == "Der Wasserschaden wird am Folgetag gemeldet."
    assert read_bytes(text.encode(), "a.py").text == text
    assert read_bytes(f"<title>Versicherungs\u00adbedingungen</title><p>{text}".encode(), "a.html").title == (
        "Versicherungsbedingungen"
    )
    [mail] = read_all(HEAD + f"\r\n{text}\r\n\r\n> a quote\r\n".encode(), "a.eml")
    assert "Wasserschaden" in mail.text and mail.text[mail.appendix :].strip() == "> a quote"


def printed(name: str) -> str:
    return read_bytes((Path(__file__).parent / "files" / name).read_bytes(), name).text


def test_a_page_to_be_turned_is_read_line_by_line() -> None:
    text = printed("rotated.pdf")
    assert "requires extraordinary responsibility and interdisciplinary communication throughout" in text
    assert printed("upwards.pdf").splitlines()[1:] == ["first row alpha", "second row beta", "third row gamma"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("compound.pdf", ("price-determining", "well-known", "X-ray", "AB-1234")),
        ("arabic.pdf", ("السلام",)),
        ("arabic-signs.pdf", ("السلام عليكم ورحمة الله. درجة الحرارة اليوم 25 مئوية والرطوبة 60 بالمئة.",)),
    ],
)
def test_words_that_a_pdf_cuts_or_draws_sign_by_sign_are_whole(name: str, parts: tuple[str, ...]) -> None:
    text = printed(name)
    assert all(part in text for part in parts)
