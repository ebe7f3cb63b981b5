"""The MCP server of both protocol eras: its requests are answered from the registry, in the scope of the caller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import mcp.types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.subscriptions import ListenHandler
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from localmcp.errors import LocalMCPError, MissingCapability, UnknownTool
from localmcp.humanize import quoted
from localmcp.schemas import without_surrogates
from localmcp.server.changes import Changes
from localmcp.server.elicitation import RetriedCalls, ask_by_request, refuse_question
from localmcp.server.progress_reporter import ProgressReporter
from localmcp.server.resources import OfferHandlers
from localmcp.server.results import (
    call_tool,
    describe_tool,
    failed_result,
    find_tool,
    log_incident,
    message_of,
    note_client,
    protocol_error,
)
from localmcp.server.session_cache import FALLBACK_INSTRUCTIONS, capabilities
from localmcp.tools import (
    AskPerson,
    CallCancellation,
    Json,
    Scope,
    use_cancellation,
    use_person_asker,
    use_progress,
    use_scope,
)
from localmcp.version import __version__

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

log = logging.getLogger(__name__)

PARALLEL_CALLS = 8
"""Calls that run at a time, of our tools and of each connected server's: a server that hangs blocks only its own."""

Context = ServerRequestContext[Any]


class ToolServer(Server[Any]):
    """A low-level MCP server of the tools that a scope may use."""

    def __init__(
        self,
        open_workspace: Callable[[], Workspace],
        scope: Scope | Callable[[], Scope],
        *,
        greeting: Callable[[], tuple[str, tuple[str, ...]]] | None = None,
    ) -> None:
        """
        Args:
            open_workspace: called in a worker thread at every request, so it opens once (`OpenOnce`). When it raises,
                the server goes on: calls answer with the error.
            scope: one for all requests, or a function of the request's own context variables.
            greeting: returns the instructions, and what is advertised of `resources` and `prompts`, where they are
                known already; otherwise the file is asked.
        """
        self._open_workspace = open_workspace
        self._scope = scope if callable(scope) else lambda: scope
        self._slots = WeakValueDictionary[str, anyio.CapacityLimiter]()
        self._changes = Changes(open_workspace, self._scope)
        self._offers = OfferHandlers(open_workspace, self._scope)
        self._greeting = greeting or self._greeting_of_file
        self._retried = RetriedCalls()
        super().__init__(
            "localmcp",
            version=__version__,
            on_list_tools=self._on_list_tools,
            on_call_tool=self._on_call_tool,
            on_subscriptions_listen=self._on_listen,
            on_list_resources=self._offers.list_resources,
            on_list_resource_templates=self._offers.list_templates,
            on_read_resource=self._on_read_resource,
            on_subscribe_resource=self._on_subscribe,
            on_unsubscribe_resource=self._on_unsubscribe,
            on_list_prompts=self._offers.list_prompts,
            on_get_prompt=self._on_get_prompt,
            on_completion=self._on_complete,
            get_tool_input_schema=self._input_schema,
        )
        self.publish_change = self._changes.publish
        self.available_offers = self._offers.kinds
        self.middleware.append(self._greet)

    # ------------------------------------------------------------ connections

    async def _greet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Add to the first reply what the file has; remember sessions, which are told of changes."""
        if _can_push(ctx):
            self._changes.listener_of(ctx)
        result = await call_next(ctx)
        if ctx.method not in ("initialize", "server/discover"):
            return result
        instructions, offers = await anyio.to_thread.run_sync(self._greeting)
        advertised = capabilities(offers, is_told=_is_modern(ctx) or _can_push(ctx))
        return {**cast(Json, result), "capabilities": advertised, "instructions": instructions}

    def _greeting_of_file(self) -> tuple[str, tuple[str, ...]]:
        try:
            with use_scope(self._scope()):
                instructions = without_surrogates(self._open_workspace().instructions())
        except LocalMCPError:
            instructions = FALLBACK_INSTRUCTIONS
        except Exception:
            log.exception("what the file holds cannot be told")
            instructions = FALLBACK_INSTRUCTIONS
        return instructions, self._offers.kinds()

    async def _on_listen(self, ctx: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        try:
            async with self._changes.listening(params.notifications.resource_subscriptions or ()) as listener:
                return await ListenHandler(listener)(ctx, params)
        except LocalMCPError as error:
            raise protocol_error(error) from error

    async def _on_subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        # Over HTTP a session ends with its request: there, changes are reported on `subscriptions/listen` only.
        if _can_push(ctx):
            try:
                await self._changes.watch(self._changes.listener_of(ctx), [params.uri])
            except LocalMCPError as error:
                raise protocol_error(error) from error
        return types.EmptyResult()

    async def _on_unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        if _can_push(ctx):
            self._changes.forget(self._changes.listener_of(ctx), params.uri)
        return types.EmptyResult()

    # ------------------------------------------------------------ requests

    async def _on_list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=await anyio.to_thread.run_sync(self._list, abandon_on_cancel=True))

    def _list(self) -> list[types.Tool]:
        try:
            with use_scope(self._scope()):
                described = [describe_tool(tool) for tool in self._open_workspace().registry.visible()]
        except LocalMCPError as error:
            raise MCPError(code=types.INTERNAL_ERROR, message=message_of(error)) from error
        except Exception as error:
            # The SDK would send the exception's text to clients of the handshake era.
            raise MCPError(code=types.INTERNAL_ERROR, message=log_incident("tools/list")) from error
        return [entry for entry in described if entry is not None]

    async def _on_call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if (client := _client_of(ctx)) is not None:
            note_client(client.title or client.name)
        return await self._asking(ctx, params, partial(self._run, ctx, params))

    async def _run(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        work = partial(self._call, ctx, params.name, params.arguments or {})
        reporter = ProgressReporter(ctx.session)
        cancellation = CallCancellation()
        slots = self._slots.setdefault(_server_called(params), anyio.CapacityLimiter(PARALLEL_CALLS))
        try:
            with use_progress(reporter), use_cancellation(cancellation):
                result = await anyio.to_thread.run_sync(work, limiter=slots, abandon_on_cancel=True)
            await reporter.finish()
            return result
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        finally:
            reporter.close()

    def _call(self, ctx: Context, name: str, arguments: Json) -> types.CallToolResult:
        client = _client_of(ctx)
        try:
            result = call_tool(self._open_workspace, name, arguments, self._scope(), client.name if client else "")
        except UnknownTool as error:
            data = {"hint": error.hint} if error.hint else None
            # Models are shown the message alone.
            message = f"Unknown tool: {quoted(name)}" + (f". {error.hint}" if error.hint and self._scope().lean else "")
            raise MCPError(code=types.INVALID_PARAMS, message=message, data=data) from error
        except MissingCapability as error:
            if _is_modern(ctx):
                raise protocol_error(error) from error
            result = failed_result(message_of(error))
        try:
            return types.CallToolResult.model_validate(result)
        except ValidationError:
            # Another server sent blocks that the protocol does not allow.
            return types.CallToolResult.model_validate(failed_result(log_incident(name)))

    def _input_schema(self, name: str) -> Json | None:
        tool = find_tool(self._open_workspace().registry, name, self._scope())
        return tool.input_schema if tool else None

    async def _on_get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        return await self._asking(ctx, params, partial(self._offers.get_prompt, params))

    async def _on_read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        return await self._asking(ctx, params, partial(self._offers.read, params))

    async def _on_complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        # A connected server that this request starts learns at its handshake whether later calls can ask the person.
        can_be_asked = ctx.session.client_capabilities and ctx.session.client_capabilities.elicitation
        with use_person_asker(_asker_of(ctx) or (refuse_question if can_be_asked else None)):
            return await self._offers.complete(params)

    async def _asking(
        self,
        ctx: Context,
        params: types.CallToolRequestParams | types.GetPromptRequestParams | types.ReadResourceRequestParams,
        work: Callable[[], Coroutine[Any, Any, Any]],
    ) -> Any:
        """Run a request during which the person may be asked, in the way of the client's generation."""
        caller = self._scope().caller
        if params.request_state is not None:
            return await self._retried.resume(ctx, caller, params.request_state, params.input_responses)

        async def start(ask: AskPerson | None) -> Any:
            with use_person_asker(ask):
                return await work()

        client = ctx.session.client_capabilities
        if _is_modern(ctx) and client and client.elicitation:
            return await self._retried.begin(ctx, caller, params.input_responses, start)
        return await start(_asker_of(ctx))


def _asker_of(ctx: Context) -> AskPerson | None:
    """Return what asks a client of the handshake era; None where it cannot be asked."""
    client = ctx.session.client_capabilities
    return ask_by_request(ctx) if client and client.elicitation and ctx.session.can_send_request else None


def _client_of(ctx: Context) -> types.Implementation | None:
    return ctx.session.client_params.client_info if ctx.session.client_params else None


def _server_called(params: types.CallToolRequestParams) -> str:
    """Return what the name of a connected server's tool begins with; empty for our tools."""
    name = params.name if params.name != "execute_tool" else str((params.arguments or {}).get("name"))
    return name.partition("__")[0] if "__" in name else ""


def _is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _can_push(ctx: Context) -> bool:
    """Return whether the client has a session of the handshake era that lasts longer than this request."""
    return ctx.session.can_send_request and not _is_modern(ctx)
