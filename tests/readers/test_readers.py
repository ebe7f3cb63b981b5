"""Files of every format become one exact, searchable text, and hostile ones a clear refusal."""

import gzip
import io
import json
import tarfile
import zipfile
from datetime import date
from functools import cache

import docx
import openpyxl
import pptx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_files import PACKAGE, make_bookmarks, make_epub, make_odp, make_ods, make_odt, make_pdf, make_zip, saved
from pptx.util import Inches

from localmcp.errors import ScannedDocument, UnreadableDocument
from localmcp.readers import packages, readers
from localmcp.readers.chunking import split
from localmcp.readers.document import Document
from localmcp.readers.outline import read_outline
from localmcp.readers.readers import choose_reader, read_bytes, read_documents, read_text

# --- Small files ------------------------------------------------------------------------------------------------------


@cache
def make_docx() -> bytes:
    document = docx.Document()
    document.add_paragraph("Hello", style="List Bullet")
    return saved(document)


@cache
def make_xlsx() -> bytes:
    book = openpyxl.Workbook()
    book.active.append(["Bolt", 1.5, date(2024, 5, 3)])
    return saved(book)


@cache
def make_pptx() -> bytes:
    deck = pptx.Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "Quarterly review"
    first.placeholders[1].text_frame.text = "Sales grew"
    nested = first.placeholders[1].text_frame.add_paragraph()
    nested.text, nested.level = "most in Torino", 1
    first.notes_slide.notes_text_frame.text = "Thank the team"
    second = deck.slides.add_slide(deck.slide_layouts[6])
    table = second.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    for number, value in enumerate(("City", "Units", "Torino", "7|8")):
        table.cell(number // 2, number % 2).text = value
    group = second.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "inside a group"
    deck.core_properties.author = "Ada Rossi"
    return saved(deck)


# --- Text formats -----------------------------------------------------------------------------------------------------


def test_markdown_keeps_its_exact_text_and_gives_its_front_matter() -> None:
    text = "---\r\ntitle: Retry policy\r\ntags: [http, io]\r\ndate: 2024-05-03\r\n---\r\n\r\n# Retries\r\n\r\nWait.\r\n"
    document = read_bytes(text.encode(), "retry.md")
    assert document.text == text
    assert document.title == "Retry policy"
    assert document.metadata == {"title": "Retry policy", "tags": ["http", "io"], "date": "2024-05-03"}
    assert (document.format, document.markup, document.source_type) == ("markdown", "markdown", "docs")


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("a.md", "intro\n\n```\n# not this\n```\n\nThe *real* `title`\n====\n", "The real title"),
        ("a.md", "## Only a [linked](x.md) heading ##\n", "Only a linked heading"),
        ("monday.md", "## To do\n\nCall.\n\n### By noon\n\n## Done\n", "monday"),
        ("a.md", "## Contents\n\n# Bees\n\n## Queens\n", "Bees"),
        ("retry-policy_v2.md", "no heading\n", "retry policy v2"),
        ("Guests 0123456789abcdef0123456789abcdef.csv", "a,b\n1,2\n", "Guests"),
        ("report-2024-05-03.txt", "no heading\n", "report 2024-05-03"),
        ("a.rst", ".. note: x\n\n=====\nGuide\n=====\n\nText\n", "Guide"),
        ("a.rst", ":mod:`!email` of ``*.eml``, *old* `ones <x>`_\n" + "=" * 43, "email of *.eml, old ones"),
        ("CHANGES.md", "# Version 8.5.0\n\nNew.\n\n# Version 8.4.12\n\nOld.\n", "CHANGES"),
        ("changes.rst", f"2.7.0 (2026-05-07)\n{'=' * 18}\n\nx\n\n2.6.3 (2026-01-07)\n{'=' * 18}\n", "changes"),
        ("a.md", "# Release 8.5.0\n\n## New in 2026\n", "Release 8.5.0"),
        ("README", "Localmcp\n========\n\nText\n", "Localmcp"),
        ("COPYING.txt", "==========\n Copying\n==========\n\nText.\n", "Copying"),
        ("profile.txt", "###########\n# Profile #\n###########\n\nText.\n", "profile"),
        ("README.md", '<h1 align="center">\n <img src="x" alt="logo"> Bees &amp; more\n</h1>\n\n## New', "Bees & more"),
        ("README.md", '<div align="center">\n<h1>Bees</h1>\n</div>', "Bees"),
        ("README.md", '<h1><img src="x.png"></h1>\n\n# Bees\n', "Bees"),
        ("README.md", "```html\n<h1>Wasps</h1>\n```\n\n# Bees\n", "Bees"),
        ("a.md", "# " + "word " * 50, ("word " * 40).strip()),
        ("retry_policy.py", "x = 1\n", "retry_policy.py"),
        ("docs/my_notes.txt", "x\n", "my notes"),
        ("C:\\docs\\my_notes.txt", "x\n", "my notes"),
    ],
)
def test_the_title_is_the_first_heading_or_else_the_name(name: str, text: str, title: str) -> None:
    assert read_bytes(text.encode(), name).title == title


