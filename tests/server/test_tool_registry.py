"""The library: a registry of hidden tools, its providers, and the two tools it adds to an MCP server."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp.types as wire
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp.server.lowlevel.server import Server

import localmcp
from localmcp import ToolNotFound, ToolRegistry, with_request_providers
from localmcp.errors import InvalidInput, UnknownTool
from localmcp.server.tool_registry import EXECUTE_TOOL, TOOL_SEARCH, ToolDefinition, ToolMetadata
from localmcp.tools import Answer

ROOT = Path(__file__).parents[2]


def send_email(to: str, subject: str = "Hello") -> str:
    """Send an email to a recipient."""
    return f"Email sent to {to}: {subject}"


def fail(reason: str) -> str:
    """Always fail."""
    raise ValueError(reason)


class Calculator:
    """A provider as a person writes one."""

    def __init__(self, name: str = "dynamic_calculator", answer: str = "calculated") -> None:
        self.tool, self.answer = name, answer

    def list_tools(self) -> list[ToolMetadata]:
        return [ToolMetadata(self.tool, "Does sums", ("math",))]

    def get_tool(self, name: str) -> ToolDefinition | None:
        return ToolDefinition(name, "Does sums") if name == self.tool else None

    def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        if name != self.tool:
            raise ToolNotFound(name)
        return self.answer


@pytest.fixture
def registry() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_tool(send_email, "email", "communication", "smtp")
    registry.register_tool(fail)
    return registry


# ---------------------------------------------------------------- registering


def test_the_package_offers_the_library_without_importing_it_first() -> None:
    code = "import sys, localmcp; localmcp.ToolRegistry(); print('mcp' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "False"
    assert {"ToolRegistry", "ToolNotFound", "with_request_providers"} <= set(localmcp.__all__)


def test_a_function_is_its_own_definition(registry: ToolRegistry) -> None:
    definition = registry.get_tool("send_email")
    assert definition.description == "Send an email to a recipient."
    assert definition.input_schema["required"] == ["to"]
    assert definition.input_schema["properties"]["subject"] == {"default": "Hello", "type": "string"}
    assert definition.keywords == ("email", "communication", "smtp")


@pytest.mark.parametrize("form", [ToolDefinition, wire.Tool])
def test_a_definition_may_come_in_any_form_with_a_handler(form: Any) -> None:
    schema = {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}
    tool = form(name="greet", description="Greet", input_schema=schema)
    registry = ToolRegistry()
    registry.register_tool(tool, lambda who: f"Hello, {who}", "welcome")
    assert registry.call_tool("greet", {"who": "Ada"}).text == "Hello, Ada"
    assert registry.get_tool("greet").description == "Greet"
    assert [hit["name"] for hit in registry.search("welcome")] == ["greet"]
    with pytest.raises(InvalidInput, match="who: required"):
        registry.call_tool("greet")


def test_a_tool_that_cannot_be_run_or_described_is_refused_in_words(registry: ToolRegistry) -> None:
    with pytest.raises(InvalidInput, match="needs a handler"):
        registry.register_tool(ToolDefinition("x"))
    with pytest.raises(InvalidInput, match="its parameter a has no type hint"):
        registry.register_tool(lambda a: a)


def test_the_last_registration_of_a_name_wins(registry: ToolRegistry) -> None:
    registry.register_tool(ToolDefinition("send_email"), lambda: "new")
    assert registry.call_tool("send_email").text == "new"


# ---------------------------------------------------------------- searching and calling


def test_an_unknown_name_is_not_found_and_the_nearest_is_named(registry: ToolRegistry) -> None:
    for look in (registry.call_tool, registry.get_tool):
        with pytest.raises(ToolNotFound, match="Did you mean 'send_email'") as error:
            look("send_mail")
        assert isinstance(error.value, UnknownTool)


def test_what_a_handler_raises_passes_through(registry: ToolRegistry) -> None:
    with pytest.raises(ValueError, match="no luck"):
        registry.call_tool("fail", {"reason": "no luck"})


@pytest.mark.parametrize(
    ("returned", "value", "text"),
    [
        ("word", {"result": "word"}, "word"),
        ({"a": 1}, {"a": 1}, '{"a":1}'),
        ([1, "é"], {"result": [1, "é"]}, '[1,"é"]'),
        (None, {"result": None}, "null"),
        (float("inf"), {"result": "Infinity"}, "Infinity"),
        (Answer({"x": 1}, "said"), {"x": 1}, "said"),
        (wire.CallToolResult(content=[wire.TextContent(text="t")], structured_content={"s": 1}), {"s": 1}, "t"),
        ([wire.TextContent(text="t"), wire.TextContent(text="u")], {"result": "t\nu"}, "t\nu"),
    ],
)
def test_a_handler_may_return_anything(returned: Any, value: Any, text: str) -> None:
    registry = ToolRegistry()
    registry.register_tool(ToolDefinition("it"), lambda: returned)
    answer = registry.call_tool("it")
    assert (answer.value, answer.text) == (value, text)


async def test_an_async_handler_runs_inside_a_running_loop_too() -> None:
    async def add_later(a: int, b: int = 0) -> int:
        return a + b

    registry = ToolRegistry()
    registry.register_tool(add_later)
    assert registry.call_tool("add_later", {"a": 5}).value == {"result": 5}


# ---------------------------------------------------------------- providers


def test_a_global_provider_is_searched_and_called_until_it_is_removed(registry: ToolRegistry) -> None:
    provider = Calculator()
    registry.add_provider(provider)
    assert [hit["name"] for hit in registry.search("math")] == ["dynamic_calculator"]
    assert registry.call_tool("dynamic_calculator").text == "calculated"
    assert registry.remove_provider(provider) is True
    assert registry.remove_provider(provider) is False
    assert registry.search("math") == []


def test_what_is_no_provider_is_refused(registry: ToolRegistry) -> None:
    for wrong in (object(), registry):
        with pytest.raises(InvalidInput):
            registry.add_provider(wrong)
    with pytest.raises(InvalidInput, match="needs list_tools"), with_request_providers(object()):
        pass


def test_request_providers_exist_inside_the_block_and_nested_ones_add_up(registry: ToolRegistry) -> None:
    def names() -> set[str]:
        return {each.name for each in registry.list_tools()} - {"send_email", "fail"}

    with with_request_providers(Calculator("outer")):
        with with_request_providers(Calculator("inner"), Calculator("innermost")):
            assert names() == {"outer", "inner", "innermost"}
            assert registry.call_tool("inner").text == "calculated"
        assert names() == {"outer"}
    assert names() == set()
    with pytest.raises(ToolNotFound):
        registry.call_tool("outer")


def test_a_registry_is_a_provider_of_another_and_even_of_itself_in_a_request(registry: ToolRegistry) -> None:
    other = ToolRegistry()
    other.register_tool(ToolDefinition("theirs"), lambda: "from the other")
    with with_request_providers(other, registry):
        assert [hit["name"] for hit in registry.search("theirs")] == ["theirs"]
        assert registry.call_tool("theirs").text == "from the other"
    other.add_provider(Calculator())
    registry.add_provider(other)
    assert registry.call_tool("dynamic_calculator").text == "calculated"
    with pytest.raises(ToolNotFound):
        registry.call_tool("nobodys")


# ---------------------------------------------------------------- attached to a server


def high_level() -> MCPServer[Any]:
    server = MCPServer("high")

    @server.tool()
    def native(a: int = 0) -> str:
        """A tool of the server's own."""
        return f"native {a}"

    return server


