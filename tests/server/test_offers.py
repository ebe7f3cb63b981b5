"""Documents as resources, quick starts and rules as prompts, completion and subscriptions, in both protocol eras."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import mcp.types as types
import pytest
from mcp import Client, MCPError
from mcp.server.subscriptions import ResourceUpdated

import localmcp
from localmcp.library.names import DOCUMENT_URI
from localmcp.server.handlers import ToolServer
from localmcp.server.offers import RULES_PROMPT, TEMPLATE
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
async def test_an_empty_file_offers_only_tools(workspace: Workspace, era: Any) -> None:
    async with serve(workspace, era) as client:
        capabilities = client.server_capabilities
        assert capabilities is not None and capabilities.tools is not None
        assert (capabilities.resources, capabilities.prompts, capabilities.completions) == (None, None, None)


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
        assert client.server_capabilities is not None and client.server_capabilities.resources is not None
        listed = {each.name: each for each in (await client.list_resources()).resources}
        assert set(listed) == {"Bread", "Soup"}
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == TEMPLATE
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


async def test_names_and_places_beyond_all_measure_are_answered_like_others(filled: Workspace) -> None:
    async with serve(filled, "auto") as client:
        nowhere = await client.call_tool("get_document", {"sourceId": "\n" * 5000})
        assert "no document has this path or title" in nowhere.content[0].text  # pyright: ignore
        behind = await client.call_tool("list_sources", {"offset": 2**63 - 1})
        assert not behind.is_error


@pytest.mark.parametrize("era", ERAS)
async def test_quick_starts_and_rules_are_prompts(filled: Workspace, era: Any) -> None:
    async with serve(filled, era) as client:
        prompts = {each.name: each for each in (await client.list_prompts()).prompts}
        assert set(prompts) == {RULES_PROMPT, "bake-bread"}
        guide = (await client.get_prompt("bake-bread", {"task": "2"})).messages[0].content
        assert isinstance(guide, types.TextContent)
        assert "Begin with task 2" in guide.text and "Ten minutes." in guide.text
        with pytest.raises(MCPError, match="task: '3' is none of 'bake-bread'; it has 2, counted from 1"):
            await client.get_prompt("bake-bread", {"task": "3"})
        rules = (await client.get_prompt(RULES_PROMPT, {"task": "bake bread"})).messages[0].content
        assert isinstance(rules, types.TextContent) and "Weigh flour" in rules.text
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("nobody")


@pytest.mark.parametrize("era", ERAS)
async def test_titles_and_tasks_are_completed(filled: Workspace, era: Any) -> None:
    async with serve(filled, era) as client:
        template = types.ResourceTemplateReference(uri=TEMPLATE)
        done = await client.complete(template, {"name": "sourceId", "value": "so"})
        assert done.completion.values == ["Soup"]
        prompt = types.PromptReference(name="bake-bread")
        assert (await client.complete(prompt, {"name": "task", "value": ""})).completion.values == ["1", "2"]


async def test_the_titles_of_a_large_file_are_completed_wherever_they_are_in_the_list(workspace: Workspace) -> None:
    for number in range(501):
        workspace.library.add_text(f"Text {number}", f"Page {number}")
    workspace.library.add_text("Opening hours.", "Über 100%")
    async with serve(workspace, "auto") as client:
        template = types.ResourceTemplateReference(uri=TEMPLATE)
        for part in ("über", "100%"):
            done = await client.complete(template, {"name": "sourceId", "value": part})
            assert done.completion.values == ["Über 100%"]
        done = await client.complete(template, {"name": "sourceId", "value": "page"})
        assert (len(done.completion.values), done.completion.has_more, done.completion.total) == (100, True, None)


async def test_a_text_that_changed_after_a_file_is_before_it_also_within_a_second(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.library.add_text("A soup of carrots.", "Soup")
    (soup,) = workspace.registry.call("list_sources", {}).value["sources"]
    file = tmp_path / "bread.md"
    file.write_text("Flour and water.")
    before = datetime.fromisoformat(soup["changedAt"]).timestamp() - 0.001
    os.utime(file, (before, before))
    workspace.library.add_paths([file])
    listed = workspace.registry.call("list_sources", {"order": "changed", "limit": 1}).value["sources"]
    assert [source["title"] for source in listed] == ["Soup"]


async def test_a_key_reads_no_resource_that_its_tools_and_collections_do_not_open(filled: Workspace) -> None:
    searcher = replace(SCOPE, tools=frozenset({"search"}))
    async with serve(filled, "auto", searcher) as client:
        assert client.server_capabilities is not None and client.server_capabilities.resources is None
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError):
            await client.read_resource(DOCUMENT_URI + "Soup")
    stranger = replace(SCOPE, collections=frozenset({"other"}))
    async with serve(filled, "auto", stranger) as client:
        with pytest.raises(MCPError):
            await client.read_resource(DOCUMENT_URI + "Soup")


async def change_the_soup(told: anyio.Event, workspace: Workspace) -> None:
    await anyio.to_thread.run_sync(lambda: workspace.library.add_text("A soup of leeks.", "Soup", replace=True))
    with anyio.fail_after(30):
        await told.wait()


def listener_for(uri: str) -> tuple[anyio.Event, Callable[[Any], Awaitable[None]]]:
    """An event, and the handler of a client's messages that sets it when that resource is said to have changed."""
    told = anyio.Event()

    async def receive(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification) and str(message.params.uri) == uri:
            told.set()

    return told, receive


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
async def test_a_subscriber_is_told_when_a_document_changes(filled: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localmcp.server.changes.WATCH_SECONDS", 0.05)
    uri = DOCUMENT_URI + "Soup"
    told, receive = listener_for(uri)
    server = ToolServer(lambda: filled, SCOPE)
    async with Client(server, mode="legacy", message_handler=receive) as client:
        await client.subscribe_resource(uri)
        await change_the_soup(told, filled)
    assert told.is_set()


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
async def test_who_has_unsubscribed_is_told_of_other_documents_only(
    filled: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmcp.server.changes.WATCH_SECONDS", 0.05)
    filled.library.add_text("Flour, water and salt.", "Loaf")
    updated: list[str] = []
    told = anyio.Event()

    async def receive(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.append(str(message.params.uri))
            told.set()

    async with Client(ToolServer(lambda: filled, SCOPE), mode="legacy", message_handler=receive) as client:
        # Checked in this order: an update of the first would come before that of the second.
        for title in ("Loaf", "Soup"):
            await client.subscribe_resource(DOCUMENT_URI + title)
        await client.unsubscribe_resource(DOCUMENT_URI + "Loaf")
        await anyio.to_thread.run_sync(lambda: filled.library.add_text("Flour and water.", "Loaf", replace=True))
        await change_the_soup(told, filled)
    assert set(updated) == {DOCUMENT_URI + "Soup"}


async def test_a_listener_is_told_of_a_change_that_follows_at_once(
    filled: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmcp.server.changes.WATCH_SECONDS", 0.05)
    uri = DOCUMENT_URI + "Soup"
    async with (
        Client(ToolServer(lambda: filled, SCOPE)) as client,
        client.listen(resource_subscriptions=[uri]) as subscription,
    ):
        filled.library.add_text("A soup of leeks.", "Soup", replace=True)
        with anyio.fail_after(10):
            assert await anext(aiter(subscription)) == ResourceUpdated(uri=uri)


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


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
async def test_subscriptions_that_have_ended_leave_room_for_others_and_one_too_many_is_refused(
    filled: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmcp.server.changes.MOST_WATCHED", 2)
    server = ToolServer(lambda: filled, SCOPE)
    async with Client(server, mode="legacy") as client, Client(server) as listener:
        for number in range(5):
            await client.subscribe_resource(f"{DOCUMENT_URI}{number}")
            await client.unsubscribe_resource(f"{DOCUMENT_URI}{number}")
            async with listener.listen(resource_subscriptions=[f"{DOCUMENT_URI}{number}", DOCUMENT_URI + "Soup"]):
                pass
        for title in ("Soup", "Bread", "Soup"):
            await client.subscribe_resource(DOCUMENT_URI + title)
        with pytest.raises(MCPError, match="At most 2 documents are watched at a time"):
            await client.subscribe_resource(DOCUMENT_URI + "Cake")
        with pytest.raises(MCPError, match="At most 2 documents are watched at a time"):
            async with listener.listen(resource_subscriptions=[DOCUMENT_URI + title for title in "ABC"]):
                pass


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")
async def test_one_client_that_unsubscribes_does_not_end_anothers_subscription(
    filled: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmcp.server.changes.WATCH_SECONDS", 0.05)
    uri = DOCUMENT_URI + "Soup"
    told, receive = listener_for(uri)
    server = ToolServer(lambda: filled, SCOPE)
    async with (
        Client(server, mode="legacy", message_handler=receive) as first,
        Client(server, mode="legacy") as second,
        Client(server) as listener,
    ):
        await first.subscribe_resource(uri)
        await second.subscribe_resource(uri)
        await second.unsubscribe_resource(uri)
        async with listener.listen(resource_subscriptions=[uri]):
            pass
        await change_the_soup(told, filled)
    assert told.is_set()
