"""`localmcp tools`: the listing, the search of live tools and of catalogue files, showing and calling."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from localmcp.cli.tools import read_pairs


@pytest.fixture(name="cli")
def tools(cli: Any) -> Any:
    """Runs `localmcp tools`."""
    return partial(cli, "tools")


def test_alone_it_lists_and_so_does_list(cli) -> None:
    assert cli().out == cli("list").out != ""
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


def test_call_takes_json_and_pairs(cli) -> None:
    by_json = cli("call", "addNumbers", '{"a": 2, "b": 3}')
    assert by_json.code == 0
    assert cli("call", "addNumbers", "a=2", "b=3").out == by_json.out
    assert cli("call", "addNumbers", "-", stdin=b'{"a": 2, "b": 3}').out == by_json.out
    wrong = cli("call", "addNumbers", "a=2", "c=3", "--json")
    assert (
        wrong.code == 2 and "b: required" in wrong.error["message"] and "c: not a parameter" in wrong.error["message"]
    )
    assert cli("call", "addNumbers", "a").code == 2


def test_values_are_read_as_the_schema_wants_them() -> None:
    schema = {
        "properties": {
            "text": {"type": "string"},
            "kind": {"enum": ["1", "2"]},
            "count": {"type": "integer"},
            "tags": {"type": "array"},
            "map": {"type": "object"},
        }
    }
    pairs = ("text=5", "kind=1", "count=5", "tags=a", 'map={"a": 1}', "more=x=y")
    assert read_pairs(pairs, schema) == {
        "text": "5",
        "kind": "1",
        "count": 5,
        "tags": ["a"],
        "map": {"a": 1},
        "more": "x=y",
    }
    assert read_pairs(("tags=[1, 2]", "count=many"), schema) == {"tags": [1, 2], "count": "many"}


def test_the_commands_of_other_modules_are_listed_and_found(cli) -> None:
    helped = cli("--help").out
    assert "providers" in helped and "check" in helped
    assert cli("providers").code == 0
