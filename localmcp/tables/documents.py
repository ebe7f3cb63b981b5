"""The tables of a document: read from its file as it is now, described, and asked in SQL.

`answer` runs in a worker process, which is killed when a document or a statement overruns its limits.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, time, timedelta
from functools import lru_cache, partial
from itertools import count, groupby, islice, pairwise, zip_longest
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import apsw
import rapidfuzz.process

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.humanize import counted
from localmcp.schemas import Json, list_of, mapping_of
from localmcp.storage.connections import quote_name, read_rows, reading_only, register_levenshtein
from localmcp.wording.normalize import without_links, words

LEAST_COLUMNS, MOST_COLUMNS = 2, 200
LEAST_ROWS, MOST_ROWS = 3, 200_000
SHEETS = frozenset((".xlsx", ".xlsm", ".xls", ".xlsb", ".ods"))

Row = tuple[int, Sequence[Any]]
"""(line or row in the document from 1, cells: texts, or values that a workbook or JSON holds with a type)"""
Grid = tuple[str, list[Row], bool, str]
"""Rows as a document has them: title (of the sheet, or the heading above; "" where there is one grid only), rows,
whether the first is known to be the header, and the decimal mark where numbers do not show it."""


class Table(NamedTuple):
    """A table of a document, ready for SQLite: name -> type of its columns, rows, and what was left out or odd."""

    columns: dict[str, str]
    rows: list[tuple[Any, ...]]
    """The last value of each is the line or row in the document."""
    notes: list[str]


class TableSource(NamedTuple):
    """Where a table is that a statement may name."""

    name: str
    title: str
    """In its document."""
    path: str
    """Of the document's file; its id if `text` is read instead."""
    signature: tuple[int | None, int]
    """Time (ns) and bytes of the file when it was indexed, or is loaded."""
    text: str | None
    """"" until it is asked for; None where there is a file."""


def describe_tables(name: str, text: str, read: Callable[[], bytes] | None) -> str | None:
    """Return as JSON what is kept of each table of a document: title, columns, count of rows, first rows, notes.

    `read` gives the bytes of its file; None for what has a text only. None for a document without tables.
    """
    described: list[Json] = []
    for title, table in _find_tables(name, text, read or bytes).items():
        columns = [{"name": column, "type": kind} for column, kind in table.columns.items()]
        sample = [[f"{v[:79]}…" if isinstance(v, str) and len(v) > 80 else v for v in row] for row in table.rows[:3]]
        about = {"title": title, "columns": columns, "rows": len(table.rows), "sample": sample}
        described.append(about | {"notes": table.notes, "inText": read is None})
    return json.dumps(described, ensure_ascii=False) if described else None


def _find_tables(name: str, text: str, read: Callable[[], bytes]) -> dict[str, Table]:
    """Return title -> table: parts of a document's grids, divided by empty rows, that have a header of their own."""
    from python_calamine import CalamineError

    tables, used_names = dict[str, Table](), set[str]()
    try:
        for title, rows, is_headed, mark in _read_grids(name, text, read):
            for part in _divided(rows):
                if len(tables) < 50 and (table := _make_table(part, is_headed, mark)):
                    tables[free_name(title, used_names)] = table
    except (CalamineError, csv.Error, ValueError, RecursionError):
        # It is damaged, or not what its name says: its text is searched all the same.
        return {}
    return tables


def _divided(rows: list[Row]) -> list[list[Row]]:
    # What follows an empty row and is a header, perhaps below a title, begins the next table.
    parts, is_new = [list[Row]()], False
    for place, (line, cells) in enumerate(rows):
        if all(map(_is_empty, cells)):
            is_new = True
            continue
        last, head, below = parts[-1], cells, rows[place + 1 : place + 6]
        if is_new and len(last) > LEAST_ROWS and below:
            if _width(cells) == 1:
                head, below = below[0][1], below[1:]
            # In a table of words each row looks like a header.
            names = _header(head, below)
            if names and not (_header(last[-1][1], [(line, head)]) and _header(below[0][1], below[1:])):
                if _above_values(names, below) or _width(head) >= max(_width(row) for _, row in below):
                    parts.append([])
        is_new = False
        parts[-1].append((line, cells[:MOST_COLUMNS]))
    return [part for part in parts if part]


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _width(cells: Sequence[Any]) -> int:
    return sum(not _is_empty(cell) for cell in cells)


