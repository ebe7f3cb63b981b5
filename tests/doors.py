"""A door for tests: the real application behind a real socket, in a thread of this process."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localmcp.server.handshake import OpenOnce
from localmcp.server.http.app import HttpApp, HttpServer, listen
from localmcp.workspace import Workspace, open_workspace


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class OpenDoor:
    """A door that is open, and what is behind it."""

    def __init__(self, workspace: Workspace, port: int, server: WatchedDoor) -> None:
        self.workspace = workspace
        self.port = port
        self.server = server
        self.url = f"http://127.0.0.1:{port}"
        workspace.knowledge.get_stats()
        self.key = self.make_key("admin")

    def make_key(self, *scopes: str, **bounds: Any) -> str:
        """A key, as the person at the machine makes it."""
        return self.workspace.api_keys.create(name="test", scopes=scopes or ("read",), **bounds).key

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request; `key`: "" = the admin key, None = none. A body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Content-Type": "application/json", **(headers or {})}
        if key is not None:
            sent["Authorization"] = f"Bearer {key or self.key}"
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, raw, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def rpc(self, method: str, params: Any = None, *, path: str = "/api/mcp", **options: Any) -> Reply:
        """One JSON-RPC request."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})}
        return self.send("POST", path, message, **options)

    def call(self, tool: str, arguments: Any = None, *, path: str = "/api/mcp", **options: Any) -> Reply:
        """One tools/call."""
        return self.rpc("tools/call", {"name": tool, "arguments": arguments or {}}, path=path, **options)

    def raw(self, data: bytes) -> bytes:
        """Bytes as they are; all that comes back until the door closes the connection, which it must."""
        parts = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            # A door that has answered and closed may reset what is still on its way to it.
            with suppress(ConnectionError):
                connection.sendall(data)
            with suppress(ConnectionError):
                while part := connection.recv(65536):
                    parts += part
        return parts


class WatchedDoor(HttpServer):
    """A door that tells other threads how far it is."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.opened, self.closing = threading.Event(), threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.opened.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.closing.set()
        await super().shutdown(sockets)


@contextmanager
def lasting_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDoor]:
    """A door for the tests of a module, with directories that last as long."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        for name in ("STATE", "CONFIG", "DATA", "CACHE"):
            patch.setenv(f"LOCALMCP_{name}_DIR", str(home / name.lower()))
        with open_door(home / "door.localmcp") as opened:
            yield opened


@contextmanager
def open_door(file: Path, **settings: Any) -> Iterator[OpenDoor]:
    """A door to that file until the block ends."""
    workspace = open_workspace(file, **{"model": "hash", **settings})
    once = OpenOnce(lambda: workspace)
    door = HttpApp(once, workspace.settings, "127.0.0.1")
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    server = WatchedDoor(door)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])), daemon=True)
    thread.start()
    # Before that, the lines it logs at its beginning mingle with those of the first requests.
    assert server.opened.wait(60)
    try:
        yield OpenDoor(workspace, port, server)
    finally:
        server.should_exit = True
        thread.join(30)
        workspace.close()
        sock.close()
    assert not thread.is_alive()
