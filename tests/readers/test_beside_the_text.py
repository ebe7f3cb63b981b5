"""What is drawn, attached or computed beside a text is read too."""

import io
import json
import struct
import zipfile
from email.message import EmailMessage

import docx
import openpyxl
import pptx
from docx.opc.packuri import PackURI as DocxUri
from docx.opc.part import Part as DocxPart
from docx.oxml import parse_xml
from made_files import make_zip
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.opc.package import Part as PptxPart
from pptx.opc.packuri import PackURI

from localmcp.readers.outline import read_outline
from localmcp.readers.readers import read_bytes, read_documents

SPACES = {
    "w": "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "a": "http://schemas.openxmlformats.org/drawingml/2006/main",
    "wp": "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing",
    "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
    "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
    "v": "urn:schemas-microsoft-com:vml",
}
DIAGRAM = """<dgm:dataModel xmlns:dgm="d" xmlns:a="a"><dgm:ptLst>
<dgm:pt><dgm:t><a:bodyPr/><a:p><a:r><a:t>Order</a:t></a:r></a:p></dgm:t></dgm:pt>
<dgm:pt><dgm:t><a:p><a:r><a:t>Ship</a:t></a:r></a:p></dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>"""
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
NAMES = " ".join(f'xmlns:{key}="{value}"' for key, value in SPACES.items())
BOX = "<w:txbxContent><w:p><w:r><w:t>Ring the bell twice</w:t></w:r></w:p></w:txbxContent>"
DRAWING = """<xdr:wsDr xmlns:xdr="x" xmlns:a="a"><xdr:twoCellAnchor><xdr:from><xdr:col>1</xdr:col><xdr:row>6</xdr:row>
</xdr:from><xdr:sp><xdr:txBody><a:p><a:r><a:t>Approved by Rosa</a:t></a:r></a:p></xdr:txBody></xdr:sp>
</xdr:twoCellAnchor></xdr:wsDr>"""


def saved(document):
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def test_charts_of_slides_name_their_values():
    deck = pptx.Presentation()
    data = CategoryChartData()
    data.categories = ["North", "East", "South"]
    data.add_series("2023", (5.5, None, 7))
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Sales"
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 100, 100, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "Sales by region"
    assert read_bytes(saved(deck), "a.pptx").text == ("## Sales\n\nChart: Sales by region; 2023: North 5.5, South 7")


def test_what_the_shapes_of_a_diagram_say_is_in_its_slide():
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Process"
    part = PptxPart(PackURI("/ppt/diagrams/data1.xml"), "application/xml", deck.part.package, DIAGRAM.encode())
    slide.part.relate_to(part, f"{RELATIONS}/diagramData")
    assert read_bytes(saved(deck), "a.pptx").text == "## Process\n\nOrder\n\nShip"


def test_what_the_shapes_of_a_diagram_say_is_below_its_paragraph():
    document = docx.Document()
    paragraph = document.add_paragraph("How we work.")
    document.add_paragraph("The end.")
    part = DocxPart(DocxUri("/word/diagrams/data1.xml"), "application/xml", DIAGRAM.encode(), document.part.package)
    key = document.part.relate_to(part, f"{RELATIONS}/diagramData")
    paragraph._p.append(
        parse_xml(
            f"<w:r {NAMES} xmlns:dgm='d' xmlns:r='{RELATIONS}'><w:drawing><wp:inline><a:graphic><a:graphicData>"
            f"<dgm:relIds r:dm='{key}'/></a:graphicData></a:graphic></wp:inline></w:drawing></w:r>"
        )
    )
    assert read_bytes(saved(document), "a.docx").text == "How we work.\n\nOrder\n\nShip\n\nThe end."


def test_text_boxes_of_word_files_are_read_once():
    document = docx.Document()
    document.add_heading("Entrance", 1)
    document.add_paragraph("Please wait.")._p.append(
        parse_xml(
            f"<w:r {NAMES}><mc:AlternateContent><mc:Choice Requires='wps'><w:drawing><wp:inline><a:graphic>"
            f"<a:graphicData><wps:wsp><wps:txbx>{BOX}</wps:txbx></wps:wsp></a:graphicData></a:graphic></wp:inline>"
            f"</w:drawing></mc:Choice><mc:Fallback><w:pict><v:textbox>{BOX}</v:textbox></w:pict></mc:Fallback>"
            "</mc:AlternateContent></w:r>"
        )
    )
    text = read_bytes(saved(document), "a.docx").text
    assert sorted(text.split("\n\n")) == ["# Entrance", "Please wait.", "Ring the bell twice"]


def test_text_boxes_charts_and_comments_of_sheets_are_in_their_rows():
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (["Item", "Price"], ["Bolt", 2], ["Nut", 1]):
        sheet.append(row)
    chart = BarChart()
    chart.title = "Price list"
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    sheet.add_chart(chart, "D2")
    sheet["A9"].comment = Comment("ask for discount", "Ada")
    with zipfile.ZipFile(io.BytesIO(saved(book))) as package:
        parts = {name: package.read(name) for name in package.namelist()}
    document = read_bytes(make_zip(parts), "a.xlsx")
    assert document.text.split("\n\n")[-1].split("\n") == [
        "- Item: Bolt; Price: 2; Chart: Price list", "- Item: Nut; Price: 1", "- comment on A9: ask for discount",
    ]  # fmt: skip
    boxed = read_bytes(make_zip(parts | {"xl/drawings/drawing1.xml": DRAWING}), "a.xlsx")
    assert "- Approved by Rosa\n" in boxed.text
    assert {row: boxed.text[start:].split("\n")[0] for start, row in boxed.row_starts}[7] == "- Approved by Rosa"