def _names(cells: Sequence[Any]) -> list[str]:
    return ["" if cell is None else " ".join(_text(cell).split()) for cell in cells]


def _kind(cell: Any) -> str:
    # "" of an empty cell, word, year or number of a whole one, or the type of another value.
    [name] = _names([cell])
    if not name or name.isdecimal():
        return name and ("year" if re.fullmatch(r"(19|20)\d\d|2100", name) else "number")
    kind = read_column([cell], ".")[0]
    return "word" if isinstance(cell, str) and kind in ("text", "yes/no") else kind


def _header(cells: Sequence[Any], below: Sequence[Row]) -> list[str] | None:
    """Return the names of columns in a row; None if it is none of a header.

    They are words, and beside a word or an empty corner also years, dates, or whole numbers one by one.
    """
    names, kinds = _names(cells), list(map(_kind, cells))
    widest = max((_width(row) for _, row in below), default=0)
    # A label with its value, and what is much shorter than the rows below it, are remarks.
    filled = [name for name in names if name]
    is_remark = (len(filled) == 2 and filled[0].endswith(":")) or len(filled) < max(LEAST_COLUMNS, 0.6 * widest)
    beside = {"year", "number", "date"}
    if is_remark or widest < LEAST_COLUMNS or kinds[0] in beside or not {*kinds} <= {"", "word"} | beside:
        return None
    # Cells that stand above several columns were filled.
    numbers = [int(name) for name, _ in groupby(names) if name.isdecimal()]
    are_counted = len(numbers) > 2 and {two - one for one, two in pairwise(numbers)} in ({1}, {-1})
    # Years and dates above others are data, also where some are missing.
    columns = zip(kinds, zip_longest(*(cells for _, cells in below)), strict=False)
    under = [[*map(_kind, filter(_is_present, column))] for kind, column in columns if kind in beside]
    is_data = any("date" in column for column in under) or {column[0] for column in under if column} == {"year"}
    return None if is_data or ("number" in kinds and not are_counted) else names


def _above_values(names: Sequence[str], below: Sequence[Row]) -> int:
    # How many names stand above numbers, dates or times, whatever lower rows of the header are between.
    above = 0
    for name, column in zip(names, zip_longest(*(cells for _, cells in below)), strict=False):
        kinds = list(map(_kind, filter(_is_present, column)))
        above += _is_present(name) and 2 * sum(kind != "word" for kind in kinds) > len(kinds)
    return above


def _read_header(rows: list[Row], is_headed: bool) -> tuple[list[str], int]:
    """Return the names of columns and the place of the first row of data.

    From the top a table has remarks, the names of groups of columns, those of columns, their units, and data.
    """
    possible = ((place, _header(cells, rows[place + 1 : place + 6])) for place, (_, cells) in enumerate(rows[:25]))
    headers = {0: _names(rows[0][1])} if is_headed else {place: names for place, names in possible if names}
    header: tuple[list[str], int] | None = None
    for place, names in headers.items():
        start = place + 1
        while start < len(rows):
            # Names of columns below those of groups, units, and second lines of long names are words above values.
            cells, below = rows[start][1], rows[start + 1 : start + 6]
            lower, are_words = _names(cells), {*map(_kind, cells)} <= {"", "word"}
            # The first name may be that of a row, though: its column has another name, and no values below.
            pairs = list(zip_longest(names, lower, fillvalue=""))
            first = next((column for column, pair in enumerate(pairs) if any(pair)), 0)
            one, two = pairs[first]
            is_row = one and two and one != two and not _above_values(lower[: first + 1], below)
            if not are_words or is_row or not _above_values(lower, below):
                break
            names, start = [one if one == two else f"{one} {two}".strip() for one, two in pairs], start + 1
        header = header or (names, start)
        filled = [name for name in names if name]
        # The first one, if values begin right below it; a later one, if they begin in several columns, and above it are
        # remarks: narrow ones, not data.
        first = min(headers)
        above = [_width(rows[number][1]) for number in range(first, place) if number not in headers]
        is_above = place == first or 2 * max(above, default=0) < len(filled) == len(set(filled))
        if is_above and _above_values(names, rows[start : start + 1]) >= (1 if place == first else 2):
            return names, start
    return header or ([], 0)