def low_level() -> Server[Any]:
    async def list_tools(ctx: Any, params: Any) -> wire.ListToolsResult:
        return wire.ListToolsResult(tools=[wire.Tool(name="native", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: wire.CallToolRequestParams) -> wire.CallToolResult:
        if params.name != "native":
            raise MCPError(code=wire.INVALID_PARAMS, message=f"Unknown tool: {params.name}")
        return wire.CallToolResult(content=[wire.TextContent(text=f"native {(params.arguments or {}).get('a', 0)}")])

    return Server("low", on_list_tools=list_tools, on_call_tool=call_tool)


@pytest.fixture(params=["high", "low"])
def server(request: pytest.FixtureRequest, registry: ToolRegistry) -> Any:
    server = high_level() if request.param == "high" else low_level()
    registry.register_tool(ToolDefinition("native"), lambda: "the registry's")
    registry.attach(server)
    registry.attach(server)
    return server


@pytest.fixture(params=["auto", "legacy"])
def client(request: pytest.FixtureRequest, server: Any) -> Client:
    """To be entered by the test itself: a connection must end in the task that began it."""
    return Client(server, mode=request.param)


def said(result: Any) -> str:
    return result.content[0].text


async def test_exactly_two_tools_are_added_however_often(client: Client) -> None:
    async with client:
        listed = (await client.list_tools()).tools
    assert [each.name for each in listed] == ["native", TOOL_SEARCH, EXECUTE_TOOL]
    descriptions = " ".join(each.description or "" for each in listed)
    assert "execute_tool" in descriptions and "folders" not in descriptions


async def test_tool_search_gives_an_array_as_text_and_an_object_beside_it(client: Client) -> None:
    async with client:
        result = await client.call_tool(TOOL_SEARCH, {"query": "email"})
        nothing = await client.call_tool(TOOL_SEARCH, {"query": "zzzzqqqq"})
    assert [hit["name"] for hit in json.loads(said(result))] == ["send_email"]
    assert result.structured_content is not None and result.structured_content["count"] == 1
    assert said(nothing).startswith("No tools found")


async def test_a_hidden_tool_runs_by_execute_tool_and_by_its_own_name_but_never_hides_the_servers(
    client: Client,
) -> None:
    async with client:
        result = await client.call_tool(EXECUTE_TOOL, {"name": "send_email", "arguments": {"to": "Ada"}})
        assert (said(result), result.is_error) == ("Email sent to Ada: Hello", False)
        assert said(await client.call_tool("send_email", {"to": "Ada"})) == "Email sent to Ada: Hello"
        assert said(await client.call_tool("native", {"a": 3})) == "native 3"
        missing = await client.call_tool(EXECUTE_TOOL, {"name": "send_email", "arguments": {"too": "x"}})
        assert missing.is_error and "to: required" in said(missing)
        failed = await client.call_tool(EXECUTE_TOOL, {"name": "fail", "arguments": {"reason": "no luck"}})
        assert failed.is_error and "no luck" in said(failed)


def test_a_second_registry_on_one_server_is_refused(server: Any) -> None:
    with pytest.raises(InvalidInput, match="Another registry is attached"):
        ToolRegistry().attach(server)


# ---------------------------------------------------------------- the example


@asynccontextmanager
async def user(app: Any, user_id: str | None) -> AsyncIterator[Client]:
    """A client of the example over HTTP, whose every request carries the user."""
    headers = {"X-User-ID": user_id} if user_id else {}
    transport = httpx2.ASGITransport(app=app)
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8090", headers=headers) as http,
        Client(streamable_http_client("http://127.0.0.1:8090/mcp", http_client=http)) as client,
    ):
        yield client


async def run_tool(client: Client, tool: str, **arguments: Any) -> str:
    return said(await client.call_tool(EXECUTE_TOOL, {"name": tool, "arguments": arguments}))


async def names_found(client: Client, query: str) -> set[str]:
    text = said(await client.call_tool(TOOL_SEARCH, {"query": query}))
    return {hit["name"] for hit in json.loads(text)} if text.startswith("[") else set()


# The example keeps its database for its whole life; from Python 3.13 on, one that nobody closed is warned about.
@pytest.mark.filterwarnings("ignore:unclosed database")
async def test_the_example_gives_each_user_tools_of_their_own() -> None:
    path = ROOT / "sample_data" / "examples" / "tool_registry.py"
    spec = importlib.util.spec_from_file_location("tool_registry_example", path)
    assert spec is not None and spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    server = example.build_server()
    app = example.build_app(server)
    async with server.session_manager.run(), user(app, "anna") as anna, user(app, "bruno") as bruno:
        for client in (anna, bruno):
            assert [each.name for each in (await client.list_tools()).tools] == [TOOL_SEARCH, EXECUTE_TOOL]
            assert "send_email" in await names_found(client, "email")
        assert await run_tool(anna, "add_note", text="buy bees") == "Noted for anna"
        assert await run_tool(bruno, "my_notes") == "[]"
        assert await run_tool(anna, "my_notes") == '["buy bees"]'
        async with user(app, None) as nobody:
            assert "my_notes" not in await names_found(nobody, "my_notes")
            assert (await run_tool(nobody, "my_notes")).startswith("Tool not found: my_notes.")


def test_handlers_names_and_schemas_in_the_form_of_language_models_can_be_looked_up() -> None:
    registry = ToolRegistry()

    def greetUser(name: str) -> str:
        """Greets users by their given name"""
        return f"Hello, {name}!"

    registry.register_tool(greetUser)
    assert registry.get_tool_names() == ["greetUser"]
    assert registry.get_handler("greetUser")({"name": "John"}).text == "Hello, John!"
    (schema,) = registry.get_schemas()
    assert (schema["type"], schema["function"]["name"]) == ("function", "greetUser")
    assert schema["function"]["description"] == "Greets users by their given name"
    assert schema["function"]["parameters"]["required"] == ["name"]
    with pytest.raises(ToolNotFound):
        registry.get_handler("greetUsers")
