"""Activity: what is asked of this file, as it happens, and what it adds up to."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import ContentSwitcher, DataTable, Static

from localmcp.humanize import counted, size
from localmcp.tui.keymap import bindings
from localmcp.tui.pane import Pane, Table

if TYPE_CHECKING:
    from localmcp.activity import LogEntry, LogPage, Statistics, Usage

SHOWN = 200
"""The latest calls that are listed."""
LOOK_SECONDS = 1.0
OWN = "tui"
EMPTY = (
    "[b]No calls yet[/b]\n\n"
    "Every call of an assistant shows here: what was asked, how long it took, how large the answer was.\n\n"
    "[$muted]Connect one: from a shell, localmcp serve. "
    "[/][b]m[/b][$muted] shows the calls of this window too.[/]"
)


class ActivityPane(Pane):
    """The sixth pane."""

    TITLE, KEY_GROUP = "Activity", "activity"
    ABOUT = (
        "Calls of assistants, of the command line and of this window (m), the latest first, live. enter shows one "
        "whole; s shows what they add up to by tool and by key."
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("activity")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.with_own = False
        self.entries: list[LogEntry] = []
        self._shown: tuple[Any, ...] = ()

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="calls", classes="split", id="activity-views"):
            with VerticalScroll(classes="framed", id="no-calls"):
                yield Static(Content.from_markup(EMPTY))
            yield Table(classes="framed", id="calls", cursor_type="row")
            yield Table(classes="framed", id="usage", cursor_type="row")
        yield Static(classes="note", id="activity-sum")

    def on_mount(self) -> None:
        calls = self.query_one("#calls", Table)
        calls.border_title = "Calls"
        for name, width in (("time", 8), ("by", 8), ("tool", 20), ("took", 7), ("answer", 9), ("asked", None)):
            calls.add_column(name, width=width, key=name)
        usage = self.query_one("#usage", Table)
        usage.border_title = "What they add up to"
        for name in ("tool or key", "calls", "errors", "median", "95 %", "answers", "last"):
            usage.add_column(name)
        self.set_interval(LOOK_SECONDS, self._look)

    # ------------------------------------------------------------ looking

    def _look(self) -> None:
        """While it is in front, look every second: calls change nothing that other panes show."""
        if self.app.screen is self.screen and self.display and self.session.is_open and self.session.exists:
            self.reload()

    def reload(self) -> None:
        if self.session.is_open:
            self.ask("calls", self._read, self._show)

    def _read(self) -> tuple[LogPage, Statistics]:
        from localmcp.activity import LogPage, Statistics

        if not self.session.exists:
            return LogPage([], 0), Statistics([], [])
        return self.session.look(lambda w: (w.activity.logs(limit=SHOWN), w.activity.stats()))

    def _show(self, read: tuple[LogPage, Statistics]) -> None:
        page, statistics = read
        self.entries = [each for each in page.entries if self.with_own or each.caller != OWN]
        sign = (page.total, self.with_own, self.entries[0].id if self.entries else 0)
        if sign == self._shown:
            return
        self._shown = sign
        views = self.query_one("#activity-views", ContentSwitcher)
        if views.current != "usage":
            views.current = "calls" if self.entries else "no-calls"
        self._show_calls()
        self._show_usage(statistics)
        words = f"{counted(statistics.calls, 'call')}, {counted(statistics.errors, 'error')}"
        mine = " · with those of this window" if self.with_own else ""
        self.query_one("#activity-sum", Static).update(f"{words} in the log{mine}")
        self.keep_focus()

    def _show_calls(self) -> None:
        table = self.query_one("#calls", Table)
        row, follow = table.cursor_row, table.cursor_row == 0
        before = str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value) if table.row_count else ""
        table.clear()
        for each in self.entries:
            table.put(_cells(each), str(each.id), "" if each.success else "error")
        if not follow and before in {str(each.id) for each in self.entries}:
            row = table.get_row_index(before)
        table.move_cursor(row=min(row, max(table.row_count - 1, 0)))

    def _show_usage(self, statistics: Statistics) -> None:
        table = self.query_one("#usage", Table)
        table.clear()
        for each in statistics.tools:
            table.put(_usage_cells(each))
        for each in statistics.callers:
            table.put(_usage_cells(each, by=True), tone="secondary")

    def focus_first(self) -> None:
        """The view in front."""
        current = str(self.query_one("#activity-views", ContentSwitcher).current)
        self.query_one(f"#{current}").focus()

    # ------------------------------------------------------------ actions

    def action_statistics(self) -> None:
        views = self.query_one("#activity-views", ContentSwitcher)
        views.current = "usage" if views.current != "usage" else "calls" if self.entries else "no-calls"
        self.query_one(f"#{views.current}").focus()

    def action_mine(self) -> None:
        self.with_own = not self.with_own
        self.reload()

    @property
    def chosen(self) -> LogEntry | None:
        """The call that is highlighted."""
        table = self.query_one("#calls", Table)
        return self.entries[table.cursor_row] if 0 <= table.cursor_row < len(self.entries) else None

    @on(DataTable.RowSelected, "#calls")
    def show_call(self) -> None:
        """Enter: everything that was kept of a call."""
        from localmcp.tui.dialogs import TextScreen

        if entry := self.chosen:
            told = json.dumps(entry.as_json(), ensure_ascii=False, indent=2)
            self.app.push_screen(TextScreen(f"{entry.tool}, call {entry.id}", Content(told), copy=told))

    def action_copy(self) -> None:
        if entry := self.chosen:
            self.app.copy_to_clipboard(json.dumps(entry.as_json(), ensure_ascii=False))
            self.app.notify("The call is copied as JSON.")


def _cells(entry: LogEntry) -> list[str]:
    asked = _asked(entry.arguments) if entry.success else entry.error_message or entry.error_class or ""
    answer = size(entry.result_bytes) if entry.success else "✗ error"
    return [
        local_clock(entry.started_at),
        entry.key_name or entry.caller,
        entry.tool,
        took(entry.seconds),
        answer,
        asked,
    ]


def _usage_cells(each: Usage, *, by: bool = False) -> list[str]:
    name = f"by {each.key_name or each.name}" if by else each.name
    errors = f"{each.errors:,} ({each.error_rate:.0%})" if each.errors else ""
    times = [took(each.median_seconds), took(each.p95_seconds)]
    return [name, f"{each.calls:,}", errors, *times, size(each.result_bytes), each.last_at[:16].replace("T", " ")]


def _asked(arguments: dict[str, Any] | None) -> str:
    """What was asked, in a line: the values, which say more than the names."""
    values = [
        each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in (arguments or {}).values()
    ]
    return " · ".join(" ".join(each.split()) for each in values)[:200]


def local_clock(iso: str) -> str:
    """The time of day here."""
    try:
        return datetime.fromisoformat(iso).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return iso[:8]


def took(seconds: float) -> str:
    """`12 ms`, `1.4 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"