def _make_table(rows: list[Row], is_headed: bool, mark: str) -> Table | None:
    """Return rows as a table with typed columns; None if they are none."""
    names, start = _read_header(rows, is_headed)
    body, notes = rows[start:], list[str]()
    # Notes may follow the total: a text in one cell each.
    last = len(body) - 1
    while last > 0 and not _is_total(body[last : last + 1]):
        filled = [cell for cell in body[last][1] if not _is_empty(cell)]
        if len(filled) != 1 or not isinstance(filled[0], str):
            break
        last -= 1
    if last >= LEAST_ROWS and _is_total(body[: last + 1]):
        below = " with what is below it" if last < len(body) - 1 else ""
        notes.append(f"the total in line {body[last][0]} is left out{below}")
        body = body[:last]
    every = list(zip_longest(*(cells for _, cells in body)))
    filled = [index for index, column in enumerate(every) if not all(map(_is_empty, column))]
    if len(body) < LEAST_ROWS or len(filled) < LEAST_COLUMNS:
        return None
    mark = decimal_mark((value for index in filled for value in every[index][:200]), mark)
    columns, used_names, values = dict[str, str](), set[str](), list[Sequence[Any]]()
    for index in filled:
        kind, typed, odd = read_column(every[index], mark)
        name = free_name((names[index] if index < len(names) else "") or f"column {index + 1}", used_names)
        columns[name] = kind
        values.append(typed)
        if odd:
            notes.append(f"{counted(odd, 'value')} of '{name}' not read as {kind}, but kept as text")
    columns[free_name("line", used_names)] = "integer"
    return Table(columns, list(zip(*values, (line for line, _ in body), strict=True)), notes)


def free_name(name: str, taken: set[str]) -> str:
    """Return a name, with a number if it is taken, and take it: for SQLite names that differ in case are one."""
    names = (f"{name[:100]} {number}".strip() if number > 1 else name[:100] for number in count(1))
    free = next(free for free in names if free.casefold() not in taken)
    taken.add(free.casefold())
    return free


def _is_total(body: Sequence[Row]) -> bool:
    # It says so, or names nothing and holds the sums of what is above.
    cells = body[-1][1]
    first = next((cell for cell in cells if not _is_empty(cell)), None)
    if isinstance(first, str):
        total = r"(?i)((grand|sub)[ -]?)?totale?s?\b.*|\w*summe\b.*|(ins)?gesamt\b.*|somme\b.*|suma\b.*|sum"
        return re.fullmatch(total, first.strip()) is not None
    totals = {index: cell for index, cell in enumerate(cells) if isinstance(cell, int | float)}
    for index, total in totals.items():
        above = (row[index] for _, row in body[:-1] if index < len(row))
        if abs(sum(cell for cell in above if isinstance(cell, int | float)) - total) >= 0.01:
            return False
    return bool(totals) and _is_empty(cells[0])


# ---------------------------------------------------------------- grids of cells as documents have them


def _read_grids(name: str, text: str, read: Callable[[], bytes]) -> Iterator[Grid]:
    suffix = PurePath(name).suffix.lower()
    if suffix in SHEETS:
        from python_calamine import CalamineWorkbook, SheetTypeEnum

        book = CalamineWorkbook.from_filelike(io.BytesIO(read()))
        for title in [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]:
            sheet = book.get_sheet_by_name(title)
            values = sheet.to_python(skip_empty_area=False, nrows=MOST_ROWS)
            # Merged cells are filled, but for one alone in its row: a title or a note. Some lie beyond the values.
            for (top, left), (bottom, right) in sheet.merged_cell_ranges or ():
                for row in values[top : bottom + 1]:
                    if not all(map(_is_empty, row[:left] + row[right + 1 :])):
                        row[left : right + 1] = values[top][left : left + 1] * len(row[left : right + 1])
            yield title, list(enumerate(values, 1)), False, "."
    elif suffix in (".csv", ".tsv", ".tab"):
        # The delimiter is the one that most lines have equally often.
        lines = text[:100_000].splitlines()[:50]

        def fit(delimiter: str) -> tuple[int, int]:
            counts = Counter(len(cells) for cells in csv.reader(lines, delimiter=delimiter) if len(cells) > 1)
            return max(((often, cells) for cells, often in counts.most_common(1)), default=(0, 0))

        delimiter = max(",;\t|", key=fit)
        reader = csv.reader(io.StringIO(text, newline=None), delimiter=delimiter)
        rows, line = list[Row](), 1
        for cells in islice(reader, MOST_ROWS + 1):
            rows.append((line, cells))
            line = reader.line_num + 1
        yield "", rows, False, "," if delimiter == ";" else "."
    elif suffix in (".json", ".jsonl", ".ndjson"):
        yield from _json_grids(text)
    else:
        yield from _text_grids(text)


