"""The log of calls: every face is in it, no secret is, and no call pays for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
from command_line import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import localmcp
from localmcp.activity import Activity, CallOrigin, call_origin
from localmcp.errors import CallGivenUp, Interrupted, InvalidInput, LocalMCPError
from localmcp.server.http.endpoints import original_row
from localmcp.storage.database import Database, fetch_one
from localmcp.tools import Answer, CallRecord, Scope, use_scope
from localmcp.workspace import Workspace

KEY = "mcp_" + "aB3" * 10 + "xY"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace on a file that is there."""
    with localmcp.open(tmp_path / "a.localmcp", model="hash") as workspace:
        workspace.database.ensure_writable()
        yield workspace


def record(
    tool: str = "search",
    arguments: dict[str, Any] | None = None,
    *,
    caller: str = "cli",
    collections: frozenset[str] | None = None,
    seconds: float = 0.0,
    ago: timedelta = timedelta(),
    error: Exception | None = None,
    text: str = "{}",
) -> CallRecord:
    """A finished call as the registry hands it to observers."""
    scope = Scope(caller=caller, collections=collections)
    answer = None if error else Answer({}, text)
    started = (datetime.now(UTC) - ago).timestamp()
    return CallRecord(tool, arguments or {}, scope, started, seconds, error, answer)


def logged(workspace: Workspace, **chosen: Any) -> list[tuple[str, str, bool]]:
    """Tool, caller and success of each call, the latest first."""
    return [(each["tool"], each["caller"], each["success"]) for each in workspace.activity.logs(**chosen)[0]]


# ---------------------------------------------------------------- what is kept


def test_a_call_is_kept_with_who_what_how_long_and_how_much(workspace: Workspace) -> None:
    before = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    answer = workspace.registry.call("greetUser", {"name": "Anna"}, Scope(caller="tui"))
    [entry] = workspace.activity.logs()[0]
    assert (entry["tool"], entry["caller"], entry["via"], entry["success"]) == ("greetUser", "tui", None, True)
    assert entry["arguments"] == {"name": "Anna"}
    assert (entry["argumentBytes"], entry["resultBytes"]) == (len('{"name":"Anna"}'), len(answer.text))
    assert entry["startedAt"] >= before
    assert entry["milliseconds"] > 0
    assert entry["error"] is None


def test_a_call_that_fails_or_answers_with_an_error_tells_its_class_and_a_short_message(workspace: Workspace) -> None:
    with pytest.raises(InvalidInput):
        workspace.registry.call("search", {"query": 5})
    workspace.registry.call("retriever", {"collection_name": "nowhere", "texts": ["x"]})
    answered, failed = workspace.activity.logs()[0]
    message = failed["error"]["message"]
    assert (failed["success"], failed["error"]["class"], failed["resultBytes"]) == (False, "InvalidInput", 0)
    assert message.startswith("Invalid arguments for search") and len(message) <= 300
    assert answered["error"] == {"class": "ToolError", "message": "query failed: collection not found"}


def test_a_call_that_its_client_gave_up_is_kept_and_a_search_that_a_person_typed_over_is_not(
    workspace: Workspace,
) -> None:
    workspace.activity.note_call(record(error=Interrupted("The search was interrupted.")))
    workspace.activity.note_call(record("mail__send", error=CallGivenUp("The client has given the call up.")))
    [entry] = workspace.activity.logs()[0]
    assert (entry["tool"], entry["success"], entry["error"]["class"]) == ("mail__send", False, "CallGivenUp")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("execute_tool", {"name": "greetUser", "arguments": {"name": "Anna"}}), ("ask", {"query": "Please greet Anna"})],
)
def test_a_tool_run_through_another_is_kept_once_as_itself(
    workspace: Workspace, tool: str, arguments: dict[str, Any]
) -> None:
    workspace.registry.call(tool, arguments)
    [entry] = workspace.activity.logs()[0]
    assert (entry["tool"], entry["via"], entry["arguments"]) == ("greetUser", tool, {"name": "Anna"})
    assert [tool["tool"] for tool in workspace.activity.stats()["tools"]] == ["greetUser"]
    assert len(workspace.activity.logs(tool=tool)[0]) == 1


def test_the_originals_fields_are_there_and_where_a_request_came_from(workspace: Workspace) -> None:
    made = workspace.api_keys.create(name="editor")
    token = call_origin.set(CallOrigin("127.0.0.1", "curl/8", f"http://a/?token={KEY}", "POST /tools/greetUser"))
    workspace.registry.call("greetUser", {"name": "Anna"}, made.info.scope())
    call_origin.reset(token)
    workspace.registry.call("greetUser", {"name": "Berta"})
    later, first = map(original_row, workspace.activity.logs()[0])
    assert first["apikey_id"] == made.info.id
    assert first["metadata"].keys() == {"method", "tool", "args", "success", "error", "duration", "responseSize"}
    assert first["metadata"].items() >= {"method": "POST /tools/greetUser", "success": True, "error": None}.items()
    assert first["origin"] == {"ip": "127.0.0.1", "userAgent": "curl/8", "referer": "http://a/?token=***"}
    assert later["metadata"]["method"] == "tools/call" and workspace.activity.logs()[0][0]["origin"] is None
    assert later["created_at"].endswith("Z")


