"""Files of formats that need more than a line of text, made by the libraries of those formats."""

import io
import tarfile
import zipfile
from collections.abc import Sequence
from email.message import EmailMessage

from odf.dc import Creator
from odf.draw import Frame, Page, TextBox
from odf.office import Annotation
from odf.opendocument import OpenDocumentPresentation, OpenDocumentSpreadsheet, OpenDocumentText
from odf.style import MasterPage, PageLayout, Style, TableProperties
from odf.table import Table, TableCell, TableRow
from odf.text import H, List, ListItem, P


def make_zip(parts: dict[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return buffer.getvalue()


def make_tar(parts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def make_mail(subject: str, text: str, day: int) -> EmailMessage:
    """Return a mail of that day of May 2024, whose text is encoded."""
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["Message-ID"] = subject, "ada@example.org", f"<{day}@example.org>"
    mail["Date"] = f"Fri, {day:02} May 2024 10:00:00 +0000"
    mail.set_content(text, cte="base64")
    return mail


def make_pdf(
    pages: list[list[str]], *, info: str = "", trailer: str = "", outline: Sequence[str] = (), notes: Sequence[str] = ()
) -> bytes:
    """Return a PDF; `outline`: the objects of its bookmarks, the first of which is number 5 + 2 * pages.

    `notes`: annotations of the first page, those of the kind Widget are the fields of a form.
    """
    places = [f"{5 + 2 * len(pages) + len(outline) + number} 0 R" for number in range(len(notes))]
    fields = " ".join(place for place, note in zip(places, notes, strict=True) if "/Widget" in note)
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {f'/Outlines {5 + 2 * len(pages)} 0 R' if outline else ''}"
        f"{f'/AcroForm << /Fields [{fields}] >>' if fields else ''} >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, lines in enumerate(pages):
        content = "BT /F1 12 Tf 14 TL 72 700 Td " + " ".join(f"({line}) Tj T*" for line in lines) + " ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R"
            f" /Resources << /Font << /F1 3 0 R >> >> /Annots [{' '.join(places) if not number else ''}] >>"
        )
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
    objects += [f"<< {info} >>", *outline, *(f"<< /Type /Annot /Rect [9 9 99 99] {note} >>" for note in notes)]
    data, offsets = b"%PDF-1.7\n", list[int]()
    for number, body in enumerate(objects, 1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{body}\nendobj\n".encode("cp1252")
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    roots = f"/Root 1 0 R /Info {4 + 2 * len(pages)} 0 R"
    end = f"trailer << /Size {size} {roots} {trailer} >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + f"xref\n0 {size}\n0000000000 65535 f \n".encode() + table + end.encode()


def make_nested_forms(levels: int = 10, times: int = 10) -> bytes:
    """A PDF whose reading does not end: each form draws the next one ten times; the last one writes a word."""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /XObject << /F 6 0 R >> >> >>",
        "<< /Length 5 >>\nstream\n/F Do\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for level in range(levels):
        last = level == levels - 1
        content = "BT /T 9 Tf (word) Tj ET" if last else "/F Do " * times
        resources = "/Font << /T 5 0 R >>" if last else f"/XObject << /F {7 + level} 0 R >>"
        head = f"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << {resources} >> /Length {len(content)}"
        objects.append(f"<< {head} >>\nstream\n{content}\nendstream")
    body = "".join(f"{number} 0 obj\n{content}\nendobj\n" for number, content in enumerate(objects, 1))
    return f"%PDF-1.7\n{body}trailer << /Root 1 0 R /Size {len(objects) + 1} >>\n%%EOF\n".encode()


def make_bookmarks(pages: int, *bookmarks: tuple[str, int | str]) -> list[str]:
    """Return the objects of nested bookmarks, each inside the one before it."""
    root = 5 + 2 * pages
    last = root + len(bookmarks)
    objects = [f"<< /Type /Outlines /First {root + 1} 0 R /Last {root + 1} 0 R >>"]
    for number, (title, page) in enumerate(bookmarks, root + 1):
        inner = f"/First {number + 1} 0 R /Last {number + 1} 0 R" if number < last else ""
        place = f"/Dest [{4 + 2 * page} 0 R /Fit]" if isinstance(page, int) else page
        objects.append(f"<< /Title ({title}) /Parent {number - 1} 0 R {place} {inner} >>")
    return objects


CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>
<dc:title>Il viaggio</dc:title><dc:creator>Ada Rossi</dc:creator><dc:language>it</dc:language></metadata><manifest>
<item id="b" href="due%23.xhtml" media-type="application/xhtml+xml"/>
<item id="a" href="uno.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="a"/><itemref idref="b"/></spine></package>"""


def make_epub(**parts: str) -> bytes:
    return make_zip(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER,
            "OEBPS/book.opf": PACKAGE,
            "OEBPS/uno.xhtml": "<html><head><title/></head><body><h1><a href='uno.xhtml'>Uno</a></h1>"
            "<p>La città era lontana.</p></body>",
            "OEBPS/due#.xhtml": "<html><body><header><h1>Due</h1></header><p>Poi piovve.</p></body></html>",
        }
        | {name.replace("__", "/").replace("_xml", ".xml"): content for name, content in parts.items()}
    )


def saved(document) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def make_odt():
    document = OpenDocumentText()
    document.text.addElement(H(outlinelevel=1, text="Guida"))
    paragraph = P(text="Il codice del cancello è 4711.")
    comment = Annotation()
    comment.addElement(Creator(text="Ada"))
    comment.addElement(P(text="da verificare"))
    paragraph.addElement(comment)
    document.text.addElement(paragraph)
    items = List()
    for word in ("uno", "due"):
        item = ListItem()
        item.addElement(P(text=word))
        items.addElement(item)
    document.text.addElement(items)
    return saved(document)


def make_ods():
    document = OpenDocumentSpreadsheet()
    style = Style(name="hidden", family="table")
    style.addElement(TableProperties(display="false"))
    document.automaticstyles.addElement(style)
    for name, rows in (("Prezzi", [["Voce", "Prezzo"], ["Vite", 1.5]]), ("Segreti", [["margine", 0.25]])):
        sheet = Table(name=name, stylename=style) if name == "Segreti" else Table(name=name)
        for values in rows:
            row = TableRow()
            for value in values:
                typed = {"valuetype": "string"} if isinstance(value, str) else {"valuetype": "float", "value": value}
                cell = TableCell(**typed)
                cell.addElement(P(text=str(value)))
                row.addElement(cell)
            sheet.addElement(row)
        sheet.addElement(TableRow(numberrowsrepeated=1_000_000))
        document.spreadsheet.addElement(sheet)
    return saved(document)


def make_odp():
    document = OpenDocumentPresentation()
    layout = PageLayout(name="layout")
    document.automaticstyles.addElement(layout)
    master = MasterPage(name="master", pagelayoutname=layout)
    document.masterstyles.addElement(master)
    for title, text in (("Piano", "Si parte a maggio."), ("Costi", "Sono 900 euro.")):
        page = Page(masterpagename=master)
        for kind, words in (("title", title), ("outline", text)):
            frame = Frame(attributes={"class": kind}, check_grammar=False)
            frame.setAttrNS("urn:oasis:names:tc:opendocument:xmlns:presentation:1.0", "class", kind)
            box = TextBox()
            box.addElement(P(text=words))
            frame.addElement(box)
            page.addElement(frame)
        document.presentation.addElement(page)
    return saved(document)