def _json_grids(text: str) -> Iterator[Grid]:
    """Yield a grid for each list of like records: at the top, or by its name in an object; JSON Lines are one list."""
    try:
        whole: Any = json.loads(text)
    except ValueError:
        whole = [json.loads(line) for line in text.splitlines() if line.strip()]
    for name, value in (mapping_of(whole) or {"": whole}).items():
        records = list_of(value)[:MOST_ROWS]
        flat = list(map(_flat, records)) if all(isinstance(record, dict) for record in records) else []
        names = list(dict.fromkeys(key for record in flat for key in record))
        if sum(map(len, flat)) >= 0.5 * len(flat) * len(names) > 0:
            cells = [(number, [record.get(key) for key in names]) for number, record in enumerate(flat, 1)]
            yield name, [(0, names), *cells], True, "."


def _flat(record: Json) -> Json:
    # The values of an object in it have columns of their own; deeper ones, and lists, are text.
    fields: Json = {}
    for key, value in record.items():
        fields |= {f"{key}.{name}": item for name, item in mapping_of(value).items()} or {key: value}
    return {key: json.dumps(v, ensure_ascii=False) if isinstance(v, dict | list) else v for key, v in fields.items()}


def _text_grids(text: str) -> Iterator[Grid]:
    """Yield the pipe tables of a text as readers write all tables: Markdown, HTML, Word and others."""

    def split(line: str) -> list[str]:
        # Without the links and the signs of Markdown around a cell.
        cells = re.split(r"(?<!\\)\|", line.removeprefix("|").removesuffix("|"))
        plain = (without_links(cell.strip().replace("\\|", "|")) for cell in cells)
        return [re.sub(r"^(\*\*|__|\*|_|`)(.+)\1$", r"\2", cell) for cell in plain]

    rule = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?")
    heading, bare, rows = "", "", list[Row]()
    for number, line in enumerate([*text.splitlines(), ""] if "|" in text else [], 1):
        before, bare = bare, line.strip()
        has_pipe = "|" in bare
        if has_pipe and rule.fullmatch(bare):
            # Markdown needs no pipe before the first cell: the line above this one is the header.
            if "|" in before and not rows:
                rows.append((number - 1, split(before)))
        elif has_pipe and (rows or (bare[0] == "|" and bare.count("|") > 1)):
            rows.append((number, split(bare)))
        elif rows:
            yield heading, rows, True, "."
            rows = []
        if bare.startswith("#"):
            heading = bare.lstrip("#").strip()


# ---------------------------------------------------------------- columns and their values

