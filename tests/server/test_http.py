"""The door over HTTP: endpoints, statuses and texts (S0-22 to S0-26, S3-1 to S3-15, C4-1, C4-5), keys, protection."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated, Any

import bcrypt
import httpx2
import pytest
from doors import OpenDoor, lasting_door, open_door
from federation import wait_until
from library import Library
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from localmcp.config import Settings
from localmcp.server.http.app import is_loopback, own_names
from localmcp.server.http.endpoints import say
from localmcp.tools import Answer, Param, tool

PARAMS_OBJECT = "Invalid params: params must be an object"
METHOD_REQUIRED = "Invalid Request: method is required and must be a string"


class Odd:
    """Tools that behave badly."""

    release = threading.Event()
    entered = threading.Event()

    @tool("crash", title="Crash", visible=False)
    def crash(self) -> dict[str, str]:
        """Has a bug."""
        raise RuntimeError("secret detail")

    @tool("wait", title="Wait", visible=False)
    def wait(self, words: Annotated[str, Param("Said at the end")] = "done") -> dict[str, str]:
        """Waits to be released."""
        self.entered.set()
        self.release.wait(60)
        return {"words": words}

    @tool("halves", title="Halves", visible=False)
    def halves(self) -> dict[str, Any]:
        """What no JSON can carry."""
        return {"words": "a\ud800b", "number": float("inf")}

    @tool("blocks", title="Blocks", visible=False)
    def blocks(self, image: Annotated[bool, Param("With an image")] = False) -> Answer:
        """As tools of connected servers answer that send nothing structured."""
        text, picture = {"type": "text", "text": "a dot"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        return Answer({}, "a dot", content=(text, picture) if image else (text,))

    @tool("change", title="Change", visible=False, read_only=False)
    def change(self) -> dict[str, str]:
        """Changes something."""
        return {"words": "changed"}


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDoor]:
    with lasting_door(tmp_path_factory) as opened:
        library = Library(opened.workspace.database, opened.workspace.embedder.get())
        library.put("A hive has one queen. Bees dance to tell the others.", title="Bees")
        library.put("Fondo pensione Byblos: l'iscrizione è volontaria.", title="Regolamento Byblos")
        library.put("Nothing of this is for everybody.", title="Minutes", collection="private")
        opened.workspace.registry.add_service(Odd())
        # The log is opened while this file counts as ours: each test has a state directory of its own.
        opened.call("greetUser", {"name": "Bo"})
        opened.workspace.activity.flush()
        yield opened


# ---------------------------------------------------------------- JSON-RPC on /api/mcp


def test_tools_are_listed_without_initialize_on_both_paths(door: OpenDoor) -> None:
    for path in ("/api/mcp", "/mcp", "/mcp/"):
        reply = door.rpc("tools/list", path=path)
        assert (reply.status, reply.json["id"]) == (200, 1)
        names = {each["name"] for each in reply.json["result"]["tools"]}
        assert {"search", "get_context"} <= names


def test_a_result_on_the_original_path_has_the_tools_keys_beside_content(door: OpenDoor) -> None:
    result = door.call("search", {"query": "queen", "limit": 1}).json["result"]
    assert (result["query"], result["mode"], result["count"]) == ("queen", "hybrid", 1)
    assert result["results"] == result["structuredContent"]["results"]
    assert json.loads(result["content"][0]["text"])["results"] == result["results"]


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        (b"{nope", 400, -32700, "Parse error: Invalid JSON"),
        (b"", 400, -32700, "Parse error: Invalid JSON"),
        (b"\xff\xfe", 400, -32700, "Parse error: Invalid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', 400, -32700, "Parse error: Invalid JSON"),
        (b"[" * 100_000, 400, -32700, "Parse error: Invalid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * 300 + b"]" * 300 + b"}}", 400, -32700,
         "Parse error: Invalid JSON"),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 400, -32600, 'Invalid JSON-RPC version: must be "2.0"'),
        ({"jsonrpc": "2.0", "id": 1}, 400, -32600, METHOD_REQUIRED),
        ({"jsonrpc": "2.0", "id": 1, "method": 5}, 400, -32600, METHOD_REQUIRED),
        ({"jsonrpc": "2.0", "method": "tools/list"}, 400, -32600, "Invalid Request: id is required"),
        ([], 400, -32600, "Invalid Request: JSON-RPC batches are not supported"),
        ("text", 400, -32600, "Invalid Request: a message is a JSON object"),
        ({"jsonrpc": "2.0", "id": 1, "method": "a", "params": 5}, 400, -32602, PARAMS_OBJECT),
        ({"jsonrpc": "2.0", "id": 1, "method": "foo/bar"}, 404, -32601, "Method not found: foo/bar"),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused_in_the_originals_words(
    door: OpenDoor, body: Any, status: int, code: int, message: str
) -> None:
    reply = door.send("POST", "/api/mcp", body)
    assert (reply.status, reply.json["error"]["code"], reply.json["error"]["message"]) == (status, code, message)
    assert reply.json["jsonrpc"] == "2.0"


@pytest.mark.parametrize(
    ("tool_name", "arguments", "message"),
    [
        ("search", {}, "Query parameter is required"),
        ("get_context", {}, "chunkId parameter is required"),
        ("nope", {}, "Unknown tool: nope"),
        ("add_document", {"title": "Empty", "text": " "}, "Empty holds no text."),
    ],
)
def test_a_call_that_cannot_be_made_is_a_400_on_the_original_path(
    door: OpenDoor, tool_name: str, arguments: Any, message: str
) -> None:
    reply = door.call(tool_name, arguments)
    assert (reply.status, reply.json["id"]) == (400, 1)
    assert reply.json["error"]["code"] == -32602
    assert reply.json["error"]["message"] == message


def test_a_bug_in_a_tool_is_told_as_an_incident_and_nothing_else(door: OpenDoor) -> None:
    reply = door.call("crash")
    assert (reply.status, reply.json["error"]["code"]) == (500, -32603)
    assert "incident" in reply.json["error"]["message"]
    for path in ("/mcp", "/api/mcp"):
        assert b"secret detail" not in door.call("crash", path=path).body
    assert b"secret detail" not in door.send("POST", "/tools/crash", {"input": {}}).body


def test_what_no_json_can_carry_costs_a_letter_not_the_reply(door: OpenDoor) -> None:
    assert door.call("halves").json["result"]["words"] == "a\ufffdb"
    assert door.send("POST", "/tools/blocks", {}).json["output"] == "a dot"
    shown = door.send("POST", "/tools/blocks", {"input": {"image": True}}).json["output"]["content"]
    assert [block["type"] for block in shown] == ["text", "image"]
    assert door.send("POST", "/tools/halves", {}).json["output"] == {"words": "a\ufffdb", "number": None}
    spoken = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"query":"q\\ud800"}}}'
    )
    for path in ("/mcp", "/api/mcp"):
        assert door.send("POST", path, spoken).status == 200


def test_post_with_only_event_stream_accepted_is_answered_by_a_stream(door: OpenDoor) -> None:
    for path in ("/mcp", "/api/mcp"):
        reply = door.rpc("ping", path=path, headers={"Accept": "text/event-stream"})
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.body.replace(b"\r", b"").startswith(b"event: message\ndata: {")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("path", ["/mcp", "/api/mcp"])
async def test_the_sdks_client_works_in_both_eras(door: OpenDoor, path: str, mode: Any) -> None:
    headers = {"Authorization": f"Bearer {door.key}"}
    async with httpx2.AsyncClient(headers=headers) as http_client:
        transport = streamable_http_client(door.url + path, http_client=http_client)
        async with Client(transport, mode=mode) as client:
            listed = await client.list_tools()
            assert "search" in {each.name for each in listed.tools}
            found = await client.call_tool("search", {"query": "queen"})
            assert found.structured_content is not None and found.structured_content["count"] >= 1
            with pytest.raises(MCPError, match="Unknown tool: nope"):
                await client.call_tool("nope", {})


# ---------------------------------------------------------------- the original's stream


async def test_the_sdks_sse_client_is_answered_on_its_stream(door: OpenDoor) -> None:
    transport = sse_client(f"{door.url}/api/mcp", headers={"Authorization": f"Bearer {door.key}"})
    async with Client(transport, mode="legacy") as client:
        assert "search" in {each.name for each in (await client.list_tools()).tools}
        found = await client.call_tool("search", {"query": "queen"})
        assert found.structured_content is not None and found.structured_content["count"] >= 1


def _open_stream(door: OpenDoor, key: str | None = None) -> tuple[http.client.HTTPConnection, Any, str]:
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=60)
    headers = {"Authorization": f"Bearer {key or door.key}", "Accept": "text/event-stream"}
    connection.request("GET", "/api/mcp", headers=headers)
    stream = connection.getresponse()
    assert stream.getheader("content-type", "").startswith("text/event-stream")
    assert stream.readline().strip() == b"event: endpoint"
    address = stream.readline().decode().removeprefix("data: ").strip()
    assert address.startswith("/api/mcp?sessionId=")
    assert stream.readline().strip() == b""
    return connection, stream, address


def test_messages_to_a_stream_are_answered_on_that_stream_only(door: OpenDoor) -> None:
    one, two = _open_stream(door), _open_stream(door)
    for number, (_, _, address) in enumerate((one, two)):
        reply = door.send("POST", address, {"jsonrpc": "2.0", "id": f"from {number}", "method": "ping"})
        assert reply.status == 202
    for number, (connection, stream, _) in enumerate((one, two)):
        assert stream.readline().strip() == b"event: message"
        assert json.loads(stream.readline().removeprefix(b"data: ")) == {
            "jsonrpc": "2.0", "id": f"from {number}", "result": {},
        }  # fmt: skip
        connection.close()


def test_a_stream_belongs_to_the_key_that_opened_it(door: OpenDoor) -> None:
    connection, _, address = _open_stream(door)
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert door.send("POST", address, message, key=door.make_key()).status == 404
    assert door.send("POST", f"/api/mcp?sessionId={'0' * 32}", message).status == 404
    assert door.send("POST", "/api/mcp?sessionId=unknown", message).status == 400
    connection.close()


def test_get_without_event_stream_is_refused(door: OpenDoor) -> None:
    assert door.send("GET", "/api/mcp").status == 406
    assert door.send("GET", "/mcp").status == 405
    streaming = {"Accept": "text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    assert door.send("GET", "/api/mcp", headers=streaming).status == 405


# ---------------------------------------------------------------- sentences and tools by name


@pytest.mark.parametrize("path", ["/api/quickstarts/v1/mcp", "/mcp-query"])
def test_a_sentence_is_routed_to_a_tool(door: OpenDoor, path: str) -> None:
    reply = door.send("POST", path, {"query": "Please greet John"})
    assert (reply.status, reply.json["status"], reply.json["query"]) == (200, "success", "Please greet John")
    assert reply.json["tool_result"] == {"tool": "greetUser", "data": "Hello, John!"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"query": ""}, "Query field cannot be empty"),
        ({}, "Query field cannot be empty"),
        ({"query": "  "}, "Query field cannot be empty"),
        ({"query": 5}, "Invalid request body: Invalid arguments for ask:"),
        (b"{", "Invalid request body: EOF while parsing"),
        ([], "Invalid request body: the body must be a JSON object"),
        ({"query": "x", "limit": "many"}, "Invalid request body: invalid limit value: many"),
    ],
)
def test_a_sentence_that_cannot_be_read_is_a_400(door: OpenDoor, body: Any, message: str) -> None:
    reply = door.send("POST", "/mcp-query", body)
    assert (reply.status, reply.json["status"]) == (400, "error")
    assert reply.json["message"].startswith(message)


def test_a_key_for_few_tools_can_still_ask_and_reaches_only_those(door: OpenDoor) -> None:
    key = door.make_key(tools=["reverseString"])
    assert door.send("POST", "/mcp-query", {"query": "Please greet John"}, key=key).json["status"] == "no_tool_call"
    assert door.send("POST", "/tools/ask", {"input": {"query": "greet John"}}, key=key).status == 500


def test_tools_are_listed_and_called_by_name(door: OpenDoor) -> None:
    listed = door.send("GET", "/tools").json["tools"]
    assert listed["greetUser"]["name"] == "greetUser"
    assert listed["greetUser"]["schema"]["required"] == ["name"]
    reply = door.send("POST", "/tools/addNumbers", {"input": {"a": 5, "b": 3}})
    assert (reply.status, reply.json["success"]) == (200, True)
    assert reply.json["stats"]["execution_time"].endswith("s")
    assert "error" not in reply.json


@pytest.mark.parametrize(
    ("name", "body", "status", "error"),
    [
        ("greetUser", {"input": {}, "timeout": 10**400}, 200, "Invalid arguments for greetUser:"),
        ("nope", {"input": {}}, 500, "tool not found: nope"),
        ("greetUser", b"{", 400, "Parse error: Invalid JSON"),
        ("greetUser", b"", 400, "Parse error: Invalid JSON"),
        ("greetUser", [], 400, "Invalid request body"),
        ("greetUser", {"input": "text"}, 400, "Invalid request body"),
        ("greetUser", {"input": {}, "timeout": -1}, 400, "Invalid request body"),
    ],
)
def test_a_tools_own_error_is_a_200_an_unknown_tool_a_500_and_a_bad_body_a_400_with_details(
    door: OpenDoor, name: str, body: Any, status: int, error: str
) -> None:
    reply = door.send("POST", f"/tools/{name}", body)
    assert (reply.status, reply.json["success"]) == (status, False)
    assert reply.json["error"].startswith(error)
    assert status != 400 or {"code", "details"} <= reply.json.keys()


def test_a_call_ends_after_the_time_it_was_given(door: OpenDoor) -> None:
    Odd.release.clear()
    try:
        reply = door.send("POST", "/tools/wait", {"input": {}, "timeout": 0.05})
        assert (reply.status, reply.json["success"]) == (200, False)
        assert "no answer within 0.05 s" in reply.json["error"]
    finally:
        Odd.release.set()


# ---------------------------------------------------------------- keys


def test_every_path_but_health_needs_a_key(door: OpenDoor) -> None:
    assert door.send("GET", "/health", key=None).json["status"] == "ok"
    for method, path in (
        ("POST", "/mcp"),
        ("POST", "/api/mcp"),
        ("GET", "/api/mcp"),
        ("POST", "/mcp-query"),
        ("POST", "/api/quickstarts/v1/mcp"),
        ("GET", "/tools"),
        ("POST", "/tools/greetUser"),
        ("POST", "/api/mcp/keys/generate"),
        ("GET", "/api/mcp/keys/list?ragId=default"),
        ("DELETE", "/api/mcp/keys/revoke"),
        ("GET", "/api/mcp/logs?ragId=default"),
        ("GET", "/"),
        ("GET", "/unknown"),
        ("GET", "/health/x"),
        ("OPTIONS", "/mcp"),
    ):
        reply = door.send(method, path, key=None)
        assert reply.status == 401, path
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert b"Unauthorized: Missing or invalid Authorization header" in reply.body


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("Basic abc", "Unauthorized: Missing or invalid Authorization header"),
        ("Bearer", "Unauthorized: Missing or invalid Authorization header"),
        ("Bearer mcp_" + "x" * 32, "Unauthorized: Invalid API key"),
        ("Bearer nonsense", "Unauthorized: Invalid API key"),
        ("Bearer " + "x" * 5000, "Unauthorized: Invalid API key"),
    ],
)
def test_a_wrong_key_is_a_401_with_the_originals_words(door: OpenDoor, header: str, message: str) -> None:
    reply = door.rpc("ping", key=None, headers={"Authorization": header})
    assert reply.status == 401
    assert reply.json["error"] == {"code": -32000, "message": message} | (
        {"data": reply.json["error"]["data"]} if "data" in reply.json["error"] else {}
    )


def test_bearer_is_read_in_any_case_and_a_second_header_is_refused(door: OpenDoor) -> None:
    assert door.rpc("ping", key=None, headers={"authorization": f"bearer {door.key}"}).status == 200
    twice = f"Authorization: Bearer {door.key}\r\n" * 2
    request = f"GET /tools HTTP/1.1\r\nHost: localhost\r\n{twice}Connection: close\r\n\r\n"
    assert door.raw(request.encode()).startswith(b"HTTP/1.1 401")


def test_whoever_guesses_keys_holds_up_only_other_guesses(door: OpenDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody, release, really = door.workspace.api_keys._nobodys_hash.encode(), threading.Event(), bcrypt.checkpw
    slow = lambda key, of: release.wait(30) and False if of == nobody else really(key, of)  # noqa: E731
    monkeypatch.setattr(bcrypt, "checkpw", slow)
    with ThreadPoolExecutor(70) as pool:
        guesses = [pool.submit(door.rpc, "ping", key=f"mcp_{number:032}") for number in range(70)]
        try:
            refused = next(done.result() for done in as_completed(guesses))
            good = door.rpc("ping", key=door.make_key())
        finally:
            release.set()
    assert (refused.status, good.status) == (429, 200)
    assert {guess.result().status for guess in guesses} == {401, 429}


def test_a_key_with_the_scope_read_changes_nothing(door: OpenDoor) -> None:
    reader, writer = door.make_key("read"), door.make_key("write")
    refused = door.call("change", key=reader)
    assert (refused.status, refused.json["error"]["code"]) == (403, -32000)
    assert door.send("POST", "/tools/change", {}, key=reader).status == 403
    assert door.call("change", key=writer).json["result"]["words"] == "changed"


def test_keys_are_made_listed_revoked_and_deleted_as_in_the_original(door: OpenDoor) -> None:
    made = door.send("POST", "/api/mcp/keys/generate", {"ragId": "default", "name": "laptop"}).json
    assert made["success"] and made["apiKey"].startswith("mcp_") and len(made["apiKey"]) == 36
    assert made["warning"] == "Save this API key now. It will not be shown again."
    info = made["keyInfo"]
    assert (info["name"], info["scopes"], info["collections"]) == ("laptop", ["read"], ["default"])
    assert info["is_active"] and {"id", "created_at", "expires_at", "last_used_at"} <= info.keys()
    assert door.rpc("ping", key=made["apiKey"]).status == 200

    listed = door.send("GET", "/api/mcp/keys/list?ragId=default")
    assert info["id"] in {each["id"] for each in listed.json["keys"]}
    assert made["apiKey"].encode() not in listed.body and b"hash" not in listed.body

    revoked = door.send("POST", "/api/mcp/keys/revoke", {"keyId": info["id"]})
    assert revoked.json == {"success": True, "message": "API key revoked successfully"}
    refused = door.rpc("ping", key=made["apiKey"])
    assert (refused.status, refused.json["error"]["message"]) == (401, "Unauthorized: Invalid API key")
    deleted = door.send("DELETE", "/api/mcp/keys/revoke", {"keyId": info["id"]})
    assert deleted.json == {"success": True, "message": "API key deleted successfully"}
    assert door.send("DELETE", f"/api/mcp/keys/revoke?keyId={info['id']}").status == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "keys/generate", {}, 400, "RAG ID is required"),
        ("POST", "keys/generate", {"ragId": "nowhere"}, 404, "RAG not found or access denied"),
        ("POST", "keys/generate", {"ragId": "default", "name": 5}, 400, "name must be a string"),
        ("GET", "keys/list", None, 400, "RAG ID is required"),
        ("GET", "keys/list?ragId=nowhere", None, 404, "RAG not found or access denied"),
        ("POST", "keys/revoke", {}, 400, "Key ID is required"),
        ("DELETE", "keys/revoke", None, 400, "Key ID is required"),
        ("POST", "keys/revoke", {"keyId": "nothing"}, 404, "API key not found or access denied"),
        ("GET", "logs", None, 400, "RAG ID is required"),
        ("GET", "logs?ragId=nowhere", None, 404, "RAG not found or access denied"),
        ("GET", "logs?ragId=default&limit=x", None, 400, "limit must be a whole number of at least 1"),
    ],
)  # fmt: skip
def test_management_says_what_it_needs(
    door: OpenDoor, method: str, path: str, body: Any, status: int, message: str
) -> None:
    reply = door.send(method, f"/api/mcp/{path}", body)
    assert (reply.status, reply.json["success"], reply.json["error"]) == (status, False, message)


def test_a_key_whose_collection_is_gone_is_told_so(door: OpenDoor) -> None:
    Library(door.workspace.database, None).put("Soon gone.", collection="fleeting")
    key = door.make_key(collections=["fleeting"])
    assert door.rpc("ping", key=key).status == 200
    with door.workspace.database.write() as connection:
        connection.execute("update collections set name = 'other' where name = 'fleeting'")
    reply = door.rpc("ping", key=key)
    assert (reply.status, reply.json["error"]["code"]) == (400, -32000)
    assert "incomplete" in reply.json["error"]["message"]


def test_management_needs_an_admin_key(door: OpenDoor) -> None:
    key = door.make_key("write")
    for method, path, body in (
        ("POST", "keys/generate", {"ragId": "default"}),
        ("GET", "keys/list?ragId=default", None),
        ("POST", "keys/revoke", {"keyId": "x"}),
        ("GET", "logs?ragId=default", None),
    ):
        assert door.send(method, f"/api/mcp/{path}", body, key=key).status == 403


def test_calls_over_http_are_logged_with_where_they_came_from(door: OpenDoor) -> None:
    key = door.make_key(collections=["default"])
    door.call("search", {"query": "queen of the log"}, key=key, headers={"User-Agent": "a test"})
    logged = door.send("GET", "/api/mcp/logs?ragId=default&limit=1").json
    assert logged["success"] and logged["total"] >= 1
    entry = logged["logs"][0]
    assert entry["metadata"]["tool"] == "search" and entry["metadata"]["success"]
    assert (entry["origin"]["ip"], entry["origin"]["userAgent"]) == ("127.0.0.1", "a test")
    assert key.encode() not in json.dumps(logged).encode()


# ---------------------------------------------------------------- protection


def test_other_hosts_and_origins_are_turned_away_before_anything_else(door: OpenDoor) -> None:
    for host in ("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        assert door.send("GET", "/health", key=None, headers={"Host": host}).status in (400, 421)
    for origin in ("http://evil.example", "null", "https://localhost.evil.example", "file://", "http://user@localhost"):
        assert door.send("GET", "/health", key=None, headers={"Origin": origin}).status == 403
    for host in ("localhost", "[::1]:8080", "127.0.0.1"):
        assert door.send("GET", "/health", key=None, headers={"Host": host}).status == 200


def test_a_page_of_this_machine_may_call_and_is_told_so(door: OpenDoor) -> None:
    origin = "http://localhost:5173"
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
        "Access-Control-Request-Private-Network": "true",
    }
    preflight = door.send("OPTIONS", "/api/mcp", key=None, headers=asked)
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (200, origin)
    assert "Authorization" in preflight.headers["access-control-allow-headers"]
    assert preflight.headers["access-control-allow-private-network"] == "true"
    reply = door.rpc("ping", headers={"Origin": origin})
    assert reply.headers["access-control-allow-origin"] == origin
    for name, status in (("Origin", 403), ("Host", 421)):
        refused = door.send("OPTIONS", "/api/mcp", key=None, headers={**asked, name: "http://evil.example"})
        assert refused.status == status and b"http_origins" in refused.body


def test_every_reply_has_security_headers_and_names_no_server(door: OpenDoor) -> None:
    for reply in (door.rpc("ping"), door.send("GET", "/unknown"), door.send("GET", "/tools", key=None)):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert "server" not in reply.headers


def test_a_body_beyond_the_limit_is_a_413_declared_or_not(door: OpenDoor) -> None:
    assert door.send("POST", "/mcp", b"x" * (2**20 + 1)).status == 413
    head = f"POST /api/mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {door.key}\r\n"
    declared = door.raw(f"{head}Content-Length: 99999999999\r\nConnection: close\r\n\r\n".encode())
    assert declared.startswith(b"HTTP/1.1 413")
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    chunked = f"{head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
    assert door.raw(chunked + chunk + b"1\r\nx\r\n").startswith(b"HTTP/1.1 413")
    # What takes long to read is refused, a long text is not.
    many: list[list[Any]] = [[0] * 30_000, [[[[]]] * 8] * 1_000]
    for values in many:
        assert door.rpc("ping", {"x": values, "y": "a" * 2**16}).status == 413
    assert door.rpc("ping", {"x": "a" * 1_000_000}).status == 200


def test_a_file_that_cannot_be_read_is_told_and_the_door_stays_open(tmp_path: Path) -> None:
    with open_door(tmp_path / "gone.localmcp") as gone:
        assert gone.send("GET", "/health", key=None).status == 200
        gone.workspace.database.close()
        gone.workspace.database.path = tmp_path
        assert gone.send("GET", "/health", key=None).status == 503
        assert gone.rpc("ping").status in (401, 500)


# ---------------------------------------------------------------- what it is made of


def test_names_and_origins_of_the_settings_are_ours_too_and_a_server_open_to_others_has_no_list() -> None:
    names = own_names(Settings(http_hosts="box.lan", http_origins="https://app.example"), "127.0.0.5")
    assert {"127.0.0.5:*", "box.lan", "box.lan:*"} <= set(names.allowed_hosts)
    assert {"https://app.example", "http://box.lan"} <= set(names.allowed_origins)
    assert not own_names(Settings(), "0.0.0.0").enable_dns_rebinding_protection
    assert is_loopback("127.0.0.2") and not is_loopback("0.0.0.0") and not is_loopback("box.lan")


# ---------------------------------------------------------------- log lines


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "localmcp.http")
    return caplog


def test_a_call_leaves_the_originals_lines(door: OpenDoor, lines: pytest.LogCaptureFixture) -> None:
    key = door.make_key(collections=["default"])
    door.call("search", {"query": "unspeakable"}, key=key)
    # The last line is written behind the answer.
    assert wait_until(lambda: len(lines.records) == 5)
    said = [each.getMessage() for each in lines.records]
    assert said[0] == "HTTP Transport request received: method=POST path=/api/mcp"
    assert said[1].startswith("HTTP Transport authenticated: userId=") and said[1].endswith(" ragId=default")
    assert said[2] == "HTTP Transport request: method=tools/call id=1"
    assert said[3].startswith("Executing tool: search")
    assert said[4].startswith("HTTP Transport response: tools/call search status=200 ms=")
    assert "unspeakable" not in lines.text and key not in lines.text and key[:12] not in lines.text


def test_a_stream_leaves_the_originals_lines(door: OpenDoor, lines: pytest.LogCaptureFixture) -> None:
    connection, _, _ = _open_stream(door, door.make_key(collections=["default"]))
    connection.close()
    said = [each.getMessage() for each in lines.records]
    assert [line.partition(":")[0] for line in said[-2:]] == [
        "MCP Connection authenticated",
        "MCP Server connected via SSE",
    ]


def test_nobody_can_forge_a_line(lines: pytest.LogCaptureFixture) -> None:
    say("said\nso", path='x" level=ERROR\n2026 forged', long="y" * 5000)
    [record] = lines.records
    [line] = record.getMessage().splitlines()
    assert len(line) < 400 and "level=ERROR" not in line.replace('\\" level=ERROR', "")


def test_a_key_that_is_sent_in_the_wrong_place_is_masked_in_the_log(
    door: OpenDoor, lines: pytest.LogCaptureFixture
) -> None:
    door.call(door.key)
    door.send("POST", f"/tools/{door.key}", {})
    door.rpc(door.key, path="/mcp")
    text = lines.text
    assert "mcp_" not in text.replace("api/mcp_", "") and "***" in text
