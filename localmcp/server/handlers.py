"""tools/list and tools/call for both protocol eras, answered from the registry."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import mcp.types as wire
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from localmcp.errors import LocalMCPError, MissingCapability, UnknownTool
from localmcp.humanize import quoted
from localmcp.schemas import without_surrogates
from localmcp.server.change_bus import Admits, ChangeBus, everybody
from localmcp.server.elicitation import RetriedCalls, ask_by_request, refuse_question
from localmcp.server.offer_handlers import WATCH_SECONDS, OfferHandlers, missing_capability
from localmcp.server.progress_reporter import ProgressReporter
from localmcp.server.tool_results import call_tool, failed_result, find_tool, note_client, tool_result
from localmcp.server.wire_values import log_incident, message_of
from localmcp.tools import (
    Answer,
    AskPerson,
    CallCancellation,
    Json,
    MethodTool,
    Scope,
    Tool,
    ToolMark,
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
REMEMBERED_SESSIONS = 64
"""Connections of the handshake era that are notified of list changes; the others are notified by the bus."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Context = ServerRequestContext[Any]

_LISTS = {
    "tools": (ToolsListChanged, ServerSession.send_tool_list_changed),
    "prompts": (PromptsListChanged, ServerSession.send_prompt_list_changed),
    "resources": (ResourcesListChanged, ServerSession.send_resource_list_changed),
}
"""List -> how its changes are reported: the event of 2026-07-28, and the notification of the handshake era."""


