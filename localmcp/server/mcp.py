"""The MCP server of both protocol eras: its requests are answered from the registry, in the scope of the caller."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast
from urllib.parse import parse_qs, quote, urlsplit

import anyio.to_thread
import mcp.types as types
from mcp import MCPError
from mcp.server import MCPServer, subscriptions
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ListenHandler, PromptsListChanged, ResourcesListChanged, ToolsListChanged
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import event_to_notification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from localmcp.activity import CallOrigin, call_origin
from localmcp.errors import InvalidInput, LocalMCPError, MissingCapability, NotFound, UnknownTool
from localmcp.humanize import quoted
from localmcp.library.names import DOCUMENT_URI, without_scheme
from localmcp.masking import mask_text
from localmcp.schemas import Json, compact_json, mapping_of, without_surrogates
from localmcp.server.handshake import INSTRUCTIONS
from localmcp.tool_search.discovery import EXECUTE_TOOL, TOOL_SEARCH, Discovery
from localmcp.tools import Answer, ClientCall, MethodTool, Registry, Scope, Tool, tools_of, use_client_call, use_scope
from localmcp.version import __version__

if TYPE_CHECKING:
    from localmcp.hub.servers import McpServers
    from localmcp.workspace import Workspace

    Offer: TypeAlias = "OwnOffer | McpServers"

log = logging.getLogger(__name__)

PARALLEL_CALLS, PARALLEL_REMOTE_CALLS = 8, 32
"""Calls that run at a time, of our tools and of connected servers': one that hangs leaves ours free."""
MAX_RESULT = 1_000_000
"""Bytes of one result on the wire; clients drop larger ones."""
TEXT_READERS = re.compile(r"claude-code|codex|visual studio code|vscode|copilot|cursor|opencode|kimi", re.IGNORECASE)
"""Names of clients that hand structured content to their model, instead of the text or beside it: Claude Code since
2.0.21, Codex, VS Code, Copilot, opencode since June 2026, Kimi. They get the text alone, which is shorter and says the
same; a program that calls tools gets both."""
LISTS = {"tools": ToolsListChanged(), "prompts": PromptsListChanged(), "resources": ResourcesListChanged()}
PAGE = 50
"""Entries of one page of our resources or prompts."""
RULES_PROMPT: Json = {
    "name": "rules_for_task",
    "title": "Rules for a task",
    "description": "The developer's own rules that matter for a task",
    "arguments": [{"name": "task", "description": "What is about to be done", "required": True}],
}
DOCUMENT_TEMPLATE: Json = {
    "uriTemplate": DOCUMENT_URI + "{sourceId}{?offset}",
    "name": "document",
    "title": "Document",
    "description": "A document by id, short id, path or unique title; offset reads on in a long one",
}

Context = ServerRequestContext[Any]
Paging = types.PaginatedRequestParams | None
CallResult = types.CallToolResult | types.InputRequiredResult
Result = TypeVar("Result")
Model = TypeVar("Model", bound=types.Result)