@pytest.mark.parametrize("date", ["2026-02-31", "0000-00-00", "2026-11-26 25:61:00", "2026-11-26 10:00:00+99:99"])
def test_a_date_that_no_calendar_has_costs_the_other_values_nothing(date: str) -> None:
    document = read_bytes(f"---\ndate: {date}\ntitle: Bees\nyear: 2026\n---\nText.\n".encode(), "note.md")
    assert document.title == "Bees"
    assert document.metadata["year"] == 2026 and document.metadata["date"] == date


ODD_FRONT = ["a: [", "x: &a [1]\ny: [*a, *a]", "- a list", "a: !!int ''", "{" * 60_000, "- " * 30_000, "? " * 30_000]


@pytest.mark.parametrize("front", [*ODD_FRONT, "n: .nan\nbig: 123456789012345678901234567890", "x: 0x" + "f" * 9000])
def test_odd_front_matter_stays_text_and_its_values_stay_json(front: str) -> None:
    document = read_bytes(f"---\n{front}\n---\n# Body\n".encode(), "a.md")
    assert front in document.text
    json.dumps(document.metadata, allow_nan=False)


POR = "Não põe o avião à disposição; até à manhã só há pães e rosé."
EST = "Pärast lõunat öeldi, et töö on tehtud õigesti ja rahulikult ära."
RUS = "Привет, как дела? Это обычный русский текст про погоду."
ITALIAN = "Perché la città è così? Più libertà, e l’università costò 5 €."


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        (ITALIAN.encode(), ITALIAN, None),
        (b"\xef\xbb\xbf" + ITALIAN.encode(), ITALIAN, None),
        (ITALIAN.encode("cp1252"), ITALIAN, "cp1252"),
        ("caffè".encode("latin-1"), "caffè", "cp1252"),
        (ITALIAN.encode("utf-16"), ITALIAN, "utf-16-le"),
        (b"\xfe\xff" + ITALIAN.encode("utf-16-be"), ITALIAN, "utf-16-be"),
        (ITALIAN.encode("utf-16-le"), ITALIAN, "utf-16-le"),
        (b"\xff\xfe\0\0" + ITALIAN.encode("utf-32-le"), ITALIAN, "utf-32-le"),
        (ITALIAN.encode() + b" \xff", ITALIAN + " \xff", None),
        (POR.encode("cp1252"), POR, "cp1252"),
        (EST.encode("cp1252"), EST, "cp1252"),
        (RUS.encode("cp1251"), RUS, "cp1251"),
    ],
)
def test_text_comes_out_right_in_any_encoding(data: bytes, text: str, encoding: str | None) -> None:
    document = read_bytes(data, "a.txt")
    assert document.text == text
    assert document.metadata.get("encoding") == encoding


@pytest.mark.parametrize("stray", [b"\0", b"\0\n", b"a\0\0"])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_text_with_a_stray_nul_does_not_become_chinese(stray: bytes, encoding: str) -> None:
    text = "Perché la città è così? Più libertà.\n" * 20
    assert text in read_bytes(stray + text.encode(encoding), "a.txt").text


DECLARED = [
    ("gb2312", "总理朱镕基昨天会见了外宾。", "gbk"),
    ("shift_jis", "①株式会社㈱ 髙橋", "cp932"),
    ("euc-kr", "펲시맨 똠방각하 뷁", "cp949"),
    ("big5", "裏面 碁盤 恒生", "cp950"),
    ("utf-8", "La città è così", "cp1252"),
    ("iso-8859-1", "price – 5 € “quoted”", "cp1252"),
    ("iso-8859-8-i", "שלום", "iso-8859-8"),
    ("tis-620", "ภาษาไทย", "cp874"),
    ("koi8-r", "Привет, мир", "koi8-r"),
    ("rot13", "così", "cp1252"),
]


