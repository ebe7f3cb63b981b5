"""Picking a passage while typing, in a few lines below the prompt."""

from __future__ import annotations

from collections.abc import Callable
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
from localmcp.tui.layout import first_line
from localmcp.tui.messages import Failed, FileChanged, ModelChanged, Opened
from localmcp.tui.pane import Asking, Choices, TextLine
from localmcp.tui.passages import HitLines, matcher_of
from localmcp.tui.search_line import search_arguments
from localmcp.tui.session import Draft, Session

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

HITS = 20
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
        self.draft: Draft | None = None

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
        line = self.line.value
        if not self.session.is_open:
            return
        if not self.session.exists:
            self.say("There are no documents yet: localmcp add FOLDER")
            return
        if not parse_query_line(line).words:
            self.choices.clear_options()
            self.say("enter picks · esc gives up")
            return
        self.ask("search", lambda: self._find(line), self.show)

    def _find(self, line: str) -> Draft:
        arguments = search_arguments(self.session, line, self._mode)
        return self.session.draft("search", **arguments, limit=HITS, explain=True)

    def show(self, draft: Draft) -> None:
        """Show the passages, best first."""
        self.draft = draft
        result = draft.answer.value
        hits = result["results"]
        if hits:
            options = enumerate(HitLines(number, hit, matcher_of(result, hit)) for number, hit in enumerate(hits))
            self.choices.set_options(Option(lines, id=str(number)) for number, lines in options)
            self.choices.highlighted = 0
        else:
            self.choices.clear_options()
        words = ((repair["replacement"], repair["word"]) for repair in result.get("repairs", ()))
        repairs = "".join(f" · {replacement} instead of {word}" for replacement, word in words)
        self.say((f"{counted(len(hits), 'passage')}{repairs}" if hits else "Nothing fits.") + " · enter picks")

    def action_move(self, step: int) -> None:
        """Move in the list while the cursor stays in the line."""
        if self.choices.option_count:
            index = (self.choices.highlighted or 0) + step
            self.choices.highlighted = max(0, min(index, self.choices.option_count - 1))

    @on(OptionList.OptionSelected)
    def action_pick(self) -> None:
        """Leave with the highlighted passage, and log the search as a call."""
        number = self.choices.highlighted
        if number is not None and self.draft is not None:
            self.session.keep(self.draft)
            self.app.exit(self.draft.answer.value["results"][number])


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
    def opened(self, message: Opened) -> None:
        if message.error is not None:
            self.picker.say(f"✗ {first_line(message.error)}")
        else:
            self.picker.search()

    @on(ModelChanged)
    @on(FileChanged)
    def look_again(self) -> None:
        self.picker.search()

    @on(Failed)
    def failed(self, message: Failed) -> None:
        self.picker.say(f"✗ {first_line(message.error)}")
