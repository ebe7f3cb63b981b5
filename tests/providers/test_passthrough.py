"""A real server behind the hub, seen through a real client: progress and cancellation pass both ways."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from federation import PATIENCE, SERVERS, Farm
from mcp import Client

from localmcp.server.handlers import build_server
from localmcp.tools import Registry, Scope

ERAS = ["legacy", "auto"]


@dataclass
class Wired:
    """What the server needs of a workspace."""

    registry: Registry


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    farm = Farm(tmp_path)
    farm.write(sdk={"command": sys.executable, "args": [str(SERVERS / "sdk.py")]})
    registry, opened = farm.open()
    assert opened.refresh(["sdk"]) == {"sdk": 5}
    yield registry
    farm.close()


@pytest.mark.parametrize("era", ERAS)
async def test_progress_of_a_connected_server_reaches_the_client(registry: Registry, era: Any) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with Client(build_server(lambda: Wired(registry), Scope()), mode=era) as client:
        result = await client.call_tool("sdk__count", {"steps": 3}, progress_callback=listen)
    assert not result.is_error and [message for *_, message in heard] == ["step 1", "step 2", "step 3"]
    assert heard[0][:2] == (1.0, 3.0)


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_the_client_gives_up_is_cancelled_in_the_server(
    registry: Registry, era: Any, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    async with Client(build_server(lambda: Wired(registry), Scope()), mode=era) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call_tool, "sdk__linger", {"file": str(note)})
            with anyio.fail_after(PATIENCE):
                while not note.exists():
                    await anyio.sleep(0.05)
            calls.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE):
            while note.read_text() != "given up":
                await anyio.sleep(0.05)
        again = await client.call_tool("sdk__count", {"steps": 1})
    assert not again.is_error