class ToolServer(Server[Any]):
    """A low-level MCP server of the tools that a scope may use."""

    def __init__(
        self,
        open_workspace: Callable[[], Workspace],
        scope: Scope | Callable[[], Scope],
        *,
        instructions: str | None = None,
    ) -> None:
        """`open_workspace` is called in a worker thread at every request; when it raises, calls answer with the error.

        `scope` is one for all requests, or a function of the request's own context variables. Without `instructions`
        the file is asked, in the scope of each client.
        """
        self._open_workspace = open_workspace
        self._scope = scope if callable(scope) else lambda: scope
        self._calls = anyio.CapacityLimiter(PARALLEL_CALLS)
        self._remote_calls = anyio.CapacityLimiter(PARALLEL_REMOTE_CALLS)
        self._bus = subscriptions.InMemorySubscriptionBus()
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
            on_list_resources=partial(self._list, "resources", types.ListResourcesResult),
            on_list_resource_templates=partial(self._list, "resourceTemplates", types.ListResourceTemplatesResult),
            on_read_resource=self._on_read_resource,
            on_list_prompts=partial(self._list, "prompts", types.ListPromptsResult),
            on_get_prompt=self._on_get_prompt,
            on_completion=self._on_complete,
            get_tool_input_schema=lambda name: tool.input_schema if (tool := self._find(name)) else None,
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
        instructions = INSTRUCTIONS
        with suppress(MCPError):
            # Where the file cannot be opened, the calls tell why.
            instructions = await self._answer(ctx.method, lambda: self._open_workspace().instructions())
        return {**cast(Json, result), "instructions": instructions}

    def watch(self, workspace: Workspace) -> None:
        """Tell clients of changes, but not of changes of tools that tools/list does not show."""

        def pass_on(kind: str) -> None:
            if kind != "tools" or workspace.registry.show_all:
                self.publish_change(kind)

        workspace.on_lists_changed(pass_on)

    def publish_change(self, changed: str) -> None:
        """Tell the clients that a list (`tools`, `prompts` or `resources`) has changed; from any thread."""

        async def publish() -> None:
            await self._bus.publish(LISTS[changed])
            if self._session is not None:
                await self._session.send_notification(event_to_notification(LISTS[changed], {}))

        if self._loop is not None and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(publish(), self._loop)

    async def _on_list_tools(self, ctx: Context, params: Paging) -> types.ListToolsResult:
        tools = await self._answer("tools/list", lambda: self._open_workspace().registry.visible())
        return types.ListToolsResult(tools=[entry for tool in tools if (entry := describe_tool(tool)) is not None])

    async def _on_call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> CallResult:
        client, arguments = ctx.session.client_params, params.arguments or {}
        if client is not None:
            origin, info = call_origin.get() or CallOrigin(), client.client_info
            call_origin.set(replace(origin, client=without_surrogates(info.title or info.name)[:100]))
        name = params.name if params.name != "execute_tool" else str(arguments.get("name"))
        limiter = self._remote_calls if "__" in name else self._calls
        progress, cancellation = Progress(ctx.session), Future[None]()
        work = partial(self._call, ctx, params.name, arguments, client.client_info.name if client else "")
        try:
            with use_client_call(replace(questions(ctx, params), progress=progress, cancellation=cancellation)):
                return await anyio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        finally:
            progress.is_over = True

    def _call(self, ctx: Context, name: str, arguments: Json, client: str) -> CallResult:
        try:
            answer = self._open_workspace().registry.call(name, arguments, self._scope())
            if answer.unfinished is not None:
                return types.InputRequiredResult.model_validate(answer.unfinished)
            structured = not (answer.whole_text and TEXT_READERS.search(client))
            return types.CallToolResult.model_validate(tool_result(name, answer, structured=structured))
        except MCPError:
            raise
        except LocalMCPError as error:
            # A tool may raise it too (execute_tool does): only a name that is nobody's is an error of the protocol.
            if isinstance(error, UnknownTool) and self._find(name) is None:
                # Models are shown the message alone.
                more = f". {error.hint}" if error.hint and self._scope().lean else ""
                data = {"hint": error.hint} if error.hint else None
                raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {quoted(name)}{more}", data) from error
            if isinstance(error, MissingCapability) and _is_modern(ctx):
                raise protocol_error(error) from error
            message = message_of(error)
        except BaseException:
            # Panics of libraries written in Rust derive from BaseException, and one tool must not end the server.
            # Blocks of another server that the protocol does not allow end here too.
            message = log_incident(name)
        return types.CallToolResult.model_validate(failed_result(message))

    def _find(self, name: str) -> Tool | None:
        with use_scope(self._scope()):
            return self._open_workspace().registry.find(name)

    async def _list(self, kind: str, model: type[Model], ctx: Context, params: Paging) -> Model:
        return model.model_validate(await self._answer(ctx.method, lambda: self._page(kind, params)))

    async def _on_read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        unknown = MCPError(types.INVALID_PARAMS, f"Resource not found: {params.uri}", {"uri": params.uri})
        return await self._first(ctx, params, types.ReadResourceResult, unknown, lambda offer: offer.read(params.uri))

    async def _on_get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        unknown = MCPError(types.INVALID_PARAMS, f"Unknown prompt: {quoted(params.name)}")
        name, arguments = params.name, params.arguments or {}
        return await self._first(ctx, params, types.GetPromptResult, unknown, lambda it: it.prompt(name, arguments))

    async def _on_complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        ref, asked = params.ref.model_dump(by_alias=True, exclude_none=True), params.argument

        def propose() -> Json | None:
            # Only connected servers propose values.
            offers: list[McpServers] = self._open_workspace().registry.offers
            return next(filter(None, (offer.complete(ref, asked.name, asked.value) for offer in offers)), None)

        with use_client_call(questions(ctx, params)):
            proposed = await self._answer(ctx.method, propose)
        completion = types.Completion.model_validate(proposed or {"values": []})
        # As many as the protocol allows.
        del completion.values[100:]
        return types.CompleteResult(completion=completion)

    def _offers(self) -> list[Offer]:
        registry = self._open_workspace().registry
        return [OwnOffer(registry), *registry.offers]

    async def _first(
        self,
        ctx: Context,
        params: types.RequestParams,
        model: type[Model],
        unknown: MCPError,
        ask: Callable[[Offer], Json | None],
    ) -> Model | types.InputRequiredResult:
        """Return what the first offer says that knows what is asked for; it may ask the person."""

        def find() -> Json | None:
            return next((result for offer in self._offers() if (result := ask(offer)) is not None), None)

        with use_client_call(questions(ctx, params)):
            result = await self._answer(ctx.method, find)
        if result is None:
            raise unknown
        return (types.InputRequiredResult if "inputRequests" in result else model).model_validate(result)

    def _page(self, kind: str, params: Paging) -> Json:
        """Return a page: the offers from the cursor on, up to one that has more; a cursor is `OFFER:OFFSET`."""
        cursor = params.cursor if params else None
        place = re.fullmatch(r"([0-9]{1,6}):([0-9]{1,12})", "0:0" if cursor is None else cursor)
        if place is None:
            raise MCPError(types.INVALID_PARAMS, "Invalid cursor: leave it out to begin at the first page.")
        number, offset = map(int, place.groups())
        items: list[Json] = []
        for index, offer in enumerate(self._offers()[number:], number):
            more, next_offset = offer.page(kind, offset)
            items += more
            if next_offset is not None:
                return {kind: items, "nextCursor": f"{index}:{next_offset}"}
            offset = 0
        return {kind: items}

    async def _answer(self, method: str, work: Callable[[], Result]) -> Result:
        """Run a request that is no call in a thread, in the scope of the caller; what it raises becomes words."""
        try:
            with use_scope(self._scope()):
                return await anyio.to_thread.run_sync(lambda: without_surrogates(work()), abandon_on_cancel=True)
        except LocalMCPError as error:
            raise protocol_error(error) from error
        except MCPError:
            raise
        except Exception as error:
            # The SDK would send the exception's text to clients of the handshake era.
            raise MCPError(types.INTERNAL_ERROR, log_incident(method)) from error


