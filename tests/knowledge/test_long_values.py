"""What a caller sent is repeated to it in part: an assistant pays for every character of an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import localmcp
from localmcp.errors import LocalMCPError
from localmcp.workspace import Workspace

LONG = "a long value with words " * 400
MOST_ANSWERED = 1000


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with localmcp.open(tmp_path / "a.localmcp", model="hash") as workspace:
        workspace.library.add_text("Tea is brewed at 80 °C.", "Tea")
        yield workspace


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search", {"query": "tea", "collection": LONG}),
        ("search", {"query": "tea", "sourceId": LONG}),
        ("search", {"query": "tea", LONG: 1}),
        ("get_context", {"chunkId": LONG}),
        ("add_path", {"path": f"/{LONG}"}),
        ("remove_source", {"sourceId": LONG}),
        ("job_status", {"jobId": LONG}),
        ("setQuickstartProgress", {"name": LONG, "task": 1}),
        (LONG, {}),
    ],
)
def test_an_error_repeats_the_beginning_of_a_long_value(workspace: Workspace, tool: str, arguments: object) -> None:
    with pytest.raises(LocalMCPError) as refusal:
        workspace.registry.call(tool, arguments)  # type: ignore[arg-type]
    assert len(str(refusal.value)) < MOST_ANSWERED
    assert "a long value" in str(refusal.value)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search", {"query": "tea", "sourceType": LONG}),
        ("search", {"query": "tea", "pathPrefix": LONG}),
        ("search", {"query": "tea", "partition": LONG}),
        ("searchQuickstarts", {"name": LONG, "tag": LONG}),
        ("retriever", {"collection_name": "default", "texts": ["tea"], "partition_name": LONG}),
        ("execute_tool", {"name": LONG}),
    ],
)
def test_an_answer_repeats_no_more_of_it(workspace: Workspace, tool: str, arguments: object) -> None:
    answer = workspace.registry.call(tool, arguments)  # type: ignore[arg-type]
    assert len(answer.text) < MOST_ANSWERED


def test_a_value_that_a_person_can_read_is_repeated_whole(workspace: Workspace) -> None:
    path = "/" + "/".join(["folder of letters"] * 8)
    with pytest.raises(LocalMCPError, match=path):
        workspace.registry.call("add_path", {"path": path})


def test_one_choice_is_there_and_several_are(workspace: Workspace) -> None:
    with pytest.raises(LocalMCPError, match=r"There is: default\."):
        workspace.registry.call("search", {"query": "tea", "collection": "zzzzzz"})
    workspace.registry.call("create_collection", {"collection_name": "letters"})
    with pytest.raises(LocalMCPError, match=r"There are: default, letters\."):
        workspace.registry.call("search", {"query": "tea", "collection": "zzzzzz"})