@pytest.mark.parametrize(("declared", "text", "written"), DECLARED)
def test_pages_and_mails_may_hold_what_only_the_larger_encoding_has(declared: str, text: str, written: str) -> None:
    page = f'<html><head><meta charset="{declared}"></head><body><p>{text}</p></body></html>'
    mail = f"From: a@example.org\nSubject: s\nContent-Type: text/plain; charset={declared}\n\n{text}"
    assert read_bytes(page.encode(written), "a.html").text == text
    assert read_bytes(mail.encode(written), "a.eml").text.endswith(f"\n\n{text}")


def test_the_names_in_a_tar_file_may_be_in_an_older_encoding() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, encoding="cp1252") as archive:
        member = tarfile.TarInfo("Château.txt")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"Text"))
    assert [document.member for document in read_documents(file, "a.tar", archive=True)] == ["Château.txt"]


@pytest.mark.parametrize(
    ("modern", "older"),
    [("Größe, Café\n", "naïve café größe\n"), ("Übung, Öl\n", "crème brûlée\n"), ("5 €, 6 €\n", "“8” €\n")],
)
def test_two_encodings_in_one_file_are_both_read(modern: str, older: str) -> None:
    assert read_bytes(modern.encode() + older.encode("cp1252"), "a.csv").text == modern + older


def test_nul_and_lone_surrogates_become_replacement_characters() -> None:
    assert read_bytes(b"# a\0b\n" + b"text " * 50, "a.md").text.startswith("# a\ufffdb\n")
    clean = Document("t\ufffditle", "a\ufffdb\ufffd", "markdown", "markdown", "text")
    assert read_text("a\ud800b\0", "t\0itle") == clean


def test_text_from_a_tool_call_is_titled_by_its_caller_or_by_its_heading() -> None:
    assert read_text("# Inside\n", "Given").title == "Given"
    assert read_text("\ufeff# Inside\n", " ").title == "Inside"
    with pytest.raises(UnreadableDocument, match="holds no text"):
        read_text(" \n", "empty")


@pytest.mark.parametrize(
    ("name", "kind"), [("a.json", "json"), ("a.jsonl", "jsonl"), ("a.csv", "csv"), ("a.tsv", "csv"), ("a.xyz", "text")]
)
def test_data_files_keep_their_exact_text(name: str, kind: str) -> None:
    text = '{"a": "è"}\r\n,;\t'
    document = read_bytes(text.encode(), name)
    assert (document.text, document.format, document.markup, document.source_type) == (text, kind, "plain", "text")


CODE = {"a.py": "python", "A.RS": "rust", "Dockerfile": "dockerfile", "CMakeLists.txt": "cmake", "a.yml": "yaml"}
SCRIPTS = {"#!/bin/sh": "shell", "#!/usr/bin/env python3": "python", "#! /usr/bin/env -S node --x": "javascript"}


@pytest.mark.parametrize(
    ("name", "first_line", "language"),
    [(name, "x = 1", language) for name, language in CODE.items()]
    + [("prune", line, language) for line, language in SCRIPTS.items()],
)
def test_code_is_recognised_by_its_name_or_its_interpreter(name: str, first_line: str, language: str) -> None:
    document = read_bytes(f"{first_line}\n################\n# Prune roses\n################\n".encode(), name)
    assert (document.title, document.format, document.markup) == (name, "code", "code")
    assert document.metadata == {"language": language}


def test_notebooks_give_their_cells() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Study\n", "Some text."]},
        {"cell_type": "code", "source": "print('```')", "outputs": [{"text": "noise"}]},
        {"cell_type": "code", "source": ""},
    ]
    notebook = {"cells": cells, "metadata": {"language_info": {"name": "julia"}}}
    document = read_bytes(json.dumps(notebook).encode(), "a.ipynb")
    assert document.text == "# Study\nSome text.\n\n````julia\nprint('```')\n````"
    assert (document.title, document.format, document.metadata) == ("Study", "notebook", {"language": "julia"})


# --- HTML -------------------------------------------------------------------------------------------------------------

PAGE = """<!doctype html><html><head><title>Retries — Docs</title><meta name="author" content="Ada Rossi">
<style>p {}</style></head><body>
<header><a href="/">Home</a></header><nav><ul><li>Menu</li></ul></nav>
<article><header><h1>Retry <em>policy</em><a class="headerlink" href="#r">¶</a></h1></header>
<p>Wait <b>twice</b>
 as <a href="https://example.org">long</a>,<br>then <code>stop()</code>.<script>alert(1)</script></p>
loose text
<ul><li>one<ol><li>inner</li></ol></li><li><p>two</p></li></ul>
<pre><code class="language-python">def f():
    return "&lt;a&gt;"
</code></pre>
<table><tr><th>Code</th><th>Meaning</th></tr><tr><td>503</td><td>a|b</td></tr></table>
<blockquote><p>Quote</p></blockquote><img src="x.png" alt="A diagram">
<footer>Written by Ada</footer></article>
<footer>Copyright</footer></body></html>"""


