"""MCP over HTTP through the SDK: `/mcp` as the specification has it, `/api/mcp` with the original's stream and words.

Each POST is answered by itself, and no `initialize` is needed (C3-6).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx2
import mcp.types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.runner import serve_connection
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from mcp_types import DEFAULT_NEGOTIATED_VERSION
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localmcp.api_keys import KeyInfo
from localmcp.errors import LocalMCPError
from localmcp.schemas import mapping_of
from localmcp.server.http.endpoints import (
    LONGEST,
    SERVER_ERROR,
    Endpoints,
    Refused,
    json_bytes,
    json_reply,
    parse_json,
    refused_for,
    request_scope,
    say,
)
from localmcp.server.mcp import Context, ToolServer, tool_result
from localmcp.tools import Json

ORIGINAL_PATH = "/api/mcp"
VERSION_HEADER = "mcp-protocol-version"
STATUS = {
    PARSE_ERROR: 400, INVALID_REQUEST: 400, INVALID_PARAMS: 400,
    METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 500, SERVER_ERROR: 500,
}  # fmt: skip
"""JSON-RPC code -> HTTP status for the original's clients (S3-13)."""
STREAM = "text/event-stream"
KEY_SECONDS = 5.0
"""How often an open stream looks whether its key is still active."""


class McpEndpoints:
    """What answers on `/mcp` and `/api/mcp`."""

    def __init__(self, calls: Endpoints) -> None:
        self._calls = calls
        self.server = ToolServer(calls.open_workspace, request_scope.get)
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

    async def post(self, request: Request) -> ASGIApp:
        """Answer one message; raises Refused if it is none of JSON-RPC."""
        body, original = await request.body(), request.scope["path"] == ORIGINAL_PATH
        message = check_message(parse_json(body), original=original)
        method, name = message["method"], mapping_of(message.get("params")).get("name")
        if not isinstance(name, str) or method != "tools/call":
            name = ""
        request.state.label = f"{method[:LONGEST]} {name[:LONGEST]}".strip()
        say("HTTP Transport request", method=method, id=message.get("id"))
        if b"\\ud" in body.lower():
            body = json_bytes(message)
        if original and "sessionId" in request.query_params:
            return self._post_to_stream(request, body)
        accepted = request.headers.get("accept", "")
        wants_events = STREAM in accepted and (b'"progressToken"' in body or "application/json" not in accepted)
        if original and VERSION_HEADER not in request.headers and not wants_events:
            return await self._answer_original(request, message, body)
        if name:
            say(f"Executing tool: {name[:LONGEST]}", key=request_scope.get().caller)
        if not original:
            # A language model reads these answers.
            request_scope.set(replace(request_scope.get(), lean=True))
        if method == "subscriptions/listen":
            return self._lasting(request, _with_body(self._json.handle_request, body))
        return _with_body((self._events if wants_events else self._json).handle_request, body)

    # ------------------------------------------------------------ the original's clients

    async def _answer_original(self, request: Request, message: Json, body: bytes) -> Response:
        """Answer a client that reads failures in `error` and in the status, and a tool's answer in `result` itself."""
        if message["method"] != "tools/call":
            reply = await self._asking.post(ORIGINAL_PATH, content=body)
            answer: Json = parse_json(reply.content) if reply.content else {}
            if "error" not in answer:
                return Response(reply.content, reply.status_code, media_type=reply.headers.get("content-type"))
            failure: Json = answer["error"]
            if failure["code"] == METHOD_NOT_FOUND:
                failure["message"] = f"Method not found: {message['method'][:LONGEST]}"
            return json_reply(answer, STATUS.get(failure["code"], max(reply.status_code, 400)))
        params = mapping_of(message.get("params"))
        name: Any = params.get("name")
        arguments: Any = params.get("arguments") or {}
        try:
            if not isinstance(name, str) or not name:
                raise Refused(400, "Invalid params: name is required and must be a string", code=INVALID_PARAMS)
            if not isinstance(arguments, dict):
                raise Refused(400, "Invalid params: arguments must be an object", code=INVALID_PARAMS)
            result = tool_result(name, await self._calls.run(name, cast(Json, arguments)))
        except (LocalMCPError, Refused) as error:
            refused = error if isinstance(error, Refused) else refused_for(error)
            refused.request_id = message.get("id")
            raise refused from error
        shown = types.CallToolResult.model_validate(result).model_dump(mode="json", by_alias=True, exclude_none=True)
        return json_reply({"jsonrpc": "2.0", "id": message.get("id"), "result": with_top_level_keys(shown)})

    # ------------------------------------------------------------ streams

    async def open_stream(self, request: Request) -> ASGIApp:
        """GET `/api/mcp`: the original's stream; messages POSTed to the address it names are answered on it.

        Refused with 405 for clients of Streamable HTTP, which name their version and want another kind of stream; with
        406 for those that do not read streams.
        """
        if VERSION_HEADER in request.headers:
            raise Refused(405, "Method not allowed", headers={"allow": "POST"})
        if STREAM not in request.headers.get("accept", ""):
            raise Refused(406, "Not acceptable: send Accept: text/event-stream, or POST a message")
        key: KeyInfo = request.state.key
        request.state.label = ""
        say("MCP Connection authenticated", userId=key.id, ragId=key.rag)
        return self._lasting(request, self._serve_stream)

    async def _serve_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        say("MCP Server connected via SSE", userId=scope["state"]["key"].id)

        async def with_our_name(message: Message) -> None:
            if message.get("body", b"").startswith(b"event: endpoint"):
                # The address, in which the original calls the session `sessionId`.
                message = {**message, "body": message["body"].replace(b"session_id=", b"sessionId=")}
            await send(message)

        async with self._streams.connect_sse(_for_owner(scope), receive, with_our_name) as (incoming, outgoing):
            dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(
                incoming, outgoing, inline_methods=frozenset({"initialize"})
            )
            # As the SDK's stateless transport: requests are answered without a handshake too (C3-6).
            connection = Connection.from_envelope(DEFAULT_NEGOTIATED_VERSION, None, None, outbound=dispatcher)
            await serve_connection(self.server, dispatcher, connection=connection, lifespan_state={})

    def _post_to_stream(self, request: Request, body: bytes) -> ASGIApp:
        session = request.query_params["sessionId"].encode("ascii", "replace")

        async def post(scope: Scope, receive: Receive, send: Send) -> None:
            await self._streams.handle_post_message(
                {**_for_owner(scope), "query_string": b"session_id=" + session}, receive, send
            )

        return _with_body(post, body)

    def _lasting(self, request: Request, app: ASGIApp) -> ASGIApp:
        """Return the app; its reply, which stays open, ends with the server, or when its key opens less than before.

        To the app this looks as if the client had left. Refused with 503 while the server is closing.
        """
        if self.closing.is_set():
            raise Refused(503, "The server is closing", code=SERVER_ERROR)
        key: KeyInfo = request.state.key

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            is_open = False

            async def watched(message: Message) -> None:
                nonlocal is_open
                is_open = message["type"] == "http.response.start" or bool(message.get("more_body"))
                await send(message)

            async def receive_until_end() -> Message:
                message: Message = {"type": "http.disconnect"}

                async def take() -> None:
                    nonlocal message
                    message = await receive()
                    group.cancel_scope.cancel()

                async with anyio.create_task_group() as group:
                    group.start_soon(take)
                    await self._wait_for_end(key)
                    group.cancel_scope.cancel()
                return message

            await app(scope, receive_until_end, watched)
            if is_open:
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        return serve

    async def _wait_for_end(self, key: KeyInfo) -> None:
        """Return when the server closes, or when the key opens less than before."""
        while not self.closing.is_set():
            if not await anyio.to_thread.run_sync(self._calls.still_opens, key):
                say("The key of a stream is no longer active", key=key.id)
                return
            with anyio.move_on_after(KEY_SECONDS):
                await self.closing.wait()


