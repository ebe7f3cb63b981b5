"""The answer of a tool: as a table if it holds a list, as JSON, or as the text that a model reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar, cast

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.getters import query_one
from textual.widgets import ContentSwitcher, DataTable, Static

from localmcp.errors import LocalMCPError
from localmcp.humanize import cut_to, size
from localmcp.schemas import Json, list_of
from localmcp.tui.keymap import bindings
from localmcp.tui.pane import visible_content
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

    def action_first(self) -> None:
        self.move_cursor(row=0)

    def action_last(self) -> None:
        self.move_cursor(row=max(self.row_count - 1, 0))


VIEWS = ("table", "json", "text")
MOST_ROWS = 200
MOST_CHARACTERS = 100_000
MOST_CELL = 60
"""Characters of a value in the table."""


class AnswerView(Vertical):
    """Three views of one answer."""

    DEFAULT_CSS = """
    AnswerView { height: 1fr; min-height: 6; }
    AnswerView DataTable { height: 1fr; background: $background; }
    """

    switcher = query_one(ContentSwitcher)
    as_json = ""
    is_filled = False

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="text"):
            yield Table(id="table", cursor_type="row", zebra_stripes=False)
            with VerticalScroll(id="json"):
                yield Static(id="json-text")
            with VerticalScroll(id="text"):
                yield Static(Content.styled("ctrl+r runs the tool.", "$muted"), id="plain-text")

    def clear(self) -> None:
        """Say how to run the tool."""
        self.is_filled = False
        self._plain(Content.styled("ctrl+r runs the tool.", "$muted"))

    def wait(self) -> None:
        """Say that the tool is running."""
        self._plain(Content.styled("◌ running …", "$accent"))

    def _plain(self, text: Content) -> None:
        self.query_one("#plain-text", Static).update(text)
        self.switcher.current = "text"
        self.border_subtitle = ""

    def show(self, answer: Any) -> None:
        """Show an answer, or the error that came instead."""
        self.is_filled = not isinstance(answer, LocalMCPError)
        if isinstance(answer, LocalMCPError):
            self._plain(Content.styled(f"✗ {answer}", "$error"))
            return
        self.as_json = json.dumps(answer.value, ensure_ascii=False, indent=2, default=str)
        self.query_one("#json-text", Static).update(Content(shortened(self.as_json)))
        self.query_one("#plain-text", Static).update(Content(shortened(answer.text)))
        has_rows = self._fill_table(answer.value)
        self.switcher.current = "table" if has_rows else "json"
        self._say()

    def focus_view(self) -> None:
        """Put the focus on the view in front, so that letters are keys."""
        self.query_one(f"#{self.switcher.current}").focus()

    def turn(self) -> None:
        """Turn to the next of the three views."""
        here = VIEWS.index(str(self.switcher.current))
        self.switcher.current = VIEWS[(here + 1) % len(VIEWS)]
        self.focus_view()
        self._say()

    def _say(self) -> None:
        current = self.switcher.current
        self.border_subtitle = " │ ".join(f"[reverse] {view} [/]" if view == current else view for view in VIEWS)

    def _fill_table(self, value: Json) -> bool:
        """Show the longest list of objects, else the fields of the object; False when there is nothing to show."""
        table = self.query_one(Table)
        table.clear(columns=True)
        head, rows = table_of(value)
        for name in head:
            table.add_column(Text(name))
        for row in rows[:MOST_ROWS]:
            table.put(row)
        if len(rows) > MOST_ROWS:
            table.put([f"… {len(rows) - MOST_ROWS:,} more: see JSON", *[""] * (len(head) - 1)])
        return bool(rows)


def told(value: Any) -> Content:
    """Return what a command answered as text: a record by its fields, their names in words, lists of records below."""
    if isinstance(value, Content | str):
        return visible_content(value if isinstance(value, Content) else Content(value))
    record = cast("Json", asdict(cast(Any, value)) if is_dataclass(value) else value)
    facts = {_label(name): _fact(name, field) for name, field in record.items() if not _is_rows(field)}
    width = max(map(len, facts), default=0)
    parts = [Content.assemble((name.rjust(width), "$muted"), "  ", fact) for name, fact in facts.items() if fact]
    for name, rows in record.items():
        if _is_rows(rows):
            lines = ["  ".join(filter(None, (_fact(key, field) for key, field in row.items()))) for row in rows]
            parts += [Content.styled(f"\n{_label(name)}", "$muted"), *map(Content, lines)]
    return visible_content(Content("\n").join(parts))


def _label(name: str) -> str:
    """Return the name of a field in words: `createdAt` as `created at`."""
    return re.sub(r"(?<=[a-z])([A-Z])", lambda letter: f" {letter[1].lower()}", name).replace("_", " ")


def _fact(name: str, value: Any) -> str:
    """Return a value in a line; empty for nothing and false."""
    if value is None or value is False or value in ([], ()):
        return ""
    if isinstance(value, bool):
        return "yes"
    if isinstance(value, int) and name.lower().endswith(("bytes", "bytes_before", "bytes_after")):
        return size(value)
    if isinstance(value, dict):
        inner = cast("Json", value).items()
        return ", ".join(f"{_label(key)}: {text}" for key, field in inner if (text := _fact(key, field)))
    if isinstance(value, list | tuple):
        return ", ".join(_fact(name, item) for item in cast("list[Any]", value))
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(cast(object, value))


def table_of(value: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return (names of columns, rows) of an answer: the longest list of objects in it, or its own fields."""
    lists = [cast("list[Json]", field) for field in value.values() if _is_rows(field)]
    if not lists:
        return ["field", "value"], [[name, _cell(field)] for name, field in value.items()]
    rows = max(lists, key=len)
    head = list(dict.fromkeys(name for row in rows[:MOST_ROWS] for name in row))
    plain = [name for name in head if any(_is_plain(row.get(name)) for row in rows)]
    return plain, [[_cell(row.get(name)) for name in plain] for row in rows]


def _is_plain(value: Any) -> bool:
    return value is not None and not isinstance(value, dict | list)


def _is_rows(value: Any) -> bool:
    rows = list_of(value)
    return bool(rows) and all(isinstance(row, dict) for row in rows)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    plain = cast(object, value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, default=str)
    return cut_to(" ".join(text.split()), MOST_CELL)


def shortened(text: str) -> str:
    """Return a text that a screen can hold; where it is cut, it says so."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:MOST_CHARACTERS]}\n… {len(text) - MOST_CHARACTERS:,} more characters; y copies all"