def tnef(*attributes):
    body = b"".join(
        struct.pack("<BII", 2, identifier, len(value)) + value + struct.pack("<H", sum(value) & 0xFFFF)
        for identifier, value in attributes
    )
    return struct.pack("<IH", 0x223E9F78, 1) + body


def long_name(name):
    value = name.encode("utf-16-le") + b"\0\0"
    flags = struct.pack("<HHI", 3, 0x3714, 4)
    padding = b"\0" * (-len(value) % 4)
    return struct.pack("<I", 2) + flags + struct.pack("<HHII", 0x1F, 0x3707, 1, len(value)) + value + padding


def test_files_in_a_winmail_dat_are_attachments():
    data = tnef(
        (0x69002, bytes(14)), (0x18010, b"PROTOC~1.TXT\0"), (0x6800F, b"The gate code is 4711."),
        (0x69005, long_name("protocol März.txt")),
        (0x69002, bytes(14)), (0x18010, b"b.csv\0"), (0x6800F, b"a,b\n1,2\n"),
    )  # fmt: skip
    mail = EmailMessage()
    mail["Subject"], mail["From"] = "Papers", "ada@example.org"
    mail.set_content("See attached.")
    mail.add_attachment(data, maintype="application", subtype="ms-tnef", filename="winmail.dat")
    letter, protocol, table = read_documents(io.BytesIO(mail.as_bytes()), "a.eml")
    assert "Attachments: protocol März.txt, b.csv" in letter.text
    assert (protocol.member, protocol.text) == ("protocol März.txt", "The gate code is 4711.")
    assert table.text == "a,b\n1,2\n"


def test_a_cut_winmail_dat_is_an_attachment_that_cannot_be_read():
    mail = EmailMessage()
    mail["Subject"], mail["From"] = "Papers", "ada@example.org"
    mail.set_content("See attached.")
    cut = tnef((0x69002, bytes(14)), (0x6800F, bytes(90)))[:60]
    mail.add_attachment(cut, maintype="application", subtype="ms-tnef", filename="winmail.dat")
    _, attachment = read_documents(io.BytesIO(mail.as_bytes()), "a.eml")
    assert "cannot be read" in attachment.failure


def chat(*contents):
    mapping, parent = {}, None
    for number, (role, content) in enumerate(contents):
        message = {"author": {"role": role}, "content": content, "create_time": 1714723200.0}
        mapping[str(number)], parent = {"message": message, "parent": parent}, str(number)
    return {"id": "a", "title": "Chat", "current_node": parent, "mapping": mapping}


def test_code_canvas_and_speech_of_chatgpt_are_read():
    canvas = json.dumps({"name": "Letter", "type": "document", "content": "Dear Sir, the roof leaks."})
    export = [
        chat(
            ("user", {"content_type": "multimodal_text", "parts": [{"asset_pointer": "x"}, {"text": "Read it aloud"}]}),
            ("assistant", {"content_type": "code", "language": "python", "text": "print(6 * 7)"}),
            ("tool", {"content_type": "execution_output", "text": "42"}),
            ("assistant", {"content_type": "code", "language": "unknown", "text": canvas}),
            ("tool", {"content_type": "text", "parts": ["Successfully created text document"]}),
        )
    ]
    [document] = read_documents(io.BytesIO(json.dumps(export).encode()), "conversations.json")
    assert document.text == (
        "User (2024-05-03): Read it aloud\n\nAssistant (2024-05-03):\n\n```python\nprint(6 * 7)\n```\n\n"
        "Tool (2024-05-03):\n\n```\n42\n```\n\nAssistant (2024-05-03): Letter\n\nDear Sir, the roof leaks."
    )


def test_code_of_a_conversation_is_one_fence_whatever_is_in_it():
    code = 'print("""\n```\n# no heading\n```\n""")'
    export = [
        chat(
            ("assistant", {"content_type": "code", "language": "python", "text": code}),
            ("assistant", {"content_type": "text", "parts": ["Done.\n\n# Next"]}),
        )
    ]
    [document] = read_documents(io.BytesIO(json.dumps(export).encode()), "conversations.json")
    outline = read_outline(document.text, document.markup)
    [(start, stop)] = outline.fences
    assert document.text[start:stop] == f"````python\n{code}\n````\n"
    assert [section.path for section in outline.sections] == [(), ("Next",)]


def test_artifacts_of_claude_are_read():
    call = {"type": "tool_use", "name": "artifacts", "input": {"title": "Plan", "content": "Dig on Monday."}}
    message = {"sender": "assistant", "content": [{"type": "text", "text": "Here it is."}, call]}
    export = [{"uuid": "u", "name": "Garden", "chat_messages": [message]}]
    [document] = read_documents(io.BytesIO(json.dumps(export).encode()), "conversations.json")
    assert document.text == "Assistant: Here it is.\n\nPlan\n\nDig on Monday."


def test_charts_of_libreoffice_are_named_in_their_cell() -> None:
    cell = '<cell><p>Pump</p><frame><object xmlns:x="x" x:href="./Object 1"/></frame></cell>'
    content = f'<doc><table name="Plan"><table-row>{cell.replace("cell", "table-cell")}</table-row></table></doc>'
    chart = "<chart><title><p>Costs of the well</p></title><axis><title><p>Parts</p></title></axis><p>40</p></chart>"
    package = make_zip({"content.xml": content, "Object 1/content.xml": chart})
    assert read_bytes(package, "a.ods").text == "## Plan\n\nPump Chart: Costs of the well; Parts"
