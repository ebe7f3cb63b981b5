"""Tool manifests: what a mistake says, what a change does, and what can never add a tool."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from tool_manifests import problems_of, tool_names, write_tool

from localmcp.config import config_directory
from localmcp.errors import InvalidInput
from localmcp.workspace import Workspace

GREET = """
kind = "command"
description = "Greet somebody."
program = "{python}"
arguments = ["-c", "import sys; print('Hello, ' + sys.argv[1])", "{name}"]
[parameters.name]
required = true
"""


def test_a_manifest_is_a_hidden_tool_named_after_its_file(workspace: Workspace) -> None:
    write_tool("greet", GREET)
    assert "greet" not in [each.name for each in workspace.registry.visible()]
    workspace.registry.show_all = True
    assert "greet" in [each.name for each in workspace.registry.visible()]
    assert [hit["name"] for hit in workspace.discovery.search("greet")][0] == "greet"
    assert workspace.registry.call("greet", {"name": "Ada"}).text.strip() == "Hello, Ada"
    told = workspace.registry.call("execute_tool", {"name": "greet", "arguments": {"name": "Ada"}})
    assert told.value["result"].strip() == "Hello, Ada"


def test_files_are_picked_up_changed_and_dropped_at_the_next_listing(workspace: Workspace) -> None:
    path = write_tool("greet", GREET)
    assert tool_names(workspace) == {"greet"}
    path.write_text(GREET.replace("Hello", "Goodbye"), encoding="utf-8")
    assert workspace.registry.call("greet", {"name": "Ada"}).text.strip() == "Goodbye, Ada"
    path.rename(path.with_name("wave.toml"))
    assert tool_names(workspace) == {"wave"}
    path.with_name("wave.toml").unlink()
    assert tool_names(workspace) == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind = ", ":1: error: It cannot be read: Invalid value"),
        ('kind = "comand"\n', ":1: error: kind = 'comand' is not known. Did you mean 'command'?"),
        ('program = "x"', ": error: kind is missing. It must be one of command, query, http, python."),
        (GREET + 'descripton = "x"', ":8: error: parameters.name.descripton is not a known key. Did you mean"),
        (GREET.replace("program", "programm"), ":4: error: programm is not a known key. Did you mean 'program'?"),
        (GREET.replace("{name}", "{nam}"), ":5: error: arguments: {nam} is not a parameter. Did you mean 'name'?"),
        (GREET.replace("required = true", ""), ":5: error: arguments: {name} may be missing in a call"),
        (GREET.replace("{python}", "{name}"), ":4: error: program: it must be fixed"),
        ('name = "a b"' + GREET, ":1: error: name: String should match pattern"),
        (GREET + 'pattern = "("', ":8: error: parameters.name.pattern: no regular expression"),
        (GREET.replace("required = true", "default = 5"), ":7: error: parameters.name.default: should be string"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_hides_no_other_tool(
    workspace: Workspace, text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_tool("wrong", text)
    write_tool("greet", GREET)
    with caplog.at_level(logging.WARNING, "localmcp.own_tools"):
        assert tool_names(workspace) == {"greet"}
    problems = problems_of(workspace)
    assert any(problem.startswith(f"{path}{said}") for problem in problems), problems
    assert any(str(path) in record.getMessage() for record in caplog.records)


def test_a_manifest_takes_the_name_of_no_tool_of_localmcp_and_of_no_manifest_before_it(workspace: Workspace) -> None:
    write_tool("a", 'name = "greet"' + GREET)
    write_tool("b", 'name = "greet"' + GREET)
    assert tool_names(workspace) == {"greet"}
    assert any("b.toml: error: The name 'greet' belongs to that of" in each for each in problems_of(workspace))
    write_tool("search", GREET)
    assert workspace.registry.call("search", {"query": "x"}).value["count"] == 0
    assert any("belongs to another tool" in each for each in problems_of(workspace))


def test_arguments_are_checked_all_at_once_and_defaults_filled_in(workspace: Workspace) -> None:
    write_tool(
        "greet",
        GREET.replace("{name}", "{name} {times}")
        + "max_length = 5\n[parameters.times]\ntype = 'integer'\ndefault = 2\nmaximum = 3\n",
    )
    assert workspace.registry.call("greet", {"name": "Ada", "times": None}).text.strip() == "Hello, Ada 2"
    assert workspace.registry.call("greet", {"name": "Ada", "times": "3"}).text.strip() == "Hello, Ada 3"
    with pytest.raises(InvalidInput) as error:
        workspace.registry.call("greet", {"name": "Adalbert", "times": 9, "tims": 1})
    for part in ("name", "times", "tims: not a parameter; did you mean 'times'?"):
        assert part in error.value.message


def test_a_pattern_has_to_fit_the_whole_value(workspace: Workspace) -> None:
    write_tool("greet", GREET + 'pattern = "[a-z]+"\n')
    assert workspace.registry.call("greet", {"name": "ada"}).text.strip() == "Hello, ada"
    for value in ("ada; rm", "ada\n", ""):
        with pytest.raises(InvalidInput):
            workspace.registry.call("greet", {"name": value})


def test_annotations_default_as_those_of_mcp_and_follow_read_only(workspace: Workspace) -> None:
    write_tool("greet", GREET)
    write_tool("look", "read_only = true" + GREET)
    greet, look = workspace.registry.get("greet").mark, workspace.registry.get("look").mark
    assert (greet.read_only, greet.destructive, greet.idempotent, greet.open_world) == (False, True, False, True)
    assert (look.read_only, look.destructive, look.idempotent) == (True, False, True)


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_manifest_that_everybody_may_change_is_warned_of(workspace: Workspace) -> None:
    write_tool("greet", GREET).chmod(0o666)
    assert any("Everybody on this machine may change this file" in each for each in problems_of(workspace))


def test_nothing_outside_the_configuration_directory_adds_a_tool(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloned repository, a document and the database itself look as if they had tools."""
    clone = tmp_path / "clone"
    for place in ("tools", ".localmcp/tools", "localmcp/tools", ".config/localmcp/tools"):
        (clone / place).mkdir(parents=True, exist_ok=True)
        (clone / place / "evil.toml").write_text(GREET, encoding="utf-8")
        (clone / place / "evil.py").write_text('def evil() -> str:\n    "Evil."\n    return "x"\n', encoding="utf-8")
    for name in ("providers.toml", "config.toml", "mcp.json", ".mcp.json"):
        (clone / name).write_text('kind = "python"\nfiles = ["*.py"]\n', encoding="utf-8")
    monkeypatch.chdir(clone)
    workspace.library.add_paths([clone])
    with workspace.database.write() as connection:
        connection.execute(
            "insert into quickstarts (name, content, created_at, updated_at) values ('evil', ?, '', '')", (GREET,)
        )
    assert tool_names(workspace) == set()
    workspace.registry.call("search", {"query": "evil"})
    assert not config_directory().exists()
