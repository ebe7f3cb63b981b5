"""The MCP server of both protocol eras: its requests are answered from the registry, in the scope of the caller."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
import anyio.to_thread
import mcp.types as types
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ToolsListChanged,
)
from mcp.shared.subscriptions import event_to_notification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from localmcp.activity import CallOrigin, call_origin
from localmcp.errors import LocalMCPError, MissingCapability, UnknownTool
from localmcp.humanize import quoted
from localmcp.schemas import without_surrogates
from localmcp.server.elicitation import RetriedCalls, ask_by_request, refuse_question
from localmcp.server.handshake import FALLBACK_INSTRUCTIONS
from localmcp.server.resources import OwnOffer
from localmcp.tools import (
    Answer,
    AskPerson,
    CallCancellation,
    Json,
    MethodTool,
    Scope,
    Tool,
    ToolMark,
    compact_json,
    use_cancellation,
    use_person_asker,
    use_progress,
    use_scope,
)
from localmcp.version import __version__

if TYPE_CHECKING:
    from localmcp.hub.offers import ServerOffers
    from localmcp.workspace import Workspace

    Offer = OwnOffer | ServerOffers

log = logging.getLogger(__name__)

PARALLEL_CALLS, PARALLEL_REMOTE_CALLS = 8, 32
"""Calls that run at a time, of our tools and of connected servers': one that hangs leaves ours free."""
PROGRESS_SECONDS = 0.1
"""Between two messages of progress."""
MAX_RESULT = 1_000_000
"""Bytes of one result on the wire; clients drop larger ones."""
TEXT_READERS = re.compile(r"claude-code|codex|visual studio code|vscode|copilot|cursor|opencode|kimi", re.IGNORECASE)
"""Names of clients that hand structured content to their model, instead of the text or beside it: Claude Code since
2.0.21, Codex, VS Code, Copilot, opencode since June 2026, Kimi. They get the text alone, which is shorter and says the
same; a program that calls tools gets both."""
LISTS = {"tools": ToolsListChanged(), "prompts": PromptsListChanged(), "resources": ResourcesListChanged()}

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CURSOR = re.compile(r"([0-9]{1,6}):([0-9]{1,12})")

