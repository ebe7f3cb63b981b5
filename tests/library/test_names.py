"""Names of documents, folders and kinds of files, as people write them; what is none is refused in few words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from folders import write

import localmcp
from localmcp.api.knowledge_file import KnowledgeFile
from localmcp.errors import LocalMCPError
from localmcp.workspace import Workspace


@pytest.mark.parametrize(("on_disk", "typed"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_name_in_another_form_of_unicode_is_the_same_file(
    file: KnowledgeFile, tmp_path: Path, on_disk: Any, typed: Any
) -> None:
    folder = tmp_path / normalize(on_disk, "Übungen")
    write(folder / normalize(on_disk, "Öl prüfen.md"), "# Pump\n\nThe pump needs oil in May.\n")
    file.add(tmp_path / normalize(on_disk, "Übungen"))
    path = str(tmp_path / normalize(typed, "Übungen") / normalize(typed, "Öl prüfen.md"))
    for name in (path, normalize(typed, "Öl prüfen.md")):
        assert file.call("get_document", sourceId=name)["source"]["title"] == "Pump"
    for prefix in (path, str(Path(path).parent)):
        assert file.call("search", query="pump", pathPrefix=prefix)["count"] == 1
        assert file.call("list_sources", pathPrefix=prefix)["count"] == 1
    assert file.workspace.library.why(path)["explanation"].startswith("indexed")
    assert file.workspace.library.remove([path]).removed == 1


def test_a_type_is_a_kind_of_file_an_ending_or_a_source(file: KnowledgeFile, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "a.md", "# Pump\n\nThe pump needs oil.\n")
    write(tmp_path / "docs" / "c.csv", "pump,oil\npump,more oil\n")
    write(tmp_path / "docs" / "d.py", "def pump(oil):\n    return oil\n")
    file.add(tmp_path / "docs")
    kinds = {"md": "a.md", ".md": "a.md", "sheet": "c.csv", "code": "d.py", "py": "d.py", "docs": "a.md"}
    for kind, name in kinds.items():
        hits = file.call("search", query="pump oil", sourceType=kind)["results"]
        assert {Path(hit["citation"]["path"]).name for hit in hits} == {name}
    assert "No type 'website'" in file.call("search", query="pump oil", sourceType="website")["message"]


# ---------------------------------------------------------------- refusals

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
        ("search", {"query": "tea", "collection": [LONG]}),
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
