"""What reaches a client: text alone for those that hand structured content to their model, both for the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import Implementation

import localmcp
from localmcp.errors import LocalMCPError
from localmcp.server.mcp import ToolServer, describe_tool
from localmcp.tools import Scope
from localmcp.workspace import Workspace

LEAN = Scope(caller="stdio", trusted=False, lean=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with localmcp.open(tmp_path / "a.localmcp", model="hash") as workspace:
        workspace.library.add_text("# Boiler\n\nThe valve is on the left. " * 20, "Boiler manual")
        yield workspace


def serve(workspace: Workspace, name: str, era: Any) -> Client:
    server = ToolServer(lambda: workspace, LEAN)
    return Client(server, mode=era, client_info=Implementation(name=name, version="1"))


@pytest.mark.parametrize("era", ["legacy", "auto"])
@pytest.mark.parametrize(
    ("name", "gets_both"),
    [
        ("claude-code", False),
        ("codex-mcp-client", False),
        ("Visual Studio Code", False),
        ("opencode", False),
        ("a script", True),
    ],
)
async def test_no_client_hands_an_answer_to_its_model_twice(
    workspace: Workspace, name: str, era: Any, gets_both: bool
) -> None:
    async with serve(workspace, name, era) as client:
        found = await client.call_tool("search", {"query": "where is the valve"})
        stats = await client.call_tool("get_stats", {})
    assert found.content[0].text.startswith("1 document, ")  # pyright: ignore
    assert (found.structured_content is not None) == gets_both
    # A tool without a text for reading keeps its structure everywhere.
    assert stats.structured_content is not None and stats.structured_content["totalSources"] == 1


async def test_the_list_of_tools_stays_small(workspace: Workspace) -> None:
    async with serve(workspace, "a script", "auto") as client:
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


async def test_an_unknown_tool_names_those_that_do_it(workspace: Workspace) -> None:
    async with serve(workspace, "a script", "auto") as client:
        answer = await client.call_tool("execute_tool", {"name": "remove_document", "arguments": {}})
    assert answer.is_error and "remove_source" in " ".join(block.text for block in answer.content)  # pyright: ignore


async def test_removing_many_documents_wants_a_confirmation(workspace: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(7):
        (folder / f"note-{number}.md").write_text(f"Note number {number} about gardens.")
    workspace.library.add_paths([str(folder)])
    async with serve(workspace, "a script", "auto") as client:
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


async def test_a_quick_start_is_read_as_steps(workspace: Workspace, tmp_path: Path) -> None:
    tasks = [{"title": "Knead", "description": "Ten minutes."}]
    spec = {"displayName": "Bake bread", "description": "A first loaf.", "introduction": "Flour.", "tasks": tasks}
    guide = {"apiVersion": "console.openshift.io/v1", "kind": "QuickStart", "metadata": {"name": "bake-bread"}}
    (tmp_path / "guide.json").write_text(json.dumps({**guide, "spec": spec}))
    workspace.registry.call("importQuickstarts", {"path": str(tmp_path / "guide.json")})
    async with serve(workspace, "a script", "auto") as client:
        answer = await client.call_tool("searchQuickstarts", {"query": "bread bake"})
    assert answer.content[0].text.startswith("# Bake bread")  # pyright: ignore
    assert answer.structured_content is not None
    assert answer.structured_content["result"]["quickstart"]["name"] == "bake-bread"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search", {"arguments": {"query": "pressure", "limit": 1}}),
        ("search", {"query": ["pressure"], "explain": "false", "limit": "1"}),
        ("get_document", {"id": "Boiler manual", "lines": [3, 4]}),
        ("get_document", {"document": "Boiler manual", "lines": 3, "outline": "false"}),
        ("getRelevantRules", {"task": "write sql", "files": "a.sql"}),
        ("execute_tool", {"tool": "verify_citation", "args": '{"text": "The valve"}'}),
    ],
)
def test_arguments_as_weak_models_write_them_are_understood(
    workspace: Workspace, tool: str, arguments: dict[str, Any]
) -> None:
    assert not workspace.registry.call(tool, arguments, LEAN).is_error


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("search", {"query": "boiler", "q": "valve"}, "q: not a parameter"),
        ("search", {"query": "boiler", "metadata": {"colour": "x"}}, "No metadata field 'colour'"),
        ("get_document", {"sourceId": "Boiler manual", "lines": "9000-"}, "beyond the end"),
        ("get_document", {"sourceId": "Boiler manual", "startLine": 3}, "did you mean 'lines'"),
        ("get_context", {"chunkId": "Boiler manual"}, "get_document"),
        ("restore_source", {"id": "Boiler manual"}, "The trash is empty"),
        ("delete_document", {}, "remove_source"),
        ("mcp__localmcp__search", {}, "Did you mean 'search'"),
    ],
)
def test_a_wrong_call_is_answered_with_what_to_do_instead(
    workspace: Workspace, tool: str, arguments: dict[str, Any], words: str
) -> None:
    try:
        text = workspace.registry.call(tool, arguments, LEAN).text
    except LocalMCPError as error:
        text = str(error)
    assert words in text
