"""What is drawn, attached or computed beside a text is read too."""

import io
import json
import struct

import docx
from docx.oxml import parse_xml

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
