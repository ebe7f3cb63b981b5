"""Keeps one server at hand: connects when it is first needed, again after an end, and less and less eagerly."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from localmcp.errors import LocalMCPError, Unavailable
from localmcp.providers.mcp_servers.connection import Connection, SessionLost
from localmcp.providers.mcp_servers.entries import ServerEntry
from localmcp.providers.mcp_servers.process import Guard, ServerLog
from localmcp.tools import ReportProgress, person_asker

Json = dict[str, Any]

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0


class Supervisor:
    """The connections of one server, one after the other. Lives in one event loop."""

    def __init__(
        self,
        entry: ServerEntry,
        server_log: ServerLog,
        guard: Guard,
        on_tools: Callable[[list[Json]], None],
        on_failure: Callable[[LocalMCPError], None],
        on_offers: Callable[[dict[str, list[Json]]], None],
    ) -> None:
        """`on_tools` receives the server's tools after each connection and change, `on_offers` its resources and
        prompts a moment later, `on_failure` why no connection came about."""
        self.entry = entry
        self._log = server_log
        self._guard = guard
        self._on_tools = on_tools
        self._on_failure = on_failure
        self._on_offers = on_offers
        self._offering: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._list_again = False
        self._asks = False
        self._failures = 0
        """Starts that failed and connections that broke, since the last call that was answered."""
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

    # ------------------------------------------------------------ what callers want

    async def call(
        self, tool: str, arguments: Json, seconds: float | None = None, progress: ReportProgress | None = None
    ) -> Json:
        """The raw result of a call, within `seconds` (None: the limit of the entry).

        A call that broke off is not repeated, since it may have done its work.

        Raises:
            LocalMCPError: as `Connection.open` and `Connection.call_tool`, or the server is resting after failures.
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
        connection = await self.connect()
        try:
            return await connection.call_tool(tool, arguments, seconds, progress)
        except SessionLost:
            raise
        except Unavailable:
            # Of all the calls that an end interrupts, the first counts.
            if not connection.alive and connection is not self._ended:
                self._ended = connection
                self._note_failure()
            raise

    async def connect(self) -> Connection:
        """The living connection; opened if there is none, by one caller for all.

        Raises:
            LocalMCPError: as `Connection.open`, or the server is resting after failures.
        """
        # What the server may ask of the person is told it at the handshake, by what clients have offered by then.
        self._asks = self._asks or person_asker() is not None
        connection = self._connection
        if connection is not None and connection.alive:
            return connection
        if self._opening is None:
            self._refuse_while_resting()
            self._opening = asyncio.create_task(self._open(connection))
            self._opening.add_done_callback(self._opened)
        # One impatient caller must not break off the start for the others.
        return await asyncio.shield(self._opening)

    async def refresh(self) -> None:
        """Connect if need be, and ask for the tools.

        Raises:
            LocalMCPError: as `connect`, or the tools cannot be listed.
        """
        was_alive = self.alive
        connection = await self.connect()
        if was_alive:
            self._on_tools(await connection.list_tools())
        if self._offering is not None:
            await asyncio.wait({self._offering}, timeout=self.entry.start_seconds)

    async def close(self) -> None:
        """End the connection and what is about to become one."""
        tasks: list[asyncio.Task[Any]] = [
            entry for entry in (self._opening, self._listing, self._offering) if entry is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    # ------------------------------------------------------------ starting

    async def _open(self, old: Connection | None) -> Connection:
        if old is not None:
            await old.close()
        connection = Connection(self.entry, self._log, self._guard, self._tools_changed, self._asks)
        try:
            await connection.open()
            tools = await connection.list_tools()
        except LocalMCPError as error:
            await connection.close()
            self._note_failure()
            self._on_failure(error)
            raise
        except asyncio.CancelledError:
            await connection.close()
            raise
        self._connection = connection
        self._on_tools(tools)
        self._offering = asyncio.create_task(self._list_offers(connection))
        return connection

    async def _list_offers(self, connection: Connection) -> None:
        """Ask for resources and prompts; no call waits for that."""
        try:
            self._on_offers(await connection.list_offers())
        except LocalMCPError as error:
            log.info("the resources and prompts of '%s' cannot be listed: %s", self.entry.name, error)

    async def ask(self, method: str, params: Json) -> Json:
        """The raw result of any request.

        Raises:
            LocalMCPError: as `call`.
        """
        return await (await self.connect()).ask(method, params)

    def _opened(self, task: asyncio.Task[Connection]) -> None:
        self._opening = None
        if not task.cancelled():
            # Everybody who waited may have left.
            task.exception()

    def _note_failure(self) -> None:
        self._failures += 1
        self._failed_at = time.monotonic()

    def _refuse_while_resting(self) -> None:
        pause = self.pause
        if pause > 0:
            raise Unavailable(
                f"The MCP server '{self.entry.name}' failed {self._failures} times and is started again in "
                f"{pause:.0f} s at the earliest.",
                hint=f"Its last words: {self._log.last_line}" if self._log.last_line else f"Its log: {self._log.path}",
            )

    # ------------------------------------------------------------ list changes

    def _tools_changed(self) -> None:
        """Ask again; several notices in a row cost one more question at most."""
        if self._listing is not None and not self._listing.done():
            self._list_again = True
            return
        self._listing = asyncio.create_task(self._list())

    async def _list(self) -> None:
        while self._connection is not None and self._connection.alive:
            self._list_again = False
            try:
                self._on_tools(await self._connection.list_tools())
            except LocalMCPError as error:
                log.warning("the changed tools of '%s' cannot be listed: %s", self.entry.name, error)
            if not self._list_again:
                return