class OwnOffer:
    """Documents as resources, quick starts and rules as prompts, in the protocol's own JSON; None means: not ours.

    Everything is answered by the tools that exist for it, in the caller's scope: a key that may not call `get_document`
    reads no resource. Connected servers (`McpServers`), which have the same methods, are asked after ours.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def _has(self, tool: str) -> bool:
        return self._registry.find(tool) is not None

    def page(self, kind: str, offset: int) -> tuple[list[Json], int | None]:
        """Return entries from the offset on, and the offset of the next page; documents by their last change."""
        if kind == "resourceTemplates":
            return [DOCUMENT_TEMPLATE] if self._has("get_document") else [], None
        # Clients list at every start, so this counts neither as a call in the log nor as the first one.
        if kind == "resources":
            documents = self._registry.find("list_sources")
            page = documents.call({"order": "changed", "limit": PAGE, "offset": offset}).value if documents else {}
            resources: list[Json] = []
            for document in page.get("sources", ()):
                uri, changed = DOCUMENT_URI + quote(document["id"], safe=":"), {"lastModified": document["changedAt"]}
                described = {"description": document["path"]} if "path" in document else {}
                entry: Json = {"uri": uri, "name": document["title"], "mimeType": "text/plain", "annotations": changed}
                resources.append({**entry, **described})
            return resources, page.get("nextOffset")
        prompts = [RULES_PROMPT] if offset == 0 and self._has("getRelevantRules") else []
        guides = self._registry.find("listQuickstarts")
        if guides is None or not self._has("showQuickstart"):
            return prompts, None
        page = guides.call({"limit": PAGE, "offset": offset}).value
        for guide in page["quickstarts"]:
            title, description = guide.get("displayName") or guide["name"], guide.get("description") or ""
            prompts.append({"name": guide["name"], "title": title, "description": description})
        following = offset + len(page["quickstarts"])
        return prompts, following if following < page["total"] else None

    def read(self, uri: str) -> Json | None:
        """Return a document, or as much of it as fits and the address of the rest."""
        if not uri.startswith(DOCUMENT_URI):
            return None
        offset = parse_qs(urlsplit(uri).query).get("offset", ["0"])[0]
        answer = self._registry.call("get_document", {"sourceId": without_scheme(uri), "offset": offset})
        document = answer.value
        if answer.is_error:
            raise NotFound(document.get("message") or answer.text, hint=document.get("hint"))
        contents: list[Json] = [{"uri": uri, "mimeType": "text/plain", "text": document["source"]["content"]}]
        if document.get("truncated"):
            next_uri = f"{DOCUMENT_URI}{document['source']['id']}?offset={document['nextOffset']}"
            contents.append({"uri": next_uri, "mimeType": "text/plain", "text": f"The document goes on at {next_uri}"})
        return {"contents": contents}

    def prompt(self, name: str, arguments: dict[str, str]) -> Json | None:
        """Return description and messages of a prompt."""
        if name == RULES_PROMPT["name"] and self._has("getRelevantRules"):
            task = arguments.get("task", "").strip()
            answer = self._registry.call("getRelevantRules", {"taskDescription": task})
            if answer.is_error:
                raise InvalidInput(f"task: {answer.text}")
            return _message("Rules for a task", f"Task: {task}\n\n{answer.text}")
        if not self._has("showQuickstart"):
            return None
        try:
            shown = self._registry.call("showQuickstart", {"name": name}).value
        except NotFound:
            return None
        request = "Guide me through this quick start, one task after the other, and check each with me."
        return _message(shown.get("displayName") or name, f"{request}\n\n{shown['markdown']}")


def _message(description: str, text: str) -> Json:
    return {"description": description, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def questions(ctx: Context, params: types.RequestParams) -> ClientCall:
    """Return how the work of a request asks the person, in the way of the client's generation.

    A client of the handshake era gets a request. One of 2026-07-28 gets the unfinished result of the connected server
    that asks, and calls again with the answers, which are passed on.
    """
    session = ctx.session
    if session.client_capabilities is None or session.client_capabilities.elicitation is None:
        return ClientCall()
    if _is_modern(ctx):
        sent = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        return ClientCall(input={key: sent[key] for key in ("inputResponses", "requestState") if key in sent})
    loop, takes_urls = asyncio.get_running_loop(), session.client_capabilities.elicitation.url is not None

    async def send(params: Json) -> Json:
        if params.get("mode") == "url" and not takes_urls:
            raise MissingCapability("This client can show the person a form, but cannot send them to a web page.")
        request = types.ElicitRequest.model_validate({"method": "elicitation/create", "params": params})
        related = ServerMessageMetadata(related_request_id=ctx.request_id)
        try:
            # A person who does not answer within five minutes has dismissed the question.
            result = await session.send_request(request, types.ElicitResult, 300.0, related)
        except MCPError as error:
            if error.code != types.REQUEST_TIMEOUT:
                raise
            return {"action": "cancel"}
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    if not session.can_send_request:
        return ClientCall()
    return ClientCall(ask_person=lambda params: asyncio.run_coroutine_threadsafe(send(params), loop))


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
            if self.is_over or time.monotonic() - self._sent_at < 0.1:
                return
            self._sent_at = time.monotonic()
            # The protocol wants numbers that only grow, but a second phase begins at 0 again.
            self._last = max(done, self._last + 0.001)
            shown = total if total is not None and total >= self._last else None
            asyncio.run_coroutine_threadsafe(self._send(self._last, shown, message or None), self._loop)

    async def _send(self, done: float, total: float | None, message: str | None) -> None:
        if not self.is_over:
            await self._session.report_progress(done, total, message)


def describe_tool(tool: Tool) -> types.Tool | None:
    """Return the tool's entry in tools/list; None for one that would make clients reject the whole list."""
    try:
        schema = tool.input_schema
    except Exception:
        log.exception("%s has no usable schema and is not listed", tool.name)
        return None
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool.name) or schema.get("type") != "object":
        log.warning("%r is not listed: its name or the root of its schema is not allowed", tool.name)
        return None
    if isinstance(tool, MethodTool):
        # Ours accept other spellings of arguments, and a call that breaks a limit that is left out gets an error.
        unlisted = ("minimum", "minLength", "maxLength")
        properties: dict[str, Json] = schema["properties"]
        shown = {name: {key: spec[key] for key in spec if key not in unlisted} for name, spec in properties.items()}
        schema = {**schema, "properties": shown}
        schema.pop("additionalProperties", None)
    mark = tool.mark
    hints = types.ToolAnnotations(read_only_hint=mark.read_only, open_world_hint=mark.open_world)
    if not mark.read_only:
        # The protocol ignores them for a tool that only reads.
        hints.destructive_hint, hints.idempotent_hint = mark.destructive, mark.idempotent
    return types.Tool(
        name=tool.name,
        title=mark.title,
        description=without_surrogates(tool.listed_description),
        # Every conversation pays for this list, and 55 % of it were output schemas.
        input_schema=schema,
        annotations=hints,
    )


