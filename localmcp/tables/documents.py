"""The tables of a document: read from its file as it is now, and described for those who ask."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

from localmcp.errors import LocalMCPError
from localmcp.tables.grids import Grid, Table, csv_grid, find_tables, json_grids, sheet_grids, text_grids

MOST_TABLES = 50
SAMPLE_ROWS = 3
LONGEST_SHOWN = 80
SHEETS = frozenset((".xlsx", ".xlsm", ".xls", ".xlsb", ".ods"))
DELIMITED = frozenset((".csv", ".tsv", ".tab"))
RECORDS = frozenset((".json", ".jsonl", ".ndjson"))


def find_document_tables(name: str, text: str, read: Callable[[], bytes]) -> list[Table]:
    """Return the tables of a document by its name, text and, for workbooks, the bytes that `read` gives."""
    from python_calamine import CalamineError

    try:
        return find_tables(list(_grids(PurePath(name).suffix.lower(), text, read)))[:MOST_TABLES]
    except (CalamineError, csv.Error, ValueError, RecursionError):
        # It is damaged, or not what its name says: its text is searched all the same.
        return []


def _grids(suffix: str, text: str, read: Callable[[], bytes]) -> Iterator[Grid]:
    if suffix in SHEETS:
        yield from sheet_grids(read())
    elif suffix in DELIMITED:
        yield csv_grid(text)
    elif suffix in RECORDS:
        yield from json_grids(text)
    else:
        yield from text_grids(text)


def read_tables(path: str, text: str | None) -> list[Table]:
    """Return the tables of a file as it is now, or of a document that has its text only.

    Raises:
        OSError: the file cannot be read.
    """
    if text is not None:
        return find_document_tables(path, text, bytes)
    from localmcp.readers.readers import read_bytes

    data = Path(path).read_bytes()
    try:
        text = "" if PurePath(path).suffix.lower() in SHEETS else read_bytes(data, PurePath(path).name).text
    except LocalMCPError:
        return []
    return find_document_tables(path, text, lambda: data)


def describe(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """Return what is kept of each table: its title, columns, count of rows, first rows, and what is to be known."""
    return [
        {
            "title": table.title,
            "columns": [{"name": column.name, "type": column.type} for column in table.columns],
            "rows": len(table.rows),
            "sample": [[_shortened(value) for value in row] for row in table.rows[:SAMPLE_ROWS]],
            "notes": table.notes,
        }
        for table in tables
    ]


def _shortened(value: Any) -> Any:
    return f"{value[: LONGEST_SHOWN - 1]}…" if isinstance(value, str) and len(value) > LONGEST_SHOWN else value
