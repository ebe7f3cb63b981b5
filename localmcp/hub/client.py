"""Keeps one server connected: from the first call, again after an end, with growing pauses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from math import ceil
from typing import TYPE_CHECKING, Any

from localmcp.errors import LocalMCPError, Unavailable
from localmcp.hub.auth import LoginNeeded
from localmcp.hub.connection import Connection, SessionLost
from localmcp.hub.program import ServerLog
from localmcp.schemas import Json
from localmcp.tools import ReportProgress, person_asker

if TYPE_CHECKING:
    from localmcp.hub.servers import McpServer

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0


class ServerClient:
    """The connections of one server, one after the other. Lives in one event loop."""

    def __init__(self, server: McpServer, server_log: ServerLog) -> None:
        self.entry = server.entry
        self._server = server
        self._log = server_log
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._stale: set[str] = set()
        """Lists to ask for again."""
        self._asks = False
        self._used: Connection | None = None
        """The connection that did more than list: its server may remember something."""
        self._failures = 0
        """Starts that failed and connections that broke, since the last call that was answered."""
        self._last_failure, self._failed_at = "", 0.0
        self._ended: Connection | None = None
        """The last connection whose end was counted."""

    @property
    def alive(self) -> bool:
        """Whether a call would find the server running."""
        return self._connection is not None and self._connection.alive

    @property
    def condition(self) -> str:
        """`running`, `starting` or `stopped`."""
        return "running" if self.alive else ("starting" if self._opening is not None else "stopped")

    @property
    def pause(self) -> float:
        """Seconds until the next start is tried: none after a first failure, then 1, 2, 4, ... 60."""
        if self._failures < 2:
            return 0.0
        return max(0.0, self._failed_at + min(2.0 ** (self._failures - 2), LONGEST_PAUSE) - time.monotonic())

    async def call(
        self, tool: str, arguments: Json, seconds: float | None = None, progress: ReportProgress | None = None
    ) -> Json:
        """Return the raw result of a call, within `seconds` (None: the limit of the entry).

        A call that broke off is not repeated, since it may have done its work.

        Raises:
            LocalMCPError: as `connect`, `McpServer.check_approved` and `Connection.call_tool`.
        """

        async def call_approved(connection: Connection) -> Json:
            self._server.check_approved(tool)
            return await connection.call_tool(tool, arguments, seconds, progress)

        result = await self._use(call_approved)
        self._failures = 0
        return result

    async def ask(self, method: str, params: Json) -> Json:
        """Return the raw result of a request that calls no tool, as `Connection.ask`."""
        return await self._use(lambda connection: connection.ask(method, params))

    async def refresh(self) -> None:
        """Connect if need be, and ask for what it offers.

        Raises:
            LocalMCPError: as `connect`, or the tools cannot be listed.
        """
        was_alive = self.alive
        try:
            connection = await self.connect()
            if was_alive:
                self._server.learn(await connection.list_tools())
        except SessionLost:
            await self.connect()
        if self._listing is not None:
            await asyncio.wait({self._listing}, timeout=self.entry.start_seconds)

    async def _use(self, request: Callable[[Connection], Awaitable[Json]]) -> Json:
        """Send a request, and again if the server had forgotten the session before it read it."""
        try:
            return await self._use_once(request)
        except SessionLost:
            return await self._use_once(request)

    async def _use_once(self, request: Callable[[Connection], Awaitable[Json]]) -> Json:
        connection = self._used = await self.connect()
        try:
            return await request(connection)
        except SessionLost:
            raise
        except Unavailable as error:
            # Of all the requests that an end interrupts, the first counts.
            if not connection.alive and connection is not self._ended:
                self._ended = connection
                self._note_failure(f"{error.message} Its log: {self._log.path}")
            raise

    async def connect(self) -> Connection:
        """Return the live connection. If there is none, one caller opens it for all.

        Raises:
            LocalMCPError: as `Connection.open`, or the server pauses after failures.
        """
        # The handshake tells the server whether it may ask the person: if any client has offered that by then. One that
        # was told no is started again for the first client that offers it, unless it has done something for another.
        self._asks = self._asks or person_asker() is not None
        connection = self._connection
        may_ask = connection is None or connection.asks or not self._asks or connection is self._used
        if connection is not None and connection.alive and may_ask:
            return connection
        if self._opening is None:
            if (pause := self.pause) > 0:
                failed = f"failed {self._failures} times and is started again in {ceil(pause)} s at the earliest"
                hint = f"The last time: {self._last_failure}"
                raise Unavailable(f"The MCP server '{self.entry.name}' {failed}.", hint=hint)
            self._opening = asyncio.create_task(self._open(connection))
            self._opening.add_done_callback(self._opened)
        # A caller that gives up must not end the start for the others.
        return await asyncio.shield(self._opening)

    async def close(self) -> None:
        """End the connection, and a start that is under way."""
        tasks: list[asyncio.Task[Any]] = [task for task in (self._opening, self._listing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def _open(self, old: Connection | None) -> Connection:
        if old is not None:
            await old.close()
        connection = Connection(self.entry, self._log, self._note_change, self._asks)
        try:
            await connection.open()
            listed = await connection.list_tools()
        except BaseException as error:
            await connection.close()
            if isinstance(error, LocalMCPError):
                if not isinstance(error, LoginNeeded):
                    # The person may sign in at any moment.
                    self._note_failure(" ".join(filter(None, (error.message, error.hint))))
                self._server.fail(error)
            raise
        self._connection = connection
        self._server.learn(listed)
        # No call waits for its resources and prompts.
        self._note_change("offers")
        return connection

    def _opened(self, task: asyncio.Task[Connection]) -> None:
        self._opening = None
        if not task.cancelled():
            # Mark the exception as retrieved: maybe nobody waits for it any more.
            task.exception()

    def _note_failure(self, problem: str) -> None:
        self._failures += 1
        self._last_failure, self._failed_at = problem, time.monotonic()

    def _note_change(self, changed: str) -> None:
        """List again what has changed; several notices in a row cause one more listing at most."""
        self._stale.add(changed)
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self._list())

    async def _list(self) -> None:
        while self._stale and self._connection is not None and self._connection.alive:
            changed = self._stale.pop()
            try:
                if changed == "tools":
                    self._server.learn(await self._connection.list_tools())
                else:
                    self._server.learn_offers(await self._connection.list_offers())
            except LocalMCPError as error:
                level = logging.WARNING if changed == "tools" else logging.INFO
                log.log(level, "the changed %s of '%s' cannot be listed: %s", changed, self.entry.name, error)
