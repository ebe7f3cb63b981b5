"""What else people keep: slides and sheets of LibreOffice, saved pages, talk, notes, archives."""

from __future__ import annotations

import gzip
import io
import json
import plistlib
from pathlib import Path

import pytest
from made_files import make_odp, make_ods, make_odt, make_tar, make_zip

from localmcp.errors import UnreadableDocument
from localmcp.readers.chunking import split
from localmcp.readers.document import Document
from localmcp.readers.outline import read_outline
from localmcp.readers.packages import MOST_UNPACKED, read_archive
from localmcp.readers.readers import read_bytes, read_documents


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (make_odt, "# Guida\n\nIl codice del cancello è 4711.\n\nComment by Ada: da verificare\n\n- uno\n- due"),
        (make_ods, "## Prezzi\n\nVoce | Prezzo\n\n- Voce: Vite; Prezzo: 1.5\n\n## Segreti (hidden)\n\n- margine; 0.25"),
        (make_odp, "## Piano\n\nSi parte a maggio.\n\n## Costi\n\nSono 900 euro."),
    ],
)
def test_files_of_libreoffice_are_read_whole(make, text):
    document = read_bytes(make(), f"a.{make.__name__[-3:]}")
    assert document.text == text
    assert len(document.page_starts) == (2 if make is make_odp else 0)


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
    srt += "3\n12:01:30,500 --> 12:01:33,000\nThe code is 4711.\n"
    for text in (srt, srt.replace("\n", "\r"), srt.replace("2\n", "2 ")):
        read = read_bytes(text.encode(), "a.srt").text
        assert read == "[0:00:01] Hello. How are you?\n\n[12:01:30] The code is 4711."
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
    tex = "\\documentclass{article}\n\\title{Pumps\\\\}\n\n\\section[S]{Sizes}\\label{s} % n\n\\paragraph{It} leaks"
    document = read_bytes(tex.encode(), "a.tex")
    assert document.text.split("\n")[3:] == ["## Sizes", "\\paragraph{It} leaks"] and document.title == "Pumps"


@pytest.mark.parametrize(("name", "make"), [("a.zip", make_zip), ("a.tar.gz", make_tar), ("a.tgz", make_tar)])
def test_archives_are_folders_when_asked(name, make):
    files = {
        "notes/a.md": b"# Note\n\nwords",
        "b.bin": b"\x7fELF\0\0",
        "__MACOSX/c.md": b"x",
        "box.eml": b"Subject: Inside\nFrom: a@example.org\n\nmail words\n",
    }
    note, program, mail = read_all(make(files), name)
    assert (note.title, note.member, note.parent) == ("Note", "notes/a.md", "")
    assert "no reader for .bin" in program.failure and program.member == "b.bin"
    assert (mail.title, mail.member) == ("Inside", "box.eml")
    with pytest.raises(UnreadableDocument):
        read_bytes(make(files), name)


@pytest.mark.parametrize("parts", [{}, {"content.xml": "\x05"}])
def test_encrypted_libreoffice_files_say_so(parts):
    entry = '<file-entry full-path="content.xml"><encryption-data/></file-entry>'
    data = make_zip({"META-INF/manifest.xml": f"<manifest>{entry}</manifest>", **parts})
    for name in ("a.odt", "a.ods", "a.odp"):
        with pytest.raises(UnreadableDocument, match="password-protected"):
            read_bytes(data, name)


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


@pytest.mark.parametrize(
    ("files", "size", "max_bytes"),
    [(MOST_UNPACKED + 3, 1_000, 1_000), (15, 900_000, 1_000_000), (1, 30_000_000, 50_000_000)],
    ids=["as a whole", "a thousand times its size", "one file"],
)
def test_an_archive_that_unpacks_to_too_much_is_given_up_early(files, size, max_bytes):
    packed, unpacked = make_zip({f"{number}.txt": b"a" * size for number in range(files)}), []

    def count(file, name):
        unpacked.append(len(file.read()))
        yield from ()

    with pytest.raises(UnreadableDocument, match="holds too much"):
        list(read_archive(io.BytesIO(packed), "a.zip", count, max_bytes=max_bytes))
    assert sum(unpacked) <= max(20_000, 10 * len(packed), 10_000_000)


def chat(*contents):
    mapping, parent = {}, None
    for number, (role, content) in enumerate(contents):
        message = {"author": {"role": role}, "content": content, "create_time": 1714723200.0}
        mapping[str(number)], parent = {"message": message, "parent": parent}, str(number)
    return {"id": "a", "title": "Chat", "current_node": parent, "mapping": mapping}