def test_html_becomes_markdown_without_the_frame_of_the_page() -> None:
    document = read_bytes(PAGE.encode(), "a.html")
    assert document.text == (
        "# Retry policy\n\nWait twice as [long](https://example.org),\nthen `stop()`.\n\nloose text\n\n"
        "- one\n  1. inner\n- two\n\n"
        '```python\ndef f():\n    return "<a>"\n```\n\n'
        "| Code | Meaning |\n| --- | --- |\n| 503 | a\\|b |\n\n> Quote\n\nA diagram\n\nWritten by Ada"
    )
    assert (document.title, document.metadata) == ("Retry policy", {"author": "Ada Rossi"})
    assert (document.format, document.markup, document.source_type) == ("html", "markdown", "website")
    shared = PAGE.replace("<style>", "<meta property='og:title' content='Retries'><style>")
    assert read_bytes(shared.encode(), "a.html").title == "Retries"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<title>T</title><nav>Only a menu</nav>", "Only a menu"),
        ("<p>No title", "No title"),
        (
            "<div><article><h1>T</h1><p>Long enough<ul><li><a href=a>X</a><a href=b>Y</a><a href=c>Z</a></ul></article>"
            "<aside>Read also</aside></div><ul><li><a href=d>Most read</a><a href=e>News</a><a href=f>Odd</a></ul>Ad"
            "<title>T</title>",
            "# T\n\nLong enough\n\n- [X](a)[Y](b)[Z](c)",
        ),
        ("<div><main><p>The article, long enough</p></main>Ad<aside>Also</aside></div>", "The article, long enough"),
        ("<table><tr><td>one column</td></tr></table>", "one column"),
        ("<table><tr><td><h2>Layout</h2></td><td>x</td></tr></table>", "## Layout\n\nx"),
        ("<a href=a><div>block</div>in a link</a>", "block\n\nin a link"),
        (
            "<title>T</title><h1><a href='b c.html'>T</a></h1><p><a href='#x'>part</a> <a href=d>[1]</a> "
            "<a href='#x'>7</a><div id=x><h2>End",
            "# [T](b%20c.html)\n\n[part](#End) [1] 7\n\n## End",
        ),
        ("<p>Size 5.<a href='#fn1'><sup>1</sup></a> Area 10<sup>-2</sup> m<sup>2</sup>.", "Size 5. [1] Area 10⁻² m²."),
        (
            '<p><img alt="caution">no. <ruby>東<rt>とう</rt></ruby><ruby>京<rt>きょう</rt></ruby>都',
            "caution no. 東京(とうきょう)都",
        ),
        (
            '<h2><a href="#id1" role="doc-backlink">Pumps</a></h2><p>Leak. <a role="doc-backlink" href="#id2">↩</a>',
            "## Pumps\n\nLeak.",
        ),
        (
            "<ul><li><a href=a>Home</a><li><a href=b>Buy</a><li><a href=c>Get</a></ul><h2>Log</h2>"
            "<div><a href='#W'>Write</a><a href='#R'>Read</a><a href='#F'>Files</a></div><p>See <a href='#F'>it</a>.",
            "## Log\n\nSee [it](#F).",
        ),
        (f"<p>The kinds are <a href='{'x' * 100}'>a</a>." * 6, "\n\n".join(["The kinds are a."] * 6)),
        ("<p><a name=a>many</p>" * 3000, "\n\n".join(["many"] * 3000)),
        ("<ul>loose <li>item</ul><ol><!-- note --><li>first</ol>", "- loose\n- item\n\n1. first"),
        ("<pre>one<br>two</pre><p><code>one<br>two</code>", "```\none\ntwo\n```\n\n`one\ntwo`"),
        (
            "<table><tr><td class=linenos><pre>1</pre><td><pre><a href=#1 data-nosnippet>1</a>use std</pre></table>",
            "```\nuse std\n```",
        ),
        (
            "<table><tr><th>Land<th colspan=2>City<tr><td rowspan=2>Italy<td>Rome<td>3<tr><td>Milan<td>1</table>",
            "| Land | City |  |\n| --- | --- | --- |\n| Italy | Rome | 3 |\n| Italy | Milan | 1 |",
        ),
    ],
)
def test_html_pages_of_every_build_give_their_text(page: str, text: str) -> None:
    document = read_bytes(page.encode(), "a_b.html")
    assert (document.text, document.title) == (text, "T" if "<title>" in page else "a b")


