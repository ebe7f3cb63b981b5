"""Refusals: a caller's long values are repeated in part, and a name that is no document says what it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import localmcp
from localmcp.errors import LocalMCPError
from localmcp.workspace import Workspace

LONG = "a long value with words " * 400
MOST_ANSWERED = 1000


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with localmcp.open(tmp_path_factory.mktemp("refusals") / "a.localmcp", model="hash") as workspace:
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
        (LONG, {}),
        ("search", {"query": "tea", "sourceType": LONG}),
        ("search", {"query": "tea", "pathPrefix": LONG}),
        ("search", {"query": "tea", "partition": LONG}),
        ("searchQuickstarts", {"name": LONG, "tag": LONG}),
        ("retriever", {"collection_name": "default", "texts": ["tea"], "partition_name": LONG}),
        ("execute_tool", {"name": LONG}),
    ],
)
def test_an_error_or_answer_repeats_the_beginning_of_a_long_value_only(
    workspace: Workspace, tool: str, arguments: dict[str, object]
) -> None:
    try:
        said = workspace.registry.call(tool, arguments).text
    except LocalMCPError as refusal:
        said = str(refusal)
        assert "a long value" in said
    assert len(said) < MOST_ANSWERED


def test_a_file_that_is_no_document_says_why_and_a_mailbox_where_its_documents_are(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7 broken")
    letters = "".join(f"From a@x Mon Nov  2 10:00:0{n} 2026\nSubject: Letter {n}\n\nDear {n}\n\n" for n in range(3))
    (tmp_path / "box.mbox").write_text(letters)
    workspace.library.add_paths([tmp_path / "broken.pdf", tmp_path / "box.mbox"])
    broken = workspace.registry.call("get_document", {"sourceId": str(tmp_path / "broken.pdf")}).value
    assert broken["hint"].startswith("The file was not indexed: broken.pdf is not a readable PDF")
    mailbox = workspace.registry.call("get_document", {"sourceId": str(tmp_path / "box.mbox")}).value
    assert mailbox["hint"] == "The file holds 3 documents: list_sources with pathPrefix lists them."
