"""A real server behind the hub, seen through a real client: progress and cancellation pass both ways."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from anyio.abc import TaskStatus
from federation import PATIENCE, SERVERS, Farm
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext
from mcp.server.subscriptions import PromptsListChanged, ResourcesListChanged

import localmcp
from localmcp.errors import CallGivenUp
from localmcp.server.mcp import ToolServer
from localmcp.tools import Registry, Scope, use_scope
from localmcp.tools.registry import CallRecord
from localmcp.workspace import Workspace

ERAS: list[Any] = ["legacy", "auto"]


@dataclass
class Wired:
    """What the server needs of a workspace."""

    registry: Registry


def entry(server: str, *options: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / server), *options]}


@pytest.fixture
def registry(farm: Farm) -> Registry:
    farm.write(sdk=entry("sdk.py"))
    return farm.open()[0]


async def test_progress_of_a_connected_server_reaches_the_client(registry: Registry) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    for era in ERAS:
        heard.clear()
        async with Client(ToolServer(lambda: Wired(registry), Scope()), mode=era) as client:
            result = await client.call_tool("sdk__count", {"steps": 3}, progress_callback=listen)
        # What comes within a tenth of a second is told together.
        messages = [message for *_, message in heard]
        assert not result.is_error and messages == sorted(set(messages)), era
        assert messages[0] == "step 1" and len(messages) > 1 and heard[0][:2] == (1.0, 3.0), era


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_the_client_gives_up_is_cancelled_in_the_server(
    registry: Registry, era: Any, tmp_path: Path
) -> None:
    note, records = tmp_path / "note", list[CallRecord]()
    registry.observe(records.append)
    async with Client(ToolServer(lambda: Wired(registry), Scope()), mode=era) as client:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call_tool, "sdk__linger", {"file": str(note)})
            with anyio.fail_after(PATIENCE):
                while not note.exists():
                    await anyio.sleep(0.05)
            calls.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE):
            while note.read_text() != "given up":
                await anyio.sleep(0.05)
        again = await client.call_tool("sdk__count", {"steps": 1})
    assert not again.is_error
    given_up = [record.tool for record in records if isinstance(record.error, CallGivenUp)]
    assert given_up == ["sdk__linger"]


async def choose(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """A person who likes green."""
    assert params.message == "Which color for the fence?"
    return types.ElicitResult(action="accept", content={"color": "green"})


async def decline(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="decline")


async def paint(registry: Registry, era: Any, callback: Any) -> Any:
    async with Client(ToolServer(lambda: Wired(registry), Scope()), mode=era, elicitation_callback=callback) as client:
        try:
            return await client.call_tool("notes__paint", {"thing": "fence"})
        except MCPError as error:
            return error


@pytest.fixture
def questions(farm: Farm) -> Callable[..., Registry]:
    """Opens a server that asks, of the generation that `--new` chooses."""

    def open_server(*options: str, **more: Any) -> Registry:
        farm.write(notes={**entry("notes.py", *options), **more})
        return farm.open()[0]

    return open_server


@pytest.mark.parametrize(("era", "options"), [("legacy", ()), ("legacy", ("--new",)), ("auto", ("--new",))])
async def test_a_question_of_a_connected_server_reaches_the_person_and_their_answer_the_server(
    questions: Callable[..., Registry], era: Any, options: tuple[str, ...]
) -> None:
    registry = questions(*options)
    # A start that only lists asks nobody.
    registry.offers[0].refresh(["notes"])
    assert "fence: green" in str((await paint(registry, era, choose)).content)
    assert "decline" in str((await paint(registry, era, decline)).content)


@pytest.mark.parametrize(("era", "callback"), [("legacy", None), ("auto", None), ("auto", choose)])
async def test_an_old_server_learns_that_a_client_cannot_be_asked_in_the_middle_of_a_call(
    questions: Callable[..., Registry], era: Any, callback: Any
) -> None:
    assert "fence: white" in str((await paint(questions(), era, callback)).content)


@pytest.mark.parametrize("era", ERAS)
async def test_a_new_server_that_asks_where_nobody_can_be_asked_is_refused(
    questions: Callable[..., Registry], era: Any
) -> None:
    result = await paint(questions("--new"), era, None)
    if isinstance(result, MCPError):
        # What 2026-07-28 prescribes.
        assert (era, result.code) == ("auto", types.MISSING_REQUIRED_CLIENT_CAPABILITY)
    assert "which this client cannot show" in (result.message if isinstance(result, MCPError) else str(result.content))


async def test_the_time_that_a_person_takes_does_not_count_against_the_server(
    questions: Callable[..., Registry],
) -> None:
    registry = questions()
    await paint(registry, "legacy", choose)
    began = anyio.current_time()
    await paint(registry, "legacy", choose)
    # What the machine needs decides what is long; the person takes longer than the whole call may.
    limit = max(0.5, 10 * (anyio.current_time() - began))
    registry = questions(timeout=limit)

    async def hesitate(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        await anyio.sleep(1.2 * limit)
        return await choose(context, params)

    assert "fence: green" in str((await paint(registry, "legacy", hesitate)).content)


@pytest.fixture(params=["old server", "new server"])
def notes(request: pytest.FixtureRequest, farm: Farm, tmp_path: Path) -> Iterator[Workspace]:
    farm.write(notes=entry("notes.py", *(["--new"] if request.param == "new server" else [])))
    farm.open()[1].refresh(["notes"])
    with localmcp.open(tmp_path / "own.db", model="hash") as opened:
        opened.workspace.library.add_text("Flour and water.", "Bread")
        yield opened.workspace


NOTE_A, NOTE_B = "localmcp://server/notes/note%3A%2F%2Fa", "localmcp://server/notes/note%3A%2F%2Fb"


@pytest.mark.parametrize("era", ERAS)
async def test_offers_of_a_connected_server_come_under_its_namespace_and_are_used_as_if_they_were_ours(
    notes: Workspace, era: Any
) -> None:
    async with Client(ToolServer(lambda: notes, Scope()), mode=era) as client:
        listed = await client.list_resources()
        assert listed.next_cursor is None and [each.name for each in listed.resources] == ["Bread", "note://a"]
        assert str(listed.resources[1].uri) == NOTE_A
        (content,) = (await client.read_resource(NOTE_A)).contents
        prompts = [each.name for each in (await client.list_prompts()).prompts]
        prompt = await client.get_prompt(prompts[-1], {"who": "Ada"})
        templates = [each.uri_template for each in (await client.list_resource_templates()).resource_templates]
        (template,) = [each for each in templates if "server/notes" in each]
        read = await client.read_resource(template.replace("{name}", "a"))
        reference = types.ResourceTemplateReference(uri=template)
        proposed = (await client.complete(reference, {"name": "name", "value": ""})).completion
    assert (getattr(content, "text", ""), str(content.uri)) == ("first", NOTE_A)
    assert prompts[-1].startswith("notes__explain") and "explain note://a to Ada" in str(prompt.messages[0].content)
    assert getattr(read.contents[0], "text", "") == "first"
    assert (proposed.values, proposed.total, proposed.has_more) == (["a"], 900, True)
    assert notes.mcp_servers.servers["notes"].condition == "running"
    (offers,) = notes.registry.offers
    with use_scope(Scope(tools=frozenset({"search"}))):
        # Who is bound to some tools sees no resources of other servers.
        assert offers.page("resources", 0) == ([], None) and offers.read(NOTE_A) is None


@pytest.mark.parametrize("era", ERAS)
async def test_changed_lists_of_a_connected_server_are_told_to_our_clients(notes: Workspace, era: Any) -> None:
    heard: set[str] = set()
    whole = anyio.Event()

    def note(event: str) -> None:
        heard.add(event)
        if heard == {"resources", "prompts"}:
            whole.set()

    async def receive(message: Any) -> None:
        if isinstance(message, types.ResourceListChangedNotification | types.PromptListChangedNotification):
            note("resources" if isinstance(message, types.ResourceListChangedNotification) else "prompts")

    server = ToolServer(lambda: notes, Scope())
    server.watch(notes)
    async with Client(server, mode=era, message_handler=receive) as client, anyio.create_task_group() as group:
        await client.list_tools()
        if era != "legacy":
            await group.start(listen_to_lists, client, note)
        posted = await client.call_tool("notes__post", {"name": "b", "text": "second"})
        link = posted.content[0]
        assert isinstance(link, types.ResourceLink) and str(link.uri) == NOTE_B
        with anyio.fail_after(PATIENCE):
            await whole.wait()
        group.cancel_scope.cancel()
        assert getattr((await client.read_resource(NOTE_B)).contents[0], "text", "") == "second"
    assert notes.registry.find("notes__post") is not None and notes.registry.find("notes__research") is None


async def listen_to_lists(client: Client, note: Callable[[str], None], *, task_status: TaskStatus[None]) -> None:
    names = {ResourcesListChanged: "resources", PromptsListChanged: "prompts"}
    async with client.listen(resources_list_changed=True, prompts_list_changed=True) as events:
        task_status.started()
        async for event in events:
            note(names[type(event)])
