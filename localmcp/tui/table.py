"""A table whose cells are drawn as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import DataTable

from localmcp.tui.keymap import bindings
from localmcp.tui.theme import color

T = TypeVar("T")


class Table(DataTable[Any]):
    """A table of rows."""

    BINDINGS = bindings("list")

    def put(self, row: Sequence[str], key: str | None = None, tone: str = "") -> None:
        """Add a row as it is, brackets and all, in a color of the theme."""
        style = color(self.app.theme_variables, tone) if tone else ""
        self.add_row(*(Text(cell, style, no_wrap=True, overflow="ellipsis") for cell in row), key=key)
        # Rows that take the place of others are not always measured when the table is idle.
        for column, cell in zip(self.ordered_columns, row, strict=False):
            column.content_width = max(column.content_width, cell_len(cell))

    def refill(self, rows: Iterable[tuple[Sequence[str], str, str]]) -> None:
        """Replace the rows, (cells, key, tone) each; the cursor stays on its line, or goes to the last."""
        line = self.cursor_row
        self.clear()
        for cells, key, tone in rows:
            self.put(cells, key, tone)
        self.move_cursor(row=min(line, max(self.row_count - 1, 0)))

    def chosen(self, rows: Sequence[T]) -> T | None:
        """Return what the highlighted row represents, of what the table shows."""
        return rows[self.cursor_row] if 0 <= self.cursor_row < len(rows) else None

    def action_first(self) -> None:
        self.move_cursor(row=0)

    def action_last(self) -> None:
        self.move_cursor(row=max(self.row_count - 1, 0))