LEAST_SHARE = 0.95
"""Share of the values of a column that must be of its type; the others stay text, and are counted in a note."""
CURRENCIES = {
    "€": "EUR", "$": "USD", "us$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "fr.": "CHF", "zł": "PLN", "kč": "CZK",
    "kr": "kr",
} | {code.casefold(): code for code in "EUR USD GBP JPY INR CHF PLN CZK SEK NOK DKK HUF AUD CAD".split()}  # fmt: skip
_MONEY = "|".join(map(re.escape, sorted(CURRENCIES, key=len, reverse=True)))
_NUMBER = re.compile(
    rf"\s*+\(?[-+−]?\s*+(?P<before>{_MONEY})?\s*+[-+−]?"
    r"(?P<body>\d{1,3}(?:(?P<group>[ .,'’\u00a0\u202f])\d{3})(?:(?P=group)\d{3})*(?:[.,]\d+)?"
    r"|(?:\d+(?:[.,]\d+)?|[.,]\d+)(?:e[-+]?\d{1,2})?)"
    rf"\s*+(?P<after>{_MONEY}|%)?-?\)?\s*+",
    re.IGNORECASE,
)
_CLOCK = r"(?P<hour>\d\d?):(?P<minute>[0-5]\d)(?P<second>:[0-5]\d)?(?:\s*(?P<half>[ap])(?:\.?m\.?)?)?"
_TIME = re.compile(_CLOCK, re.IGNORECASE)
_DATE = re.compile(
    r"(?:(?P<year>\d{4})[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)"
    r"|(?P<one>\d\d?)(?P<sign>[./-])(?P<two>\d\d?)(?P=sign)(?P<last>\d{4}|\d\d)"
    # 3. March 2025 or March 3, 2025.
    r"|(?:(?P<before>\d\d?)(?:\.|st|nd|rd|th)?[\s-]+(?:de )?)?(?P<name>[^\W\d]{3,})\.?"
    r"(?(before)|\s+(?P<after>\d\d?)(?:st|nd|rd|th)?),?[\s-]+(?:de )?(?P<written>\d{4}))"
    rf"(?:,?[T ]+{_CLOCK}(?:\.\d+)?\s*(?:Z|[+-]\d\d:?\d\d)?)?",
    re.IGNORECASE,
)
_MONTHS = (
    "jan ene gen", "feb fev fév", "mar mär mrz", "apr avr abr", "may mai mag", "jun juin giu", "jul juil lug",
    "aug aoû ago aou", "sep set", "oct okt ott out", "nov", "dec dez dic déc",
)  # fmt: skip
"""Beginnings of the names in English, German, French, Spanish, Italian and Portuguese."""


