"""Reads workbooks (.xlsx): every row is a line that names its values, sheet by sheet, as they are unpacked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import reduce

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, one_line
from localmcp.readers.drawings import chart_text, read_drawing
from localmcp.readers.office import Relation, main_part, read_properties, related, relations, sheets_document
from localmcp.readers.packages import Package
from localmcp.readers.tables import Cells, Row, SheetWriter, plain_number

EXCEL_ROWS = 1_048_576
EXCEL_COLUMNS = 16_384
_DATES = dict.fromkeys([*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)], "date")
_FORMATS = {str(number): shown for number, shown in (_DATES | {9: "percent", 10: "percent", 46: "duration"}).items()}
"""What the formats that every workbook has show a number as, by their id (ECMA-376, 18.8.30)."""
_LAST_DAY = 2_958_465
"""9999-12-31 as Excel counts."""
_NO_COLUMN = -1
"""Column of a remark in a row without values."""

RawCell = tuple[str, str, str]
"""Type, number of the style, value, as the file has them."""


def read_xlsx(data: bytes, name: str) -> Document:
    """Return the values as they were last computed, with comments; hidden sheets say so."""
    package = Package(data, name)
    part = main_part(package, "xl/workbook.xml")
    parts = relations(package, part)
    book = _Book(package, parts)
    sheets: list[str] = []
    writer = SheetWriter()
    for element in package.elements(part):
        if element.tag == "workbookPr":
            book.from_1904 = element.attributes.get("date1904") in ("1", "true")
        relation = parts.get(element.attributes.get("r:id", ""))
        if element.tag != "sheet" or relation is None or relation.kind not in ("worksheet", "chartsheet"):
            continue
        hidden = element.attributes.get("state", "visible") != "visible"
        title = one_line(element.attributes.get("name", "")) + (" (hidden)" if hidden else "")
        sheets.append(title)
        writer.begin_sheet(title)
        book.write_rows(relation.path, writer)
    return sheets_document(name, "xlsx", writer, sheets, read_properties(package))


class _Book:
    """Strings and formats that the sheets of a workbook share."""

    def __init__(self, package: Package, parts: dict[str, Relation]) -> None:
        self.from_1904 = False
        self._package = package
        self._strings = package.walk_all(related(parts, "sharedStrings"), _StringReader()).strings
        self._styles = _number_styles(package, related(parts, "styles"))

    def write_rows(self, path: str, writer: SheetWriter) -> None:
        """Write the rows of a sheet that hold anything."""
        comments = self._comments(path)
        for number, text in self._drawn(path):
            comments.setdefault(number, []).append(text)

        commented = sorted(comments, reverse=True)

        def write_lonely(before: int) -> None:
            while commented and commented[-1] < before:
                row = commented.pop()
                writer.add(Row(row, {_NO_COLUMN: "; ".join(comments.pop(row))}, False))

        def write(number: int, cells: dict[int, RawCell]) -> None:
            write_lonely(number)
            if commented and commented[-1] == number:
                commented.pop()
            values: Cells = {}
            for column, cell in sorted(cells.items()):
                if text := self._text(*cell):
                    values[column] = text
            if values or number in comments:
                only_words = all(kind in ("s", "inlineStr", "str") for kind, _, value in cells.values() if value)
                writer.add(Row(number, values, only_words, tuple(comments.pop(number, ()))))

        self._package.walk(path, _SheetReader(self._package.name, write))
        write_lonely(EXCEL_ROWS + 1)

    def _drawn(self, sheet: str) -> Iterator[tuple[int, str]]:
        """Yield (row, text) of the text boxes and charts over a sheet; what a chart shows is in the cells."""
        for path in related(relations(self._package, sheet), "drawing"):
            paragraphs, charts = read_drawing(self._package, path)
            yield from paragraphs
            parts = relations(self._package, path)
            for row, key in charts:
                if key in parts and (text := chart_text(self._package, parts[key].path, values=False)):
                    yield max(row, 1), text

    def _text(self, kind: str, style: str, value: str) -> str:
        if kind == "s":
            return _item(self._strings, value)
        if kind in ("inlineStr", "str", "e", "d"):
            return " ".join(value.split())
        if kind == "b":
            return "True" if value == "1" else "False"
        try:
            number = float(value)
        except ValueError:
            return " ".join(value.split())
        shown_as = _item(self._styles, style)
        if shown_as == "date" and 0 <= number <= _LAST_DAY:
            return self._date(number)
        if shown_as == "percent":
            return f"{100 * number:.12g} %"
        if shown_as == "duration" and abs(number) <= _LAST_DAY:
            return _duration(number)
        return plain_number(value, number)

    def _date(self, days: float) -> str:
        if days < 1 and not self.from_1904:
            return (datetime(1900, 1, 1) + timedelta(days=days)).time().isoformat("seconds")
        # Excel counts a 29th of February 1900 that there was not.
        start = datetime(1904, 1, 1) if self.from_1904 else datetime(1899, 12, 30 if days >= 60 else 31)
        moment = start + timedelta(seconds=round(days * 86_400))
        return moment.date().isoformat() if days == int(days) else moment.isoformat()

    def _comments(self, sheet: str) -> dict[int, list[str]]:
        """Return row -> its comments."""
        comments: dict[int, list[str]] = {}
        paths = related(relations(self._package, sheet), "comments")
        for cell, text in self._package.walk_all(paths, _CommentReader()).comments:
            comments.setdefault(_row(cell), []).append(f"comment on {cell}: {text}")
        return comments


def _item(items: list[str], number: str) -> str:
    """Return the item of that number, which comes from the file; "" if there is none."""
    return items[int(number)] if number.isdecimal() and int(number) < len(items) else ""


def _duration(days: float) -> str:
    """Return hours, which may be more than a day, minutes and seconds."""
    seconds = round(abs(days) * 86_400)
    return f"{'-' if days < 0 else ''}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class _SheetReader:
    """Hands the cells of a sheet that have a value to `write`, row by row."""

    def __init__(self, name: str, write: Callable[[int, dict[int, RawCell]], None]) -> None:
        self._write = write
        self._name = name
        self._row = 0
        self._cells: dict[int, RawCell] = {}
        self._column = -1
        self._kind = self._style = ""
        self._value: list[str] = []
        self._formula = ""
        self._in_value = self._in_formula = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "row":
            self._begin_row(attributes.get("r", ""))
        elif tag == "c":
            self._column = _column(attributes.get("r", ""), self._column + 1)
            self._kind, self._style = attributes.get("t", "n"), attributes.get("s", "")
            self._value.clear()
            self._formula = ""
        elif tag == "f":
            self._in_formula = True
        elif tag in ("v", "t"):
            self._in_value = True

    def _begin_row(self, number: str) -> None:
        self._row = int(number) if number.isdecimal() else self._row + 1
        self._column = -1
        self._cells = {}
        if self._row > EXCEL_ROWS:
            raise UnreadableDocument(f"{self._name} is refused: a sheet claims more than {EXCEL_ROWS:,} rows.")

    def text(self, piece: str) -> None:
        if self._in_value:
            self._value.append(piece)
        elif self._in_formula:
            self._formula += piece

    def end(self, tag: str) -> None:
        if tag in ("v", "t"):
            self._in_value = False
        elif tag == "f":
            self._in_formula = False
        elif tag == "c" and self._column < EXCEL_COLUMNS:
            if any(self._value):
                self._cells[self._column] = self._kind, self._style, "".join(self._value)
            elif self._formula:  # Some programs write what is to be computed, and no value.
                self._cells[self._column] = "str", "", f"={self._formula}"
        elif tag == "row" and self._cells:
            self._write(self._row, self._cells)


def _column(reference: str, following: int) -> int:
    """0-based column of `AB12`; cells without a reference follow one another."""
    letters = re.match(r"[A-Z]{1,3}", reference)
    return reduce(lambda column, letter: 26 * column + ord(letter) - 64, letters[0], 0) - 1 if letters else following


def _row(reference: str) -> int:
    digits = re.search(r"\d{1,7}", reference)
    return int(digits[0]) if digits else 0


class _StringReader:
    """The strings that cells share, without their phonetic readings."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._pieces: list[str] = []
        self._in_text = self._phonetic = False

    def start(self, tag: str, _attributes: dict[str, str]) -> None:
        if tag == "si":
            self._pieces = []
        elif tag == "rPh":
            self._phonetic = True
        self._in_text = tag == "t" and not self._phonetic

    def text(self, piece: str) -> None:
        if self._in_text:
            self._pieces.append(piece)

    def end(self, tag: str) -> None:
        self._in_text = False
        if tag == "rPh":
            self._phonetic = False
        elif tag == "si":
            self.strings.append(" ".join("".join(self._pieces).split()))


