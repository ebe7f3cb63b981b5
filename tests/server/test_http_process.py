"""The life of the door: starting, refusing to start, patience with slow clients, and an end that loses no request."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doors import OpenDoor, open_door

from localmcp.cli.program import execute
from localmcp.cli.session import Session
from localmcp.errors import Unavailable
from localmcp.server.handshake import OpenOnce
from localmcp.server.http import app, endpoints
from localmcp.server.mcp import ToolServer
from localmcp.tools import tool

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from http_hostile import attack


class Slow:
    """A tool that takes until it is released."""

    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()

    @tool("slow", title="Slow", visible=False)
    def slow(self) -> dict[str, str]:
        """Take time."""
        self.entered.set()
        self.release.wait(60)
        return {"words": "finished"}


@pytest.fixture
def door(tmp_path: Path) -> Iterator[OpenDoor]:
    with open_door(tmp_path / "door.localmcp") as opened:
        yield opened


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("path", ["/mcp", "/api/mcp", "/tools/slow"])
def test_a_request_in_flight_finishes_when_the_door_closes(door: OpenDoor, path: str) -> None:
    slow = Slow()
    door.workspace.registry.add_service(slow)
    replies: list[Any] = []

    def ask() -> None:
        replies.append(door.send("POST", path, {}) if path.startswith("/tools") else door.call("slow", path=path))

    asking = threading.Thread(target=ask)
    asking.start()
    assert slow.entered.wait(60)
    door.server.should_exit = True
    assert door.server.closing.wait(60)
    _wait_until_closed(door.port)
    slow.release.set()
    asking.join(60)
    assert replies[0].status == 200 and b"finished" in replies[0].body


def _wait_until_closed(port: int) -> None:
    """Until nobody accepts connections any more."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
        except ConnectionRefusedError:
            return
        except ConnectionError:
            # Queued, but not yet accepted, when the listener closed: the kernel resets it.
            pass
        time.sleep(0.01)


def test_a_stream_ends_as_a_whole_when_the_door_closes(door: OpenDoor) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=60)
    headers = {"Authorization": f"Bearer {door.key}", "Accept": "text/event-stream"}
    connection.request("GET", "/api/mcp", headers=headers)
    stream = connection.getresponse()
    assert stream.readline().strip() == b"event: endpoint"
    door.server.should_exit = True
    # An unfinished body would raise IncompleteRead.
    assert stream.read().startswith(b"data: /api/mcp?sessionId=")
    connection.close()


def open_subscription(door: OpenDoor, key: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=60)
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "subscriptions/listen",
    }
    connection.request("POST", "/mcp", json.dumps(message), headers)
    stream = connection.getresponse()
    assert (stream.status, stream.getheader("content-type")) == (200, "text/event-stream")
    return connection, stream


def test_a_subscription_ends_when_its_key_is_deleted(monkeypatch: pytest.MonkeyPatch, door: OpenDoor) -> None:
    monkeypatch.setattr(endpoints, "KEY_SECONDS", 0.05)
    key = door.make_key()
    connection, stream = open_subscription(door, key)
    first = stream.readline()
    door.workspace.api_keys.delete(door.workspace.api_keys.find(key).id)
    assert first + stream.read()
    connection.close()


def test_changes_are_told_also_after_the_file_could_not_be_opened_at_first(
    monkeypatch: pytest.MonkeyPatch, door: OpenDoor
) -> None:
    watched, tries = list[Any](), iter((Unavailable("locked"), None))

    def open_workspace() -> Any:
        if error := next(tries):
            raise error
        return door.workspace

    monkeypatch.setattr(ToolServer, "watch", lambda _, workspace: watched.append(workspace))
    opening = OpenOnce(open_workspace)
    app.HttpApp(opening, door.workspace.settings, "127.0.0.1")
    with pytest.raises(Unavailable):
        opening()
    assert opening() is opening() is door.workspace and watched == [door.workspace]


# ---------------------------------------------------------------- patience


def test_a_request_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch, door: OpenDoor) -> None:
    patience = app.REQUEST_SECONDS
    monkeypatch.setattr(app, "REQUEST_SECONDS", 0.2)
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {door.key}\r\nContent-Length: 50\r\n\r\n{{"
    for beginning in (b"", b"GET /health HTT", head.encode()):
        with socket.create_connection(("127.0.0.1", door.port), timeout=60) as connection:
            connection.sendall(beginning)
            said = b""
            while part := connection.recv(65536):
                said += part
        assert said == b""
    monkeypatch.setattr(app, "REQUEST_SECONDS", patience)
    assert door.rpc("ping").status == 200


def test_connections_that_send_nothing_keep_nobody_out(monkeypatch: pytest.MonkeyPatch, door: OpenDoor) -> None:
    monkeypatch.setattr(app.TimeoutProtocol, "most", 3)
    silent = [socket.create_connection(("127.0.0.1", door.port), timeout=60) for _ in range(10)]
    for beginning in (b"", b"GET /health HTT"):
        silent[-1].sendall(beginning)
        assert door.rpc("ping").status == 200
    # The oldest made room.
    assert silent[0].recv(1) == b""
    for connection in silent:
        connection.close()


# ---------------------------------------------------------------- the program


def _program(*words: str) -> list[str]:
    return [sys.executable, "-m", "localmcp", *words]


def test_an_address_that_others_can_reach_needs_to_be_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(Session(), ["serve", "--http", "--host", "0.0.0.0"]) == 2
    assert "--allow-remote" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"{port}.*--port"):
            app.listen("127.0.0.1", port)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM to send")
def test_the_program_serves_and_ends_with_0_when_told_to(tmp_path: Path) -> None:
    database = str(tmp_path / "served.localmcp")
    environment = {**os.environ, "LOCALMCP_MODEL": "hash"}
    made = subprocess.run(
        _program("keys", "create", "--name", "me", "--json", "--db", database),
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    key = json.loads(made.stdout)["apiKey"]
    process = subprocess.Popen(
        _program("--db", database, "serve", "--http", "--port", "0", "--allow-remote",
                 "--host", "127.0.0.1"),
        stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stderr is not None
    lines = [process.stderr.readline()]
    address = lines[0].partition("Listening on http://")[2].partition(": ")[0]
    host, _, port = address.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    connection.request("POST", "/api/mcp", body, {"Authorization": f"Bearer {key}"})
    assert json.loads(connection.getresponse().read()) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    connection.close()
    process.send_signal(signal.SIGTERM)
    lines += [*process.stderr]
    process.stderr.close()
    assert process.wait(60) == 0
    said = "".join(lines)
    assert " Registered " in said and "HTTP Transport request received" in said and key not in said


# ---------------------------------------------------------------- strangers


def test_hostile_requests_find_no_500_no_traceback_and_a_door_that_goes_on(
    door: OpenDoor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A slice of `benchmarks/http_hostile.py`; requests that never end are given up soon, so that it is quick."""
    monkeypatch.setattr(app, "REQUEST_SECONDS", 2)
    tools = door.send("GET", "/tools").json["tools"]
    report = attack(door.port, door.make_key("write"), tools, count=300, seed=7)
    assert report.sent == 300
    assert report.faults == []
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
    assert door.send("GET", "/health", key=None).json["status"] == "ok"
    assert door.rpc("tools/list").status == 200
