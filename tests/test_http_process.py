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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doors import OpenDoor, open_door
from typing_extensions import TypedDict

from localmcp.server.http import serving
from localmcp.tools import tool


class Said(TypedDict):
    words: str


class Slow:
    """A tool that takes until it is released."""

    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()

    @tool("slow", title="Slow", visible=False)
    def slow(self) -> Said:
        """Take time."""
        self.entered.set()
        self.release.wait(20)
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
    assert slow.entered.wait(20)
    door.server.should_exit = True
    _wait_until_closed(door.port)
    slow.release.set()
    asking.join(20)
    assert replies[0].status == 200 and b"finished" in replies[0].body


def _wait_until_closed(port: int) -> None:
    """Until nobody accepts connections any more."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionRefusedError:
            return
        except ConnectionError:
            # Queued, but not yet accepted, when the listener closed: the kernel resets it.
            continue


def test_a_stream_ends_as_a_whole_when_the_door_closes(door: OpenDoor) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=20)
    headers = {"Authorization": f"Bearer {door.key}", "Accept": "text/event-stream"}
    connection.request("GET", "/api/mcp", headers=headers)
    stream = connection.getresponse()
    assert stream.readline() == b"event: endpoint\n"
    door.server.should_exit = True
    # An unfinished body would raise IncompleteRead.
    assert stream.read().startswith(b"data: /api/mcp?sessionId=")
    connection.close()


def test_a_subscription_ends_when_the_door_closes(door: OpenDoor) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=20)
    headers = {
        "Authorization": f"Bearer {door.key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "subscriptions/listen",
    }
    connection.request("POST", "/mcp", json.dumps(message), headers)
    stream = connection.getresponse()
    assert (stream.status, stream.getheader("content-type")) == (200, "text/event-stream")
    first = stream.readline()
    door.server.should_exit = True
    assert first + stream.read()
    connection.close()


# ---------------------------------------------------------------- patience


def test_a_request_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch, door: OpenDoor) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.2)
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {door.key}\r\nContent-Length: 50\r\n\r\n{{"
    for beginning in (b"", b"GET /health HTT", head.encode()):
        with socket.create_connection(("127.0.0.1", door.port), timeout=20) as connection:
            connection.sendall(beginning)
            said = b""
            while part := connection.recv(65536):
                said += part
        assert said == b"" or said.startswith(b"HTTP/1.1 408")
    assert door.rpc("ping").status == 200


def test_a_whole_request_is_not_given_up_while_it_is_answered(monkeypatch: pytest.MonkeyPatch, door: OpenDoor) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.2)
    slow = Slow()
    door.workspace.registry.add_service(slow)
    releasing = threading.Timer(0.6, slow.release.set)
    releasing.start()
    assert door.call("slow").json["result"]["words"] == "finished"


# ---------------------------------------------------------------- the program


def _program(*words: str) -> list[str]:
    return [sys.executable, "-m", "localmcp", *words]


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_program(*words), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def test_an_address_that_others_can_reach_needs_to_be_meant(tmp_path: Path) -> None:
    done = _run("serve", "--http", "--host", "0.0.0.0", "--db", str(tmp_path / "x.localmcp"))
    assert done.returncode == 2
    assert "--allow-remote" in done.stderr


@pytest.mark.parametrize(
    "option", [["--port", "9"], ["--host", "127.0.0.1"], ["--allow-remote"], ["--log-format", "json"]]
)
def test_options_of_the_door_go_with_http(option: list[str]) -> None:
    done = _run("serve", *option)
    assert (done.returncode, "goes with --http" in done.stderr) == (2, True)


def test_a_port_that_is_taken_is_told_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = _run("serve", "--http", "--port", port, "--db", str(tmp_path / "x.localmcp"))
    assert done.returncode == 3
    assert port in done.stderr and "--port" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM to send")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_program_serves_and_ends_with_0_when_told_to(tmp_path: Path, number: signal.Signals) -> None:
    database = str(tmp_path / "served.localmcp")
    environment = {**os.environ, "LOCALMCP_MODEL": "hash"}
    made = subprocess.run(
        _program("keys", "create", "--name", "me", "--json", "--db", database),
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    key = json.loads(made.stdout)["apiKey"]
    process = subprocess.Popen(
        _program("--db", database, "serve", "--http", "--port", "0", "--log-format", "json", "--allow-remote",
                 "--host", "127.0.0.1"),
        stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stderr is not None
    lines = [json.loads(process.stderr.readline())]
    address = lines[0]["message"].removeprefix("Listening on http://")
    host, _, port = address.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    connection.request("POST", "/api/mcp", body, {"Authorization": f"Bearer {key}"})
    assert json.loads(connection.getresponse().read()) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    connection.close()
    process.send_signal(number)
    lines += [json.loads(line) for line in process.stderr]
    process.stderr.close()
    assert process.wait(30) == 0
    said = [each["message"] for each in lines]
    assert any(each.startswith("Registered ") for each in said)
    assert "HTTP Transport request received" in said
    assert key not in json.dumps(lines)