def test_content_that_announces_itself_needs_no_suffix() -> None:
    assert read_bytes(rb"{\rtf1 Roses}", "letter.doc").text == "Roses"
    assert read_bytes(b" <!DOCTYPE html><h1>Page</h1>", "stdin").format == "html"
    for name in ("paper.txt", "paper.docx", "stdin"):
        assert read_bytes(make_pdf([["Hello"]]), name).format == "pdf"


def test_deep_but_bearable_html_still_gives_its_text() -> None:
    assert read_bytes(b"<div>" * 5000 + b"deep", "a.html").text == "deep"
    assert read_bytes(b"<ul><li>" * 400 + b"deep", "a.html").text.endswith("deep")


# --- PDF --------------------------------------------------------------------------------------------------------------


def test_pdf_pages_begin_where_the_document_says() -> None:
    data = make_pdf(
        [["Perch\xe9 an exam-", "ple. Non-", "EU"], [], ["Page three"]],
        info="/Title (A study) /Author (Ada Rossi) /CreationDate (D:20240503101112+02'00')",
    )
    document = read_bytes(data, "a.pdf")
    bounds = [*document.page_starts, len(document.text) + 2]
    pages = [document.text[start : stop - 2] for start, stop in zip(bounds, bounds[1:], strict=False)]
    assert pages == ["Perché an example. Non-EU", "", "Page three"]
    assert document.title == "A study"
    assert document.metadata == {"author": "Ada Rossi", "created": "2024-05-03T10:11:12", "pages": 3}
    assert (document.format, document.markup, document.source_type) == ("pdf", "plain", "docs")


def test_bookmarks_of_a_pdf_are_its_headings() -> None:
    pages = [["Cover"], ["Notes on snow", "1. Snow", "1.1 Dry", "snow", "It is cold."], ["Left over."]]
    outline = make_bookmarks(3, ("Snow", 1), ("Dry snow", 1), ("Nowhere", ""), ("Elsewhere", 2), ("Too late", 0))
    document = read_bytes(make_pdf(pages, outline=outline), "a.pdf")
    sections, _, _ = read_outline(document.text, "plain", headings=document.headings)
    assert [(document.text[section.start : section.stop].split("\n")[0], section.path) for section in sections] == [
        ("Cover", ()),
        ("Notes on snow", ("Snow", "Dry snow")),
        ("Left over.", ("Snow", "Dry snow", "Elsewhere")),
    ]
    broken = [title.replace("(Dry snow)", "<FEFFD800>") for title in outline]
    assert read_bytes(make_pdf(pages, outline=broken), "a.pdf").headings[0][1] == ("Snow",)
    chunks = split(document, len, limit=2000)
    assert [chunk.headings for chunk in chunks] == [section.path for section in sections]


def test_what_was_filled_into_a_pdf_is_read_and_a_comment_is_not() -> None:
    notes = (
        "/Subtype /Widget /FT /Tx /T (f1) /V (Casimir Oblomov) /DA (/F1 12 Tf 0 g)",
        "/Subtype /Text /T (Ada) /Contents (Check the quota)",
    )
    document = read_bytes(make_pdf([["A licence"], ["Page two"]], notes=notes), "a.pdf")
    assert "Casimir Oblomov" in document.text and document.text.endswith("\n\nPage two")
    # A file without a form may have comments and links too.
    assert read_bytes(make_pdf([["A licence"]], notes=notes[1:]), "a.pdf").text == "A licence"


def test_a_sign_for_two_arabic_letters_is_not_turned_around_and_a_latin_word_ends_before_the_next() -> None:
    signs = b"begincmap 1 begincodespacerange <00> <FF> endcodespacerange 2 beginbfchar <41> <06440625> <42> <0646>"
    table = b"9 0 obj\n<< /Length %d >>\nstream\n%s endbfchar endcmap\nendstream\nendobj\n" % (len(signs) + 18, signs)
    data = make_pdf([["BA TjBA"]]).replace(b"/Encoding /WinAnsiEncoding", b"/ToUnicode 9 0 R")
    assert read_bytes(data.replace(b"xref\n", table + b"xref\n", 1), "a.pdf").text == "لإنTj لإن"


def test_a_sign_that_is_drawn_by_itself_stays_in_its_row() -> None:
    rows = ["Impeller) Tj 200 0 Td (38.00) Tj 90 0 Td (3) Tj -290 0 Td (", "A) Tj 90 0 Td (2) Tj 40 0 Td (pumps"]
    rows += ["Shen) Tj /F1 7 Tf 5 Ts (1) Tj /F1 12 Tf 0 Ts (, Dell"]
    assert read_bytes(make_pdf([rows]), "a.pdf").text == "Impeller 38.00 3\nA 2 pumps\nShen 1, Dell"


