"""What a server reports of its changes: by notifications until 2025-11-25, on streams from 2026-07-28 on."""

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
    ResourceUpdated,
    SubscriptionLost,
    ToolsListChanged,
    listen,
)
from mcp.shared.exceptions import MCPError

from localmcp.schemas import Json

log = logging.getLogger(__name__)

_LISTS: dict[type[object], str] = {
    ToolsListChanged: "tools",
    ResourcesListChanged: "offers",
    PromptsListChanged: "offers",
}


class ReportedChanges:
    """The changes that one connection reports."""

    def __init__(self, server: str, on_change: Callable[[str], None]) -> None:
        """`on_change`: called with `tools`, `offers` or the address of a resource."""
        self._server = server
        self._on_change = on_change
        self._streams: dict[str, asyncio.Task[None]] = {}
        """Address of a resource -> what listens for its changes."""
        self._lists: asyncio.Task[None] | None = None

    async def on_message(self, message: IncomingMessage) -> None:
        """Take a notification."""
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change("tools")
        elif isinstance(message, types.ResourceListChangedNotification | types.PromptListChangedNotification):
            self._on_change("offers")
        elif isinstance(message, types.ResourceUpdatedNotification):
            self._on_change(message.params.uri)

    def listen_to_lists(self, session: ClientSession) -> None:
        """Begin the stream of changes of lists."""
        events = {"tools_list_changed": True, "prompts_list_changed": True, "resources_list_changed": True}
        self._lists = asyncio.create_task(self._listen(session, events))

    def listen_to_resource(self, session: ClientSession, uri: str) -> None:
        """Begin the stream of changes of a resource, unless there is one."""
        stream = self._streams.get(uri)
        if stream is None or stream.done():
            self._streams[uri] = asyncio.create_task(self._listen(session, {"resource_subscriptions": [uri]}))

    def end(self, uri: str) -> None:
        """End the stream of changes of a resource, if there is one."""
        if (stream := self._streams.pop(uri, None)) is not None:
            stream.cancel()

    def close(self) -> None:
        """End all streams."""
        for stream in (self._lists, *self._streams.values()):
            if stream is not None:
                stream.cancel()

    async def _listen(self, session: ClientSession, events: Json) -> None:
        try:
            async with listen(session, **events) as changes:
                async for change in changes:
                    self._on_change(change.uri if isinstance(change, ResourceUpdated) else _LISTS[type(change)])
        except (MCPError, ListenNotSupportedError, SubscriptionLost, TimeoutError) as error:
            log.info("the MCP server '%s' does not tell of changes: %s", self._server, error)
