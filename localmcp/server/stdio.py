"""The session of one client on stdin and stdout: frames in, frames out, and a clean end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

import anyio
import anyio.to_thread
import mcp.types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from localmcp.errors import LocalMCPError
from localmcp.schemas import without_surrogates
from localmcp.server.early_call import scope_of
from localmcp.server.handlers import ToolServer
from localmcp.server.session_cache import remember_session
from localmcp.server.wire import MAX_LINE, Overlong, Wire
from localmcp.server.wire_values import OpenOnce, close_within, pass_on_changes
from localmcp.tools import use_scope

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

log = logging.getLogger(__name__)

OPENING_SECONDS = 20.0
"""How long the workspace may take to open after the client has closed stdin, when calls wait for it."""
GRACE_SECONDS = 5.0
"""How long running calls may take to finish after that, such as a first search, which loads the model. A script that
pipes messages in wants the answers; clients in a hurry send a signal after 2 s, which ends everything at once."""
SETTLING_SECONDS = 0.5
"""How long the last replies may take to be written; a client that no longer reads must not delay the end."""
CLOSING_SECONDS = 2.0

_Message = types.JSONRPCMessage
_Id = str | int

# The id is first in what the Python SDK writes and last in what the TypeScript SDK writes.
_ID_FIRST = re.compile(rb'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d+|"[^"\\]*")')
_ID_LAST = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d+|"[^"\\]*")\s*\}\s*$')


def run(
    wire: Wire, open_workspace: Callable[[], Workspace], database: str | None, profile: str | None = None
) -> NoReturn:
    """Serve the client on `wire`, whose first line has been read, until it leaves; ends the process."""
    session = Session(wire, open_workspace, database, profile)
    try:
        anyio.run(session.serve)
    except Exception:
        log.exception("the session ended with an error")
        session.exit_code = 1
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    session.close()
    sys.stderr.flush()
    # Threads of abandoned calls and of native libraries would delay an ordinary exit.
    os._exit(session.exit_code)


class Session:
    """Carries frames between the wire and the SDK's server."""

    def __init__(
        self, wire: Wire, open_workspace: Callable[[], Workspace], database: str | None, profile: str | None
    ) -> None:
        self.exit_code = 0
        self._wire = wire
        self._database = database
        self._profile = profile
        self._scope, self._refusal = scope_of(profile)
        if self._refusal:
            log.error("No tool is served: %s", self._refusal)
        self._open = open_workspace
        self._workspace = OpenOnce(self._open_and_observe)
        self._server = ToolServer(self._workspace, self._scope, instructions=wire.instructions)
        self._server.offered = lambda: wire.offers
        self._repeated = wire.answered
        self._running: set[_Id | None] = set()
        self._reading: anyio.CancelScope
        self._hung_up = False
        self._called = threading.Event()

    # ------------------------------------------------------------ the life of a session

    async def serve(self) -> None:
        """Carry messages until the client closes its end, or `stop`."""
        into, requests = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        replies, out_of = anyio.create_memory_object_stream[SessionMessage](0)
        self._reading = anyio.CancelScope()
        self._wire.serving = True
        threading.Thread(target=self._prepare, name="localmcp-opening", daemon=True).start()
        async with anyio.create_task_group() as group:
            self._handle_signals(group.cancel_scope)
            group.start_soon(self._write, out_of)
            group.start_soon(self._server.run, requests, replies, self._server.create_initialization_options())
            await self._read(into, replies.clone())
            # The SDK cancels what still runs, and tells the client.
            group.cancel_scope.deadline = anyio.current_time() + SETTLING_SECONDS

    def _handle_signals(self, scope: anyio.CancelScope) -> None:
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            self.exit_code = 128 + number
            scope.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            if sys.platform == "win32":
                signal.signal(number, lambda number, frame: loop.call_soon_threadsafe(stop, number))
            else:
                # An ordinary handler waits for the next bytecode, which may never come while the loop sleeps.
                loop.add_signal_handler(number, stop, number)

    def close(self) -> None:
        """Close the workspace, waiting at most CLOSING_SECONDS for calls that still use it."""
        close_within(CLOSING_SECONDS, self._close)

    def _close(self) -> None:
        workspace = self._workspace.opened
        if workspace is None:
            return
        if self._called.is_set():
            self._keep_instructions(workspace)
        workspace.close()

    # ------------------------------------------------------------ the workspace

    def _prepare(self) -> None:
        try:
            self._workspace()
            if self._wire.called:
                self._note_first_call()
        except LocalMCPError as error:
            log.warning("the workspace cannot be opened: %s", error)
        except Exception:
            log.exception("the workspace cannot be opened")

    def _open_and_observe(self) -> Workspace:
        workspace = self._open()
        workspace.registry.observe(lambda _record: self._note_first_call())
        workspace.registry.refusal = self._refusal or workspace.registry.refusal
        pass_on_changes(workspace, self._server.publish_change)
        return workspace

    def _note_first_call(self) -> None:
        """Begin background work with the first call: clients start several copies, and use only one of them."""
        if not self._called.is_set():
            self._called.set()
            threading.Thread(target=self._after_first_call, name="localmcp-background", daemon=True).start()

    def _after_first_call(self) -> None:
        workspace = self._workspace()
        self._keep_instructions(workspace)
        workspace.start_background()

    def _keep_instructions(self, workspace: Workspace) -> None:
        if self._refusal:
            # Nothing of the file is told to a client whose profile cannot be used.
            return
        try:
            with use_scope(self._scope):
                instructions = without_surrogates(workspace.instructions())
                offers = self._server.available_offers()
            remember_session(self._database, instructions, self._profile, offers)
        except (OSError, LocalMCPError) as error:
            log.info("the instructions are not remembered: %s", error)

    # ------------------------------------------------------------ frames in

    async def _read(
        self, into: MemoryObjectSendStream[SessionMessage | Exception], replies: MemoryObjectSendStream[SessionMessage]
    ) -> None:
        async with into, replies:
            with self._reading:
                async for line in self._lines():
                    message = read_message(line)
                    if isinstance(message, Refusal):
                        await replies.send(message.reply())
                        continue
                    self._count(message)
                    await into.send(SessionMessage(message))
                with anyio.move_on_after(OPENING_SECONDS):
                    while self._running and self._workspace.opened is None:
                        await anyio.sleep(0.01)
                with anyio.move_on_after(GRACE_SECONDS):
                    while self._running:
                        await anyio.sleep(0.01)

    async def _lines(self) -> AsyncIterator[bytes]:
        while line := await anyio.to_thread.run_sync(self._wire.next_line, abandon_on_cancel=True):
            if line.strip():
                yield line

    def _count(self, message: _Message) -> None:
        """Keep the ids of the requests without a reply; subscriptions do not count, since they stay open."""
        if isinstance(message, types.JSONRPCRequest) and message.method != "subscriptions/listen":
            self._running.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            cancelled = (message.params or {}).get("requestId")
            self._running -= {request_id for request_id in self._running if request_id == cancelled}

    # ------------------------------------------------------------ frames out

    async def _write(self, replies: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with replies:
            async for reply in replies:
                # A request of ours, such as a question to the person, has an id of another series.
                asking = isinstance(reply.message, types.JSONRPCRequest)
                reply_id = None if asking else getattr(reply.message, "id", None)
                if not self._hung_up and not self._is_repeated(reply_id):
                    await self._send(reply.message)
                self._running.discard(reply_id)

    def _is_repeated(self, reply_id: _Id | None) -> bool:
        """Return whether this is the SDK's reply to the request that was answered before the SDK was there."""
        if self._repeated is None or reply_id != self._repeated:
            return False
        self._repeated = None
        return True

    async def _send(self, message: _Message) -> None:
        try:
            await anyio.to_thread.run_sync(self._wire.write, write_message(message), abandon_on_cancel=True)
        except OSError:
            log.info("the client has closed its end")
            self._hung_up = True
            self._reading.cancel()


# ---------------------------------------------------------------- one message


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that is no message, with the JSON-RPC error that answers it."""

    code: int
    text: str
    request_id: _Id | None = None

    def reply(self) -> SessionMessage:
        error = types.ErrorData(code=self.code, message=self.text)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=self.request_id, error=error))


def read_message(line: bytes) -> _Message | Refusal:
    """Return the message on one line, lone surrogates and invalid UTF-8 replaced, or the refusal of the line."""
    if isinstance(line, Overlong):
        return Refusal(types.INVALID_REQUEST, f"A message may have at most {MAX_LINE // 2**20} MB", _id_in(line))
    line = line.removeprefix(b"\xef\xbb\xbf")
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _read_patiently(line)
    if isinstance(message, types.JSONRPCNotification) and b'"id"' in line:
        # The SDK takes a request whose id has the wrong type for a notification and stays silent.
        return _read_patiently(line)
    return _refused_call(message) or message


def _id_in(line: Overlong) -> _Id | None:
    match = _ID_FIRST.match(line) or _ID_LAST.search(line)
    try:
        return json.loads(match[1]) if match else None
    except ValueError:
        # It has a control character, letters that are no UTF-8, or a number like 007.
        return None


def _refused_call(message: _Message) -> Refusal | None:
    """Return what is wrong with the form of a call, which the SDK refuses without a word about it."""
    if not isinstance(message, types.JSONRPCRequest) or message.method != "tools/call":
        return None
    params = message.params or {}
    if not isinstance(params.get("name"), str):
        return Refusal(types.INVALID_PARAMS, "Invalid params: name is required and must be a string", message.id)
    if not isinstance(params.get("arguments", {}), dict | None):
        return Refusal(types.INVALID_PARAMS, "Invalid params: arguments must be an object", message.id)
    return None


def _read_patiently(line: bytes) -> _Message | Refusal:
    try:
        value = without_surrogates(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        return Refusal(types.PARSE_ERROR, f"Parse error: {error}")
    if isinstance(value, list):
        return Refusal(types.INVALID_REQUEST, "Invalid request: JSON-RPC batches are not supported")
    if not isinstance(value, dict):
        return Refusal(types.INVALID_REQUEST, "Invalid request: a message is a JSON object")
    table = cast("dict[str, Any]", value)
    request_id = table.get("id")
    if type(request_id) not in (int, str):
        request_id = None
        if "id" in table and "method" in table:
            return Refusal(types.INVALID_REQUEST, "Invalid request: id must be a string or a whole number")
    try:
        return types.jsonrpc_message_adapter.validate_python(table, by_name=False)
    except ValidationError:
        return Refusal(types.INVALID_REQUEST, "Invalid request: not a JSON-RPC 2.0 message", request_id)


def write_message(message: _Message) -> bytes:
    """Return the message as one line."""
    try:
        text = message.model_dump_json(by_alias=True, exclude_unset=True)
    except ValueError:
        # A lone surrogate that no tool has caused must not end the session.
        text = json.dumps(without_surrogates(message.model_dump(by_alias=True, exclude_unset=True)))
    return text.encode() + b"\n"