Context = ServerRequestContext[Any]
Paging = types.PaginatedRequestParams | None
Result = TypeVar("Result")


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
            instructions: for all clients; None = the file is asked, in the scope of each.
        """
        self._open_workspace = open_workspace
        self._scope = scope if callable(scope) else lambda: scope
        self._calls = anyio.CapacityLimiter(PARALLEL_CALLS)
        self._remote_calls = anyio.CapacityLimiter(PARALLEL_REMOTE_CALLS)
        self._retried = RetriedCalls()
        self._bus = InMemorySubscriptionBus()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: ServerSession | None = None
        """The client of the handshake era that is told of changes; over HTTP a session ends with its request."""
        super().__init__(
            "localmcp",
            version=__version__,
            instructions=instructions,
            on_list_tools=self._on_list_tools,
            on_call_tool=self._on_call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
            on_list_resources=self._on_list_resources,
            on_list_resource_templates=self._on_list_templates,
            on_read_resource=self._on_read_resource,
            on_list_prompts=self._on_list_prompts,
            on_get_prompt=self._on_get_prompt,
            on_completion=self._on_complete,
            get_tool_input_schema=self._input_schema,
        )
        self.middleware.append(self._greet)

    async def _greet(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Note who can be told of changes, and add the instructions to the first reply."""
        self._loop = asyncio.get_running_loop()
        if ctx.request is None and ctx.session.can_send_request and not _is_modern(ctx):
            self._session = ctx.session
        result = await call_next(ctx)
        if ctx.method not in ("initialize", "server/discover") or self.instructions is not None:
            return result
        return {**cast(Json, result), "instructions": await anyio.to_thread.run_sync(self._instructions)}

    def _instructions(self) -> str:
        try:
            with use_scope(self._scope()):
                return without_surrogates(self._open_workspace().instructions())
        except Exception:
            log.warning("what the file holds cannot be told", exc_info=True)
            return FALLBACK_INSTRUCTIONS

    def publish_change(self, changed: str) -> None:
        """Tell clients that a list (`tools`, `prompts` or `resources`) has changed; may be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._publish(changed), self._loop)

    async def _publish(self, changed: str) -> None:
        await self._bus.publish(LISTS[changed])
        if self._session is not None:
            await self._session.send_notification(event_to_notification(LISTS[changed], {}))

    # ------------------------------------------------------------ tools

    async def _on_list_tools(self, ctx: Context, params: Paging) -> types.ListToolsResult:
        tools = await self._answer("tools/list", lambda: self._open_workspace().registry.visible())
        return types.ListToolsResult(tools=[entry for tool in tools if (entry := describe_tool(tool)) is not None])

    async def _on_call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        client = ctx.session.client_params.client_info if ctx.session.client_params else None
        if client is not None:
            origin = call_origin.get() or CallOrigin()
            call_origin.set(replace(origin, client=without_surrogates(client.title or client.name)[:100]))
        return await self._asking(ctx, params, partial(self._run, ctx, params, client.name if client else ""))

    async def _run(self, ctx: Context, params: types.CallToolRequestParams, client: str) -> types.CallToolResult:
        arguments = params.arguments or {}
        name = params.name if params.name != "execute_tool" else str(arguments.get("name"))
        limiter = self._remote_calls if "__" in name else self._calls
        progress, cancellation = Progress(ctx.session), CallCancellation()
        work = partial(self._call, ctx, params.name, arguments, client)
        try:
            with use_progress(progress), use_cancellation(cancellation):
                return await anyio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        finally:
            progress.is_over = True

    def _call(self, ctx: Context, name: str, arguments: Json, client: str) -> types.CallToolResult:
        try:
            answer = self._open_workspace().registry.call(name, arguments, self._scope())
            structured = not (answer.whole_text and TEXT_READERS.search(client))
            return types.CallToolResult.model_validate(tool_result(name, answer, structured=structured))
        except UnknownTool as error:
            # A tool may raise it too (execute_tool does): only a name that is nobody's is an error of the protocol.
            if self._find(name) is None:
                # Models are shown the message alone.
                more = f". {error.hint}" if error.hint and self._scope().lean else ""
                data = {"hint": error.hint} if error.hint else None
                raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {quoted(name)}{more}", data) from error
            message = message_of(error)
        except MissingCapability as error:
            if _is_modern(ctx):
                raise protocol_error(error) from error
            message = message_of(error)
        except LocalMCPError as error:
            message = message_of(error)
        except BaseException:
            # Panics of libraries written in Rust derive from BaseException, and one tool must not end the server.
            # Blocks of another server that the protocol does not allow end here too.
            message = log_incident(name)
        return types.CallToolResult.model_validate(failed_result(message))

    def _find(self, name: str) -> Tool | None:
        with use_scope(self._scope()):
            return self._open_workspace().registry.find(name)

    def _input_schema(self, name: str) -> Json | None:
        tool = self._find(name)
        return tool.input_schema if tool else None

    # ------------------------------------------------------------ resources and prompts

    async def _on_list_resources(self, ctx: Context, params: Paging) -> types.ListResourcesResult:
        items, cursor = await self._answer("resources/list", lambda: self._page("resources", params))
        return types.ListResourcesResult(resources=[types.Resource(**item) for item in items], next_cursor=cursor)

    async def _on_list_templates(self, ctx: Context, params: Paging) -> types.ListResourceTemplatesResult:
        items = await self._answer(
            "resources/templates/list", lambda: [item for offer in self._offers() for item in offer.templates()]
        )
        return types.ListResourceTemplatesResult(resource_templates=[types.ResourceTemplate(**item) for item in items])

    async def _on_list_prompts(self, ctx: Context, params: Paging) -> types.ListPromptsResult:
        items, cursor = await self._answer("prompts/list", lambda: self._page("prompts", params))
        return types.ListPromptsResult(prompts=[types.Prompt(**item) for item in items], next_cursor=cursor)

    async def _on_read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        async def read() -> types.ReadResourceResult:
            contents = await self._answer("resources/read", lambda: self._first(lambda offer: offer.read(params.uri)))
            if contents is None:
                raise MCPError(types.INVALID_PARAMS, f"Resource not found: {params.uri}", {"uri": params.uri})
            return types.ReadResourceResult.model_validate({"contents": contents})

        return await self._asking(ctx, params, read)

    async def _on_get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        async def get() -> types.GetPromptResult:
            arguments = dict(params.arguments or {})
            prompt = await self._answer(
                "prompts/get", lambda: self._first(lambda offer: offer.prompt(params.name, arguments))
            )
            if prompt is None:
                raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {quoted(params.name)}")
            return types.GetPromptResult.model_validate(prompt)

        return await self._asking(ctx, params, get)

    async def _on_complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Hand the question to the connected server that it is about; at most 100 values, as the protocol allows."""
        ref: Json = params.ref.model_dump(by_alias=True, exclude_none=True)
        name, value = params.argument.name, params.argument.value
        # A connected server that this request starts learns at its handshake whether later calls can ask the person.
        can_be_asked = ctx.session.client_capabilities and ctx.session.client_capabilities.elicitation
        with use_person_asker(_asker_of(ctx) or (refuse_question if can_be_asked else None)):
            proposed: Json | None = await self._answer(
                "completion/complete", lambda: self._first(lambda offer: offer.complete(ref, name, value))
            )
        completion = types.Completion.model_validate(proposed or {"values": []})
        if len(completion.values) > 100:
            completion = types.Completion(values=completion.values[:100], has_more=True)
        return types.CompleteResult(completion=completion)

    def _offers(self) -> list[Offer]:
        registry = self._open_workspace().registry
        return [OwnOffer(registry), *registry.offers]

    def _first(self, ask: Callable[[Offer], Result | None]) -> Result | None:
        return next((answer for offer in self._offers() if (answer := ask(offer)) is not None), None)

    def _page(self, kind: str, params: Paging) -> tuple[list[Json], str | None]:
        """Return a page: the offers from the cursor on, up to one that has more; a cursor is `OFFER:OFFSET`."""
        cursor = params.cursor if params else None
        place = _CURSOR.fullmatch("0:0" if cursor is None else cursor)
        if place is None:
            raise MCPError(types.INVALID_PARAMS, "Invalid cursor: leave it out to begin at the first page.")
        number, offset = map(int, place.groups())
        items: list[Json] = []
        for index, offer in enumerate(self._offers()[number:], number):
            more, next_offset = getattr(offer, kind)(offset)
            items += more
            if next_offset is not None:
                return items, f"{index}:{next_offset}"
            offset = 0
        return items, None

    # ------------------------------------------------------------ every request

    async def _answer(self, method: str, work: Callable[[], Result]) -> Result:
        """Run a request that is no call in a thread, in the scope of the caller; what it raises becomes words."""

        def run() -> Result:
            with use_scope(self._scope()):
                return without_surrogates(work())

        try:
            return await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
        except LocalMCPError as error:
            raise protocol_error(error) from error
        except MCPError:
            raise
        except Exception as error:
            # The SDK would send the exception's text to clients of the handshake era.
            raise MCPError(types.INTERNAL_ERROR, log_incident(method)) from error

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


