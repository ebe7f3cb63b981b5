"""`tool_search` and `execute_tool` on somebody else's MCP server, the high-level or the low-level one."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, cast

import anyio.to_thread
import mcp.types as types
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.schemas import Json, without_surrogates
from localmcp.server.mcp import describe_tool, tool_result
from localmcp.tool_search.discovery import EXECUTE_TOOL, TOOL_SEARCH, Discovery
from localmcp.tools import MethodTool, Registry, tools_of

log = logging.getLogger(__name__)

OURS = {
    TOOL_SEARCH: "Find tools that are not listed here, by what they should do. Returns name, description, score and "
    "input schema of each; run one with execute_tool.",
    EXECUTE_TOOL: "Run a tool that tool_search found and return its own answer.",
}
"""The two tools, with descriptions that do not mention localmcp's documents."""

Context = ServerRequestContext[Any]


def attach(hidden: Registry, discovery: Discovery, server: object) -> None:
    """Add the two tools of `discovery` to `server`, and answer calls of the hidden tools by name.

    Raises InvalidInput if it is no server of the `mcp` package, or another registry is attached to it.
    """
    if not isinstance(server, MCPServer | Server):
        raise InvalidInput(f"{type(server).__name__} is no server of the mcp package.")
    attached = cast("MCPServer[Any] | Server[Any]", server)
    for part in attached.middleware:
        if isinstance(part, _HiddenTools):
            if part.hidden is hidden:
                return
            hint = "Add the one to the other as a provider: registry.add_provider(other)."
            raise InvalidInput("Another registry is attached to this server.", hint=hint)
    attached.middleware.append(_HiddenTools(hidden, discovery))


class _HiddenTools:
    """Middleware: the two tools after the server's own, and hidden tools by name where the server has no such tool."""

    def __init__(self, hidden: Registry, discovery: Discovery) -> None:
        self.hidden = hidden
        self._tools = {tool.name: tool for tool in tools_of(discovery) if tool.name in OURS}
        for name, tool in self._tools.items():
            tool.description = OURS[name]
        described = [tool for tool in map(describe_tool, self._tools.values()) if tool is not None]
        self._described = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in described]

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/list":
            listed = cast(Json, await call_next(ctx))
            return listed if listed.get("nextCursor") else {**listed, "tools": [*listed["tools"], *self._described]}
        params = cast(Json, ctx.params or {})
        name: Any = params.get("name")
        arguments: Any = params.get("arguments") or {}
        if ctx.method != "tools/call" or not isinstance(name, str) or not isinstance(arguments, dict):
            return await call_next(ctx)
        if name in OURS:
            return await anyio.to_thread.run_sync(_run, self._tools[name], cast(Json, arguments))
        try:
            hidden = await anyio.to_thread.run_sync(self.hidden.find, name)
        except Exception:
            # A provider could not say: the call asks it again, and reports the error.
            hidden = name
        if hidden is not None:
            # The server's own tool of that name comes first.
            about = {key: value for key, value in params.items() if key == "_meta"}
            theirs = cast(Json, await call_next(replace(ctx, method="tools/list", params=about)))
            if name not in {tool["name"] for tool in theirs["tools"]}:
                arguments = {"name": name, "arguments": cast(Json, arguments)}
                return await anyio.to_thread.run_sync(_run, self._tools[EXECUTE_TOOL], arguments)
        return await call_next(ctx)


def _run(meta_tool: MethodTool, arguments: Json) -> types.CallToolResult:
    """Return the answer for the wire. The client gets what a hidden tool raises: it is the developer's own tool."""
    try:
        return types.CallToolResult.model_validate(tool_result(meta_tool.name, meta_tool.call(arguments)))
    except MCPError:
        raise
    except LocalMCPError as error:
        message = str(error)
    except Exception as error:
        log.exception("a tool failed that %s ran", meta_tool.name)
        message = str(error) or type(error).__name__
    return types.CallToolResult(content=[types.TextContent(text=without_surrogates(message))], is_error=True)