class ToolServer(Server[Any]):
    """A low-level MCP server of the tools that a scope may use."""

    def __init__(
        self,
        open_workspace: Callable[[], Workspace],
        scope: Scope | Callable[[], Scope],
        *,
        instructions: str | None = None,
    ) -> None:
        """
        Args:
            open_workspace: called in a worker thread at every request, so it opens once (`OpenOnce`). When it raises,
                the server goes on: calls answer with the error.
            scope: one for all requests, or a function of the request's own context variables.
            instructions: what the client's model is told about this server.
        """
        self._open_workspace = open_workspace
        self._scope = scope if callable(scope) else lambda: scope
        self._slots = WeakValueDictionary[str, anyio.CapacityLimiter]()
        self._bus = ChangeBus(self._scope)
        self._sessions: dict[int, tuple[ServerSession, Scope]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._offers = OfferHandlers(open_workspace, self._scope, self._bus)
        self._listen = ListenHandler(self._bus)
        self._watcher: asyncio.Task[None] | None = None
        self._retried = RetriedCalls()
        self.offered: Callable[[], tuple[str, ...]] = self._offers.kinds
        """Returns what is advertised of `resources` and `prompts`; requests for them are answered in any case."""
        super().__init__(
            "localmcp",
            version=__version__,
            instructions=instructions,
            on_list_tools=self._on_list_tools,
            on_call_tool=self._on_call_tool,
            on_subscriptions_listen=self._on_listen,
            on_list_resources=self._offers.list_resources,
            on_list_resource_templates=self._offers.list_templates,
            on_read_resource=self._on_read_resource,
            on_subscribe_resource=self._on_subscribe,
            on_unsubscribe_resource=self._offers.unsubscribe,
            on_list_prompts=self._offers.list_prompts,
            on_get_prompt=self._on_get_prompt,
            on_completion=self._on_complete,
            get_tool_input_schema=self._input_schema,
        )

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK's, with `listChanged` advertised to clients of the handshake era too."""
        options = notification_options or NotificationOptions(True, True, True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    def get_capabilities(self, *arguments: Any, **named: Any) -> wire.ServerCapabilities:
        """As the SDK's, without resources and prompts of which there are none."""
        capabilities = super().get_capabilities(*arguments, **named)
        offered = self.offered()
        return capabilities.model_copy(
            update={
                "resources": capabilities.resources if "resources" in offered else None,
                "prompts": capabilities.prompts if "prompts" in offered else None,
                "completions": capabilities.completions if offered else None,
            }
        )

    # ------------------------------------------------------------ requests

    async def _on_list_tools(self, ctx: Context, params: wire.PaginatedRequestParams | None) -> wire.ListToolsResult:
        self._remember(ctx)
        return wire.ListToolsResult(tools=await anyio.to_thread.run_sync(self._list, abandon_on_cancel=True))

    async def _on_call_tool(
        self, ctx: Context, params: wire.CallToolRequestParams
    ) -> wire.CallToolResult | wire.InputRequiredResult:
        self._remember(ctx)
        if (client := _client_of(ctx)) is not None:
            note_client(client.title or client.name)
        return await self._asking(ctx, params, partial(self._run, ctx, params))

    async def _on_get_prompt(
        self, ctx: Context, params: wire.GetPromptRequestParams
    ) -> wire.GetPromptResult | wire.InputRequiredResult:
        return await self._asking(ctx, params, partial(_ask_through, self._offers.get_prompt, ctx, params))

    async def _on_read_resource(
        self, ctx: Context, params: wire.ReadResourceRequestParams
    ) -> wire.ReadResourceResult | wire.InputRequiredResult:
        return await self._asking(ctx, params, partial(_ask_through, self._offers.read, ctx, params))

    async def _on_complete(self, ctx: Context, params: wire.CompleteRequestParams) -> wire.CompleteResult:
        # A connected server that this request starts learns at its handshake whether later calls can ask the person.
        capabilities = ctx.session.client_capabilities
        later = refuse_question if capabilities and capabilities.elicitation else None
        return await _ask_through(self._offers.complete, ctx, params, self.person_asker(ctx) or later)

    async def _asking(
        self,
        ctx: Context,
        params: wire.CallToolRequestParams | wire.GetPromptRequestParams | wire.ReadResourceRequestParams,
        start: Callable[[AskPerson | None], Coroutine[Any, Any, Any]],
    ) -> Any:
        """Run a request during which the person may be asked, in the way of the client's generation."""
        caller = self._scope().caller
        if params.request_state is not None:
            return await self._retried.resume(ctx, caller, params.request_state, params.input_responses)
        capabilities = ctx.session.client_capabilities
        if _is_modern(ctx) and capabilities and capabilities.elicitation:
            return await self._retried.begin(ctx, caller, params.input_responses, start)
        return await start(self.person_asker(ctx))

    def person_asker(self, ctx: Context) -> AskPerson | None:
        """Return what asks a client of the handshake era; None where it cannot be asked."""
        capabilities = ctx.session.client_capabilities
        offered = capabilities is not None and capabilities.elicitation is not None
        return ask_by_request(ctx) if offered and ctx.session.can_send_request else None

    async def _run(
        self, ctx: Context, params: wire.CallToolRequestParams, ask: AskPerson | None
    ) -> wire.CallToolResult:
        work = partial(self._call, ctx, params.name, params.arguments or {})
        reporter = ProgressReporter(ctx.session)
        cancellation = CallCancellation()
        try:
            with use_progress(reporter), use_cancellation(cancellation), use_person_asker(ask):
                slots = self._slots.setdefault(_server_called(params), anyio.CapacityLimiter(PARALLEL_CALLS))
                result = await anyio.to_thread.run_sync(work, limiter=slots, abandon_on_cancel=True)
            await reporter.finish()
            return result
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        finally:
            reporter.close()

    def _list(self) -> list[wire.Tool]:
        try:
            with use_scope(self._scope()):
                described = [describe_tool(tool) for tool in self._open_workspace().registry.visible()]
        except LocalMCPError as error:
            raise MCPError(code=wire.INTERNAL_ERROR, message=without_surrogates(message_of(error))) from error
        except Exception as error:
            # The SDK would send the exception's text to clients of the handshake era.
            raise MCPError(code=wire.INTERNAL_ERROR, message=log_incident("tools/list")) from error
        return [entry for entry in described if entry is not None]

    def _call(self, ctx: Context, name: str, arguments: Json) -> wire.CallToolResult:
        client = _client_of(ctx)
        try:
            result = call_tool(self._open_workspace, name, arguments, self._scope(), client.name if client else "")
        except UnknownTool as error:
            data = {"hint": error.hint} if error.hint else None
            # Models are shown the message alone.
            message = f"Unknown tool: {quoted(name)}" + (f". {error.hint}" if error.hint and self._scope().lean else "")
            raise MCPError(code=wire.INVALID_PARAMS, message=message, data=data) from error
        except MissingCapability as error:
            if _is_modern(ctx):
                raise missing_capability(error) from error
            result = failed_result(message_of(error))
        try:
            return wire.CallToolResult.model_validate(result)
        except ValidationError:
            # Another server sent blocks that the protocol does not allow.
            return wire.CallToolResult.model_validate(failed_result(log_incident(name)))

    def _input_schema(self, name: str) -> Json | None:
        tool = find_tool(self._open_workspace().registry, name, self._scope())
        return tool.input_schema if tool else None

    def available_offers(self) -> tuple[str, ...]:
        """Return what there is of `resources` and `prompts`."""
        return self._offers.kinds()

    # ------------------------------------------------------------ list changes

    def publish_change(self, changed: str) -> None:
        """Notify the connected clients of a change; may be called from any thread.

        Args:
            changed: `tools`, `prompts` or `resources` for a list of them, else the address of a resource.
        """
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._publish(changed), self._loop)

    async def _publish(self, changed: str, admits: Admits = everybody) -> None:
        if changed not in _LISTS:
            await self._offers.publish_update(changed)
            return
        event, send = _LISTS[changed]
        await self._bus.publish(event(), admits)
        for session, scope in tuple(self._sessions.values()):
            if admits(scope):
                with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await send(session)

    async def _on_listen(self, ctx: Context, params: wire.SubscriptionsListenRequestParams) -> Any:
        await self._start_watching()
        async with self._offers.watching(list(params.notifications.resource_subscriptions or ())):
            return await self._listen(ctx, params)

    async def _on_subscribe(self, ctx: Context, params: wire.SubscribeRequestParams) -> wire.EmptyResult:
        await self._start_watching()
        return await self._offers.subscribe(ctx, params)

    async def _start_watching(self) -> None:
        """Look for changes from now on, as long as the server runs.

        Called before the state of what is watched is noted: a change between the two would be reported to nobody.
        """
        generation = await anyio.to_thread.run_sync(self._offers.generation)
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._watch(generation))
        await self._offers.remember_lists()

    async def _watch(self, last_generation: int) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            generation = await anyio.to_thread.run_sync(self._offers.generation)
            if generation != last_generation:
                last_generation = generation
                await self._offers.publish_changes()
                for kind in ("resources", "prompts"):
                    await self._publish(kind, await self._offers.scopes_with_change(kind))

    def _remember(self, ctx: Context) -> None:
        self._loop = asyncio.get_running_loop()
        client = ctx.session.client_params
        if client is None or _is_modern(ctx):
            return
        # The handshake's parameters are one object per connection, which the session keeps alive.
        self._sessions.pop(id(client), None)
        self._sessions[id(client)] = ctx.session, self._bus.own_scope()
        if len(self._sessions) > REMEMBERED_SESSIONS:
            del self._sessions[next(iter(self._sessions))]


