"""Reads workbooks (.xlsx, .xls, .xlsb, .ods): every row is a line that names its values."""

from __future__ import annotations

import io
from datetime import date, datetime, time, timedelta
from typing import Any

from python_calamine import CalamineError, CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

from localmcp.errors import UnreadableDocument
from localmcp.readers.document import Document, one_line
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
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
        text, starts, sheets = _write_sheets(book)
    except (CalamineError, OSError, ValueError) as error:
        raise UnreadableDocument(f"{name} is damaged: {' '.join(str(error).split())}"[:300]) from error
    return office_document(name, kind, text, properties, title="", metadata={"sheets": sheets}, row_starts=starts)


def _write_sheets(book: CalamineWorkbook) -> tuple[str, tuple[tuple[int, int], ...], list[str]]:
    """Return the text, (offset, row) where each run of rows begins, and the names of the sheets."""
    pieces: list[str] = []
    starts: list[tuple[int, int]] = []
    sheets: list[str] = []
    offset = 0

    def write(piece: str) -> None:
        nonlocal offset
        pieces.append(piece)
        offset += len(piece)

    for sheet in book.sheets_metadata:
        title = one_line(sheet.name) + ("" if sheet.visible == SheetVisibleEnum.Visible else " (hidden)")
        sheets.append(title)
        if sheet.typ != SheetTypeEnum.WorkSheet:
            continue
        names: dict[int, str] = {}
        expected, begun, titled = -1, False, False
        for number, values in enumerate(book.get_sheet_by_name(sheet.name).to_python(skip_empty_area=False), 1):
            cells = {column: text for column, value in enumerate(values) if (text := _shown(value))}
            if not cells:
                continue
            if not titled:
                write("\n" if offset else "")
                starts.append((offset, 0))
                write(f"## {title}\n\n")
                titled = True
            if number != expected:
                starts.append((offset, number))
            words = all(isinstance(values[column], str) for column in cells)
            heads = not begun and (len(cells) == 1 or (words and len(set(cells.values())) == len(cells)))
            if heads:
                names, begun = (cells, True) if len(cells) > 1 else ({}, False)
                write(" | ".join(cells.values()) + "\n\n")
            else:
                begun = True
                named = (f"{names[column]}: {text}" if column in names else text for column, text in cells.items())
                write(f"- {'; '.join(named)}\n")
            expected = -1 if heads else number + 1
    return "".join(pieces).rstrip("\n"), tuple(starts), sheets


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
    return " ".join(str(value).split())
