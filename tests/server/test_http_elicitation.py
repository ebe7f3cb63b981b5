"""Questions to the person over HTTP, in both generations: in the session, or as a result that is answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from doors import OpenDoor, open_door
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from localmcp.tools import Json, person_asker, tool

ERAS = ["legacy", "auto"]
SCHEMA: Json = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}


class Painter:
    """A tool that asks."""

    @tool("paint", title="Paint")
    def paint(self, thing: str) -> dict[str, str]:
        """Paint a thing in the color that the person chooses."""
        ask = person_asker()
        if ask is None:
            return {"painted": f"{thing}: white"}
        chosen = ask({"mode": "form", "message": f"Which color for the {thing}?", "requestedSchema": SCHEMA}).result()
        return {"painted": f"{thing}: {chosen['content']['color']}" if chosen["action"] == "accept" else "declined"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDoor]:
    home: Path = tmp_path_factory.mktemp("asking")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STATE", "CONFIG", "DATA", "CACHE"):
            patch.setenv(f"LOCALMCP_{name}_DIR", str(home / name.lower()))
        with open_door(home / "a.localmcp") as opened:
            opened.workspace.registry.add_service(Painter())
            yield opened


async def call(server: OpenDoor, era: Any, callback: Any, name: str, **arguments: Any) -> types.CallToolResult:
    headers = {"Authorization": f"Bearer {server.make_key('write')}"}
    async with httpx2.AsyncClient(headers=headers) as http_client:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http_client)
        async with Client(transport, mode=era, elicitation_callback=callback) as client:
            return await client.call_tool(name, arguments)


async def paint(server: OpenDoor, era: Any, callback: Any) -> str:
    result = await call(server, era, callback, "paint", thing="fence")
    return str((result.structured_content or {}).get("painted"))


@pytest.mark.parametrize("action", ["accept", "decline"])
@pytest.mark.parametrize("era", ERAS)
async def test_the_person_is_asked_in_the_middle_of_a_call(server: OpenDoor, era: Any, action: Any) -> None:
    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert params.message == "Which color for the fence?"
        return types.ElicitResult(action=action, content={"color": "green"} if action == "accept" else None)

    assert ("fence: green" if action == "accept" else "declined") == await paint(server, era, answer)


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_offers_nothing_is_not_asked(server: OpenDoor, era: Any) -> None:
    assert "fence: white" == await paint(server, era, None)


def test_a_reply_that_answers_no_question_is_accepted_and_dropped(server: OpenDoor) -> None:
    reply = server.send("POST", "/mcp", {"jsonrpc": "2.0", "id": "question-guessed", "result": {"action": "accept"}})
    assert reply.status == 202
