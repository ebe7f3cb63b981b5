"""Python functions as tools: from folders and packages that the person named, and from nowhere else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tool_manifests import open_workspace, problems_of, tool_names, write_switches

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


def fail() -> str:
    """Always fail."""
    raise ValueError("no such account: 7")


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
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path) as workspace:
        yield workspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that the person allowed."""
    folder = tmp_path / "my-tools"
    folder.mkdir()
    write_switches(f"[python]\nfolders = [{str(folder)!r}]\n")
    return folder


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path


def function(name: str, returns: str) -> str:
    return f'def {name}() -> str:\n    "Say something."\n    return {returns!r}\n'


# ---------------------------------------------------------------- folders


def test_public_functions_with_hints_and_a_docstring_are_hidden_tools(
    workspace: Workspace, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, "tools", TOOLS)
    put(folder, "_helpers", function("helper", "x"))
    assert tool_names(workspace) == {"pack", "later", "fail"}
    assert all(not workspace.registry.get(name).mark.visible for name in tool_names(workspace))
    assert capsys.readouterr().out == ""


def test_arguments_come_as_json_and_anything_may_be_returned(workspace: Workspace, folder: Path) -> None:
    put(folder, "tools", TOOLS)
    given = {"name": "tea", "size": "large", "due": "2026-01-02", "place": "/a/b"}
    assert workspace.registry.call("pack", given).value == {"size": "large", "name": "tea 2026-01-02 b"}
    answer = workspace.registry.call("later", {"times": 3})
    assert (answer.value, answer.text) == ({"result": [0, 1, 2]}, "[0,1,2]")


def test_mistakes_in_arguments_are_told_all_at_once(workspace: Workspace, folder: Path) -> None:
    put(folder, "tools", TOOLS)
    with pytest.raises(InvalidInput) as error:
        workspace.registry.call("pack", {"nam": "x", "size": "huge", "due": "soon"})
    for part in ("name: required", "nam: not a parameter; did you mean 'name'?", "size", "due"):
        assert part in error.value.message


def test_what_a_function_raises_is_told(workspace: Workspace, folder: Path) -> None:
    put(folder, "tools", TOOLS)
    with pytest.raises(LocalMCPError, match="fail failed: ValueError: no such account: 7"):
        workspace.registry.call("fail")


