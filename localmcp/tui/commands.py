"""What can be done with the file and around it, as rows with forms, previews and answers: the base of File and Hub."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from textual import on
from textual.content import Content
from textual.timer import Timer
from textual.widgets import OptionList

from localmcp.errors import LocalMCPError
from localmcp.schemas import Json
from localmcp.tui.answers import told
from localmcp.tui.forms import ChoiceScreen, FormScreen, ask_screen, confirm
from localmcp.tui.lists import ListPane, Row
from localmcp.tui.session import Session, no_progress

SHOW_SECONDS = 0.25
"""Before the answer of a highlighted command is fetched: going past it fetches nothing."""
NOTHING_FITS = "[b]Nothing fits[/b]\n\n[$muted]Other words; without any, everything is listed.[/]"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command."""

    session: Session
    values: Json = field(default_factory=dict[str, Any])
    """The fields of its form."""
    dry_run: bool = False
    """Only what would change is wanted."""
    tell: Callable[[Any], None] = no_progress
    """Takes the progress; raises Interrupted when it is to stop."""


@dataclass(frozen=True, slots=True)
class Command:
    """Something that can be done."""

    title: str
    says: str
    do: Callable[[Run], Any]
    """Does it, in a thread; returns a text, or a record."""
    shell: str = ""
    """The command line that does the same."""
    fields: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Name -> JSON Schema with `title`, the label; a name that ends with `?` may stay empty."""
    has_preview: bool = False
    """What would change is shown and asked before it runs."""
    warning: str = ""
    """Asked before it runs; empty = it runs at once, unless there is a preview."""
    shows: bool = False
    """It only reads and is quick: its answer is shown as soon as it is highlighted."""
    is_long: bool = False
    """It runs in the background, where it can be stopped."""

    def schema(self) -> Json:
        """Return the fields as a schema, for a form."""
        properties = {name.rstrip("?"): spec for name, spec in self.fields.items()}
        return {"type": "object", "properties": properties, "required": [n for n in self.fields if n[-1] != "?"]}


def row_of(group: str, command: Command) -> Row:
    """Return the row of a command."""
    title = Content(f"  {command.title}{'' if command.shows else ' …'}")
    return Row(f"{group}/{command.title}", title, Content.styled(command.says, "$muted"), group, (command,))


def thing(group: str, name: str, title: Content, about: Content, *commands: Command) -> Row:
    """Return the row of a thing with what can be done with it."""
    return Row(f"{group}/{name}", Content("  ") + title, about, group, commands)


class CommandPane(ListPane):
    """The base of the panes File and Hub."""

    PLACEHOLDER = "What do you want to do?"
    KEY_GROUP = "commands"
    COMMANDS: ClassVar[Mapping[str, Sequence[Command]]] = {}
    """Group -> commands, the first rows of the group."""
    THINGS: ClassVar[Mapping[str, Callable[[Session], list[Row]]]] = {}
    """Group -> function that reads its further rows."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._answers: dict[str, Content] = {}
        """By the key of the row."""
        self._last_run = ""
        """Key of the row whose command was run last; its answer stays until another is run."""
        self._waiting: Timer | None = None

    def find(self, text: str) -> list[Row]:
        words, rows = text.casefold().split(), list[Row]()
        for group, commands in self.COMMANDS.items():
            rows += [row_of(group, command) for command in commands]
            if read := self.THINGS.get(group):
                rows += self._read(read)
        texts = (f"{row.group} {row.title.plain} {row.about.plain}".casefold() for row in rows)
        return [row for row, shown in zip(rows, texts, strict=True) if all(word in shown for word in words)]

    def _read(self, read: Callable[[Session], list[Row]]) -> list[Row]:
        try:
            return self.session.look(lambda _: read(self.session))
        except LocalMCPError:
            # A backup can be restored in a file that cannot be read.
            return []

    def file_changed(self, counters: dict[str, int]) -> None:
        """Forget answers that may be out of date."""
        self._answers = {key: answer for key, answer in self._answers.items() if key == self._last_run}
        super().file_changed(counters)

    def show_nothing(self) -> None:
        self.show("", Content.from_markup(NOTHING_FITS))

    def show_row(self, row: Row) -> None:
        """Describe the highlighted row; fetch the answer of a command that only reads."""
        if self._waiting:
            self._waiting.stop()
        self.forget("show")
        command: Command = row.record[0]
        keys = "enter runs it" if len(row.record) == 1 else "enter: what can be done"
        answer = self._answers.get(row.key, Content("◌ looking …" if command.shows else keys))
        self.show(row.key.partition("/")[2], Content("\n\n").join([row.about, answer]))
        if command.shows and row.key not in self._answers and self.session.is_open:
            self._waiting = self.set_timer(SHOW_SECONDS, partial(self._fetch, row))

    def _fetch(self, row: Row) -> None:
        def keep(answer: Any) -> None:
            self._keep(row, answer)
            # What was found may be rows of their own.
            self.reload()

        self.ask("show", partial(row.record[0].do, Run(self.session)), keep, failed=keep)

    def _keep(self, row: Row, answer: Any) -> None:
        failed = isinstance(answer, LocalMCPError)
        self._answers[row.key] = Content.styled(f"✗ {answer}", "$error") if failed else told(answer)
        if self.chosen is not None and self.chosen.key == row.key:
            self.show_row(self.chosen)

    @on(OptionList.OptionSelected, "#list")
    def action_run(self) -> None:
        """Run the command, or ask which; on a narrow screen, show an answer over the whole screen."""
        row = self.chosen
        if row is None:
            return
        commands: Sequence[Command] = row.record
        if len(commands) > 1:
            options = [Content.assemble((f" {c.title} ", "bold"), (c.says, "$muted")) for c in commands]
            screen = ChoiceScreen(row.key.partition("/")[2], options, row.about if self.is_narrow else None)
            ask_screen(self, screen, lambda number: self._start(row, commands[number]))
        elif not commands[0].shows:
            self._start(row, commands[0])
        elif self.is_narrow and row.key in self._answers:
            self.read_over(commands[0].title, self._answers[row.key])
        else:
            self._fetch(row)

    def go_to(self, title: str) -> None:
        """Highlight the command of that title, which shows it if it only reads; else do it."""
        self.line.clear()
        self.forget("look up")
        self.show_rows([row_of(group, command) for group, some in self.COMMANDS.items() for command in some])
        number, row = next((n, row) for n, row in enumerate(self.rows) if row.record[0].title == title)
        self.list.keep_highlight(str(number))
        self.reload()
        if not row.record[0].shows:
            self._start(row, row.record[0])

    # ------------------------------------------------------------ one run, from its form to its answer

    def _start(self, row: Row, command: Command) -> None:
        """Ask for what a command needs, show what it would change, and run it after a yes."""
        if command.fields:
            form = FormScreen(command.title, command.schema(), _with_whole_paths, verb="Run")
            ask_screen(self, form, partial(self._propose, row, command))
        else:
            self._propose(row, command, {})

    def _propose(self, row: Row, command: Command, values: Json) -> None:
        plan = Run(self.session, values)
        run = partial(self._run, row, command, plan)
        if command.has_preview:
            preview = partial(command.do, replace(plan, dry_run=True))
            self.ask("preview", preview, lambda shown: self._confirm(command, told(shown).plain, run))
        elif command.warning:
            self._confirm(command, command.warning, run)
        else:
            run()

    def _confirm(self, command: Command, more: str, run: Callable[[], None]) -> None:
        confirm(self, f"{command.title}?", more, "Run", run)

    def _run(self, row: Row, command: Command, run: Run) -> None:
        finish = partial(self._finish, row, command)
        if command.is_long:
            self.session.do(command.title, lambda tell: command.do(replace(run, tell=tell)), finish)
        else:
            self.ask("command", partial(command.do, run), finish, f"“{command.title}”")

    def _finish(self, row: Row, command: Command, answer: Any) -> None:
        self._answers, self._last_run = {}, row.key
        self.app.notify(f"{command.title}: done")
        self._keep(row, answer)
        self.reload()
        if self.is_narrow:
            self.read_over(command.title, self._answers[row.key])

    def action_copy(self) -> None:
        """Copy the command line that does the same; of a row without one, what is said of it."""
        if row := self.chosen:
            shell = row.record[0].shell
            self.copy(shell or row.about.plain, "The command line is copied." if shell else "Copied.")


def _with_whole_paths(values: Json) -> Json:
    return {name: os.path.expanduser(v) if isinstance(v, str) and v[:1] == "~" else v for name, v in values.items()}
