"""`localmcp tools`: the listing, the search of live tools and of catalogue files, showing and calling."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localmcp.cli.tools import read_pairs


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


def test_the_commands_of_other_modules_are_listed_and_found(cli) -> None:
    helped = cli("--help").out
    assert "providers" in helped and "check" in helped
    assert cli("providers").code == 0
