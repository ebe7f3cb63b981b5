"""Office files are read whole, without any other package: what is beside the text too."""

from datetime import datetime

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from made_files import saved
from odf import style
from odf import table as odf_table
from odf import text as odf
from odf.opendocument import OpenDocumentText
from openpyxl.comments import Comment

from localmcp.errors import UnreadableDocument
from localmcp.readers.readers import read_bytes


def make_docx():
    document = docx.Document()
    document.core_properties.modified = datetime(2024, 5, 3, 10)
    document.add_heading("Travel policy", 0)
    document.add_heading("Trains", 1)
    paragraph = document.add_paragraph("Second class only.")
    document.add_comment(paragraph.runs, text="First class above four hours", author="Ada Rossi")
    document.add_paragraph("book early", style="List Bullet")
    document.add_paragraph("keep the ticket", style="List Bullet")
    document.add_paragraph("fill in the form", style="List Number")
    document.add_paragraph("send it", style="List Number")
    table = document.add_table(2, 2)
    for number, value in enumerate(("City", "Limit", "Torino", "90")):
        table.cell(number // 2, number % 2).text = value
    document.sections[0].header.paragraphs[0].text = "ACME internal"
    return saved(document)


def test_word_files_keep_lists_comments_and_tables():
    document = read_bytes(make_docx(), "policy.docx")
    assert document.text == (
        "# Travel policy\n\n# Trains\n\nSecond class only.\n\n"
        "Comment by Ada Rossi: First class above four hours\n\n"
        "- book early\n- keep the ticket\n1. fill in the form\n2. send it\n\n"
        "| City | Limit |\n| --- | --- |\n| Torino | 90 |\n\n"
        "Header: ACME internal"
    )
    assert (document.date, document.date_from) == ("2024-05-03T10:00:00Z", "document properties")


def test_a_letterhead_of_libreoffice_is_read_once_and_a_number_of_a_page_is_not():
    document = OpenDocumentText()
    document.automaticstyles.addElement(style.PageLayout(name="A4"))
    for name, header in (
        ("Standard", "Notary Quandt, Mill Lane"),
        ("First", "Notary Quandt, Mill Lane"),
        ("Last", "3"),
    ):
        page = style.MasterPage(name=name, pagelayoutname="A4")
        page.addElement(style.Header())
        page.childNodes[0].addElement(odf.P(text=header))
        document.masterstyles.addElement(page)
    document.styles.addElement(style.Style(name="Title", family="paragraph"))
    document.text.addElement(odf.P(text="Deed", stylename="Title"))
    table = odf_table.Table()
    for cell in (odf_table.TableCell(numberrowsspanned="2"), odf_table.CoveredTableCell()):
        cell.addElement(odf.P(text="mill" if not table.childNodes else ""))
        table.addElement(odf_table.TableRow())
        table.lastChild.addElement(cell)
    document.text.addElement(table)
    text = read_bytes(saved(document), "deed.odt").text
    assert text == "# Deed\n\n| mill |\n| --- |\n| mill |\n\nHeader: Notary Quandt, Mill Lane"


def test_a_cell_that_spans_others_shifts_none_and_a_power_is_no_digit_of_its_base():
    document = docx.Document()
    table = document.add_table(3, 3)
    for number, value in enumerate(("Pump", "", "Cycles", "P1", "north", "2·10", "", "south", "")):
        table.cell(number // 3, number % 3).text = value
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(1, 0).merge(table.cell(2, 0))
    table.cell(1, 2).paragraphs[0].add_run("6").font.superscript = True
    math = "<m:oMath xmlns:m='http://schemas.openxmlformats.org/officeDocument/2006/math'><m:f><m:num><m:r><m:t>v</m:t>"
    math += "</m:r><m:sup><m:t>2</m:t></m:sup></m:num><m:den><m:t>2g</m:t></m:den></m:f></m:oMath>"
    table.cell(2, 2).paragraphs[0]._p.append(parse_xml(math))
    assert read_bytes(saved(document), "a.docx").text == (
        "| Pump |  | Cycles |\n| --- | --- | --- |\n| P1 | north | 2·10⁶ |\n| P1 | south | (v^2)/(2g) |"
    )


WORD_LISTS = {
    "contract": [("upperRoman", "Article %1.", "1"), ("decimal", "%1.%2", "1 legal"), ("lowerLetter", "(%3)", "1")],
    "agenda": [("decimalZero", "%1.", "5")],
}


def add_list(document, number, levels, start_again=""):
    levels = "".join(
        f"<w:lvl w:ilvl='{level}'><w:start w:val='{start.split()[0]}'/><w:numFmt w:val='{kind}'/>"
        f"{'<w:isLgl/>' if 'legal' in start else ''}<w:lvlText w:val='{pattern}'/></w:lvl>"
        for level, (kind, pattern, start) in enumerate(levels)
    )
    numbering, space = document.part.numbering_part.element, nsdecls("w")
    numbering.insert(0, parse_xml(f"<w:abstractNum {space} w:abstractNumId='{number}'>{levels}</w:abstractNum>"))
    numbering.append(
        parse_xml(f"<w:num {space} w:numId='{number}'><w:abstractNumId w:val='{number}'/>{start_again}</w:num>")
    )


def number(paragraph, of_list, level):
    place = f"<w:ilvl w:val='{level}'/><w:numId w:val='{of_list}'/>"
    paragraph._p.get_or_add_pPr().append(parse_xml(f"<w:numPr {nsdecls('w')}>{place}</w:numPr>"))


def test_numbers_of_word_lists_and_headings_are_those_that_are_printed():
    document = docx.Document()
    add_list(document, 101, WORD_LISTS["contract"])
    add_list(document, 102, WORD_LISTS["agenda"])
    again = f"<w:lvlOverride {nsdecls('w')} w:ilvl='0'><w:startOverride w:val='9'/></w:lvlOverride>"
    document.part.numbering_part.element.append(
        parse_xml(f"<w:num {nsdecls('w')} w:numId='103'><w:abstractNumId w:val='102'/>{again}</w:num>")
    )
    for text, of_list, level in (
        ("Parties", 101, 0), ("Names", 101, 1), ("tenant", 101, 2), ("landlord", 101, 2), ("Duties", 101, 0),
        ("Rent", 101, 1), ("opening", 102, 0), ("minutes", 102, 0), ("later", 103, 0),
    ):  # fmt: skip
        number(document.add_paragraph(text), of_list, level)
    number(document.add_heading("Scope", 1), 101, 0)
    assert read_bytes(saved(document), "a.docx").text == (
        "Article I. Parties\n  1.1 Names\n    (a) tenant\n    (b) landlord\nArticle II. Duties\n  2.1 Rent\n"
        "5. opening\n6. minutes\n9. later\n\n# Article III. Scope"
    )


def test_numbers_of_lists_of_libreoffice_are_those_that_are_printed():
    document = OpenDocumentText()
    list_style = odf.ListStyle(name="L")
    for level, (numeral, suffix, shown, start) in enumerate((("1", ".", 1, 1), ("a", ")", 1, 1), ("I", ".", 2, 4)), 1):
        list_style.addElement(
            odf.ListLevelStyleNumber(
                level=level, numformat=numeral, numsuffix=suffix, displaylevels=shown, startvalue=start
            )
        )
    document.automaticstyles.addElement(list_style)

    def listed(*items, **attributes):
        made = odf.List(stylename="L", **attributes)
        for words, *below in items:
            item = odf.ListItem()
            for line in words.split("\n"):
                item.addElement(odf.P(text=line))
            if below:
                item.addElement(listed(*below))
            made.addElement(item)
        return made

    document.text.addElement(listed(("rent",), ("pets\nif small", ("cats", ("old",)), ("dogs",))))
    document.text.addElement(odf.P(text="As agreed."))
    document.text.addElement(listed(("keys",), continuenumbering="true"))
    assert read_bytes(saved(document), "a.odt").text == (
        "1. rent\n2. pets\n  if small\n  a) cats\n    a.IV. old\n  b) dogs\n\nAs agreed.\n\n3. keys"
    )


@pytest.mark.parametrize(("title", "shown"), [("Moving", "Moving"), ("Folie 1", "Plan")])
def test_hidden_slides_say_so(title, shown):
    deck = pptx.Presentation()
    deck.core_properties.title = title
    for name in ("Plan", "Backup"):
        deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = name
    deck.slides[1]._element.set("show", "0")
    document = read_bytes(saved(deck), "a.pptx")
    assert (document.title, document.text) == (shown, "## Plan\n\n## Backup (hidden)")


def make_xlsx():
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Prices"
    for row in (["Item", "Price", "Since"], ["Bolt", 1.5, datetime(2024, 5, 3)], ["Nut", 0.1 + 0.2, None]):
        sheet.append(row)
    sheet["B2"].comment = Comment("agreed by phone", "Ada")
    sheet["A40"] = "Washer"
    secret = book.create_sheet("Margins")
    for row in (["Shop:", 4], ["told", "nobody"], ["Item", "Margin", "Sure"], ["Screw", 0.5, True]):
        secret.append(row)
    secret.sheet_state = "hidden"
    return saved(book)


def test_workbooks_name_their_values_and_rows_and_say_what_is_hidden():
    document = read_bytes(make_xlsx(), "a.xlsx")
    assert document.text == (
        "## Prices\n\nItem | Price | Since\n\n"
        "- Item: Bolt; Price: 1.5; Since: 2024-05-03\n"
        "- Item: Nut; Price: 0.3\n- Item: Washer\n\n## Margins (hidden)\n\n"
        "Shop: | 4\n\ntold | nobody\n\nItem | Margin | Sure\n\n- Item: Screw; Margin: 0.5; Sure: True"
    )
    assert document.metadata["sheets"] == ["Prices", "Margins (hidden)"]
    rows = {document.text[start:].split("\n")[0][:12]: row for start, row in document.row_starts if row}
    margins = {"Shop: | 4": 1, "told | nobod": 2, "Item | Margi": 3, "- Item: Scre": 4}
    assert rows == {"Item | Price": 1, "- Item: Bolt": 2, "- Item: Wash": 40, **margins}


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx"])
def test_empty_office_files_say_so(name):
    make = {"a.docx": docx.Document, "a.pptx": pptx.Presentation, "a.xlsx": openpyxl.Workbook}[name]
    with pytest.raises(UnreadableDocument, match="holds no text"):
        read_bytes(saved(make()), name)


SPACES = {
    "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
    "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
    "v": "urn:schemas-microsoft-com:vml",
}
NAMES = " ".join(f'xmlns:{key}="{value}"' for key, value in SPACES.items())
BOX = "<w:txbxContent><w:p><w:r><w:t>Ring the bell twice</w:t></w:r></w:p></w:txbxContent>"


def test_text_boxes_of_word_files_are_read_once():
    document = docx.Document()
    document.add_heading("Entrance", 1)
    document.add_paragraph("Please wai")._p.append(
        parse_xml(
            f"<w:r {NAMES}><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wp:inline>"
            f"<wp:docPr id='1'/><a:graphic><a:graphicData><wps:wsp><wps:txbx>{BOX}</wps:txbx></wps:wsp></a:graphicData>"
            f"</a:graphic></wp:inline></w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>{BOX}</v:textbox></w:pict></mc:Fallback>"
            "</mc:AlternateContent><w:t>t.</w:t></w:r>"
        )
    )
    text = read_bytes(saved(document), "a.docx").text
    assert sorted(text.split("\n\n")) == ["# Entrance", "Please wait.", "Ring the bell twice"]
