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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from doors import OpenDoor, open_door
from typing_extensions import TypedDict

from localmcp.server.http import mcp as http_mcp
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


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_mcp, "KEY_SECONDS", 0.05)


def test_a_subscription_ends_when_its_key_is_deleted(quick_looks: None, door: OpenDoor) -> None:
    key = door.make_key()
    connection, stream = open_subscription(door, key)
    first = stream.readline()
    door.workspace.api_keys.delete(door.workspace.api_keys.find(key).id)
    assert first + stream.read()
    connection.close()


# ---------------------------------------------------------------- patience


def test_a_request_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch, door: OpenDoor) -> None:
    patience = serving.REQUEST_SECONDS
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.2)
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {door.key}\r\nContent-Length: 50\r\n\r\n{{"
    for beginning in (b"", b"GET /health HTT", head.encode()):
        with socket.create_connection(("127.0.0.1", door.port), timeout=60) as connection:
            connection.sendall(beginning)
            said = b""
            while part := connection.recv(65536):
                said += part
        assert said == b""
    monkeypatch.setattr(serving, "REQUEST_SECONDS", patience)
    assert door.rpc("ping").status == 200


def test_connections_that_send_nothing_keep_nobody_out(monkeypatch: pytest.MonkeyPatch, door: OpenDoor) -> None:
    monkeypatch.setattr(serving.TimeoutProtocol, "most", 3)
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


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_program(*words), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def test_an_address_that_others_can_reach_needs_to_be_meant(tmp_path: Path) -> None:
    done = _run("serve", "--http", "--host", "0.0.0.0", "--db", str(tmp_path / "x.localmcp"))
    assert done.returncode == 2
    assert "--allow-remote" in done.stderr


def test_a_port_that_is_taken_is_told_with_the_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = _run("serve", "--http", "--port", port, "--db", str(tmp_path / "x.localmcp"))
    assert done.returncode == 3
    assert port in done.stderr and "--port" in done.stderr


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


# ---------------------------------------------------------------- every face on one file


NOTES = 12
"""Documents that each face adds."""


def _note(face: str, number: int) -> dict[str, str]:
    return {"title": f"{face} {number}", "text": f"The note {number} that came through {face}."}


def _add_over_stdio(database: str, environment: dict[str, str]) -> None:
    with subprocess.Popen(
        _program("serve", "--db", database),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        for number, (method, params) in enumerate(
            [("initialize", client)]
            + [("tools/call", {"name": "add_document", "arguments": _note("stdio", each)}) for each in range(NOTES)]
        ):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            reply = json.loads(process.stdout.readline())
            assert reply["id"] == number and not reply["result"].get("isError"), reply


def _add_on_the_command_line(database: str, folder: Path, environment: dict[str, str]) -> None:
    for number in range(NOTES):
        (folder / f"{number}.md").write_text(f"# shell {number}\n\nA file.\n", encoding="utf-8")
    subprocess.run(
        _program("add", str(folder), "--quiet", "--db", database), check=True, timeout=120, env=environment
    )  # fmt: skip


def test_stdio_http_the_command_line_and_a_writer_lose_nothing_on_one_file(tmp_path: Path) -> None:
    database, folder = tmp_path / "shared.localmcp", tmp_path / "files"
    folder.mkdir()
    environment = {**os.environ, "LOCALMCP_MODEL": "hash"}
    with open_door(database) as door:
        key = door.make_key("write")

        def ask_over_http() -> None:
            for each in range(NOTES):
                assert door.call("add_document", _note("http", each), key=key).status == 200

        def write_here() -> None:
            for each in range(NOTES):
                door.workspace.registry.call("add_document", _note("writer", each))

        with ThreadPoolExecutor(4) as pool:
            faces = [
                pool.submit(ask_over_http),
                pool.submit(write_here),
                pool.submit(_add_over_stdio, str(database), environment),
                pool.submit(_add_on_the_command_line, str(database), folder, environment),
            ]
        for each in faces:
            each.result()
        with door.workspace.database.read() as connection:
            titles = sorted(title for (title,) in connection.execute("select title from sources"))
            chunks, words = (
                connection.execute(f"select count(*) from {each}").get for each in ("chunks", "chunks_fts")
            )
        expected = [f"{face} {number}" for face in ("http", "shell", "stdio", "writer") for number in range(NOTES)]
        assert titles == sorted(expected)
        assert chunks == words == len(expected)
        noted = {each.name: each.calls for each in door.workspace.activity.stats(tool="add_document").callers}
        [used] = [each for each in door.workspace.api_keys.list() if each.uses]
        assert (noted["local"], noted[used.id], used.uses) == (NOTES, NOTES, NOTES)
