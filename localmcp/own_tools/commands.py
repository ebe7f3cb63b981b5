"""Programs as tools: `kind = "command"` manifests. A program is started with a list of arguments, never by a shell."""

from __future__ import annotations

import codecs
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from localmcp.errors import CallGivenUp, InvalidInput, Unavailable
from localmcp.files import expand_home
from localmcp.own_tools.fields import Fields, Source
from localmcp.own_tools.manifests import (
    ManifestFolder,
    ManifestProvider,
    ManifestTool,
    read_common,
    refuse_unknown_placeholders,
)
from localmcp.own_tools.parameters import (
    Parameter,
    as_text,
    fill,
    only_placeholder,
    placeholders,
)
from localmcp.own_tools.switches import Switches
from localmcp.schemas import Json, compact_json, read_json, shorten_value
from localmcp.tools import Answer, call_cancellation

if TYPE_CHECKING:
    from subprocess import Popen

log = logging.getLogger(__name__)

PARAMETER_KINDS = ("string", "integer", "number", "boolean", "array")
PYTHON = "{python}"
"""As `program`: the Python that runs localmcp, which is there on every machine."""
PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TEMP", "TMP", "LANG", "LC_ALL", "LC_CTYPE", "TZ",
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "USERNAME", "APPDATA", "LOCALAPPDATA",
    "HOMEDRIVE", "HOMEPATH", "PROGRAMFILES", "PROGRAMDATA",
)  # fmt: skip
"""Variables that programs need to run at all; a program gets others only if its manifest names them."""
GRACE_SECONDS = 1.0
"""How long a program may take to end after SIGTERM."""
DRAIN_SECONDS = 0.5
"""How long the output is still read when the program has ended but a child of it holds the pipe."""
MOST_ERROR = 4_000
"""Characters of stderr that an answer repeats."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the program, or several that are left out together unless a parameter is given."""

    templates: tuple[str, ...]
    condition: str = ""
    """Parameter that must be given, and not false."""

    def applies(self, arguments: Json) -> bool:
        return not self.condition or arguments.get(self.condition) not in (None, False)


@dataclass(frozen=True, slots=True)
class Command:
    """What to start, and within which limits."""

    program: str
    arguments: tuple[Argument, ...]
    working_directory: Path
    passed_on: tuple[str, ...]
    set_to: Mapping[str, str]
    stdin: str | None
    timeout: float
    """Seconds."""
    max_output: int
    """Bytes of stdout that the answer holds."""
    output: str
    """`text` or `json`."""
    ok_codes: tuple[int, ...]

    def argument_list(self, arguments: Json, parameters: Mapping[str, Parameter]) -> list[str]:
        """Return the arguments for a call.

        Raises:
            InvalidInput: a value that the program could take for an option, or that no argument can hold.
        """
        listed: list[str] = []
        after_dashes = False
        for template in (
            template for argument in self.arguments if argument.applies(arguments) for template in argument.templates
        ):
            filled = _expand(template, arguments)
            if not after_dashes:
                _refuse_options(template, filled, parameters)
            after_dashes = after_dashes or template == "--"
            listed += filled
        if any("\0" in item for item in listed):
            raise InvalidInput("An argument holds a NUL character, which no program can be given.")
        return listed

    def environment(self) -> dict[str, str]:
        """Return the variables the program gets."""
        names = (*PASSED_ON, *self.passed_on)
        return {**{name: os.environ[name] for name in names if name in os.environ}, **self.set_to}


def _expand(template: str, arguments: Json) -> list[str]:
    """One argument, or one for each item of a list."""
    name = only_placeholder(template)
    value = arguments.get(name) if name else None
    return (
        [as_text(item) for item in cast("list[Any]", value)] if isinstance(value, list) else [fill(template, arguments)]
    )


def _refuse_options(template: str, filled: Sequence[str], parameters: Mapping[str, Parameter]) -> None:
    if template.startswith("-") or all(parameters[name].allow_dash for name in placeholders(template)):
        return
    for argument in filled:
        if argument.startswith("-"):
            raise InvalidInput(
                f"{placeholders(template)[0]}: {shorten_value(argument)} begins with '-', and would be taken for an "
                "option."
            )