def read_column(values: Sequence[Any], mark: str) -> tuple[str, list[Any], int]:
    """Return the type of a column, its values for SQLite, and how many of them are not of the type but text.

    Types are integer, decimal, money (EUR), percent, date, date and time, time, yes/no and text. `mark` is the decimal
    mark where a column itself does not show it, as in 1.250. Dates and times become ISO text, money and percentages
    numbers (12 for 12 %).
    """
    counts = Counter(values)
    distinct = list(counts)

    def fitting(some: Iterable[Any]) -> int:
        return sum(map(counts.__getitem__, some))

    # By 400 values, from all over a column, a type is ruled out.
    sample = list(filter(_is_present, distinct[:: len(distinct) // 400 + 1]))
    for read in (partial(_read_numbers, mark=mark), _read_dates, _read_flags_and_times):
        if not sample or fitting(read(sample)[1]) < LEAST_SHARE * fitting(sample):
            continue
        present = list(filter(_is_present, distinct))
        kind, typed = read(present)
        if kind and fitting(typed) >= LEAST_SHARE * fitting(present):
            others = {value: _text(value) for value in present if value not in typed}
            return kind, list(map((others | typed).get, values)), fitting(others)
    texts = [None if value is None else _text(value).strip()[:2000] or None for value in values]
    answers = {text.casefold() for text in filter(None, texts)} if len(distinct) < 9 else set[str]()
    pairs = [set(pair.split("/")) for pair in "yes/no ja/nein sì/no si/no sí/no oui/non true/false y/n".split()]
    return "yes/no" if answers and any(answers <= pair for pair in pairs) else "text", texts, 0


def _text(value: Any) -> str:
    # Of the codes 104 and 105A a workbook holds the first as 104.0.
    return str(int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value)


def _is_present(value: Any) -> bool:
    if isinstance(value, str):
        bare = value.strip(" \t\n-–—#./|*…:?").casefold()
        return bare not in ("", "n/a", "na", "n.a", "k.a", "null", "nan", "none")
    return value is not None


def decimal_mark(values: Iterable[Any], default: str) -> str:
    """Return the decimal mark that most numbers in texts show: 1.250,00 and 12,5 do, 1.250 does not."""
    marks: Counter[str] = Counter()
    for match in filter(None, (_NUMBER.fullmatch(value) for value in values if isinstance(value, str))):
        signs = [sign for sign in match["body"] if sign in ".,"]
        if len(set(signs)) == 2 or (len(signs) == 1 and match["group"] not in signs):
            marks[signs[-1]] += 1
        elif len(signs) > 1:
            marks["," if signs[0] == "." else "."] += 1
    return max(marks, key=marks.__getitem__, default=default)


def _read_numbers(values: Sequence[Any], mark: str) -> tuple[str, dict[Any, int | float]]:
    numbers, units = dict[Any, int | float](), set[str]()
    mark = decimal_mark(values[:: len(values) // 400 + 1], mark)
    other = "." if mark == "," else ","
    for value in values:
        match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[value] = int(value) if float(value).is_integer() and abs(value) < 2**53 else value
        if match is None:
            continue
        body, group, unit = match["body"], match["group"], match["before"] or match["after"]
        plain = body.replace(group, "") if group and group != mark else body
        # Numbers of shelves, ZIP codes and accounts are names.
        if (body[0] == "0" and body[1:2].isdecimal()) or len(plain.partition(mark)[0]) > 15:
            return "", {}
        # A sign that neither groups digits nor stands before decimals makes it another kind of number.
        if other in plain or plain.count(mark) > 1:
            continue
        number = int(plain) if plain.isdecimal() else float(plain.replace(mark, "."))
        around = match.string[: match.start("body")] + match.string[match.end("body") :]
        numbers[value] = -number if any(sign in around for sign in "(-−") else number
        if unit:
            units.add("percent" if unit == "%" else f"money ({CURRENCIES[unit.casefold()]})")
    whole = "integer" if all(isinstance(number, int) for number in numbers.values()) else "decimal"
    return ("", {}) if len(units) > 1 else (next(iter(units), whole), numbers)


def _read_flags_and_times(values: Sequence[Any]) -> tuple[str, dict[Any, Any]]:
    answers = {value: int(value) for value in values if isinstance(value, bool)}
    times: dict[Any, str] = {value: str(value) for value in values if isinstance(value, time | timedelta)}
    for value in values:
        if isinstance(value, str) and (match := _TIME.fullmatch(value.strip())) and (clock := _clock(match)):
            times[value] = clock
    return ("yes/no", answers) if answers else ("time", times)


def _read_dates(values: Sequence[Any]) -> tuple[str, dict[Any, str]]:
    texts = (value for value in values if isinstance(value, str))
    matches = {text: match for text in texts if (match := _DATE.fullmatch(" ".join(text.split())))}
    # 03/04/2025 is in April by a day above 12, by points between, else by which way the dates ascend.
    numeric = [match for match in matches.values() if match["sign"]]
    by_day = [(match["last"], match["two"].zfill(2), match["one"].zfill(2)) for match in numeric]
    by_month = [(match["last"], match["one"].zfill(2), match["two"].zfill(2)) for match in numeric]
    ascending = [sum(one <= other for one, other in pairwise(dates)) for dates in (by_day, by_month)]
    day_first = ascending[0] >= ascending[1] and not any(int(match["two"]) > 12 for match in numeric)
    day_first = day_first or any(int(match["one"]) > 12 or match["sign"] == "." for match in numeric)
    dates: dict[Any, str] = {text: read for text, match in matches.items() if (read := _iso_date(match, day_first))}
    dates |= {value: str(value)[:16] for value in values if isinstance(value, date)}
    if all(read[10:] in ("", " 00:00", " 00:00:00") for read in dates.values()):
        return "date", {value: read[:10] for value, read in dates.items()}
    return "date and time", {value: read if len(read) > 10 else f"{read} 00:00" for value, read in dates.items()}


def _iso_date(match: re.Match[str], day_first: bool) -> str | None:
    year, month, day = match["year"] or match["written"], match["month"], match["day"]
    if match["name"]:
        name, day = match["name"].casefold(), match["before"] or match["after"]
        month = next((number for number, starts in enumerate(_MONTHS, 1) if name.startswith((*starts.split(),))), 0)
    elif match["sign"]:
        year, month, day = match["last"], match["two"], match["one"]
        if not day_first:
            month, day = day, month
        # Of two digits, those more than ten years ahead are of the last century.
        if len(year) == 2:
            year = int(year) + (2000 if 2000 + int(year) <= date.today().year + 10 else 1900)
    try:
        iso = date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return None
    if not match["hour"]:
        return iso
    return f"{iso} {clock}" if (clock := _clock(match)) else None


def _clock(match: re.Match[str]) -> str:
    # A time of 24 hours, also of 1:05 PM; "" if a day has no such time.
    hour = int(match["hour"])
    if match["half"]:
        hour = hour % 12 + 12 * (match["half"] in "pP")
    return f"{hour:02}:{match['minute']}{match['second'] or ''}" if hour < 24 else ""


# ---------------------------------------------------------------- one SELECT, which never sees the library's file

SECONDS = 2.0  # of a statement; documents are loaded before

Outcome = tuple[list[str], list[list[Any]], bool, dict[str, tuple[int, bool]]]
"""Columns, rows, whether there are more; and table that was read -> its rows, whether its file has changed."""


def answer(task: tuple[str, Sequence[TableSource]]) -> Iterator[Outcome]:
    """Yield the outcome of a statement; the documents that it names are loaded first.

    InvalidInput says why it cannot be run.
    """
    statement, sources = task
    tables, read = dict[str, Table](), set[str]()

    def may_read(table: str) -> bool:
        read.add(table)
        return not table.startswith("sqlite_")

    try:
        current = list(sources)
        for place, source in enumerate(sources):
            if source.text is None:
                status = Path(source.path).stat()
                current[place] = source._replace(signature=(status.st_mtime_ns, status.st_size))
        memory, tables = _load(tuple(current))
        with reading_only(memory, SECONDS, may_read):
            columns, rows, is_cut = read_rows(memory, statement, {}, most_rows=500, most_characters=40_000)
        changed = {source.name for source, now in zip(sources, current, strict=True) if source != now}
        used = {name: (len(table.rows), name in changed) for name, table in tables.items() if name.lower() in read}
        yield columns, rows, is_cut, used
    except (OSError, apsw.Error) as error:
        reason = f"The statement cannot be run: {str(error).rstrip('.')}."
        if isinstance(error, OSError):
            reason = f"{error.filename} cannot be read: {(error.strerror or str(error)).lower()}."
            reason += " A query reads the file itself; search shows what was read of it before."
        elif isinstance(error, apsw.InterruptError):
            reason = f"The query took longer than {SECONDS:g} s and was stopped."
        elif isinstance(error, apsw.AuthError):
            reason = "A query may only read: one SELECT over the tables that list_tables names."
        elif unknown_name := str(error).partition("no such column: ")[2].rpartition(".")[2].strip('"'):
            columns = dict.fromkeys(name for table in tables.values() for name in table.columns)
            near = rapidfuzz.process.extract(unknown_name, list(columns), processor=str.casefold, limit=5)
            reason += f" Nearest columns: {', '.join(quote_name(name) for name, *_ in near)}." if near else ""
        raise InvalidInput(reason) from error


@lru_cache(maxsize=1)
def _load(sources: tuple[TableSource, ...]) -> tuple[apsw.Connection, dict[str, Table]]:
    """Return a SQLite in memory that holds these tables, and the tables by name; OSError if a file cannot be read."""
    # The last one is kept: several questions in a row mostly ask the same tables (50,000 rows: 93 ms -> 15 ms).
    from localmcp.readers.readers import read_bytes

    memory = apsw.Connection(":memory:")
    # A wrong column in double quotes is an error, not a text.
    memory.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    memory.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
    memory.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)
    memory.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    register_levenshtein(memory)

    def contains(*texts: Any) -> int:
        # Each word of the second text begins a word of the first, whatever the case and accents.
        present = words(str(texts[0]))
        return int(all(any(word.startswith(start) for word in present) for start in words(str(texts[1]))))

    memory.create_scalar_function("contains", contains, 2, deterministic=True)
    tables, documents = dict[str, Table](), dict[str, dict[str, Table]]()
    for source in sources:
        if source.path not in documents:
            data, text = (Path(source.path).read_bytes(), "") if source.text is None else (b"", source.text)
            # What can no longer be read holds no tables; a workbook is not read for its text.
            with suppress(LocalMCPError):
                if source.text is None and Path(source.path).suffix.lower() not in SHEETS:
                    text = read_bytes(data, Path(source.path).name).text
            documents[source.path] = _find_tables(source.path, text, partial(bytes, data))
        if table := documents[source.path].get(source.title):
            tables[source.name] = table
            name = quote_name(source.name)
            with memory:
                memory.execute(f"create table {name} ({', '.join(map(quote_name, table.columns))})")
                memory.executemany(f"insert into {name} values ({', '.join('?' * len(table.columns))})", table.rows)
    return memory, tables