def test_code_and_speech_of_chatgpt_are_read():
    code = 'print("""\n```\n# no heading\n```\n""")'
    export = [
        chat(
            ("user", {"content_type": "multimodal_text", "parts": [{"asset_pointer": "x"}, {"text": "Read it aloud"}]}),
            ("assistant", {"content_type": "code", "language": "python", "text": code}),
            ("tool", {"content_type": "execution_output", "text": "42"}),
            ("tool", {"content_type": "text", "parts": ["Successfully created text document"]}),
            ("assistant", {"content_type": "text", "parts": ["Done.\n\n# Next"]}),
        )
    ]
    [document] = read_documents(io.BytesIO(json.dumps(export).encode()), "conversations.json")
    assert document.text == (
        f"User (2024-05-03): Read it aloud\n\nAssistant (2024-05-03):\n\n````python\n{code}\n````\n\n"
        "Tool (2024-05-03):\n\n```\n42\n```\n\nAssistant (2024-05-03): Done.\n\n# Next"
    )
    sections, _, _ = read_outline(document.text, document.markup)
    assert [section.path for section in sections] == [(), ("Next",)]


def test_artifacts_and_attachments_of_claude_are_read():
    call = {"type": "tool_use", "name": "artifacts", "input": {"title": "Plan", "content": "Dig on Monday."}}
    attached = {"sender": "human", "text": "Where to?", "content": []}
    attached["attachments"] = [{"file_name": "plan.txt", "extracted_content": "Tarn, two nights."}]
    answer = {"sender": "assistant", "content": [{"type": "text", "text": "Here it is."}, call]}
    export = [{"uuid": "u", "name": "Garden", "chat_messages": [attached, answer]}]
    [document] = read_documents(io.BytesIO(json.dumps(export).encode()), "conversations.json")
    assert document.text == (
        "User: Where to?\n\nAttached plan.txt:\n\nTarn, two nights.\n\nAssistant: Here it is.\n\nPlan\n\nDig on Monday."
    )


# ---------------------------------------------------------------- programs that go their own way

HEAD = b"From: jo@x.example\r\nDate: Mon, 3 Mar 2025 10:00:00 +0100\r\nMIME-Version: 1.0\r\n"
EVENT = (
    "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Dentist\\, upstairs\r\nDTSTART;TZID=Europe/Rome:20250310T090000\r\n"
    "LOCATION:Room 4 of the very long\r\n  corridor\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


def read_all(data: bytes, name: str) -> list[Document]:
    return list(read_documents(io.BytesIO(data), name, archive=True))


def test_a_line_that_begins_with_from_does_not_end_a_mail() -> None:
    mails = b"From a@x Tue Mar  4 10:00:00 2025\n%s\nOne.\n\nFrom here on it rains.\n\n"
    mails += b"From b@x Tue Mar  4 11:00:00 2025\n%s\nTwo.\n"
    documents = read_all(mails % (HEAD, HEAD), "box.mbox")
    assert [document.failure for document in documents] == ["", ""]
    assert documents[0].text.endswith("From here on it rains.")


def test_a_subject_in_bytes_that_no_encoding_was_declared_for_is_read() -> None:
    header = "Content-Disposition: attachment; filename=Preis-€.txt\r\nSubject: Münze für 5 €\r\n\r\nText"
    mail, attached = read_all(HEAD + header.encode("cp1252"), "mail.eml")
    assert (mail.title, attached.title) == ("Münze für 5 €", "Preis €")


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
        "BEGIN:VCARD\r\nN:Okafor;Chidi;;;\r\nFN:Chidi Okafor\r\nitem1.TEL;TYPE=CELL:+44 7700 900123\r\r\n"
        "NOTE:Knows the sandbanks\\, call early\\: late is bad.\r\nPHOTO;ENCODING=b:/9j/4AAQ\r\n  SkZJRg==\r\n"
        "END:VCARD\r\nBEGIN:VCARD\r\nVERSION:2.1\r\n"
        "N;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:M=C3=BCl=\r\nler;J=C3=BCrgen\r\nADR;HOME:;;Hafen 3;Kiel;;24103;\r\n"
        "END:VCARD\r\n"
    )
    assert read_bytes(source.encode(), "people.vcf").text == (
        "## Chidi Okafor\n\n- Phone: +44 7700 900123\n- Note: Knows the sandbanks, call early: late is bad.\n\n"
        "## Jürgen Müller\n\n- Address: Hafen 3, Kiel, 24103"
    )
    assert read_bytes(b"##fileformat=VCFv4.2\n#CHROM\tPOS\n", "genome.vcf").format == "text"


def test_a_password_protects_a_member_only() -> None:
    data = bytearray(make_zip({"a.txt": "Locked.", "b.txt": "Open."}))
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + place] |= 1
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
        "====\nA hive is a box.\n====\n* Wax\n"
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
