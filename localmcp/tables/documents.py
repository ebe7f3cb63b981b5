"""The tables of a document: read from its file as it is now, and described for those who ask."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import apsw

from localmcp.errors import LocalMCPError
from localmcp.humanize import counted, quoted
from localmcp.tables.grids import Grid, Table, csv_grid, find_tables, json_grids, sheet_grids, text_grids

MOST_TABLES = 50
SAMPLE_ROWS = 3
LONGEST_SHOWN = 80
LONG = 20
"""Rows from which a search tells of a table: it shows those of shorter ones."""
SHEETS = frozenset((".xlsx", ".xlsm", ".xls", ".xlsb", ".ods"))


def describe_tables(name: str, text: str, read: Callable[[], bytes] | None) -> str | None:
    """Return as JSON what is kept of each table of a document: title, columns, count of rows, first rows, notes.

    `read` gives the bytes of its file; None for what has a text only. None for a document without tables.
    """
    described = [
        {
            "title": table.title,
            "columns": [{"name": column.name, "type": column.type} for column in table.columns],
            "rows": len(table.rows),
            "sample": [[_shortened(value) for value in row] for row in table.rows[:SAMPLE_ROWS]],
            "notes": table.notes,
            "inText": read is None,
        }
        for table in _tables(name, text, read or bytes)
    ]
    return json.dumps(described, ensure_ascii=False) if described else None


def tables_among(connection: apsw.Connection, uuids: Sequence[str]) -> str:
    """Return a sentence on long tables of those documents, which a search cannot count; "" without any."""
    sql = "select title, tables from sources where tables is not null and uuid in (select value from json_each(?))"
    told: list[str] = []
    for title, tables in connection.execute(sql, (json.dumps(uuids),)):
        if long := [table["rows"] for table in json.loads(tables) if table["rows"] >= LONG]:
            told.append(f"{quoted(title)} ({', '.join(counted(rows, 'row') for rows in long[:3])})")
    return f"Tables: {', '.join(told)}. To count or add up their rows: list_tables, query_table." if told else ""


def _shortened(value: Any) -> Any:
    return f"{value[: LONGEST_SHOWN - 1]}…" if isinstance(value, str) and len(value) > LONGEST_SHOWN else value


def read_tables(path: str, text: str | None) -> list[Table]:
    """Return the tables of a file as it is now, or of a text.

    Raises:
        OSError: the file cannot be read.
    """
    if text is not None:
        return _tables(path, text, bytes)
    from localmcp.readers.readers import read_bytes

    data = Path(path).read_bytes()
    try:
        text = "" if PurePath(path).suffix.lower() in SHEETS else read_bytes(data, PurePath(path).name).text
    except LocalMCPError:
        return []
    return _tables(path, text, lambda: data)


def _tables(name: str, text: str, read: Callable[[], bytes]) -> list[Table]:
    from python_calamine import CalamineError

    try:
        return find_tables(list(_grids(PurePath(name).suffix.lower(), text, read)))[:MOST_TABLES]
    except (CalamineError, csv.Error, ValueError, RecursionError):
        # It is damaged, or not what its name says: its text is searched all the same.
        return []


def _grids(suffix: str, text: str, read: Callable[[], bytes]) -> Iterator[Grid]:
    if suffix in SHEETS:
        yield from sheet_grids(read())
    elif suffix in (".csv", ".tsv", ".tab"):
        yield csv_grid(text)
    elif suffix in (".json", ".jsonl", ".ndjson"):
        yield from json_grids(text)
    else:
        yield from text_grids(text)
