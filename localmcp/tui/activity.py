"""Activity: the calls of this file, live: who asked, which documents came back, how it ended; and their totals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual import on
from textual.content import Content
from textual.widgets import OptionList

from localmcp.humanize import counted, local_time, size
from localmcp.tui.answers import shortened
from localmcp.tui.forms import TextScreen, confirm
from localmcp.tui.lists import ListPane, Row
from localmcp.tui.passages import cut_right

if TYPE_CHECKING:
    from localmcp.activity import LogEntry, Statistics, Usage

SHOWN = 200
"""The latest calls that are listed."""
LOOK_SECONDS = 1.0
CUT = "…"
"""Marks arguments that were not kept whole."""
OWN = "tui"
EMPTY = (
    "[b]No calls yet[/b]\n\n"
    "Every call of an assistant shows here: what was asked, which documents it was given, how it ended.\n\n"
    "[$muted]Connect one: from a shell, localmcp connect. "
    "[/][b]m[/b][$muted] shows the calls of this window too.[/]"
)
NONE_MATCHES = "[b]No call fits[/b]\n\n[$muted]Other words, or [/][b]e[/b][$muted] for those without an error too.[/]"


class ActivityPane(ListPane):
    TITLE, KEY_GROUP = "Activity", "activity"
    PLACEHOLDER, LIST_TITLE, VIEW_TITLE = "Only calls that hold…", "Calls", "Call"
    ABOUT = (
        "Calls of assistants, of the command line and of this window (m), the latest first, live. r runs one again; "
        "/ and e choose among them; s shows what they add up to by tool and by key."
    )

    with_own = only_errors = adds_up = False
    _latest: Sequence[LogEntry] = ()
    """The last call that is in the statistics."""
    _added: Statistics | None = None

    def on_mount(self) -> None:
        self.set_interval(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Read the log again while the pane is in front: a call does not count as a change of the file."""
        if self.app.screen is self.screen and self.display and self.session.exists:
            self.reload()

    def find(self, text: str) -> list[Row]:
        if not self.session.exists:
            return []
        if self.adds_up:
            statistics = self.statistics()
            by_key = [_usage_row(usage, "By key", f"by {usage.key_name or usage.name}") for usage in statistics.callers]
            return [*(_usage_row(usage, "By tool", usage.name) for usage in statistics.tools), *by_key]
        without, words, errors = None if self.with_own else OWN, text or None, self.only_errors
        page = self.session.look(
            lambda w: w.activity.logs(limit=SHOWN, without_caller=without, words=words, errors=errors)
        )
        return [_row(entry) for entry in page.entries]

    def statistics(self) -> Statistics:
        """Return what the calls add up to; for a thread that may wait.

        Adding up tens of thousands of calls takes .4 s, and every second somebody looks: only after another call.
        """
        activity = self.session.workspace.activity
        latest = self.session.look(lambda _: activity.logs(limit=1).entries)
        if latest != self._latest or self._added is None:
            self._latest, self._added = latest, self.session.look(lambda _: activity.stats())
        return self._added

    def show_rows(self, rows: Sequence[Row]) -> None:
        """List the calls; while the latest is highlighted, the next one is as well."""
        first, follows = next(iter(self.rows), None), self.chosen is not None and self.chosen == self.rows[0]
        super().show_rows(rows)
        chosen = [" · errors only" if self.only_errors else "", " · with those of this window" if self.with_own else ""]
        self.list.border_title = "What they add up to" if self.adds_up else f"Calls{''.join(chosen)}"
        if follows and self.rows and self.rows[0] != first:
            self.list.action_first()

    def show_nothing(self) -> None:
        text = NONE_MATCHES if self.text or self.only_errors else EMPTY
        self.show(self.VIEW_TITLE, Content.from_markup(text))

    @property
    def call(self) -> LogEntry | None:
        """The call that is highlighted; None where it is a total."""
        return self.chosen.record if self.chosen is not None else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.call is not None if action in ("again", "copy") else super().check_action(action, parameters)

    @on(OptionList.OptionSelected, "#list")
    def show_call(self) -> None:
        """Show everything that the log has of a call over the whole screen."""
        if row := self.chosen:
            copy = json.dumps(row.record.as_json(), ensure_ascii=False, indent=2) if row.record else None
            self.read_over("Call", row.about, copy)

    def action_statistics(self) -> None:
        self.adds_up = not self.adds_up
        self.reload()

    def action_mine(self) -> None:
        self.with_own = not self.with_own
        self.reload()

    def action_errors(self) -> None:
        self.only_errors = not self.only_errors
        self.reload()

    def action_again(self) -> None:
        """Run the call once more; if it changes something, ask first."""
        if (entry := self.call) is None:
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
        if entry := self.call:
            self.copy(json.dumps(entry.as_json(), ensure_ascii=False), "The call is copied as JSON.")


def _row(entry: LogEntry) -> Row:
    """Return a call in two lines: when, the tool and what was asked; who, and how it ended."""
    clock = local_time(entry.started_at)[-8:]
    end = took(entry.seconds) if entry.success else f"✗ {entry.error_message or entry.error_class or 'error'}"
    tone = "$muted" if entry.success else "$error"
    title = Content.assemble(
        (f"{clock} ", "$muted"), (entry.tool, "bold"), f" {cut_right(asked_words(entry.arguments), 200)}\n",
        (f"         {entry.client} · ", "$muted"), (" ".join(end.split()), tone),
    )  # fmt: skip
    return Row(str(entry.id), title, story_of(entry), record=entry)


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


def _usage_row(usage: Usage, group: str, name: str) -> Row:
    errors = f"{usage.errors:,} ({usage.error_rate:.0%})" if usage.errors else "none"
    facts = {
        "calls": f"{usage.calls:,}", "errors": errors, "half below": took(usage.median_seconds),
        "95 % below": took(usage.p95_seconds), "answers": size(usage.result_bytes), "last": local_time(usage.last_at),
    }  # fmt: skip
    lines = [Content.assemble((f"{fact:<11}", "$muted"), text) for fact, text in facts.items()]
    title = Content.assemble(("  " + name, "bold"), (f"  {counted(usage.calls, 'call')}, {errors} failed", "$muted"))
    return Row(f"{group}/{name}", title, Content("\n").join(lines), group)


def asked_words(arguments: dict[str, Any] | None) -> str:
    """Return the arguments in a line: texts without their names, other values with them."""
    values = [
        value if isinstance(value, str) else f"{name} {json.dumps(value, ensure_ascii=False)}"
        for name, value in (arguments or {}).items()
    ]
    return " · ".join(" ".join(value.split()) for value in values)


def took(seconds: float) -> str:
    """`12 ms`, `1.4 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"
