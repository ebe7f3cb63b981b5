"""The HTTP server: its socket, deadlines for slow clients, and an end that lets the requests in flight finish."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar, NoReturn

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from localmcp.config import Settings
from localmcp.errors import LocalMCPError, Unavailable
from localmcp.malloc_trim import keep_returning, limit_heaps
from localmcp.server.http.app import HttpApp, is_loopback
from localmcp.server.http.replies import log, say
from localmcp.server.opening import OpenOnce, close_within
from localmcp.visible_text import VisibleFormatter
from localmcp.workspace import Workspace

MOST_CONNECTIONS = 4000
OTHER_FILES = 300
"""That a process has open besides its connections; of those there are fewer where it may not have both."""
REQUEST_SECONDS = 60
"""How long a request may take to arrive: to its last byte, from its first or from the start of the connection."""
FINISHING_SECONDS = 20
"""How long requests in flight may take to finish once the server is told to close."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 = any that is free."""

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


def set_up_logging(level: str, *, quiet: bool = False) -> None:
    """Send every log line of the process to stderr; `level` does not apply to the server's own lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("ERROR" if quiet else level.upper())
    log.setLevel("ERROR" if quiet else min(logging.INFO, logging.getLevelNamesMapping()[level.upper()]))


def run(address: Address, settings: Settings, open_workspace: Callable[[], Workspace]) -> NoReturn:
    """Serve until SIGINT or SIGTERM; ends the process. Raises as `listen`."""
    sock = listen(address)
    limit_heaps()
    if sys.platform != "win32":
        import resource

        files, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = max(files, min(allowed, MOST_CONNECTIONS + OTHER_FILES))
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, allowed))
        TimeoutProtocol.most = min(MOST_CONNECTIONS, max(files - OTHER_FILES, files // 2))

    def open_and_watch() -> Workspace:
        opened = open_workspace()
        app.server.watch(opened)
        return opened

    workspace = OpenOnce(open_and_watch)
    app = HttpApp(workspace, settings, address.host)
    server = HttpServer(uvicorn_config(app), app, Address(address.host, sock.getsockname()[1]), workspace)
    closed = threading.Event()
    keep_returning(closed)
    asyncio.run(server.serve(sockets=[sock]))
    closed.set()
    if workspace.opened is not None:
        close_within(3.0, workspace.opened.close)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of abandoned calls and of native libraries would hold up an ordinary exit.
    os._exit(0)


def listen(address: Address) -> socket.socket:
    """Return a listening socket; raises Unavailable for an address that is taken, or not one of this machine."""
    sock = None
    try:
        family, _, _, _, socket_address = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        # asyncio turns Nagle's algorithm off (40 ms a reply) only for sockets that name their protocol.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if sys.platform != "win32":
            # On Windows the option would let another program take the same port.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(socket_address)
        sock.listen(512)
    except (OSError, UnicodeError) as error:
        if sock is not None:
            sock.close()
        # A name such as `a..b` is none that can be looked up.
        why = getattr(error, "strerror", None) or error
        hint = "Choose another with --port or --host."
        raise Unavailable(f"Cannot listen on {address.url}: {why}.", hint=hint) from error
    return sock


def uvicorn_config(app: HttpApp) -> uvicorn.Config:
    """Return the settings of uvicorn."""
    return uvicorn.Config(
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


class HttpServer(uvicorn.Server):
    """uvicorn's server, which says where it listens and ends streams before it waits for requests."""

    def __init__(self, config: uvicorn.Config, app: HttpApp, address: Address, workspace: OpenOnce) -> None:
        super().__init__(config)
        self._app = app
        self._address = address
        self._workspace = workspace

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await asyncio.to_thread(self._announce)

    def _announce(self) -> None:
        address = self._address
        say(f"Listening on {address.url}", mcp=f"{address.url}/mcp", pid=os.getpid())
        if not is_loopback(address.host):
            log.warning(
                "Other machines can reach this server, and what they send and get is not encrypted. "
                "Put a proxy with TLS before it, or leave out --allow-remote."
            )
        try:
            workspace = self._workspace()
            names = [tool.name for tool in workspace.registry.tools()]
            say(f"Registered {len(names)} tools: {names}")
            if not workspace.api_keys.list():
                log.warning("There is no API key yet, so every call is refused. Make one: localmcp keys create")
        except LocalMCPError as error:
            log.warning("the workspace cannot be opened: %s", error)
            return
        workspace.start_background()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        say("Closing: requests in flight may finish", seconds=FINISHING_SECONDS)
        self._app.drain()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End gracefully at the first signal, at once at a second SIGINT."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose request arrives too slowly, or not at all.

    When there are too many connections, the oldest that has sent no request makes room, or one that waits for its next,
    so that strangers keep nobody out.
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
