"""The stdio server, through a real client and through raw bytes, in both protocol eras."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp.types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters

import localmcp
from localmcp import __version__
from localmcp.__main__ import plain_serve
from localmcp.errors import ConfigurationError
from localmcp.server import handshake
from localmcp.server.mcp import MAX_RESULT, PARALLEL_CALLS, ToolServer
from localmcp.tool_search.discovery import COMMON_CALLS
from localmcp.tools import Answer, Scope, Tool, ToolMark

ERAS = ["legacy", "auto"]

WORKSPACE = '''
"""A small workspace: the registry is the real one, the tools are made to be awkward."""
import os, subprocess, sys, threading
from pathlib import Path
from typing import Annotated
from typing_extensions import TypedDict
from localmcp.errors import LocalMCPError, NotFound, UnknownTool
from localmcp.tools import Param, Registry, current_scope, integer_or_string, tool

class Panic(BaseException):
    """As raised by libraries written in Rust."""

class Words(TypedDict, total=False):
    words: str
    count: int
    success: bool

class Service:
    @tool("echo", title="Echo", accepts={"times": integer_or_string})
    def echo(self, text: str, times: Annotated[int, Param("How often.", minimum=1, maximum=9)] = 1) -> Words:
        """Say it again."""
        return {"words": text * times, "count": len(text)}

    @tool("whoami", title="Who am I")
    def whoami(self) -> Words:
        """The caller."""
        return {"words": f"{current_scope().caller} trusted={current_scope().trusted}"}

    @tool("hidden", title="Hidden", visible=False)
    def hidden(self) -> Words:
        """Found by tool_search only."""
        return {"words": "found"}

    @tool("erase", title="Erase", read_only=False, destructive=True)
    def erase(self, name: str) -> Words:
        """Never there."""
        raise NotFound(f"There is no {name}.", hint="list_sources shows what is there.")

    @tool("crash", title="Crash")
    def crash(self, how: str) -> Words:
        """Break in one of several ways."""
        raise {"error": RuntimeError, "exit": SystemExit, "panic": Panic}[how]("secret")

    @tool("proxy", title="Proxy")
    def proxy(self, name: str) -> Words:
        """A tool that looks for another tool."""
        raise UnknownTool(f"Tool not found: {name}.")

    @tool("surrogates", title="Surrogates")
    def surrogates(self) -> Words:
        """No UTF-8 can carry this."""
        return {"words": "a\\ud800b"}

    @tool("surrogate_error", title="Surrogates")
    def surrogate_error(self) -> Words:
        """Nor this."""
        raise NotFound("a\\ud800b")

    @tool("big", title="Big")
    def big(self, size: int) -> Words:
        """A long answer."""
        return {"words": "x" * size}

    @tool("noisy", title="Noisy")
    def noisy(self) -> Words:
        """Write to stdout, and let a child do it."""
        print("stray", flush=True)
        os.write(1, b"stray bytes\\n")
        child = subprocess.run([sys.executable, "-c", "print(input() if False else 'child')"], check=True)
        return {"count": child.returncode, "words": repr(sys.stdin.read())}

    @tool("block", title="Block")
    def block(self) -> Words:
        """Never end."""
        os.write(2, b"blocking\\n")
        threading.Event().wait()
        return {}

    @tool("announce", title="Announce")
    def announce(self) -> Words:
        """Say on stderr that the call has begun, then answer."""
        os.write(2, b"announced\\n")
        return {"words": "done"}

class Workspace:
    def __init__(self, folder=None):
        self.folder = folder
        self.registry = Registry()
        self.registry.add_service(Service())
        self.background = threading.Event()

    def instructions(self):
        return "Ask about the garden."

    def start_background(self):
        self.background.set()

    def on_lists_changed(self, listener):
        """Its tools never change."""

    def close(self):
        if self.folder:
            Path(self.folder, "closed").touch()
'''

SERVE = """
import sys
def open_workspace():
    import localmcp.server.stdio as stdio
    stdio.GRACE_SECONDS = 0.5
    sys.path.insert(0, {folder!r})
    from awkward_workspace import Workspace
    return Workspace({folder!r})
