"""`localmcp tools`: the listing, the search of live tools and of catalogue files, showing and calling."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from localmcp.cli.program import execute
from localmcp.cli.session import Session
from localmcp.cli.tools import read_pairs
from localmcp.discovery import ToolMetadata, score_query


class Ran(NamedTuple):
    """One run of the command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs a command line in this process, in `tmp_path`."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        session = Session()
        try:
            code = execute(session, ("tools", *arguments))
        finally:
            session.close()
        return Ran(code, *capsys.readouterr())

    return run


CATALOG = [
    {"name": "send_email", "description": "Send an email to a recipient (fast).", "keywords": ["smtp", "Letter"]},
    {"name": "read_inbox", "description": "Newest messages first.", "keywords": None},
    {
        "name": "water_garden",
        "description": "Opens the hose over a bed.",
        "input_schema": {
            "properties": {"bed": {"type": "string"}, "minutes": {"type": "integer"}},
            "required": ["bed"],
        },
    },
]


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    (tmp_path / "tools.json").write_text(json.dumps(CATALOG), encoding="utf-8")
    return "tools.json"


def test_alone_it_lists_and_so_does_list(cli) -> None:
    assert cli().out == cli("list").out != ""
    listed = cli("--json").json
    assert listed["count"] == len(listed["tools"]) and "search" in [each["name"] for each in listed["tools"]]


@pytest.mark.parametrize(
    "query", ["email", "send", "letter", "recip", "send smtp", "send quantum", "send fast quantum", "smtpp", "messages"]
)
def test_classic_ranks_a_catalogue_exactly_by_the_ladder(cli, catalog: str, query: str) -> None:
    metadata = [ToolMetadata(each["name"], each["description"], tuple(each.get("keywords") or ())) for each in CATALOG]
    scored = [(each.name, round(score_query(query, each), 4)) for each in metadata]
    expected = sorted(((n, s) for n, s in scored if s > 0), key=lambda pair: (-pair[1], pair[0]))
    ran = cli("search", query, "--profile", "classic", "--catalog", catalog, "--json")
    assert ran.code == 0
    assert [(each["name"], each["score"]) for each in ran.json] == expected


def test_best_ranks_a_catalogue_by_meaning(cli, catalog: str) -> None:
    ran = cli("search", "give", "the", "flowers", "a", "drink", "from", "the", "hose", "--catalog", catalog, "--json")
    best = ran.json[0]
    assert (best["name"], best["parameters"]) == ("water_garden", "bed* (string), +1 optional")
    assert 0 < best["score"] <= 1 and "input_schema" not in best


def test_detail_shows_the_schemas_and_limit_cuts(cli, catalog: str) -> None:
    ran = cli("search", "", "--catalog", catalog, "--limit", "2", "--detail", "--json")
    assert [(each["name"], each["score"], each["input_schema"]) for each in ran.json] == [
        ("read_inbox", 1.0, {}),
        ("send_email", 1.0, {}),
    ]
    assert '"required"' in cli("search", "water_garden", "--catalog", catalog, "--detail").out


def test_nothing_found_is_an_empty_list_and_no_failure(cli, catalog: str) -> None:
    ran = cli("search", "order a pizza", "--catalog", catalog, "--json")
    assert (ran.code, ran.json) == (0, [])
    said = cli("search", "order a pizza", "--catalog", catalog)
    assert (said.code, said.out) == (0, "") and said.err.startswith("No tools found.")


def test_a_catalogue_comes_from_stdin_and_in_the_form_of_tools_list(cli) -> None:
    listed = {
        "tools": [{"name": "a_b", "inputSchema": {"properties": {"x": {}}}}, {"name": "a_b", "description": "second"}]
    }
    ran = cli("search", "a_b", "--catalog", "-", "--json", stdin=b"\xef\xbb\xbf" + json.dumps(listed).encode())
    assert ran.json == [{"name": "a_b", "description": "", "score": 1.0, "parameters": "+1 optional"}]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not JSON"),
        ('{"name": "x"}', "does not hold a list of tools"),
        ("[3]", "entry 1: must be an object"),
        ('[{"name": "a"}, {"description": "b"}]', "entry 2: name"),
        ('[{"name": ""}]', "entry 1: name"),
        ('[{"name": "a", "description": 3}]', "entry 1 (a): description must be a text, not a number"),
        ('[{"name": "a", "keywords": "mail"}]', "entry 1 (a): keywords"),
        ('[{"name": "a", "keywords": ["mail", 2]}]', "entry 1 (a): keywords"),
        ('[{"name": "a", "input_schema": []}]', "entry 1 (a): input_schema must be an object, not a list"),
    ],
)
def test_a_mistake_in_a_catalogue_is_named_by_entry_and_field(cli, tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "bad.json").write_text(content)
    ran = cli("search", "x", "--catalog", "bad.json", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert "bad.json" in ran.error["message"] and problem in ran.error["message"]


def test_a_catalogue_that_is_not_there_is_said(cli) -> None:
    ran = cli("search", "x", "--catalog", "nowhere.json", "--json")
    assert ran.code == 1 and "There is no file nowhere.json." in ran.error["message"]


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
    pairs = ("text=5", "kind=1", "count=5", "tags=a", 'map={"a": 1}', "more=x=y", "twice=1", "twice=b")
    assert read_pairs(pairs, schema) == {
        "text": "5",
        "kind": "1",
        "count": 5,
        "tags": ["a"],
        "map": {"a": 1},
        "more": "x=y",
        "twice": [1, "b"],
    }
    assert read_pairs(("tags=[1, 2]", "count=many"), schema) == {"tags": [1, 2], "count": "many"}


def test_the_commands_of_other_modules_are_listed_and_found(cli) -> None:
    helped = cli("--help").out
    assert "providers" in helped and "check" in helped
    assert cli("providers").code == 0
    assert "Did you mean 'search'" in cli("serach").err
