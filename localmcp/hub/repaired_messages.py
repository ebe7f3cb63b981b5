"""Messages of servers, repaired where the SDK would refuse a whole answer for one wrong part."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import TypeAdapter, ValidationError

from localmcp.schemas import Json, compact_json, mapping_of
from localmcp.visible_text import visible

log = logging.getLogger(__name__)

LEFT_OUT = "localmcp/leftOut"
"""In the `_meta` of a list of tools: those that were taken out of it, as `tool` and `why`.

It is in the answer itself, so that two listings at a time do not mix.
"""
MOST_NAME, MOST_REASON = 80, 200
_LIST_TOOLS = "tools/list"
_BLOCK: TypeAdapter[Any] = TypeAdapter(types.ContentBlock)


class RepairedMessages(ObjectReceiveStream[SessionMessage | Exception]):
    """What a server sends: one wrong tool does not cost its list, nor one wrong block its answer."""

    def __init__(self, incoming: Any, server: str, version: Callable[[], str | None]) -> None:
        """
        Args:
            version: returns the version of the protocol that was agreed on, None before that.
        """
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
        if isinstance(message, types.JSONRPCResponse):
            tools: Any = message.result.get("tools")
            if "content" in message.result or "structuredContent" in message.result:
                repair_answer(message.result)
            elif isinstance(tools, list):
                self._repair_tools(message.result, cast("list[Any]", tools))
            elif "protocolVersion" in message.result:
                # Servers without a library leave these out; what there is is asked for anyway.
                message.result.setdefault("capabilities", {})
                message.result.setdefault("serverInfo", {"name": self._server, "version": ""})
        return item

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def _repair_tools(self, result: Json, tools: list[Any]) -> None:
        """Leave only tools in the list that the SDK takes, and say in its `_meta` which were left out."""
        tools = [_with_schema(tool) for tool in tools]
        reasons = [""] * len(tools)
        if self._refusal({**result, "tools": tools}):
            reasons = [self._refusal({**result, "tools": [tool]}) for tool in tools]
        left_out = [
            {"tool": _label(tool, number), "why": reason}
            for number, (tool, reason) in enumerate(zip(tools, reasons, strict=True), 1)
            if reason
        ]
        for entry in left_out:
            says = "tool %s of the MCP server '%s' is left out: %s"
            log.info(says, entry["tool"], self._server, entry["why"])
        result["tools"] = [tool for tool, reason in zip(tools, reasons, strict=True) if not reason]
        result["_meta"] = {**mapping_of(result.get("_meta")), LEFT_OUT: left_out}

    def _refusal(self, result: Json) -> str:
        """Return what the SDK finds wrong with the tools of a list; empty for nothing."""
        if any(isinstance(tool, dict) and cast(Json, tool).get("name") == "" for tool in result["tools"]):
            return "name: it is empty"
        try:
            parse_server_result(_LIST_TOOLS, self._version() or LATEST_HANDSHAKE_VERSION, result)
        except ValidationError as error:
            return _first_of_tool(error)
        except ValueError as error:  # deeper than can be read
            return visible(str(error))[:MOST_REASON]
        return ""


def _with_schema(tool: Any) -> Any:
    """Return the tool with an object as its schema where it says nothing else."""
    if not isinstance(tool, dict):
        return tool
    table = cast(Json, tool)
    schema = table.get("inputSchema")
    if schema is None or (isinstance(schema, dict) and "type" not in schema):
        return {**table, "inputSchema": {"type": "object", **mapping_of(schema)}}
    return table


def _first_of_tool(error: ValidationError) -> str:
    """Return the first mistake that is in a tool; mistakes in the rest of the answer cost no tool."""
    mistake = next((mistake for mistake in error.errors(include_input=False) if mistake["loc"][:1] == ("tools",)), None)
    if mistake is None:
        return ""
    place = ".".join(map(str, mistake["loc"][2:]))
    message = mistake["msg"].partition(" or instance of ")[0]
    return visible(f"{place}: {message}" if place else message)[:MOST_REASON]


def _label(tool: Any, number: int) -> str:
    """Return the name of a tool, or its number in the list where it has none."""
    name = mapping_of(tool).get("name")
    return visible(name)[:MOST_NAME] if isinstance(name, str) and name else f"number {number}"


def repair_answer(result: Json) -> None:
    """Make the answer of a tool one that every version of the protocol allows, with all that it says.

    Structured content that is no object, which 2026-07-28 allows, is kept as text where there is no other text.
    """
    content: Any = result.get("content", [])
    structured: Any = result.get("structuredContent")
    if isinstance(content, list):
        blocks = [_mended_block(block) for block in cast("list[Any]", content)]
        if structured is not None and not any(block.get("type") == "text" for block in blocks):
            blocks += [_text(compact_json(structured))] if not isinstance(structured, dict) or not blocks else []
        result["content"] = blocks
    if not isinstance(structured, dict):
        result.pop("structuredContent", None)


def _mended_block(block: Any) -> Json:
    try:
        _BLOCK.validate_python(block)
    except ValidationError:
        kind = mapping_of(block).get("type")
        return _text(f"[a block of the type {visible(str(kind))[:40]} that the protocol does not know was left out]")
    return cast(Json, block)


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