from localmcp.server.program import serve
serve(open_workspace)
"""

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


def initialize(request_id: Any = 0, version: str = "2025-11-25") -> dict[str, Any]:
    client = {"name": "raw", "version": "1"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
    return {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}


def discover(request_id: Any = 0) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": "server/discover", "params": {"_meta": META}}


def call(request_id: Any, name: str, /, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def ping(request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": "ping"}


def environment(state: Path) -> dict[str, str]:
    """The variables of a server process, which must find this checkout."""
    given = {name: value for name, value in os.environ.items() if name != "LOCALMCP_DB"}
    return {**given, "LOCALMCP_STATE_DIR": str(state), "PYTHONPATH": str(Path(localmcp.__file__).parents[1])}


class Server:
    """A server process, and the client's ends of its pipes."""

    def __init__(self, command: list[str], state: Path, seconds: float = 60) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment(state))
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr
        # A server that hangs fails its test instead of the whole run.
        self.watchdog = threading.Timer(seconds, self.process.kill)
        self.watchdog.start()

    def send(self, *messages: Any) -> None:
        """Each message as a line; bytes as they are."""
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() + b"\n" for m in messages]
        self.stdin.write(b"".join(lines))
        self.stdin.flush()

    def receive(self) -> dict[str, Any]:
        line = self.stdout.readline()
        assert line, self.stderr.read().decode()
        return json.loads(line)

    def ask(self, message: Any) -> dict[str, Any]:
        self.send(message)
        return self.receive()

    def end(self) -> tuple[int, str, str]:
        """Close stdin; exit code, the rest of stdout, and of stderr."""
        if not self.stdin.closed:
            self.stdin.close()
        out = "" if self.stdout.closed else self.stdout.read().decode()
        errors = self.stderr.read().decode()
        return self.process.wait(), out, errors

    def release(self) -> None:
        self.watchdog.cancel()
        self.process.kill()
        self.process.wait()
        for pipe in (self.stdout, self.stderr):
            pipe.close()
        if not self.stdin.closed:
            try:
                self.stdin.close()
            except BrokenPipeError:
                return


def write_scripts(folder: Path) -> Path:
    (folder / "awkward_workspace.py").write_text(WORKSPACE, encoding="utf-8")
    (folder / "serve.py").write_text(SERVE.format(folder=str(folder)), encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_scripts(tmp_path)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that many tests use one after the other, which is what it has to survive."""
    folder = write_scripts(tmp_path_factory.mktemp("lasting"))
    # All tests of the module together may take minutes on a busy machine.
    started = Server([sys.executable, str(folder / "serve.py")], folder / "state", seconds=900)
    assert started.ask(initialize())["id"] == 0
    yield started
    code, out, errors = started.end()
    started.release()
    assert (code, out) == (0, "") and "Traceback" not in errors


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    started = Server([sys.executable, str(folder / "serve.py")], folder / "state")
    yield started
    started.release()


@pytest.fixture
def ready(server: Server) -> Server:
    """A server whose handshake is done and whose first call has been answered."""
    server.send(initialize(), {"jsonrpc": "2.0", "method": "notifications/initialized"}, ping("ready"))
    assert server.receive()["id"] == 0
    assert server.receive()["id"] == "ready"
    return server


@pytest.fixture
def workspace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The awkward workspace in this process."""
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("awkward_workspace").Workspace()
    del sys.modules["awkward_workspace"]


@pytest.fixture
def tool_server(workspace: Any) -> ToolServer:
    return ToolServer(lambda: workspace, Scope(caller="stdio", trusted=False))


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


# ---------------------------------------------------------------- a real client over stdio


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_lists_and_calls_tools_over_stdio(folder: Path, era: Any) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(folder / "serve.py")], env=environment(folder / "state")
    )
    async with Client(parameters, mode=era) as client:
        listed = (await client.list_tools()).tools
        assert [each.name for each in listed][:3] == ["echo", "whoami", "erase"]
        result = await client.call_tool("echo", {"text": "ciao", "times": "2"})
        assert result.structured_content == {"words": "ciaociao", "count": 4}
        assert text_of(result) == '{"words":"ciaociao","count":4}'
        assert text_of(await client.call_tool("noisy", {})) == '{"count":0,"words":"\'\'"}'
        assert (await client.call_tool("crash", {"how": "panic"})).is_error
        assert text_of(await client.call_tool("whoami", {})) == '{"words":"stdio trusted=False"}'