# ---------------------------------------------------------------- secrets and sizes


def test_no_secret_reaches_the_file(workspace: Workspace) -> None:
    secret = "correct horse battery"
    for arguments in (
        {"query": f"use {KEY} please"},
        {"query": "a", "apiKey": secret},
        {"deep": [{"password": secret}]},
    ):
        with pytest.raises(LocalMCPError):
            workspace.registry.call("search", {**arguments, "limit": "x"})
    workspace.activity.note_call(record(error=RuntimeError(f"Bearer {KEY} was refused")))
    with pytest.raises(LocalMCPError):
        workspace.registry.call(KEY)
    assert len(workspace.activity.logs()[0]) == 5
    path = workspace.database.path
    workspace.close()
    assert path.stat().st_size
    for part in path.parent.glob(f"{path.name}*"):
        assert KEY.encode() not in part.read_bytes()
        assert secret.encode() not in part.read_bytes()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=3000),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=300), inner, max_size=9),
    max_leaves=20,
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(arguments=st.dictionaries(st.text(), JSON_VALUES), message=st.text(), tool=st.text())
def test_whatever_is_called_is_kept_within_2_kb_as_valid_json(
    workspace: Workspace, arguments: dict[str, Any], message: str, tool: str
) -> None:
    workspace.activity.note_call(record(tool, arguments, error=RuntimeError(message)))
    [entry] = workspace.activity.logs(limit=1)[0]
    with workspace.database.read() as connection:
        text = fetch_one(connection, "select arguments from calls where id = ?", (entry["id"],))
    assert len(text.encode()) <= 2048
    assert json.loads(text, parse_constant=pytest.fail) == entry["arguments"]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=st.integers(0, 6000), key=st.sampled_from([KEY, "sk-" + "q7" * 20, "Bearer abcdefghijkl"]))
