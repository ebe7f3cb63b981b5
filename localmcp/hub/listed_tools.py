"""Lists of tools as servers send them: one wrong tool does not cost the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from localmcp.hub.catalog import LeftOut
from localmcp.schemas import Json, list_of, mapping_of
from localmcp.visible_text import visible

log = logging.getLogger(__name__)

LEFT_OUT = "localmcp/leftOut"
"""In the `_meta` of a list of tools: those that were taken out of it, as `tool` and `why`."""
MOST_NAME, MOST_REASON = 80, 200


class ListedTools(ObjectReceiveStream[SessionMessage | Exception]):
    """What a server sends, without the tools for which the SDK would refuse a whole list."""

    def __init__(self, incoming: Any, server: str, version: Callable[[], str | None]) -> None:
        """`version` returns that of the protocol that was agreed on, None before that."""
        self._incoming = incoming
        self._server = server
        self._version = version

    @property
    def last_context(self) -> Any:
        """The context that the sender of the last message ran in, which the SDK asks for."""
        return getattr(self._incoming, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        item = await self._incoming.receive()
        message = getattr(item, "message", None)
        if isinstance(message, types.JSONRPCResponse) and isinstance(message.result.get("tools"), list):
            self._leave_out_wrong(message.result)
        return item

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def _leave_out_wrong(self, result: Json) -> None:
        tools = [_with_schema(tool) for tool in list_of(result["tools"])]
        whys = [""] * len(tools) if not self._refusal(result, tools) else [self._refusal(result, [t]) for t in tools]
        result["tools"] = [tool for tool, why in zip(tools, whys, strict=True) if not why]
        left_out = [(_label(tool, at), why) for at, (tool, why) in enumerate(zip(tools, whys, strict=True), 1) if why]
        for tool, why in left_out:
            log.info("tool %s of the MCP server '%s' is left out: %s", tool, self._server, why)
        entries = [{"tool": tool, "why": why} for tool, why in left_out]
        result["_meta"] = {**mapping_of(result.get("_meta")), LEFT_OUT: entries}

    def _refusal(self, result: Json, tools: list[Any]) -> str:
        """Return what the SDK finds wrong with these tools of a list; empty for nothing."""
        if any(mapping_of(tool).get("name") == "" for tool in tools):
            return "name: it is empty"
        try:
            parse_server_result("tools/list", self._version() or LATEST_HANDSHAKE_VERSION, {**result, "tools": tools})
        except ValidationError as error:
            slips = (slip for slip in error.errors(include_input=False) if slip["loc"][:1] == ("tools",))
            for slip in slips:
                place, message = ".".join(map(str, slip["loc"][2:])), slip["msg"].partition(" or instance of ")[0]
                return visible(f"{place}: {message}" if place else message)[:MOST_REASON]
        except ValueError as error:  # deeper than can be read
            return visible(str(error))[:MOST_REASON]
        return ""


def _with_schema(tool: Any) -> Any:
    """Return the tool with an object as its schema where it says nothing else."""
    table = mapping_of(tool)
    schema = table.get("inputSchema")
    if table and (schema is None or (isinstance(schema, dict) and "type" not in schema)):
        return {**table, "inputSchema": {"type": "object", **mapping_of(schema)}}
    return tool


def _label(tool: Any, number: int) -> str:
    """Return the name of a tool, or its number in the list where it has none."""
    name = mapping_of(tool).get("name")
    return visible(name)[:MOST_NAME] if isinstance(name, str) and name else f"number {number}"


def left_out_of(page: Json) -> list[LeftOut]:
    """Return the tools that were taken out of a page of a list."""
    entries = list_of(mapping_of(page.get("_meta")).get(LEFT_OUT))
    return [LeftOut(**cast(Json, entry)) for entry in entries]
