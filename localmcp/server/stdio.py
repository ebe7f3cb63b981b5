"""The session of one client on stdin and stdout, through the SDK's transport, and a clean end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

import anyio
import mcp.types as types
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from localmcp.api_keys import unknown_names
from localmcp.errors import ConfigurationError
from localmcp.schemas import Json, mapping_of
from localmcp.server.handshake import OpenOnce, Wire
from localmcp.server.mcp import ToolServer
from localmcp.tools import CallRecord, Scope
from localmcp.tools.base import read_profile

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""How long running calls may take to finish after the client has closed stdin, such as a first search, which loads the
model. A script that pipes messages in wants the answers; clients in a hurry send a signal after 2 s."""


class Session:
    """Serves the client on `wire`, whose first line may have been answered before the SDK was there."""

    def __init__(self, wire: Wire, workspace: OpenOnce, profile: str | None) -> None:
        self._wire, self._workspace = wire, workspace
        self._limits = Json()
        self._refusal: ConfigurationError | None = None
        """Why the client may reach nothing, when its profile cannot be used."""
        if profile is not None:
            try:
                self._limits = read_profile(profile)
            except ConfigurationError as error:
                log.error("No tool is served: %s", error)
                self._refusal, self._limits = error, Json(tools=frozenset[str]())
        scope = Scope(caller="stdio", trusted=False, lean=True, **self._limits)
        self._server = ToolServer(workspace, scope, instructions=wire.instructions)
        self._repeated = wire.answered
        self._unanswered: set[str | int] = set()
        self._ending = threading.RLock()
        workspace.on_open(self._observe)

    def run(self) -> NoReturn:
        """Serve until the client closes its end, or a signal comes; ends the process."""
        self._wire.on_hangup = lambda: self.end(0)
        try:
            anyio.run(self._serve)
        except Exception:
            log.exception("the session ended with an error")
            self.end(1)
        self.end(0)

    def end(self, code: int) -> NoReturn:
        """Close the workspace, waiting 2 s at most, and end the process; from any thread.

        Neither a thread that waits for input nor one of an abandoned call can be stopped in any other way.
        """
        # A second thread waits here until the first has ended the process.
        with self._ending:
            self._workspace.close_within(2.0)
            sys.stderr.flush()
            os._exit(code)

    def _observe(self, workspace: Workspace) -> None:
        called = threading.Event()

        def note_call(_record: CallRecord) -> None:
            # Background work begins with the first call: clients start several copies, and use only one of them.
            if not called.is_set():
                called.set()
                threading.Thread(target=workspace.start_background, name="localmcp-background", daemon=True).start()

        workspace.registry.observe(note_call)
        workspace.registry.refusal = self._refusal or workspace.registry.refusal
        self._server.watch(workspace)
        for sentence in unknown_names(workspace.registry, workspace.database, self._limits) if self._limits else ():
            log.warning("The profile of this client names what is not there. %s", sentence)

    async def _serve(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            if sys.platform == "win32":
                signal.signal(number, lambda number, _frame: self.end(128 + number))
            else:
                # An ordinary handler waits for the next bytecode, which may never come while the loop sleeps.
                asyncio.get_running_loop().add_signal_handler(number, self.end, 128 + number)
        file = anyio.wrap_file(cast(TextIO, self._wire))
        options = self._server.create_initialization_options(NotificationOptions(True, True, True))
        async with stdio_server(file, file) as (incoming, outgoing):
            into, requests = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            replies, answered = anyio.create_memory_object_stream[SessionMessage](0)

            async def pass_replies() -> None:
                async with outgoing, answered:
                    async for reply in answered:
                        # A request of ours, such as a question to the person, has an id of another series.
                        asking = isinstance(reply.message, types.JSONRPCRequest)
                        reply_id = None if asking else getattr(reply.message, "id", None)
                        if self._repeated is not None and reply_id == self._repeated:
                            # The client has its reply already.
                            self._repeated = None
                        else:
                            await outgoing.send(reply)
                        self._unanswered.discard(reply_id)

            async with anyio.create_task_group() as group:
                group.start_soon(pass_replies)
                group.start_soon(self._server.run, requests, replies, options)
                async with into, replies.clone() as failures:
                    async for item in incoming:
                        if isinstance(item, Exception):
                            # The SDK would leave the client waiting for an answer.
                            error = types.ErrorData(code=types.PARSE_ERROR, message="Parse error: no JSON-RPC message")
                            await failures.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=error)))
                            continue
                        message = item.message
                        if isinstance(message, types.JSONRPCRequest) and message.method != "subscriptions/listen":
                            # Subscriptions stay open.
                            self._unanswered.add(message.id)
                        elif getattr(message, "method", "") == "notifications/cancelled":
                            cancelled = mapping_of(getattr(message, "params", None)).get("requestId")
                            if cancelled in tuple(self._unanswered):
                                self._unanswered.remove(cancelled)
                        await into.send(item)
                    # After the last message, the client is owed the replies.
                    with anyio.move_on_after(GRACE_SECONDS):
                        while self._unanswered:
                            await anyio.sleep(0.01)
                # The SDK cancels what still runs. A client that no longer reads must not delay the end.
                asyncio.get_running_loop().call_later(0.5, self.end, 0)
