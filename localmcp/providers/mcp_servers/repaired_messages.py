"""Messages of servers, repaired where the SDK would refuse a whole answer for one wrong part."""

from __future__ import annotations

import logging
from typing import Any, cast

import mcp_types as types
from anyio.abc import ObjectReceiveStream
from mcp.shared.message import SessionMessage
from pydantic import TypeAdapter, ValidationError

from localmcp.schemas import Json, compact_json, mapping_of
from localmcp.visible_text import visible

log = logging.getLogger(__name__)

_BLOCK: TypeAdapter[Any] = TypeAdapter(types.ContentBlock)


class RepairedMessages(ObjectReceiveStream[SessionMessage | Exception]):
    """What a server sends: one wrong tool does not cost its list, nor one wrong block its answer."""

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
            if "content" in message.result or "structuredContent" in message.result:
                repair_answer(message.result)
            elif isinstance(tools, list):
                message.result["tools"] = self._repaired(cast("list[Any]", tools))
            elif "protocolVersion" in message.result:
                # Servers without a library leave these out; what there is is asked for anyway.
                message.result.setdefault("capabilities", {})
                message.result.setdefault("serverInfo", {"name": self._server, "version": ""})
        return item

    async def aclose(self) -> None:
        await self._incoming.aclose()

    def _repaired(self, tools: list[Any]) -> list[Json]:
        repaired: list[Json] = []
        for tool in tools:
            table = mapping_of(tool)
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
                repaired.append(table)
        return repaired


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
