"""`tool_search` and `execute_tool` on somebody else's MCP server, the high-level or the low-level one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, cast, get_type_hints

import anyio.to_thread
import mcp.types as wire
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from pydantic import Field

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.humanize import quoted
from localmcp.schemas import Json, bare_type, param_of, without_surrogates
from localmcp.server.handlers import describe_tool, wire_result
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

    Raises:
        InvalidInput: it is no server of the `mcp` package, or another registry is attached to it.
    """
    if any(isinstance(part, _Rerouting) for part in getattr(server, "middleware", ())):
        hint = "Add the one to the other as a provider: registry.add_provider(other)."
        raise InvalidInput("Another registry is attached to this server.", hint=hint)
    tools = {meta_tool.name: meta_tool for meta_tool in tools_of(discovery) if meta_tool.name in OURS}
    for tool in tools.values():
        tool.description = OURS[tool.name]
    if isinstance(server, MCPServer):
        high = cast("MCPServer[Any]", server)
        _extend_high_level(tools, high)
        high.middleware.append(_Rerouting(hidden, partial(_names_of_high_level, high)))
    elif isinstance(server, Server):
        low = cast("Server[Any]", server)
        low.middleware.append(_Rerouting(hidden, _extend_low_level(tools, low)))
    else:
        raise InvalidInput(f"{type(server).__name__} is no server of the mcp package.")


def _run(meta_tool: MethodTool, arguments: Json) -> wire.CallToolResult:
    """Return the answer for the wire. The client gets what a hidden tool raises: it is the developer's own tool."""
    try:
        return wire_result(meta_tool.name, meta_tool.call(arguments))
    except MCPError:
        raise
    except LocalMCPError as error:
        message = str(error)
    except Exception as error:
        log.exception("a tool failed that %s ran", meta_tool.name)
        message = str(error) or type(error).__name__
    return wire.CallToolResult(content=[wire.TextContent(text=without_surrogates(message))], is_error=True)


def _extend_high_level(tools: dict[str, MethodTool], server: MCPServer[Any]) -> None:
    for tool in tools.values():
        described = describe_tool(tool)
        server.add_tool(
            _as_function(tool),
            name=tool.name,
            title=tool.mark.title,
            description=tool.description,
            annotations=described.annotations if described else None,
        )


def _as_function(meta_tool: MethodTool) -> Callable[..., wire.CallToolResult]:
    """Return a function that gives the whole result; the server makes the tool's schema from its signature."""
    hints = get_type_hints(meta_tool.method, include_extras=True)
    parameters = [
        parameter.replace(annotation=_annotation(hints[parameter.name]))
        for parameter in inspect.signature(meta_tool.method).parameters.values()
    ]

    def run(**arguments: Any) -> wire.CallToolResult:
        return _run(meta_tool, {name: value for name, value in arguments.items() if value is not None})

    run.__name__ = meta_tool.name
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__annotations__["return"] = wire.CallToolResult
    signature = inspect.Signature(parameters, return_annotation=wire.CallToolResult)
    setattr(run, "__signature__", signature)  # noqa: B010  (functions have no such attribute for a type checker)
    return run


def _annotation(hint: Any) -> Any:
    """Return the hint with the description of our `Param`; the tool itself checks the limits, more leniently."""
    param = param_of(hint)
    return Annotated[bare_type(hint), Field(description=param.description)] if param else hint


async def _names_of_high_level(server: MCPServer[Any], _ctx: Context) -> set[str]:
    return {tool.name for tool in await server.list_tools()}


def _extend_low_level(tools: dict[str, MethodTool], server: Server[Any]) -> Callable[[Context], Awaitable[set[str]]]:
    """Put the two tools before the server's own handlers; return what lists the names of the server's own tools."""
    described = [tool for tool in map(describe_tool, tools.values()) if tool is not None]
    their_list, their_call = server.get_request_handler("tools/list"), server.get_request_handler("tools/call")

    async def list_theirs(ctx: Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        if their_list is None:
            return wire.ListToolsResult(tools=[])
        return cast(wire.ListToolsResult, await their_list.handler(ctx, params))

    async def list_all(ctx: Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        theirs = await list_theirs(ctx, params)
        if theirs.next_cursor is not None:
            return theirs
        return theirs.model_copy(update={"tools": [*theirs.tools, *described]})

    async def call(ctx: Context, params: wire.CallToolRequestParams) -> Any:
        if params.name in tools:
            return await anyio.to_thread.run_sync(_run, tools[params.name], params.arguments or {})
        if their_call is None:
            raise MCPError(code=wire.INVALID_PARAMS, message=f"Unknown tool: {quoted(params.name)}")
        return await their_call.handler(ctx, params)

    async def names(ctx: Context) -> set[str]:
        return {tool.name for tool in (await list_theirs(ctx, None)).tools}

    server.add_request_handler("tools/list", wire.PaginatedRequestParams, list_all)
    server.add_request_handler("tools/call", wire.CallToolRequestParams, call)
    return names


class _Rerouting:
    """Middleware that turns a call of a hidden tool into one of `execute_tool`; the server's own tools come first."""

    def __init__(self, hidden: Registry, own_names: Callable[[Context], Awaitable[set[str]]]) -> None:
        self._hidden = hidden
        self._own_names = own_names

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        params = cast(Json, ctx.params or {})
        name = params.get("name")
        hidden = isinstance(name, str) and name not in OURS
        if ctx.method == "tools/call" and hidden and await self._is_hidden(ctx, cast(str, name)):
            arguments: Json = {"name": name, "arguments": cast(Json, params.get("arguments") or {})}
            ctx = replace(ctx, params={**params, "name": EXECUTE_TOOL, "arguments": arguments})
        return await call_next(ctx)

    async def _is_hidden(self, ctx: Context, name: str) -> bool:
        try:
            hidden_tool = await anyio.to_thread.run_sync(self._hidden.find, name)
        except Exception:
            # The call asks the provider again, and reports the error.
            log.debug("a provider could not say whether it has %s", name, exc_info=True)
            return name not in await self._own_names(ctx)
        return hidden_tool is not None and name not in await self._own_names(ctx)
