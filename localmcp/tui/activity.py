"""Activity: the calls of this file, live: who asked, which documents came back, how it ended; and their totals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from localmcp.humanize import local_time, size
from localmcp.tui.dialogs import TextScreen
from localmcp.tui.tools import describe_answer
from localmcp.tui.widgets import Pane, Row, cut, facts, lines

if TYPE_CHECKING:
    from localmcp.activity import LogEntry

SHOWN = 200
"""The latest calls that are listed."""
LOOK_SECONDS = 1.0
EMPTY = (
    "[b]No calls yet[/b]\n\n"
    "Every call of an assistant shows here: what was asked, which documents it was given, how it ended.\n\n"
    "[$muted]Connect one: [/][b]5[/b][$muted], or from a shell: localmcp connect. "
    "[/][b]m[/b][$muted] shows the calls of this window too.[/]"
)


class ActivityPane(Pane):
    PLACEHOLDER, LIST_TITLE = "Only calls that hold…", "Calls"
    FOLLOWS_TOP, LOOKS_EVERY = True, LOOK_SECONDS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "errors", "Errors only"), Binding("s", "statistics", "Totals"), Binding("m", "mine", "Mine"),
        Binding("y", "copy", "Copy"),
    ]  # fmt: skip
    HELP = """\
    Calls of assistants, of the command line and of this window (m), the latest first, live. The line and e
    choose among them; s shows what they add up to by tool and by key.
    """

    with_own = only_errors = False

    def find(self, text: str) -> list[Row]:
        if not self.session.exists:
            return []
        without, words, errors = None if self.with_own else "tui", text or None, self.only_errors
        entries, _ = self.session.look(
            lambda w: w.activity.logs(limit=SHOWN, without_caller=without, words=words, errors=errors)
        )
        return [_row(entry) for entry in entries]

    def title(self) -> str:
        chosen = [self.LIST_TITLE, "errors only" if self.only_errors else "", "with mine" if self.with_own else ""]
        return " · ".join(filter(None, chosen))

    def nothing(self) -> str:
        return "[b]No call fits[/b]" if self.text or self.only_errors else EMPTY

    def action_mine(self) -> None:
        self.with_own = not self.with_own
        self.reload()

    def action_errors(self) -> None:
        self.only_errors = not self.only_errors
        self.reload()

    def action_statistics(self) -> None:
        """Show what the calls add up to."""
        self.ask(
            "totals", lambda: self.session.look(lambda w: w.activity.stats()),
            lambda totals: self.app.push_screen(TextScreen("What the calls add up to", describe_answer(totals))),
        )  # fmt: skip

    def action_copy(self) -> None:
        if row := self.chosen:
            self.copy(json.dumps(row.record.as_json(), ensure_ascii=False), "The call is copied as JSON.")


def _row(entry: LogEntry) -> Row:
    """Return a call in two lines: when, the tool and what was asked; who, and how it ended; beside them the whole."""
    when, arguments = local_time(entry.started_at), entry.arguments or {}
    values = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in arguments.items()
    }
    # Texts say without their names what they are.
    words = (text if isinstance(arguments[name], str) else f"{name} {text}" for name, text in values.items())
    asked = cut(" · ".join(" ".join(text.split()) for text in words), 200)
    took = f"{entry.seconds * 1000:.0f} ms" if entry.seconds < 0.9995 else f"{entry.seconds:.1f} s"
    end = took if entry.success else f"✗ {entry.error_message or entry.error_class or 'error'}"
    title = Content.assemble(
        (f"{when[-8:]} ", "$muted"), (entry.tool, "bold"), f" {asked}\n", (f"         {entry.client} · ", "$muted"),
        (" ".join(end.split()), "$muted" if entry.success else "$error"),
    )  # fmt: skip
    parts = [Content.assemble((entry.client, "bold $accent"), " called ", (entry.tool, "bold"), f" on {when}")]
    parts += [Content.styled(f"through {entry.via}", "$muted")] if entry.via else []
    parts += [Content(""), *facts({**values})]
    if entry.documents:
        parts += [Content(""), Content.styled("was given", "$muted"), *(Content(f"  {d}") for d in entry.documents)]
    if entry.success:
        parts.append(Content.styled(f"\n✓ {took}, an answer of {size(entry.result_bytes)}", "$success"))
    else:
        parts.append(Content.styled(f"\n✗ {entry.error_class}: {entry.error_message or ''}", "$error"))
    return Row(str(entry.id), title, lines(*parts), record=entry)