# ---------------------------------------------------------------- results and errors


def tool_result(name: str, answer: Answer, *, structured: bool = True) -> Json:
    """Return the answer of a tool as the wire carries it; one that is too large becomes an error that says so."""
    content = [{"text": answer.text, "type": "text"}] if answer.content is None else list(answer.content)
    result: Json = without_surrogates(
        {"content": content, "isError": answer.is_error, "structuredContent": answer.value}
    )
    if (size := len(compact_json(result).encode())) > MAX_RESULT:
        return failed_result(
            f"The answer of {name} has {size / 1e6:.1f} MB, and at most {MAX_RESULT / 1e6:.0f} MB can be sent. "
            "Ask for less: a smaller limit, a narrower question, or one part at a time."
        )
    if not structured or not (answer.value or answer.content is None):
        # An empty object, where another server sent nothing structured, would hide its blocks from some clients.
        del result["structuredContent"]
    return result


def failed_result(text: str) -> Json:
    """Return the result of a failed call, with at most 10,000 characters of text."""
    text = without_surrogates(text)
    if len(text) > 10_000:
        text = text[:10_000] + " ..."
    return {"content": [{"text": text, "type": "text"}], "isError": True}


def log_incident(name: str) -> str:
    """Log the exception that is being handled, and return what the client is told instead."""
    incident = secrets.token_hex(4)
    log.exception("%s failed (incident %s)", mask_text(name), incident)
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


