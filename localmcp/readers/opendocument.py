"""Reads OpenDocument texts, spreadsheets and slides (.odt, .ods, .odp), as LibreOffice writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

from localmcp.readers.document import Document, one_line, password_protected, set_fields
from localmcp.readers.markdown import pipe_table
from localmcp.readers.office import (
    Slide,
    heading_block,
    join_blocks,
    office_document,
    office_lines,
    remark_block,
    sheets_document,
    slides_document,
)
from localmcp.readers.packages import Package, XmlElement
from localmcp.readers.tables import Row, SheetWriter, plain_number

ReaderT = TypeVar("ReaderT", bound="_Reader")

MOST_COLUMNS = 16_384
_SKIPPED = frozenset(("tracked-changes", "sequence-decls", "note-citation", "ruby-text", "table-of-content"))
_VALUES = {"date": "date-value", "boolean": "boolean-value", "float": "value", "currency": "value"}
"""Attribute with the value of a cell by its type; of the others what is shown counts, as `15 %` and `08:30`."""


def read_odt(data: bytes, name: str) -> Document:
    """Return a text with its notes and comments below what they are about; headers and footers last."""
    package, reader = _open(data, name, _Reader())
    margins = package.walk_all(["styles.xml"], _MarginReader())
    text = join_blocks([*reader.blocks, *dict.fromkeys(margins.texts)])
    return office_document(name, "odt", text, _properties(package))


def read_odp(data: bytes, name: str) -> Document:
    """Return slides, each a page with its title, text and notes."""
    package, reader = _open(data, name, _Reader())
    return slides_document(name, "odp", reader.slides, _properties(package))


def read_ods(data: bytes, name: str) -> Document:
    """Return the sheets row by row; hidden ones say so."""
    package, reader = _open(data, name, _SheetReader())
    return sheets_document(name, "ods", reader.writer, reader.sheets, _properties(package))


def _open(data: bytes, name: str, reader: ReaderT) -> tuple[Package, ReaderT]:
    package = Package(data, name)
    if any(element.tag == "encryption-data" for element in package.elements("META-INF/manifest.xml")):
        raise password_protected(name)
    reader.charts = {
        path.removesuffix("/content.xml"): _chart_titles(package.elements(path))
        for path in package.paths
        if re.fullmatch(r"Object \d+/content\.xml", path)
    }
    package.walk("content.xml", reader)
    return package, reader


def _chart_titles(elements: list[XmlElement]) -> str:
    """Return the titles of a chart and of its axes; "" for another embedded object. Its values are in a sheet."""
    titled = (below.text for element, below in pairwise(elements) if (element.tag, below.tag) == ("title", "p"))
    return "; ".join(filter(None, map(one_line, titled)))


def _properties(package: Package) -> dict[str, Any]:
    values = {element.tag: element.text for element in package.elements("meta.xml")}
    return set_fields(
        title=values.get("title"),
        author=values.get("creator") or values.get("initial-creator"),
        created=values.get("creation-date"),
        modified=values.get("date"),
    )


@dataclass(slots=True)
class _Remark:
    """A comment or a note, and the paragraph that it interrupts."""

    label: str
    pieces: list[str]
    lines: list[str] = field(default_factory=list[str])
    author: str = ""


class _Reader:
    """Collects the blocks of a text, or those of each slide, for `join_blocks`."""

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.slides: list[Slide] = []
        self.charts: dict[str, str] = {}
        """Embedded object -> its titles."""
        self._pieces: list[str] = []
        self._interrupted: list[tuple[list[str], int]] = []
        """Text and level of each paragraph that is interrupted by one inside it, as by the caption in a frame."""
        self._reading = 0
        self._level = 0
        self._remarks: list[_Remark] = []
        self._after: list[str] = []
        """Remarks that follow the current paragraph."""
        self._lists = 0
        self._first_of_item = self._in_list = False
        self._tables: list[list[list[str]]] = []
        self._cell: list[str] = []
        self._in_title = self._in_notes = self._in_author = False
        self._skipping = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if self._skipping or tag in _SKIPPED:
            self._skipping += 1
        elif tag in ("p", "h"):
            self._begin_paragraph(tag, attributes)
        elif tag == "s":
            self._pieces.append(" ")
        elif tag in ("tab", "line-break"):
            self._pieces.append("\t" if tag == "tab" else "\n")
        elif tag in ("annotation", "note"):
            label = "Comment" if tag == "annotation" else attributes.get("note-class", "note").capitalize()
            self._remarks.append(_Remark(label, self._pieces))
            self._pieces = []
        elif tag == "creator":
            self._in_author = bool(self._remarks)
        elif tag == "list":
            self._lists += 1
        elif tag == "list-item":
            self._first_of_item = True
        elif tag == "frame":
            self._in_title = attributes.get("class") == "title"
        elif tag == "notes":
            self._in_notes = True
        elif tag == "page":
            self.slides.append(Slide())
        elif tag == "object" and (titles := self.charts.get(attributes.get("href", "").removeprefix("./"))):
            self._put(f"Chart: {titles}")
        else:
            self.start_table(tag, attributes)

    def start_table(self, tag: str, attributes: dict[str, str]) -> None:
        """Take the beginning of a table, a row or a cell."""
        if tag == "table":
            self._tables.append([])
        elif tag == "table-row" and self._tables:
            self._tables[-1].append([])
        elif tag == "table-cell":
            self._cell = []

    def _begin_paragraph(self, tag: str, attributes: dict[str, str]) -> None:
        level = attributes.get("outline-level", "1")
        self._interrupted.append((self._pieces, self._level))
        self._level = min(int(level), 6) if tag == "h" and level.isdecimal() else 0
        self._pieces = []
        self._reading += 1

    def text(self, piece: str) -> None:
        if self._skipping:
            return
        if self._in_author:
            self._remarks[-1].author += piece
        elif self._reading:
            self._pieces.append(re.sub(r"\s+", " ", piece))

    def end(self, tag: str) -> None:
        if self._skipping:
            self._skipping -= 1
        elif tag in ("p", "h"):
            self._end_paragraph()
        elif tag in ("annotation", "note") and self._remarks:
            remark = self._remarks.pop()
            self._pieces = remark.pieces
            if remark.lines:
                self._after.append(remark_block(remark.label, " ".join(remark.lines), remark.author))
        elif tag == "creator":
            self._in_author = False
        elif tag == "list":
            self._lists -= 1
        elif tag == "frame":
            self._in_title = False
        elif tag == "notes":
            self._in_notes = False
        else:
            self.end_table(tag)

    def end_table(self, tag: str) -> None:
        """Take the end of a table, a row or a cell."""
        if tag == "table-cell" and self._tables and self._tables[-1]:
            self._tables[-1][-1].append(" ".join(self._cell))
            self._cell = []
        elif tag == "table" and self._tables:
            rows = self._tables.pop()
            self._put(pipe_table(rows))

    def _end_paragraph(self) -> None:
        text = office_lines("".join(self._pieces))
        self._reading -= 1
        if self._remarks:
            self._remarks[-1].lines += [text] if text else []
        else:
            self._put(text)
            self._put_remarks()
        self._pieces, self._level = self._interrupted.pop()

    def _put_remarks(self) -> None:
        after, self._after = self._after, []
        for remark in after:
            self._put(remark)

    def _put(self, text: str) -> None:
        if not text:
            return
        if self._tables:
            self._cell.append(text)
        elif self.slides and self._in_title and not self._in_notes:
            self.slides[-1].title = self.slides[-1].title or one_line(text)
        else:
            (self.slides[-1].blocks if self.slides else self.blocks).append(self._block(text))

    def _block(self, text: str) -> str:
        if self._level:
            self._in_list = False
            return heading_block(text, self._level)
        if not self._lists:
            self._in_list = False
            return f"Notes: {text}" if self._in_notes else text
        mark = "- " if self._first_of_item else "  "
        joined = "\0" if self._in_list else ""
        self._first_of_item, self._in_list = False, True
        return f"{joined}{'  ' * min(self._lists - 1, 8)}{mark}{' '.join(text.split())}"


class _MarginReader(_Reader):
    """Headers and footers, which styles hold."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def end(self, tag: str) -> None:
        super().end(tag)
        if tag in ("header", "footer"):
            text = " ".join(" ".join(self.blocks).split())
            if re.search(r"[^\W\d]{2}", text):
                self.texts.append(f"{tag.capitalize()}: {text}")
            self.blocks.clear()


