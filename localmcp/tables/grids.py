"""Grids of cells in documents: CSV, workbooks, records of JSON, and tables in text."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

LEAST_ROWS = 3
MOST_ROWS = 200_000
SHEETS = frozenset((".xlsx", ".xlsm", ".xls", ".xlsb", ".ods"))

Row = tuple[int, Sequence[Any]]
"""(line or row in the document from 1, cells: texts, or values that a workbook or JSON holds with a type)"""


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of cells as a document has them."""

    title: str
    """Of the sheet, or the heading above; "" where the document has one grid only."""
    rows: list[Row]
    is_headed: bool = False
    """The first row is known to be the header."""
    mark: str = "."
    """The decimal mark where numbers do not show it."""


def read_grids(name: str, text: str, read: Callable[[], bytes]) -> Iterator[Grid]:
    """Yield the grids of a document; `read` gives the bytes of its file.

    Raises:
        CalamineError, csv.Error, ValueError, RecursionError: it is damaged, or not what its name says.
    """
    suffix = PurePath(name).suffix.lower()
    if suffix in SHEETS:
        yield from _sheet_grids(read())
    elif suffix in (".csv", ".tsv", ".tab"):
        yield _csv_grid(text)
    elif suffix in (".json", ".jsonl", ".ndjson"):
        yield from _json_grids(text)
    else:
        yield from _text_grids(text)


def _csv_grid(text: str) -> Grid:
    """Return the grid of a text with delimiters; the delimiter is the one that most lines have equally often."""
    lines = text[:100_000].splitlines()[:50]

    def fit(delimiter: str) -> tuple[int, int]:
        counts = Counter(len(cells) for cells in csv.reader(lines, delimiter=delimiter) if len(cells) > 1)
        return max(((often, cells) for cells, often in counts.most_common(1)), default=(0, 0))

    delimiter = max(",;\t|", key=fit)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    rows: list[Row] = []
    line = 1
    for cells in reader:
        rows.append((line, cells))
        line = reader.line_num + 1
        if len(rows) > MOST_ROWS:
            break
    return Grid("", rows, mark="," if delimiter == ";" else ".")


def _sheet_grids(data: bytes) -> Iterator[Grid]:
    """Yield the grid of each sheet of a workbook (.xlsx, .xls, .xlsb, .ods); merged cells are filled."""
    from python_calamine import CalamineWorkbook, SheetTypeEnum

    book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    for name in [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]:
        sheet = book.get_sheet_by_name(name)
        cells = sheet.to_python(skip_empty_area=False, nrows=MOST_ROWS)
        for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
            for row in cells[top : bottom + 1]:
                row[left : right + 1] = [cells[top][left]] * len(row[left : right + 1])
        yield Grid(name, list(enumerate(cells, 1)))


def _json_grids(text: str) -> Iterator[Grid]:
    """Yield a grid for each list of like records: at the top, or by its name in an object; JSON Lines are one list."""
    try:
        whole: Any = json.loads(text)
    except ValueError:
        whole = [json.loads(line) for line in text.splitlines() if line.strip()]
    named = cast("dict[str, Any]", whole) if isinstance(whole, dict) else {"": whole}
    for name, value in named.items():
        records = cast("list[Any]", value)[:MOST_ROWS] if isinstance(value, list) else []
        if len(records) < LEAST_ROWS or not all(isinstance(record, dict) for record in records):
            continue
        flat = [dict(_flattened(record)) for record in records]
        names = list(dict.fromkeys(key for record in flat for key in record))
        if sum(map(len, flat)) >= 0.5 * len(flat) * len(names) > 0:
            cells = [(number, [record.get(key) for key in names]) for number, record in enumerate(flat, 1)]
            yield Grid(name, [(0, names), *cells], is_headed=True)


def _flattened(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        if isinstance(value, dict) and not prefix:
            yield from _flattened(cast("dict[str, Any]", value), f"{key}.")
        elif isinstance(value, dict | list):
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)
        else:
            yield f"{prefix}{key}", value


def _text_grids(text: str) -> Iterator[Grid]:
    """Yield the pipe tables of a text as readers write all tables: Markdown, HTML, Word and others."""
    heading, rows = "", list[Row]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = line.strip()
        if bare.startswith("|") and bare.count("|") > 1:
            cells = [_plain_cell(cell) for cell in re.split(r"(?<!\\)\|", bare.strip("|"))]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                rows.append((number, cells))
        elif rows:
            yield Grid(heading, rows, is_headed=True)
            rows = []
        if bare.startswith("#"):
            heading = bare.lstrip("#").strip()


def _plain_cell(cell: str) -> str:
    """Return the text of a cell without the signs of Markdown around it."""
    plain = cell.strip().replace("\\|", "|")
    link = re.fullmatch(r"\[([^]]*)\]\([^)]*\)", plain)
    return re.sub(r"^(\*\*|__|\*|_|`)(.+)\1$", r"\2", link[1] if link else plain)
