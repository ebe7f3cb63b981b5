"""ASGI application: authentication, routing, response headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from mcp.types import INTERNAL_ERROR
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localmcp.activity import CallOrigin, call_origin
from localmcp.config import Settings
from localmcp.server.http.authentication import Authentication, forget_caller
from localmcp.server.http.exchange import Calls, Exchange
from localmcp.server.http.hosts import OwnNames
from localmcp.server.http.json_rpc import VERSION_HEADER, McpEndpoints
from localmcp.server.http.limits import ClientLeft, RateLimit, read_body
from localmcp.server.http.log_lines import LONGEST, log, say
from localmcp.server.http.management import ManagementEndpoints
from localmcp.server.http.replies import (
    MANAGEMENT,
    MCP_PATHS,
    QUERY_PATHS,
    SECURITY_HEADERS,
    SERVER_ERROR,
    Refused,
    refusal_reply,
)
from localmcp.server.http.rest import RestEndpoints
from localmcp.server.http.sse import Streams
from localmcp.server.wire_values import OpenOnce, log_incident

HEALTH = "/health"
TOOLS = "/tools"
PREFLIGHT_SECONDS = 600
NOTHING_LEFT = "RAG configuration is incomplete: the collection of this API key no longer exists"
"""S3-12: what the key was bound to has been dropped or renamed."""

Endpoint = Callable[[Exchange], Awaitable[ASGIApp]]


class HttpApp:
    """The application: one port for MCP, the original's endpoints and key management."""

    def __init__(self, open_workspace: OpenOnce, settings: Settings, host: str) -> None:
        """`host`: the address it listens on."""
        self._names = OwnNames.of(host, settings.http_hosts.split(","), settings.http_origins.split(","))
        self._body_bytes = settings.http_max_body_mb << 20
        self._authentication = Authentication(open_workspace)
        self._per_key = RateLimit(settings.http_key_requests)
        self._per_address = RateLimit(settings.http_address_requests)
        calls = Calls(open_workspace)
        self._streams = Streams(calls.wait_for_end_of)
        self._mcp = McpEndpoints(calls, self._streams)
        self._rest = RestEndpoints(calls)
        self._routes = self._make_routes(ManagementEndpoints(calls))

    def _make_routes(self, management: ManagementEndpoints) -> dict[str, dict[str, Endpoint]]:
        """Return path -> method -> what answers it; `/tools/{name}` is beside."""
        return {
            **{path: {"POST": self._mcp.post} for path in MCP_PATHS},
            "/api/mcp": {"POST": self._mcp.post, "GET": self._open_stream},
            **{path: {"POST": self._rest.ask} for path in QUERY_PATHS},
            TOOLS: {"GET": self._rest.list_tools},
            "/api/mcp/keys/generate": {"POST": management.generate},
            "/api/mcp/keys/list": {"GET": management.list_keys},
            "/api/mcp/keys/revoke": {"POST": management.revoke, "DELETE": management.delete},
            "/api/mcp/logs": {"GET": management.logs},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            await receive()
            await stack.enter_async_context(self._mcp.manager.run())
            await stack.enter_async_context(self._mcp.streaming.run())
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    def publish_change(self, changed: str) -> None:
        """As `ToolServer.publish_change`."""
        self._mcp.server.publish_change(changed)

    def drain(self) -> None:
        """End the streams, which would stay open for ever; the requests in flight go on."""
        self._streams.close()
        self._mcp.draining.set()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _path_of(scope)
        reply = _Reply(send, self._allowed_origin(scope))
        forget_caller()
        try:
            answer = await self._admit(Request(scope, receive), path)
            await answer(scope, receive, reply)
        except ClientLeft:
            return
        except Refused as refused:
            _log_refusal(path, refused)
            await refusal_reply(path, refused)(scope, receive, reply)
        except Exception:
            if reply.started:
                raise
            refusal = Refused(500, log_incident(f"{scope['method']} {path[:100]}"), code=INTERNAL_ERROR)
            await refusal_reply(path, refusal)(scope, receive, reply)

    async def _admit(self, request: Request, path: str) -> ASGIApp:
        """Return what answers the request, after every check.

        Raises:
            Refused: any of them failed.
            ClientLeft: there is nobody to answer.
        """
        self._check_names(request)
        if _is_preflight(request):
            return _preflight_reply()
        address = request.client.host if request.client else "unknown"
        self._per_address.take(address)
        if path == HEALTH:
            return await self._health(request)
        say("HTTP Transport request received", method=request.method, path=path)
        key = await self._authentication.admit(request)
        self._per_key.take(str(key.id))
        say("HTTP Transport authenticated", userId=str(key.id), ragId=_bound(key.collections))
        call_origin.set(_origin_of(request, address, path))
        if key.collections == () and not path.startswith(MANAGEMENT):
            raise Refused(400, NOTHING_LEFT, code=SERVER_ERROR)
        endpoint = self._find(path, request.method)
        body = b""
        if request.method in ("POST", "DELETE"):
            body = await read_body(request.receive, self._body_bytes, request.headers.get("content-length"))
        return await endpoint(Exchange(request, path, key, body))

    def _check_names(self, request: Request) -> None:
        """Refuse what a web page sends under another host name (DNS rebinding), or from another origin."""
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if len(hosts) != 1 or not self._names.allow_host(hosts[0]):
            raise Refused(421, "Invalid Host header", code=SERVER_ERROR, details="Use 127.0.0.1 or localhost")
        if len(origins) > 1 or not self._names.allow_origin(origins[0] if origins else None):
            raise Refused(403, "Invalid Origin header", code=SERVER_ERROR)

    async def _health(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            raise _not_allowed(("GET",))
        return await self._rest.health()

    def _find(self, path: str, method: str) -> Endpoint:
        methods = self._routes.get(path)
        if methods is None and path.startswith(TOOLS + "/") and "/" not in path[len(TOOLS) + 1 :]:
            methods = {"POST": partial(self._rest.call_tool, path[len(TOOLS) + 1 :])}
        if methods is None:
            raise Refused(404, "Not found", details="See GET /tools, POST /mcp, POST /api/mcp, GET /health")
        if method not in methods:
            raise _not_allowed(tuple(methods))
        return methods[method]

    async def _open_stream(self, exchange: Exchange) -> ASGIApp:
        """GET `/api/mcp`: the original's stream.

        Clients of Streamable HTTP, which name their version, want another kind of stream, which is not offered.
        """
        if VERSION_HEADER in exchange.request.headers:
            raise _not_allowed(("POST",))
        if "text/event-stream" not in exchange.request.headers.get("accept", ""):
            raise Refused(406, "Not acceptable: send Accept: text/event-stream, or POST a message")
        say("MCP Connection authenticated", userId=str(exchange.key.id), ragId=_bound(exchange.key.collections))
        return self._streams.open(exchange)

    def _allowed_origin(self, scope: Scope) -> str | None:
        origin = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"), None)
        return origin if origin and self._names.allow_origin(origin) else None


class _Reply:
    """`send`, with the headers that every reply carries."""

    def __init__(self, send: Send, origin: str | None) -> None:
        self._send = send
        self._origin = origin
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            if self._origin:
                headers["access-control-allow-origin"] = self._origin
                headers["access-control-expose-headers"] = "Mcp-Session-Id"
                headers["vary"] = "Origin"
            message = {**message, "headers": headers.raw}
        await self._send(message)


def _path_of(scope: Scope) -> str:
    path: str = scope["path"]
    return path[:-1] if len(path) > 1 and path.endswith("/") else path


def _bound(collections: tuple[str, ...] | None) -> str:
    return "*" if collections is None else ",".join(collections)


def _origin_of(request: Request, address: str, path: str) -> CallOrigin:
    """Return what the call log keeps of where a request came from."""
    headers = request.headers
    method = "tools/call" if path in MCP_PATHS else f"{request.method} {path[:LONGEST]}"
    agent, referer = headers.get("user-agent"), headers.get("referer")
    return CallOrigin(address, agent and agent[:LONGEST], referer and referer[:LONGEST], method)


def _not_allowed(methods: tuple[str, ...]) -> Refused:
    return Refused(405, "Method not allowed", headers={"allow": ", ".join(methods)})


def _is_preflight(request: Request) -> bool:
    """Return whether a browser asks what a page, whose origin has been checked, may send; it shows no key yet."""
    asks = "origin" in request.headers and "access-control-request-method" in request.headers
    return request.method == "OPTIONS" and asks


def _preflight_reply() -> Response:
    headers: Mapping[str, str] = {
        "access-control-allow-methods": "GET, POST, DELETE",
        "access-control-allow-headers": (
            "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id"
        ),
        "access-control-max-age": str(PREFLIGHT_SECONDS),
    }
    return Response(status_code=204, headers=headers)


def _log_refusal(path: str, refused: Refused) -> None:
    if refused.status_code >= 500:
        fields = {"path": path, "status": refused.status_code, "reason": refused.reason}
        log.warning("Request failed", extra={"fields": fields})
    else:
        say("Request refused", path=path, status=refused.status_code, reason=refused.reason)