def test_two_columns_that_are_drawn_row_by_row_are_read_one_after_the_other() -> None:
    def page(left: str, right: str) -> list[str]:
        return ["Title", *(f"{left} {n} of ten) Tj 270 0 Td ({right} {n} of ten) Tj -270 0 Td (" for n in range(10))]

    prose = read_bytes(make_pdf([page("this is the left line with", "and this is the one on the right")]), "a.pdf")
    assert prose.text.startswith("Title\nthis is the left line with 0 of ten\nthis is the left")
    assert prose.text.endswith("one on the right 8 of ten\nand this is the one on the right 9 of ten")
    table = read_bytes(make_pdf([page("Society for the care of bees", "Long Road to the market, house")]), "a.pdf")
    assert "bees 3 of ten Long Road to the market, house 3 of ten\n" in table.text


@pytest.mark.parametrize(("info", "title"), [("(PowerPoint-Pr\xe4sentation)", "plan"), ("<FEFF0041D8000042>", "AB")])
def test_a_pdf_title_left_by_a_program_and_a_day_that_no_calendar_has_are_left_out(info: str, title: str) -> None:
    data = make_pdf([["Hello"]], info=f"/Title {info} /CreationDate (D:20240230120000)")
    document = read_bytes(data, "plan.pdf")
    assert (document.title, document.date) == (title, "")


def test_pdfs_without_text_or_behind_a_password_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localmcp.readers.pdf.installed_engine", lambda: "")
    with pytest.raises(UnreadableDocument, match=r"no text layer, .*Install tesseract"):
        read_bytes(make_pdf([[], []]), "scan.pdf")
    monkeypatch.setattr("localmcp.readers.pdf.installed_engine", lambda: "tesseract")
    with pytest.raises(ScannedDocument, match="waits for text recognition: 2 pages"):
        read_bytes(make_pdf([[], []]), "scan.pdf")
    key = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'11' * 32}> /U <{'22' * 32}> >> /ID [<00> <00>]"
    with pytest.raises(UnreadableDocument, match="password-protected"):
        read_bytes(make_pdf([["secret"]], trailer=key), "secret.pdf")
    with pytest.raises(UnreadableDocument, match="not a readable PDF"):
        read_bytes(b"%PDF-1.7 broken", "broken.pdf")


def test_a_pdf_gives_its_good_pages_unless_most_are_damaged() -> None:
    data = make_pdf([["One"], ["Two"], ["Three"]])
    document = read_bytes(data.replace(b"6 0 obj", b"9 9 xxx"), "a.pdf")
    assert (document.text, document.page_starts) == ("One\n\n\n\nThree", (0, 5, 7))
    with pytest.raises(UnreadableDocument, match="99997 of its 100000 pages cannot be read"):
        read_bytes(data.replace(b"/Count 3", b"/Count 100000"), "a.pdf")


# --- Office and books -------------------------------------------------------------------------------------------------


def test_slides_are_pages_with_their_title_tables_groups_and_notes() -> None:
    document = read_bytes(make_pptx(), "a.pptx")
    first, second = document.page_starts
    assert document.text[first:second] == (
        "## Quarterly review\n\n- Sales grew\n  - most in Torino\n\nNotes: Thank the team\n\n"
    )
    assert document.text[second:] == (
        "## Slide 2\n\n| City | Units |\n| --- | --- |\n| Torino | 7\\|8 |\n\ninside a group"
    )
    assert document.title == "Quarterly review"
    assert (document.metadata["author"], document.metadata["slides"]) == ("Ada Rossi", 2)


def test_books_are_read_in_the_order_of_their_spine() -> None:
    document = read_bytes(make_epub(), "a.epub")
    assert document.text == "# Uno\n\nLa città era lontana.\n\n# Due\n\nPoi piovve."
    assert (document.title, document.metadata) == ("Il viaggio", {"author": "Ada Rossi", "language": "it"})


NAV = """<html xmlns:epub="http://www.idpf.org/2007/ops"><body><nav epub:type="toc"><ol>
<li><a href="uno.xhtml">Uno</a></li><li><a href="due%23.xhtml#top">La pioggia</a><ol>
<li><a href="due%23.xhtml#end">Fine</a></li></ol></li></ol></nav></body></html>"""
NCX = """<!DOCTYPE ncx><ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docTitle><text>Il viaggio</text></docTitle>
<navMap><navPoint><navLabel><text>La pioggia</text></navLabel><content src="due%23.xhtml"/></navPoint></navMap></ncx>"""


