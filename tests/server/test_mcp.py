"""What a client gets of the real tools in both protocol eras: texts, resources, prompts, progress, refusals."""

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
from localmcp.errors import LocalMCPError
from localmcp.library.names import DOCUMENT_URI
from localmcp.server.mcp import DOCUMENT_TEMPLATE, RULES_PROMPT, ToolServer, describe_tool
from localmcp.tools import Scope
from localmcp.workspace import Workspace

ERAS = ["legacy", "auto"]
LEAN = Scope(caller="stdio", trusted=False, lean=True)
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
        workspace.library.add_text("# Boiler\n\nThe valve is on the left. " * 20, "Boiler manual")
        yield workspace


@pytest.fixture
def filled(workspace: Workspace, tmp_path: Path) -> Workspace:
    (tmp_path / "guide.json").write_text(json.dumps(GUIDE))
    workspace.library.add_text("# Bread\n\n" + "Flour and water are kneaded. " * 800, "Bread")
    workspace.registry.call("importQuickstarts", {"path": str(tmp_path / "guide.json")})
    workspace.registry.call("addRule", {"rule_text": "Weigh flour, never measure it by volume.", "alwaysApply": True})
    return workspace


def serve(workspace: Workspace, era: Any = "auto", scope: Scope = LEAN, name: str = "a script") -> Client:
    info = types.Implementation(name=name, version="1")
    return Client(ToolServer(lambda: workspace, scope), mode=era, client_info=info)


# ---------------------------------------------------------------- texts for a model


@pytest.mark.parametrize("era", ERAS)
async def test_no_client_hands_an_answer_to_its_model_twice(workspace: Workspace, era: Any) -> None:
    for name in ("claude-code", "codex-mcp-client", "Visual Studio Code", "opencode", "a script"):
        async with serve(workspace, era, name=name) as client:
            found = await client.call_tool("search", {"query": "where is the valve"})
            stats = await client.call_tool("get_stats", {})
        assert found.content[0].text.startswith("1 document, "), name  # pyright: ignore
        assert (found.structured_content is not None) == (name == "a script"), name
        # A tool without a text for reading keeps its structure everywhere.
        assert stats.structured_content is not None and stats.structured_content["totalSources"] == 1, name


async def test_the_list_of_tools_stays_small(workspace: Workspace) -> None:
    async with serve(workspace) as client:
        tools = [tool.model_dump(by_alias=True, exclude_none=True) for tool in (await client.list_tools()).tools]
    assert len(json.dumps({"tools": tools})) <= 9000
    assert len(tools) == 10


STRICT = frozenset({
    "type", "description", "properties", "required", "items", "enum", "default", "minimum", "maximum", "minLength",
    "maxLength", "minItems", "maxItems",
})  # fmt: skip
"""Keywords that the function declarations of both OpenAI and Gemini know; of OpenAI's others Gemini lacks some."""


def check_strict(schema: dict[str, Any]) -> None:
    assert schema.keys() <= STRICT and isinstance(schema["type"], str)
    if "enum" in schema:
        assert schema["type"] == "string" and schema["enum"]
    if schema["type"] == "array":
        check_strict(schema["items"])
    for inner in schema.get("properties", {}).values():
        check_strict(inner)


def test_strict_clients_know_every_keyword_of_every_schema(workspace: Workspace) -> None:
    tools = [listed for tool in workspace.registry.tools() if (listed := describe_tool(tool))]
    assert len(tools) > 50
    for tool in tools:
        check_strict(tool.input_schema)