def _is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


class Progress:
    """Sends the progress of one call from any thread; the SDK drops it where the client did not ask."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._sent_at = self._last = 0.0
        self.is_over = False
        """Set when the result follows: nothing more is sent."""

    def __call__(self, done: float, total: float | None, message: str) -> None:
        """Send how far the call is, unless a message was sent a moment ago."""
        with self._lock:
            if self.is_over or time.monotonic() - self._sent_at < PROGRESS_SECONDS:
                return
            self._sent_at = time.monotonic()
            # The protocol wants numbers that only grow, but a second phase begins at 0 again.
            self._last = max(done, self._last + 0.001)
            shown = total if total is not None and total >= self._last else None
            asyncio.run_coroutine_threadsafe(self._send(self._last, shown, message or None), self._loop)

    async def _send(self, done: float, total: float | None, message: str | None) -> None:
        if not self.is_over:
            await self._session.report_progress(done, total, message)


# ---------------------------------------------------------------- tools/list


def describe_tool(tool: Tool) -> types.Tool | None:
    """Return the tool's entry in tools/list; None for one that would make clients reject the whole list."""
    try:
        schema = tool.input_schema
    except Exception:
        log.exception("%s has no usable schema and is not listed", tool.name)
        return None
    if not _TOOL_NAME.fullmatch(tool.name) or schema.get("type") != "object":
        log.warning("%r is not listed: its name or the root of its schema is not allowed", tool.name)
        return None
    return types.Tool(
        name=tool.name,
        title=tool.mark.title,
        description=without_surrogates(tool.listed_description),
        # Every conversation pays for this list, and 55 % of it were output schemas.
        input_schema=_listed_schema(schema) if isinstance(tool, MethodTool) else schema,
        annotations=_annotations(tool.mark),
    )