# ---------------------------------------------------------------- messages


def check_message(value: Any, *, original: bool) -> Json:
    """Return the value as a JSON-RPC message; Refused (400, -32600) in the original's words (section 5)."""
    if isinstance(value, list):
        raise Refused(400, "Invalid Request: JSON-RPC batches are not supported")
    if not isinstance(value, dict):
        raise Refused(400, "Invalid Request: a message is a JSON object")
    message = cast(Json, value)
    request_id = message.get("id")
    valid_id = request_id if type(request_id) in (int, str) else None
    if message.get("jsonrpc") != "2.0":
        raise Refused(400, 'Invalid JSON-RPC version: must be "2.0"', request_id=valid_id)
    method = message.get("method")
    if not isinstance(method, str) or not method:
        raise Refused(400, "Invalid Request: method is required and must be a string", request_id=valid_id)
    if "id" in message and valid_id is None:
        raise Refused(400, "Invalid Request: id is required and must be a string or a whole number")
    if "id" not in message and original and not method.startswith("notifications/"):
        raise Refused(400, "Invalid Request: id is required")
    if not isinstance(message.get("params", {}), dict):
        raise Refused(400, "Invalid params: params must be an object", code=INVALID_PARAMS, request_id=valid_id)
    return message


def with_top_level_keys(result: Json) -> Json:
    """Return a result of tools/call with the keys of the tool's own answer beside `content` (C3-2)."""
    return {**mapping_of(result.get("structuredContent")), **result}


async def _add_top_level_keys(ctx: Context, call_next: CallNext) -> HandlerResult:
    result = await call_next(ctx)
    request: Request | None = ctx.request
    if ctx.method == "tools/call" and request is not None and request.scope["path"] == ORIGINAL_PATH:
        return with_top_level_keys(cast(Json, result))
    return result


# ---------------------------------------------------------------- the SDK behind one request


def _with_body(app: ASGIApp, body: bytes) -> ASGIApp:
    """Return the SDK's app with a body that was read, and the headers that the original's clients do not send."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers = MutableHeaders(raw=list(scope["headers"]))
        accepted = headers.get("accept", "")
        if "application/json" not in accepted:
            headers["accept"] = f"application/json, {accepted}" if accepted else "application/json"
        headers["content-type"] = "application/json"
        headers["content-length"] = str(len(body))
        await app({**scope, "headers": headers.raw}, replayed(body, receive), send)

    return serve


def _for_owner(scope: Scope) -> Scope:
    """Return the request with its key as the SDK's user, to whom alone the stream belongs."""
    key: KeyInfo = scope["state"]["key"]
    return {**scope, "user": AuthenticatedUser(AccessToken(token="", client_id=key.id, scopes=[]))}


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read already, and then goes on with `receive`."""
    unsent: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body() -> Message:
        return unsent.pop() if unsent else await receive()

    return receive_body
