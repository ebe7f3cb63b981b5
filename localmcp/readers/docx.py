"""Reads Word files (.docx) as Markdown, part by part as they are unpacked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document
from localmcp.readers.drawings import chart_text, diagram_texts
from localmcp.readers.markdown import RAISED, pipe_table
from localmcp.readers.office import (
    heading_block,
    join_blocks,
    main_part,
    office_document,
    office_lines,
    read_properties,
    related,
    relations,
    remark_block,
)
from localmcp.readers.packages import Package

_SKIPPED = frozenset(("Fallback", "del", "moveFrom", "rPr", "pPrChange", "sectPr"))
"""Elements that are not the text: older forms of the same thing, what was deleted, formats."""
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}

MOST_SPANNED = 63
"""Columns that a table of Word may have."""


def read_docx(data: bytes, name: str) -> Document:
    """Return the body with notes and comments below what they are about; headers and footers last."""
    package = Package(data, name)
    part = main_part(package, "word/document.xml")
    parts = relations(package, part)
    remarks = {
        f"{element}Reference": package.walk_all(related(parts, f"{element}s"), _RemarkReader(element)).remarks
        for element in ("footnote", "endnote", "comment")
    }
    remarks["chart"] = {
        key: chart_text(package, relation.path) for key, relation in parts.items() if relation.kind == "chart"
    }
    remarks["relIds"] = {
        key: "\n\n".join(diagram_texts(package, relation.path))
        for key, relation in parts.items()
        if relation.kind == "diagramData"
    }
    body = _Body(
        _read_styles(package, related(parts, "styles")), _numbered(package, related(parts, "numbering")), remarks
    )
    package.walk(part, body)
    blocks = body.blocks + _margins(package, related(parts, "header"), "Header")
    blocks += _margins(package, related(parts, "footer"), "Footer")
    return office_document(name, "docx", join_blocks(blocks), read_properties(package))


@dataclass(slots=True)
class _Style:
    name: str = ""
    parent: str = ""
    level: int | None = None
    """0-based level in the outline."""
    numbering: str = ""
    """List that its paragraphs are items of."""


@dataclass(slots=True)
class _Paragraph:
    pieces: list[str] = field(default_factory=list[str])
    style: str = ""
    level: int | None = None
    numbering: str | None = None
    indent: int = 0
    remarks: list[str] = field(default_factory=list[str])

    def text(self) -> str:
        return office_lines("".join(self.pieces))


@dataclass(slots=True)
class _Table:
    rows: list[list[str]] = field(default_factory=list[list[str]])
    cell: list[str] = field(default_factory=list[str])
    span: int = 1
    """Columns that the cell takes."""


class _Body:
    """Writes the paragraphs, lists and tables of a part as blocks of Markdown for `join_blocks`."""

    def __init__(
        self,
        styles: dict[str, _Style] | None = None,
        numbered: dict[tuple[str, int], bool] | None = None,
        remarks: dict[str, dict[str, str]] | None = None,
    ) -> None:
        self.blocks: list[str] = []
        self._styles = styles or {}
        self._numbered = numbered or {}
        self._remarks = remarks or {}
        self._paragraphs: list[_Paragraph] = []
        self._tables: list[_Table] = []
        self._counts: dict[tuple[str, int], int] = {}
        self._skipping = 0
        self._in_text = self._raised = False
        self._list = ""
        """Numbering of the list whose item was written last."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "r":
            self._raised = False
        elif tag == "vertAlign":
            self._raised = attributes.get("val") == "superscript"
        if self._skipping or tag in _SKIPPED:
            self._skipping += 1
        elif tag == "p":
            self._paragraphs.append(_Paragraph())
        elif tag == "t":
            self._in_text = True
        elif tag == "tbl":
            self._tables.append(_Table())
        elif tag == "tr" and self._tables:
            self._tables[-1].rows.append([])
        elif tag == "gridSpan" and self._tables and (columns := attributes.get("val", "")).isdecimal():
            self._tables[-1].span = min(int(columns), MOST_SPANNED)
        elif self._paragraphs:
            self._describe(self._paragraphs[-1], tag, attributes)

    def _describe(self, paragraph: _Paragraph, tag: str, attributes: dict[str, str]) -> None:
        value = attributes.get("val", "")
        if tag in _BREAKS:
            # A stop of the tabulator has the same name as the character, with a position.
            paragraph.pieces.append("" if "pos" in attributes else _BREAKS[tag])
        elif tag == "pStyle":
            paragraph.style = value
        elif tag == "outlineLvl" and value.isdecimal():
            paragraph.level = int(value)
        elif tag == "ilvl" and value.isdecimal():
            paragraph.indent = min(int(value), 8)
        elif tag == "numId":
            paragraph.numbering = value
        elif tag == "docPr" and attributes.get("descr"):
            paragraph.pieces.append(f" {attributes['descr']} ")
        elif tag in self._remarks:
            key = next((attributes[name] for name in ("id", "r:id", "r:dm") if name in attributes), "")
            paragraph.remarks.append(self._remarks[tag].get(key, ""))

    def text(self, piece: str) -> None:
        if self._in_text and self._paragraphs and not self._skipping:
            self._paragraphs[-1].pieces.append(piece.translate(RAISED) if self._raised else piece)

    def end(self, tag: str) -> None:
        if self._skipping:
            self._skipping -= 1
        elif tag == "t":
            self._in_text = False
        elif tag == "p" and self._paragraphs:
            self._add(self._paragraphs.pop())
        elif tag == "tc" and self._tables and self._tables[-1].rows:
            table = self._tables[-1]
            table.rows[-1] += [" ".join(table.cell), *[""] * (table.span - 1)]
            table.span = 1
            table.cell.clear()
        elif tag == "tbl" and self._tables:
            rows = self._tables.pop().rows
            # A table in a cell is a part of that cell's line.
            self._put("; ".join(", ".join(filter(None, row)) for row in rows) if self._tables else pipe_table(rows))

    def _add(self, paragraph: _Paragraph) -> None:
        text = paragraph.text()
        style, level, numbering = self._look_up(paragraph.style)
        if paragraph.numbering is None:
            paragraph.numbering = numbering
        if text and not style.startswith("toc "):
            self._put(self._block(paragraph, text, level if paragraph.level is None else paragraph.level))
        for remark in paragraph.remarks:
            self._put(remark)

    def _block(self, paragraph: _Paragraph, text: str, level: int | None) -> str:
        if level is not None and level < 9 and not self._tables:
            return heading_block(text, min(level + 1, 6))
        numbering = paragraph.numbering
        if not numbering or numbering == "0":
            return text
        joined, self._list = "\0" if self._list == numbering else "", numbering
        return f"{joined}{'  ' * paragraph.indent}{self._mark(paragraph)} {' '.join(text.split())}"

    def _mark(self, paragraph: _Paragraph) -> str:
        key = (paragraph.numbering or "", paragraph.indent)
        if not self._numbered.get(key):
            return "-"
        self._counts[key] = self._counts.get(key, 0) + 1
        for number, indent in list(self._counts):
            if number == key[0] and indent > key[1]:
                del self._counts[number, indent]
        return f"{self._counts[key]}."

    def _put(self, block: str) -> None:
        if not block:
            return
        if not re.match(r"\0? *(-|\d+\.) ", block):
            self._list = ""
        if self._tables:
            self._tables[-1].cell.append(block.lstrip("\0 "))
            self._list = ""
        else:
            self.blocks.append(block)

    def _look_up(self, identifier: str) -> tuple[str, int | None, str]:
        """Return name, level in the outline and list of a style, or of those that it is based on."""
        name, numbering, level = "", "", None
        for _ in range(10):
            style = self._styles.get(identifier)
            if style is None:
                break
            name, numbering = name or style.name, numbering or style.numbering
            level = style.level if level is None else level
            identifier = style.parent
        return name, level, numbering


