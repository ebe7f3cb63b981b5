"""A pane with a list of commands and things, and beside it the answer of the highlighted one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.getters import query_one
from textual.timer import Timer
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localmcp.tui.commands import Command, Entry, Output, command_line, entry_of, run_command, shown, start
from localmcp.tui.dialogs import ChoiceScreen, TextScreen, ask_screen
from localmcp.tui.pane import Choices, FilterLine, Pane, list_option
from localmcp.tui.session import Session

SHOW_SECONDS = 0.25
"""Before the answer of a highlighted command is fetched: going past it fetches nothing."""


class CommandPane(Pane):
    """The base of the panes File and Hub."""

    COMMANDS: ClassVar[tuple[Command, ...]] = ()
    THINGS: ClassVar[dict[str, Callable[[Session], list[Entry]]]] = {}
    """Group -> function that reads its further rows."""
    LOOK_SECONDS: ClassVar[float] = 0.0
    """How often those are read again while the pane is in front; 0 = only when the file changes."""
    list = query_one("#commands", Choices)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.entries_by_group: dict[str, list[Entry]] = {}
        self.entries: dict[str, Entry] = {}
        """By the id of the row."""
        self._answers: dict[str, Content] = {}
        self._last_run = ""
        """Name of the row whose command was run last; what it printed stays until another is run."""
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
        if self.LOOK_SECONDS:
            self.set_interval(self.LOOK_SECONDS, self._look)

    @property
    def chosen(self) -> Entry | None:
        """The highlighted entry."""
        option = self.list.highlighted_option
        return self.entries[option.id] if option is not None and option.id else None

    def focus_first(self) -> None:
        self.list.focus()

    def apply_filter(self, words: str) -> None:
        self.words = words
        self._fill()

    def _look(self) -> None:
        if self.app.screen is self.screen and self.display:
            self.reload()

    def reload(self) -> None:
        """Read the things again, and forget answers that may be out of date."""
        if not self.LOOK_SECONDS:
            self._answers = {name: answer for name, answer in self._answers.items() if name == self._last_run}
        if self.session.is_open:
            for group, read in self.THINGS.items():
                self.ask(group, partial(self.session.look, lambda _, read=read: read(self.session)),
                         partial(self._take, group))  # fmt: skip

    def _take(self, group: str, entries: list[Entry]) -> None:
        if entries != self.entries_by_group.get(group):
            self.entries_by_group[group] = entries
            self._fill()

    def _fill(self) -> None:
        """Put the rows into the list by group; the one that was highlighted stays so."""
        before = self.list.highlighted_option
        rows = [*map(entry_of, self.COMMANDS), *chain.from_iterable(self.entries_by_group.values())]
        groups = dict.fromkeys(row.group for row in rows)
        words = self.words.casefold()
        self.entries = {}
        options: list[Option] = []
        for group in groups:
            fitting = [row for row in rows if row.group == group
                       and words in f"{group} {row.title.plain} {row.about.plain}".casefold()]  # fmt: skip
            options += [list_option(group, "")] if fitting else []
            for row in fitting:
                identity = f"{group}/{row.name}"
                self.entries[identity] = row
                options.append(list_option(Content("  ") + row.title, identity))
        self.list.set_options(options)
        self.list.keep_highlight(before.id if before is not None else None, 1)

    @on(OptionList.OptionHighlighted)
    def look_at(self) -> None:
        """Describe the highlighted row; fetch the answer of a command that only reads."""
        entry = self.chosen
        if entry is None:
            return
        if self._waiting:
            self._waiting.stop()
        self.forget("show")
        shows = entry.commands[0].shows
        keys = "enter runs it" if len(entry.commands) == 1 else "enter: what can be done"
        self._show(entry, self._answers.get(entry.name, Content("◌ looking …" if shows else keys)))
        if shows and entry.name not in self._answers:
            self._waiting = self.set_timer(SHOW_SECONDS, lambda: self._fetch(entry))

    def _fetch(self, entry: Entry) -> None:
        command = entry.commands[0]
        if self.session.is_open:
            # Nobody asked for it, so it does not belong in the log of calls.
            show = partial(run_command, self.session, command.words, LOCALMCP_LOG_CALLS="false")
            self.ask("show", show, partial(self._keep, entry, command, command.words))

    def _keep(self, entry: Entry, command: Command, line: Sequence[str], output: Output) -> None:
        self._answers[entry.name] = shown(command, output, line)
        if self.chosen is not None and self.chosen.name == entry.name:
            self._show(self.chosen, self._answers[entry.name])

    def _show(self, entry: Entry, answer: Content) -> None:
        box, line = self.query_one("#command-answer"), self.query_one("#command-text", Static)
        text = Content("\n\n").join([entry.about, answer])
        if text != line.content:
            same = str(box.border_title) == entry.name
            box.border_title = Content(entry.name)
            line.update(text)
            if not same:
                box.scroll_home(animate=False)

    @on(OptionList.OptionSelected)
    def action_run(self) -> None:
        """Run the command, or ask which; on a narrow screen, show an answer over the whole screen."""
        entry = self.chosen
        if entry is None:
            return
        command = entry.commands[0]
        if len(entry.commands) > 1:
            options = [Content.assemble((f" {c.title} ", "bold"), (c.says, "$muted")) for c in entry.commands]
            screen = ChoiceScreen(entry.name, options, entry.about if self.is_narrow else None)
            ask_screen(self, screen, lambda number: self._start(entry, entry.commands[number]))
        elif not command.shows:
            self._start(entry, command)
        elif self.is_narrow and entry.name in self._answers:
            self.app.push_screen(TextScreen(command.title, self._answers[entry.name]))
        else:
            self._fetch(entry)

    def go_to(self, command: Command) -> None:
        """Highlight a command of this pane, which shows it if it only reads; else do it."""
        self.list.keep_highlight(f"{command.group}/{command.title}")
        if not command.shows:
            self._start(entry_of(command), command)

    def _start(self, entry: Entry, command: Command) -> None:
        start(self, command, lambda line, output: self._finish(entry, command, line, output))

    def _finish(self, entry: Entry, command: Command, line: list[str], output: Output) -> None:
        self.reload()
        # Other answers may show what the command changed.
        self._answers = {}
        self._last_run = entry.name
        self._keep(entry, command, line, output)
        message = f"{command.title}: {'done' if not output.code else 'failed'}"
        self.app.notify(message, severity="error" if output.code else "information")
        if self.is_narrow:
            self.app.push_screen(TextScreen(command.title, self._answers[entry.name], copy=output.text))

    def action_copy(self) -> None:
        if (entry := self.chosen) and entry.commands[0].words:
            self.copy(command_line(entry.commands[0].words), "The command line is copied.")
