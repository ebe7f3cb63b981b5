"""Activity: the calls of this file, live: who asked, which documents came back, how it ended; and their totals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.getters import query_one
from textual.widgets import ContentSwitcher, DataTable, Input, Static

from localmcp.activity import LogPage, Statistics
from localmcp.humanize import counted, local_time, size
from localmcp.tui.answers import Table, shortened
from localmcp.tui.forms import TextScreen, confirm
from localmcp.tui.pane import FilterLine, Pane

if TYPE_CHECKING:
    from localmcp.activity import LogEntry, Usage
    from localmcp.workspace import Workspace

SHOWN = 200
"""The latest calls that are listed."""
LOOK_SECONDS = 1.0
CLOCK = 8
SHARES = {"who": 17, "tool": 15, "asked": 30, "was given": 21, "ended": 17}
"""Column -> its share of the width that the time leaves; a cell that does not fit is cut."""
CUT = "…"
"""Marks arguments that were not kept whole."""
OWN = "tui"
EMPTY = (
    "[b]No calls yet[/b]\n\n"
    "Every call of an assistant shows here: what was asked, which documents it was given, how it ended.\n\n"
    "[$muted]Connect one: from a shell, localmcp connect. "
    "[/][b]m[/b][$muted] shows the calls of this window too.[/]"
)
NONE_MATCHES = "[b]No call fits the filter[/b]\n\n[$muted]esc, or [/][b]e[/b][$muted], shows every call again.[/]"


class ActivityPane(Pane):
    TITLE, KEY_GROUP = "Activity", "activity"
    ABOUT = (
        "Calls of assistants, of the command line and of this window (m), the latest first, live. enter shows one "
        "whole, r runs it again; / and e choose among them; s shows what they add up to by tool and by key."
    )

    views = query_one("#activity-views", ContentSwitcher)
    calls = query_one("#calls", Table)
    usage = query_one("#usage", Table)
    with_own = only_errors = False
    entries: Sequence[LogEntry] = ()
    _shown: tuple[Any, ...] = ()
    _latest: Sequence[LogEntry] = ()
    """The last call that is in the statistics."""
    _statistics: Statistics | None = None

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="calls", classes="split", id="activity-views"):
            with VerticalScroll(classes="framed", id="no-calls"):
                yield Static(Content.from_markup(EMPTY), id="no-calls-text")
            yield Table(classes="framed", id="calls", cursor_type="row")
            yield Table(classes="framed", id="usage", cursor_type="row")
        yield Static(classes="note", id="activity-sum")
        yield FilterLine("Only calls that hold…", id="activity-filter")

    def on_mount(self) -> None:
        self.columns: dict[str, int] = {}
        self.calls.border_title = "Calls"
        self.usage.border_title = "What they add up to"
        self.usage.add_columns("tool or key", "calls", "errors", "median", "95 %", "answers", "last")
        self.set_interval(LOOK_SECONDS, self._look)

    def on_resize(self) -> None:
        """Give the columns the width there is."""
        row = self.calls.cursor_row
        self.calls.clear(columns=True)
        self.columns = column_widths(self.size.width)
        for name, cells in self.columns.items():
            self.calls.add_column(name, width=cells, key=name)
        self._show_calls()
        self.calls.move_cursor(row=row)

    def _look(self) -> None:
        """Read the log again while the pane is in front: a call does not count as a change of the file."""
        if self.app.screen is self.screen and self.display and self.session.is_open and self.session.exists:
            self.reload()

    def reload(self) -> None:
        if self.session.is_open:
            self.ask("calls", self._read, self._show)

    def _read(self) -> tuple[LogPage, Statistics]:
        if not self.session.exists:
            return LogPage([], 0), Statistics([], [])
        without, words, errors = None if self.with_own else OWN, self.words or None, self.only_errors

        def read(workspace: Workspace) -> tuple[LogPage, Statistics]:
            activity = workspace.activity
            page = activity.logs(limit=SHOWN, without_caller=without, words=words, errors=errors)
            latest = activity.logs(limit=1).entries
            # Adding up tens of thousands of calls takes .4 s, and every second somebody looks.
            if latest != self._latest or self._statistics is None:
                self._latest, self._statistics = latest, activity.stats()
            return page, self._statistics

        return self.session.look(read)

    def _show(self, read: tuple[LogPage, Statistics]) -> None:
        page, statistics = read
        self.entries = page.entries
        sign = (page.total, self.with_own, self.only_errors, self.words, self.entries[0].id if self.entries else 0)
        if sign == self._shown:
            return
        self._shown = sign
        self.query_one("#no-calls-text", Static).update(
            Content.from_markup(NONE_MATCHES if self.words or self.only_errors else EMPTY)
        )
        if self.views.current != "usage":
            self.views.current = "calls" if self.entries else "no-calls"
        self._show_calls()
        self._show_usage(statistics)
        words = f"{counted(statistics.calls, 'call')}, {counted(statistics.errors, 'error')} in the log"
        chosen = f" · {page.total:,} shown here" if page.total != statistics.calls else ""
        errors = " · errors only" if self.only_errors else ""
        mine = " · with those of this window" if self.with_own else ""
        self.query_one("#activity-sum", Static).update(f"{words}{chosen}{errors}{mine}")
        self.refresh_bindings()
        if not isinstance(self.screen.focused, Input):
            self.keep_focus()

    def _show_calls(self) -> None:
        table = self.calls
        follow = table.cursor_row == 0
        before = str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value) if table.row_count else ""
        rows = [(_cells(entry), str(entry.id), "" if entry.success else "error") for entry in self.entries]
        table.refill(([cells[name] for name in self.columns], key, tone) for cells, key, tone in rows)
        if not follow and before in {key for _, key, _ in rows}:
            table.move_cursor(row=table.get_row_index(before))

    def _show_usage(self, statistics: Statistics) -> None:
        self.usage.clear()
        for usage in statistics.tools:
            self.usage.put(_usage_cells(usage))
        for usage in statistics.callers:
            self.usage.put(_usage_cells(usage, by=True), tone="secondary")

    def action_statistics(self) -> None:
        calls = "calls" if self.entries else "no-calls"
        self.views.current = "usage" if self.views.current != "usage" else calls
        self.focus_first()

    def action_mine(self) -> None:
        self.with_own = not self.with_own
        self.reload()

    @property
    def chosen(self) -> LogEntry | None:
        """The call that is highlighted."""
        return self.calls.chosen(self.entries)

    def action_errors(self) -> None:
        self.only_errors = not self.only_errors
        self.reload()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return bool(self.entries) if action in ("again", "copy") else super().check_action(action, parameters)

    @on(DataTable.RowSelected, "#calls")
    def show_call(self) -> None:
        """Show everything that the log has of a call."""
        if entry := self.chosen:
            record = json.dumps(entry.as_json(), ensure_ascii=False, indent=2)
            self.app.push_screen(TextScreen(f"Call {entry.id}", story_of(entry), copy=record))

    def action_again(self) -> None:
        """Run the call once more; if it changes something, ask first."""
        entry = self.chosen
        if entry is None:
            return
        if entry.arguments is None or CUT in json.dumps(entry.arguments, ensure_ascii=False):
            self.app.notify("Its arguments were not kept whole, so it cannot run again.", severity="warning")
            return
        mark = self.session.workspace.registry.get(entry.tool).mark
        if mark.read_only:
            self._run(entry)
        else:
            confirm(self, f"Run {entry.tool} again?", "It changes something.", "Run", lambda: self._run(entry))

    def _run(self, entry: LogEntry) -> None:
        def show(answer: Any) -> None:
            shown = json.dumps(answer.value, ensure_ascii=False, indent=2, default=str)
            self.app.push_screen(TextScreen(f"{entry.tool}, run again", Content(shortened(shown)), copy=shown))

        self.ask("again", lambda: self.session.answer(entry.tool, **(entry.arguments or {})), show)

    def action_copy(self) -> None:
        if entry := self.chosen:
            self.copy(json.dumps(entry.as_json(), ensure_ascii=False), "The call is copied as JSON.")


def column_widths(width: int) -> dict[str, int]:
    """Return the columns that fit a screen, with their widths."""
    names = [name for name in SHARES if width >= 100 or name != "was given"]
    columns, shares = width - CLOCK - 2 * len(names) - 5, sum(SHARES[name] for name in names)
    return {"time": CLOCK, **{name: columns * SHARES[name] // shares for name in names}}


def _cells(entry: LogEntry) -> dict[str, str]:
    end = took(entry.seconds) if entry.success else f"✗ {entry.error_message or entry.error_class or 'error'}"
    titles = ", ".join(entry.documents)
    asked = asked_words(entry.arguments)
    shown = (local_time(entry.started_at)[-CLOCK:], entry.client, entry.tool, asked, titles, end)
    return dict(zip(("time", "who", "tool", "asked", "was given", "ended"), shown, strict=True))


def story_of(entry: LogEntry) -> Content:
    """Return who called what, the arguments, the documents of the answer, and how it ended."""
    when = local_time(entry.started_at)
    lines = [Content.assemble((entry.client, "bold $accent"), " called ", (entry.tool, "bold"), f" on {when}")]
    if entry.via:
        lines.append(Content.styled(f"through {entry.via}", "$muted"))
    lines.append(Content(""))
    for name, value in (entry.arguments or {}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(Content.assemble((f"{name:<12} ", "$muted"), text))
    if entry.documents:
        lines += [Content(""), Content.styled("was given", "$muted"), *(Content(f"  {d}") for d in entry.documents)]
    if entry.success:
        end = Content.styled(f"✓ {took(entry.seconds)}, an answer of {size(entry.result_bytes)}", "$success")
    else:
        end = Content.styled(f"✗ {entry.error_class}: {entry.error_message or ''}", "$error")
    return Content("\n").join([*lines, Content(""), end])


def _usage_cells(usage: Usage, *, by: bool = False) -> list[str]:
    name = f"by {usage.key_name or usage.name}" if by else usage.name
    errors = f"{usage.errors:,} ({usage.error_rate:.0%})" if usage.errors else ""
    times = [took(usage.median_seconds), took(usage.p95_seconds)]
    return [name, f"{usage.calls:,}", errors, *times, size(usage.result_bytes), _short_time(usage.last_at)]


def _short_time(moment: str) -> str:
    """Return the clock of a call of today, else its day: the last of many columns has no space for both."""
    day, _, clock = local_time(moment).partition(" ")
    return clock if day == f"{datetime.now():%Y-%m-%d}" else day


def asked_words(arguments: dict[str, Any] | None) -> str:
    """Return the arguments in a line: texts without their names, other values with them."""
    values = [
        value if isinstance(value, str) else f"{name} {json.dumps(value, ensure_ascii=False)}"
        for name, value in (arguments or {}).items()
    ]
    return " · ".join(" ".join(value.split()) for value in values)[:200]


def took(seconds: float) -> str:
    """`12 ms`, `1.4 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"
