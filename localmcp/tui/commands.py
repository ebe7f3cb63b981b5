"""The commands of the panes File and Hub, which run `localmcp` or a function, with forms and previews."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp import humanize
from localmcp.config import load_settings
from localmcp.errors import InvalidInput
from localmcp.schemas import Json
from localmcp.tui.dialogs import TextScreen, ask_screen, confirm
from localmcp.tui.form_screen import FormScreen
from localmcp.tui.pane import Asking
from localmcp.tui.session import Session
from localmcp.visible_text import visible

if TYPE_CHECKING:
    from localmcp.tui.session import OnProgress
    from localmcp.workspace import Workspace

LOOK_SECONDS = 0.1
"""Between two looks whether a command has ended, or is to be stopped."""
SHOWN_LINES = 16
"""Of a preview, in the question that follows it."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command line with `{names}` for what a form asks, or a function."""

    group: str
    title: str
    says: str
    words: tuple[str, ...] = ()
    fields: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Name -> JSON Schema with `title`, the label; a name that ends with `?` may stay empty."""
    preview: tuple[str, ...] | None = None
    """Added to the words to see what would change; None: there is no preview."""
    warning: str = ""
    """Asked before it runs; empty = it runs at once, unless there is a preview."""
    shows: bool = False
    """It only reads and is quick: its answer is shown as soon as it is highlighted."""
    is_long: bool = False
    """It runs in the background, where it can be stopped."""
    work: Callable[[Workspace], str] | None = None
    """Done in this process instead of the words."""
    draw: Callable[[str], Content] = Content
    """Makes a page of what the command prints."""

    def schema(self) -> Json:
        """Return the fields as a schema, for a form."""
        properties = {name.rstrip("?"): spec for name, spec in self.fields.items()}
        return {"type": "object", "properties": properties, "required": [n for n in self.fields if n[-1] != "?"]}

    def line(self, values: Mapping[str, Any]) -> list[str]:
        """Return the words with the values filled in; an option whose value is empty is left out with its name."""
        line: list[str] = []
        for word in self.words:
            if word.startswith("{") and (value := values.get(word.strip("{}"))) is not None:
                text = os.path.expanduser(str(value)) if "/" in str(value) else str(value)
                line += split_command(text) if word == "{command}" else [text]
            elif word.startswith("{"):
                if line and line[-1].startswith("--"):
                    line.pop()
            else:
                line.append(word)
        return line


def split_command(text: str) -> list[str]:
    """Return the words of a command as a shell reads them.

    Raises:
        InvalidInput: a quotation mark is not closed.
    """
    try:
        words = shlex.split(text, posix=os.name == "posix")
    except ValueError as error:
        raise InvalidInput(f"The command cannot be read ({error}): {text}") from error
    return words if os.name == "posix" else [word.strip('"') for word in words]


def command_line(words: Sequence[str]) -> str:
    """Return `localmcp` with these words, so that it can be pasted; what a form asks for is in capitals."""
    filled = [word.strip("{}").upper() if word.startswith("{") else word for word in words]
    return humanize.command_line("localmcp", *filled)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of such a pane: a command, or a thing with what can be done with it."""

    group: str
    name: str
    """Tells it from the others of its group."""
    title: Content
    about: Content
    commands: tuple[Command, ...]


def entry_of(command: Command) -> Entry:
    """Return the row of a command."""
    title = Content(f"{command.title}{'' if command.shows else ' …'}")
    return Entry(command.group, command.title, title, Content.styled(command.says, "$muted"), (command,))


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command."""

    text: str
    code: int


def run_command(
    session: Session, line: Sequence[str], on_progress: OnProgress = lambda progress: None, **variables: str
) -> Output:
    """Run `localmcp` with these words on the open file, without a terminal; for a thread that may wait.

    `variables` are set for it; `connect` writes those of localmcp into the configuration of an assistant.

    Raises:
        Interrupted: the person has left, or `on_progress` raised it, since they have stopped the command.
    """
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "LOCALMCP_DB": str(session.path), **variables}
    if (model := session.workspace.settings.model) != load_settings(database=session.path).model:
        environment["LOCALMCP_MODEL"] = model
    process = subprocess.Popen(
        [sys.executable, "-m", "localmcp", *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL, text=True, encoding="utf-8", errors="replace", env=environment,
    )  # fmt: skip
    with process:
        try:
            while True:
                try:
                    printed, complained = process.communicate(timeout=LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    session.require_open()
                    on_progress(None)
        except BaseException:
            process.terminate()
            raise
    text = "\n".join(part.strip("\n") for part in (printed, complained) if part.strip())
    return Output(visible(text, newlines=True) or "Done.", process.returncode)


def shown(command: Command, output: Output, line: Sequence[str]) -> Content:
    """Return an answer below the command that gave it."""
    text = Content.styled(output.text, "$error") if output.code else command.draw(output.text)
    head = Content.styled(f"$ {command_line(line)}", "$muted")
    return Content("\n\n").join([head, text] if line else [text])


def start(widget: Asking, command: Command, then: Callable[[list[str], Output], object] | None = None) -> None:
    """Ask for what a command needs, show what it would change, and run it after a yes."""
    run = _Run(widget, command, then)
    if command.fields:
        ask_screen(widget, FormScreen(command.title, command.schema(), run.checked, verb="Run"), run.propose)
    else:
        run.propose({})


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a command, from its form to its answer."""

    widget: Asking
    command: Command
    then: Callable[[list[str], Output], object] | None

    def checked(self, values: Json) -> Json:
        self.command.line(values)
        return values

    def propose(self, values: Json) -> None:
        command, line = self.command, self.command.line(values)
        if command.preview is not None:
            self.widget.app.notify("Looking at what would change …")
            preview = partial(run_command, self.widget.session, [*line, *command.preview])
            self.widget.ask("preview", preview, partial(self.show_preview, line))
        elif command.warning:
            confirm(self.widget, f"{command.title}?", command.warning, "Run", lambda: self.run(line))
        else:
            self.run(line)

    def show_preview(self, line: list[str], output: Output) -> None:
        title = self.command.title
        if output.code:
            self.widget.app.push_screen(TextScreen(title, shown(self.command, output, line)))
            return
        lines = output.text.splitlines()
        remainder = f"\n… {len(lines) - SHOWN_LINES} more lines" if len(lines) > SHOWN_LINES else ""
        text = "\n".join(lines[:SHOWN_LINES]) + remainder
        confirm(self.widget, f"{title}?", text, "Do it", lambda: self.run(line))

    def run(self, line: list[str]) -> None:
        title, session = f"“{self.command.title}”", self.widget.session
        if (work := self.command.work) is not None:
            self.widget.ask("command", lambda: Output(work(session.workspace), 0), partial(self.finish, []), title)
        elif self.command.is_long:
            session.do(self.command.title, partial(run_command, session, line), partial(self.finish, line))
        else:
            self.widget.ask("command", partial(run_command, session, line), partial(self.finish, line), title)

    def finish(self, line: list[str], output: Output) -> None:
        if self.then is not None and self.widget.is_attached:
            self.then(line, output)
        else:
            text = shown(self.command, output, line)
            self.widget.app.push_screen(TextScreen(self.command.title, text, copy=output.text))
