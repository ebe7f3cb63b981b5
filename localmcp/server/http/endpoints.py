"""What answers over HTTP: sentences (S0-22), tools by name (C4-1, C4-5), `/health`, keys and the call log (S3-10); MCP.

MCP goes through the SDK: `/mcp` as the specification has it, `/api/mcp` with the original's stream and words. Each POST
is answered by itself, and no `initialize` is needed (C3-6).
"""

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar, cast

import anyio.to_thread
import httpx2
import mcp.types as types
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.runner import serve_connection
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from pydantic_core import from_json, to_json
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as HttpScope

from localmcp.activity import INTERFACES
from localmcp.api_keys import KeyInfo
from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, NotFound, UnknownTool
from localmcp.index.collections import choose_collections
from localmcp.masking import mask_text
from localmcp.schemas import Json, mapping_of, without_surrogates
from localmcp.server.handshake import OpenOnce
from localmcp.server.mcp import Context, ToolServer, log_incident, tool_result
from localmcp.tool_search.ask import ERROR_STATUS
from localmcp.tools import Answer, ClientCall, Scope, use_client_call, use_scope
from localmcp.version import __version__
from localmcp.workspace import Workspace

# ---------------------------------------------------------------- replies, refusals, lines of the log (S3-14)

log = logging.getLogger("localmcp.http")
"""Writes `info` even where the program as a whole only warns: whoever starts a server wants to see that it works."""

LONGEST = 200
"""Characters of one field of a line; some come from strangers."""
SERVER_ERROR = -32000
"""JSON-RPC code of S3-13 for authentication, configuration and the like."""

MCP_PATHS = ("/mcp", "/api/mcp")
QUERY_PATHS = ("/api/quickstarts/v1/mcp", "/mcp-query")
MANAGEMENT = "/api/mcp/"
"""Key management and the call log are below it."""


def say(message: str, **fields: Any) -> None:
    """Write one event: `HTTP Transport request: method=tools/call id=1`.

    Fields are short facts, a key among them masked: never an argument or a document's text.
    """
    shown: list[str] = []
    for name, value in fields.items():
        quoted = json.dumps(mask_text(value[:LONGEST]) if isinstance(value, str) else value, default=str)
        # In quotes if it could be misread or could look like another field.
        shown.append(f"{name}=" + re.sub(r'^"([\w./*+-]+)"$', r"\1", quoted))
    joint = "" if not fields else " " if ": " in message else ": "
    log.info("%s", f"{' '.join(mask_text(message).split())}{joint}{' '.join(shown)}")


class Refused(HTTPException):
    """A request that is answered with an error status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: int = types.INVALID_REQUEST,
        details: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`code` is that of JSON-RPC for MCP paths; `details` are more than the contract's short text."""
        super().__init__(status, message, headers)
        self.code = code
        self.details = details


def json_bytes(value: Any) -> bytes:
    """Return UTF-8 JSON of any value: lone surrogates become U+FFFD, numbers that JSON does not allow null."""
    try:
        return to_json(value, inf_nan_mode="null", fallback=str)
    except ValueError:
        return to_json(without_surrogates(value), inf_nan_mode="null", fallback=str)


def parse_json(body: bytes) -> Any:
    """Return the JSON value of a body.

    Raises Refused (400, -32700) for what is not UTF-8 or JSON, deeper than 200, or has a number that JSON does not.
    """
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise Refused(400, "Parse error: Invalid JSON", code=types.PARSE_ERROR, details=str(error)[:200]) from error


def parse_object(body: bytes) -> Json:
    """Return the JSON object of a body; raises Refused (400) for anything else."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise Refused(400, "Invalid request body", code=types.INVALID_REQUEST, details="the body must be a JSON object")
    return cast(Json, value)


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a reply with a JSON body."""
    return Response(json_bytes(value), status, headers, "application/json")


# ---------------------------------------------------------------- endpoints

