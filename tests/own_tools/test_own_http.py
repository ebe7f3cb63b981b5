"""HTTP calls as tools, against a real server on this machine: what is sent, what comes back, what never leaves."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_manifests import problems_of, write_tool

from localmcp.errors import ConfigurationError, InvalidInput, Unavailable
from localmcp.own_tools.kinds import HttpManifest
from localmcp.tools import Answer
from localmcp.workspace import Workspace

SECRET = 'k3y-with-"quotes"&more'


class Echo(BaseHTTPRequestHandler):
    """Answers with what was asked; some paths do something else."""

    seen: list[str] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        path = urlsplit(self.path).path
        special = getattr(self, f"answer_{path.strip('/').split('/')[0]}", None)
        if special is None:
            self.reply(200, self.request_as_json())
        else:
            special()

    do_POST = do_PUT = do_DELETE = do_GET

    def request_as_json(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        asked = {
            "method": self.command,
            "path": parts.path,
            "query": parse_qsl(parts.query),
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": json.loads(body) if body else None,
        }
        return json.dumps(asked).encode()

    def reply(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def answer_large(self) -> None:
        self.reply(200, json.dumps({"items": ["x" * 100] * 50}).encode())

    def answer_headers(self) -> None:
        self.drip(b"HTTP/1.1 200 OK\r\nX-Long: ")

    def answer_chunks(self) -> None:
        self.drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    def drip(self, begin: bytes) -> None:
        with suppress(OSError):
            self.wfile.write(begin)
            for _ in range(100):
                self.wfile.write(b"0")
                time.sleep(0.1)

    def answer_denied(self) -> None:
        self.reply(403, f"the key {self.headers['Authorization']} is wrong".encode(), "text/plain")

    def answer_away(self) -> None:
        port = self.server.server_address[1]
        self.reply(302, b"", Location=f"http://localhost:{port}/elsewhere")

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def ask(workspace: Workspace, url: str, more: str = "", **arguments: Any) -> Answer:
    write_tool("it", f'kind = "http"\ndescription = "Ask."\nurl = "{url}"\n{more}')
    return workspace.registry.call("it", arguments)


def asked(answer: Answer) -> Any:
    return answer.value["result"]


# ---------------------------------------------------------------- what is sent


def test_path_query_and_body_are_filled_and_encoded(workspace: Workspace, url: str) -> None:
    more = """
