"""The tables of a document: read from its file as it is now, and described for those who ask."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path, PurePath
from typing import Any, NamedTuple, cast

import apsw

from localmcp.errors import LocalMCPError
from localmcp.humanize import counted, quoted
from localmcp.tables.values import count_marks, read_column

LEAST_COLUMNS, MOST_COLUMNS = 2, 200
LEAST_ROWS, MOST_ROWS = 3, 200_000
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


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a document, ready for SQLite."""

    title: str
    columns: dict[str, str]
    """Name -> type."""
    rows: list[tuple[Any, ...]]
    """Values in the order of the columns; the last is the line or row in the document."""
    notes: list[str] = field(default_factory=list[str])
    """What was left out, or is not of a column's type."""


Signature = tuple[int | None, int]
"""Time (ns) and bytes of a file."""


class TableSource(NamedTuple):
    """Where a table is that a statement may name."""

    name: str
    title: str
    """In its document."""
    path: str
    """Of the document's file; its id if `text` is read instead."""
    signature: Signature
    """Of the file when it was indexed."""
    text: str | None
    """"" until it is asked for; None where there is a file."""


def describe_tables(name: str, text: str, read: Callable[[], bytes] | None) -> str | None:
    """Return as JSON what is kept of each table of a document: title, columns, count of rows, first rows, notes.

    `read` gives the bytes of its file; None for what has a text only. None for a document without tables.
    """
    described = [
        {
            "title": table.title,
            "columns": [{"name": column, "type": kind} for column, kind in table.columns.items()],
            "rows": len(table.rows),
            "sample": [
                [f"{v[:79]}…" if isinstance(v, str) and len(v) > 80 else v for v in row] for row in table.rows[:3]
            ],
            "notes": table.notes,
            "inText": read is None,
        }
        for table in _find_tables(name, text, read or bytes)
    ]
    return json.dumps(described, ensure_ascii=False) if described else None


def tables_among(connection: apsw.Connection, uuids: Sequence[str]) -> str:
    """Return a sentence on long tables of those documents, which a search cannot count; "" without any."""
    sql = "select title, tables from sources where tables is not null and uuid in (select value from json_each(?))"
    long: list[str] = []
    for title, tables in connection.execute(sql, (json.dumps(uuids),)):
        # A search shows the rows of shorter ones.
        if rows := [counted(table["rows"], "row") for table in json.loads(tables) if table["rows"] >= 20]:
            long.append(f"{quoted(title)} ({', '.join(rows[:3])})")
    return f"Tables: {', '.join(long)}. To count or add up their rows: list_tables, query_table." if long else ""


def read_tables(path: str, text: str | None) -> list[Table]:
    """Return the tables of a file as it is now, or of a text.

    Raises:
        OSError: the file cannot be read.
    """
    if text is not None:
        return _find_tables(path, text, bytes)
    from localmcp.readers.readers import read_bytes

    data = Path(path).read_bytes()
    try:
        text = "" if PurePath(path).suffix.lower() in SHEETS else read_bytes(data, PurePath(path).name).text
    except LocalMCPError:
        return []
    return _find_tables(path, text, lambda: data)


def _find_tables(name: str, text: str, read: Callable[[], bytes]) -> list[Table]:
    """Return the tables in a document: parts of its grids, divided by empty rows, that have a header of their own."""
    from python_calamine import CalamineError

    tables: list[Table] = []
    titles: Counter[str] = Counter()
    try:
        for grid in _read_grids(name, text, read):
            for part in _parts(grid):
                if table := _make_table(replace(grid, rows=part)):
                    titles[grid.title] += 1
                    number = titles[grid.title]
                    tables.append(replace(table, title=f"{grid.title} {number}".strip()) if number > 1 else table)
    except (CalamineError, csv.Error, ValueError, RecursionError):
        # It is damaged, or not what its name says: its text is searched all the same.
        return []
    return tables[:50]


def _parts(grid: Grid) -> Iterable[list[Row]]:
    """Yield the rows that belong together, without empty ones; what follows one and is a header begins the next."""
    part, is_new = list[Row](), False
    for place, (line, cells) in enumerate(grid.rows):
        if all(map(_is_empty, cells)):
            is_new = True
            continue
        if is_new and len(part) > LEAST_ROWS and _header(cells, grid.rows[place + 1 : place + 6]):
            yield part
            part = []
        is_new = False
        part.append((line, cells[:MOST_COLUMNS]))
    yield part


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
    if grid.is_headed and grid.rows:
        return [str(cell) for cell in grid.rows[0][1]], 1
    for place, (_, cells) in enumerate(grid.rows[:25]):
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
    names, start = _read_header(grid)
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
    columns: dict[str, str] = {}
    values: list[Sequence[Any]] = []
    for index in filled:
        kind, read, odd = read_column(every[index], mark)
        name = _free_name((names[index] if index < len(names) else "") or f"column {index + 1}", columns)
        columns[name] = kind
        values.append(read)
        if odd:
            notes.append(f"{counted(odd, 'value')} of '{name}' not read as {kind}, but kept as text")
    columns[_free_name("line", columns)] = "integer"
    return Table(grid.title, columns, list(zip(*values, (line for line, _ in body), strict=True)), notes)


def _free_name(name: str, used: Iterable[str]) -> str:
    """Return the name, with a number if another column has it: SQLite takes none twice, whatever the case."""
    folded = {other.casefold() for other in used}
    names = (name[:100] if number == 1 else f"{name[:100]} {number}" for number in range(1, MOST_COLUMNS + 2))
    return next(free for free in names if free.casefold() not in folded)


def _is_total(body: Sequence[Row]) -> bool:
    """Return whether the last row is a total: it says so, or names nothing and holds the sums of what is above."""
    cells = body[-1][1]
    first = next((cell for cell in cells if not _is_empty(cell)), None)
    if isinstance(first, str):
        # In the languages of most documents.
        total = r"(?i)((grand|sub)[ -]?)?totale?s?\b.*|\w*summe\b.*|(ins)?gesamt\b.*|somme\b.*|suma\b.*|sum"
        return re.fullmatch(total, first.strip()) is not None
    sums = {
        index: sum(row[index] for _, row in body[:-1] if index < len(row) and isinstance(row[index], int | float))
        for index, cell in enumerate(cells)
        if isinstance(cell, int | float)
    }
    return bool(sums) and _is_empty(cells[0]) and all(abs(cells[i] - total) < 0.01 for i, total in sums.items())


# ---------------------------------------------------------------- grids of cells as documents have them


def _read_grids(name: str, text: str, read: Callable[[], bytes]) -> Iterator[Grid]:
    """Yield the grids of a document; `read` gives the bytes of its file.

    Raises:
        CalamineError, csv.Error, ValueError, RecursionError: it is damaged, or not what its name says.
    """
    suffix = PurePath(name).suffix.lower()
    if suffix in SHEETS:
        from python_calamine import CalamineWorkbook, SheetTypeEnum

        book = CalamineWorkbook.from_filelike(io.BytesIO(read()))
        for title in [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]:
            sheet = book.get_sheet_by_name(title)
            values = sheet.to_python(skip_empty_area=False, nrows=MOST_ROWS)
            # Merged cells are filled.
            for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
                for row in values[top : bottom + 1]:
                    row[left : right + 1] = [values[top][left]] * len(row[left : right + 1])
            yield Grid(title, list(enumerate(values, 1)))
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
            cells = list(map(_plain_cell, re.split(r"(?<!\\)\|", bare.strip("|"))))
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