# ---------------------------------------------------------------- handlers, in memory


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_listed_with_everything_a_client_shows(tool_server: ToolServer, era: Any) -> None:
    async with Client(tool_server, mode=era) as client:
        listed = {each.name: each for each in (await client.list_tools()).tools}
    assert "hidden" not in listed
    erase = listed["erase"]
    assert (erase.title, erase.description) == ("Erase", "Never there.")
    assert erase.input_schema["required"] == ["name"]
    assert erase.output_schema is None
    assert erase.annotations == types.ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
    )


@pytest.mark.parametrize("era", ERAS)
async def test_deliberate_errors_are_results_and_an_unknown_tool_is_an_error_of_the_protocol(
    tool_server: ToolServer, era: Any
) -> None:
    async with Client(tool_server, mode=era) as client:
        result = await client.call_tool("erase", {"name": "ledger"})
        assert result.is_error and result.structured_content is None
        assert text_of(result) == "There is no ledger.\nlist_sources shows what is there."
        assert "did you mean 'text'?" in text_of(await client.call_tool("echo", {"txet": "x"}))
        proxied = await client.call_tool("proxy", {"name": "nobody"})
        assert proxied.is_error and text_of(proxied) == "Tool not found: nobody."
        with pytest.raises(MCPError) as caught:
            await client.call_tool("ecko", {})
    assert (caught.value.code, caught.value.message) == (-32602, "Unknown tool: ecko")
    assert caught.value.data == {"hint": "Did you mean 'echo'?"}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", ["error", "exit", "panic"])
