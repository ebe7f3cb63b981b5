"""The tables of a document: read from its file as it is now, described, and asked in SQL.

`answer` runs in a worker process, which is killed when a document or a statement overruns its limits.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from functools import lru_cache, partial
from itertools import count, pairwise, zip_longest
from pathlib import Path, PurePath
from typing import Any, NamedTuple, cast

import apsw
import rapidfuzz.process

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.humanize import counted
from localmcp.storage.connections import quote_name, read_rows, reading_only, register_levenshtein
from localmcp.wording.normalize import words

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


def _find_tables(name: str, text: str, read: Callable[[], bytes]) -> list[Table]:
    """Return the tables in a document: parts of its grids, divided by empty rows, that have a header of their own."""
    from python_calamine import CalamineError

    tables, taken = list[Table](), set[str]()
    try:
        for grid in _read_grids(name, text, read):
            for part in _parts(grid):
                if table := _make_table(replace(grid, rows=part)):
                    tables.append(replace(table, title=free_name(grid.title, taken)))
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
        below = grid.rows[place + 1 : place + 6]
        if is_new and len(part) > LEAST_ROWS and _header(cells, below):
            # In a table of words each row looks like a header.
            if not (_header(part[-1][1], [(line, cells)]) and _header(below[0][1], below[1:])):
                yield part
                part = []
        is_new = False
        part.append((line, cells[:MOST_COLUMNS]))
    yield part


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _header(cells: Sequence[Any], below: Sequence[Row]) -> list[str] | None:
    """Return the names of columns in a row, with at most a few more columns below; None if it is none.

    They are words, or beside a word or an empty corner years in order or whole numbers one by one.
    """
    whole = [int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in cells]
    names = ["" if cell is None else " ".join(str(cell).split()) for cell in whole]
    numbers = [int(name) for name in names if name.isdecimal()]
    words = [name for name, cell in zip(names, cells, strict=True) if isinstance(cell, str) and not name.isdecimal()]
    words = [name for name in words if name and read_column([name], ".")[0] in ("text", "yes/no")]
    widest = max((sum(not _is_empty(cell) for cell in row) for _, row in below), default=0)
    count = len(words) + len(numbers)
    if count != sum(map(bool, names)) or count < max(LEAST_COLUMNS, 0.6 * widest) or widest < LEAST_COLUMNS:
        return None
    if numbers:
        steps = {two - one for one, two in pairwise(numbers)}
        are_years = all(1900 <= number <= 2100 for number in numbers) and (min(steps, default=1) > 0 or max(steps) < 0)
        if names[0].isdecimal() or not (are_years or (len(numbers) > 2 and steps in ({1}, {-1}))):
            return None
        # A year in each row is data.
        under = [cell for name, cell in zip(names, below[0][1], strict=False) if name.isdecimal()]
        if are_years and all(re.fullmatch(r"(19|20)\d\d(\.0)?", str(cell).strip()) for cell in under):
            return None
    return names


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
        pairs = list(zip(names, below or [], strict=False))
        if pairs and len(set(names)) < len(names) and all(two for one, two in pairs if one):
            return [one if one == two else f"{one} {two}".strip() for one, two in pairs], place + 2
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
    columns, taken = dict[str, str](), set[str]()
    values: list[Sequence[Any]] = []
    for index in filled:
        kind, read, odd = read_column(every[index], mark)
        name = free_name((names[index] if index < len(names) else "") or f"column {index + 1}", taken)
        columns[name] = kind
        values.append(read)
        if odd:
            notes.append(f"{counted(odd, 'value')} of '{name}' not read as {kind}, but kept as text")
    columns[free_name("line", taken)] = "integer"
    return Table(grid.title, columns, list(zip(*values, (line for line, _ in body), strict=True)), notes)


def free_name(name: str, taken: set[str]) -> str:
    """Return a name, with a number if it is taken, and take it: for SQLite names that differ in case are one."""
    names = (f"{name[:100]} {number}".strip() if number > 1 else name[:100] for number in count(1))
    free = next(free for free in names if free.casefold() not in taken)
    taken.add(free.casefold())
    return free


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


# ---------------------------------------------------------------- columns and their values

# Numbers may have either decimal mark, a currency or a percent sign; dates the usual forms of Europe and America.

LEAST_SHARE = 0.95
"""Share of the values of a column that must be of its type; the others stay text, and are counted in a note."""
LONGEST_TEXT = 2000
CURRENCIES = {
    "€": "EUR", "$": "USD", "us$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "fr.": "CHF", "zł": "PLN", "kč": "CZK",
    "kr": "kr",
} | {code.casefold(): code for code in "EUR USD GBP JPY INR CHF PLN CZK SEK NOK DKK HUF AUD CAD".split()}  # fmt: skip
_MONEY = "|".join(map(re.escape, sorted(CURRENCIES, key=len, reverse=True)))
_NUMBER = re.compile(
    rf"\s*(?P<open>\()?(?P<sign>[-+−])?\s*(?P<before>{_MONEY})?\s*(?P<inner>[-+−])?"
    r"(?P<body>\d{1,3}(?:(?P<group>[ .,'’\u00a0\u202f])\d{3})(?:(?P=group)\d{3})*(?:[.,]\d+)?"
    r"|(?:\d+(?:[.,]\d+)?|[.,]\d+)(?:e[-+]?\d{1,2})?)"
    rf"\s*(?P<after>{_MONEY}|%)?(?P<trailing>-)?\)?\s*",
    re.IGNORECASE,
)
_CLOCK = r"(\d{1,2}:\d\d(?::\d\d)?)"
_ISO = re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}})(?:[T ]+{_CLOCK}(?:\.\d+)?\s*(?:Z|[+-]\d\d:?\d\d)?)?")
_NUMERIC = re.compile(rf"(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}}|\d\d)(?:,?[T ]+{_CLOCK})?")
_WRITTEN = re.compile(
    r"(?:(\d{1,2})(?:\.|st|nd|rd|th)?[\s-]+(?:de )?)?([^\W\d]{3,})\.?"
    r"(?:\s+(\d{1,2})(?:st|nd|rd|th)?)?,?[\s-]+(?:de )?(\d{4})"
)
"""3. March 2025 or March 3, 2025."""
_MONTHS = (
    "jan ene gen", "feb fev fév", "mar mär mrz", "apr avr abr", "may mai mag", "jun jui giu", "jul juil lug",
    "aug aoû ago aou", "sep set", "oct okt ott out", "nov", "dec dez dic déc",
)  # fmt: skip
"""Beginnings of the names in English, German, French, Spanish, Italian and Portuguese."""


def read_column(values: Sequence[Any], mark: str) -> tuple[str, list[Any], int]:
    """Return the type of a column, its values for SQLite, and how many of them are not of the type but text.

    Types are integer, decimal, money (EUR), percent, date, date and time, time, yes/no and text. `mark` is the decimal
    mark where a column itself does not show it, as in 1.250. Dates and times become ISO text, money and percentages
    numbers (12 for 12 %).
    """
    distinct = list(dict.fromkeys(values))
    # By 400 values, from all over a column, a type is ruled out.
    sample = list(filter(_is_present, distinct[:: len(distinct) // 400 + 1]))
    for read in (partial(_read_numbers, mark=mark), _read_dates, _read_native):
        if len(read(sample)[1]) < LEAST_SHARE * len(sample):
            continue
        present = list(filter(_is_present, distinct))
        kind, typed = read(present)
        if kind and len(typed) >= LEAST_SHARE * len(present):
            others = {value: str(value) for value in present if value not in typed} if len(typed) < len(present) else {}
            odd = sum(value in others for value in values) if others else 0
            return kind, list(map((others | typed).get, values)), odd
    texts = [None if value is None else str(value)[:LONGEST_TEXT].strip() or None for value in values]
    answers = {text.casefold() for text in filter(None, texts)} if len(distinct) < 9 else set[str]()
    pairs = [set(pair.split("/")) for pair in "yes/no ja/nein sì/no si/no sí/no oui/non true/false y/n".split()]
    return "yes/no" if answers and any(answers <= pair for pair in pairs) else "text", texts, 0


def _is_present(value: Any) -> bool:
    """Return whether a value stands for one in a column of numbers or dates."""
    if isinstance(value, str):
        return value.strip(" \t\n-–—#./").casefold() not in {"", "n/a", "na", "n.a", "k.a", "null", "nan", "none", "?"}
    return value is not None


# ---------------------------------------------------------------- numbers


def count_marks(values: Iterable[Any]) -> Counter[str]:
    """Count the numbers in texts that show their decimal mark: 1.250,00 and 12,5 do, 1.250 does not."""
    marks: Counter[str] = Counter()
    for match in (_NUMBER.fullmatch(value) for value in values if isinstance(value, str)):
        signs = [sign for sign in match["body"] if sign in ".,"] if match else []
        if match and signs:
            if len(set(signs)) == 2 or (len(signs) == 1 and match["group"] not in signs):
                marks[signs[-1]] += 1
            elif len(signs) > 1:
                marks["," if signs[0] == "." else "."] += 1
    return marks


def _read_numbers(values: Sequence[Any], mark: str) -> tuple[str, dict[Any, int | float]]:
    """Read texts that are numbers, and what a workbook or JSON holds as such."""
    numbers: dict[Any, int | float] = {}
    units = set[str]()
    mark = next((mark for mark, _ in count_marks(values[:: len(values) // 400 + 1]).most_common(1)), mark)
    other = "." if mark == "," else ","
    for value in values:
        if not isinstance(value, str):
            if isinstance(value, int | float) and not isinstance(value, bool):
                numbers[value] = int(value) if float(value).is_integer() and abs(value) < 2**53 else value
            continue
        match = _NUMBER.fullmatch(value)
        if match is None:
            continue
        opened, sign, before, inner, body, group, after, trailing = match.groups()
        plain = body.replace(group, "") if group and group != mark else body
        # Numbers of shelves, ZIP codes and accounts are names.
        if (body[0] == "0" and body[1:2].isdecimal()) or len(plain.partition(mark)[0]) > 15:
            return "", {}
        # A sign that neither groups digits nor stands before decimals makes it another kind of number.
        if other in plain or plain.count(mark) > 1:
            continue
        number = int(plain) if plain.isdecimal() else float(plain.replace(mark, "."))
        numbers[value] = -number if opened or trailing or sign in ("-", "−") or inner in ("-", "−") else number
        if unit := before or after:
            units.add("percent" if unit == "%" else f"money ({CURRENCIES[unit.casefold()]})")
    whole = "integer" if all(isinstance(number, int) for number in numbers.values()) else "decimal"
    return ("", {}) if len(units) > 1 else (next(iter(units), whole), numbers)


# ---------------------------------------------------------------- dates, times, yes and no


def _read_native(values: Sequence[Any]) -> tuple[str, dict[Any, Any]]:
    """Read times, and what a workbook or JSON holds as true or false."""
    answers = {value: int(value) for value in values if isinstance(value, bool)}
    times = {value: str(value) for value in values if isinstance(value, time | timedelta)}
    clocks = re.compile(r"\s*([01]?\d|2[0-3])(:[0-5]\d){1,2}\s*")
    for value in values:
        if isinstance(value, str) and clocks.fullmatch(value):
            times[value] = value.strip().zfill(5 if value.count(":") == 1 else 8)
    return ("yes/no", answers) if answers else ("time", times)


def _read_dates(values: Sequence[Any]) -> tuple[str, dict[Any, str]]:
    numeric = [match for text in values if isinstance(text, str) and (match := _NUMERIC.fullmatch(text.strip()))]
    # 03/04/2025 is in April by a day above 12, by points between, else by which way the dates ascend.
    by_day = [(match[4], match[3].zfill(2), match[1].zfill(2)) for match in numeric]
    by_month = [(match[4], match[1].zfill(2), match[3].zfill(2)) for match in numeric]
    ascending = [sum(one <= other for one, other in pairwise(dates)) for dates in (by_day, by_month)]
    day_first = ascending[0] >= ascending[1] and not any(int(match[3]) > 12 for match in numeric)
    day_first = day_first or any(int(match[1]) > 12 or match[2] == "." for match in numeric)
    dates: dict[Any, str] = {}
    for value in values:
        if isinstance(value, datetime):
            dates[value] = value.isoformat(" ", "minutes")[:16]
        elif isinstance(value, date):
            dates[value] = value.isoformat()
        elif isinstance(value, str) and (read := _read_date(" ".join(value.split()), day_first)):
            dates[value] = read
    if all(len(read) == 10 or read.endswith(" 00:00") for read in dates.values()):
        return "date", {value: read[:10] for value, read in dates.items()}
    return "date and time", {value: read if len(read) > 10 else f"{read} 00:00" for value, read in dates.items()}


def _read_date(text: str, day_first: bool) -> str | None:
    clock = ""
    if match := _ISO.fullmatch(text):
        year, month, day, clock = int(match[1]), int(match[2]), int(match[3]), match[4] or ""
    elif match := _NUMERIC.fullmatch(text):
        first, second, clock = int(match[1]), int(match[3]), match[5] or ""
        day, month = (first, second) if day_first else (second, first)
        year = int(match[4])
        # Of two digits, those more than ten years ahead are of the last century.
        if len(match[4]) == 2:
            year += 2000 if 2000 + year <= date.today().year + 10 else 1900
    elif (match := _WRITTEN.fullmatch(text)) and (match[1] is None) != (match[3] is None):
        name = match[2].casefold()
        months = (any(name.startswith(start) for start in starts.split()) for starts in _MONTHS)
        month = next((number for number, is_it in enumerate(months, 1) if is_it), 0)
        year, day = int(match[4]), int(match[1] or match[3])
    else:
        return None
    try:
        iso = date(year, month, day).isoformat()
    except ValueError:
        return None
    return f"{iso} {clock if clock[2:3] == ':' else f'0{clock}'}" if clock else iso


# ---------------------------------------------------------------- one SELECT, which never sees the library's file

SECONDS = 2.0
"""Time that a statement may take; documents are loaded before."""


Outcome = tuple[list[str], list[list[Any]], bool, dict[str, tuple[int, bool]]]
"""Columns, rows, whether there are more; and table that was read -> its rows, whether its file has changed."""


def answer(task: tuple[str, Sequence[TableSource]]) -> Iterator[Outcome]:
    """Yield the outcome of a statement; the documents that it names are loaded first.

    Raises:
        InvalidInput: it cannot be run, and why.
    """
    statement, sources = task
    tables: dict[str, Table] = {}
    read: set[str] = set()

    def may_read(table: str) -> bool:
        read.add(table)
        return not table.startswith("sqlite_")

    try:
        signatures: list[Signature] = []
        for source in sources:
            status = Path(source.path).stat() if source.text is None else None
            signatures.append((status.st_mtime_ns, status.st_size) if status else source.signature)
        memory, tables = _load(tuple(zip(sources, signatures, strict=True)))
        with reading_only(memory, SECONDS, may_read):
            columns, rows, is_cut = read_rows(memory, statement, {}, most_rows=500, most_characters=40_000)
        used = {
            source.name: (len(tables[source.name].rows), now != source.signature)
            for source, now in zip(sources, signatures, strict=True)
            if source.name in tables and source.name.lower() in read
        }
        yield columns, rows, is_cut, used
    except OSError as error:
        reason = f"{error.filename} cannot be read: {(error.strerror or str(error)).lower()}."
        raise InvalidInput(
            f"{reason} A query reads the file itself; search shows what was read of it before."
        ) from error
    except apsw.InterruptError as error:
        raise InvalidInput(f"The query took longer than {SECONDS:g} s and was stopped.") from error
    except apsw.AuthError as error:
        raise InvalidInput("A query may only read: one SELECT over the tables that list_tables names.") from error
    except apsw.Error as error:
        reason = f"The statement cannot be run: {str(error).rstrip('.')}."
        if wanted := str(error).partition("no such column: ")[2].rpartition(".")[2].strip('"'):
            columns = dict.fromkeys(name for table in tables.values() for name in table.columns)
            near = rapidfuzz.process.extract(wanted, list(columns), processor=str.casefold, limit=5)
            reason += f" Nearest columns: {', '.join(quote_name(name) for name, *_ in near)}." if near else ""
        raise InvalidInput(reason) from error


@lru_cache(maxsize=1)
def _load(sources: tuple[tuple[TableSource, Signature], ...]) -> tuple[apsw.Connection, dict[str, Table]]:
    """Return a SQLite in memory that holds these tables, and the tables by name; OSError if a file cannot be read.

    The last one is kept: several questions in a row mostly ask the same tables (50,000 rows on a busy machine: 93 ms ->
    15 ms).
    """
    from localmcp.readers.readers import read_bytes

    memory = apsw.Connection(":memory:")
    # A wrong column in double quotes is an error, not a text.
    memory.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    memory.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
    memory.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)
    memory.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    register_levenshtein(memory)
    memory.create_scalar_function("contains", _contains, 2, deterministic=True)
    tables: dict[str, Table] = {}
    documents: dict[str, list[Table]] = {}
    for source, _ in sources:
        if source.path not in documents:
            data, text = (Path(source.path).read_bytes(), "") if source.text is None else (b"", source.text)
            # What can no longer be read holds no tables; a workbook is not read for its text.
            with suppress(LocalMCPError):
                if source.text is None and Path(source.path).suffix.lower() not in SHEETS:
                    text = read_bytes(data, Path(source.path).name).text
            documents[source.path] = _find_tables(source.path, text, partial(bytes, data))
        for table in [table for table in documents[source.path] if table.title == source.title][:1]:
            tables[source.name] = table
            name = quote_name(source.name)
            with memory:
                memory.execute(f"create table {name} ({', '.join(map(quote_name, table.columns))})")
                memory.executemany(f"insert into {name} values ({', '.join('?' * len(table.columns))})", table.rows)
    return memory, tables


def _contains(*texts: Any) -> int:
    """Return whether each word of the second text begins a word of the first, whatever the case and accents."""
    present = words(str(texts[0]))
    return int(all(any(word.startswith(start) for word in present) for start in words(str(texts[1]))))
