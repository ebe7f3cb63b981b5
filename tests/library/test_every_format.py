"""A folder with every format: each fact is the first answer to a plain question, cited with its place."""

import mailbox
import plistlib

import docx
import openpyxl
import pptx
import pytest
from made_files import make_epub, make_mail, make_odp, make_ods, make_odt, make_pdf, make_tar, make_zip, saved

import localmcp

PAGE = "<html><head><title>{0}</title></head><body><h1>{0}</h1><p>{1}</p></body></html>"
FACTS = {
    "hedge.md": ("When is the hedge trimmed?", ":5"),
    "kayak.txt": ("How long is the kayak?", ":1"),
    "ferry.html": ("When does the ferry leave?", " › Ferry"),
    "passport.pdf": ("When does the passport expire?", " p. 2"),
    "violin.docx": ("Who repaired the violin?", " › Strings"),
    "telescope.pptx": ("What did the telescope cost?", " slide 2"),
    "tires.xlsx": ("Which pressure do the winter tires need?", " Car row 4"),
    "guida.odt": ("Qual è il codice del cancello?", " › Guida"),
    "prezzi.ods": ("vite prezzo", " Prezzi row 2"),
    "aquarium.rtf": ("How warm is the aquarium?", ""),
    "libro.epub": ("La città era lontana?", " › Uno"),
    "dentist.eml": ("When is the dentist appointment?", ", Dentist (2024-05-03)"),
    "box.mbox": ("Where is the spare bicycle key?", ", Bicycle (2024-05-04)"),
    "visa.mhtml": ("How much does the visa cost?", " › Visa"),
    "museum.webarchive": ("When is the museum closed?", " › Museum"),
    "talk.srt": ("What did the speaker say about whales?", " 0:01:30"),
    "conversations.json": ("Which compost did the assistant recommend?", ", Compost (2024-05-03)"),
    "greenhouse.org": ("Is the glass laminated?", ":3"),
    "tides.tex": ("What causes spring tides?", ":4"),
    "router.log.1": ("Why did the router restart?", ":1"),
    "piano.odp": ("Quanti euro sono i costi?", " slide 2"),
    "bees.vtt": ("When do the bees swarm?", " 0:02:00"),
    "claude/conversations.json": ("Which gutter leaks?", ", Gutters (2024-05-04)"),
    "Maildir/cur/1714723200.M1.host:2,S": ("Who waters the bonsai?", ", Bonsai (2024-05-06)"),
    "bundle.zip": ("Where is the spare fuse?", "#fuse.md:3"),
    "bundle.tar.gz": ("What is the hamster called?", "#pet.md:3"),
}
"""File -> a question and the end of its citation."""


def make_docx():
    document = docx.Document()
    document.add_heading("Bows", 1)
    document.add_paragraph("The bow is made of pernambuco.")
    document.add_heading("Strings", 1)
    document.add_paragraph("The violin was repaired by Giulia Ferri.")
    return saved(document)


def make_pptx():
    deck = pptx.Presentation()
    for title, text in (("Plan", "We look at the sky."), ("Budget", "The telescope cost 730 euros.")):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text_frame.text = title, text
    return saved(deck)


def make_xlsx():
    book = openpyxl.Workbook()
    book.active.title = "Car"
    for row in (["Part", "Value"], ["Oil", "5W-30"], ["Summer tires", "2.4 bar"], ["Winter tires", "pressure 2.7 bar"]):
        book.active.append(row)
    return saved(book)


CHATGPT = """[{"id": "a", "title": "Compost", "create_time": 1714723200.0, "current_node": "n", "mapping": {"n": {
    "parent": null,
    "message": {"author": {"role": "assistant"}, "content": {"parts": ["I recommend compost of leaves."]}}}}}]"""
