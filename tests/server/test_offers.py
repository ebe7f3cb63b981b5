"""Documents as resources, quick starts and rules as prompts, progress, in both protocol eras."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp.types as types
import pytest
from mcp import Client, MCPError

import localmcp
from localmcp.library.search import DOCUMENT_URI
from localmcp.server.mcp import DOCUMENT_TEMPLATE, RULES_PROMPT, ToolServer
from localmcp.tools import Scope
from localmcp.workspace import Workspace

ERAS = ["legacy", "auto"]
SCOPE = Scope(caller="stdio", trusted=False, lean=True)
GUIDE = {
    "apiVersion": "console.openshift.io/v1",
    "kind": "QuickStart",
    "metadata": {"name": "bake-bread"},
    "spec": {
        "displayName": "Bake bread",
        "description": "A first loaf.",
        "introduction": "Flour, water, salt.",
        "tasks": [{"title": "Knead", "description": "Ten minutes."}, {"title": "Bake", "description": "At 230 °C."}],
    },
}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with localmcp.open(tmp_path / "a.localmcp", model="hash") as workspace:
        yield workspace


@pytest.fixture
def filled(workspace: Workspace, tmp_path: Path) -> Workspace:
    (tmp_path / "guide.json").write_text(json.dumps(GUIDE))
    workspace.library.add_text("# Bread\n\n" + "Flour and water are kneaded. " * 800, "Bread")
    workspace.library.add_text("A soup of carrots.", "Soup")
    workspace.registry.call("importQuickstarts", {"path": str(tmp_path / "guide.json")})
    workspace.registry.call("addRule", {"rule_text": "Weigh flour, never measure it by volume.", "alwaysApply": True})
    return workspace


def serve(workspace: Workspace, era: Any, scope: Scope = SCOPE) -> Client:
    return Client(ToolServer(lambda: workspace, scope), mode=era)


@pytest.mark.parametrize("era", ERAS)
async def test_the_setting_show_all_tools_lists_the_discoverable_ones(tmp_path: Path, era: Any) -> None:
    with localmcp.open(tmp_path / "a.localmcp", model="hash", show_all_tools=True) as shown:
        async with serve(shown.workspace, era) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"search", "greetUser", "removeQuickstart"} <= names
    assert not {"tool_search", "execute_tool"} & names


@pytest.mark.parametrize("era", ERAS)
async def test_documents_are_read_as_resources_page_by_page(filled: Workspace, era: Any) -> None:
    async with serve(filled, era) as client:
        listed = {each.name: each for each in (await client.list_resources()).resources}
        assert set(listed) == {"Bread", "Soup"}
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == DOCUMENT_TEMPLATE["uriTemplate"]
        text, uri = "", str(listed["Bread"].uri)
        while uri:
            contents = (await client.read_resource(uri)).contents
            assert isinstance(contents[0], types.TextResourceContents) and len(contents[0].text) < 9000
            text += contents[0].text
            uri = str(contents[1].uri) if len(contents) > 1 else ""
        assert text == "# Bread\n\n" + "Flour and water are kneaded. " * 800
        by_title = await client.read_resource(DOCUMENT_URI + "Soup")
        assert by_title.contents[0].text == "A soup of carrots."  # pyright: ignore
        with pytest.raises(MCPError, match="Cake"):
            await client.read_resource(DOCUMENT_URI + "Cake")
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource("file:///etc/passwd")


@pytest.mark.parametrize("offset", ["9" * 5000, "9" * 20, "-1", "%00"])
async def test_an_offset_that_is_no_number_of_a_place_is_refused(filled: Workspace, offset: str) -> None:
    async with serve(filled, "auto") as client:
        with pytest.raises(MCPError, match="offset"):
            await client.read_resource(f"{DOCUMENT_URI}Soup?offset={offset}")


@pytest.mark.parametrize("era", ERAS)
async def test_quick_starts_and_rules_are_prompts(filled: Workspace, era: Any) -> None:
    async with serve(filled, era) as client:
        prompts = {each.name: each for each in (await client.list_prompts()).prompts}
        assert set(prompts) == {RULES_PROMPT["name"], "bake-bread"}
        guide = (await client.get_prompt("bake-bread")).messages[0].content
        assert isinstance(guide, types.TextContent)
        assert "Ten minutes." in guide.text
        rules = (await client.get_prompt(RULES_PROMPT["name"], {"task": "bake bread"})).messages[0].content
        assert isinstance(rules, types.TextContent) and "Weigh flour" in rules.text
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("nobody")


async def test_a_key_reads_no_resource_that_its_tools_and_collections_do_not_open(filled: Workspace) -> None:
    searcher = replace(SCOPE, tools=frozenset({"search"}))
    async with serve(filled, "auto", searcher) as client:
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError):
            await client.read_resource(DOCUMENT_URI + "Soup")
    stranger = replace(SCOPE, collections=frozenset({"other"}))
    async with serve(filled, "auto", stranger) as client:
        with pytest.raises(MCPError):
            await client.read_resource(DOCUMENT_URI + "Soup")


@pytest.mark.parametrize("era", ERAS)
async def test_adding_a_folder_sends_progress_before_its_result(workspace: Workspace, tmp_path: Path, era: Any) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.md").write_text(f"Note number {number}.")
    told: list[float] = []

    async def receive(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    scope = replace(SCOPE, trusted=True)
    async with serve(workspace, era, scope) as client:
        result = await client.call_tool("add_path", {"path": str(folder)}, progress_callback=receive)
        count = len(told)
        await anyio.sleep(0.3)
    assert not result.is_error and count >= 1 and told == sorted(set(told)) and len(told) == count