@pytest.mark.parametrize(
    ("item", "contents"),
    [
        ('<item id="n" href="toc.html" media-type="application/xhtml+xml" properties="nav"/>', NAV),
        ('<item id="n" href="toc.ncx" media-type="application/x-dtbncx+xml"/>', NCX),
    ],
)
@pytest.mark.parametrize("body", ["<p><b>La Pioggia</b></p><p>Poi piovve.</p>", "<p>Poi piovve.</p>"])
def test_a_chapter_without_a_heading_has_its_title_of_the_contents(item: str, contents: str, body: str) -> None:
    address = item.split('"')[3]
    parts = {"OEBPS/book.opf": PACKAGE.replace("<manifest>", f"<manifest>{item}"), f"OEBPS/{address}": contents}
    document = read_bytes(make_epub(**parts, **{"OEBPS/due#.xhtml": f"<html><body>{body}</body></html>"}), "a.epub")
    assert document.text == "# Uno\n\nLa città era lontana.\n\n# La pioggia\n\nPoi piovve."
    damaged = make_epub(**{**parts, f"OEBPS/{address}": "<ncx><open>"})
    assert read_bytes(damaged, "a.epub").text.startswith("# Uno\n\nLa città")


def test_books_with_encrypted_chapters_are_refused() -> None:
    listed = '<encryption><CipherReference URI="OEBPS/{}"/></encryption>'
    assert (
        read_bytes(make_epub(**{"META-INF__encryption_xml": listed.format("font.otf")}), "a.epub").title == "Il viaggio"
    )
    with pytest.raises(UnreadableDocument, match="DRM"):
        read_bytes(make_epub(**{"META-INF__encryption_xml": listed.format("uno.xhtml")}), "a.epub")


ENTITY = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]>'


def test_entities_in_packages_are_refused() -> None:
    for encoding in ("utf-8", "utf-16"):
        data = make_zip({"word/document.xml": (ENTITY + "<x>&b;</x>").encode(encoding)})
        with pytest.raises(UnreadableDocument, match="declares XML entities"):
            read_bytes(data, "a.docx")
    with pytest.raises(UnreadableDocument, match="entities"):
        read_bytes(make_zip({"META-INF/container.xml": ENTITY + "<x>&b;</x>"}), "a.epub")


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.epub"])
def test_packages_that_unpack_to_too_much_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(packages, "MAX_UNPACKED", 1_000_000)
    with pytest.raises(UnreadableDocument, match="unpacks to more than"):
        read_bytes(make_zip({"word/document.xml": b" " * 2_000_000}), name)


# --- Files ------------------------------------------------------------------------------------------------------------


def test_compressed_text_is_read_by_its_inner_name() -> None:
    packed = gzip.compress(b"# Changes\n", mtime=0)
    document = read_bytes(packed, "changes.md.gz")
    assert (document.title, document.format) == ("Changes", "markdown")
    large = gzip.compress(b"x" * 2_000_000, mtime=0)
    with pytest.raises(UnreadableDocument, match="larger than 1 MB once decompressed"):
        list(read_documents(io.BytesIO(large), "changes.md.gz", max_bytes=1_000_000))
    with pytest.raises(UnreadableDocument, match="damaged"):
        read_bytes(packed[:-9], "changes.md.gz")


