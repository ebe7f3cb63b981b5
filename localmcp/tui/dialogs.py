"""Screens above the panes: a text, a question, a list to choose from."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar, cast

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Button, OptionList, Static

from localmcp.tui.widgets import Choices, Quiet, list_option, visible_content
from localmcp.visible_text import visible

T = TypeVar("T")

UNASKED_SECONDS = 1.0
"""Ignore keys for this long after an unprompted dialog opens."""


class TextScreen(ModalScreen[None]):
    """Something to read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,x", "dismiss", "Close"), Binding("y", "copy", "Copy"),
        Quiet("j,down", "scroll(1)"), Quiet("k,up", "scroll(-1)"),
    ]  # fmt: skip

    def __init__(self, title: str, text: Content, *, copy: str | None = None) -> None:
        """`copy`: what `y` copies instead of the text."""
        super().__init__()
        self._title, self._text = title, visible_content(text)
        self._copy = copy or self._text.plain

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog") as box:
            box.border_title, box.border_subtitle = Content(visible(self._title)), "y copy · esc close"
            yield Static(self._text)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._copy)
        self.app.notify("Copied.")


class ConfirmScreen(ModalScreen[bool]):
    """A yes or no before something is taken away; `no` has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"), Binding("n,escape", "answer(False)", "No"),
        Quiet("left,right", "app.focus_next"),
    ]  # fmt: skip

    def __init__(self, question: str, more: str, yes: str, *, unasked: bool) -> None:
        super().__init__()
        self._text = Content.assemble((visible(question), "bold"), visible(f"\n\n{more}", newlines=True))
        self._yes, self._ignores_keys_until = yes, time.monotonic() + (UNASKED_SECONDS if unasked else 0)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_subtitle = "y yes · n no"
            yield Static(self._text)
            with Horizontal(classes="buttons"):
                yield Button("No", id="no", compact=True)
                yield Button(self._yes, id="yes", variant="error", compact=True)

    def action_answer(self, answer: bool) -> None:
        if time.monotonic() >= self._ignores_keys_until:
            self.dismiss(answer)

    @on(Button.Pressed)
    def pressed(self, message: Button.Pressed) -> None:
        self.action_answer(message.button.id == "yes")


class ChoiceScreen(ModalScreen[int]):
    """A list to choose from; the answer is the number of the row. A plain text is a heading."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Back")]

    def __init__(
        self, title: str, rows: Sequence[Content | str], above: Content | None = None, says: str = "enter chooses",
    ) -> None:  # fmt: skip
        super().__init__()
        self._title, self._rows, self._above, self._says = title, rows, above, says

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title, box.border_subtitle = Content(self._title), f"{self._says} · esc back"
            if self._above is not None:
                with VerticalScroll(classes="above", can_focus=False):
                    yield Static(self._above)
            yield Choices(*(list_option(row, str(number)) for number, row in enumerate(self._rows)))

    @on(OptionList.OptionSelected)
    def chosen(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self.dismiss(int(message.option_id or 0))


def ask_screen(widget: Widget | App[Any], screen: Screen[T], then: Callable[[T], object]) -> None:
    """Show a screen, and do `then` with its answer; nothing on None or no."""

    def answered(answer: T | None) -> None:
        if answer is not None and answer is not False:
            then(answer)

    cast("App[Any]", widget.app).push_screen(screen, answered)


def confirm(
    widget: Widget | App[Any], question: str, more: str, yes: str, then: Callable[[], object], *, unasked: bool = False
) -> None:
    """Ask, and call `then` on yes; an `unasked` question ignores keys at first, which were meant for the pane."""
    ask_screen(widget, ConfirmScreen(question, more, yes, unasked=unasked), lambda _: then())
