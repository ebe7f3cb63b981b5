"""Which of its lists a server reports as changed: by notifications until 2025-11-25, on a stream from 2026-07-28 on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import mcp_types as types
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.subscriptions import (
    ListenNotSupportedError,
    PromptsListChanged,
    ResourcesListChanged,
    SubscriptionLost,
    ToolsListChanged,
    listen,
)
from mcp.shared.exceptions import MCPError

log = logging.getLogger(__name__)

_LISTS: dict[type[object], str] = {
    ToolsListChanged: "tools",
    ResourcesListChanged: "offers",
    PromptsListChanged: "offers",
}


class ReportedChanges:
    """The changed lists that one connection reports."""

    def __init__(self, server: str, on_change: Callable[[str], None]) -> None:
        """`on_change`: called with `tools` or `offers`."""
        self._server = server
        self._on_change = on_change
        self._stream: asyncio.Task[None] | None = None

    async def on_message(self, message: IncomingMessage) -> None:
        """Take a notification."""
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change("tools")
        elif isinstance(message, types.ResourceListChangedNotification | types.PromptListChangedNotification):
            self._on_change("offers")

    def listen_to(self, session: ClientSession) -> None:
        """Begin the stream of changes."""
        self._stream = asyncio.create_task(self._listen(session))

    def close(self) -> None:
        """End the stream."""
        if self._stream is not None:
            self._stream.cancel()

    async def _listen(self, session: ClientSession) -> None:
        every = listen(session, tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        try:
            async with every as changes:
                async for change in changes:
                    self._on_change(_LISTS[type(change)])
        except (MCPError, ListenNotSupportedError, SubscriptionLost, TimeoutError) as error:
            log.info("the MCP server '%s' does not tell of changes: %s", self._server, error)
