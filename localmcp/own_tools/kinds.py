"""The kinds of manifests that make one tool each: a program, a statement of SQL, an HTTP request."""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal, cast
from urllib.parse import quote, urlencode, urlsplit

import apsw
from pydantic import Field, model_validator

from localmcp.config import SUFFIX
from localmcp.errors import AccessDenied, CallGivenUp, ConfigurationError, InvalidInput, LocalMCPError, Unavailable
from localmcp.files import expand_home
from localmcp.http import LOOPBACK, Request, send
from localmcp.own_tools.manifest import Filled, Manifest, Table, as_text, fill, mistake, only_placeholder, placeholders
from localmcp.schemas import Json, compact_json, json_kind, list_of, mapping_of, one_or_more, read_json, shorten_value
from localmcp.storage.connections import harden, prepare, read_rows, reading_only
from localmcp.storage.schema import APPLICATION_ID
from localmcp.tools import Answer, client_call, current_scope

if TYPE_CHECKING:
    from localmcp.own_tools.folder import ManifestFile, Problem

# ---------------------------------------------------------------- kind = "command"

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
    """What to start, and within which limits; with a list of arguments, never by a shell."""

    kind: Literal["command"]
    program: Filled
    arguments: list[Argument] = []
    working_directory: str = "~"
    environment: list[str] = []
    set_environment: dict[str, str] = {}
    stdin: str = ""
    timeout: float = Field(30, ge=0.1, le=3600)
    max_output: int = Field(100_000, ge=1, le=900_000)
    """Bytes of stdout that the answer holds."""
    output: Literal["text", "json"] = "text"
    ok_codes: list[int] = [0]

    @model_validator(mode="after")
    def _check(self) -> CommandManifest:
        if self.program != PYTHON and placeholders(self.program):
            raise mistake("it must be fixed: a parameter cannot choose it", "program")
        self.check_template("stdin", self.stdin, always=True)
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
        process = self._start(self.argument_list(arguments), here, fill(self.stdin, arguments))
        code, output, errors = here.folder.running.wait_for(process, self.timeout, self.max_output)
        text = output.text()
        value: Json = {"exitCode": code, "result": text, "truncated": output.truncated}
        if code is None:
            problem = f"{tool} took longer than {self.timeout:g} s and was stopped."
        elif code not in (self.ok_codes or [0]):
            detail = (errors.text().strip() or text.strip())[:MOST_ERROR]
            problem = f"{tool} failed with exit code {code}" + (f":\n{detail}" if detail else ".")
        elif output.truncated or self.output == "text":
            return Answer(value, f"{text}\n[cut after {self.max_output} bytes]" if output.truncated else text)
        else:
            try:
                result = read_json(text)
                return Answer({**value, "result": result}, compact_json(result))
            except (ValueError, RecursionError) as error:
                problem = f"{tool} should print JSON, but: {error}."
        return Answer({"error": problem, **value}, problem, is_error=True)

    def argument_list(self, arguments: Json) -> list[str]:
        """Return the program's arguments; raises InvalidInput for a value that it could take for an option."""
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

    def _start(self, words: Sequence[str], here: ManifestFile, stdin: str) -> subprocess.Popen[bytes]:
        program, folder = find_program(self.program, here.path), here.path.parent / expand_home(self.working_directory)
        own_group: Json = {"start_new_session": True}
        if sys.platform == "win32":
            own_group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
        passed_on = {name: os.environ[name] for name in (*PASSED_ON, *self.environment) if name in os.environ}
        try:
            # A file and not a pipe: a program may read slowly, or not at all.
            with TemporaryFile() as input_file:
                input_file.write(stdin.encode("utf-8", "surrogatepass"))
                input_file.seek(0)
                return subprocess.Popen[bytes](
                    [program, *words],
                    # Some programs, as ripgrep, read even an empty file instead of the folder.
                    stdin=input_file if self.stdin else subprocess.DEVNULL,
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
    """The programs that calls have started, each in its own process group. Thread-safe."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[bytes]] = set()

    def wait_for(self, process: subprocess.Popen[bytes], seconds: float, most: int) -> tuple[int | None, _Pipe, _Pipe]:
        """Return the exit code (None: it was stopped), stdout and stderr; raises CallGivenUp."""
        self._processes.add(process)
        cancellation, code = client_call().cancellation, None
        try:
            if cancellation is not None:
                # Ending takes a second, and whoever gives a call up must not wait for it.
                ending = threading.Thread(target=end_groups, args=([process],), daemon=True)
                cancellation.add_done_callback(lambda _: ending.start())
            pipes = _Pipe(process.stdout, most), _Pipe(process.stderr, 4 * MOST_ERROR)
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
            raise
        finally:
            self._processes.discard(process)
        if cancellation is not None and cancellation.cancelled():
            raise CallGivenUp("The client has given the call up.")
        return code, *pipes

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
    """Return the file that `program` means, a name on the PATH or a path from the manifest; raises Unavailable."""
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
        says = "is a batch file, which Windows runs by its shell, so that arguments could become commands."
        raise Unavailable(f"{program} {says}", hint="Name the program that the batch file starts.")
    return executable


# ---------------------------------------------------------------- kind = "query"

OUR_FILE = "localmcp"
"""As `database`: the localmcp file in use."""


class QueryManifest(Manifest):
    """One read-only statement, where it runs and within which limits."""

    types = ("string", "integer", "number", "boolean")
    only_reads: ClassVar[bool] = True

    kind: Literal["query"]
    sql: Filled
    database: str = OUR_FILE
    timeout: float = Field(5, ge=0.05, le=60)
    max_rows: int = Field(200, ge=1, le=10_000)

    def run(self, tool: str, arguments: Json, here: ManifestFile) -> Answer:
        bindings = {name: arguments.get(name) for name in self.parameters}
        with self._opened(here) as connection:
            columns, rows, truncated = read_rows(
                connection, self.sql, bindings, most_rows=self.max_rows, most_characters=400_000
            )
        value = {"columns": columns, "rows": rows, "rowCount": len(rows), "truncated": truncated}
        return Answer(value, compact_json(value))

    def warnings(self, here: ManifestFile) -> Iterator[Problem]:
        if not self._file(here).is_file():
            yield here.problem(("database",), f"The database {self._file(here)} does not exist.", level="warning")
            return
        try:
            with self._opened(here) as connection:
                names = {str(name) for name in prepare(connection, self.sql).bindings_names}
        except LocalMCPError as error:
            yield here.problem(("sql",), error.message, error.hint)
            return
        for name in names ^ self.parameters.keys():
            place = ("parameters", name) if name in self.parameters else ("sql",)
            yield here.problem(place, f":{name} must be both in sql and in [parameters.{name}].")

    def _file(self, here: ManifestFile) -> Path:
        return here.folder.database if self.database == OUR_FILE else here.path.parent / expand_home(self.database)

    @contextmanager
    def _opened(self, here: ManifestFile) -> Generator[apsw.Connection]:
        """Yield the file, read-only, with every limit in force; what SQLite refuses becomes a sentence."""
        path = self._file(here)
        if not path.is_file():
            hint = "Begin with: localmcp add FOLDER" if path.suffix == SUFFIX else "Look at database in its manifest."
            raise Unavailable(f"The database {path} does not exist.", hint=hint)
        try:
            with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
                harden(connection)
                connection.set_busy_timeout(int(self.timeout * 1000))
                # Bytes of any value that a statement makes on its way.
                connection.limit(apsw.SQLITE_LIMIT_LENGTH, 16_000_000)
                is_ours = connection.pragma("application_id") == APPLICATION_ID
                if is_ours and current_scope().collections is not None:
                    raise AccessDenied("This query reads every collection, and the caller may only see some.")
                with reading_only(connection, self.timeout, _is_open_table if is_ours else lambda _: True):
                    yield connection
        except apsw.InterruptError as error:
            raise Unavailable(f"The query took longer than {self.timeout:g} s and was stopped.") from error
        except (apsw.SQLError, apsw.AuthError, apsw.BindingsError, apsw.TooBigError) as error:
            raise InvalidInput(f"The statement cannot be run: {error}.") from error
        except apsw.Error as error:
            raise Unavailable(f"{path} cannot be read: {error}.") from error


def _is_open_table(table: str) -> bool:
    # Not the hashes of keys and what other callers asked for, nor SQLite's own tables, which may hold samples of these.
    is_schema = table in ("sqlite_schema", "sqlite_master")
    return table not in ("api_keys", "calls") and (is_schema or not table.startswith("sqlite_"))


# ---------------------------------------------------------------- kind = "http"

MOST_BYTES = 8 << 20
"""Bytes of a response that are read; a larger one is refused where JSON is expected, else cut."""
_SECRET = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class HttpManifest(Manifest):
    """One request to a fixed host, and what of the response is the answer.

    Secrets come from the environment, and go into headers or the query only.
    """

    types = ("string", "integer", "number", "boolean", "array", "object")

    kind: Literal["http"]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    url: Filled
    """A template whose scheme, host and port are fixed."""
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    body: dict[str, Any] | None = None
    result: str = ""
    """Path into the response's JSON: `data.items[0].name`; empty = all of it."""
    timeout: float = Field(30, ge=0.1, le=600)
    max_output: int = Field(100_000, ge=1, le=400_000)
    """Characters of the answer."""

    @property
    def host(self) -> str:
        """`api.example.org:8443`, the only place that is ever contacted."""
        return urlsplit(self.url).netloc

    @model_validator(mode="after")
    def _check(self) -> HttpManifest:
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            parts, is_address = urlsplit(""), False
        if not is_address or "{" in parts.netloc or parts.username or parts.password or parts.fragment:
            raise mistake("it must be http:// or https://, a fixed host without a password, and no part after #", "url")
        if re.search(r"[\s\x00-\x1f]", self.url) or not self.url.isascii() or _SECRET.search(self.url):
            raise mistake("percent-encode spaces and letters; secrets belong into [query] or [headers]", "url")
        self.check_template("url", self.url, always=True)
        for name, value in self.headers.items():
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not value.isprintable():
                raise mistake("no header that can be sent", "headers", name)
            if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
                raise mistake("the request itself sets it", "headers", name)
            if placeholders(_SECRET.sub("", value)):
                raise mistake("a parameter cannot be in a header", "headers", name)
        for key, table in (("query", self.query), ("body", self.body)):
            for text in texts_in(table):
                if not _SECRET.search(text):
                    # A text around the placeholder needs its value; alone, the whole entry can be left out.
                    self.check_template(key, text, always=only_placeholder(text) is None)
                elif key == "body" or placeholders(_SECRET.sub("", text)):
                    raise mistake("${VARIABLE} can be in [headers] and [query] only, without parameters", key)
        if any(isinstance(value, dict) for value in self.query.values()):
            raise mistake("a text, a number or a list of them for each name", "query")
        if self.body is not None and self.method == "GET":
            raise mistake('a GET request has none; write method = "POST", or use [query]', "body")
        return self

    def warnings(self, here: ManifestFile) -> Iterator[Problem]:
        secrets = set(_SECRET.findall(json.dumps([self.headers, self.query], default=str)))
        for name in sorted(secrets):
            if not os.environ.get(name):
                hint = "Set it where localmcp is started."
                yield here.problem((), f"The variable {name} is not set here.", hint, "warning")
        parts = urlsplit(self.url)
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and secrets:
            yield here.problem(("url",), f"Secrets go to {parts.hostname} unencrypted.", "Use https.", "warning")

    def run(self, tool: str, arguments: Json, here: ManifestFile) -> Answer:
        request = self.build_request(arguments)
        try:
            response = send(request)
        except TimeoutError:
            raise Unavailable(f"{self.host} did not answer within {self.timeout:g} s.") from None
        except ConnectionRefusedError:
            raise Unavailable(f"{self.host} refused the connection.", hint="Start the server.") from None
        except (OSError, ValueError) as error:
            # Its whole text may hold the URL or a header, with a secret in it.
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise Unavailable(f"{self.host} cannot be reached: {reason}.") from None
        if 300 <= response.status < 400:
            # The manifest names the host.
            problem = f"{self.host} redirects elsewhere (HTTP {response.status}), which is not followed."
            raise Unavailable(problem, hint="Write the final address into the manifest.")
        text, status = response.body[:MOST_BYTES].decode("utf-8", "replace"), response.status
        result: Any = text
        problem, is_cut = "", len(response.body) > MOST_BYTES
        wants_json = bool(self.result) or "json" in response.headers.get("Content-Type", "").lower()
        if not 200 <= status < 300:
            problem = f"{self.host} answered with HTTP {status}: {' '.join(text.split())[:300]}".removesuffix(": ")
        elif wants_json and text.strip() and not is_cut:
            try:
                result = select(read_json(text), self.result)
            except (ValueError, RecursionError) as error:
                problem = f"{self.host} should have answered with JSON, but: {error}."
        if problem:
            return Answer({"error": problem, "status": status}, problem, is_error=True)
        shown = result if isinstance(result, str) else compact_json(result)
        if is_cut or len(shown) > self.max_output:
            result, is_cut = shown[: self.max_output], True
            shown = f"{result}\n[cut after {self.max_output} characters]"
        return Answer({"status": status, "result": result, "truncated": is_cut}, shown)

    def build_request(self, arguments: Json) -> Request:
        """Return the request; raises InvalidInput for a value that would leave its place, ConfigurationError."""
        for name in placeholders(self.url.partition("?")[0]):
            value = as_text(arguments[name])
            if not value or any(part in ("", ".", "..") for part in re.split(r"[/\\]", value)):
                # Servers resolve these, some of them even when they are percent-encoded.
                raise InvalidInput(f"{name}: {shorten_value(value)} cannot stand in a path.")
        url = fill(self.url, arguments, lambda value: quote(as_text(value), safe="", errors="replace"))
        pairs: list[tuple[str, str]] = []
        for name, template in self.query.items():
            if isinstance(template, str) and _SECRET.search(template):
                # Only what the manifest says can name a variable, never what a call gives.
                pairs.append((name, _with_secrets(template)))
            else:
                items = one_or_more(fill_json(template, arguments))
                pairs += [(name, as_text(item)) for item in items if item is not None]
        if pairs:
            url = f"{url}{'&' if '?' in url else '?'}{urlencode(pairs)}"
        headers, body = {"Accept": "application/json, */*;q=0.5"}, None
        if self.body is not None:
            body = json.dumps(fill_json(self.body, arguments), ensure_ascii=False).encode("utf-8", "replace")
            headers["Content-Type"] = "application/json"
        # A name that the manifest writes in other letters replaces the usual one as well.
        headers |= {name.title(): _with_secrets(value) for name, value in self.headers.items()}
        return Request(self.method, url, headers, body, MOST_BYTES, self.timeout, self.timeout)


def _with_secrets(template: str) -> str:
    """Return the template with each `${NAME}` replaced by the variable; raises ConfigurationError."""
    for name in _SECRET.findall(template):
        value = os.environ.get(name, "").strip()
        if not value:
            hint = "Set it where localmcp is started."
            raise ConfigurationError(f"The variable {name} is not set, and this tool needs it.", hint=hint)
        if not value.isprintable() or not value.isascii():
            raise ConfigurationError(f"The variable {name} holds characters that no header can carry.")
    return _SECRET.sub(lambda match: os.environ[match[1]].strip(), template)


def fill_json(template: Any, arguments: Json) -> Any:
    """Return JSON with its templates filled, `{name}` by the value with its type; what is not given is left out."""
    if isinstance(template, str):
        name = only_placeholder(template)
        return arguments.get(name) if name else fill(template, arguments)
    if isinstance(template, dict):
        filled = {key: fill_json(value, arguments) for key, value in cast(Json, template).items()}
        return {key: value for key, value in filled.items() if value is not None}
    if isinstance(template, list):
        items = [fill_json(value, arguments) for value in cast("list[Any]", template)]
        return [value for value in items if value is not None]
    return template


def select(value: Any, path: str) -> Any:
    """Return the part of a JSON value at `path`: keys joined by dots, `[0]` for an item; raises ValueError."""
    for match in re.finditer(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            value = mapping_of(value)[match[1]] if match[1] else list_of(value)[int(match[2])]
        except (KeyError, IndexError):
            there = ", ".join(list(mapping_of(value))[:10]) or json_kind(value)
            raise ValueError(f"it holds no '{path}' (at '{match[0]}' there is: {there})") from None
    return value


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        items = cast("list[Any]", list(cast(Json, value).values()) if isinstance(value, dict) else value)
        for item in items:
            yield from texts_in(item)