def _listed_schema(schema: Json) -> Json:
    """Return the schema of a tool of ours as it is listed: shorter, and without the refusal of unknown arguments.

    Our tools accept other spellings of arguments. A call that breaks a limit that is left out gets an error.
    """
    unlisted = ("minimum", "minLength", "maxLength")
    listed = {key: value for key, value in schema.items() if key != "additionalProperties"}
    properties: dict[str, Json] = listed["properties"]
    shown = {name: {key: spec[key] for key in spec if key not in unlisted} for name, spec in properties.items()}
    return {**listed, "properties": shown}


def _annotations(mark: ToolMark) -> types.ToolAnnotations:
    """Return the annotations of the tool; those of a read-only tool that the protocol ignores are left out."""
    if mark.read_only:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=mark.open_world)
    return types.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=mark.destructive,
        idempotent_hint=mark.idempotent,
        open_world_hint=mark.open_world,
    )


# ---------------------------------------------------------------- results and errors


def tool_result(name: str, answer: Answer, *, structured: bool = True) -> Json:
    """Return the answer of a tool as the wire carries it; one that is too large becomes an error that says so.

    Where another server sent nothing structured, nothing is sent either: an empty object would hide the answer's
    blocks from some clients.
    """
    content = [{"text": answer.text, "type": "text"}] if answer.content is None else list(answer.content)
    result: Json = {"content": content, "isError": answer.is_error}
    whole: Json = {**result, "structuredContent": answer.value}
    try:
        size = len(compact_json(whole).encode())
    except UnicodeEncodeError:
        return tool_result(name, without_half_characters(answer), structured=structured)
    if size > MAX_RESULT:
        return failed_result(
            f"The answer of {name} has {size / 1e6:.1f} MB, and at most {MAX_RESULT / 1e6:.0f} MB can be sent. "
            "Ask for less: a smaller limit, a narrower question, or one part at a time."
        )
    return whole if structured and (answer.value or answer.content is None) else result


def without_half_characters(answer: Answer) -> Answer:
    """Return the answer with U+FFFD for each lone surrogate, which UTF-8 cannot encode."""
    content = None if answer.content is None else tuple(without_surrogates(answer.content))
    value, text = without_surrogates(answer.value), without_surrogates(answer.text)
    return replace(answer, value=value, text=text, content=content)


def failed_result(text: str) -> Json:
    """Return the result of a failed call, with at most 10,000 characters of text."""
    text = without_surrogates(text)
    if len(text) > 10_000:
        text = text[:10_000] + " ..."
    return {"content": [{"text": text, "type": "text"}], "isError": True}


def log_incident(name: str) -> str:
    """Log the exception that is being handled, and return what the client is told instead."""
    incident = secrets.token_hex(4)
    log.exception("%s failed (incident %s)", name, incident)
    return f"{name} failed unexpectedly (incident {incident}). The server's log tells more."


def message_of(error: LocalMCPError) -> str:
    """Return the error's sentence and its next step, on separate lines."""
    return without_surrogates(f"{error.message}\n{error.hint}" if error.hint else error.message)


def protocol_error(error: LocalMCPError) -> MCPError:
    """Return the error of a request that is no call; a client of 2026-07-28 learns what it does not offer."""
    if isinstance(error, MissingCapability):
        data: Json = {"requiredCapabilities": {error.capability: {}}}
        return MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, message_of(error), data)
    return MCPError(types.INVALID_PARAMS, message_of(error))