# ---------------------------------------------------------------- running


@dataclass(slots=True)
class Reader:
    """Reads a pipe to its end in a thread and keeps the first bytes: a full pipe would stop the program.

    A child that outlives the program may hold the pipe open: then the thread is left running.
    """

    pipe: IO[bytes]
    most: int
    data: bytearray = field(default_factory=bytearray)
    total: int = 0
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._read, daemon=True, name="localmcp-command")
        self.thread.start()

    def _read(self) -> None:
        with self.pipe:
            while block := os.read(self.pipe.fileno(), 65536):
                self.data += block[: self.most - len(self.data)]
                self.total += len(block)

    def text(self) -> str:
        """Return what was kept, as text; a character cut in two is left out."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(bytes(self.data), final=self.total <= len(self.data))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended."""

    code: int | None
    """None = stopped, because it took too long or localmcp ended."""
    output: str
    errors: str
    truncated: bool


class Runner:
    """Starts programs, each in a separate group, and ends what is still running when localmcp does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[Popen[bytes]] = set()

    def run(self, command: Command, program: str, arguments: Sequence[str], stdin: bytes | None) -> Outcome:
        """Run to the end, or to the time-out.

        Raises:
            Unavailable: it cannot be started.
            CallGivenUp: the client gave the call up; the program is ended.
        """
        process = self._start(command, program, arguments, stdin is not None)
        with self._lock:
            self._running.add(process)
        cancellation = call_cancellation()
        if cancellation is not None:
            # Ending takes a second, and whoever gives a call up must not wait for it.
            cancellation.on_cancel(threading.Thread(target=_end_running, args=(process,), daemon=True).start)
        try:
            outcome = _await(process, command, stdin)
        except BaseException:
            # A person has pressed Ctrl-C, which does not reach the program in its group.
            end_groups([process])
            raise
        finally:
            with self._lock:
                self._running.discard(process)
        if cancellation is not None and cancellation.cancelled:
            raise CallGivenUp("The client has given the call up.")
        return outcome

    def _start(self, command: Command, program: str, arguments: Sequence[str], feeds: bool) -> Popen[bytes]:
        import subprocess

        own_group: Json = {"start_new_session": True}
        if sys.platform == "win32":
            own_group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
        try:
            return subprocess.Popen[bytes](
                [program, *arguments],
                stdin=subprocess.PIPE if feeds else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=command.working_directory,
                env=command.environment(),
                **own_group,
            )
        except OSError as error:
            raise Unavailable(
                f"{command.program} cannot be started: {error.strerror or error}.",
                hint=f"Look at program and working_directory ({command.working_directory}) of its manifest.",
            ) from error

    def close(self) -> None:
        """End every program that is still running, with its children, all within the same grace."""
        with self._lock:
            running = tuple(self._running)
        end_groups(running)


def _await(process: Popen[bytes], command: Command, stdin: bytes | None) -> Outcome:
    from subprocess import TimeoutExpired

    output = Reader(cast("IO[bytes]", process.stdout), command.max_output)
    errors = Reader(cast("IO[bytes]", process.stderr), MOST_ERROR * 4)
    if stdin is not None:
        # A program that reads slowly, or not at all, must not keep the time-out from counting.
        threading.Thread(target=_feed, args=(process, stdin), daemon=True).start()
    code: int | None = None
    try:
        code = process.wait(command.timeout)
    except TimeoutExpired:
        end_groups([process])
    for reader in (output, errors):
        reader.thread.join(DRAIN_SECONDS)
    truncated = output.total > len(output.data)
    return Outcome(code, output.text(), errors.text()[:MOST_ERROR], truncated)


def _end_running(process: Popen[bytes]) -> None:
    if process.returncode is None:
        end_groups([process])


def _feed(process: Popen[bytes], data: bytes) -> None:
    pipe = cast("IO[bytes]", process.stdin)
    try:
        with pipe:
            pipe.write(data)
    except OSError:
        log.debug("a program ended before it had read all of its input")


def end_groups(processes: Sequence[Popen[bytes]]) -> None:
    """End programs and their children: with SIGTERM, then with SIGKILL; on Windows by force."""
    import subprocess

    if sys.platform == "win32":
        for process in processes:
            command = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
            subprocess.run(command, capture_output=True, check=False, timeout=10)
        return
    for process in processes:
        _signal_group(process, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            log.info("a program did not end after SIGTERM, and is killed")
    for process in processes:
        # Its children may live on when the program itself has ended.
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: Popen[bytes], number: int) -> None:
    if sys.platform != "win32":
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            log.debug("a program has ended by itself")


# ---------------------------------------------------------------- the tool


@dataclass(eq=False)
class CommandTool(ManifestTool):
    """A program that a manifest describes."""

    command: Command
    runner: Runner

    def run(self, arguments: Json) -> Answer:
        command = self.command
        words = command.argument_list(arguments, self.parameters)
        stdin = None
        if command.stdin is not None:
            stdin = fill(command.stdin, arguments).encode("utf-8", "surrogatepass")
        outcome = self.runner.run(command, find_program(command.program, self.path), words, stdin)
        if outcome.code is None:
            message = f"{self.name} took longer than {command.timeout:g} s and was stopped."
            return _refused(message, outcome)
        if outcome.code not in command.ok_codes:
            detail = outcome.errors.strip() or outcome.output.strip()
            message = f"{self.name} failed with exit code {outcome.code}" + (
                f":\n{detail[:MOST_ERROR]}" if detail else "."
            )
            return _refused(message, outcome)
        return self._answer(outcome)

    def _answer(self, outcome: Outcome) -> Answer:
        value: Json = {"exitCode": outcome.code, "result": outcome.output, "truncated": outcome.truncated}
        if outcome.truncated:
            message = f"\n[cut after {self.command.max_output} bytes]"
            return Answer(value, outcome.output + message)
        if self.command.output == "text":
            return Answer(value, outcome.output)
        try:
            result = read_json(outcome.output)
        except (ValueError, RecursionError) as error:
            return _refused(f"{self.name} should print JSON, but: {error}.", outcome)
        return Answer({**value, "result": result}, compact_json(result))

    def check(self, source: Source) -> None:
        try:
            find_program(self.command.program, self.path)
        except Unavailable as error:
            source.complain(error.message, ("program",), hint=error.hint, level="warning")
        if not self.command.working_directory.is_dir():
            folder = self.command.working_directory
            source.complain(f"The working directory {folder} does not exist.", ("working_directory",), level="warning")
        for name in self.command.passed_on:
            if name not in os.environ:
                source.complain(f"The variable {name} is not set here.", ("environment",), level="warning")


def _refused(message: str, outcome: Outcome) -> Answer:
    value: Json = {"error": message, "exitCode": outcome.code, "result": outcome.output, "truncated": outcome.truncated}
    return Answer(value, message, is_error=True)


def find_program(program: str, manifest: Path) -> str:
    """Return the file that `program` means: a name on the PATH, or a path, `~` allowed, relative to the manifest.

    Raises:
        Unavailable: there is no such program, or Windows would run it by a shell.
    """
    # Its import brings every compression library along.
    import shutil

    if program == PYTHON:
        return sys.executable
    written = os.path.expanduser(program)
    if os.path.dirname(written):
        written = str(manifest.parent / written)
        executable = shutil.which(written)
    else:
        executable = _find_on_path(written)
    if executable is None:
        raise Unavailable(f"The program {program} is not there.", hint="Install it, or write its whole path.")
    if os.path.splitext(executable)[1].lower() in (".bat", ".cmd") and sys.platform == "win32":
        raise Unavailable(
            f"{program} is a batch file, which Windows runs by its shell, so that arguments could become commands.",
            hint="Name the program that the batch file starts.",
        )
    return executable


def _find_on_path(name: str) -> str | None:
    """As `shutil.which`, but never in the working directory, which may be anybody's."""
    import shutil

    places = (folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder))
    return next(filter(None, (shutil.which(os.path.join(folder, name)) for folder in places)), None)


