"""Writes the rows of spreadsheets as lines that name their values, and remembers which row each line is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

Cells = dict[int, str]
"""0-based column -> text of each cell that holds any."""


def plain_number(value: str, number: float) -> str:
    """Return a number without an exponent where it is whole: people search for the digits of a card or an account."""
    if re.fullmatch(r"-?\d{1,20}", value):
        return value
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e20 else f"{number:.15g}"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a sheet that holds anything."""

    number: int
    """1-based."""
    cells: Cells
    only_words: bool
    """No cell is a number or a date, so that it can be a row of column names."""
    comments: tuple[str, ...] = ()


@dataclass(slots=True)
class SheetWriter:
    """Writes sheets one below the other, each under a heading with its name.

    Below a row of column names a row reads `- name: value; name: value`, so that a passage from the middle of a long
    sheet still says what its values are.
    """

    row_starts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _lines: list[str] = field(default_factory=list[str])
    _offset: int = 0
    _expected: int = -1
    """The row that a reader expects on the next line."""
    _title: str = ""
    """Of the sheet, as long as it has no row."""
    _names: Cells = field(default_factory=dict[int, str])
    _begun: bool = False
    """Whether a row of names or of values has been written."""

    def text(self) -> str:
        return "".join(self._lines).rstrip("\n")

    def begin_sheet(self, title: str) -> None:
        """Begin a sheet; one without any row is left out."""
        self._title, self._names, self._begun = title, {}, False

    def add(self, row: Row) -> None:
        """Write the next row of the sheet."""
        if self._title:
            self._write("\n" if self._offset else "")
            self.row_starts.append((self._offset, 0))
            self._write(f"## {self._title}\n\n")
            self._title, self._expected = "", -1
        if not self._begun and self._heads(row):
            self._names = row.cells if len(row.cells) > 1 else {}
            self._begun = len(row.cells) > 1
            self._write_row(row, " | ".join(row.cells.values()) + "\n")
        else:
            self._begun = True
            names = ((self._names.get(column, ""), cell) for column, cell in row.cells.items())
            self._write_row(row, "- " + "; ".join(f"{name}: {cell}" if name else cell for name, cell in names))

    @staticmethod
    def _heads(row: Row) -> bool:
        distinct = len(set(row.cells.values())) == len(row.cells)
        return len(row.cells) == 1 or (row.only_words and distinct)

    def _write_row(self, row: Row, line: str) -> None:
        if row.number != self._expected:
            self.row_starts.append((self._offset, row.number))
        head, empty, _ = line.partition("\n")
        self._write("; ".join([head, *row.comments]) + "\n" + empty)
        self._expected = -1 if empty else row.number + 1

    def _write(self, piece: str) -> None:
        self._lines.append(piece)
        self._offset += len(piece)
