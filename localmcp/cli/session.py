"""What every command shares: common options, the open workspace, answers as text or JSON."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from localmcp.cli import render
from localmcp.errors import FileUnavailable, NeedsConfirmation
from localmcp.humanize import counted, short_path
from localmcp.visible_text import VisibleFormatter, visible, visible_json

if TYPE_CHECKING:
    from localmcp.config import Settings
    from localmcp.library.jobs import Progress
    from localmcp.models import LazyEmbedder
    from localmcp.schemas import Json
    from localmcp.tools import Answer
    from localmcp.workspace import Workspace

INTERRUPTED = 130
COMMAND_OF_TOOL = {"tag_document": "localmcp tag", "list_tables": "localmcp tables", "query_table": "localmcp query"}
"""Tool -> the command that calls it, of the commands that were imported; parameter -> the option of this run."""


class Session:
    """One run of the program."""

    def __init__(self) -> None:
        self.database: str | None = None
        self.as_json = False
        self.quiet = False
        self.verbosity = 0
        self.seconds_for_model = 120.0
        """How long a search waits for the model before it answers by words alone, here where no other follows."""
        self.if_stopped: str | None = None
        """What the person can do after stopping the command."""
        self.color = False if os.environ.get("NO_COLOR") else None
        """False = never, None = on a terminal (no-color.org: any value that is not empty counts)."""

    # ------------------------------------------------------------ the file

    @cached_property
    def settings(self) -> Settings:
        """The settings in force, `--db` included."""
        from localmcp.config import load_settings

        return load_settings(database=self.database)

    @cached_property
    def embedder(self) -> LazyEmbedder:
        """The embedder of the workspace, which can be loaded beside the workspace's import."""
        from localmcp.models import configured_embedder

        return configured_embedder(self.settings)

    @cached_property
    def workspace(self) -> Workspace:
        """The workspace on the chosen file; makes the file if it is not there."""
        from localmcp.workspace import Workspace

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(VisibleFormatter("%(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(handlers=[handler], level="ERROR" if self.quiet else self.log_level.upper())
        # The command's own error says what is wrong with the file or a server; `tools check` tells of manifests.
        hushed = ("localmcp.storage.write_behind", "localmcp.own_tools", "localmcp.hub")
        for name in hushed if self.verbosity == 0 else ():
            logging.getLogger(name).setLevel(logging.CRITICAL)
        workspace = Workspace(self.settings, embedder=self.embedder)
        workspace.embedder.patience = self.seconds_for_model
        return workspace

    @property
    def log_level(self) -> str:
        """That of the settings, unless the person asked for more by -v."""
        return ("info", "debug")[self.verbosity > 1] if self.verbosity else self.settings.log_level

    def reading(self) -> Workspace:
        """Return the workspace for a command that only reads: it never makes the file, nor fills an empty one."""
        self.workspace.database.may_create = False
        return self.workspace

    def existing(self) -> Workspace:
        """Return the workspace on a file that is there; raises FileUnavailable if it is not."""
        if not self.settings.database.exists():
            from localmcp.storage.database import HOW_TO_BEGIN

            raise FileUnavailable(f"{self.settings.database} does not exist yet.", hint=HOW_TO_BEGIN)
        return self.reading()

    def call(self, tool: str, **arguments: Any) -> Answer:
        """Call a tool on a file that is there; arguments that are None are left out."""
        return self.call_in(self.existing(), tool, arguments)

    def call_in(self, workspace: Workspace, name: str, arguments: Mapping[str, Any], *, lean: bool = False) -> Answer:
        """Call a tool through the registry, the one entry of all interfaces; what the tool prints is no data.

        `lean`: the text of the answer is what an assistant reads, for tools that have one.
        """
        from localmcp.tools import Scope, without_none

        with redirect_stdout(sys.stderr), ended_by_signals():
            return workspace.registry.call(name, without_none(arguments), Scope(caller="cli", lean=lean))

    def import_each(self, tool: str, what: str, calls: Iterable[Mapping[str, Any]], fields: Sequence[str]) -> int:
        """Call a tool that imports `what` once for each arguments; print those fields of its reports, added up.

        Returns the exit code: 1 if there was nothing but what cannot be read.
        """
        reports = [self.call_in(self.workspace, tool, arguments).value for arguments in calls]
        total: Json = {name: sum((report[name] for report in reports[1:]), reports[0][name]) for name in fields}
        self.warn(*(f"left out {skipped['where']}: {skipped['problem']}" for skipped in total["skipped"]))
        counts = [f"{number:,} {name}" for name, number in total.items() if isinstance(number, int) and number]
        self.answer(total, f"{what}: {', '.join(counts)}" if counts else "Nothing imported.")
        for warning in total.get("warnings", ()):
            self.remark(f"{warning['where']}: {warning['problem']}")
        return int(bool(total["skipped"]) and not counts)

    def close(self) -> None:
        """Close the workspace, if one was opened."""
        if "workspace" in vars(self):
            self.workspace.close()

    # ------------------------------------------------------------ answering

    def answer(self, value: Json, show: Callable[[Json], None] | str | Sequence[str] = "") -> None:
        """Print a result as one JSON document, or for people: by `show`, in its words, or as a table of its columns."""
        if self.as_json:
            self.print_json(value)
        elif callable(show):
            show(value)
        elif not isinstance(show, str):
            self.show(value, columns=show)
        elif show:
            render.echo(show)

    def answer_tool(self, answer: Answer, show: Callable[[Session, Json], None] | Sequence[str] = ()) -> int:
        """Print what a tool answered, by `show` or in its columns; returns the exit code: 1 if it failed."""
        value = answer.value
        if answer.is_error and "error" in value and not self.as_json:
            return self.fail("failure", value["error"], value.get("hint"), 1)
        self.answer(value, lambda value: show(self, value) if callable(show) else self.show(value, answer, show))
        return int(answer.is_error or not value.get("success", True))

    def show(self, value: Json, answer: Answer | None = None, columns: Sequence[str] = ()) -> None:
        """Print an answer for people: the text that a model reads where it has one, else its fields and tables."""
        if answer is not None and answer.text[:1] not in ("{", "[") and not columns:
            for line in answer.text.splitlines():
                render.echo(render.bold(line) if line.startswith("# ") else line)
            return
        self.warn(*value.get("notices", ()))
        if text := render.render(value, columns):
            render.echo(text)
        elif 0 in (value.get("count"), value.get("total")):
            self.note("There are none.")
        if message := value.get("message"):
            self.note(with_commands(str(message)))
        if "nextOffset" in value:
            self.remark(f"{value['total']:,} in all; more: --offset {value['nextOffset']}")

    def print_json(self, value: Any) -> None:
        """Print one JSON document on stdout, indented on a terminal."""
        indent = 2 if sys.stdout.isatty() else None
        render.write(visible_json(json.dumps(value, ensure_ascii=False, indent=indent, default=str)))

    def note(self, text: str = "") -> None:
        """Print words about the work on stderr; none with --quiet or --json."""
        if not self.quiet and not self.as_json:
            render.echo(text, err=True, color=self.color)

    def remark(self, text: str) -> None:
        """Print words about the work that may be overlooked."""
        self.note(render.dim(text))

    def warn(self, *notices: str) -> None:
        """Print words about the work that should not be overlooked."""
        for notice in notices:
            self.note(render.warned(notice))

    def print_table(self, head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
        """Print a table, if it has rows; the columns in `right` are numbers."""
        if rows:
            render.echo(render.table(head, rows, right))

    @property
    def can_ask(self) -> bool:
        """Whether a person is there to answer a question."""
        return not self.as_json and sys.stdin.isatty() and sys.stderr.isatty()

    def confirm(self, question: str, yes: bool) -> None:
        """Ask a question unless the answer is known, only where a person can answer.

        Raises NeedsConfirmation if none can and --yes was not given; Exit, with exit code 1, if the person said no.
        """
        if not yes and not self.can_ask:
            raise NeedsConfirmation(f"{question} Nothing was done.", hint="Say yes with --yes.")
        if not yes and not render.confirm(question):
            raise click.exceptions.Exit(1)

    def interrupted(self) -> int:
        """Report that the person stopped the command; returns the exit code."""
        return self.fail("interrupted", "Stopped.", self.if_stopped, INTERRUPTED)

    def fail(self, code: str, message: str, hint: str | None, exit_code: int) -> int:
        """Report an error on stderr, as a JSON object with --json; returns the exit code."""
        # Some texts of the contract begin so.
        text = f"{render.styled('Error:', fg='red', bold=True)} {message.removeprefix('Error: ')}"
        if self.as_json:
            error = {"error": {"code": code, "message": message, "hint": hint}}
            text, hint = visible_json(json.dumps(error, ensure_ascii=False)), None
        render.echo(f"{text}\n{hint}" if hint else text, err=True, color=self.color)
        return exit_code


def with_commands(text: str) -> str:
    """Return words about tools as a person reads them: each with the command that calls it."""
    text = re.sub(r" *\(as a tool: [^)]*\)", "", text)
    return re.sub(r"\b[a-z]+(_[a-z]+|[A-Z]\w*)+\b", lambda name: COMMAND_OF_TOOL.get(name[0], name[0]), text)


@contextmanager
def ended_by_signals() -> Generator[None]:
    """Let SIGTERM end the work as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread takes signals.
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# ---------------------------------------------------------------- progress: bars on a terminal, nothing elsewhere


@contextmanager
def shown_progress(session: Session) -> Generator[Callable[[Progress], None]]:
    """Yield what to hand to the library as `progress`; SIGTERM ends the work as Ctrl-C does."""
    with ended_by_signals(), _bars(session) as bar:

        def show(progress: Progress) -> None:
            if progress.phase == "meaning":
                share = f"Meaning: {100 * progress.vectors_done // max(progress.vectors_total, 1)} %"
                words = f"{share}; you can stop, it continues when localmcp runs"
                bar(progress.phase, progress.vectors_done, progress.vectors_total, words)
                return
            files = f"{progress.done} of {counted(progress.total, 'file')}"
            report = progress.report
            passages = counted(report.chunks_added + report.chunks_kept, "passage")
            words = " · ".join((files, passages, short_path(progress.path)))
            bar(progress.phase, progress.bytes_done, progress.bytes_total, words)

        yield show


@contextmanager
def shown_counts(session: Session, words: str) -> Generator[Callable[[int, int], None]]:
    """Show a bar of what is done of a total, on a terminal; nothing elsewhere."""
    with _bars(session) as bar:
        yield lambda done, total: bar(words, done, total, f"{done:,} of {total:,} · {words}")


@contextmanager
def _bars(session: Session) -> Generator[Callable[[str, int, int, str], None]]:
    if session.quiet or session.as_json or not sys.stderr.isatty():
        yield lambda phase, done, total, words: None
        return
    # rich costs 45 ms, and most commands draw no bar.
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, no_color=session.color is False, highlight=False)
    text = TextColumn("{task.description}", markup=False)
    with Bar(SpinnerColumn(), BarColumn(30), TimeRemainingColumn(), text, console=console, transient=True) as bars:
        tasks = {"": bars.add_task("looking", total=None)}

        def tell(phase: str, done: int, total: int, words: str) -> None:
            if phase not in tasks:
                # The time that is left is that of the phase.
                bars.remove_task(tasks.popitem()[1])
                tasks[phase] = bars.add_task("")
            bars.update(tasks[phase], completed=done, total=max(total, 1), description=visible(words))

        yield tell


# ---------------------------------------------------------------- options before or after the command

EMPTY_PATH = "A path is empty (''). Is a shell variable not set?"


def _common(*names: str, says: str, **attributes: Any) -> click.Option:
    def remember(ctx: click.Context, option: click.Parameter, value: Any) -> None:
        session: Session = ctx.ensure_object(Session)
        if value == "":
            raise click.UsageError(EMPTY_PATH, ctx)
        if option.name == "verbosity":
            session.verbosity = max(session.verbosity, value)
        elif value:
            setattr(session, str(option.name), value)

    return click.Option(names, expose_value=False, callback=remember, is_eager=True, help=says, **attributes)


COMMON = (
    _common("--db", "database", metavar="FILE", says="The database file (or LOCALMCP_DB)."),
    _common("--json", "as_json", is_flag=True, says="Print one JSON document, nothing else."),
    _common("-q", "--quiet", "quiet", is_flag=True, says="Data and errors only."),
    _common("-v", "--verbose", "verbosity", count=True, says="Say more; tracebacks; twice: everything."),
)


class Command(click.Command):
    """A command that also takes the options of `COMMON`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an empty path: a shell variable that is not set must not mean the current folder."""
        arguments = [p.make_metavar(ctx) for p in super().get_params(ctx) if isinstance(p, click.Argument)]
        takes_paths = any("PATH" in metavar or "FILE" in metavar for metavar in arguments)
        paths = {name for option in self.params if isinstance(option.type, click.Path) for name in option.opts}
        typed = {f"{before}={after}" for before, after in pairwise(args)}.union(args)
        if ("" in args and takes_paths) or not typed.isdisjoint(f"{name}=" for name in paths):
            raise click.UsageError(EMPTY_PATH, ctx)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        return [*own[:-1], *COMMON, *own[-1:]]


class Group(Command, click.Group):
    """A command with commands below it."""

    command_class = Command


command: Callable[..., Callable[[Callable[..., Any]], Command]] = partial(click.command, cls=Command)
group: Callable[..., Callable[[Callable[..., Any]], Group]] = partial(click.group, cls=Group)
pass_session = click.make_pass_decorator(Session)