ORIGINAL_PATH = "/api/mcp"
VERSION_HEADER = "mcp-protocol-version"
STATUS = {
    types.PARSE_ERROR: 400, types.INVALID_REQUEST: 400, types.INVALID_PARAMS: 400,
    types.METHOD_NOT_FOUND: 404, types.INTERNAL_ERROR: 500, SERVER_ERROR: 500,
}  # fmt: skip
"""JSON-RPC code -> HTTP status for the original's clients (S3-13)."""
STREAM = "text/event-stream"
KEY_SECONDS = 5.0
"""How often an open stream looks whether its key is still active."""
CALL_SECONDS = 300.0
"""After this a call is given up; tools that take long answer within 20 s with the id of a job."""
RAG_UNKNOWN = "RAG not found or access denied"
_NOTHING = frozenset[str]()
NOBODY = Scope(
    caller="nobody", trusted=False, collections=_NOTHING, tools=_NOTHING, provider_names=_NOTHING, rights=_NOTHING
)
request_scope: ContextVar[Scope] = ContextVar("localmcp_request_scope", default=NOBODY)
"""The scope of the request that is being answered; outside of a request, one that may do nothing."""

Result = TypeVar("Result")


class Endpoints:
    """What answers: each public method of a request answers one, in the scope of its key; `request.state` has its body.

    Keys and logs need a key with the scope admin; a `ragId` is the name of a collection (S3-12).
    """

    def __init__(self, open_workspace: OpenOnce) -> None:
        self.open_workspace = open_workspace
        self._limiter = anyio.CapacityLimiter(16)
        self.server = ToolServer(open_workspace, request_scope.get)
        self.server.middleware.append(_add_top_level_keys)
        self._json = StreamableHTTPSessionManager(self.server, json_response=True, stateless=True)
        self._events = StreamableHTTPSessionManager(self.server, stateless=True)
        self._asking = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(self._json.handle_request),
            base_url="http://localhost",
            headers={"accept": "application/json", "content-type": "application/json"},
            trust_env=False,
        )
        """Asks the SDK in this process, where its whole reply is looked at."""
        self._streams = SseServerTransport(ORIGINAL_PATH)
        self.closing = anyio.Event()
        """Set when the server closes, to end the streams that would stay open."""

    @asynccontextmanager
    async def lifespan(self, _app: Any) -> AsyncGenerator[None]:
        """Let the SDK serve until the block ends."""
        async with self._json.run(), self._events.run():
            yield

    async def run(
        self, name: str, arguments: Json, *, scope: Scope | None = None, seconds: float = CALL_SECONDS
    ) -> Answer:
        """Return the tool's answer; raises what the tool raises, LocalMCPError with the incident's number for a bug.

        Refused (504) if it takes longer than `seconds`: programs and other servers are told, our tools finish.
        """
        say(f"Executing tool: {name[:LONGEST]}", key=request_scope.get().caller)

        def call() -> Answer:
            try:
                return self.open_workspace().registry.call(name, arguments, scope or request_scope.get())
            except LocalMCPError:
                raise
            except BaseException as error:
                # Panics of libraries written in Rust derive from BaseException.
                raise LocalMCPError(log_incident(name)) from error

        cancellation = Future[None]()
        with anyio.move_on_after(seconds), use_client_call(ClientCall(cancellation=cancellation)):
            return await anyio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)
        cancellation.cancel()
        raise Refused(504, f"{name} gave no answer within {seconds:g} s", code=SERVER_ERROR)

    async def in_scope(self, work: Callable[[Workspace], Result]) -> Result:
        """Return what `work` finds, in a thread and in the scope of the request's key."""
        with use_scope(request_scope.get()):
            return await anyio.to_thread.run_sync(lambda: work(self.open_workspace()))

    # ------------------------------------------------------------ sentences and tools by name

    async def ask(self, request: Request) -> Response:
        """POST `/api/quickstarts/v1/mcp`: {"query", "limit"?, "maxDistance"?} (S0-22 to S0-26, C0-12)."""
        try:
            body = parse_object(request.state.body)
        except Refused as refused:
            raise Refused(400, f"Invalid request body: {refused.details or refused.detail}") from refused
        arguments = {name: body[name] for name in ("query", "limit", "maxDistance") if name in body}
        scope = request_scope.get()
        if scope.tools is not None:
            # The key decides what may be called; this endpoint itself is no tool of its list.
            scope = replace(scope, tools=scope.tools | {"ask"})
        try:
            response = (await self.run("ask", arguments, scope=scope)).value
        except InvalidInput as error:
            raise Refused(400, f"Invalid request body: {error.message}") from error
        except LocalMCPError as error:
            raise Refused(500, f"Failed to generate tool call: {error}") from error
        status = ERROR_STATUS.get(response.get("code", ""), 500) if response["status"] == "error" else 200
        return json_reply({**response, "error": response["message"]} if status >= 400 else response, status)

    async def list_tools(self, request: Request) -> Response:
        """GET `/tools`: every tool of the caller, the hidden ones too."""

        def described(workspace: Workspace) -> Json:
            return {
                tool.name: {"name": tool.name, "description": tool.description, "schema": tool.input_schema}
                for tool in workspace.registry.tools()
            }

        return json_reply({"tools": await self.in_scope(described)})

    async def call_tool(self, request: Request) -> Response:
        """POST `/tools/{name}`: {"input": {...}, "timeout"?: seconds} -> {success, output, stats} (C4-1)."""
        name, asked = request.path_params["name"], parse_object(request.state.body)
        arguments: Any = asked.get("input") or {}
        seconds: Any = asked.get("timeout") or CALL_SECONDS
        if not isinstance(arguments, dict):
            raise Refused(400, "Invalid request body", details="input must be an object")
        if type(seconds) not in (int, float) or seconds <= 0:
            raise Refused(400, "Invalid request body", details="timeout must be a number of seconds above 0")
        started, status = time.perf_counter(), 200
        try:
            seconds = float(min(seconds, CALL_SECONDS))
            body = _output(await self.run(name, cast(Json, arguments), seconds=seconds))
        except UnknownTool:
            status, body = 500, Json(success=False, error=f"tool not found: {name}", code=500)
        except LocalMCPError as error:
            status = 403 if isinstance(error, AccessDenied) else 200
            body = {"success": False, "error": error.message, **({"hint": error.hint} if error.hint else {})}
        except Refused as refused:
            # As in the original, a time-out is an answer of the tool.
            body = {"success": False, "error": refused.detail}
        # As the original writes it, `1.2s`; below a second, milliseconds show: `0.012s`.
        took = time.perf_counter() - started
        stats = {"execution_time": f"{took:.1f}s" if took >= 1 else f"{took:.3f}s"}
        return json_reply({**body, "stats": stats}, status)

    async def health(self, request: Request) -> Response:
        """GET `/health`, for anybody: whether calls can be answered; nothing about the file's content."""

        def look() -> None:
            with self.open_workspace().database.read():
                pass

        try:
            await anyio.to_thread.run_sync(look)
        except LocalMCPError:
            return json_reply({"status": "unavailable", "version": __version__}, 503)
        return json_reply({"status": "ok", "version": __version__})

    # ------------------------------------------------------------ management

    async def generate(self, request: Request) -> Response:
        """POST `keys/generate` {ragId, name?, scopes?, tools?, providers?, expires_at?, rules?}, of one collection."""
        body = parse_object(request.state.body)
        rag = _needed(body.get("ragId"), "RAG ID is required")
        asked: Json = {name: body.get(name) for name in ("expires_at", "scopes", "tools", "providers")}
        if not isinstance(name := body.get("name") or "", str):
            raise Refused(400, "name must be a string")
        asked["name"] = name
        # The developer's rules are a collection too.
        asked["collections"] = [rag, "rules"] if body.get("rules") is True else [rag]
        new = await self._manage(lambda workspace: workspace.api_keys.create(**asked), RAG_UNKNOWN)
        say("API key generated", id=new.info.id, ragId=rag, by=request_scope.get().caller)
        return json_reply(new.as_json())

    async def list_keys(self, request: Request) -> Response:
        """GET `keys/list?ragId=`."""
        rag = _needed(request.query_params.get("ragId"), "RAG ID is required")
        keys = await self._manage(lambda workspace: workspace.api_keys.list(rag), RAG_UNKNOWN)
        return json_reply({"success": True, "keys": [key.as_json() for key in keys]})

    async def end_key(self, request: Request) -> Response:
        """POST `keys/revoke` {keyId}: the key opens nothing any more, and stays listed; DELETE: it is gone."""
        key_id: Any = request.query_params.get("keyId")
        if key_id is None and request.state.body:
            key_id = parse_object(request.state.body).get("keyId")
        key_id, gone = _needed(key_id, "Key ID is required"), request.method == "DELETE"

        def end(workspace: Workspace) -> object:
            return workspace.api_keys.delete(key_id) if gone else workspace.api_keys.revoke(key_id)

        await self._manage(end, "API key not found or access denied")
        message = "API key deleted" if gone else "API key revoked"
        say(message, id=key_id, by=request_scope.get().caller)
        return json_reply({"success": True, "message": f"{message} successfully"})

    async def logs(self, request: Request) -> Response:
        """GET `logs?ragId=&limit=50&offset=0`: the calls in one collection, the newest first."""
        rag = _needed(request.query_params.get("ragId"), "RAG ID is required")
        limit, offset = _whole(request, "limit", 50, 1), _whole(request, "offset", 0, 0)

        def page(workspace: Workspace) -> tuple[list[Json], int]:
            with workspace.database.read() as connection:
                [collection] = choose_collections(connection, [rag])
            return workspace.activity.logs(collection=collection.name, limit=min(limit, 500), offset=offset)

        entries, total = await self._manage(page, RAG_UNKNOWN)
        return json_reply({"success": True, "logs": list(map(original_row, entries)), "total": total})

    async def _manage(self, work: Callable[[Workspace], Result], unknown: str) -> Result:
        if "admin" not in request_scope.get().rights:
            how = "Make one on this machine: localmcp keys create --name NAME --scope admin"
            raise Refused(403, "This needs an API key with the scope admin", code=SERVER_ERROR, details=how)
        try:
            return await self.in_scope(work)
        except NotFound as error:
            raise Refused(404, unknown, details=str(error)) from error

    # ------------------------------------------------------------ MCP

    async def post(self, request: Request) -> ASGIApp:
        """Answer one message; raises Refused if it is none of JSON-RPC."""
        body, original = request.state.body, request.scope["path"] == ORIGINAL_PATH
        message = check_message(parse_json(body), request)
        method, name = message["method"], mapping_of(message.get("params")).get("name")
        if not isinstance(name, str) or method != "tools/call":
            name = ""
        request.state.label = f"{method[:LONGEST]} {name[:LONGEST]}".strip()
        say("HTTP Transport request", method=method, id=message.get("id"))
        headers = MutableHeaders(scope=request.scope)
        accepted = headers.get("accept", "")
        if "application/json" not in accepted:
            # What the original's clients do not send.
            headers["accept"] = f"application/json, {accepted}".removesuffix(", ")
        headers["content-type"] = "application/json"
        if original and "sessionId" in request.query_params:
            session = request.query_params["sessionId"].encode("ascii", "replace")
            request.scope["query_string"] = b"session_id=" + session
            return self._streams.handle_post_message
        wants_events = STREAM in accepted and (b'"progressToken"' in body or "application/json" not in accepted)
        if original and VERSION_HEADER not in request.headers and not wants_events:
            return await self._answer_original(message, body)
        if name:
            say(f"Executing tool: {name[:LONGEST]}", key=request_scope.get().caller)
        if not original:
            # A language model reads these answers.
            request_scope.set(replace(request_scope.get(), lean=True))
        if method == "subscriptions/listen":
            return self._lasting(request, self._json.handle_request)
        return (self._events if wants_events else self._json).handle_request

    async def _answer_original(self, message: Json, body: bytes) -> Response:
        """Answer a client that reads failures in `error` and in the status, and a tool's answer in `result` itself."""
        if message["method"] != "tools/call":
            reply = await self._asking.post(ORIGINAL_PATH, content=body)
            answer: Json = parse_json(reply.content) if reply.content else {}
            if "error" not in answer:
                return Response(reply.content, reply.status_code, media_type=reply.headers.get("content-type"))
            failure: Json = answer["error"]
            if failure["code"] == types.METHOD_NOT_FOUND:
                failure["message"] = f"Method not found: {message['method'][:LONGEST]}"
            return json_reply(answer, STATUS.get(failure["code"], max(reply.status_code, 400)))
        params = mapping_of(message.get("params"))
        name: Any = params.get("name")
        arguments: Any = params.get("arguments") or {}
        if not isinstance(name, str) or not name:
            raise Refused(400, "Invalid params: name is required and must be a string", code=types.INVALID_PARAMS)
        if not isinstance(arguments, dict):
            raise Refused(400, "Invalid params: arguments must be an object", code=types.INVALID_PARAMS)
        result = tool_result(name, await self.run(name, cast(Json, arguments)))
        shown = types.CallToolResult.model_validate(result).model_dump(mode="json", by_alias=True, exclude_none=True)
        # The keys of the tool's own answer beside `content` (C3-2).
        result = {**mapping_of(shown.get("structuredContent")), **shown}
        return json_reply({"jsonrpc": "2.0", "id": message.get("id"), "result": result})

    async def open_stream(self, request: Request) -> ASGIApp:
        """GET `/api/mcp`: the original's stream; messages POSTed to the address it names are answered on it."""
        if VERSION_HEADER in request.headers:
            # A client of Streamable HTTP, which wants another kind of stream.
            raise Refused(405, "Method not allowed", headers={"allow": "POST"})
        if STREAM not in request.headers.get("accept", ""):
            raise Refused(406, "Not acceptable: send Accept: text/event-stream, or POST a message")
        key: KeyInfo = request.state.key
        request.state.label = ""
        say("MCP Connection authenticated", userId=key.id, ragId=key.rag)
        return self._lasting(request, self._serve_stream)

    async def _serve_stream(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        say("MCP Server connected via SSE", userId=scope["state"]["key"].id)

        async def with_our_name(message: Message) -> None:
            if message.get("body", b"").startswith(b"event: endpoint"):
                # The address, in which the original calls the session `sessionId`.
                message = {**message, "body": message["body"].replace(b"session_id=", b"sessionId=")}
            await send(message)

        async with self._streams.connect_sse(scope, receive, with_our_name) as (incoming, outgoing):
            dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(
                incoming, outgoing, inline_methods=frozenset({"initialize"})
            )
            # As the SDK's stateless transport: requests are answered without a handshake too (C3-6).
            connection = Connection.from_envelope(DEFAULT_NEGOTIATED_VERSION, None, None, outbound=dispatcher)
            await serve_connection(self.server, dispatcher, connection=connection, lifespan_state={})

    def _lasting(self, request: Request, app: ASGIApp) -> ASGIApp:
        """Return the app; its reply, which stays open, ends with the server, or when its key opens less than before."""
        if self.closing.is_set():
            raise Refused(503, "The server is closing", code=SERVER_ERROR)
        key: KeyInfo = request.state.key

        def still_opens() -> bool:
            try:
                now = self.open_workspace().api_keys.read(key.id)
            except LocalMCPError:
                # A file that cannot be read ends no key.
                return True
            return now is not None and now.status == "active" and now.scope() == key.scope()

        async def serve(scope: HttpScope, receive: Receive, send: Send) -> None:
            async def wait_for_end() -> None:
                while not self.closing.is_set() and await anyio.to_thread.run_sync(still_opens):
                    with anyio.move_on_after(KEY_SECONDS):
                        await self.closing.wait()

            ending = asyncio.create_task(wait_for_end())

            async def receive_until_end() -> Message:
                received = asyncio.ensure_future(receive())
                try:
                    await asyncio.wait({received, ending}, return_when=asyncio.FIRST_COMPLETED)
                    return received.result() if received.done() else {"type": "http.disconnect"}
                finally:
                    received.cancel()

            try:
                # The end looks as if the client had left: if it is cancelled, the SDK leaves its streams open.
                await app(scope, receive_until_end, send)
            finally:
                ending.cancel()
            # The SDK leaves its stream open; uvicorn refuses what comes after the end of a reply.
            with suppress(RuntimeError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        return serve


def _output(answer: Answer) -> Json:
    """Return the tool's answer as the original's HTTP layer shows it: its `data` becomes `output`."""
    value = answer.value
    if not value and answer.content and not answer.is_error:
        # A tool of a connected server that only sends blocks.
        texts = all(block.get("type") == "text" for block in answer.content)
        return {"success": True, "output": answer.text if texts else {"content": list(answer.content)}}
    if value.get("success") is False or answer.is_error:
        return {**value, "success": False, "error": str(value.get("error") or value.get("message") or answer.text)}
    return {"success": True, "output": value["data"] if value.get("success") is True and "data" in value else value}


def original_row(call: Json) -> Json:
    """Return a call as a row of the original's `mcp_logs` (`requirements.md` section 5)."""
    origin, error = mapping_of(call["origin"]), call["error"]
    return {
        "id": call["id"],
        "rag_id": next(iter(call["collections"] or ()), None),
        "apikey_id": None if call["caller"] in INTERFACES else call["caller"],
        "metadata": {
            "method": origin.get("method", "tools/call"),
            "tool": call["tool"],
            "args": call["arguments"],
            "success": call["success"],
            "error": error and (error["message"] or error["class"]),
            "duration": call["milliseconds"],
            "responseSize": call["resultBytes"],
        },
        "origin": {"ip": origin.get("ip"), "userAgent": origin.get("user_agent"), "referer": origin.get("referer")},
        "created_at": call["startedAt"],
    }


def _needed(value: Any, message: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Refused(400, message)
    return value


def _whole(request: Request, field: str, default: int, least: int) -> int:
    number = request.query_params.get(field, "")
    if not number:
        return default
    if not number.isdecimal() or not number.isascii() or len(number) > 9 or int(number) < least:
        raise Refused(400, f"{field} must be a whole number of at least {least}")
    return int(number)


def check_message(value: Any, request: Request) -> Json:
    """Return the value as a JSON-RPC message; Refused (400, -32600) in the original's words (section 5)."""
    if isinstance(value, list):
        raise Refused(400, "Invalid Request: JSON-RPC batches are not supported")
    if not isinstance(value, dict):
        raise Refused(400, "Invalid Request: a message is a JSON object")
    message = cast(Json, value)
    if type(message.get("id")) in (int, str):
        # From here on a refusal names it.
        request.state.message_id = message["id"]
    if message.get("jsonrpc") != "2.0":
        raise Refused(400, 'Invalid JSON-RPC version: must be "2.0"')
    method = message.get("method")
    if not isinstance(method, str) or not method:
        raise Refused(400, "Invalid Request: method is required and must be a string")
    if "id" in message and type(message["id"]) not in (int, str):
        raise Refused(400, "Invalid Request: id is required and must be a string or a whole number")
    is_notification = request.scope["path"] != ORIGINAL_PATH or method.startswith("notifications/")
    if "id" not in message and not is_notification:
        raise Refused(400, "Invalid Request: id is required")
    if not isinstance(message.get("params", {}), dict):
        raise Refused(400, "Invalid params: params must be an object", code=types.INVALID_PARAMS)
    return message


async def _add_top_level_keys(ctx: Context, call_next: CallNext) -> HandlerResult:
    result = await call_next(ctx)
    request: Request | None = ctx.request
    if ctx.method == "tools/call" and request is not None and request.scope["path"] == ORIGINAL_PATH:
        return {**mapping_of(mapping_of(result).get("structuredContent")), **mapping_of(result)}
    return result
