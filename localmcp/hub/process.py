"""A server as a child process: messages over its pipes, stderr in a log, no process left behind."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast

import anyio
import mcp_types as types
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.os.win32.utilities import (
    close_process_job,
    create_windows_process,
    get_windows_executable_command,
    terminate_windows_process_tree,
)
from mcp.shared.message import SessionMessage

from localmcp.files import make_private_folder, open_private
from localmcp.hub.entries import Launch
from localmcp.schemas import without_surrogates
from localmcp.visible_text import visible

log = logging.getLogger(__name__)

LEAVING_SECONDS, ENDING_SECONDS = 0.5, 0.5
"""Seconds that a server may take to end after its stdin has closed, and after SIGTERM.

Together they are well below the time that clients give localmcp to end.
"""
NOTICING_SECONDS = 5.0
"""Seconds until the loop has learned that a server has ended; nobody waits for that on a way out."""
MAX_LINE = 64 * 1024 * 1024
"""Bytes of one message; a server that sends a longer line is given up."""
MAX_LOG = 1_000_000
MOST_SHOWN = 2_000
"""Characters of a message of the server in an error of ours."""
KEPT_LINES = 20

# Variables that programs need to work at all, besides those that the SDK passes on. Keys and tokens in localmcp's own
# environment are not passed on.
_INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_WINDOWS = ("COMSPEC", "WINDIR", "TMP", "PROGRAMFILES", "PROGRAMDATA", "SYSTEMROOT")

# Applications started from the desktop do not have the PATH of a shell.
_USUAL_PLACES = ("/opt/homebrew/bin", "/usr/local/bin", "~/.local/bin", "~/.cargo/bin", "~/.bun/bin", "~/.deno/bin")

# ---------------------------------------------------------------- stderr


class ServerLog:
    """What a server writes to stderr: kept in a file, without the secrets it was started with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.secrets: tuple[str, ...] = ()
        self._last: deque[str] = deque(maxlen=KEPT_LINES)

    @property
    def last_line(self) -> str:
        """The last line of the present run; empty for none."""
        return visible(next((line for line in reversed(self._last) if line.strip()), "").strip())[:300]

    def begin(self, title: str, secrets: tuple[str, ...]) -> None:
        """Begin a new run of the server; a log that has grown too long is renamed."""
        self.secrets = secrets
        self._last.clear()
        with suppress(OSError):
            if self.path.stat().st_size > MAX_LOG:
                self.path.replace(self.path.with_suffix(".old.log"))
        self._write(f"--- {title}\n")

    def add(self, lines: bytes) -> None:
        """Keep lines of the server, also such as are no UTF-8."""
        text = self.masked(lines.decode("utf-8", "replace").rstrip() + "\n")
        self._last.extend(text.splitlines())
        self._write(text)

    def masked(self, text: str) -> str:
        """Return the text without the secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def shown(self, text: str) -> str:
        """Return a message of the server for people and models: short, no secrets or control characters."""
        return visible(self.masked(text[: 2 * MOST_SHOWN]), newlines=True)[:MOST_SHOWN]

    def _write(self, text: str) -> None:
        try:
            make_private_folder(self.path.parent)
            if self.path.exists() and self.path.stat().st_size > 2 * MAX_LOG:
                return
            with open(self.path, "a", encoding="utf-8", errors="replace", opener=open_private) as file:
                file.write(text)
        except OSError as error:
            log.info("%s cannot be written: %s", self.path, error)


# ---------------------------------------------------------------- guard


class Guard:
    """The process of `guard.py`, which is told the process groups of the servers."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        if sys.platform == "win32":
            return
        if self._process is None:
            script = str(Path(__file__).with_name("guard.py"))
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Close its stdin, upon which it ends the groups that are still on its list."""
        if self._process is None:
            return
        with suppress(OSError):
            cast(Any, self._process.stdin).close()
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            # On a busy machine it ends later; it must not stay as a zombie.
            threading.Thread(target=self._process.wait, name="localmcp-guard", daemon=True).start()
        self._process = None

    def _tell(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError as error:
            log.info("the guard of the MCP servers is gone: %s", error)


# ---------------------------------------------------------------- the child


class Child:
    """One running server."""

    def __init__(self, process: Process, guard: Guard) -> None:
        self._process = process
        self._guard = guard
        guard.add(process.pid)

    @property
    def is_dead(self) -> bool:
        """Whether it has ended, also when the loop has not noticed yet."""
        if self._process.returncode is not None:
            return True
        if sys.platform == "win32" or sys.platform == "darwin":
            return False
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    @property
    def ending(self) -> str:
        """`killed by signal 9`, `exit code 1`; empty while it runs."""
        code = self._process.returncode
        if code is None:
            return ""
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    async def wait_briefly(self) -> None:
        """Give the loop a moment to learn how it ended."""
        await self._gone(0.2)

    async def stop(self) -> None:
        """Close its stdin; if it does not leave, end it with everything that it started.

        Being cancelled cuts its time short, but not the wait for its end: a loop that is closed before it has learned
        of that leaves pipes open, and complains when the process ends.
        """
        cancelled: asyncio.CancelledError | None = None
        try:
            await self._end()
        except asyncio.CancelledError as error:
            cancelled = error
            self._kill()
        while not await self._noticed():
            cancelled = cancelled or asyncio.CancelledError()
        if self._process.returncode is not None:
            self._guard.remove(self._process.pid)
        _close_pipes(self._process)
        if cancelled is not None:
            raise cancelled

    async def _noticed(self) -> bool:
        """Wait until the loop has learned of its end, NOTICING_SECONDS at most; False if the wait was cancelled."""
        try:
            await self._gone(NOTICING_SECONDS)
        except asyncio.CancelledError:
            return False
        return True

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
                close_process_job(self._process)
            else:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _end(self) -> None:
        process = self._process
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await cast(Any, process.stdin).aclose()
        await self._gone(LEAVING_SECONDS)
        if sys.platform == "win32":
            if process.returncode is None:
                await terminate_windows_process_tree(process)
            close_process_job(process)
        else:
            # The group may live on when its leader has left.
            await terminate_posix_process_tree(process, ENDING_SECONDS)

    async def _gone(self, seconds: float) -> None:
        """Poll for its end: `Process.wait` would also wait for processes that have inherited its pipes."""
        end = anyio.current_time() + seconds
        while self._process.returncode is None and anyio.current_time() < end:
            await anyio.sleep(0.01)


def _close_pipes(process: Process) -> None:
    """Close asyncio's transport.

    Nothing public closes it while another process holds the other end of a pipe.
    """
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


async def _spawn(launch: Launch) -> Process:
    environment = child_environment(launch)
    if sys.platform == "win32":
        command = get_windows_executable_command(launch.command)
        # A pipe is passed on as it is, though the SDK's own caller gives a file.
        errors = cast(TextIO, subprocess.PIPE)
        started = await create_windows_process(command, list(launch.args), environment, errors, launch.cwd)
        return cast(Process, started)
    command = shutil.which(launch.command, path=environment["PATH"]) or launch.command
    return await anyio.open_process(
        [command, *launch.args], env=environment, cwd=launch.cwd, stderr=subprocess.PIPE, start_new_session=True
    )


def child_environment(launch: Launch) -> dict[str, str]:
    """Return what the server sees: the machine's own settings and those of its entry, not ours."""
    names = [*_INHERITED, *_PROXIES, *(proxy.lower() for proxy in _PROXIES)]
    if sys.platform == "win32":
        names += _WINDOWS
    ours = {name: os.environ[name] for name in names if name in os.environ}
    environment = {**get_default_environment(), **ours, **launch.env}
    if sys.platform != "win32" and "PATH" not in launch.env:
        places = environment.get("PATH", os.defpath).split(os.pathsep)
        usual = (os.path.expanduser(usual_place) for usual_place in _USUAL_PLACES)
        environment["PATH"] = os.pathsep.join([*places, *(folder for folder in usual if folder not in places)])
    environment.setdefault("PATH", os.defpath)
    return environment


