"""Grids of cells in documents, and the tables in them: where the header is, what is data, of which types."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, cast

from localmcp.tables.values import Column, count_marks, read_column

LEAST_ROWS, LEAST_COLUMNS = 3, 2
MOST_ROWS, MOST_COLUMNS = 200_000, 200
HEADER_ROWS = 25
"""Rows from the first among which the header is looked for."""
DELIMITERS = ",;\t|"
TOTAL = re.compile(
    r"((grand|sub)[ -]?)?totale?s?\b.*|\w*summe\b.*|(ins)?gesamt\b.*|somme\b.*|suma\b.*|sum", re.IGNORECASE
)
"""Begins a row that adds up those above, in the languages of most documents."""

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


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a document, ready for SQLite."""

    title: str
    columns: list[Column]
    rows: list[tuple[Any, ...]]
    """Values in the order of the columns; the last is the line or row in the document."""
    notes: list[str] = field(default_factory=list[str])
    """What was left out, or is not of a column's type."""


# ---------------------------------------------------------------- grids


def csv_grid(text: str) -> Grid:
    """Return the grid of a text with delimiters; the delimiter is the one that most lines have equally often."""
    lines = text.splitlines()[: 2 * HEADER_ROWS]
    delimiter = max(DELIMITERS, key=lambda sign: _fit(lines, sign))
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    rows: list[Row] = []
    line = 1
    for cells in reader:
        rows.append((line, cells))
        line = reader.line_num + 1
        if len(rows) > MOST_ROWS:
            break
    return Grid("", rows, mark="," if delimiter == ";" else ".")


def _fit(lines: Sequence[str], delimiter: str) -> tuple[int, int]:
    counts = Counter(len(cells) for cells in csv.reader(lines, delimiter=delimiter) if len(cells) > 1)
    return (counts.most_common(1)[0][1], counts.most_common(1)[0][0]) if counts else (0, 0)


def sheet_grids(data: bytes) -> Iterator[Grid]:
    """Yield the grid of each sheet of a workbook (.xlsx, .xls, .xlsb, .ods); merged cells are filled."""
    from python_calamine import CalamineWorkbook, SheetTypeEnum

    book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    names = [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
    for name in names:
        sheet = book.get_sheet_by_name(name)
        cells = sheet.to_python(skip_empty_area=False, nrows=MOST_ROWS)
        for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
            for row in cells[top : bottom + 1]:
                row[left : right + 1] = [cells[top][left]] * len(row[left : right + 1])
        yield Grid(name, list(enumerate(cells, 1)))


def json_grids(text: str) -> Iterator[Grid]:
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
        shared = sum(len(record) for record in flat) / (len(flat) * max(len(names), 1))
        if shared >= 0.5:
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


def text_grids(text: str) -> Iterator[Grid]:
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


# ---------------------------------------------------------------- tables


def find_tables(grids: Sequence[Grid]) -> list[Table]:
    """Return the tables in grids: parts divided by empty rows that have a header of their own."""
    tables: list[Table] = []
    titles: Counter[str] = Counter()
    for grid in grids:
        part, is_new = list[Row](), False
        for place, (line, cells) in enumerate([*grid.rows, (0, ())]):
            if all(map(_is_empty, cells)) and line:
                is_new = True
                continue
            if not line or (is_new and len(part) > LEAST_ROWS and _header(cells, grid.rows[place + 1 : place + 6])):
                if table := _make_table(replace(grid, rows=part)):
                    titles[grid.title] += 1
                    number = titles[grid.title]
                    tables.append(replace(table, title=f"{grid.title} {number}".strip()) if number > 1 else table)
                part = []
            is_new = False
            part.append((line, cells[:MOST_COLUMNS]))
    return tables


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _header(cells: Sequence[Any], below: Sequence[Row]) -> list[str] | None:
    """Return the names of columns in a row: words alone, with at most a few more columns below; None if it is none."""
    names = ["" if cell is None else " ".join(str(cell).split()) for cell in cells]
    words = [name for name, cell in zip(names, cells, strict=True) if name and isinstance(cell, str)]
    widest = max((sum(not _is_empty(cell) for cell in row) for _, row in below), default=0)
    if len(words) != sum(map(bool, names)) or len(words) < max(LEAST_COLUMNS, 0.6 * widest) or widest < LEAST_COLUMNS:
        return None
    return names if all(read_column([word], ".")[0] in ("text", "yes/no") for word in words) else None


def _read_header(grid: Grid) -> tuple[list[str], int]:
    """Return the names of columns and the place of the first row of data; a header of two rows is joined."""
    if grid.is_headed:
        return [str(cell) for cell in grid.rows[0][1]], 1
    for place, (_, cells) in enumerate(grid.rows[:HEADER_ROWS]):
        names = _header(cells, grid.rows[place + 1 : place + 6])
        if names is None:
            continue
        # Cells that stand above several columns were filled: what they are above tells those apart.
        below = _header(grid.rows[place + 1][1], grid.rows[place + 2 : place + 7])
        if below and len(set(names)) < len(names) and all(below):
            return [one if one == two else f"{one} {two}" for one, two in zip(names, below, strict=False)], place + 2
        return names, place + 1
    return [], 0


def _make_table(grid: Grid) -> Table | None:
    names, start = _read_header(grid) if grid.rows else ([], 0)
    body, notes = grid.rows[start:], list[str]()
    if len(body) > LEAST_ROWS and _is_total(body):
        notes.append(f"the total in line {body[-1][0]} is left out")
        body = body[:-1]
    every = list(zip_longest(*(cells for _, cells in body)))
    filled = [index for index, column in enumerate(every) if not all(map(_is_empty, column))]
    if len(body) < LEAST_ROWS or len(filled) < LEAST_COLUMNS:
        return None
    votes = count_marks(value for index in filled for value in every[index][:200])
    mark = votes.most_common(1)[0][0] if votes else grid.mark
    columns: list[Column] = []
    values: list[Sequence[Any]] = []
    for index in filled:
        kind, read, odd = read_column(every[index], mark)
        name = _free_name((names[index] if index < len(names) else "") or f"column {index + 1}", columns)
        columns.append(Column(name, kind))
        values.append(read)
        if odd:
            notes.append(f"{odd} values of '{name}' are no {kind}, and text")
    columns.append(Column(_free_name("line", columns), "integer"))
    return Table(grid.title, columns, list(zip(*values, (line for line, _ in body), strict=True)), notes)


def _free_name(name: str, columns: Sequence[Column]) -> str:
    """Return the name, with a number if another column has it: SQLite takes none twice, whatever the case."""
    used = {column.name.casefold() for column in columns}
    names = (name[:100] if number == 1 else f"{name[:100]} {number}" for number in range(1, MOST_COLUMNS + 2))
    return next(free for free in names if free.casefold() not in used)


def _is_total(body: Sequence[Row]) -> bool:
    """Return whether the last row is a total: it says so, or names nothing and holds the sums of what is above."""
    cells = body[-1][1]
    first = next((cell for cell in cells if not _is_empty(cell)), None)
    if isinstance(first, str):
        return TOTAL.fullmatch(first.strip()) is not None
    sums = {
        index: sum(row[index] for _, row in body[:-1] if index < len(row) and isinstance(row[index], int | float))
        for index, cell in enumerate(cells)
        if isinstance(cell, int | float)
    }
    return bool(sums) and _is_empty(cells[0]) and all(abs(cells[i] - total) < 0.01 for i, total in sums.items())
