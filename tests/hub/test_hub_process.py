"""The whole way: a client of localmcp reaches other servers through it, one of them taken from the package index."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from federation import Farm, is_alive, wait_until
from mcp import Client, StdioServerParameters
from mcp.types import ImageContent, TextContent

from localmcp.config import servers_file

"""What else it needs is beside localmcp already."""


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    farm = Farm(tmp_path)
    yield farm
    farm.close()


def serving(farm: Farm, *arguments: str) -> StdioServerParameters:
    """`localmcp serve`, with the directories of this test."""
    own = {name: value for name, value in os.environ.items() if name.startswith("LOCALMCP_")}
    words = ["-m", "localmcp", "serve", "--db", str(farm.folder / "a.localmcp"), *arguments]
    return StdioServerParameters(command=sys.executable, args=words, env={**own, "LOCALMCP_MODEL": "hash"})


def first_text(result: Any) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def execute(client: Client, name: str, **arguments: Any) -> Any:
    return await client.call_tool("execute_tool", {"name": name, "arguments": arguments})


# ---------------------------------------------------------------- through `localmcp serve`


async def names_found(client: Client, query: str) -> list[str]:
    """What a search finds, best first, once every server has told its tools."""
    while "still starting" in str(found := await client.call_tool("tool_search", {"query": query})):
        await anyio.sleep(0.05)
    text = first_text(found)
    return [each["name"] for each in json.loads(text)] if text.startswith("[") else []


async def test_hidden_tools_of_other_servers_add_nothing_to_the_list_and_send_their_blocks_whole(farm: Farm) -> None:
    async with Client(serving(farm)) as client:
        before = [each.name for each in (await client.list_tools()).tools]
        farm.write(shop=farm.plain("shop"))
        assert (await names_found(client, "shop__rich"))[:1] == ["shop__rich"]
        assert [each.name for each in (await client.list_tools()).tools] == before
        rich = await execute(client, "shop__rich")
        image = rich.content[0]
        assert isinstance(image, ImageContent) and image.mime_type == "image/png"
        assert rich.structured_content == {"answer": 42}
        crashed = await execute(client, "shop__crash")
        assert crashed.is_error and "The MCP server 'shop' ended during the call" in first_text(crashed)
        assert first_text(await execute(client, "shop__echo", text="again")) == "again"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("way", ["stdin", "SIGTERM", "SIGKILL"])
def test_however_localmcp_ends_no_server_is_left(farm: Farm, way: str) -> None:
    # A program that is killed ends nothing itself: its servers see the end of their input.
    farm.write(shop=farm.plain("shop", *([] if way == "SIGKILL" else ["--stubborn"])))
    served = serving(farm)
    environment = {**os.environ, **(served.env or {})}
    command = [served.command, *served.args]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as localmcp:
        assert localmcp.stdin is not None and localmcp.stdout is not None
        for message in handshake_and_call("shop__echo", {"text": "x"}):
            localmcp.stdin.write(json.dumps(message).encode() + b"\n")
        localmcp.stdin.flush()
        while b'"id":2' not in localmcp.stdout.readline():
            pass
        (pid,) = farm.pids("shop")
        assert is_alive(pid)
        if way == "stdin":
            localmcp.stdin.close()
        else:
            localmcp.send_signal(signal.Signals[way])
        localmcp.wait(60)
    assert wait_until(lambda: not is_alive(pid))


def handshake_and_call(name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    client = {"name": "test", "version": "1"}
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    return [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
    ]


# ---------------------------------------------------------------- profiles


def write_profiles(text: str) -> None:
    servers_file().parent.mkdir(parents=True, exist_ok=True)
    (servers_file().parent / "profiles.toml").write_text(text, encoding="utf-8")


async def test_a_profile_limits_what_a_client_sees_and_calls(farm: Farm) -> None:
    farm.write(shop=farm.plain("shop"), bank=farm.plain("bank"))
    write_profiles('[work]\nproviders = ["mcp:bank"]\nrights = "read"\n[lone]\ntools = ["search"]\n')
    async with Client(serving(farm, "--profile", "work")) as client:
        assert first_text(await execute(client, "bank__echo", text="x")) == "x"
        assert "Tool not found: shop__echo" in first_text(await execute(client, "shop__echo", text="x"))
        assert "may only read" in first_text(await execute(client, "bank__fail"))
        listed = [each.name for each in (await client.list_tools()).tools]
        assert "search" in listed and "add_text" not in listed
    async with Client(serving(farm, "--profile=lone")) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["search"]
    assert farm.pids("shop") == []


async def test_a_profile_that_cannot_be_used_gives_nothing_and_says_why(farm: Farm) -> None:
    write_profiles("[work]\n")
    async with Client(serving(farm, "--profile", "wrok")) as client:
        assert (await client.list_tools()).tools == []
        refused = await client.call_tool("search", {"query": "x"})
        assert refused.is_error and "There is no profile 'wrok'" in first_text(refused)
        assert "There is: work." in first_text(refused)