# ---------------------------------------------------------------- reading the manifest


class Commands(ManifestProvider):
    """Every `command` manifest."""

    name = "commands"
    kind = "command"

    def __init__(self, folder: ManifestFolder, switches: Switches) -> None:
        super().__init__(folder, switches)
        self.runner = Runner()

    def read(self, fields: Fields) -> CommandTool:
        common = read_common(fields, PARAMETER_KINDS, dashes=True)
        return CommandTool(*common, read_command(fields, common.parameters), self.runner)

    def close(self) -> None:
        """End the programs that still run."""
        self.runner.close()


def read_command(fields: Fields, parameters: dict[str, Parameter]) -> Command:
    """Return what to start, and within which limits."""
    program = fields.text("program", required=True)
    if program != PYTHON and placeholders(program):
        fields.complain("program must be fixed: a parameter cannot choose it.", "program")
    stdin = fields.text("stdin") if fields.has("stdin") else None
    if stdin is not None:
        refuse_unknown_placeholders(fields, "stdin", stdin, parameters, always=True)
    variables = fields.table("set_environment")
    directory = expand_home(fields.text("working_directory", "~"))
    return Command(
        program=program,
        arguments=_read_arguments(fields, parameters),
        working_directory=fields.source.path.parent / directory,
        passed_on=fields.texts("environment"),
        set_to={name: variables.text(name) for name in variables.keys()},
        stdin=stdin,
        timeout=fields.number("timeout", 30, least=0.1, most=3600),
        max_output=fields.whole("max_output", 100_000, least=1, most=900_000),
        output=fields.choice("output", ("text", "json"), "text"),
        ok_codes=_read_codes(fields),
    )


