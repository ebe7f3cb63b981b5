"""A server as a child process: messages over its pipes, stderr in a log, no process left behind.

The SDK's own `stdio_client` hides how a server ended, has a file for its stderr, and takes four seconds to end a
stubborn one; clients give localmcp less.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, cast

import anyio
import mcp_types as types
from anyio.abc import Process
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
"""Seconds that a server may take to end after its stdin has closed, and after SIGTERM."""
NOTICING_SECONDS = 5.0
"""Seconds until the loop has learned that a server has ended."""
MAX_LINE = 64 * 1024 * 1024
"""Bytes of one message; a server that sends a longer line is given up."""
MAX_LOG = 1_000_000
MOST_SHOWN = 2_000
"""Characters of a message of the server in an error of ours."""

# Variables that programs need to work at all, besides those that the SDK passes on. Keys and tokens in localmcp's own
# environment are not passed on.
_INHERITED = (
    "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
_WINDOWS = ("COMSPEC", "WINDIR", "TMP", "PROGRAMFILES", "PROGRAMDATA", "SYSTEMROOT")

# Applications started from the desktop do not have the PATH of a shell.
_USUAL_PLACES = ("/opt/homebrew/bin", "/usr/local/bin", "~/.local/bin", "~/.cargo/bin", "~/.bun/bin", "~/.deno/bin")

_GONE = (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


class ServerLog:
    """What a server writes to stderr: kept in a file of bounded size, without the secrets it was started with."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.secrets: tuple[str, ...] = ()
        self.last_line = ""
        """The last line of the present run; empty for none."""

    def begin(self, title: str, secrets: tuple[str, ...]) -> None:
        """Begin a new run of the server; a log that has grown too long is renamed."""
        self.secrets = secrets
        self.last_line = ""
        with suppress(OSError):
            if self.path.stat().st_size > MAX_LOG:
                self.path.replace(self.path.with_suffix(".old.log"))
        self._write(f"--- {title}\n")

    def add(self, lines: bytes) -> None:
        """Keep lines of the server, also such as are no UTF-8."""
        text = self.masked(lines.decode("utf-8", "replace").rstrip() + "\n")
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        self.last_line = visible(last.strip())[:300] or self.last_line
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


@asynccontextmanager
async def run_program(
    launch: Launch, server_log: ServerLog, on_end: Callable[[], None]
) -> AsyncGenerator[tuple[Incoming, Outgoing, Process]]:
    """Run the server during the block, then stop it with all that it started; `on_end` is called when its output ends.

    Raises:
        OSError: it cannot be started.
    """
    process = await _start(launch)
    into, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, out_of = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_write_messages, out_of, process, into)
        group.start_soon(_read_messages, process, into, server_log, on_end)
        group.start_soon(_keep_errors, process, server_log)
        try:
            yield incoming, outgoing, process
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process)
            for stream in (incoming, outgoing, into, out_of):
                stream.close()
            group.cancel_scope.cancel()


async def _start(launch: Launch) -> Process:
    environment = child_environment(launch)
    if sys.platform == "win32":
        command = get_windows_executable_command(launch.command)
        # A pipe is passed on as it is, though the SDK's own caller gives a file.
        errors = cast(TextIO, subprocess.PIPE)
        return cast(Process, await create_windows_process(command, list(launch.args), environment, errors, launch.cwd))
    command = shutil.which(launch.command, path=environment["PATH"]) or launch.command
    return await anyio.open_process(
        [command, *launch.args], env=environment, cwd=launch.cwd, stderr=subprocess.PIPE, start_new_session=True
    )


def child_environment(launch: Launch) -> dict[str, str]:
    """Return what the server sees: the machine's own settings and those of its entry, not ours."""
    names = (*_INHERITED, *(_WINDOWS if sys.platform == "win32" else ()))
    ours = {name: os.environ[name] for name in names if name in os.environ}
    environment = {"PATH": os.defpath, **get_default_environment(), **ours, **launch.env}
    if sys.platform != "win32" and "PATH" not in launch.env:
        places = environment["PATH"].split(os.pathsep)
        usual = map(os.path.expanduser, _USUAL_PLACES)
        environment["PATH"] = os.pathsep.join(dict.fromkeys([*places, *usual]))
    return environment


