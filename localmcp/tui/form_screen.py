"""A form over the panes, for what is added and changed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from localmcp.schemas import Json
from localmcp.tui.keymap import bindings
from localmcp.tui.layout import KeyLine
from localmcp.tui.pane import Asking
from localmcp.tui.tool_form import ToolForm


class FormScreen(ModalScreen[Any], Asking):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Fields of a schema; the answer is what `save` returns for the arguments, whose errors are shown."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("form")

    def __init__(
        self, title: str, schema: Json, save: Callable[[Json], Any], values: Mapping[str, Any] | None = None,
        *, verb: str = "Save",
    ) -> None:  # fmt: skip
        super().__init__()
        self._title = title
        self._schema = schema
        self._save = save
        self._verb = verb
        self._values = values

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog form", can_focus=False) as box:
            box.border_title = Content(self._title)
            box.border_subtitle = f"ctrl+r: {self._verb.lower()} · esc cancels"
            yield ToolForm(self._schema, self._values, changes=self._values is not None)
            yield Static(id="wrong")
            with Horizontal(classes="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(self._verb, id="save", variant="primary", compact=True)
        yield KeyLine(shows_commands=False)

    def on_mount(self) -> None:
        self.query_one(ToolForm).focus_first()

    def action_run(self) -> None:
        if "save" in self.questions:
            return
        arguments, problems = self.query_one(ToolForm).arguments()
        if problems:
            self._complain("; ".join(problems))
            return
        self._complain("")

        def close(answer: Any) -> None:
            self.dismiss(answer)

        # The person can correct in the form what is wrong.
        self.ask("save", lambda: self._save(arguments), close, failed=lambda error: self._complain(str(error)))

    def _complain(self, problem: str) -> None:
        line = self.query_one("#wrong", Static)
        line.update(Content.styled(f"✗ {problem}" if problem else "", "$error"))
        if problem:
            self.call_after_refresh(line.scroll_visible, animate=False)

    @on(Button.Pressed)
    def pressed(self, message: Button.Pressed) -> None:
        if message.button.id == "save":
            self.action_run()
        else:
            self.dismiss(None)

    @on(Input.Submitted)
    def submitted(self) -> None:
        """Enter in a single line saves."""
        self.action_run()
