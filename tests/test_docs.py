"""The README keeps up: commands, tools and settings."""

import json
import re
from pathlib import Path

import pytest

from localmcp.cli.program import COMMANDS
from localmcp.config import Settings, describe_settings
from localmcp.tools import Registry
from localmcp.workspace import Workspace

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Workspace(Settings(database=tmp_path / "a.localmcp", model="hash")).registry


@pytest.mark.parametrize("command", sorted(name for section in COMMANDS.values() for name in section))
def test_every_command_is_in_the_readme(command: str) -> None:
    assert re.search(rf"localmcp {command}\b", README)


def test_every_tool_is_in_the_readme(registry: Registry) -> None:
    assert [each.name for each in registry.tools() if f"`{each.name}`" not in README] == []


@pytest.mark.parametrize("setting", describe_settings(), ids=lambda each: each["name"])
def test_every_setting_is_in_the_readme_with_its_variable(setting: dict[str, object]) -> None:
    assert f"| `{setting['name']}` | `{setting['env']}` |" in README


def test_the_blocks_for_clients_are_json() -> None:
    blocks = re.findall(r"```json\n(.+?)\n```", README, re.S)
    assert blocks
    for block in blocks:
        assert "mcpServers" in json.loads(block)


def test_what_an_assistant_is_shown_stays_small(registry: Registry) -> None:
    from localmcp.server.handlers import describe_tool

    described = [describe_tool(each) for each in registry.visible()]
    size = sum(len(each.model_dump_json(by_alias=True, exclude_none=True)) for each in described if each)
    assert size <= 16_000
    assert len(described) == len([each for each in described if each])
