"""Picking a passage while typing, in a few lines below the prompt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.getters import query_one
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localmcp.humanize import counted
from localmcp.library.query_line import parse_query_line
from localmcp.schemas import Json
from localmcp.tui import theme
from localmcp.tui.frame import first_line
from localmcp.tui.passages import HitLines, matcher_of
from localmcp.tui.search import Asked, hits_of, remarks_of, run_search
from localmcp.tui.session import Failed, FileChanged, ModelChanged, Opened, Session
from localmcp.tui.widgets import Asking, Choices, TextLine

if TYPE_CHECKING:
    from localmcp.tools import CallRecord
    from localmcp.workspace import Workspace

ROWS = 12
"""Lines of the list: four passages."""


class Picker(Vertical, Asking):
    """A line, the passages that fit, and a line about them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "pick", priority=True),
        Binding("down,ctrl+n", "move(1)", priority=True), Binding("up", "move(-1)", priority=True),
        Binding("pagedown", "move(4)", priority=True), Binding("pageup", "move(-4)", priority=True),
    ]  # fmt: skip

    line = query_one(Input)
    choices = query_one(Choices)

    def __init__(self, query: str, mode: str) -> None:
        super().__init__()
        self._query, self._mode = query, mode
        self._draft: CallRecord | None = None
        self._hits: list[Json] = []

    def compose(self) -> ComposeResult:
        yield TextLine(self._query, placeholder="Search your documents", compact=True, select_on_focus=False)
        yield Choices(id="passages")
        yield Static(id="says")

    def on_mount(self) -> None:
        self.line.focus()
        self.line.cursor_position = len(self.line.value)
        self.say("◌ opening")

    def say(self, text: str) -> None:
        """Show one line below the list."""
        self.query_one("#says", Static).update(Content.styled(text, "$muted"))

    @on(Input.Changed)
    def typed(self) -> None:
        self.ask_after_typing("search", self.search)

    def search(self) -> None:
        """Search for what is in the line."""
        asked = Asked(self.line.value, self._mode)
        if not self.session.is_open:
            return
        if not self.session.exists:
            self.say("There are no documents yet: localmcp add FOLDER")
        elif parse_query_line(asked.line).words:
            self.ask("search", partial(run_search, self.session, asked), partial(self.show, asked))
        else:
            self.choices.clear_options()
            self.say("enter picks · esc gives up")

    def show(self, asked: Asked, draft: CallRecord) -> None:
        """Show the passages, best first."""
        self._draft, self._hits = draft, hits_of(draft, asked)
        result: Json = draft.answer.value if draft.answer is not None else {}
        rows = [HitLines(number, hit, matcher_of(result, hit)) for number, hit in enumerate(self._hits)]
        self.choices.set_options(Option(row) for row in rows)
        self.choices.highlighted = 0 if rows else None
        says = [counted(len(rows), "passage") if rows else "Nothing fits.", remarks_of(draft), "enter picks"]
        self.say(" · ".join(filter(None, says)))

    def action_move(self, step: int) -> None:
        """Move in the list while the cursor stays in the line."""
        if self.choices.option_count:
            index = (self.choices.highlighted or 0) + step
            self.choices.highlighted = max(0, min(index, self.choices.option_count - 1))

    @on(OptionList.OptionSelected)
    def action_pick(self) -> None:
        """Leave with the highlighted passage, and log the search as a call."""
        if self.choices.highlighted is not None and self._draft is not None:
            self.session.keep(self._draft)
            self.app.exit(self._hits[self.choices.highlighted])


class PickerApp(theme.ThemedApp[Json]):
    """The picker as an app of a few lines; its answer is the passage, or None."""

    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    Screen {{ height: {ROWS + 3}; }}
    Screen:inline {{ height: {ROWS + 3}; border: none; }}
    Picker {{ height: {ROWS + 2}; }}
    Picker Input {{ background: $panel; }}
    #passages {{ height: {ROWS}; border: none; padding: 0; background: $background; }}
    #passages {{ text-wrap: nowrap; text-overflow: ellipsis; }}
    #passages > .option-list--option-highlighted {{ background: $primary 24%; color: $foreground; text-style: none; }}
    #passages:ansi > .option-list--option-highlighted {{ background: ansi_default; text-style: bold underline; }}
    #passages:nocolor > .option-list--option-highlighted {{ text-style: bold underline; }}
    #says {{ height: 1; padding: 0 1; }}
    """
    picker = query_one(Picker)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c,ctrl+q", "quit", priority=True)]

    def __init__(
        self, opener: Callable[[], Workspace], path: Path, query: str = "", mode: str = "hybrid",
        theme_name: str = theme.DEFAULT,
    ) -> None:  # fmt: skip
        super().__init__(theme_name)
        self.session = Session(opener, path, self.post_message)
        self._first = query, mode

    def compose(self) -> ComposeResult:
        yield Picker(*self._first)

    def on_mount(self) -> None:
        self.call_after_refresh(self.session.start)

    def on_unmount(self) -> None:
        self.session.close()

    @on(Opened)
    @on(ModelChanged)
    @on(FileChanged)
    def look_again(self) -> None:
        self.picker.search()

    @on(Opened)
    @on(Failed)
    def failed(self, message: Opened | Failed) -> None:
        if message.error is not None:
            self.picker.say(f"✗ {first_line(message.error)}")
