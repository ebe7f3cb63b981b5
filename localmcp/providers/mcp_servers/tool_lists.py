"""Lists of tools as servers send them: one tool that is described wrongly does not cost the others."""

from __future__ import annotations

import logging
from typing import Any, cast

import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

Json = dict[str, Any]

log = logging.getLogger(__name__)


class MendedToolLists(ObjectReceiveStream[SessionMessage | Exception]):
    """What a server sends, with its lists of tools mended: the SDK refuses a whole list for one wrong tool."""

    def __init__(self, incoming: Any, server: str) -> None:
        self._incoming = incoming
        self._server = server

    @property
    def last_context(self) -> Any:
        """The context that the sender of the last message ran in, which the SDK asks for."""
        return getattr(self._incoming, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        item = await self._incoming.receive()
        message = getattr(item, "message", None)
        if isinstance(message, types.JSONRPCResponse):
            tools: Any = message.result.get("tools")
            if isinstance(tools, list) and "content" not in message.result:
                message.result["tools"] = self._mended(cast("list[Any]", tools))
        return item

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def _mended(self, tools: list[Any]) -> list[Json]:
        mended: list[Json] = []
        for tool in tools:
            table = cast(Json, tool) if isinstance(tool, dict) else {}
            if not isinstance(table.get("inputSchema"), dict):
                table = {**table, "inputSchema": {"type": "object"}}
            try:
                types.Tool.model_validate(table)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"]))
                name = ascii(table.get("name"))[:80]
                log.warning(
                    "tool %s of the MCP server '%s' is left out: %s: %s", name, self._server, where, first["msg"]
                )
            else:
                mended.append(table)
        return mended