CLAUDE = """[{"uuid": "c", "name": "Gutters", "created_at": "2024-05-04T10:00:00Z", "chat_messages": [
    {"sender": "human", "text": "The gutter above the porch leaks.", "created_at": "2024-05-04T10:00:00Z"}]}]"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    place = tmp_path_factory.mktemp("formats")
    folder = place / "folder"
    folder.mkdir()
    files = {
        "hedge.md": b"# Garden\n\n## Hedge\n\nThe hedge is trimmed in late February.\n",
        "kayak.txt": b"The kayak is 412 cm long.\n",
        "ferry.html": PAGE.format("Ferry", "The ferry leaves at 6:50 every morning.").encode(),
        "passport.pdf": make_pdf([["Documents of the family."], ["The passport expires on 12 March 2031."]]),
        "violin.docx": make_docx(),
        "telescope.pptx": make_pptx(),
        "tires.xlsx": make_xlsx(),
        "guida.odt": make_odt(),
        "prezzi.ods": make_ods(),
        "aquarium.rtf": rb"{\rtf1\ansi The aquarium is kept at 24 degrees.\par}",
        "libro.epub": make_epub(),
        "dentist.eml": make_mail("Dentist", "The appointment is at 16:20.", 3).as_bytes(),
        "visa.mhtml": b"Subject: Visa\nContent-Type: text/html\n\n"
        + PAGE.format("Visa", "The fee is 80 euros.").encode(),
        "museum.webarchive": plistlib.dumps(
            {"WebMainResource": {"WebResourceData": PAGE.format("Museum", "It is closed on Tuesdays.").encode()}}
        ),
        "talk.srt": b"1\n00:00:01,000 --> 00:00:02,000\nHello.\n\n2\n00:01:30,000 --> 00:01:33,000\nWhales sing.\n",
        "conversations.json": CHATGPT.encode(),
        "greenhouse.org": b"* Greenhouse\n\nThe glass of it is laminated.\n",
        "tides.tex": b"\\begin{document}\n\\section{Tides}\n\nSpring tides are caused by sun and moon.\n",
        "router.log.1": b"2024-05-03 10:00:00 router restarted: watchdog\n",
        "piano.odp": make_odp(),
        "bees.vtt": b"WEBVTT\n\n00:02:00.000 --> 00:02:03.000\nThe bees swarm in May.\n",
        "claude/conversations.json": CLAUDE.encode(),
        "Maildir/cur/1714723200.M1.host:2,S": make_mail("Bonsai", "Our neighbor Lin waters it.", 6).as_bytes(),
        "bundle.zip": make_zip({"fuse.md": "# Fuse\n\nThe spare fuse is in drawer 4.\n"}),
        "bundle.tar.gz": make_tar({"pet.md": b"# Pet\n\nThe hamster is called Bruno.\n"}),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    box = mailbox.mbox(folder / "box.mbox")
    box.add(make_mail("Bicycle", "The spare key is in the blue tin.", 4))
    box.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALMCP_STATE_DIR", str(place / "state"))
        patch.setenv("LOCALMCP_MODEL", "hash")
        opened = localmcp.open(place / "kb.localmcp")
        opened.add(folder)
        for archive in ("bundle.zip", "bundle.tar.gz"):
            opened.add(folder / archive)
    return opened, folder


@pytest.mark.parametrize("name", FACTS)
def test_each_format_answers_first_and_is_cited_with_its_place(file, name):
    opened, folder = file
    question, place = FACTS[name]
    hit = opened.call("search", query=question)["results"][0]
    assert hit["citation"]["path"] == str(folder / name)
    assert hit["citation"]["label"] == f"{folder / name}{place}"


CODE = {
    "pump.py": ("class Pump(Machine):\n    'Moves water.'", "class Pump"),
    "start.py": ("@logged\ndef start(self,\n          force):", "def start"),
    "pump.c": ("/* Turns it.\n * Slowly. */\nstatic int turn(int a,\n  int b)\n{", "static int turn"),
    "pump.js": ("const turn = async (a, b) => {", "const turn"),
    "pump.sh": ("turn () {", "turn"),
}


def test_the_outline_of_code_is_what_it_defines(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    steps = "\n".join(f"    turn(valve_{number})\n" for number in range(200))
    (tmp_path / "code").mkdir()
    for name, (head, _) in CODE.items():
        (tmp_path / "code" / name).write_text(f"valves = 3\n\n{head}\n{steps}")
    opened = localmcp.open(tmp_path / "kb.localmcp")
    opened.add(tmp_path / "code")
    for name, (_, heading) in CODE.items():
        entries = opened.call("get_document", sourceId=name, outline=True)["outline"]
        assert [(entry["heading"], entry["startLine"]) for entry in entries] == [("(beginning)", 1), (heading, 3)]
