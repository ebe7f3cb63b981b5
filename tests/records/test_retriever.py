"""The tool `retriever`: what it finds, how it says what is wrong, and who answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from milvus_servers import needs_lite, open_empty, shared_server

from localmcp.config import Settings
from localmcp.errors import LocalMCPError
from localmcp.tools import Answer, Scope
from localmcp.workspace import Workspace

TEXTS = [
    ("Artificial intelligence is a field of computer science", {"source": "wikipedia", "year": 2020}, None),
    ("Machine learning algorithms find patterns in data", {"source": "paper", "year": 2023}, "documents"),
    ("Neural networks consist of connected nodes", {"source": "tutorial", "page": 3}, "documents"),
    ("How to bake sourdough bread at home", {"source": "cooking"}, None),
    ("A field of wheat and rye for bread", {"source": "farming", "nested": {"a": [1, {"b": None}]}}, None),
]


PARTS = ("documents", "_default", "")
everywhere = pytest.mark.parametrize("place", ["file", pytest.param("milvus", marks=needs_lite)])
"""One body for a collection in the file and one that only Milvus has."""


@pytest.fixture
def place() -> str:
    return "file"


@pytest.fixture
def workspace(tmp_path: Path, place: str) -> Iterator[Workspace]:
    address = shared_server().uri if place == "milvus" else ""
    if address:
        open_empty(address).close()
    settings = Settings(database=tmp_path / "library.localmcp", model="hash", folders=(tmp_path,))
    with Workspace(replace(settings, milvus_address=address)) as workspace:
        yield workspace


@pytest.fixture
def ids(workspace: Workspace, place: str) -> list[int]:
    """Chunk ids of TEXTS in the collection `papers`, which is on Milvus only if that is the place."""
    records = [
        {"text": text, "metadata": metadata, **({"partition_name": partition} if partition else {})}
        for text, metadata, partition in TEXTS
    ]
    ids = call(workspace, "insert_records", collection_name="papers", records=records).value["ids"]
    if place == "milvus":
        workspace.milvus_copies.push("papers")
        call(workspace, "drop_collection", collection_name="papers", confirm=True)
    return ids


def call(workspace: Workspace, tool: str, scope: Scope | None = None, **arguments: Any) -> Answer:
    return workspace.registry.call(tool, arguments, scope)


def retrieve(workspace: Workspace, *texts: str, **options: Any) -> list[dict[str, Any]]:
    """The results; fails when the call did."""
    answer = call(workspace, "retriever", **{"collection_name": "papers", "texts": list(texts), **options})
    assert answer.value["success"] is True and not answer.is_error
    assert answer.value["data"]["count"] == len(answer.value["data"]["results"])
    return answer.value["data"]["results"]


def refusal(workspace: Workspace, **arguments: Any) -> str:
    answer = call(workspace, "retriever", **arguments)
    assert answer.is_error and answer.value.keys() - {"hint"} == {"success", "error"}
    assert answer.value["success"] is False
    return answer.value["error"]


@everywhere
class TestEverywhere:
    def test_texts_are_found_by_meaning_by_word_and_in_a_partition(self, workspace: Workspace, ids: list[int]) -> None:
        [first] = retrieve(workspace, TEXTS[4][0], top_k=1)
        assert first == {"id": ids[4], "text": TEXTS[4][0], "score": pytest.approx(1.0), "metadata": TEXTS[4][1]}
        # Several texts give one list, best first, each chunk once.
        asked = [TEXTS[0][0], TEXTS[3][0], "bread"]
        results = retrieve(workspace, *asked, matched_text=True)
        assert sorted(each["id"] for each in results) == sorted(ids)
        assert [(-each["score"], each["id"]) for each in results] == sorted((-e["score"], e["id"]) for e in results)
        assert {each["id"]: each["matched_text"] for each in results[:2]} == {ids[0]: asked[0], ids[3]: asked[1]}
        alone = [retrieve(workspace, text) for text in asked]
        best = {i: max(each["score"] for part in alone for each in part if each["id"] == i) for i in ids}
        assert {each["id"]: each["score"] for each in results} == pytest.approx(best, abs=2e-6)
        # A partition is searched alone; none means all.
        parts = {name: {each["id"] for each in retrieve(workspace, "field", partition_name=name)} for name in PARTS}
        assert parts == {"documents": {ids[1], ids[2]}, "_default": {ids[0], ids[3], ids[4]}, "": {*ids}}
        # Hybrid finds by word what meaning alone ranks lower.
        results = retrieve(workspace, "sourdough", mode="hybrid", matched_text=True)
        assert results[0]["id"] == ids[3] and 0 < results[0]["score"] <= 1
        assert results[0]["metadata"] == TEXTS[3][1] and results[0]["matched_text"] == "sourdough"
        inside = retrieve(workspace, "field", "bread", mode="hybrid", filter={"year": 2020})
        assert [each["id"] for each in inside] == [ids[0]]
        older = {"or": [{"not": {"year": {"gte": 2021}}}, {"source": {"prefix": "pap"}}]}
        assert {each["id"] for each in retrieve(workspace, "field", filter=older)} == {*ids}
        assert ids[3] not in {e["id"] for e in retrieve(workspace, "bread", mode="hybrid", partition_name="documents")}
        assert {e["id"] for e in retrieve(workspace, "bread", mode="hybrid", partition_name="_default")} >= {ids[3]}
        # Refusals use the words of the contract.
        question: dict[str, Any] = {"collection_name": "papers", "texts": ["q"]}
        said = "query failed: partition 'nope' not found"
        assert refusal(workspace, **question, partition_name="nope").startswith(said)
        assert refusal(workspace, **question | {"collection_name": "nowhere"}) == "query failed: collection not found"
        with Workspace(replace(workspace.settings, model="hash:64")) as second:
            assert "holds vectors of 'hash'" in refusal(second, **question)


class TestFinding:
    @pytest.mark.parametrize("mode", ["semantic", "hybrid"])
    def test_a_range_of_dates_narrows_what_is_searched(self, workspace: Workspace, mode: str) -> None:
        records = [{"text": f"Bread diary of {day}", "metadata": {"date": day}} for day in ("2024-03-01", "2025-03-01")]
        call(workspace, "insert_records", collection_name="papers", records=records)
        options = {"mode": mode, "until": "2026-01-01"}
        in_2025 = retrieve(workspace, "bread diary", since="2025", **options)
        assert [result["text"] for result in in_2025] == ["Bread diary of 2025-03-01"]
        assert len(retrieve(workspace, "bread diary", **options)) == 2
        question = {"collection_name": "papers", "texts": ["bread"], "since": "soon"}
        assert "since: 'soon' is no date" in refusal(workspace, **question)

    def test_top_k_counts_all_texts_together_and_is_clamped(self, workspace: Workspace, ids: list[int]) -> None:
        assert len(retrieve(workspace, "bread", "learning", top_k=3)) == 3
        many = [f"note number {number}" for number in range(120)]
        call(workspace, "insert_records", collection_name="papers", texts=many)
        assert len(retrieve(workspace, "note")) == 10
        assert len(retrieve(workspace, "note", "number", top_k=5000)) == 100
        assert len(retrieve(workspace, "note", top_k="7")) == 7
        assert ids

    @pytest.mark.parametrize("mode", ["semantic", "hybrid"])
    def test_a_filter_that_nothing_fulfills_names_what_there_is(
        self, workspace: Workspace, ids: list[int], mode: str
    ) -> None:
        question = {"collection_name": "papers", "texts": ["field"], "mode": mode, "filter": {"yeer": 2020}}
        notices = call(workspace, "retriever", **question).value["notices"]
        assert "No metadata field 'yeer'. There are: nested, page, source, year. Did you mean 'year'?" in notices
        [notice] = call(workspace, "retriever", **question | {"filter": {"year": 1800}}).value["notices"]
        assert notice.startswith("No year '1800'. There")

    def test_documents_of_the_collection_are_found_with_path_title_and_page(
        self, workspace: Workspace, tmp_path: Path
    ) -> None:
        path = tmp_path / "bees.md"
        path.write_text("# Bees\n\nA hive has one queen.\n", encoding="utf-8")
        workspace.library.add_paths([path], collection="papers", metadata={"topic": "insects"})
        [found] = retrieve(workspace, "queen hive")
        assert found["metadata"] == {"path": str(path), "title": "Bees", "topic": "insects"}
        assert retrieve(workspace, "queen", filter={"title": "Bees", "path": {"prefix": str(tmp_path)}}) != []
        assert retrieve(workspace, "queen", filter={"title": "Wasps"}) == []


class TestRefusing:
    def test_uses_the_words_of_the_contract_and_names_what_cannot_be_used(
        self, workspace: Workspace, ids: list[int]
    ) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({"collection_name": ...}, "collection_name field is required and must be a string"),
            ({"collection_name": 5}, "collection_name field is required and must be a string"),
            ({"collection_name": ""}, "collection_name field is required and must be a string"),
            ({"collection_name": "nonexistent"}, "query failed: collection not found"),
            ({"texts": ...}, "texts field is required"),
            ({"texts": "q"}, "texts field must be an array of strings"),
            ({"texts": []}, "texts field must be an array of strings"),
            ({"texts": ["valid query", 123]}, "texts[1] must be a string"),
            ({"texts": ["a", " \n"]}, "texts[1] must hold at least one visible character"),
            ({"texts": ["a"] * 101}, "texts: 101 are too many; use at most 100 a call."),
            ({"top_k": 0}, "top_k must be an integer of at least 1"),
            ({"top_k": 2.5}, "top_k must be an integer of at least 1"),
            ({"top_k": True}, "top_k must be a number or string, got: bool"),
            ({"partition_name": 3}, "partition_name field must be a string"),
            ({"partition_name": "nope"}, "query failed: partition 'nope' not found. There are: _default, documents."),
            ({"partition_name": "nope", "mode": "hybrid"}, "query failed: partition 'nope' not found. There are…"),
            ({"filter": {"year": {"ge": 1}}}, "filter.year: 'ge' is not a comparison…"),
            ({"mode": "keyword"}, "mode: …"),
        ]
        for options, said in cases:
            question = {"collection_name": "papers", "texts": ["q"], **options}
            told = refusal(workspace, **{name: value for name, value in question.items() if value is not ...})
            assert told == said or (said.endswith("…") and said[:-1] in told), (options, told, ids)

    def test_a_collection_outside_the_scope_does_not_exist(self, workspace: Workspace, ids: list[int]) -> None:
        arguments = {"collection_name": "papers", "texts": ["field"]}
        hidden = workspace.registry.call("retriever", arguments, Scope(collections=frozenset({"other"})))
        says = {"success": False, "error": "query failed: collection not found", "hint": "There are none yet."}
        assert hidden.value == says
        misspelt = workspace.registry.call("retriever", arguments | {"collection_name": "paper"})
        assert misspelt.value == says | {"hint": "Did you mean 'papers'?"}
        arguments["collection_name"] = "PAPERS"
        seen = workspace.registry.call("retriever", arguments, Scope(collections=frozenset({"papers"})))
        assert seen.value["data"]["count"] == len(ids)


@pytest.mark.usefixtures("ids")
def test_a_text_is_embedded_once(workspace: Workspace) -> None:
    retrieve(workspace, "one", "two", "one")
    before = workspace.embedder.misses
    retrieve(workspace, "two", "one")
    assert workspace.embedder.misses == before == 2


@pytest.mark.parametrize("place", [pytest.param("milvus", marks=needs_lite)])
def test_a_collection_that_only_the_server_has_is_told_as_such(workspace: Workspace, ids: list[int]) -> None:
    assert call(workspace, "list_collections").value["onlyOnMilvus"] == ["papers"]
    told = call(workspace, "describe_collection", collection_name="papers").value
    assert (told["vectors"], told["model"], told["searchedIn"]) == (5, "hash", "milvus")
    assert told["partitions"] == {"_default": 3, "documents": 2}
    with pytest.raises(LocalMCPError, match="on the Milvus server only"):
        call(workspace, "insert_records", collection_name="papers", texts=["more"])
    hidden = Scope(collections=frozenset({"other"}))
    answer = call(workspace, "retriever", hidden, collection_name="papers", texts=["field"])
    assert answer.value["error"] == "query failed: collection not found"
    assert len(ids) == 5