def _read_styles(package: Package, paths: list[str]) -> dict[str, _Style]:
    styles: dict[str, _Style] = {}
    style = _Style()
    for element in package.elements(*paths):
        value = element.attributes.get("val", "")
        if element.tag == "style":
            style = styles[element.attributes.get("styleId", "")] = _Style()
        elif element.tag == "name":
            style.name = value.lower()
            heading = re.fullmatch(r"heading (\d)", style.name)
            style.level = int(heading[1]) - 1 if heading else 0 if style.name == "title" else style.level
        elif element.tag == "basedOn":
            style.parent = value
        elif element.tag == "outlineLvl" and value.isdecimal():
            style.level = int(value)
        elif element.tag == "numId":
            style.numbering = value
    return styles


def _numbered(package: Package, paths: list[str]) -> dict[tuple[str, int], bool]:
    """Return (numbering id, level) -> whether its items are numbered rather than marked by bullets."""
    formats: dict[tuple[str, int], bool] = {}
    numbered: dict[tuple[str, int], bool] = {}
    abstract, number, level = "", "", 0
    for element in package.elements(*paths):
        value = element.attributes.get("val", "")
        if element.tag == "abstractNum":
            abstract, number = element.attributes.get("abstractNumId", ""), ""
        elif element.tag == "lvl":
            written = element.attributes.get("ilvl", "0")
            level = int(written) if written.isdecimal() else 0
        elif element.tag == "numFmt" and not number:
            formats[abstract, level] = value not in ("bullet", "none")
        elif element.tag == "num":
            number = element.attributes.get("numId", "")
        elif element.tag == "abstractNumId" and number:
            numbered |= {(number, at): flag for (key, at), flag in formats.items() if key == value}
    return numbered


class _RemarkReader(_Body):
    """Footnotes or comments by their id."""

    def __init__(self, element: str) -> None:
        super().__init__()
        self.remarks: dict[str, str] = {}
        self._element = element
        self._remark: tuple[str, str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == self._element:
            # Separators between the text and the notes are notes too, of a type.
            self._remark = None if attributes.get("type") else (attributes.get("id", ""), attributes.get("author", ""))
            self.blocks.clear()
        super().start(tag, attributes)

    def end(self, tag: str) -> None:
        super().end(tag)
        if tag == self._element and self._remark and self.blocks:
            identifier, author = self._remark
            text = "\n".join(self.blocks).replace("\0", "")
            self.remarks[identifier] = remark_block(self._element.capitalize(), text, author)


def _margins(package: Package, paths: list[str], label: str) -> list[str]:
    """Headers or footers of the pages, each text once."""
    texts: dict[str, None] = {}
    for path in paths:
        body = _Body()
        try:
            package.walk(path, body)
        except UnreadableDocument:
            continue  # The text counts more than what is above and below it.
        if text := " ".join(" ".join(body.blocks).split()):
            texts[text] = None
    return [f"{label}: {text}" for text in texts if re.search(r"[^\W\d]{2}", text)]