class _SheetReader(_Reader):
    """Writes the rows of sheets; rows and cells that repeat are counted, not copied."""

    def __init__(self) -> None:
        super().__init__()
        self.writer = SheetWriter()
        self.sheets: list[str] = []
        self._hidden: set[str] = set()
        self._style = ""
        self._row = self._repeated_rows = self._column = self._repeated = 0
        self._kind = self._value = ""
        self._cells: dict[int, str] = {}
        self._only_words = True
        self._depth = 0

    def start_table(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "style":
            self._style = attributes.get("name", "")
        elif tag == "table-properties" and attributes.get("display") == "false":
            self._hidden.add(self._style)
        elif tag == "table":
            self._depth += 1
            if self._depth == 1:
                self._begin_sheet(attributes)
        elif tag == "table-row":
            self._row += max(self._repeated_rows, 1)
            self._repeated_rows = _count(attributes.get("number-rows-repeated", "1"))
            self._column, self._cells, self._only_words = 0, {}, True
        elif tag in ("table-cell", "covered-table-cell"):
            self._repeated = _count(attributes.get("number-columns-repeated", "1"))
            self._kind = attributes.get("value-type", "")
            self._value = attributes.get(_VALUES.get(self._kind, ""), "")
            self._cell = []

    def _begin_sheet(self, attributes: dict[str, str]) -> None:
        hidden = attributes.get("style-name", "") in self._hidden
        self.sheets.append(one_line(attributes.get("name", "")) + (" (hidden)" if hidden else ""))
        self.writer.begin_sheet(self.sheets[-1])
        self._row = self._repeated_rows = 0

    def _put(self, text: str) -> None:
        if text:
            self._cell.append(" ".join(text.split()))

    def end_table(self, tag: str) -> None:
        if tag == "table":
            self._depth -= 1
        elif tag in ("table-cell", "covered-table-cell"):
            self._end_cell()
        elif tag == "table-row" and self._cells:
            self.writer.add(Row(self._row, self._cells, self._only_words))

    def _end_cell(self) -> None:
        self._put_remarks()
        text = " ".join([_number(self._value) or (self._cell[0] if self._cell else ""), *self._cell[1:]]).strip()
        if text and self._column < MOST_COLUMNS:
            self._only_words &= self._kind in ("", "string")
            for column in range(self._column, self._column + min(self._repeated, 100)):
                self._cells[column] = text
        self._column += self._repeated


def _count(value: str) -> int:
    return int(value) if value.isdecimal() and len(value) < 9 else 1


def _number(value: str) -> str:
    """Return a value as a person writes it: `2` for `2.0`, a day without its midnight."""
    value = value.removesuffix("T00:00:00")
    try:
        return plain_number(value, float(value))
    except ValueError:
        return {"true": "True", "false": "False"}.get(value, value)
