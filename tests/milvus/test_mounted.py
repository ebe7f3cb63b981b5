"""What is mounted is searched and read beside yours, whether it is a file or a collection in Milvus: one test body."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import write
from milvus_servers import needs_lite, open_empty, shared_server

from localmcp.errors import FileUnavailable, LocalMCPError, NotFound
from localmcp.milvus.mounted import MilvusFile
from localmcp.tools import Scope
from localmcp.workspace import Workspace, open_workspace

BEES = "# Bees\n\nA hive has one queen.\n\n## Winter\n\nBees cluster in winter to keep warm.\n"


def open_at(path: Path, address: str) -> Workspace:
    return open_workspace(path, model="hash", milvus_address=address)


def fill(workspace: Workspace, folder: Path) -> None:
    """Four documents: two files, and two texts, one of them in a partition."""
    write(folder / "bees.md", BEES)
    write(folder / "soil.txt", "Clay holds water; sand lets it through.\n")
    workspace.library.add_paths([folder])
    workspace.library.add_text(
        "Minutes of the meeting: honey prices.", title="Meeting", metadata={"date": "2024-05-01"}
    )
    workspace.library.add_text("Wax is made by bees.", title="Wax", partition="products", metadata={"topic": "wax"})


@pytest.fixture(scope="module", params=["file", pytest.param("milvus", marks=needs_lite)])
def beside(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """Your file with one document, and another mounted as `team`, with those of the folder `docs` beside it."""
    tmp_path = tmp_path_factory.mktemp("beside")
    if request.param == "file":
        with open_at(tmp_path / "team.localmcp", "") as theirs:
            fill(theirs, tmp_path / "docs")
        with open_at(tmp_path / "mine.localmcp", "") as mine:
            mine.library.add_text("A queen bee lives for years.", title="Mine")
            mine.mounts.mount(tmp_path / "team.localmcp", "team")
            yield mine
        return
    open_empty(shared_server().uri).close()
    with open_at(tmp_path / "theirs.localmcp", shared_server().uri) as theirs:
        fill(theirs, tmp_path / "docs")
        theirs.milvus_copies.push("default", "team")
    with open_at(tmp_path / "mine.localmcp", shared_server().uri) as mine:
        mine.library.add_text("A queen bee lives for years.", title="Mine")
        assert mine.mounts.mount(Path("milvus:team")).name == "team"
        yield mine


def call(workspace: Workspace, tool: str, **arguments: Any) -> Any:
    return workspace.registry.call(tool, arguments).value


def found(workspace: Workspace, query: str, **arguments: Any) -> dict[str, Any]:
    """Title -> hit."""
    return {hit["sourceTitle"]: hit for hit in call(workspace, "search", query=query, **arguments)["results"]}


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
def test_one_answer_holds_the_passages_of_both(beside: Workspace, mode: str) -> None:
    hits = found(beside, "queen of the hive", mode=mode, limit=10)
    assert "origin" not in hits["Mine"] and hits["Bees"]["origin"] == "team"
    assert hits["Bees"]["sourceId"].startswith("team:") and hits["Bees"]["citation"]
    assert 0 <= hits["Bees"]["relevance"] <= 100 and hits["Bees"]["combinedScore"] > 0
    assert {*found(beside, "queen of the hive", mode=mode, collection="mount:team")} >= {"Bees"}
    assert "Mine" not in found(beside, "queen of the hive", mode=mode, collection="mount:team", limit=10)
    # Of a long question the nearest sentence counts as much as the whole.
    question = "Nobody could tell me anything about this so far. " * 5 + "Clay holds water; sand lets it through."
    soil = found(beside, question, mode=mode, collection="mount:team")["soil"]
    assert mode == "keyword" or soil["semanticScore"] > 60


def test_filters_mean_the_same(beside: Workspace) -> None:
    docs, team = str(beside.database.path.parent / "docs"), {"collection": "mount:team", "limit": 10}
    assert {*found(beside, "bees wax honey", partition="products", **team)} == {"Wax"}
    assert {*found(beside, "bees wax honey", metadata={"topic": "wax"}, **team)} == {"Wax"}
    assert {*found(beside, "bees wax honey", until="2024-06-01", **team)} == {"Meeting"}
    assert {*found(beside, "bees water", pathPrefix=docs, **team)} == {"Bees", "soil"}
    assert {*found(beside, "bees water", sourceId="soil", **team)} == {"soil"}
    assert {*found(beside, "queen honey -hives", mode="keyword", **team)} == {"Meeting"}


def test_a_hit_is_read_in_its_context_and_its_document_whole(beside: Workspace) -> None:
    bees = beside.database.path.parent / "docs" / "bees.md"
    hit = found(beside, "queen of the hive", collection="mount:team")["Bees"]
    around = call(beside, "get_context", chunkId=hit["chunkId"], window=1)
    assert (around["sourceTitle"], around["origin"]) == ("Bees", "team") and "queen" in around["concatenatedContent"]
    # A bare id is looked for in every file.
    assert call(beside, "get_context", chunkId=hit["chunkId"].removeprefix("team:"))["origin"] == "team"
    with pytest.raises(NotFound, match="Nothing is mounted as 'wasps'"):
        call(beside, "get_context", chunkId=hit["chunkId"].replace("team", "wasps"))
    short = hit["chunkId"].removeprefix("team:")[:8]
    assert call(beside, "get_context", chunkId=f"team:{short}")["targetChunkId"] == hit["chunkId"]
    for name in (hit["sourceId"], hit["sourceId"][:13], "Bees", str(bees), "docs/bees.md"):
        document = call(beside, "get_document", sourceId=name)
        assert document["source"]["content"] == BEES and document["source"]["origin"] == "team", name
    assert [entry["heading"] for entry in call(beside, "get_document", sourceId="Bees", outline=True)["outline"]]
    quote = call(beside, "verify_citation", quote="A hive has one queen.", id=hit["chunkId"])
    assert (quote["verdict"], quote["origin"]) == ("exact", "team")
    assert "error" in call(beside, "get_document", sourceId="Nowhere")


def test_lists_and_numbers_count_what_is_mounted(beside: Workspace) -> None:
    listed = call(beside, "list_sources", order="title")
    assert [item["title"] for item in listed["sources"]] == ["Bees", "Meeting", "Mine", "soil", "Wax"]
    assert listed["total"] == 5 and listed["sources"][0]["origin"] == "team"
    assert call(beside, "list_sources", collection="mount:team", title="wax")["total"] == 1
    [mount] = call(beside, "get_stats")["mounts"]
    assert (mount["name"], mount["sources"]) == ("team", 4) and mount["chunks"] >= 4
    assert beside.mounts.described()[0]["problem"] is None and "team (4 documents)" in beside.knowledge.instructions()


def test_who_is_bound_to_collections_sees_nothing_of_it(beside: Workspace) -> None:
    scope = Scope(caller="key", collections=frozenset({"default"}))
    answer = beside.registry.call("search", {"query": "queen of the hive", "limit": 10}, scope).value
    assert [hit["sourceTitle"] for hit in answer["results"]] == ["Mine"]


# ---------------------------------------------------------------- Milvus alone


@needs_lite
def test_vectors_of_another_model_leave_the_words(tmp_path: Path) -> None:
    milvus = open_empty(shared_server().uri)
    with open_at(tmp_path / "theirs.localmcp", milvus.uri) as theirs:
        fill(theirs, tmp_path / "docs")
        with theirs.database.write() as connection:
            connection.execute("update models set fingerprint = 'other', name = 'other'")
        theirs.milvus_copies.push("default", "team")
    with open_at(tmp_path / "mine.localmcp", milvus.uri) as mine:
        mine.mounts.mount(Path("milvus:team"))
        answer = call(mine, "search", query="queen of a hive")
        assert answer["results"][0]["sourceTitle"] == "Bees" and "the model 'other'" in str(answer["notices"])
    milvus.close()


@needs_lite
def test_a_collection_of_another_program_is_for_the_retriever(tmp_path: Path) -> None:
    milvus = open_empty(shared_server().uri)
    milvus.call("create_collection", "theirs", dimension=8)
    with open_at(tmp_path / "mine.localmcp", milvus.uri) as mine:
        with pytest.raises(LocalMCPError, match="made by another program"):
            mine.mounts.mount(Path("milvus:theirs"))
        with pytest.raises(LocalMCPError, match="not made by localmcp"):
            mine.milvus_copies.pull("theirs")
        with pytest.raises(FileUnavailable, match="no collection 'nowhere'"):
            MilvusFile(milvus, "nowhere", "nowhere", mine.embedder).describe()
    milvus.close()
