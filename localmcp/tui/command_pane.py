"""A pane of commands: the list of what can be done, and beside it what the last one answered."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.timer import Timer
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localmcp.tui.commands import Command, Output, run_command, shown, start
from localmcp.tui.dialogs import TextScreen
from localmcp.tui.keymap import bindings
from localmcp.tui.pane import Choices, FilterLine, Pane

SHOW_SECONDS = 0.25
"""Before the answer of a highlighted command is fetched: going past it fetches nothing."""


class CommandPane(Pane):
    """What the panes File and Hub have in common."""

    COMMANDS: ClassVar[tuple[Command, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = bindings("commands")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.words = ""
        self._answers: dict[str, Content] = {}
        self._waiting: Timer | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(classes="split"):
            yield Choices(classes="framed left", id="commands")
            with VerticalScroll(classes="framed right", id="command-answer", can_focus=True):
                yield Static(id="command-text")
        yield FilterLine("Only what holds…", id="command-filter")

    def on_mount(self) -> None:
        self.list.border_title = self.TITLE
        self._fill()

    @property
    def list(self) -> Choices:
        return self.query_one("#commands", Choices)

    @property
    def chosen(self) -> Command | None:
        """The command that is highlighted."""
        option = self.list.highlighted_option
        return self.COMMANDS[int(option.id)] if option is not None and option.id else None

    def focus_first(self) -> None:
        self.list.focus()

    def apply_filter(self, words: str) -> None:
        self.words = words
        self._fill()

    def file_changed(self, counters: dict[str, int]) -> None:
        """The answers that were fetched may no longer be so."""
        self._answers = {}

    def _fill(self) -> None:
        options: list[Option] = []
        group = ""
        for number, command in enumerate(self.COMMANDS):
            if self.words.casefold() not in f"{command.title} {command.says}".casefold():
                continue
            if command.group != group:
                group = command.group
                options.append(Option(Content.styled(group, "bold $muted"), disabled=True))
            options.append(Option(Content(f"  {command.title}{'' if command.shows else ' …'}"), id=str(number)))
        self.list.set_options(options)
        self.list.highlighted = 1 if options else None

    @on(OptionList.OptionHighlighted)
    def look_at(self) -> None:
        """Say what the command does; of one that only reads, fetch the answer."""
        command = self.chosen
        if command is None:
            return
        if self._waiting:
            self._waiting.stop()
        self.forget("show")
        key = Content("enter runs it" if not command.shows else "◌ looking …")
        self._show(command, self._answers.get(command.title, key))
        if command.shows and command.title not in self._answers:
            self._waiting = self.set_timer(SHOW_SECONDS, lambda: self._fetch(command))

    def _fetch(self, command: Command) -> None:
        if not self.session.is_open:
            return
        line = list(command.words)

        def show(output: Output) -> None:
            self._keep(command, line, output)

        self.ask("show", lambda: run_command(self.session, line), show)

    def _keep(self, command: Command, line: list[str], output: Output) -> None:
        self._answers[command.title] = shown(output, line)
        if self.chosen is command:
            self._show(command, self._answers[command.title])

    def _show(self, command: Command, answer: Content) -> None:
        box = self.query_one("#command-answer")
        box.border_title = Content(command.title)
        text = Content("\n\n").join([Content.styled(command.says, "$muted"), answer])
        self.query_one("#command-text", Static).update(text)
        box.scroll_home(animate=False)

    @on(OptionList.OptionSelected)
    def action_run(self) -> None:
        """Run the command, or read its answer over the whole screen where there is no room beside the list."""
        command = self.chosen
        if command is None:
            return
        if not command.shows:
            start(self, command, lambda line, output: self._finish(command, line, output))
        elif self.app.size.width < 100 and command.title in self._answers:
            self.app.push_screen(TextScreen(command.title, self._answers[command.title]))
        else:
            self._fetch(command)

    def _finish(self, command: Command, line: list[str], output: Output) -> None:
        # What a command changed, other answers may show.
        self._answers = {}
        self._keep(command, line, output)
        message = f"{command.title}: {'done' if not output.code else 'failed'}"
        self.app.notify(message, severity="error" if output.code else "information")
        if self.app.size.width < 100:
            self.app.push_screen(TextScreen(command.title, shown(output, line), copy=output.text))

    def action_copy(self) -> None:
        if command := self.chosen:
            self.app.copy_to_clipboard(f"localmcp {' '.join(command.words)}")
            self.app.notify("The command line is copied.")