def test_a_file_that_cannot_be_read_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_reader(b"x", "large.txt").why_skipped(50_000_001) == "larger than 50 MB (setting max_file_mb)"
    # Without LibreOffice.
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnreadableDocument, match="larger than 0.0001 MB"):
        list(read_documents(io.BytesIO(b"x" * 101), "large.txt", max_bytes=100))
    with pytest.raises(UnreadableDocument, match="is empty"):
        read_bytes(b"", "large.txt")
    with pytest.raises(UnreadableDocument, match=r"old Office file"):
        read_bytes(bytes.fromhex("d0cf11e0a1b11ae1"), "a.doc")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.md", b"# Text", None),
        ("a.unknown", b"plain words", None),
        ("LICENSE", ITALIAN.encode("cp1252"), None),
        ("a.txt", ITALIAN.encode("utf-16-le"), None),
        ("a.pdf", b"%PDF-1.7\n\0\1\2", None),
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0", "binary file"),
        ("notes.txt", b"\x89PNG\r\n\x1a\n\0\0", "binary file"),
        ("a.ts", bytes(range(32)) * 10, "binary file"),
        ("a.xyz", bytes(range(32)) * 10, "no reader for .xyz"),
        ("a.txt", b"", "empty file"),
        ("a.svg", b"<svg/>", "no reader for .svg (SVG image)"),
        ("a.doc", b"{\\rtf1 Roses}", None),
        ("it.msg", b"int32 roses", None),
        ("a.pages", b"PK\3\4\0", "no reader for .pages (Apple Pages; export it as .docx)"),
        ("a.msg", bytes.fromhex("d0cf11e0a1b11ae1"), None),
        ("a.tar.gz", gzip.compress(bytes(500), mtime=0), "archive; add it by its path to read what is in it"),
        ("a.md.gz.gz", gzip.compress(gzip.compress(b"# a", mtime=0), mtime=0), "compressed file"),
        ("changelog.gz", gzip.compress(b"plain words", mtime=0), None),
        ("a.txt", b"ID3 tags and RIFF chunks", None),
    ],
)
def test_a_cheap_look_tells_what_is_not_worth_reading(
    monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, reason: str | None
) -> None:
    monkeypatch.setattr("localmcp.readers.pdf.installed_engine", lambda: "")
    assert choose_reader(data, name).why_skipped(len(data)) == reason


# --- Hostile bytes ----------------------------------------------------------------------------------------------------


def assert_document_or_refusal(data: bytes, name: str) -> None:
    """A document that keeps its promises, or a deliberate refusal."""
    try:
        document = read_bytes(data, name)
    except UnreadableDocument as refusal:
        assert str(refusal)
        return
    assert document.title == " ".join(document.title.split()) and 0 < len(document.title) <= 200
    assert document.text.strip() and "\0" not in document.text
    document.text.encode()
    json.dumps(document.metadata, allow_nan=False).encode()
    assert list(document.page_starts) == sorted(document.page_starts)
    assert all(start <= len(document.text) for start in document.page_starts)


NAMES = sorted(
    {f"a{suffix}" for suffix in readers.FORMATS} | set(readers.FORMATS) | {"a", "a.zip", "a.md.gz", ".x", "\0"}
)
ODD_TEXT = st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
MARKUP = st.lists(
    st.sampled_from(
        '<p> <table> <tr> <td> <ul> <li> <pre> <h1> </p> </table> <main> --- # ``` title: [ { " \\ \n \0 è'.split(" ")
    )
).map(lambda parts: "".join(parts).encode())


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=300) | ODD_TEXT | MARKUP, name=st.sampled_from(NAMES))
def test_any_bytes_under_any_name_give_a_document_or_a_refusal(data: bytes, name: str) -> None:
    assert_document_or_refusal(data, name)


@pytest.mark.parametrize("name", ["a.pdf", "a.docx", "a.pptx", "a.xlsx", "a.epub", "a.ipynb", "a.md.gz"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_give_a_document_or_a_refusal(name: str, data: st.DataObject) -> None:
    whole = bytearray(SAMPLES[name]())
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del whole[data.draw(st.integers(len(whole) // 2, len(whole))) :]
    assert_document_or_refusal(bytes(whole), name)


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.epub", "a.odt", "a.ods", "a.odp"])
def test_packages_with_damaged_parts_give_a_document_or_a_refusal(name: str) -> None:
    with zipfile.ZipFile(io.BytesIO(SAMPLES[name]())) as package:
        parts = {part: package.read(part) for part in package.namelist()}
    for part, content in [*parts.items()][:6]:
        for damaged in (b"", b"<x/>", content[: len(content) // 2], content.replace(b'"1"', b'"-99999999999"')):
            assert_document_or_refusal(make_zip(parts | {part: damaged}), name)


SAMPLES = {
    "a.pdf": lambda: make_pdf([["Hello"], ["World"]]),
    "a.docx": make_docx,
    "a.pptx": make_pptx,
    "a.xlsx": make_xlsx,
    "a.epub": make_epub,
    "a.odt": make_odt,
    "a.ods": make_ods,
    "a.odp": make_odp,
    "a.ipynb": lambda: json.dumps({"cells": [{"cell_type": "code", "source": "x"}]}).encode(),
    "a.md.gz": lambda: gzip.compress(b"# Hello\n", mtime=0),
}


def test_cells_that_span_everything_do_not_make_a_table_grow_without_bounds() -> None:
    row = "<tr>" + "<td colspan=99 rowspan=99>" * 2000
    page = f"<table>{row}a</td>{'<tr><td>b' * 99}</table>"
    assert len(read_bytes(page.encode(), "a.html").text) < 20 * len(page)
