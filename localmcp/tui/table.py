"""A table of a document, over the whole screen, sorted by the column that one chooses."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import DataTable, Footer

from localmcp.schemas import Json
from localmcp.tui.dialogs import ChoiceScreen, ask_screen
from localmcp.tui.widgets import Asking


class TableScreen(Screen[None], Asking):  # pyright: ignore[reportIncompatibleMethodOverride]
    """The rows of a table as they are in the file now."""

    HELP = "A table of the document. s, or a click on its head, sorts by a column; once more turns the order."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "dismiss", "Back"), Binding("s", "sort", "Sort by this column"),
        Binding("y", "copy", "Copy cell"),
    ]  # fmt: skip

    def __init__(self, described: Json) -> None:
        """`described`: an item of the answer of `list_tables`."""
        super().__init__()
        self._described = described
        self._columns: list[str] = []
        self._rows: list[list[Any]] = []
        self._sorted_by = (-1, False)
        """A column, and whether the largest are first."""

    @property
    def table(self) -> DataTable[Any]:
        """The rows that are shown."""
        return cast(Any, self).query_one(DataTable)

    def compose(self) -> ComposeResult:
        yield DataTable[Any](classes="framed", id="table", zebra_stripes=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.table.border_title = Content(f"{self._described['name']} — {self._described['document']}")
        self._ask()

    def _ask(self, order: str = "") -> None:
        """Ask for the rows in an order: there may be more than an answer holds."""
        sql = f"select * from {_quoted(self._described['name'])} {order}"
        self.ask("rows", lambda: self.session.read("query_table", sql=sql), self._show)

    def _show(self, answer: Json) -> None:
        self._columns, self._rows = answer["columns"], answer["rows"]
        says = [f"{self._described['rows']:,} rows", *answer.get("notices", ())]
        self.table.border_subtitle = Content(" · ".join(says))
        self.table.clear(columns=True)
        column, is_turned = self._sorted_by
        for number, name in enumerate(self._columns):
            # A plain text would be markup.
            self.table.add_column(Text(f"{name}{'' if number != column else ' ▼' if is_turned else ' ▲'}"))
        self.table.add_rows([_cell(value) for value in row] for row in self._rows)
        self.table.move_cursor(row=0, column=max(column, 0))

    def _sort(self, column: int) -> None:
        is_turned = self._sorted_by == (column, False)
        self._sorted_by, name = (column, is_turned), _quoted(self._columns[column])
        self._ask(f"order by {name} is null, {name} {'desc' if is_turned else ''}")

    @on(DataTable.HeaderSelected)
    def head_clicked(self, message: DataTable.HeaderSelected) -> None:
        self._sort(message.column_index)

    def action_sort(self) -> None:
        if self._rows:
            self._sort(self.table.cursor_column)

    def action_copy(self) -> None:
        if self._rows:
            value = self._rows[self.table.cursor_row][self.table.cursor_column]
            self.copy("" if value is None else str(value), "The cell is copied.")


def _cell(value: Any) -> Text:
    if isinstance(value, int | float):
        return Text(f"{value:,}" if abs(value) >= 10_000 else str(value), justify="right")
    return Text("" if value is None else " ".join(str(value).split()))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def open_tables(widget: Asking, source_id: str) -> None:
    """Show the table of a document; of several, ask which."""

    def show(answer: Json) -> None:
        tables: list[Json] = answer["tables"]
        if not tables:
            widget.app.notify("This document has no table of three rows or more.")
        elif len(tables) == 1:
            widget.app.push_screen(TableScreen(tables[0]))
        else:
            rows = [Content.assemble((f" {t['name']}  ", "bold"), (f"{t['rows']:,} rows", "$muted")) for t in tables]
            screen = ChoiceScreen("Tables of this document", rows, says="enter shows it")
            ask_screen(widget, screen, lambda number: widget.app.push_screen(TableScreen(tables[number])))

    widget.ask("tables", lambda: widget.session.read("list_tables", document=source_id, limit=100), show)
