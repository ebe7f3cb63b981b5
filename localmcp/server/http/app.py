"""ASGI application: what every request passes (host, key, size), the routes, and the headers of every reply."""

from __future__ import annotations

import time

from mcp.types import INTERNAL_ERROR
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from localmcp.activity import CallOrigin, call_origin
from localmcp.config import Settings
from localmcp.server.http.authentication import Authentication, forget_caller
from localmcp.server.http.calls import Calls
from localmcp.server.http.endpoints import ManagementEndpoints, ToolEndpoints
from localmcp.server.http.hosts import OwnNames
from localmcp.server.http.log_lines import LONGEST, log, say
from localmcp.server.http.mcp import McpEndpoints
from localmcp.server.http.replies import (
    MANAGEMENT,
    MCP_PATHS,
    QUERY_PATHS,
    SECURITY_HEADERS,
    SERVER_ERROR,
    Refused,
    refusal_reply,
)
from localmcp.server.opening import OpenOnce
from localmcp.server.results import log_incident

HEALTH = "/health"
MOST_BODY = 1 << 20
"""Bytes of a request: while one is parsed, no other is answered."""
NOTHING_LEFT = "RAG configuration is incomplete: the collection of this API key no longer exists"
"""S3-12: what the key was bound to has been dropped or renamed."""
PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": (
        "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id"
    ),
    "access-control-max-age": "600",
}


class HttpApp:
    """The application: one port for MCP, the original's endpoints and key management."""

    def __init__(self, open_workspace: OpenOnce, settings: Settings, host: str) -> None:
        """`host`: the address it listens on."""
        self._names = OwnNames.of(host, settings.http_hosts.split(","), settings.http_origins.split(","))
        self._authentication = Authentication(open_workspace)
        calls = Calls(open_workspace)
        self._mcp, tools, management = McpEndpoints(calls), ToolEndpoints(calls), ManagementEndpoints(calls)
        self.publish_change = self._mcp.server.publish_change
        routes = [
            *(Route(path, self._mcp.post, methods=["POST"]) for path in MCP_PATHS),
            Route("/mcp", self._mcp.session, methods=["GET", "DELETE"]),
            Route("/api/mcp", self._mcp.open_stream, methods=["GET"]),
            *(Route(path, tools.ask, methods=["POST"]) for path in QUERY_PATHS),
            Route("/tools", tools.list_tools, methods=["GET"]),
            Route("/tools/{name}", tools.call_tool, methods=["POST"]),
            Route(HEALTH, tools.health, methods=["GET"]),
            Route("/api/mcp/keys/generate", management.generate, methods=["POST"]),
            Route("/api/mcp/keys/list", management.list_keys, methods=["GET"]),
            Route("/api/mcp/keys/revoke", management.revoke, methods=["POST"]),
            Route("/api/mcp/keys/revoke", management.delete, methods=["DELETE"]),
            Route("/api/mcp/logs", management.logs, methods=["GET"]),
        ]
        self._router = Router(routes, redirect_slashes=False, lifespan=self._mcp.lifespan)

    def drain(self) -> None:
        """End the streams, which would stay open for ever; the requests in flight go on."""
        self._mcp.closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        started, path = time.perf_counter(), scope["path"].removesuffix("/") or "/"
        label = f"{scope['method']} {path[:LONGEST]}"
        scope = {**scope, "app": self, "path": path, "state": {"label": label}}
        request = Request(scope, receive)
        forget_caller()
        # Each reply tells a page of this machine that it may read it; others are refused.
        origin = request.headers.get("origin")
        reply = _Reply(send, origin if self._names.allow_origin(origin) else None)
        try:
            if (answer := await self._admit(request, path)) is not None:
                await answer(scope, receive, reply)
                return
            body = await _read_body(request) if request.method in ("POST", "DELETE") else b""
            await self._router(scope, _replay(body, receive), reply)
        except ClientDisconnect:
            return
        except HTTPException as error:
            refused = error if isinstance(error, Refused) else _no_route(error)
            _log_refusal(path, refused)
            await refusal_reply(path, refused)(scope, receive, reply)
        except Exception:
            if reply.status:
                raise
            refused = Refused(500, log_incident(label), code=INTERNAL_ERROR)
            await refusal_reply(path, refused)(scope, receive, reply)
        else:
            if path != HEALTH and (label := scope["state"]["label"]):
                milliseconds = round((time.perf_counter() - started) * 1000, 1)
                say(f"HTTP Transport response: {label}", status=reply.status, ms=milliseconds)

    async def _admit(self, request: Request, path: str) -> Response | None:
        """Check where a request comes from and its key; return the answer of a preflight, None for the others.

        Raises:
            Refused: any check failed.
        """
        # Web pages under another host name (DNS rebinding), and of other origins.
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if len(hosts) != 1 or not self._names.allow_host(hosts[0]):
            raise Refused(421, "Invalid Host header", code=SERVER_ERROR, details="Use 127.0.0.1 or localhost")
        if len(origins) > 1 or not self._names.allow_origin(origins[0] if origins else None):
            raise Refused(403, "Invalid Origin header", code=SERVER_ERROR)
        if request.method == "OPTIONS" and origins and "access-control-request-method" in request.headers:
            # A browser asks what a page may send; it shows no key yet.
            return Response(status_code=204, headers=PREFLIGHT)
        if path == HEALTH:
            return None
        say("HTTP Transport request received", method=request.method, path=path)
        key = await self._authentication.admit(request)
        request.state.key = key
        say("HTTP Transport authenticated", userId=key.id, ragId=key.rag)
        call_origin.set(_origin_of(request, path))
        if key.collections == () and not path.startswith(MANAGEMENT):
            raise Refused(400, NOTHING_LEFT, code=SERVER_ERROR)
        return None


