"""Keeps one server connected: from the first call, again after an end, with growing pauses."""

from __future__ import annotations

import asyncio
import logging
import time
from math import ceil
from typing import TYPE_CHECKING, Any

from localmcp.errors import LocalMCPError, Unavailable
from localmcp.hub.authorization import LoginNeeded
from localmcp.hub.connection import Connection, SessionLost
from localmcp.hub.process import Guard, ServerLog
from localmcp.schemas import Json
from localmcp.tools import ReportProgress, person_asker

if TYPE_CHECKING:
    from localmcp.hub.provider import McpServer

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0


class Supervisor:
    """The connections of one server, one after the other. Lives in one event loop."""

    def __init__(self, server: McpServer, server_log: ServerLog, guard: Guard) -> None:
        self.entry = server.entry
        self._server = server
        self._log = server_log
        self._guard = guard
        self._offering: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._stale: set[str] = set()
        """Lists to ask for again."""
        self._subscribed: set[str] = set()
        """Resources whose changes are reported."""
        self._asks = False
        self._used: Connection | None = None
        """The connection that did more than list: its server may remember something."""
        self._failures = 0
        """Starts that failed and connections that broke, since the last call that was answered."""
        self._last_failure = ""
        self._failed_at = 0.0
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
        pause_seconds = min(2.0 ** (self._failures - 2), LONGEST_PAUSE)
        return max(0.0, self._failed_at + pause_seconds - time.monotonic())

    async def call(
        self, tool: str, arguments: Json, seconds: float | None = None, progress: ReportProgress | None = None
    ) -> Json:
        """Return the raw result of a call, within `seconds` (None: the limit of the entry).

        A call that broke off is not repeated, since it may have done its work.

        Raises:
            LocalMCPError: as `connect` and `Connection.call_tool`.
        """
        try:
            result = await self._call_once(tool, arguments, seconds, progress)
        except SessionLost:
            result = await self._call_once(tool, arguments, seconds, progress)
        self._failures = 0
        return result

    async def _call_once(
        self, tool: str, arguments: Json, seconds: float | None, progress: ReportProgress | None
    ) -> Json:
        connection = self._used = await self.connect()
        try:
            return await connection.call_tool(tool, arguments, seconds, progress)
        except SessionLost:
            raise
        except Unavailable as error:
            # Of all the calls that an end interrupts, the first counts.
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
            self._refuse_during_pause()
            self._opening = asyncio.create_task(self._open(connection))
            self._opening.add_done_callback(self._opened)
        # A caller that gives up must not end the start for the others.
        return await asyncio.shield(self._opening)

    async def refresh(self) -> None:
        """Connect if need be, and ask for the tools.

        Raises:
            LocalMCPError: as `connect`, or the tools cannot be listed.
        """
        try:
            await self._refresh_once()
        except SessionLost:
            await self._refresh_once()

    async def _refresh_once(self) -> None:
        was_alive = self.alive
        connection = await self.connect()
        if was_alive:
            self._server.learn(await connection.list_tools())
        if self._offering is not None:
            await asyncio.wait({self._offering}, timeout=self.entry.start_seconds)

    async def close(self) -> None:
        """End the connection, and a start that is under way."""
        tasks: list[asyncio.Task[Any]] = [
            task for task in (self._opening, self._listing, self._offering) if task is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def _open(self, old: Connection | None) -> Connection:
        if old is not None:
            await old.close()
        connection = Connection(self.entry, self._log, self._guard, self._note_change, self._asks)
        try:
            await connection.open()
            listed = await connection.list_tools()
        except LocalMCPError as error:
            await connection.close()
            if not isinstance(error, LoginNeeded):
                # The person may sign in at any moment.
                self._note_failure(" ".join(filter(None, (error.message, error.hint))))
            self._server.fail(error)
            raise
        except asyncio.CancelledError:
            await connection.close()
            raise
        self._connection = connection
        self._server.learn(listed)
        self._offering = asyncio.create_task(self._list_offers(connection))
        return connection

    async def _list_offers(self, connection: Connection) -> None:
        """Ask for resources and prompts; no call waits for that."""
        try:
            self._server.learn_offers(await connection.list_offers())
            for uri in tuple(self._subscribed):
                if uri in self._subscribed:
                    await connection.subscribe(uri)
        except LocalMCPError as error:
            log.info("the resources and prompts of '%s' cannot be listed: %s", self.entry.name, error)

    async def ask(self, method: str, params: Json) -> Json:
        """Return the raw result of a request that calls no tool, as `Connection.ask`."""
        try:
            return await self._ask_once(method, params)
        except SessionLost:
            return await self._ask_once(method, params)

    async def _ask_once(self, method: str, params: Json) -> Json:
        connection = self._used = await self.connect()
        return await connection.ask(method, params)

    def _opened(self, task: asyncio.Task[Connection]) -> None:
        self._opening = None
        if not task.cancelled():
            # Mark the exception as retrieved: maybe nobody waits for it any more.
            task.exception()

    def _note_failure(self, problem: str) -> None:
        self._failures += 1
        self._last_failure = problem
        self._failed_at = time.monotonic()

    def _refuse_during_pause(self) -> None:
        pause = self.pause
        if pause > 0:
            raise Unavailable(
                f"The MCP server '{self.entry.name}' failed {self._failures} times and is started again in "
                f"{ceil(pause)} s at the earliest.",
                hint=f"The last time: {self._last_failure}",
            )

    async def subscribe(self, uri: str) -> None:
        """Report changes of a resource, over this connection and those that follow."""
        connection = self._used = await self.connect()
        if uri not in self._subscribed:
            self._subscribed.add(uri)
            await connection.subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Report changes of a resource no more; nothing is started for that."""
        self._subscribed.discard(uri)
        if self._connection is not None and self._connection.alive:
            await self._connection.unsubscribe(uri)

    def _note_change(self, changed: str) -> None:
        """List again what has changed; several notices in a row cause one more listing at most."""
        if changed not in ("tools", "offers"):
            self._server.note_updated(changed)
            return
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
                log.warning("the changed %s of '%s' cannot be listed: %s", changed, self.entry.name, error)