# ---------------------------------------------------------------- attached to another server

OURS = {
    TOOL_SEARCH: "Find tools that are not listed here, by what they should do. Returns name, description, score and "
    "input schema of each; run one with execute_tool.",
    EXECUTE_TOOL: "Run a tool that tool_search found and return its own answer.",
}
"""The two tools, with descriptions that do not mention localmcp's documents."""


def attach(hidden: Registry, discovery: Discovery, server: object) -> None:
    """Add the two tools of `discovery` to `server`, and answer calls of hidden tools by name; raises InvalidInput."""
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
        described = filter(None, map(describe_tool, self._tools.values()))
        self._described = [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in described]

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/list":
            listed = cast(Json, await call_next(ctx))
            return listed if listed.get("nextCursor") else {**listed, "tools": [*listed["tools"], *self._described]}
        params, in_thread = mapping_of(ctx.params), anyio.to_thread.run_sync
        name: Any = params.get("name")
        arguments: Any = params.get("arguments") or {}
        if ctx.method != "tools/call" or not isinstance(name, str) or not isinstance(arguments, dict):
            return await call_next(ctx)
        if name in OURS:
            return await in_thread(self._run, name, cast(Json, arguments))
        try:
            is_hidden = await in_thread(self.hidden.find, name) is not None
        except Exception:
            # A provider could not say: the call asks it again, and reports the error.
            is_hidden = True
        if is_hidden:
            # The server's own tool of that name comes first.
            about = {key: value for key, value in params.items() if key == "_meta"}
            theirs = cast(Json, await call_next(replace(ctx, method="tools/list", params=about)))
            if name not in {tool["name"] for tool in theirs["tools"]}:
                return await in_thread(self._run, EXECUTE_TOOL, Json(name=name, arguments=arguments))
        return await call_next(ctx)

    def _run(self, name: str, arguments: Json) -> types.CallToolResult:
        """Return the answer for the wire. The client gets what a hidden tool raises: it is the developer's own tool."""
        try:
            result = tool_result(name, self._tools[name].call(arguments))
        except MCPError:
            raise
        except Exception as error:
            if not isinstance(error, LocalMCPError):
                log.exception("a tool failed that %s ran", name)
            result = failed_result(str(error) or type(error).__name__)
        return types.CallToolResult.model_validate(result)
