"""ASGI application: what every request passes (host, key, size), the routes, and the headers of every reply."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from functools import partial
from ipaddress import ip_address

import anyio
import anyio.to_thread
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.types import INTERNAL_ERROR
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from localmcp.activity import CallOrigin, call_origin
from localmcp.api_keys import KeyInfo
from localmcp.config import Settings
from localmcp.errors import AccessDenied, LocalMCPError
from localmcp.http import LOOPBACK
from localmcp.server.http.endpoints import NOBODY, Endpoints, request_scope
from localmcp.server.http.mcp import McpEndpoints, replayed
from localmcp.server.http.replies import (
    LONGEST,
    MANAGEMENT,
    MCP_PATHS,
    QUERY_PATHS,
    SERVER_ERROR,
    Refused,
    has_many_values,
    refusal_reply,
    refused_for,
    say,
)
from localmcp.server.mcp import log_incident
from localmcp.server.opening import OpenOnce

HEALTH = "/health"
MOST_BODY, SMALL_BODY = 1 << 20, 1 << 16
"""Bytes of a request: while one is parsed, no other is answered."""
MOST_VALUES = 20_000
"""Of a request's JSON: one MB of text is parsed at once, one of numbers takes half a second."""
PARALLEL_CHECKS = 2
"""A key that was verified before costs a read of some microseconds. The first check of a key, and every check of a
wrong one, costs a bcrypt (60 ms of one core)."""
MOST_WAITING = 64
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-site",
    "cache-control": "no-store",
}


def _unauthorized(request: Request, message: str, details: str | None = None) -> Refused:
    say("Unauthorized", path=request.url.path, reason=message)
    headers = {"www-authenticate": 'Bearer realm="localmcp"'}
    return Refused(401, f"Unauthorized: {message}", code=SERVER_ERROR, details=details, headers=headers)


