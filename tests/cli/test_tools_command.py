"""`localmcp tools`: listing, searching, showing, calling and checking."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tool_manifests import open_workspace, write_tool

from localmcp.cli.tools import read_pairs
from localmcp.config import config_directory, sample_directory


@pytest.fixture(name="cli")
def tools(cli: Any) -> Any:
    """Runs `localmcp tools`."""
    return partial(cli, "tools")


def test_alone_it_lists_and_so_does_list(cli) -> None:
    shown = cli().out
    assert shown == cli("list").out
    rows = {line.split()[0]: line for line in shown.splitlines() if line}
    assert "yes" in rows["search"] and "query* (string), limit (integer 1..100)" in rows["search"]
    assert "yes" not in rows["verify_citation"] and "quote*" in rows["verify_citation"]
    listed = cli("--json").json
    assert listed["count"] == len(listed["tools"]) and "search" in [each["name"] for each in listed["tools"]]


def test_live_tools_are_found_the_hidden_ones_too(cli) -> None:
    ran = cli("search", "verify_citation", "--json")
    assert (ran.json[0]["name"], ran.json[0]["score"]) == ("verify_citation", 1.0)


def test_show_tells_everything_of_one_tool(cli) -> None:
    shown = cli("show", "greetUser", "--json").json
    assert shown["name"] == "greetUser" and shown["inputSchema"]["type"] == "object" and shown["readOnly"] is True
    assert "It only reads." in cli("show", "greetUser").out
    missing = cli("show", "greetUsers", "--json")
    assert (missing.code, missing.error["hint"]) == (2, "Did you mean 'greetUser'?")


def test_call_takes_json_and_pairs(cli, tmp_path: Path) -> None:
    by_json = cli("call", "addNumbers", '{"a": 2, "b": 3}')
    assert by_json.code == 0
    assert cli("call", "addNumbers", "a=2", "b=3").out == by_json.out
    assert cli("call", "addNumbers", "-", stdin=b'{"a": 2, "b": 3}').out == by_json.out
    (tmp_path / "arguments.json").write_text('{"a": 2, "b": 3}')
    assert cli("call", "addNumbers", "@arguments.json").out == by_json.out
    wrong = cli("call", "addNumbers", "a=2", "c=3", "--json")
    assert (
        wrong.code == 2 and "b: required" in wrong.error["message"] and "c: not a parameter" in wrong.error["message"]
    )
    assert cli("call", "addNumbers", "a").code == 2


def test_values_are_read_as_the_schema_wants_them() -> None:
    kinds = {"text": "string", "count": "integer", "tags": "array", "map": "object"}
    schema = {"properties": {"kind": {"enum": ["1", "2"]}, **{name: {"type": kind} for name, kind in kinds.items()}}}
    pairs = ("text=5", "kind=1", "count=5", "tags=a", 'map={"a": 1}', "more=x=y")
    values = {"text": "5", "kind": "1", "count": 5, "tags": ["a"], "map": {"a": 1}, "more": "x=y"}
    assert read_pairs(pairs, schema) == values
    assert read_pairs(("tags=[1, 2]", "count=many"), schema) == {"tags": [1, 2], "count": "many"}


# ---------------------------------------------------------------- check


def test_check_tells_a_mistake_with_its_place_and_ends_with_4(cli) -> None:
    ran = cli("check")
    assert (ran.code, ran.out, "no mistakes" in ran.err) == (0, "", True)
    path = write_tool("wrong", 'kind = "command"\ndescription = "x"\nprogram = "{python}"\ntimout = 3\n')
    ran = cli("check")
    assert ran.code == 4 and f"{path}:4: error: timout is not a known key. Did you mean 'timeout'?" in ran.out
    told = cli("check", "--json").json
    assert (told["ok"], told["errors"], told["warnings"], told["problems"][0]["line"]) == (False, 1, 0, 4)


def test_a_file_can_be_checked_before_it_is_put_in_its_place_and_a_warning_is_no_failure(cli, tmp_path: Path) -> None:
    path = tmp_path / "new.toml"
    path.write_text('kind = "command"\ndescription = "x"\nprogram = "no-such-program-anywhere"\n', encoding="utf-8")
    ran = cli("check", str(path))
    assert ran.code == 0 and "warning: The program no-such-program-anywhere is not there." in ran.out


def test_the_sample_manifests_have_no_mistakes_and_work(cli, tmp_path: Path) -> None:
    shutil.copytree(sample_directory() / "tools", config_directory() / "tools")
    with open_workspace(tmp_path) as workspace:
        workspace.library.add_text("Bees live in hives.", title="Bees")
        counts = workspace.registry.call("word_count", {"text": "a bb ccc\n-d", "longest": True}).value["result"]
        assert counts == {"lines": 2, "words": 4, "characters": 11, "longest": "ccc"}
        assert workspace.registry.call("largest_documents", {"count": 1}).value["rows"][0][0] == "Bees"
        assert "describe_local_model" in {tool.name for tool in workspace.registry.tools()}
    assert cli("check", "--json", "--db", str(tmp_path / "library.localmcp")).json["problems"] == []


def test_nothing_is_contacted_or_started_by_looking(cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trace, refused = tmp_path / "trace", list[Any]()
    code = f"open({str(trace)!r}, 'w')"
    write_tool("it", f'kind = "command"\ndescription = "x"\nprogram = "{{python}}"\narguments = ["-c", "{code}"]\n')
    write_tool("web", 'kind = "http"\ndescription = "x"\nurl = "http://127.0.0.1:1/x"\n')
    monkeypatch.setattr("localmcp.own_tools.kinds.send", refused.append)
    assert cli("check").code == 0
    assert not trace.exists() and refused == []