async def test_other_exceptions_show_an_incident_and_keep_their_text_in_the_log(
    tool_server: ToolServer, era: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(tool_server, mode=era) as client:
        text = text_of(await client.call_tool("crash", {"how": how}))
        assert (await client.call_tool("echo", {"text": "still here"})).structured_content is not None
    incident = text.partition("(incident ")[2].partition(")")[0]
    assert len(incident) == 8 and incident in caplog.text
    assert "secret" not in text and "secret" in caplog.text


@pytest.mark.parametrize("era", ERAS)
async def test_lone_surrogates_in_answers_become_replacement_characters(tool_server: ToolServer, era: Any) -> None:
    async with Client(tool_server, mode=era) as client:
        result = await client.call_tool("surrogates", {})
        assert result.structured_content == {"words": "a\ufffdb"} and "a\ufffdb" in text_of(result)
        assert text_of(await client.call_tool("surrogate_error", {})) == "a\ufffdb"


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_over_the_limit_is_replaced_by_advice(tool_server: ToolServer, era: Any) -> None:
    async with Client(tool_server, mode=era) as client:
        fits = await client.call_tool("big", {"size": MAX_RESULT // 2 - 100})
        assert not fits.is_error
        result = await client.call_tool("big", {"size": MAX_RESULT})
    assert result.is_error and result.structured_content is None
    assert "2.0 MB" in text_of(result) and "Ask for less" in text_of(result)


async def test_a_connected_server_that_hangs_leaves_our_tools_free(workspace: Any, tool_server: ToolServer) -> None:
    entered, freed = threading.Semaphore(0), threading.Event()

    class Hanging(Tool):
        mark = ToolMark(name="far__wait", title="Wait", visible=False)
        input_schema = {"type": "object"}

        def call(self, arguments: Any) -> Answer:
            entered.release()
            freed.wait()
            return Answer({})

    workspace.registry.add(Hanging())
    async with Client(tool_server) as client, anyio.create_task_group() as group:
        for _ in range(PARALLEL_CALLS):
            group.start_soon(client.call_tool, "far__wait", {})
        for _ in range(PARALLEL_CALLS):
            await anyio.to_thread.run_sync(entered.acquire)
        try:
            answer = await client.call_tool("echo", {"text": "a"})
        finally:
            freed.set()
    assert answer.structured_content == {"words": "a", "count": 1}


async def test_a_scope_narrows_the_list_and_the_calls(workspace: Any) -> None:
    scopes = [Scope(caller="key", tools=frozenset({"whoami"}))]
    narrow = ToolServer(lambda: workspace, lambda: scopes[0])
    async with Client(narrow) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["whoami"]
        with pytest.raises(MCPError, match="Unknown tool: echo"):
            await client.call_tool("echo", {"text": "x"})
        scopes[0] = Scope(caller="key-2", tools=frozenset({"echo", "whoami"}))
        assert (await client.call_tool("echo", {"text": "x"})).structured_content == {"words": "x", "count": 1}


@pytest.mark.parametrize("era", ERAS)
async def test_a_workspace_that_cannot_be_opened_answers_with_its_error_and_a_bug_with_an_incident(era: Any) -> None:
    error: Exception = ConfigurationError("threads = 'many' cannot be used.", hint="Use a number.")

    def fail() -> Any:
        raise error

    async with Client(ToolServer(fail, Scope()), mode=era) as client:
        with pytest.raises(MCPError, match="threads = 'many' cannot be used"):
            await client.list_tools()
        result = await client.call_tool("echo", {"text": "x"})
        assert result.is_error and text_of(result) == "threads = 'many' cannot be used.\nUse a number."
        error = RuntimeError("secret")
        with pytest.raises(MCPError, match=r"tools/list failed unexpectedly \(incident") as caught:
            await client.list_tools()
        assert caught.value.code == -32603
        assert "echo failed unexpectedly" in text_of(await client.call_tool("echo", {"text": "x"}))


async def test_one_odd_tool_is_left_out_instead_of_spoiling_the_list(
    workspace: Any, tool_server: ToolServer, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Tool):
        description = "Odd."

        def __init__(self, name: str, schema: Any) -> None:
            self.mark, self.schema = ToolMark(name, name), schema

        @property
        def input_schema(self) -> Any:
            return {"type": self.schema["type"]}

        def call(self, arguments: Any) -> Answer:
            return Answer({}, "never called")

    for name, schema in (("bad name", {"type": "object"}), ("no_object", {"type": "string"}), ("broken", None)):
        workspace.registry.add(Odd(name, schema))
    async with Client(tool_server) as client:
        names = [each.name for each in (await client.list_tools()).tools]
    assert "echo" in names and not {"bad name", "no_object", "broken"} & set(names)
    assert "bad name" in caplog.text


# ---------------------------------------------------------------- the first reply


@pytest.mark.parametrize("version", [*handshake.HANDSHAKE_VERSIONS, "1999-01-01", "2026-07-28", ""])
def test_known_versions_are_echoed_and_others_answered_with_the_newest_handshake(version: str) -> None:
    reply = handshake.first_reply(json.dumps(initialize(1, version)).encode(), "Hello.")
    expected = version if version in handshake.HANDSHAKE_VERSIONS else "2025-11-25"
    assert reply is not None and reply["result"]["protocolVersion"] == expected
    assert reply["result"]["serverInfo"] == {"name": "localmcp", "version": __version__}


@pytest.mark.parametrize("request_message", [initialize, discover])
def test_the_quick_reply_is_what_the_sdk_would_say(server: Server, request_message: Any) -> None:
    server.send(request_message("quick"), request_message("sdk"))
    quick, sdk = server.receive(), server.receive()
    assert (quick.pop("id"), sdk.pop("id")) == ("quick", "sdk")
    assert quick == sdk
    assert server.end() == (0, "", "")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"garbage",
        b"[]",
        b"5",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
        json.dumps({**initialize(), "jsonrpc": "1.0"}).encode(),
        json.dumps({**initialize(), "id": None}).encode(),
        json.dumps({**initialize(), "id": True}).encode(),
        json.dumps(initialize("\ud800")).encode(),
        json.dumps({**initialize(), "params": {}}).encode(),
        json.dumps({**initialize(), "params": {**initialize()["params"], "capabilities": 1}}).encode(),
        json.dumps({**initialize(), "params": {**initialize()["params"], "capabilities": {"roots": 1}}}).encode(),
        json.dumps({**initialize(), "params": {**initialize()["params"], "clientInfo": {"name": "x"}}}).encode(),
        json.dumps({**discover(), "params": {"_meta": {}}}).encode(),
        json.dumps({**discover(), "params": {"_meta": {**META, f"{list(META)[0]}": "2030-01-01"}}}).encode(),
        json.dumps({**discover(), "params": {"_meta": {**META, f"{list(META)[1]}": None}}}).encode(),
        b"[" * 100_000,
    ],
)
def test_anything_but_a_proper_handshake_is_left_to_the_sdk(line: bytes) -> None:
    assert handshake.first_reply(line, "") is None


def test_nothing_heavy_is_imported_before_the_first_reply(tmp_path: Path) -> None:
    script = (
        "import sys, localmcp.__main__\n"
        "from localmcp.server.handshake import greet\n"
        "greet()\n"
        "sys.stderr.write(' '.join(sys.modules))\n"
    )
    server = Server([sys.executable, "-c", script], tmp_path)
    assert server.ask(initialize())["id"] == 0
    code, _, modules = server.end()
    server.release()
    loaded = {name.partition(".")[0] for name in modules.split()}
    assert code == 0 and "json" in loaded
    heavy = {"mcp", "mcp_types", "pydantic", "anyio", "apsw", "asyncio", "click", "platformdirs"}
    assert not loaded & heavy


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("serve", (None, None)),
        ("serve --db a.localmcp", ("a.localmcp", None)),
        ("--db=a.localmcp serve", ("a.localmcp", None)),
        ("--db a --db b serve", ("b", None)),
        ("serve --http", None),
        ("serve --help", None),
        ("serve --db", None),
        ("serve serve", None),
        ("search serve", None),
        ("", None),
    ],
)
def test_only_a_plain_serve_takes_the_short_way(line: str, expected: tuple[str | None, str | None] | None) -> None:
    assert plain_serve(line.split()) == expected