async def _stop(process: Process) -> None:
    """Close its stdin; if it does not leave, end it with everything that it started.

    Being cancelled cuts its time short, but not the wait for its end: a loop that is closed before it has learned of
    that leaves pipes open, and complains when the process ends.
    """
    cancelled: asyncio.CancelledError | None = None
    try:
        with suppress(*_GONE):
            await cast(Any, process.stdin).aclose()
        await _gone(process, LEAVING_SECONDS)
        if sys.platform == "win32":
            if process.returncode is None:
                await terminate_windows_process_tree(process)
            close_process_job(process)
        else:
            # The group may live on when its leader has left.
            await terminate_posix_process_tree(process, ENDING_SECONDS)
    except asyncio.CancelledError as error:
        cancelled = error
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                process.kill()
                close_process_job(process)
            else:
                os.killpg(process.pid, signal.SIGKILL)
    end = anyio.current_time() + NOTICING_SECONDS
    while process.returncode is None and anyio.current_time() < end:
        try:
            await _gone(process, NOTICING_SECONDS)
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    # Nothing public closes asyncio's transport while another process holds the other end of a pipe.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()
    if cancelled is not None:
        raise cancelled


async def _gone(process: Process, seconds: float) -> None:
    """Poll for its end: `Process.wait` would also wait for processes that have inherited its pipes."""
    end = anyio.current_time() + seconds
    while process.returncode is None and anyio.current_time() < end:
        await anyio.sleep(0.01)


async def describe_end(process: Process) -> str:
    """Return ` (killed by signal 9)` or ` (exit code 1)`; empty while it runs."""
    # The loop may learn a moment later how it ended.
    await _gone(process, 0.2)
    code = process.returncode
    if code is None:
        return ""
    return f" (killed by signal {-code})" if code < 0 else f" (exit code {code})"


# ---------------------------------------------------------------- its pipes


async def _write_messages(
    messages: MemoryObjectReceiveStream[SessionMessage],
    process: Process,
    into: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    async with messages:
        async for message in messages:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            try:
                await cast(Any, process.stdin).send(line)
            except _GONE:
                # It may live on, but reads nothing any more: the session must see an end.
                into.close()
                return


async def _read_messages(
    process: Process,
    into: MemoryObjectSendStream[SessionMessage | Exception],
    server_log: ServerLog,
    on_end: Callable[[], None],
) -> None:
    lines = BufferedByteReceiveStream(cast(Any, process.stdout))
    async with into:
        try:
            while True:
                line = await lines.receive_until(b"\n", MAX_LINE)
                message = read_message(line)
                if message is None:
                    server_log.add(b"stdout: " + line[:500])
                else:
                    await into.send(SessionMessage(message))
        except (anyio.IncompleteRead, *_GONE) as error:
            log.debug("an MCP server has no more to say: %r", error)
        except anyio.DelimiterNotFound:
            log.warning("an MCP server sent a line of more than %d MB and is given up", MAX_LINE >> 20)
    on_end()


def read_message(line: bytes) -> types.JSONRPCMessage | None:
    """Return the message on a line; None for anything else, such as a banner."""
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    try:
        # Many programs cut texts in the middle of a character, which JSON can say and UTF-8 cannot.
        value = without_surrogates(json.loads(line.decode("utf-8", "replace")))
        return types.jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValueError, RecursionError):
        return None


async def _keep_errors(process: Process, server_log: ServerLog) -> None:
    """Keep what comes at once in one piece: line by line, a server that floods stderr would stop the whole loop."""
    begun = b""
    with suppress(*_GONE):
        while True:
            whole, newline, rest = (await cast(Any, process.stderr).receive()).rpartition(b"\n")
            if newline:
                server_log.add(begun + whole)
                begun = b""
            begun = (begun + rest)[:MAX_LOG]
    if begun:
        server_log.add(begun)
