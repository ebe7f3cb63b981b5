"""What is drawn, attached or computed beside a text is read too."""

import io
import json

import docx
from docx.oxml import parse_xml
from made_files import saved

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
NAMES = " ".join(f'xmlns:{key}="{value}"' for key, value in SPACES.items())
BOX = "<w:txbxContent><w:p><w:r><w:t>Ring the bell twice</w:t></w:r></w:p></w:txbxContent>"


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


def chat(*contents):
    mapping, parent = {}, None
    for number, (role, content) in enumerate(contents):
        message = {"author": {"role": role}, "content": content, "create_time": 1714723200.0}
        mapping[str(number)], parent = {"message": message, "parent": parent}, str(number)
    return {"id": "a", "title": "Chat", "current_node": parent, "mapping": mapping}


def test_code_and_speech_of_chatgpt_are_read():
    export = [
        chat(
            ("user", {"content_type": "multimodal_text", "parts": [{"asset_pointer": "x"}, {"text": "Read it aloud"}]}),
            ("assistant", {"content_type": "code", "language": "python", "text": "print(6 * 7)"}),
            ("tool", {"content_type": "execution_output", "text": "42"}),
            ("tool", {"content_type": "text", "parts": ["Successfully created text document"]}),
        )
    ]
    [document] = read_documents(io.BytesIO(json.dumps(export).encode()), "conversations.json")
    assert document.text == (
        "User (2024-05-03): Read it aloud\n\nAssistant (2024-05-03):\n\n```python\nprint(6 * 7)\n```\n\n"
        "Tool (2024-05-03):\n\n```\n42\n```"
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
    sections, [(start, stop)], _ = read_outline(document.text, document.markup)
    assert document.text[start:stop] == f"````python\n{code}\n````\n"
    assert [section.path for section in sections] == [(), ("Next",)]


def test_artifacts_of_claude_are_read():
    call = {"type": "tool_use", "name": "artifacts", "input": {"title": "Plan", "content": "Dig on Monday."}}
    message = {"sender": "assistant", "content": [{"type": "text", "text": "Here it is."}, call]}
    export = [{"uuid": "u", "name": "Garden", "chat_messages": [message]}]
    [document] = read_documents(io.BytesIO(json.dumps(export).encode()), "conversations.json")
    assert document.text == "Assistant: Here it is.\n\nPlan\n\nDig on Monday."