def _read_codes(fields: Fields) -> tuple[int, ...]:
    codes = fields.items("ok_codes")
    if all(type(code) is int for code in codes):
        return tuple(codes) or (0,)
    fields.complain("ok_codes must hold whole numbers only.", "ok_codes")
    return (0,)


def _read_arguments(fields: Fields, parameters: dict[str, Parameter]) -> tuple[Argument, ...]:
    read: list[Argument] = []
    for argument_fields in fields.items("arguments"):
        if isinstance(argument_fields, str):
            refuse_unknown_placeholders(fields, "arguments", argument_fields, parameters, always=True)
            read.append(Argument((argument_fields,)))
        elif isinstance(argument_fields, dict):
            read.append(_read_condition(fields, cast(Json, argument_fields), parameters))
        else:
            fields.complain(
                f'arguments must hold texts and {{ if = "…", add = […] }}, not {argument_fields!r}.', "arguments"
            )
    _refuse_lists_in_text(fields, read, parameters)
    return tuple(read)


def _read_condition(fields: Fields, table: Json, parameters: dict[str, Parameter]) -> Argument:
    inner = Fields(fields.source, table, (*fields.place, "arguments"))
    condition = inner.choice("if", parameters, required=True)
    added = inner.texts("add")
    inner.refuse_others()
    for template in added:
        others = {name: parameter for name, parameter in parameters.items() if name != condition}
        for name in placeholders(template):
            if name != condition:
                refuse_unknown_placeholders(fields, "arguments", f"{{{name}}}", others, always=True)
    return Argument(added, condition)


def _refuse_lists_in_text(fields: Fields, read: list[Argument], parameters: dict[str, Parameter]) -> None:
    for template in (template for argument in read for template in argument.templates):
        for name in placeholders(template):
            if name in parameters and parameters[name].schema["type"] == "array" and only_placeholder(template) is None:
                fields.complain(
                    f"{{{name}}} is a list, and must stand alone in arguments: each item becomes one argument.",
                    "arguments",
                )