# ---------------------------------------------------------------- messages

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def run_child(
    launch: Launch, server_log: ServerLog, guard: Guard, on_end: Callable[[], None]
) -> AsyncGenerator[tuple[Incoming, Outgoing, Child]]:
    """Run the server during the block, then stop it; `on_end` is called when its output ends.

    Raises:
        OSError: it cannot be started.
    """
    child = Child(process := await _spawn(launch), guard)
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_carry_out, out_of, process, into)
        group.start_soon(_carry_in, process.stdout, into, server_log, on_end)
        group.start_soon(_keep_errors, process.stderr, server_log)
        try:
            yield incoming, outgoing, child
        finally:
            with anyio.CancelScope(shield=True):
                await child.stop()
            for stream in (incoming, outgoing, into, out_of):
                stream.close()
            group.cancel_scope.cancel()


async def _carry_out(
    messages: MemoryObjectReceiveStream[SessionMessage],
    process: Process,
    into: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    async with messages:
        async for message in messages:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                await cast(Any, process.stdin).send(line)
            except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                # It may live on, but reads nothing any more: the session must see an end.
                into.close()
                return


async def _carry_in(
    stdout: ByteReceiveStream | None,
    into: MemoryObjectSendStream[SessionMessage | Exception],
    server_log: ServerLog,
    on_end: Callable[[], None],
) -> None:
    async with into:
        async for line in _lines(stdout):
            message = read_message(line)
            if message is None:
                server_log.add(b"stdout: " + line[:500])
                continue
            try:
                await into.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                break
    on_end()


async def _keep_errors(stderr: ByteReceiveStream | None, server_log: ServerLog) -> None:
    """Keep what comes at once in one piece: line by line, a server that floods stderr would stop the whole loop."""
    begun = b""
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        while True:
            whole, newline, rest = (await cast(ByteReceiveStream, stderr).receive()).rpartition(b"\n")
            if newline:
                server_log.add(begun + whole)
                begun = b""
            begun = (begun + rest)[:MAX_LOG]
    if begun:
        server_log.add(begun)


async def _lines(stream: ByteReceiveStream | None) -> AsyncIterator[bytes]:
    """Yield lines without their end, until the stream ends or a line is longer than MAX_LINE."""
    buffered = BufferedByteReceiveStream(cast(ByteReceiveStream, stream))
    with suppress(anyio.IncompleteRead, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        while True:
            try:
                yield await buffered.receive_until(b"\n", MAX_LINE)
            except anyio.DelimiterNotFound:
                log.warning("an MCP server sent a line of more than %d MB and is given up", MAX_LINE >> 20)
                return
    if buffered.buffer:
        yield buffered.buffer


def read_message(line: bytes) -> types.JSONRPCMessage | None:
    """Return the message on a line; None for anything else, such as a banner.

    A malformed answer becomes an error of its request, which would otherwise wait until its time-out.
    """
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _read_patiently(line)


def _read_patiently(line: bytes) -> types.JSONRPCMessage | None:
    try:
        value: Any = without_surrogates(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None
    try:
        return types.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValueError:
        request = cast("dict[str, Any]", value).get("id")
        if type(request) not in (int, str) or "method" in value:
            return None
        error = types.ErrorData(code=types.PARSE_ERROR, message="the answer is not a JSON-RPC message")
        return types.JSONRPCError(jsonrpc="2.0", id=cast(Any, request), error=error)
