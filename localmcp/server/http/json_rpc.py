"""MCP over HTTP: `/mcp` as the specification has it, `/api/mcp` with the original's statuses and result keys."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, cast

import anyio
import anyio.to_thread
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as HttpScope

from localmcp.errors import LocalMCPError
from localmcp.schemas import mapping_of, without_surrogates
from localmcp.server.handlers import Context, ToolServer, wire_result
from localmcp.server.http.authentication import request_scope, use_lean_answers
from localmcp.server.http.exchange import CALL_SECONDS, Calls, Exchange
from localmcp.server.http.log_lines import LONGEST, say
from localmcp.server.http.replies import SERVER_ERROR, Refused, json_bytes, json_reply, refusal_reply, refused_for
from localmcp.server.http.sse import Streams, stream_event
from localmcp.server.http.streamed_calls import (
    SESSION_HEADER,
    OpenQuestions,
    StreamedCall,
    asker,
    capabilities_of,
    session_id,
)
from localmcp.server.session_cache import FALLBACK_INSTRUCTIONS
from localmcp.server.wire_values import OpenOnce, log_incident
from localmcp.tools import AskPerson, Json, use_scope

ORIGINAL_PATH = "/api/mcp"
VERSION_HEADER = "mcp-protocol-version"
STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404,
    INTERNAL_ERROR: 500,
    SERVER_ERROR: 500,
}
"""JSON-RPC code -> HTTP status on `/api/mcp` (S3-13)."""
LISTEN = "subscriptions/listen"
MAY_ASK = ("tools/call", "prompts/get", "resources/read", "completion/complete")
"""Requests that reach connected servers, which may ask the person."""

_offered: ContextVar[tuple[str, ...]] = ContextVar("localmcp_offered", default=())
_instructions: ContextVar[str] = ContextVar("localmcp_instructions", default=FALLBACK_INSTRUCTIONS)


class HttpToolServer(ToolServer):
    """The MCP server behind the HTTP server: it answers in the scope of the request's key."""

    def __init__(self, open_workspace: OpenOnce) -> None:
        super().__init__(open_workspace, request_scope)
        self.offered = _offered.get

    def create_initialization_options(self, *arguments: Any, **named: Any) -> InitializationOptions:
        """As the others', without changes and subscriptions: a session of the handshake era ends with its request.

        Later clients `subscriptions/listen`.
        """
        options = super().create_initialization_options(NotificationOptions())
        if options.capabilities.resources:
            options.capabilities.resources.subscribe = False
        return options

    def person_asker(self, ctx: Context) -> AskPerson | None:
        return asker.get()

    @property
    def instructions(self) -> str | None:
        return _instructions.get()

    @instructions.setter
    def instructions(self, value: str | None) -> None:
        """Ignore the one text that the SDK sets for all callers: each has its own."""


