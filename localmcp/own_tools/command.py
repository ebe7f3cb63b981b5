"""Programs as tools: `kind = "command"` manifests. A program is started with a list of arguments, never by a shell."""

from __future__ import annotations

import codecs
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from pydantic import Field, model_validator

from localmcp.errors import CallGivenUp, InvalidInput, Unavailable
from localmcp.files import expand_home
from localmcp.own_tools import Problem
from localmcp.own_tools.manifest import (
    Filled,
    Manifest,
    Table,
    as_text,
    fill,
    mistake,
    only_placeholder,
    placeholders,
)
from localmcp.schemas import Json, compact_json, read_json, shorten_value
from localmcp.tools import Answer, client_call

if TYPE_CHECKING:
    from localmcp.own_tools.folder import ManifestFile

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
MOST_ERROR = 4_000
"""Characters of stderr that an answer repeats."""


class Argument(Table):
    """One argument of the program, or several that are left out together unless a parameter is given."""

    condition: str = Field("", alias="if")
    """Parameter that must be given, and not false; empty = always."""
    add: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        return {"add": [written]} if isinstance(written, str) else written


class CommandManifest(Manifest):
    """What to start, and within which limits."""

    kind: Literal["command"]
    program: Filled
    arguments: list[Argument] = []
    working_directory: str = "~"
    environment: list[str] = []
    """Variables that are passed on."""
    set_environment: dict[str, str] = {}
    stdin: str | None = None
    timeout: float = Field(30, ge=0.1, le=3600)
    max_output: int = Field(100_000, ge=1, le=900_000)
    """Bytes of stdout that the answer holds."""
    output: Literal["text", "json"] = "text"
    ok_codes: list[int] = [0]

    @model_validator(mode="after")
    def _check(self) -> CommandManifest:
        if self.program != PYTHON and placeholders(self.program):
            raise mistake("it must be fixed: a parameter cannot choose it", "program")
        self.check_template("stdin", self.stdin or "", always=True)
        for argument in self.arguments:
            if argument.condition and argument.condition not in self.parameters:
                raise mistake(f"{argument.condition} is not a parameter", "arguments", "if")
            for template in argument.add:
                self.check_template("arguments", template, always=True, given=argument.condition)
                lists = [name for name in placeholders(template) if self.parameters[name].type == "array"]
                if lists and only_placeholder(template) is None:
                    alone = "is a list, and must stand alone: each item becomes one argument"
                    raise mistake(f"{{{lists[0]}}} {alone}", "arguments")
        return self

    def warnings(self, here: ManifestFile) -> Iterator[Problem]:
        try:
            find_program(self.program, here.path)
        except Unavailable as error:
            yield here.problem(("program",), error.message, error.hint, "warning")
        for name in self.environment:
            if name not in os.environ:
                yield here.problem(("environment",), f"The variable {name} is not set here.", level="warning")

    def run(self, tool: str, arguments: Json, here: ManifestFile) -> Answer:
        stdin = fill(self.stdin, arguments).encode("utf-8", "surrogatepass") if self.stdin is not None else None
        process = self._start(self.argument_list(arguments), here, stdin)
        code, output, errors = here.folder.running.wait_for(process, self.timeout, self.max_output)
        value: Json = {"exitCode": code, "result": output.text(), "truncated": output.truncated}
        problem = ""
        if code is None:
            problem = f"{tool} took longer than {self.timeout:g} s and was stopped."
        elif code not in (self.ok_codes or [0]):
            detail = (errors.text().strip() or output.text().strip())[:MOST_ERROR]
            problem = f"{tool} failed with exit code {code}" + (f":\n{detail}" if detail else ".")
        elif output.truncated:
            return Answer(value, f"{output.text()}\n[cut after {self.max_output} bytes]")
        elif self.output == "text":
            return Answer(value, output.text())
        else:
            try:
                result = read_json(output.text())
                return Answer({**value, "result": result}, compact_json(result))
            except (ValueError, RecursionError) as error:
                problem = f"{tool} should print JSON, but: {error}."
        return Answer({"error": problem, **value}, problem, is_error=True)

    def argument_list(self, arguments: Json) -> list[str]:
        """Return the program's arguments for a call.

        Raises InvalidInput for a value that the program could take for an option, or that no argument can hold.
        """
        listed: list[str] = []
        may_dash = False
        applying = [it for it in self.arguments if not it.condition or arguments.get(it.condition) not in (None, False)]
        for template in (text for argument in applying for text in argument.add):
            value = arguments.get(only_placeholder(template) or "")
            is_list = isinstance(value, list)
            words = list(map(as_text, cast("list[Any]", value))) if is_list else [fill(template, arguments)]
            is_safe = template.startswith("-") or all(self.parameters[n].allow_dash for n in placeholders(template))
            for word in words:
                if word.startswith("-") and not (is_safe or may_dash):
                    says = f"{shorten_value(word)} begins with '-', and would be taken for an option."
                    raise InvalidInput(f"{placeholders(template)[0]}: {says}")
            may_dash = may_dash or template == "--"
            listed += words
        if any("\0" in word for word in listed):
            raise InvalidInput("An argument holds a NUL character, which no program can be given.")
        return listed

    def _start(self, words: Sequence[str], here: ManifestFile, stdin: bytes | None) -> subprocess.Popen[bytes]:
        # Its import brings every compression library along.
        from tempfile import TemporaryFile

        program, folder = find_program(self.program, here.path), here.path.parent / expand_home(self.working_directory)
        own_group: Json = {"start_new_session": True}
        if sys.platform == "win32":
            own_group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
        passed_on = {name: os.environ[name] for name in (*PASSED_ON, *self.environment) if name in os.environ}
        try:
            # A file and not a pipe: a program may read slowly, or not at all.
            with TemporaryFile() as given:
                given.write(stdin or b"")
                given.seek(0)
                return subprocess.Popen[bytes](
                    [program, *words],
                    stdin=subprocess.DEVNULL if stdin is None else given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=folder,
                    env={**passed_on, **self.set_environment},
                    **own_group,
                )
        except OSError as error:
            hint = f"Look at program and working_directory ({folder}) of its manifest."
            problem = f"{self.program} cannot be started: {error.strerror or error}."
            raise Unavailable(problem, hint=hint) from error


