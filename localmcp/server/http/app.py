"""The HTTP server: what every request passes (host, key, size), the routes, slow clients, and an end in order."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from types import FrameType
from typing import Any, ClassVar, NoReturn

import anyio.to_thread
import h11
import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from localmcp import errors
from localmcp.activity import CallOrigin, call_origin
from localmcp.config import Settings
from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, Unavailable
from localmcp.http import LOOPBACK
from localmcp.malloc_trim import keep_returning, limit_heaps
from localmcp.schemas import Json
from localmcp.server.handshake import OpenOnce
from localmcp.server.http import endpoints
from localmcp.server.http.endpoints import LONGEST, MCP_PATHS, SERVER_ERROR, Refused, log, request_scope, say
from localmcp.server.mcp import log_incident
from localmcp.visible_text import VisibleFormatter
from localmcp.workspace import Workspace

HEALTH = "/health"
MOST_BODY, SMALL_BODY = 1 << 20, 1 << 16
"""Bytes of a request: while one is parsed, no other is answered."""
MOST_VALUES = 20_000
"""Of a request's JSON: one MB of text is parsed at once, one of empty lists within lists takes more than a second."""
TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
PARALLEL_CHECKS = 2
"""A key that was verified before costs a read of some microseconds. The first check of a key, and every check of a
wrong one, costs a bcrypt (60 ms of one core)."""
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-site",
    "cache-control": "no-store",
}


def refused_for(error: LocalMCPError) -> Refused:
    """Return the answer to an error (S3-13): 400 if the arguments caused it, 403 if the key forbids it, else 500."""
    status, code = 500, INTERNAL_ERROR
    if isinstance(error, InvalidInput | errors.NotFound | errors.UnreadableDocument):
        status, code = 400, INVALID_PARAMS
    elif isinstance(error, AccessDenied):
        status, code = 403, SERVER_ERROR
    elif isinstance(error, errors.ConfigurationError | errors.NeedsConfirmation):
        status, code = 400, SERVER_ERROR
    return Refused(status, error.message, code=code, details=error.hint)


def refusal_reply(path: str, refused: Refused, message_id: str | int | None = None) -> Response:
    """Return the refusal as callers of `path` read it, and log it."""
    # Without the words, which may repeat arguments.
    say("Request refused", path=path, status=refused.status_code, code=refused.code)
    message, more = refused.detail, {"details": refused.details} if refused.details else {}
    body: Json = {"success": False, "error": message, "code": refused.status_code, "details": message, **more}
    if path in MCP_PATHS:
        data = {"data": {"hint": refused.details}} if refused.details else {}
        error: Json = {"code": refused.code, "message": message, **data}
        body = {"jsonrpc": "2.0", "id": message_id, "error": error}
    elif path.startswith(endpoints.MANAGEMENT):
        body = {"success": False, "error": message, **more}
    elif path in endpoints.QUERY_PATHS:
        body = {"status": "error", "message": message, "error": message, **more}
    return endpoints.json_reply(body, refused.status_code, refused.headers)