class _Reply:
    """`send`, with the headers that every reply carries."""

    def __init__(self, send: Send, origin: str | None) -> None:
        self._send = send
        self._origin = origin
        self.status = 0
        """0 until the reply has begun."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            for name, value in SECURITY_HEADERS.items():
                headers[name] = value
            if self._origin:
                headers["access-control-allow-origin"] = self._origin
                headers["access-control-expose-headers"] = "Mcp-Session-Id"
                headers["vary"] = "Origin"
            message = {**message, "headers": headers.raw}
        await self._send(message)


async def _read_body(request: Request) -> bytes:
    """Return the request's body.

    Raises:
        Refused: 413, more than MOST_BODY bytes.
        ClientDisconnect: there is nobody to answer.
    """
    declared, body = request.headers.get("content-length", ""), bytearray()
    too_large = Refused(413, f"Request body too large: at most {MOST_BODY >> 20} MB are accepted")
    if declared.isdecimal() and int(declared[:20]) > MOST_BODY:
        raise too_large
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            raise too_large
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    unsent: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body() -> Message:
        return unsent.pop() if unsent else await receive()

    return receive_body


def _origin_of(request: Request, path: str) -> CallOrigin:
    """Return what the call log keeps of where a request came from."""
    headers, address = request.headers, request.client.host if request.client else "unknown"
    method = "tools/call" if path in MCP_PATHS else f"{request.method} {path[:LONGEST]}"
    agent, referer = headers.get("user-agent"), headers.get("referer")
    return CallOrigin(address, agent and agent[:LONGEST], referer and referer[:LONGEST], method)


def _no_route(error: HTTPException) -> Refused:
    if error.status_code == 404:
        return Refused(404, "Not found", details="See GET /tools, POST /mcp, POST /api/mcp, GET /health")
    return Refused(error.status_code, "Method not allowed", headers=error.headers)


def _log_refusal(path: str, refused: Refused) -> None:
    if refused.status_code >= 500:
        fields = {"path": path[:LONGEST], "status": refused.status_code, "reason": refused.reason}
        log.warning("Request failed", extra={"fields": fields})
    else:
        say("Request refused", path=path, status=refused.status_code, reason=refused.reason)