# ---------------------------------------------------------------- instructions


def test_the_fixed_instructions_fit_and_name_the_common_calls() -> None:
    assert len(handshake.INSTRUCTIONS) <= 1500
    assert f"`execute_tool` runs without a search: {', '.join(COMMON_CALLS)}." in handshake.INSTRUCTIONS


# ---------------------------------------------------------------- raw bytes


def test_a_client_may_send_everything_at_once(server: Server) -> None:
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    server.send(initialize(), initialized, {**ping(1), "method": "tools/list"}, call(2, "echo", text="x"))
    server.stdin.close()
    code, out, errors = server.end()
    replies = {each["id"]: each for each in map(json.loads, out.splitlines())}
    assert (code, errors, len(replies)) == (0, "", 3)
    assert replies[1]["result"]["tools"][0]["name"] == "echo"
    assert replies[2]["result"]["structuredContent"] == {"words": "x", "count": 1}


def test_a_handshake_that_the_sdk_refuses_is_answered_once_and_odd_line_ends_are_tolerated(server: Server) -> None:
    reply = server.ask(b"\xef\xbb\xbf" + json.dumps({**initialize(7), "params": {}}).encode() + b"\r\n\r\n\n")
    assert reply["id"] == 7 and reply["error"]["code"] == -32602
    assert server.ask({**ping(1), "method": "tools/list"})["error"]["code"] == -32602
    assert server.ask(initialize(3))["result"]["protocolVersion"] == "2025-11-25"
    assert server.ask(b"\xef\xbb\xbf" + json.dumps(ping(2)).encode() + b"\r\n")["id"] == 2
    assert server.end() == (0, "", "")