class HttpApp:
    """The application: one port for MCP, the original's endpoints and key endpoints."""

    def __init__(self, open_workspace: OpenOnce, settings: Settings, host: str) -> None:
        """`host`: the address it listens on."""
        self._security = TransportSecurityMiddleware(own_names(settings, host))
        # Only pages that may call come this far, and they are told that they may.
        self._for_pages = CORSMiddleware(
            self._answer,
            allow_origin_regex=".*",
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("Authorization", "Content-Type", "Accept", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"),
            allow_private_network=True,
        )
        self.open_workspace = open_workspace
        self._checks = anyio.CapacityLimiter(PARALLEL_CHECKS)
        self._first_checks = anyio.CapacityLimiter(PARALLEL_CHECKS)
        self._guesses = anyio.CapacityLimiter(1)
        """Keys that begin as none of ours wait here, so that whoever guesses holds up only other guesses."""
        self._large_body_of_key: defaultdict[str, asyncio.Semaphore] = defaultdict(partial(asyncio.Semaphore, 1))
        self.calls = calls = endpoints.Endpoints(open_workspace)
        open_workspace.on_open(calls.server.watch)
        routes = [
            *(Route(path, calls.post, methods=["POST"]) for path in MCP_PATHS),
            Route("/api/mcp", calls.open_stream, methods=["GET"]),
            *(Route(path, calls.ask, methods=["POST"]) for path in endpoints.QUERY_PATHS),
            Route("/tools", calls.list_tools, methods=["GET"]),
            Route("/tools/{name}", calls.call_tool, methods=["POST"]),
            Route(HEALTH, calls.health, methods=["GET"]),
            Route("/api/mcp/keys/generate", calls.generate, methods=["POST"]),
            Route("/api/mcp/keys/list", calls.list_keys, methods=["GET"]),
            Route("/api/mcp/keys/revoke", calls.end_key, methods=["POST", "DELETE"]),
            Route("/api/mcp/logs", calls.logs, methods=["GET"]),
        ]
        self._router = Router(routes, redirect_slashes=False, lifespan=calls.lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        path = scope["path"].removesuffix("/") or "/"
        state: dict[str, Any] = {"label": f"{scope['method']} {path[:LONGEST]}", "status": 0}
        scope = {**scope, "app": self, "path": path, "state": state}

        async def reply(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                headers = MutableHeaders(raw=[*message.get("headers", ())])
                headers.update(SECURITY_HEADERS)
                message = {**message, "headers": headers.raw}
            await send(message)

        # Web pages under another host name (DNS rebinding), and of other origins.
        request = Request(scope)
        foreign = await self._security.validate_request(request)
        if foreign is None and len(request.headers.getlist("origin")) <= 1:
            await self._for_pages(scope, receive, reply)
            return
        status, words = (foreign.status_code, bytes(foreign.body).decode()) if foreign else (403, "Two origins")
        hint = "Use 127.0.0.1 or localhost, or allow it with the settings http_hosts and http_origins"
        refused = Refused(status, words, code=SERVER_ERROR, details=hint)
        await refusal_reply(path, refused)(scope, receive, reply)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, path, state = time.perf_counter(), scope["path"], scope["state"]
        request = Request(scope, receive)
        # Its task may inherit the variables of an earlier request on the same connection.
        request_scope.set(endpoints.NOBODY)
        try:
            if path != HEALTH:
                await self._admit(request, path)
            body = state["body"] = await self._read_body(request) if request.method in ("POST", "DELETE") else b""
            unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive_again() -> Message:
                return unread.pop() if unread else await receive()

            await self._router(scope, receive_again, send)
            if path != HEALTH and state["label"]:
                milliseconds = round((time.perf_counter() - started) * 1000, 1)
                say(f"HTTP Transport response: {state['label']}", status=state["status"], ms=milliseconds)
            return
        except ClientDisconnect:
            return
        except Refused as error:
            refused = error
        except LocalMCPError as error:
            refused = refused_for(error)
        except HTTPException as error:
            more = "See GET /tools, POST /mcp, POST /api/mcp, GET /health" if error.status_code == 404 else None
            words = "Not found" if more else "Method not allowed"
            refused = Refused(error.status_code, words, details=more, headers=error.headers)
        except Exception:
            if state["status"]:
                raise
            refused = Refused(500, log_incident(state["label"]), code=INTERNAL_ERROR)
        await refusal_reply(path, refused, state.get("message_id"))(scope, receive, send)

    async def _admit(self, request: Request, path: str) -> None:
        """Check the key, at every request: one may have been revoked; `request_scope` is its scope from here on."""
        say("HTTP Transport request received", method=request.method, path=path)
        headers, in_thread = request.headers, anyio.to_thread.run_sync
        words = headers.getlist("authorization")
        scheme, _, key = words[0].partition(" ") if len(words) == 1 else ("", "", "")
        key = key.strip() if scheme.lower() == "bearer" else ""
        try:
            if not key:
                raise AccessDenied("")
            keys = (await in_thread(self.open_workspace, limiter=self._checks)).api_keys
            limiter = self._checks
            if not keys.has_verified(key):
                begins_like_ours = await in_thread(keys.has_beginning_of, key, limiter=self._checks)
                limiter = self._first_checks if begins_like_ours else self._guesses
                if limiter.statistics().tasks_waiting >= 64:
                    raise Refused(429, "Too many requests", code=SERVER_ERROR, headers={"retry-after": "1"})
            info = await in_thread(keys.verify, key, limiter=limiter)
        except AccessDenied as error:
            # Only the holder of a key learns that it was revoked or has expired.
            problem = "Invalid API key" if key else "Missing or invalid Authorization header"
            asks = {"www-authenticate": 'Bearer realm="localmcp"'}
            details = error.message or None
            raise Refused(401, f"Unauthorized: {problem}", code=SERVER_ERROR, details=details, headers=asks) from error
        request_scope.set(info.scope())
        request.state.key = info
        # The SDK's streams belong to the user who has opened them.
        request.scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=info.id, scopes=[]))
        say("HTTP Transport authenticated", userId=info.id, ragId=info.rag)
        address = request.client.host if request.client else "unknown"
        agent, referer = (headers.get(name, "")[:LONGEST] or None for name in ("user-agent", "referer"))
        method = "tools/call" if path in MCP_PATHS else f"{request.method} {path[:LONGEST]}"
        call_origin.set(CallOrigin(address, agent, referer, method))
        if info.collections == () and not path.startswith(endpoints.MANAGEMENT):
            # S3-12: what the key was bound to has been dropped or renamed.
            gone = "RAG configuration is incomplete: the collection of this API key no longer exists"
            raise Refused(400, gone, code=SERVER_ERROR)

    async def _read_body(self, request: Request) -> bytes:
        """Return the request's body. Of each key one large body is read at a time: many at once hold up nobody else."""
        size, body = int(request.headers.get("content-length", 0)), bytearray()
        too_large = Refused(413, f"Request body too large: at most {MOST_BODY >> 20} MB are accepted")
        if size > MOST_BODY:
            raise too_large
        is_large = size > SMALL_BODY or "transfer-encoding" in request.headers
        turn = self._large_body_of_key[request_scope.get().caller]
        if is_large:
            await turn.acquire()
        started = time.perf_counter()
        try:
            async for part in request.stream():
                body += part
                if len(body) > MOST_BODY:
                    raise too_large
            if is_large and sum(map(TEXTS.sub(b"", body).count, (b",", b"]", b"}"))) > MOST_VALUES:
                raise Refused(413, f"Request body too large: at most {MOST_VALUES:,} values are accepted")
        finally:
            if is_large:
                # The next one waits, so that reading leaves most of the time for others.
                pause = min(4 * (time.perf_counter() - started), 1.0)
                asyncio.get_running_loop().call_later(pause, turn.release)
        if b"\\ud" in body.lower():
            # Neither the SDK nor pydantic takes lone surrogates; what is no JSON is refused later.
            with suppress(ValueError, RecursionError):
                return endpoints.json_bytes(json.loads(body))
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


MOST_CONNECTIONS = 4000
OTHER_FILES = 300
"""That a process has open besides its connections; of those there are fewer where it may not have both."""
REQUEST_SECONDS = 60
"""How long a request may take to arrive: to its last byte, from its first or from the start of the connection."""
FINISHING_SECONDS = 20
"""How long requests in flight may take to finish once the server is told to close."""


def set_up_logging(level: str, *, quiet: bool = False) -> None:
    """Send every log line of the process to stderr; `level` does not apply to the server's own lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("ERROR" if quiet else level.upper())
    log.setLevel("ERROR" if quiet else min(logging.INFO, logging.getLevelNamesMapping()[level.upper()]))


def run(host: str, port: int, settings: Settings, open_workspace: Callable[[], Workspace]) -> NoReturn:
    """Serve until SIGINT or SIGTERM; ends the process. Raises as `listen`."""
    sock = listen(host, port)
    limit_heaps()
    if sys.platform != "win32":
        import resource

        files, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = max(files, min(allowed, MOST_CONNECTIONS + OTHER_FILES))
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, allowed))
        TimeoutProtocol.most = min(MOST_CONNECTIONS, max(files - OTHER_FILES, files // 2))
    workspace = OpenOnce(open_workspace)
    closed = threading.Event()
    keep_returning(closed)
    asyncio.run(HttpServer(HttpApp(workspace, settings, host)).serve(sockets=[sock]))
    closed.set()
    workspace.close_within(3.0)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of abandoned calls and of native libraries would hold up an ordinary exit.
    os._exit(0)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, for port 0 at any that is free; raises Unavailable for one that cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        sock = socket.create_server(address, family=family, backlog=512, dualstack_ipv6=both)
    except (OSError, UnicodeError) as error:
        # A name such as `a..b` is none that can be looked up.
        why = str(getattr(error, "strerror", None) or error).partition(" (while ")[0]
        hint = "Choose another with --port or --host."
        raise Unavailable(f"Cannot listen on {host}, port {port}: {why}.", hint=hint) from error
    # Its connections inherit it; Nagle's algorithm costs 40 ms a reply.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class HttpServer(uvicorn.Server):
    """uvicorn's server, which says where it listens and ends streams before it waits for requests."""

    def __init__(self, app: HttpApp) -> None:
        self._app = app
        config = uvicorn.Config(
            app,
            http=TimeoutProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=FINISHING_SECONDS,
            h11_max_incomplete_event_size=32 * 1024,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for sock in sockets or ():
            await asyncio.to_thread(self._announce, *sock.getsockname()[:2])

    def _announce(self, host: str, port: int) -> None:
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        say(f"Listening on {url}", mcp=f"{url}/mcp", pid=os.getpid())
        if not is_loopback(host):
            log.warning(
                "Other machines can reach this server, and what they send and get is not encrypted. "
                "Put a proxy with TLS before it, or leave out --allow-remote."
            )
        try:
            workspace = self._app.open_workspace()
            names = [tool.name for tool in workspace.registry.tools()]
            say(f"Registered {len(names)} tools: {names}")
            if not workspace.api_keys.list():
                log.warning("There is no API key yet, so every call is refused. Make one: localmcp keys create")
            workspace.start_background()
        except LocalMCPError as error:
            log.warning("the workspace cannot be opened: %s", error)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        say("Closing: requests in flight may finish", seconds=FINISHING_SECONDS)
        # Streams would stay open for ever.
        self._app.calls.closing.set()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End gracefully at the first signal, at once at a second SIGINT; Ctrl-C waits for no program of a tool."""
        workspace = self._app.open_workspace.opened
        if sig == signal.SIGINT and workspace is not None:
            threading.Thread(target=workspace.own_tools.close, daemon=True).start()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose request arrives too slowly, or not at all.

    Of too many, the oldest that has sent no request makes room, or one that waits for its next.
    """

    _open: ClassVar[dict[TimeoutProtocol, None]] = {}
    """In the order in which they came."""
    most: ClassVar[int] = MOST_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_SECONDS, transport.abort)
        self._open[self] = None
        if len(self._open) > self.most:
            # uvicorn has no cycle before the first request, though it says otherwise.
            cycles: dict[TimeoutProtocol, Any] = {other: other.cycle for other in self._open}
            answered = (other for other, cycle in cycles.items() if cycle is not None and cycle.response_complete)
            silent = (other for other, cycle in cycles.items() if cycle is None)
            next(silent, next(answered, self)).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        arriving = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if arriving and self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
        elif not arriving:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._open.pop(self, None)
        super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