method = "POST"
query = { q = "{text}", tag = "{tags}", page = "{page}", fixed = "a b" }
body = { text = "{text}", said = "<{text}>", deep = { tags = "{tags}", page = "{page}", yes = true } }
[parameters.text]
required = true
[parameters.tags]
type = "array"
[parameters.page]
type = "integer"
"""
    got = asked(ask(workspace, f"{url}/a/{{text}}/b", more, text="x y&z=1?#é", tags=["p", "q&r"]))
    assert unquote(got["path"]) == "/a/x y&z=1?#é/b"
    assert got["query"] == [["q", "x y&z=1?#é"], ["tag", "p"], ["tag", "q&r"], ["fixed", "a b"]]
    assert got["body"] == {
        "text": "x y&z=1?#é",
        "said": "<x y&z=1?#é>",
        "deep": {"tags": ["p", "q&r"], "yes": True},
    }
    assert got["headers"]["content-type"] == "application/json"


@pytest.mark.parametrize("value", ["..", ".", "", "../admin", "a/../b", "..\\x", "/etc", "a//b"])
def test_a_value_cannot_climb_out_of_its_place_in_the_path(workspace: Workspace, url: str, value: str) -> None:
    with pytest.raises(InvalidInput, match="cannot stand in a path"):
        ask(workspace, f"{url}/files/{{name}}", "[parameters.name]\nrequired = true\n", name=value)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_no_value_changes_the_host_or_the_other_parts(first: str, second: str) -> None:
    written: dict[str, Any] = {"url": "https://api.example.org/v1/{a}/end?k={b}", "query": {"c": "{a}"}}
    written["parameters"] = {"a": {"required": True}, "b": {"required": True}}
    call = HttpManifest.model_validate({"kind": "http", "description": "x", **written})
    try:
        request = call.build_request({"a": first, "b": second})
    except InvalidInput:
        return
    parts = urlsplit(request.url)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "api.example.org", "")
    assert parts.path.split("/")[1] == "v1" and parts.path.split("/")[3:] == ["end"]
    assert [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)] == ["k", "c"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://{host}/x", "it must be http:// or https://, a fixed host"),
        ("https://api.example.org{host}", "it must be http:// or https://, a fixed host"),
        ("https://{host}.example.org/x", "it must be http:// or https://, a fixed host"),
        ("file:///etc/passwd", "it must be http:// or https://, a fixed host"),
        ("https://user:pw@example.org/", "it must be http:// or https://, a fixed host"),
        ("https://example.org/?key=${KEY}", "percent-encode spaces and letters"),
    ],
)
def test_a_url_that_leaves_the_host_open_is_refused(workspace: Workspace, address: str, said: str) -> None:
    manifest = f'kind = "http"\ndescription = "x"\nurl = "{address}"\n[parameters.host]\nrequired = true\n'
    write_tool("it", manifest)
    assert any(f":3: error: url: {said}" in each for each in problems_of(workspace)), problems_of(workspace)
    assert workspace.registry.find("it") is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('headers = { "X-Key" = "{name}" }', "a parameter cannot be in a header"),
        ('headers = { Host = "evil.example" }', "the request itself sets it"),
        ('headers = { X = "a\\r\\nY: b" }', "no header that can be sent"),
        ('body = { k = "${KEY}" }\nmethod = "POST"', "can be in [headers] and [query] only"),
        ('query = { k = "${KEY}{name}" }', "can be in [headers] and [query] only"),
        ('query = { k = "a {nme}" }', "query: {nme} is not a parameter. Did you mean 'name'?"),
        ('query = { k = "a {name}" }', "query: {name} may be missing in a call"),
    ],
)
def test_mistakes_in_a_request_are_told(workspace: Workspace, more: str, said: str) -> None:
    write_tool("it", f'kind = "http"\ndescription = "x"\nurl = "https://example.org"\n{more}\n[parameters.name]\n')
    assert any(said in each for each in problems_of(workspace)), problems_of(workspace)


# ---------------------------------------------------------------- secrets


def test_secrets_come_from_the_environment_and_are_in_no_log(
    workspace: Workspace, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("API_KEY", SECRET)
    more = 'headers = { Authorization = "Bearer ${API_KEY}" }\nquery = { key = "${API_KEY}" }\n'
    with caplog.at_level(logging.DEBUG):
        got = ask(workspace, f"{url}/x", more)
        denied = ask(workspace, f"{url}/denied", more)
    assert asked(got)["headers"]["authorization"] == f"Bearer {SECRET}"
    assert asked(got)["query"] == [["key", SECRET]]
    assert denied.is_error and "HTTP 403: the key Bearer" in denied.text
    assert "k3y" not in caplog.text


def test_what_a_call_gives_cannot_name_a_variable(
    workspace: Workspace, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", SECRET)
    more = 'method = "POST"\nquery = { q = "{q}" }\nbody = { q = "{q}" }\n[parameters.q]\nrequired = true\n'
    got = asked(ask(workspace, url, more, q="${API_KEY}"))
    assert (got["query"], got["body"]) == ([["q", "${API_KEY}"]], {"q": "${API_KEY}"})


def test_a_missing_variable_is_told_by_check_and_by_the_call(workspace: Workspace, url: str) -> None:
    with pytest.raises(ConfigurationError, match="The variable NO_SUCH_KEY is not set"):
        ask(workspace, url, 'headers = { Authorization = "Bearer ${NO_SUCH_KEY}" }')
    assert any("warning: The variable NO_SUCH_KEY is not set here." in each for each in problems_of(workspace))


def test_a_failure_does_not_repeat_the_secret(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", SECRET)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}/x"
        with pytest.raises(Unavailable, match="refused the connection") as error:
            ask(workspace, address, 'query = { key = "${API_KEY}" }')
    assert "k3y" not in str(error.value)


# ---------------------------------------------------------------- what comes back


def test_a_part_of_the_json_can_be_the_answer(workspace: Workspace, url: str) -> None:
    assert ask(workspace, f"{url}/x", 'result = "headers.user-agent"').value == {
        "status": 200,
        "result": "localmcp",
        "truncated": False,
    }
    missing = ask(workspace, f"{url}/x", 'result = "headers.nothing"')
    assert missing.is_error and "it holds no 'headers.nothing'" in missing.text


def test_a_long_answer_is_cut_and_says_so(workspace: Workspace, url: str) -> None:
    answer = ask(workspace, f"{url}/large", 'result = "items"\nmax_output = 1000')
    assert (len(asked(answer)), answer.value["truncated"]) == (1000, True)
    assert answer.text.endswith("[cut after 1000 characters]")


def test_no_redirect_is_followed(workspace: Workspace, url: str) -> None:
    before = len(Echo.seen)
    with pytest.raises(Unavailable, match="redirects elsewhere"):
        ask(workspace, f"{url}/away")
    assert len(Echo.seen) == before + 1


@pytest.mark.parametrize("path", ["headers", "chunks"])
def test_a_server_that_drips_bytes_does_not_outlast_the_time(workspace: Workspace, url: str, path: str) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"did not answer within 0\.4 s"):
        ask(workspace, f"{url}/{path}", "timeout = 0.4")
    assert time.monotonic() - began < 5
