"""Jump: shows a letter over every part that takes the focus; typing the letter goes there."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""In the order of the fingers on them."""


def parts_of(screen: Screen[object]) -> dict[str, tuple[Widget, Offset]]:
    """Return letter -> (widget, its place) of the parts in sight, in the order of the tab key."""
    shown = [(widget, screen.find_widget(widget).visible_region) for widget in screen.focus_chain]
    parts = [(widget, region.offset) for widget, region in shown if region.area]
    return dict(zip(LETTERS, parts, strict=False))


class JumpScreen(ModalScreen[Widget | str | None]):
    """Letters over the parts. Its answer is the part, or the digit of a pane."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+o", "dismiss", "Back")]

    def __init__(self, parts: dict[str, tuple[Widget, Offset]], digits: str) -> None:
        super().__init__()
        self.parts = parts
        self._digits = digits

    def compose(self) -> ComposeResult:
        for letter, (_, place) in self.parts.items():
            label = Static(f" {letter} ", classes="jump")
            # Over the corner of the frame, where no text is.
            label.absolute_offset = place
            yield label
        letters = "a letter goes there · " if self.parts else ""
        yield Static(f" {letters}{self._digits[0]}–{self._digits[-1]} turn to a pane · esc stays ", id="jump-says")

    def on_key(self, event: events.Key) -> None:
        """A letter or a digit; any other key changes nothing."""
        if event.key in self.parts:
            self.dismiss(self.parts[event.key][0])
        elif event.key in self._digits:
            self.dismiss(event.key)


def jump(screen: Screen[object], pane_count: int) -> None:
    """Ask where to on that screen, and go there."""
    digits = "".join(str(number % 10) for number in range(1, pane_count + 1))

    async def go(answer: Widget | str | None) -> None:
        if isinstance(answer, str):
            await screen.app.run_action(f"pane({digits.index(answer)})")
        elif answer is not None and answer.is_attached:
            answer.focus()

    screen.app.push_screen(JumpScreen(parts_of(screen), digits), go)