class HttpApp:
    """The application: one port for MCP, the original's endpoints and key endpoints."""

    def __init__(self, open_workspace: OpenOnce, settings: Settings, host: str) -> None:
        """`host`: the address it listens on."""
        self._security = TransportSecurityMiddleware(own_names(settings, host))
        self._open_workspace = open_workspace
        self._checks = anyio.CapacityLimiter(PARALLEL_CHECKS)
        self._first_checks = anyio.CapacityLimiter(PARALLEL_CHECKS)
        self._guesses = anyio.CapacityLimiter(1)
        """Keys that begin as none of ours wait here, so that whoever guesses holds up only other guesses."""
        self._large_bodies: defaultdict[str, asyncio.Semaphore] = defaultdict(partial(asyncio.Semaphore, 1))
        """By key."""
        endpoints = Endpoints(open_workspace)
        self._mcp = McpEndpoints(endpoints)
        self.server = self._mcp.server
        routes = [
            *(Route(path, self._mcp.post, methods=["POST"]) for path in MCP_PATHS),
            Route("/api/mcp", self._mcp.open_stream, methods=["GET"]),
            *(Route(path, endpoints.ask, methods=["POST"]) for path in QUERY_PATHS),
            Route("/tools", endpoints.list_tools, methods=["GET"]),
            Route("/tools/{name}", endpoints.call_tool, methods=["POST"]),
            Route(HEALTH, endpoints.health, methods=["GET"]),
            Route("/api/mcp/keys/generate", endpoints.generate, methods=["POST"]),
            Route("/api/mcp/keys/list", endpoints.list_keys, methods=["GET"]),
            Route("/api/mcp/keys/revoke", endpoints.end_key, methods=["POST", "DELETE"]),
            Route("/api/mcp/logs", endpoints.logs, methods=["GET"]),
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
        status = 0
        # Its task may inherit the variables of an earlier request on the same connection.
        request_scope.set(NOBODY)

        async def reply(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=[*message.get("headers", ())])
                headers.update(SECURITY_HEADERS)
                if origin := scope["state"].get("origin"):
                    headers["access-control-allow-origin"] = origin
                    headers["vary"] = "Origin"
                message = {**message, "headers": headers.raw}
            await send(message)

        try:
            if (answer := await self._admit(request, path)) is not None:
                await answer(scope, receive, reply)
                return
            body = await self._read_body(request) if request.method in ("POST", "DELETE") else b""
            await self._router(scope, replayed(body, receive), reply)
        except ClientDisconnect:
            return
        except HTTPException as error:
            refused = error
            if not isinstance(refused, Refused):
                more = "See GET /tools, POST /mcp, POST /api/mcp, GET /health" if error.status_code == 404 else None
                words = "Not found" if more else "Method not allowed"
                refused = Refused(error.status_code, words, details=more, headers=error.headers)
            # What is refused below a path may repeat arguments.
            say("Request refused", path=path, status=refused.status_code, code=refused.code)
            await refusal_reply(path, refused)(scope, receive, reply)
        except Exception:
            if status:
                raise
            refused = Refused(500, log_incident(label), code=INTERNAL_ERROR)
            await refusal_reply(path, refused)(scope, receive, reply)
        else:
            if path != HEALTH and (label := scope["state"]["label"]):
                milliseconds = round((time.perf_counter() - started) * 1000, 1)
                say(f"HTTP Transport response: {label}", status=status, ms=milliseconds)

    async def _admit(self, request: Request, path: str) -> Response | None:
        """Check where a request comes from and its key; return the answer of a preflight, None for the others.

        Raises Refused if any check failed.
        """
        # Web pages under another host name (DNS rebinding), and of other origins.
        foreign = await self._security.validate_request(request)
        if foreign is not None or len(request.headers.getlist("origin")) > 1:
            status, words = (foreign.status_code, bytes(foreign.body).decode()) if foreign else (403, "Two origins")
            raise Refused(status, words, code=SERVER_ERROR, details="Use 127.0.0.1 or localhost")
        # Each reply tells a page of this machine that it may read it.
        request.state.origin = request.headers.get("origin")
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            # A browser asks what a page may send; it shows no key yet.
            allowed = "Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name"
            return Response(
                status_code=204,
                headers={
                    "access-control-allow-methods": "GET, POST, DELETE",
                    "access-control-allow-headers": allowed,
                },
            )
        if path == HEALTH:
            return None
        say("HTTP Transport request received", method=request.method, path=path)
        key = await self._authenticate(request)
        request.state.key = key
        say("HTTP Transport authenticated", userId=key.id, ragId=key.rag)
        headers, address = request.headers, request.client.host if request.client else "unknown"
        method = "tools/call" if path in MCP_PATHS else f"{request.method} {path[:LONGEST]}"
        agent, referer = headers.get("user-agent", "")[:LONGEST], headers.get("referer", "")[:LONGEST]
        call_origin.set(CallOrigin(address, agent or None, referer or None, method))
        if key.collections == () and not path.startswith(MANAGEMENT):
            # S3-12: what the key was bound to has been dropped or renamed.
            gone = "RAG configuration is incomplete: the collection of this API key no longer exists"
            raise Refused(400, gone, code=SERVER_ERROR)
        return None

    async def _authenticate(self, request: Request) -> KeyInfo:
        """Return the key in the one Authorization header; from here on `request_scope` is its scope.

        It is checked at every request, so that a key revoked a moment ago is refused. Raises Refused: 401; 429 when too
        many keys wait to be checked; 500 when the file that holds them cannot be read.
        """
        headers = request.headers.getlist("authorization")
        scheme, _, key = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            raise _unauthorized(request, "Missing or invalid Authorization header")
        if len(key) > 200 or not key.isascii():
            raise _unauthorized(request, "Invalid API key")
        in_thread = anyio.to_thread.run_sync
        try:
            keys = (await in_thread(self._open_workspace, limiter=self._checks)).api_keys
            limiter = self._checks
            if not keys.has_verified(key):
                begins_like_ours = await in_thread(keys.has_beginning_of, key, limiter=self._checks)
                limiter = self._first_checks if begins_like_ours else self._guesses
            if limiter is not self._checks and limiter.statistics().tasks_waiting >= MOST_WAITING:
                raise Refused(429, "Too many requests", code=SERVER_ERROR, headers={"retry-after": "1"})
            info = await in_thread(keys.verify, key, limiter=limiter)
        except AccessDenied as error:
            # Only the holder of a key learns that it was revoked or has expired.
            raise _unauthorized(request, "Invalid API key", error.message) from error
        except LocalMCPError as error:
            raise refused_for(error) from error
        request_scope.set(info.scope())
        return info

    async def _read_body(self, request: Request) -> bytes:
        """Return the request's body. Of each key one large body is read at a time: many at once hold up nobody else.

        Raises Refused (413) for more than MOST_BODY bytes or MOST_VALUES values, ClientDisconnect if nobody is there.
        """
        declared, body = request.headers.get("content-length", "0"), bytearray()
        size = int(declared[:20]) if declared.isdecimal() else 0
        too_large = Refused(413, f"Request body too large: at most {MOST_BODY >> 20} MB are accepted")
        if size > MOST_BODY:
            raise too_large
        is_large = size > SMALL_BODY or "transfer-encoding" in request.headers
        turn = self._large_bodies[request_scope.get().caller]
        if is_large:
            await turn.acquire()
        started = time.perf_counter()
        try:
            async for part in request.stream():
                body += part
                if len(body) > MOST_BODY:
                    raise too_large
            if is_large and await anyio.to_thread.run_sync(has_many_values, bytes(body), MOST_VALUES):
                raise Refused(413, f"Request body too large: at most {MOST_VALUES:,} values are accepted")
        finally:
            if is_large:
                # The next one waits, so that reading leaves most of the time for others.
                pause = min(4 * (time.perf_counter() - started), 1.0)
                asyncio.get_running_loop().call_later(pause, turn.release)
        return bytes(body)


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can only be reached from this machine."""
    try:
        return host in LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        return False


def own_names(settings: Settings, host: str) -> TransportSecuritySettings:
    """Return the names under which the server may be addressed, and the origins of web pages that may call.

    A server that other machines reach cannot know its names; there the key alone decides, which no foreign page has.
    """
    further = [name.strip().lower() for name in settings.http_hosts.split(",") if name.strip()]
    names = [f"[{name}]" if ":" in name else name for name in (*LOOPBACK, host, *further)]
    origins = [origin.strip().lower().rstrip("/") for origin in settings.http_origins.split(",") if origin.strip()]
    origins += [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=is_loopback(host),
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[*origins, *(f"{origin}:*" for origin in origins)],
    )