def _client_of(ctx: Context) -> wire.Implementation | None:
    return ctx.session.client_params.client_info if ctx.session.client_params else None


def _server_called(params: wire.CallToolRequestParams) -> str:
    """Return what the name of a connected server's tool begins with; empty for our tools."""
    name = params.name if params.name != "execute_tool" else str((params.arguments or {}).get("name"))
    return name.partition("__")[0] if "__" in name else ""


def _is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


async def _ask_through(handler: Callable[..., Any], ctx: Context, params: Any, ask: AskPerson | None) -> Any:
    with use_person_asker(ask):
        return await handler(ctx, params)


# ---------------------------------------------------------------- tools and answers, as the wire wants them


def describe_tool(tool: Tool) -> wire.Tool | None:
    """Return the tool's entry in tools/list; None for one that would make clients reject the whole list."""
    mark = tool.mark
    try:
        arguments = tool.input_schema
    except Exception:
        log.exception("%s has no usable schema and is not listed", tool.name)
        return None
    if not _TOOL_NAME.fullmatch(tool.name) or arguments.get("type") != "object":
        log.warning("%r is not listed: its name or the root of its schema is not allowed", tool.name)
        return None
    return wire.Tool(
        name=tool.name,
        title=mark.title,
        description=without_surrogates(tool.listed_description),
        # Every conversation pays for this list, and 55 % of it were output schemas.
        input_schema=_listed_schema(tool, arguments),
        annotations=_annotations(mark),
    )


_UNLISTED = ("minimum", "minLength", "maxLength")


def _listed_schema(tool: Tool, schema: Json) -> Json:
    """Return the schema as it is listed: shorter, and without the refusal of unknown arguments.

    Our tools accept other spellings of arguments. A call that breaks a limit that is left out gets an error.
    """
    if not isinstance(tool, MethodTool):
        return schema
    listed = {key: value for key, value in schema.items() if key != "additionalProperties"}
    properties: dict[str, Json] = listed["properties"]
    shown = {name: {key: spec[key] for key in spec if key not in _UNLISTED} for name, spec in properties.items()}
    return {**listed, "properties": shown}


def _annotations(mark: ToolMark) -> wire.ToolAnnotations:
    """Return the annotations of the tool; those of a read-only tool that the protocol ignores are left out."""
    if mark.read_only:
        return wire.ToolAnnotations(read_only_hint=True, open_world_hint=mark.open_world)
    return wire.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=mark.destructive,
        idempotent_hint=mark.idempotent,
        open_world_hint=mark.open_world,
    )


def wire_result(name: str, answer: Answer) -> wire.CallToolResult:
    """Return the answer of a tool as the SDK wants it."""
    return wire.CallToolResult.model_validate(tool_result(name, answer))
