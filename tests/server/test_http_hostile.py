"""A slice of the hostile requests of `benchmarks/http_hostile.py`, on a door in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import OpenDoor, open_door
from library import Library

from localmcp.server.http import app

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from http_hostile import attack


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenDoor]:
    # Requests that never end are given up soon, so that the slice is quick.
    monkeypatch.setattr(app, "REQUEST_SECONDS", 2)
    with open_door(tmp_path / "door.localmcp") as opened:
        Library(opened.workspace.database, opened.workspace.embedder.get()).put("A hive has one queen.", title="Bees")
        yield opened


def test_hostile_requests_find_no_500_no_traceback_and_a_door_that_goes_on(
    door: OpenDoor, caplog: pytest.LogCaptureFixture
) -> None:
    tools = door.send("GET", "/tools").json["tools"]
    report = attack(door.port, door.make_key("write"), tools, count=500, seed=7)
    assert report.sent == 500
    assert report.faults == []
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []
    assert door.send("GET", "/health", key=None).json["status"] == "ok"
    assert door.rpc("tools/list").status == 200