async def test_removing_many_documents_wants_a_confirmation(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(7):
        (folder / f"note-{number}.md").write_text(f"Note number {number} about gardens.")
    workspace.library.add_paths([str(folder)])
    async with serve(workspace) as client:
        asked = await client.call_tool("remove_source", {"path": str(folder)})
        assert asked.structured_content is not None
        assert (asked.structured_content["removed"], asked.structured_content["wouldRemove"]) == (0, 7)
        assert "confirm: true" in asked.structured_content["message"]
        done = await client.call_tool("remove_source", {"path": str(folder), "confirm": True})
        assert done.structured_content is not None and len(done.structured_content["sources"]) == 7
        every_note = {"collection_name": "default", "filter": {"path": {"prefix": str(folder)}}}
        await client.call_tool("restore_source", {"path": str(folder)})
        refused = await client.call_tool("delete_records", every_note)
        assert refused.is_error and "7 documents" in refused.content[0].text  # pyright: ignore
        deleted = await client.call_tool("delete_records", {**every_note, "confirm": True})
        assert deleted.structured_content is not None and deleted.structured_content["documents"] == 7
        path = str(folder / "note-3.md")
        back = await client.call_tool("restore_source", {"sourceId": path})
        assert back.structured_content is not None and back.structured_content["path"] == path
        some = await client.call_tool("restore_source", {"paths": [str(folder / "note-1.md"), "note 2"]})
        assert some.structured_content is not None and some.structured_content["restored"] == 2
        assert some.content[0].text.startswith(f"Restored 2 documents.\nnote 1 | {folder / 'note-1.md'} | id ")  # pyright: ignore
        rest = await client.call_tool("restore_source", {"path": str(folder)})
        assert rest.structured_content is not None and rest.structured_content["restored"] == 4


async def test_a_quick_start_is_read_as_steps(filled: Workspace) -> None:
    async with serve(filled) as client:
        answer = await client.call_tool("searchQuickstarts", {"query": "bread bake"})
    assert answer.content[0].text.startswith("# Bake bread")  # pyright: ignore
    assert answer.structured_content is not None
    assert answer.structured_content["result"]["quickstart"]["name"] == "bake-bread"


def test_arguments_as_weak_models_write_them_are_understood(workspace: Workspace) -> None:
    for tool, arguments in (
        ("search", {"arguments": {"query": "pressure", "limit": 1}}),
        ("search", {"query": ["pressure"], "explain": "false", "limit": "1"}),
        ("get_document", {"id": "Boiler manual", "lines": [3, 4]}),
        ("get_document", {"document": "Boiler manual", "lines": 3, "outline": "false"}),
        ("getRelevantRules", {"task": "write sql", "files": "a.sql"}),
        ("execute_tool", {"tool": "verify_citation", "args": '{"text": "The valve"}'}),
    ):
        assert not workspace.registry.call(tool, arguments, LEAN).is_error, (tool, arguments)


def test_a_wrong_call_is_answered_with_what_to_do_instead(workspace: Workspace) -> None:
    for tool, arguments, words in (
        ("search", {"query": "boiler", "q": "valve"}, "q: not a parameter"),
        ("search", {"query": "boiler", "metadata": {"colour": "x"}}, "No metadata field 'colour'"),
        ("get_document", {"sourceId": "Boiler manual", "lines": "9000-"}, "beyond the end"),
        ("get_document", {"sourceId": "Boiler manual", "startLine": 3}, "did you mean 'lines'"),
        ("get_context", {"chunkId": "Boiler manual"}, "get_document"),
        ("restore_source", {"id": "Boiler manual"}, "The trash is empty"),
        ("delete_document", {}, "remove_source"),
        ("mcp__localmcp__search", {}, "Did you mean 'search'"),
    ):
        try:
            text = workspace.registry.call(tool, arguments, LEAN).text
        except LocalMCPError as error:
            text = str(error)
        assert words in text, (tool, arguments)


# ---------------------------------------------------------------- resources, prompts, progress


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
        assert set(listed) == {"Bread", "Boiler manual"}
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == DOCUMENT_TEMPLATE["uriTemplate"]
        text, uri = "", str(listed["Bread"].uri)
        while uri:
            contents = (await client.read_resource(uri)).contents
            assert isinstance(contents[0], types.TextResourceContents) and len(contents[0].text) < 9000
            text += contents[0].text
            uri = str(contents[1].uri) if len(contents) > 1 else ""
        assert text == "# Bread\n\n" + "Flour and water are kneaded. " * 800
        by_title = await client.read_resource(DOCUMENT_URI + "Boiler%20manual")
        assert by_title.contents[0].text == "# Boiler\n\nThe valve is on the left. " * 20  # pyright: ignore
        with pytest.raises(MCPError, match="Cake"):
            await client.read_resource(DOCUMENT_URI + "Cake")
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource("file:///etc/passwd")


async def test_an_offset_that_is_no_number_of_a_place_is_refused(filled: Workspace) -> None:
    async with serve(filled) as client:
        for offset in ("9" * 5000, "9" * 20, "-1", "%00"):
            with pytest.raises(MCPError, match="offset"):
                pytest.fail(f"{offset}: {await client.read_resource(f'{DOCUMENT_URI}Boiler%20manual?offset={offset}')}")


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
    searcher = replace(LEAN, tools=frozenset({"search"}))
    async with serve(filled, scope=searcher) as client:
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError):
            await client.read_resource(DOCUMENT_URI + "Boiler%20manual")
    stranger = replace(LEAN, collections=frozenset({"other"}))
    async with serve(filled, scope=stranger) as client:
        with pytest.raises(MCPError):
            await client.read_resource(DOCUMENT_URI + "Boiler%20manual")


@pytest.mark.parametrize("era", ERAS)
async def test_adding_a_folder_sends_progress_before_its_result(workspace: Workspace, tmp_path: Path, era: Any) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.md").write_text(f"Note number {number}.")
    told: list[float] = []

    async def receive(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    scope = replace(LEAN, trusted=True)
    async with serve(workspace, era, scope) as client:
        result = await client.call_tool("add_path", {"path": str(folder)}, progress_callback=receive)
        count = len(told)
        await anyio.sleep(0.3)
    assert not result.is_error and count >= 1 and told == sorted(set(told)) and len(told) == count