BAD_LINES: list[tuple[bytes, int, Any]] = [
    (b"garbage\n", -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":\n', -32700, None),
    (b"\x00\x01\x02\n", -32700, None),
    (b"[" * 100_000 + b"\n", -32700, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32700, None),
    (b"5\n", -32700, None),
    (b'{"jsonrpc":"1.0","id":5,"method":"ping"}\n', -32700, None),
    (b'{"id":"five"}\n', -32700, None),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32700, None),
    (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":[1]}\n', -32700, None),
    (b'{"jsonrpc":"2.0","id":5,"method":"no/such"}\n', -32601, 5),
    (b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"echo","arguments":[]}}\n', -32602, 5),
    (b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"arguments":{}}}\n', -32602, 5),
    (b'{"jsonrpc":"2.0","id":5,"method":"tools/call"}\n', -32602, 5),
]


def test_every_bad_line_is_answered_and_the_next_one_served(lasting: Server) -> None:
    for line, code, request_id in BAD_LINES:
        reply = lasting.ask(line)
        assert (reply["error"]["code"], reply["id"]) == (code, request_id), line[:80]
        assert lasting.ask(ping("next"))["id"] == "next"


def test_lone_surrogates_and_invalid_utf8_in_requests_become_replacement_characters(lasting: Server) -> None:
    assert lasting.ask(call(1, "echo", text="a\ud800b"))["result"]["structuredContent"]["words"] == "a\ufffdb"
    invalid = json.dumps(call(2, "echo", text="a?b")).encode().replace(b"?", b"\xff") + b"\n"
    assert lasting.ask(invalid)["result"]["structuredContent"]["words"] == "a\ufffdb"
    assert lasting.ask(call(3, "no\udfffbody"))["error"]["message"] == "Unknown tool: no\ufffdbody"
    assert lasting.ask(call("\ud800", "echo", text="x"))["id"] == "\ufffd"
    assert "not a parameter" in lasting.ask(call(5, "echo", **{"\ud800": 1}))["result"]["content"][0]["text"]


def test_stray_output_and_cancelled_calls_do_no_harm_and_calls_that_outlast_the_client_are_answered_as_closed(
    folder: Path, ready: Server
) -> None:
    assert ready.ask(call(1, "noisy"))["result"]["isError"] is False
    ready.send(call(2, "block"))
    while (line := ready.stderr.readline()) != b"blocking\n":
        assert line in (b"stray\n", b"stray bytes\n", b"child\n")
    # Some clients write a null into every notification.
    ready.send({"jsonrpc": "2.0", "id": None, "method": "notifications/cancelled", "params": {"requestId": 2}})
    assert ready.ask(ping(3)) == {"jsonrpc": "2.0", "id": 3, "result": {}}
    # Calls that hang leave lists and pings free.
    ready.send(*(call(f"call {number}", "block") for number in range(12)))
    assert ready.ask({**ping("list"), "method": "tools/list"})["id"] == "list"
    code, out, errors = ready.end()
    assert (code, errors.replace("blocking\n", "")) == (0, "")
    assert [json.loads(line)["error"]["message"] for line in out.splitlines()] == ["Connection closed"] * 12
    assert (folder / "closed").exists()


# ---------------------------------------------------------------- the end


def test_a_client_that_closes_its_reading_end_ends_the_server(folder: Path, ready: Server) -> None:
    ready.stdout.close()
    ready.send(ping(1))
    assert ready.process.wait() == 0
    assert ready.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(("number", "busy"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_a_signal_ends_the_server_cleanly(folder: Path, ready: Server, number: int, busy: bool) -> None:
    assert ready.ask(call(1, "echo", text="x"))["id"] == 1
    if busy:
        ready.send(call(2, "block"))
        assert ready.stderr.readline() == b"blocking\n"
    ready.process.send_signal(number)
    assert ready.process.wait() == 128 + number
    assert ready.stderr.read() == b""
    assert (folder / "closed").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_signal_ends_a_server_whose_client_has_stopped_reading(ready: Server) -> None:
    ready.send(*(call(each, "big", size=400_000) for each in range(4)), call(5, "announce"))
    assert ready.stderr.readline() == b"announced\n"
    ready.process.send_signal(signal.SIGTERM)
    assert ready.process.wait() == 143
    assert ready.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_signal_before_the_first_message_ends_the_server(server: Server) -> None:
    # No pipe holds this much: when all of it is written, the server has begun to read.
    server.send(b" " * 2**20)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait() == -signal.SIGINT
    assert server.stderr.read() == b""
