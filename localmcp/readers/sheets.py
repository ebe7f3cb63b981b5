"""Reads workbooks (.xlsx, .xls, .xlsb, .ods): every row is a line that names its values."""

from __future__ import annotations

import io
from collections.abc import Iterator
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
    pieces: list[str] = []
    starts: list[tuple[int, int]] = []
    sheets: list[str] = []
    offset = 0
    try:
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(data))
        for sheet in workbook.sheets_metadata:
            title = one_line(sheet.name) + ("" if sheet.visible == SheetVisibleEnum.Visible else " (hidden)")
            sheets.append(title)
            is_sheet = sheet.typ == SheetTypeEnum.WorkSheet
            rows = workbook.get_sheet_by_name(sheet.name).to_python(skip_empty_area=False) if is_sheet else []
            expected = -1
            for number, text in _lines(title, rows):
                if number != expected:
                    # The empty line above the name of a sheet belongs to the sheet before.
                    starts.append((offset + (not number and offset > 0), number))
                expected = number + 1 if text.startswith("- ") else -1
                text = f"\n{text}" if not number and offset else text
                pieces.append(text)
                offset += len(text)
    except (CalamineError, OSError, ValueError) as error:
        raise UnreadableDocument(f"{name} is damaged: {' '.join(str(error).split())}"[:300]) from error
    places = {"metadata": {"sheets": sheets}, "row_starts": tuple(starts)}
    return office_document(name, kind, "".join(pieces).rstrip("\n"), properties, **places)


def _lines(title: str, rows: list[list[Any]]) -> Iterator[tuple[int, str]]:
    """Yield the number of each row that is not empty, and its text; before them 0 and the name of the sheet."""
    names: dict[int, str] | None = None
    """By column; None until a row of names or of values."""
    titled = False
    for number, values in enumerate(rows, 1):
        cells = {column: text for column, value in enumerate(values) if (text := _shown(value))}
        if cells and not titled:
            yield 0, f"## {title}\n\n"
            titled = True
        words = len(set(cells.values())) == len(cells) and all(isinstance(values[column], str) for column in cells)
        if cells and names is None and (len(cells) == 1 or words):
            names = cells if len(cells) > 1 else None
            yield number, " | ".join(cells.values()) + "\n\n"
        elif cells:
            names = names or {}
            named = (f"{names[column]}: {text}" if column in names else text for column, text in cells.items())
            yield number, f"- {'; '.join(named)}\n"


def _shown(value: Any) -> str:
    """Return a value as people search for it: whole numbers without an exponent, dates without an empty time."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e20 else f"{value:.15g}"
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(" ", "minutes")
    return str(value) if isinstance(value, date | time | timedelta) else " ".join(visible(str(value)).split())