def test_a_secret_at_the_place_where_arguments_are_cut_is_masked(workspace: Workspace, before: int, key: str) -> None:
    workspace.activity.note_call(record(arguments={"text": "a " * (before // 2) + key + " b" * 3000}))
    text = json.dumps(workspace.activity.logs(limit=1)[0][0]["arguments"])
    assert key[:12] not in text


def test_arguments_are_not_kept_when_the_setting_says_so(tmp_path: Path) -> None:
    with localmcp.open(tmp_path / "a.localmcp", model="hash", log_calls="names") as workspace:
        workspace.database.ensure_writable()
        workspace.activity.note_call(record(arguments={"query": "private"}, error=InvalidInput("private is wrong")))
        [entry] = workspace.activity.logs()[0]
        assert (entry["arguments"], entry["error"]) == (None, {"class": "InvalidInput", "message": None})
        assert entry["argumentBytes"] == len('{"query":"private"}')


# ---------------------------------------------------------------- what it must not do


def test_the_log_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.localmcp"
    with localmcp.open(path, model="hash") as workspace:
        workspace.registry.call("addNumbers", {"a": 1, "b": 2})
        assert logged(workspace) == []
        assert workspace.activity.stats()["calls"] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_call_is_answered_while_another_program_writes(workspace: Workspace) -> None:
    other = apsw.Connection(str(workspace.database.path))
    other.execute("begin immediate")
    assert workspace.registry.call("search", {"query": "roses"}).value["count"] == 0
    other.execute("rollback")
    other.close()
    assert [each[0] for each in logged(workspace)] == ["search"]


def test_a_call_that_cannot_be_noted_is_answered(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise ValueError

    workspace.activity.note_call(record(error=Unspeakable()))
    assert "could not be noted" in caplog.text


# ---------------------------------------------------------------- pruning


def test_calls_go_when_their_days_are_over(database: Database) -> None:
    database.ensure_writable()
    activity = Activity(database, days=30)
    for days in (40, 31, 29, 0):
        activity.note_call(record(f"tool{days}", ago=timedelta(days=days)))
    activity.flush()
    assert [each["tool"] for each in activity.logs()[0]] == ["tool0", "tool29"]
    activity.close()


def test_the_oldest_calls_go_when_the_log_is_too_large(database: Database) -> None:
    database.ensure_writable()
    activity = Activity(database, megabytes=1)
    for batch in range(6):
        for number in range(200):
            activity.note_call(record(arguments={"query": "x" * 1500, "number": batch * 200 + number}))
        activity.flush()
    entries, total = activity.logs(limit=1000)
    numbers = [each["arguments"]["number"] for each in entries]
    with database.read() as connection:
        assert fetch_one(connection, "select sum(length(arguments)) from calls") < 1_000_000
    assert 400 < total < 700
    assert numbers == list(range(1199, 1199 - total, -1))
    activity.close()


# ---------------------------------------------------------------- reading


@pytest.fixture
def used(workspace: Workspace) -> Workspace:
    """Six calls of four callers."""
    notes = frozenset({"notes"})
    for each in (
        record("search", {"collection": "Notes"}, caller="stdio", seconds=0.010, ago=timedelta(hours=5)),
        record("search", {"collection": "work"}, caller="stdio", seconds=0.030, ago=timedelta(hours=4)),
        record("search", caller="key-a", collections=notes, seconds=0.020, ago=timedelta(hours=3)),
        record("search", caller="key-a", collections=notes, error=InvalidInput("bad"), ago=timedelta(hours=2)),
        record("get_stats", caller="key-b", text="12345", ago=timedelta(hours=1)),
        record("get_stats", caller="cli", text="123"),
    ):
        workspace.activity.note_call(each)
    return workspace


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({}, 6),
        ({"key_id": "key-a"}, 2),
        ({"tool": "get_stats"}, 2),
        ({"errors": True}, 1),
        ({"collection": "notes"}, 3),
        ({"collection": "none"}, 0),
        ({"tool": "search", "key_id": "stdio"}, 2),
        ({"since": "2020-01-01"}, 6),
        ({"since": (datetime.now(UTC) - timedelta(hours=2, minutes=30)).isoformat()}, 3),
        ({"key_id": "' or 1=1 --"}, 0),
    ],
)
def test_calls_are_chosen(used: Workspace, chosen: dict[str, Any], found: int) -> None:
    entries, total = used.activity.logs(**chosen)
    assert (len(entries), total) == (found, found)


def test_pages_follow_one_another_latest_first(used: Workspace) -> None:
    ids = [each["id"] for offset in (0, 2, 4, 6) for each in used.activity.logs(limit=2, offset=offset)[0]]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == used.activity.logs(limit=1)[1] == 6


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"limit": 0}, "limit: 0 is not between 1 and 1000"),
        ({"limit": 1001}, "limit"),
        ({"offset": -1}, "offset"),
        ({"since": "yesterday"}, "since: .* is no date"),
    ],
)
def test_what_cannot_be_chosen_is_named(workspace: Workspace, chosen: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        workspace.activity.logs(**chosen)


def test_statistics_add_up_by_tool_and_by_caller(used: Workspace) -> None:
    found = used.activity.stats()
    assert [(tool["tool"], tool["calls"], tool["errors"]) for tool in found["tools"]] == [
        ("search", 4, 1),
        ("get_stats", 2, 0),
    ]
    search = found["tools"][0]
    assert (search["medianMilliseconds"], search["p95Milliseconds"], search["errorRate"]) == (10, 30, 0.25)
    assert found["tools"][1]["resultBytes"] == 8
    assert {caller["caller"]: caller["calls"] for caller in found["callers"]} == {
        "stdio": 2, "key-a": 2, "key-b": 1, "cli": 1
    }  # fmt: skip
    assert used.activity.stats(key_id="key-a")["errorRate"] == 0.5


def test_a_caller_without_admin_sees_only_its_own_calls_and_an_admin_of_one_collection_those_about_it(
    used: Workspace,
) -> None:
    with use_scope(Scope(caller="key-b", rights=frozenset({"read"}))):
        assert logged(used) == [("get_stats", "key-b", True)]
        assert used.activity.logs(key_id="key-a")[1] == 0
        assert [caller["caller"] for caller in used.activity.stats()["callers"]] == ["key-b"]
    with use_scope(Scope(caller="boss", collections=frozenset({"notes"}))):
        assert {each["caller"] for each in used.activity.logs()[0]} == {"key-a"}
        assert {caller["caller"] for caller in used.activity.stats()["callers"]} == {"key-a"}


def test_the_calls_of_unbound_callers_are_logged_under_what_they_were_given(workspace: Workspace) -> None:
    workspace.library.add_text("The heron stands in the reeds.", "Heron", collection="birds")
    for scope in (Scope(caller="key-u"), Scope(caller="key-u", lean=True)):
        workspace.registry.call("search", {"query": "heron reeds"}, scope)
        workspace.registry.call("get_document", {"sourceId": "Heron"}, scope)
    assert [c["tool"] for c in workspace.activity.logs(collection="birds")[0]] == [*("get_document", "search") * 2]


# ---------------------------------------------------------------- the command line


def test_log_chooses_and_prints_json(
    used: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    used.activity.flush()
    monkeypatch.setenv("LOCALMCP_MODEL", "hash")
    cli = partial(run, capsys, "--db", str(used.database.path))
    value = cli("log", "--tool", "search", "--key", "stdio", "--since", "1d", "--json").json
    assert (value["count"], value["total"]) == (2, 2)
    assert value["calls"][0]["milliseconds"] == 30
    for since in "yesterday, today, 3 hours ago, 2 weeks, 30min, 30 minutes ago, 6m, 6 months, last week".split(", "):
        assert cli("log", "--since", since)[0] == 0
    [failed] = cli("log", "--errors", "-c", "notes", "--json").json["calls"]
    assert failed["error"] == {"class": "InvalidInput", "message": "bad"}
