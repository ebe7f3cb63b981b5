"""Reads workbooks (.xlsx, .xls, .xlsb, .ods): every row is a line that names its values."""

from __future__ import annotations

import io
from datetime import date, datetime, time, timedelta
from typing import Any

from python_calamine import CalamineError, CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, one_line, visible
from localmcp.readers.office import office_document
from localmcp.readers.packages import OLE_MAGIC, Package, suffix_of


def read_sheets(data: bytes, name: str) -> Document:
    """Return the values as they were last computed, sheet by sheet; hidden sheets say so.

    Below a row of column names a row reads `- name: value; name: value`, so that a passage from the middle of a long
    sheet still says what its values are.
    """
    kind = suffix_of(name).lstrip(".")
    properties: dict[str, str] = {}
    if not (data.startswith(OLE_MAGIC) and kind == "xls"):
        package = Package(data, name)
        properties = package.properties("meta.xml" if kind == "ods" else "docProps/core.xml")
        if kind == "ods":
            package.read("content.xml")  # Says so if it is encrypted.
    try:
        book = _Book(CalamineWorkbook.from_filelike(io.BytesIO(data)))
    except (CalamineError, OSError, ValueError) as error:
        raise UnreadableDocument(f"{name} is damaged: {' '.join(str(error).split())}"[:300]) from error
    places = {"metadata": {"sheets": book.sheets}, "row_starts": tuple(book.starts)}
    return office_document(name, kind, "".join(book.pieces).rstrip("\n"), properties, **places)


class _Book:
    """The text of a workbook, where each run of rows begins in it, and the names of the sheets."""

    def __init__(self, workbook: CalamineWorkbook) -> None:
        self.pieces: list[str] = []
        self.starts: list[tuple[int, int]] = []
        self.sheets: list[str] = []
        self._offset = 0
        for sheet in workbook.sheets_metadata:
            title = one_line(sheet.name) + ("" if sheet.visible == SheetVisibleEnum.Visible else " (hidden)")
            self.sheets.append(title)
            if sheet.typ == SheetTypeEnum.WorkSheet:
                rows = workbook.get_sheet_by_name(sheet.name).to_python(skip_empty_area=False)
                self._add_sheet(title, rows)

    def _write(self, text: str) -> None:
        self.pieces.append(text)
        self._offset += len(text)

    def _add_sheet(self, title: str, rows: list[list[Any]]) -> None:
        names: dict[int, str] = {}
        expected, begun, titled = -1, False, False
        for number, values in enumerate(rows, 1):
            cells = {column: text for column, value in enumerate(values) if (text := _shown(value))}
            if not cells:
                continue
            if not titled:
                self._write("\n" if self._offset else "")
                self.starts.append((self._offset, 0))
                self._write(f"## {title}\n\n")
                titled = True
            if number != expected:
                self.starts.append((self._offset, number))
            words = all(isinstance(values[column], str) for column in cells)
            heads = not begun and (len(cells) == 1 or (words and len(set(cells.values())) == len(cells)))
            if heads:
                names, begun = (cells, True) if len(cells) > 1 else ({}, False)
                self._write(" | ".join(cells.values()) + "\n\n")
            else:
                begun = True
                named = (f"{names[column]}: {text}" if column in names else text for column, text in cells.items())
                self._write(f"- {'; '.join(named)}\n")
            expected = -1 if heads else number + 1


def _shown(value: Any) -> str:
    """Return a value as people search for it: whole numbers without an exponent, dates without an empty time."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e20 else f"{value:.15g}"
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "minutes")
    if isinstance(value, date | time | timedelta):
        return str(value)
    return " ".join(visible(str(value)).split())