# ---------------------------------------------------------------- a running program


class _Pipe:
    """Reads a pipe to its end in a thread and keeps the first bytes: a full pipe would stop the program."""

    def __init__(self, pipe: IO[bytes] | None, most: int) -> None:
        self._data = bytearray()
        self.truncated = False
        self.thread = threading.Thread(target=self._read, args=(pipe, most), daemon=True)
        self.thread.start()

    def _read(self, pipe: IO[bytes], most: int) -> None:
        with pipe:
            while block := os.read(pipe.fileno(), 65536):
                room = most - len(self._data)
                self._data += block[:room]
                self.truncated = self.truncated or len(block) > room

    def text(self) -> str:
        """Return what was kept, as text; a character cut in two is left out."""
        return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(self._data), final=not self.truncated)


class RunningPrograms:
    """The programs that calls have started, each in a group of its own. Thread-safe."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[bytes]] = set()

    def wait_for(self, process: subprocess.Popen[bytes], seconds: float, most: int) -> tuple[int | None, _Pipe, _Pipe]:
        """Return the exit code (None: it was stopped), stdout and stderr; the program ends with its call.

        Raises CallGivenUp if the client gave the call up.
        """
        self._processes.add(process)
        cancellation, code, pipes = client_call().cancellation, None, list[_Pipe]()
        try:
            if cancellation is not None:
                # Ending takes a second, and whoever gives a call up must not wait for it.
                ending = threading.Thread(target=end_groups, args=([process],), daemon=True)
                cancellation.add_done_callback(lambda _: ending.start())
            pipes.append(_Pipe(process.stdout, most))
            pipes.append(_Pipe(process.stderr, 4 * MOST_ERROR))
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(seconds)
            if code is None:
                end_groups([process])
            for pipe in pipes:
                # A child that outlives the program may hold the pipe open: then the thread is left running.
                pipe.thread.join(0.5)
        except BaseException:
            # A person has pressed Ctrl-C, which does not reach the program in its group.
            end_groups([process])
            for unread in filter(None, (process.stdout, process.stderr)[len(pipes) :]):
                unread.close()
            raise
        finally:
            self._processes.discard(process)
        if cancellation is not None and cancellation.cancelled():
            raise CallGivenUp("The client has given the call up.")
        return code, pipes[0], pipes[1]

    def close(self) -> None:
        """End every program that is still running, with its children, all within the same grace."""
        end_groups(tuple(self._processes))


def end_groups(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """End programs that still run, and their children: with SIGTERM, then with SIGKILL; on Windows by force."""
    running = [process for process in processes if process.returncode is None]
    if sys.platform == "win32":
        for process in running:
            command = ["taskkill", "/T", "/F", "/PID", str(process.pid)]
            subprocess.run(command, capture_output=True, check=False, timeout=10)
        return
    deadline = time.monotonic() + GRACE_SECONDS
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in running:
            # Children may live on when the program itself has ended, and so may nobody.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()) if number == signal.SIGTERM else None)


def find_program(program: str, manifest: Path) -> str:
    """Return the file that `program` means: a name on the PATH, or a path, `~` allowed, relative to the manifest.

    Raises Unavailable if there is no such program, or Windows would run it by a shell.
    """
    # Its import brings every compression library along.
    import shutil

    if program == PYTHON:
        return sys.executable
    written = os.path.expanduser(program)
    if os.path.dirname(written):
        executable = shutil.which(str(manifest.parent / written))
    else:
        # Never in the working directory, which may be anybody's, although `shutil.which` and PATH may name it.
        folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
        executable = next(filter(None, (shutil.which(os.path.join(folder, written)) for folder in folders)), None)
    if executable is None:
        raise Unavailable(f"The program {program} is not there.", hint="Install it, or write its whole path.")
    if os.path.splitext(executable)[1].lower() in (".bat", ".cmd") and sys.platform == "win32":
        raise Unavailable(
            f"{program} is a batch file, which Windows runs by its shell, so that arguments could become commands.",
            hint="Name the program that the batch file starts.",
        )
    return executable