class McpEndpoints:
    """POST on `/mcp` and `/api/mcp`: one JSON-RPC message, one reply; no session, no `initialize` needed (C3-6)."""

    def __init__(self, calls: Calls, streams: Streams) -> None:
        self._calls = calls
        self._streams = streams
        self._questions = OpenQuestions()
        self.server = HttpToolServer(calls.open_workspace)
        self.manager = StreamableHTTPSessionManager(
            self.server, json_response=True, stateless=True, max_request_body_size=2**31
        )
        self.streaming = StreamableHTTPSessionManager(self.server, stateless=True, max_request_body_size=2**31)
        """Answers with a stream of events, for clients that want progress or can be asked."""
        self.draining = anyio.Event()
        """Set when the server closes, to end the streams that would stay open."""

    async def post(self, exchange: Exchange) -> ASGIApp:
        """Answer one message.

        Raises:
            Refused: it is no message of JSON-RPC.
        """
        message = check_message(exchange.json(), exchange.path)
        method, request_id = message.get("method"), message.get("id")
        if not method and self._questions.close(str(exchange.key.id), message):
            return Response(status_code=202)
        say("HTTP Transport request", method=method, id=request_id)
        session = exchange.query.get("sessionId")
        if exchange.path == ORIGINAL_PATH and session is not None:
            return self._streams.accept(session, exchange, lambda: self._reply_value(exchange, message))
        if method == LISTEN:
            return self._listening(exchange)
        if exchange.path != ORIGINAL_PATH:
            use_lean_answers()
            if _wants_stream(exchange, message):
                return self._streamed(exchange, message.get("id"))
        reply = await self._reply(exchange, message)
        exchange.log_response(reply.status_code, f"{str(method)[:LONGEST]} {_tool_name(message)}".strip())
        if _wants_stream_only(exchange) and reply.status_code == 200:
            reply = _as_stream(reply)
        if method == "initialize" and exchange.path != ORIGINAL_PATH and (session := session_id(message.get("params"))):
            reply.headers[SESSION_HEADER] = session
        return reply

    def _streamed(self, exchange: Exchange, call_id: Any) -> ASGIApp:
        scope, body = exchange.request.scope, exchange.body

        async def ask_sdk(receive: Receive, send: Send) -> None:
            await self.streaming.handle_request(_for_sdk(scope, body), _replay(body, receive), send)

        session = exchange.request.headers.get(SESSION_HEADER, "")
        return StreamedCall(ask_sdk, self._questions, str(exchange.key.id), session, call_id)

    def _listening(self, exchange: Exchange) -> ASGIApp:
        """Return a stream of notifications (`subscriptions/listen`), which ends with its key or with the server."""
        body = exchange.body

        async def listen(scope: HttpScope, receive: Receive, send: Send) -> None:
            is_open = False

            async def watched(message: Message) -> None:
                nonlocal is_open
                is_open = message["type"] == "http.response.start" or bool(message.get("more_body"))
                await send(message)

            async def stop_after(end: Callable[[], Awaitable[Any]]) -> None:
                await end()
                group.cancel_scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(stop_after, self.draining.wait)
                group.start_soon(stop_after, partial(self._calls.wait_for_end_of, str(exchange.key.id)))
                await self.manager.handle_request(_for_sdk(scope, body), _replay(body, receive), watched)
                group.cancel_scope.cancel()
            if is_open:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        return listen

    async def _reply_value(self, exchange: Exchange, message: Json) -> Json | None:
        """Return the reply as a stream carries it; None where none is owed."""
        try:
            reply = await self._reply(exchange, message)
        except Refused as refused:
            refused.request_id = message.get("id")
            reply = refusal_reply(exchange.path, refused)
        except Exception:
            refusal = Refused(500, log_incident(message["method"]), code=INTERNAL_ERROR, request_id=message.get("id"))
            reply = refusal_reply(exchange.path, refusal)
        return json.loads(bytes(reply.body)) if reply.body else None

    async def _reply(self, exchange: Exchange, message: Json) -> Response:
        await self._prepare_instructions(message)
        original = exchange.path == ORIGINAL_PATH
        if original and message["method"] == "tools/call" and not _is_mcp_client(exchange):
            return await self._call_as_original(message)
        body = exchange.body
        if b"\\ud" in body.lower():
            # The SDK refuses lone surrogates; each becomes U+FFFD, as on stdio.
            body = json_bytes(without_surrogates(message))
        if name := _tool_name(message):
            say(f"Executing tool: {name}", key=request_scope().caller)
        with anyio.move_on_after(CALL_SECONDS):
            reply = await _ask_sdk(self.manager.handle_request, exchange, body)
            return _in_original_form(reply, message) if original else reply
        raise Refused(504, f"No answer within {CALL_SECONDS:g} s", code=SERVER_ERROR, request_id=message.get("id"))

    async def _call_as_original(self, message: Json) -> Response:
        """Answer tools/call of the original's clients, which read errors in `error` and results in `result` itself."""
        request_id = message.get("id")
        try:
            name, arguments = _call_parameters(message.get("params"))
            answer = await self._calls.run(name, arguments)
        except LocalMCPError as error:
            raise refused_for(error, request_id) from error
        except Refused as refused:
            refused.request_id = request_id
            raise
        result = wire_result(name, answer).model_dump(mode="json", by_alias=True, exclude_none=True)
        return json_reply({"jsonrpc": "2.0", "id": request_id, "result": with_top_level_keys(result)})

    async def _prepare_instructions(self, message: Json) -> None:
        if message.get("method") in ("initialize", "server/discover"):
            _instructions.set(await anyio.to_thread.run_sync(self._instructions))
            _offered.set(await anyio.to_thread.run_sync(self.server.available_offers))

    def _instructions(self) -> str:
        """Return what the caller is told about the file; a general text if it cannot be read."""
        try:
            with use_scope(request_scope()):
                return without_surrogates(self._calls.open_workspace().instructions())
        except LocalMCPError:
            return FALLBACK_INSTRUCTIONS


# ---------------------------------------------------------------- messages


def check_message(value: Any, path: str) -> Json:
    """Return the value as a JSON-RPC message; errors have the original's words (`requirements.md` section 5).

    Raises:
        Refused: 400 with -32600.
    """
    if isinstance(value, list):
        raise Refused(400, "Invalid Request: JSON-RPC batches are not supported")
    if not isinstance(value, dict):
        raise Refused(400, "Invalid Request: a message is a JSON object")
    message = cast(Json, value)
    request_id = message.get("id")
    valid_id = request_id if type(request_id) in (int, str) else None
    if message.get("jsonrpc") != "2.0":
        raise Refused(400, 'Invalid JSON-RPC version: must be "2.0"', request_id=valid_id)
    if path != ORIGINAL_PATH and "method" not in message and ("result" in message or "error" in message):
        # A reply to a request of ours. The SDK accepts it and ignores it.
        return {**message, "method": ""}
    method = message.get("method")
    if not isinstance(method, str) or not method:
        raise Refused(400, "Invalid Request: method is required and must be a string", request_id=valid_id)
    if "id" in message and valid_id is None:
        raise Refused(400, "Invalid Request: id is required and must be a string or a whole number")
    if "id" not in message and path == ORIGINAL_PATH and not method.startswith("notifications/"):
        raise Refused(400, "Invalid Request: id is required")
    if not isinstance(message.get("params", {}), dict):
        raise Refused(400, "Invalid params: params must be an object", code=INVALID_PARAMS, request_id=valid_id)
    return message


