"""Picking a passage while typing, in a few lines below the prompt: the pane Search, from which `enter` leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.getters import query_one
from textual.widgets import Static

from localmcp.schemas import Json
from localmcp.tui import theme
from localmcp.tui.frame import first_line
from localmcp.tui.search import SearchPane
from localmcp.tui.session import Failed, FileChanged, Opened, Session, StateChanged

if TYPE_CHECKING:
    from localmcp.workspace import Workspace


class Picker(SearchPane):
    """The search, in which arrows move in the list while the cursor stays in the line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "pick", priority=True),
        Binding("down,ctrl+n", "move('cursor_down')", priority=True), Binding("up", "move('cursor_up')", priority=True),
        Binding("pagedown", "move('page_down')", priority=True), Binding("pageup", "move('page_up')", priority=True),
    ]  # fmt: skip

    def action_move(self, name: str) -> None:
        getattr(self.list, f"action_{name}")()

    def action_open(self) -> None:
        self.action_pick()

    def action_pick(self) -> None:
        """Leave with the highlighted passage, and log the search as a call."""
        if hit := self._use():
            self.app.exit(hit)


class PickerApp(theme.ThemedApp[Json]):
    """The picker as an app of a few lines; its answer is the passage, or None."""

    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "localmcp.tcss"
    CSS = """
    Screen, Screen:inline { height: 19; border: none; }
    #says { height: 1; padding: 0 1; color: $muted; }
    """
    picker = query_one(Picker)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c,ctrl+q", "quit", priority=True)]

    def __init__(
        self, opener: Callable[[], Workspace], path: Path, query: str = "", mode: str = "hybrid",
        theme_name: str = theme.DEFAULT,
    ) -> None:  # fmt: skip
        super().__init__(theme_name)
        self.session = Session(opener, path, self.post_message)
        self._query, self._mode = query, mode

    def compose(self) -> ComposeResult:
        yield Picker()
        yield Static("enter picks · esc gives up", id="says")

    def on_mount(self) -> None:
        self.picker.mode = self._mode
        self.picker.type_query(self._query)
        self.call_after_refresh(self.session.start)

    def on_unmount(self) -> None:
        self.session.close()

    @on(Opened)
    @on(StateChanged)
    @on(FileChanged)
    def look_again(self) -> None:
        self.picker.reload()

    @on(Opened)
    @on(Failed)
    def failed(self, message: Opened | Failed) -> None:
        if message.error is not None:
            self.query_one("#says", Static).update(f"✗ {first_line(message.error)}")