def test_check_says_which_functions_are_no_tools_and_why(workspace: Workspace, folder: Path) -> None:
    path = put(folder, "tools", TOOLS)
    problems = problems_of(workspace)
    lines = TOOLS.splitlines()
    place = f"{path}:{lines.index('def undocumented(a: int) -> int:') + 1}"
    assert any(
        each.startswith(f"{place}: warning: undocumented is not a tool: it has no docstring") for each in problems
    )
    assert any("unhinted is not a tool: its parameter a has no type hint" in each for each in problems)
    assert not any("_private" in each for each in problems)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:\n", ":1: error: It cannot be loaded: SyntaxError"),
        ("x = 1\nimport no_such_module\n", ":2: error: It cannot be loaded: ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", ":2: error: It cannot be loaded: SystemExit: 3"),
        ("import json\n\njson.loads('{')\n", ":3: error: It cannot be loaded: JSONDecodeError"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_left_out_alone(
    workspace: Workspace, folder: Path, text: str, said: str
) -> None:
    path = put(folder, "broken", text)
    put(folder, "fine", function("fine", "ok"))
    assert tool_names(workspace) == {"fine"}
    assert any(each.startswith(f"{path}{said}") for each in problems_of(workspace)), problems_of(workspace)


def test_a_changed_file_is_loaded_again_even_within_the_same_second(workspace: Workspace, folder: Path) -> None:
    path = put(folder, "tools", function("say", "one"))
    assert workspace.registry.call("say").text == "one"
    put(folder, "tools", function("say", "two"))
    assert workspace.registry.call("say").text == "two"
    path.unlink()
    assert tool_names(workspace) == set()
    assert not (folder / "__pycache__").exists()


def test_a_file_is_loaded_once_and_under_a_name_of_its_own(workspace: Workspace, folder: Path) -> None:
    """A file called json.py must not stand in for the module of that name."""
    counter = folder / "count"
    counter.write_text("")
    count = f"from pathlib import Path\ncount = Path({str(counter)!r})\ncount.write_text(count.read_text() + 'x')\n"
    put(folder, "json", count + function("say", "one"))
    before = sys.modules["json"]
    for _ in range(3):
        assert workspace.registry.call("say").text == "one"
    assert counter.read_text() == "x"
    assert sys.modules["json"] is before and str(folder) not in sys.path


def test_a_decorated_function_keeps_its_name_and_annotations(workspace: Workspace, folder: Path) -> None:
    text = "from localmcp.tools import tool\n\n@tool('speak', title='Speak', read_only=True, keywords=('talk',))\n"
    put(folder, "tools", text + function("say", "one"))
    mark = workspace.registry.get("speak").mark
    assert (mark.read_only, mark.visible, mark.keywords) == (True, False, ("talk",))


def test_without_a_mark_the_annotations_are_those_of_mcp(workspace: Workspace, folder: Path) -> None:
    put(folder, "tools", function("say", "one"))
    mark = workspace.registry.get("say").mark
    assert (mark.read_only, mark.destructive, mark.idempotent, mark.open_world) == (False, True, False, True)


def test_of_two_functions_with_one_name_the_first_file_has_it(workspace: Workspace, folder: Path) -> None:
    put(folder, "a", function("say", "a"))
    put(folder, "b", function("say", "b"))
    assert workspace.registry.call("say").text == "a"
    assert any("b.py: error: The name 'say' is taken by" in each for each in problems_of(workspace))


def test_no_folder_is_loaded_unless_it_is_named(workspace: Workspace) -> None:
    for place in (config_directory(), config_directory() / "tools"):
        place.mkdir(parents=True, exist_ok=True)
        put(place, "tools", function("say", "one"))
    assert tool_names(workspace) == set()


def test_a_missing_folder_and_a_misspelt_switch_are_told(workspace: Workspace, tmp_path: Path) -> None:
    path = write_switches(f"[python]\nfolders = [{str(tmp_path / 'none')!r}]\nentrypoints = true\n")
    problems = problems_of(workspace)
    assert any("none does not exist" in each for each in problems)
    assert any(each.startswith(f"{path}:3: error: python.entrypoints is not a known key. Did you") for each in problems)


# ---------------------------------------------------------------- packages


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An installed package, as far as Python can tell, whose import leaves a trace."""
    site = tmp_path / "site"
    info = site / "Weather_Tools-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Weather.Tools\nVersion: 1.0\n", encoding="utf-8")
    offers = {"module": "", "object": ":Service", "one": ":_single", "bad": ":none"}
    points = "".join(f"{name} = weather_tools{place}\n" for name, place in offers.items())
    (info / "entry_points.txt").write_text(f"[localmcp.tools]\n{points}", encoding="utf-8")
    (site / "weather_tools.py").write_text(
        "from localmcp.tools import tool\nfrom json import dumps\n"
        + function("forecast", "rain")
        + function("_single", "alone")
        + "class Service:\n    @tool('warn', title='Warn')\n"
        + "    def warn(self) -> dict[str, str]:\n        'Warn of storms.'\n"
        + "        print('stray')\n        return {'wind': 'strong'}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(site))
    yield "weather-tools"
    sys.modules.pop("weather_tools", None)


def test_a_package_offers_nothing_until_it_is_allowed(workspace: Workspace, package: str) -> None:
    write_switches("[python]\n")
    assert tool_names(workspace) == set()
    assert "weather_tools" not in sys.modules
    state = next(each for each in states(workspace) if each["name"] == "python")
    assert state["says"] == f"Installed, but not allowed: {package}."


@pytest.mark.parametrize("name", ["say", "warn"])
def test_what_a_tool_prints_is_not_among_the_data_of_a_command(
    folder: Path, package: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    put(folder, "tools", 'def say() -> dict:\n    "Say it."\n    print("stray")\n    return {"wind": "strong"}\n')
    write_switches(f'[python]\nfolders = [{str(folder)!r}]\nentry_points = ["{package}"]\n')
    session = Session()
    session.database = str(tmp_path / "a.localmcp")
    assert execute(session, ["call", name]) == 0
    session.close()
    output = capsys.readouterr()
    assert (json.loads(output.out), output.err) == ({"wind": "strong"}, "stray\n")


@pytest.mark.parametrize("allowed", ["true", '["weather-tools"]', '["Weather_Tools"]'])
def test_an_allowed_package_offers_functions_modules_and_objects(
    workspace: Workspace, package: str, allowed: str
) -> None:
    write_switches(f"[python]\nentry_points = {allowed}\n")
    assert tool_names(workspace) == {"forecast", "_single", "warn"}
    assert workspace.registry.call("warn").value == {"wind": "strong"}
    assert any("weather-tools:bad" in each and "cannot be loaded" in each for each in problems_of(workspace))


def test_allowing_one_package_allows_no_other(workspace: Workspace, package: str) -> None:
    write_switches('[python]\nentry_points = ["other"]\n')
    assert tool_names(workspace) == set()
    assert "weather_tools" not in sys.modules


def states(workspace: Workspace) -> list[dict[str, Any]]:

    return [provider.state().as_json() for provider in workspace.providers]