class _CommentReader(_StringReader):
    """The comments of a sheet with their cells."""

    def __init__(self) -> None:
        super().__init__()
        self.comments: list[tuple[str, str]] = []
        self._reference = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "comment":
            self._reference, self._pieces = attributes.get("ref", ""), []
        super().start(tag, attributes)

    def end(self, tag: str) -> None:
        super().end(tag)
        if tag == "comment":
            # What a threaded comment says to older programs is not part of it.
            text = "".join(self._pieces).rpartition("\nComment:\n")[2]
            self.comments.append((self._reference, " ".join(text.split())))


def _number_styles(package: Package, paths: list[str]) -> list[str]:
    """Return what each cell style shows a number as: `date`, `duration` or `percent`; "" for a number."""
    styles: list[str] = []
    formats, in_cells = dict(_FORMATS), False
    for element in package.elements(*paths):
        if element.tag == "numFmt":
            formats[element.attributes.get("numFmtId", "")] = _shown_as(element.attributes.get("formatCode", ""))
        elif element.tag in ("cellXfs", "cellStyleXfs", "cellStyles"):
            in_cells = element.tag == "cellXfs"
        elif element.tag == "xf" and in_cells:
            styles.append(formats.get(element.attributes.get("numFmtId", "0"), ""))
    return styles


def _shown_as(format_code: str) -> str:
    """Return what a cell of that format shows its number as; "" for a number."""
    code = re.sub(r'"[^"]*"|\\.', "", format_code)
    if re.search(r"\[(h+|m+|s+)\]", code, re.I):
        return "duration"
    code = re.sub(r"\[[^\]]*\]", "", code)
    if re.search(r"[ymdhs]", code, re.I):
        return "date"
    return "percent" if "%" in code else ""