def _call_parameters(params: Any) -> tuple[str, Json]:
    table = mapping_of(params)
    name, arguments = table.get("name"), table.get("arguments")
    if not isinstance(name, str) or not name:
        raise Refused(400, "Invalid params: name is required and must be a string", code=INVALID_PARAMS)
    if arguments is not None and not isinstance(arguments, dict):
        raise Refused(400, "Invalid params: arguments must be an object", code=INVALID_PARAMS)
    return without_surrogates(name), without_surrogates(cast(Json, arguments or {}))


def _tool_name(message: Json) -> str:
    """Return the tool that is to be called; empty for other methods."""
    params = message.get("params")
    name = mapping_of(params).get("name")
    return name[:LONGEST] if isinstance(name, str) and message.get("method") == "tools/call" else ""


def with_top_level_keys(result: Json) -> Json:
    """Return a result of tools/call with the keys of the tool's own answer beside `content` (C3-2)."""
    value = result.get("structuredContent")
    return {**mapping_of(value), **result}


def _is_mcp_client(exchange: Exchange) -> bool:
    """Return whether a client of the protocol asks: it names its version, or came by the stream.

    It reads failures of tools in results marked `isError`; the original's clients read them in `error`.
    """
    return VERSION_HEADER in exchange.request.headers or "sessionId" in exchange.query


def _in_original_form(reply: Response, message: Json) -> Response:
    """Return the SDK's reply with the original's statuses and texts, and the keys of the tool's answer."""
    calling = message["method"] == "tools/call"
    if not reply.body or (not calling and reply.status_code == 200 and b'"result"' in bytes(reply.body)[:200]):
        return reply
    reply_body: Json = json.loads(bytes(reply.body))
    if "error" not in reply_body:
        return json_reply(
            {**reply_body, "result": with_top_level_keys(reply_body["result"])} if calling else reply_body
        )
    error: Json = reply_body["error"]
    if error["code"] == METHOD_NOT_FOUND:
        error["message"] = f"Method not found: {without_surrogates(message['method'])[:200]}"
    return json_reply(reply_body, STATUS.get(error["code"], max(reply.status_code, 400)))


# ---------------------------------------------------------------- the SDK behind one message


async def _ask_sdk(app: ASGIApp, exchange: Exchange, body: bytes) -> Response:
    """Return the SDK's reply to a message, as a whole."""
    status, headers, parts = 500, MutableHeaders(), list[bytes]()

    async def send(message: Message) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], MutableHeaders(raw=message.get("headers", []))
        else:
            parts.append(message.get("body", b""))

    await app(_for_sdk(exchange.request.scope, body), _replay(body), send)
    content = b"".join(parts)
    passed_on = {name: value for name, value in headers.items() if name not in ("content-length", "content-type")}
    if status >= 400 and headers.get("content-type", "").partition(";")[0] != "application/json":
        # 405 and 406 of the SDK have no body, or plain text.
        raise Refused(status, content.decode("utf-8", "replace") or "Not acceptable", headers=passed_on)
    return Response(content, status, passed_on, headers.get("content-type"))


def _for_sdk(scope: HttpScope, body: bytes) -> HttpScope:
    """Return the request with the headers that the SDK requires and the original's clients do not send."""
    headers = MutableHeaders(raw=list(scope["headers"]))
    accepted = headers.get("accept", "")
    if "application/json" not in accepted:
        headers["accept"] = f"application/json, {accepted}" if accepted else "application/json"
    headers["content-type"] = "application/json"
    headers["content-length"] = str(len(body))
    return {**scope, "headers": headers.raw}


def _replay(body: bytes, receive: Receive | None = None) -> Receive:
    sent = False

    async def receive_again() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        if receive is not None:
            return await receive()
        await anyio.sleep_forever()
        raise AssertionError("never")

    return receive_again


def _wants_stream(exchange: Exchange, message: Json) -> bool:
    """Return whether a call is answered by a stream: its client reads one, and wants progress or can be asked."""
    if message["method"] not in MAY_ASK or "text/event-stream" not in exchange.request.headers.get("accept", ""):
        return False
    asked: Any = cast(Json, message.get("params") or {}).get("_meta")
    wants_progress = isinstance(asked, dict) and "progressToken" in asked
    can_be_asked = capabilities_of(exchange.request.headers.get(SESSION_HEADER, "")) is not None
    return (wants_progress or can_be_asked) and b"\\ud" not in exchange.body.lower()


def _wants_stream_only(exchange: Exchange) -> bool:
    """Return whether the client accepts `text/event-stream` alone (C3-1)."""
    accepted = exchange.request.headers.get("accept", "")
    return "text/event-stream" in accepted and "application/json" not in accepted and "*/*" not in accepted


def _as_stream(reply: Response) -> Response:
    return Response(stream_event("message", bytes(reply.body)), 200, {"cache-control": "no-cache"}, "text/event-stream")
