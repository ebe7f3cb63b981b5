"""Python functions as tools: from files that a manifest names, and from nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tool_manifests import problems_of, tool_names, write_tool

from localmcp.cli.program import execute
from localmcp.cli.session import Session
from localmcp.config import config_directory
from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.workspace import Workspace

TOOLS = '''
from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Box:
    size: Size
    name: str


def pack(name: str, size: Size = Size.SMALL, due: date | None = None, place: Path = Path("x")) -> Box:
    """Pack a box."""
    return Box(size, f"{name} {due} {place.name}")


async def later(times: int) -> list[int]:
    """Count up, later."""
    return list(range(times))


def fail(end: bool = False) -> str:
    """Always fail."""
    raise SystemExit(3) if end else ValueError("no such account: 7")


def undocumented(a: int) -> int:
    return a


def unhinted(a):
    """Lacks a hint."""
    return a


def _private(a: int) -> int:
    """Not a tool."""
    return a


print("imported")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose files a manifest names."""
    folder = tmp_path / "my-tools"
    folder.mkdir()
    write_tool("mine", f'kind = "python"\nfiles = ["{folder}/*.py"]\nkeywords = ["mine"]\n')
    return folder


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path


def function(name: str, returns: str) -> str:
    return f'def {name}() -> str:\n    "Say something."\n    return {returns!r}\n'


def test_public_functions_with_hints_and_a_docstring_are_hidden_tools(
    workspace: Workspace, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(folder, "tools", TOOLS)
    assert tool_names(workspace) == {"pack", "later", "fail"}
    mark = workspace.registry.get("pack").mark
    assert (mark.visible, mark.keywords) == (False, ("mine",))
    assert (mark.read_only, mark.destructive, mark.idempotent, mark.open_world) == (False, True, False, True)
    assert capsys.readouterr().out == ""
    problems = problems_of(workspace)
    place = f"{path}:{TOOLS.splitlines().index('def undocumented(a: int) -> int:') + 1}"
    assert any(p.startswith(f"{place}: warning: undocumented is not a tool: it has no docstring") for p in problems)
    assert any("unhinted is not a tool: its parameter a has no type hint" in problem for problem in problems)
    assert not any("_private" in problem for problem in problems)


def test_arguments_come_as_json_and_anything_may_be_returned_or_raised(workspace: Workspace, folder: Path) -> None:
    put(folder, "tools", TOOLS)
    given = {"name": "tea", "size": "large", "due": "2026-01-02", "place": "/a/b"}
    assert workspace.registry.call("pack", given).value == {"size": "large", "name": "tea 2026-01-02 b"}
    answer = workspace.registry.call("later", {"times": 3})
    assert (answer.value, answer.text) == ({"result": [0, 1, 2]}, "[0,1,2]")
    with pytest.raises(LocalMCPError, match="fail failed: ValueError: no such account: 7"):
        workspace.registry.call("fail")
    with pytest.raises(LocalMCPError, match="fail failed: SystemExit: 3"):
        workspace.registry.call("fail", {"end": True})
    with pytest.raises(InvalidInput, match="invalid JSON"):
        workspace.registry.call("pack", {"name": "\ud800"})
    with pytest.raises(InvalidInput) as error:
        workspace.registry.call("pack", {"nam": "x", "size": "huge", "due": "soon"})
    for part in ("name: required", "nam: not a parameter; did you mean 'name'?", "size", "due"):
        assert part in error.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n", ":1: error: It cannot be loaded: SyntaxError"),
        ("x = 1\nimport no_such_module\n", ":2: error: It cannot be loaded: ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", ":2: error: It cannot be loaded: SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_left_out_alone(
    workspace: Workspace, folder: Path, text: str, said: str
) -> None:
    path = put(folder, "broken", text)
    put(folder, "fine", function("fine", "ok"))
    assert tool_names(workspace) == {"fine"}
    assert any(problem.startswith(f"{path}{said}") for problem in problems_of(workspace)), problems_of(workspace)


def test_a_changed_file_is_loaded_again_even_within_the_same_second(workspace: Workspace, folder: Path) -> None:
    path = put(folder, "tools", function("say", "one"))
    assert workspace.registry.call("say").text == "one"
    put(folder, "tools", function("say", "two"))
    assert workspace.registry.call("say").text == "two"
    path.unlink()
    assert tool_names(workspace) == set()
    assert not (folder / "__pycache__").exists()


def test_no_file_is_loaded_unless_a_manifest_names_it(workspace: Workspace, tmp_path: Path) -> None:
    for place in (config_directory(), config_directory() / "tools"):
        place.mkdir(parents=True, exist_ok=True)
        put(place, "tools", function("say", "one"))
    assert tool_names(workspace) == set()
    write_tool("none", f'kind = "python"\nfiles = ["{tmp_path}/none/*.py"]\n')
    write_tool("nothing", 'kind = "python"\n')
    problems = problems_of(workspace)
    assert any("There is no file" in problem for problem in problems)
    assert any("files: Field required" in problem for problem in problems)


def test_what_a_tool_prints_is_not_among_the_data_of_a_command(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "tools", 'def say() -> dict:\n    "Say it."\n    print("stray")\n    return {"wind": "strong"}\n')
    session = Session()
    session.database = str(tmp_path / "a.localmcp")
    assert execute(session, ["call", "say"]) == 0
    session.close()
    output = capsys.readouterr()
    assert (json.loads(output.out), output.err) == ({"wind": "strong"}, "stray\n")
