"""The knowledge base's tools, as a client calls them: fields, texts, modes, pages, scope, documents, numbers."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from library import Library

from localmcp.errors import InvalidInput, LocalMCPError, ModelUnavailable, NotFound
from localmcp.index.federation import Federation
from localmcp.index.search import Index
from localmcp.index.sources import trash_sources
from localmcp.library.read import JOINT, MOST_DOCUMENT_BYTES, KnowledgeBase
from localmcp.library.search import NO_DOCUMENTS, NOTHING_FOUND
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.storage.database import Database
from localmcp.tools import Registry, Scope, use_scope


class Desk:
    """A knowledge base behind a registry, as every face calls it."""

    def __init__(self, database: Database, embedder: Any, error: LocalMCPError | None = None) -> None:
        """With `error`, the model cannot be loaded."""
        self.library = Library(database, embedder)

        def fail() -> Any:
            assert error
            raise error

        index = Index(database, LazyEmbedder(fail)) if error else self.library.index
        self.knowledge = KnowledgeBase(Federation(index))
        self.registry = Registry()
        self.registry.add_service(self.knowledge)

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.registry.call(name, arguments).value

    def search(self, query: str, **arguments: Any) -> dict[str, Any]:
        return self.call("search", query=query, **arguments)

    def titles(self, query: str, **arguments: Any) -> list[str]:
        return [hit["sourceTitle"] for hit in self.search(query, **arguments)["results"]]


@pytest.fixture
def desk(database: Database, hash_embedder: HashEmbedder) -> Desk:
    return Desk(database, hash_embedder)


@pytest.fixture
def shelf(desk: Desk) -> Desk:
    desk.library.put("Bread is made of flour, water and salt.", title="Bread", metadata={"level": "easy"})
    desk.library.put("A soup of carrots and ginger, served hot.", title="Soup")
    text = "The boiler has a valve; turn it to the left."
    desk.library.put(text, title="Boiler", source_type="qa", partition="house")
    return desk


HIT = {
    "id", "chunkId", "sourceId", "sourceTitle", "sourceType", "content", "chunkIndex", "chunkTotal", "semanticScore",
    "keywordScore", "combinedScore", "relevance", "matchType", "collection", "highlight", "citation", "freshness",
    "metadata", "date", "dateFrom",
}  # fmt: skip


# ---------------------------------------------------------------- search


def test_one_sentence_of_a_long_question_is_enough_to_find_what_it_names(shelf: Desk) -> None:
    wish = "I would be pleased to receive any information on what is described here in general"
    aim = "a soup of carrots and ginger served hot"
    apart = shelf.search(f"{wish}. {aim}. Other remarks may follow as well.", mode="semantic")["results"]
    in_one = shelf.search(f"{wish} {aim} other remarks may follow as well", mode="semantic")["results"]
    assert apart[0]["sourceTitle"] == in_one[0]["sourceTitle"] == "Soup"
    assert apart[0]["semanticScore"] > in_one[0]["semanticScore"] + 10


def test_a_result_has_every_field_of_the_contract(shelf: Desk) -> None:
    answer = shelf.search("flour and water")
    assert (answer["query"], answer["mode"], answer["count"]) == ("flour and water", "hybrid", len(answer["results"]))
    assert answer["weights"] == {"semantic": 0.7, "keyword": 0.3}
    best = answer["results"][0]
    assert set(best) == HIT
    assert best["sourceTitle"] == "Bread"
    assert best["content"] == "Bread is made of flour, water and salt."
    assert (best["chunkIndex"], best["chunkTotal"], best["sourceType"]) == (0, 1, "docs")
    assert (best["matchType"], best["metadata"], best["collection"]) == ("both", {"level": "easy"}, "default")
    assert best["id"] == best["chunkId"] == str(uuid.UUID(best["id"]))


@pytest.mark.parametrize(
    ("given", "mode", "limit", "weights"),
    [
        ("hybrid", "hybrid", 10, (0.7, 0.3)),
        ("semantic", "semantic", "2", (1, 0)),
        ("keyword", "keyword", 2.0, (0, 1)),
        ("fuzzy", "hybrid", 2, (0.7, 0.3)),
        (7, "hybrid", "", (0.7, 0.3)),
    ],
)
def test_results_come_best_first_by_the_weighted_sum_of_both_scores(
    shelf: Desk, given: Any, mode: str, limit: Any, weights: tuple[float, float]
) -> None:
    answer = shelf.search("a soup of carrots, flour and a valve", mode=given, limit=limit)
    hits = answer["results"]
    assert (answer["mode"], answer["count"], hits[0]["sourceTitle"]) == (mode, min(3, int(limit or 3)), "Soup")
    scores = [hit["combinedScore"] for hit in hits]
    assert scores == sorted(scores, reverse=True) and 0 <= scores[-1] <= scores[0] <= 100
    for hit in hits:
        expected = weights[0] * hit["semanticScore"] + weights[1] * hit["keywordScore"]
        assert hit["combinedScore"] == pytest.approx(expected, abs=0.011)
        assert mode == "hybrid" or hit["matchType"] == f"{mode}_only"


@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
def test_nothing_found_is_an_answer_with_a_message(shelf: Desk, mode: str) -> None:
    answer = shelf.search("xylophone", mode=mode)
    assert (answer["count"], answer["results"], answer["message"]) == (0, [], NOTHING_FOUND)


@pytest.mark.parametrize("arguments", [{}, {"query": ""}, {"query": " \n"}])
def test_a_missing_query_gets_the_text_of_the_contract(shelf: Desk, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="^Query parameter is required$"):
        shelf.registry.call("search", arguments)


def test_an_empty_knowledge_base_answers_every_tool(desk: Desk) -> None:
    assert desk.search("anything")["count"] == 0
    assert desk.call("list_sources") == {"count": 0, "total": 0, "sources": [], "notices": [NO_DOCUMENTS]}
    assert desk.call("get_stats")["totalChunks"] == 0
    assert "0 documents" in desk.knowledge.instructions()


def test_repairs_are_told_and_the_query_is_offered_corrected(shelf: Desk) -> None:
    answer = shelf.search("Where is the boilre?")
    assert answer["repairs"] == [{"word": "boilre", "replacement": "boiler"}]
    assert answer["didYouMean"] == "Where is the boiler"
    assert answer["results"][0]["sourceTitle"] == "Boiler"
    assert "repairs" not in shelf.search("Where is the boiler?")


def test_filters_of_the_tool_reach_both_arms(shelf: Desk) -> None:
    everything = "bread soup boiler"
    assert shelf.titles(everything, partition="house") == ["Boiler"]
    assert shelf.titles(everything, sourceType="qa") == ["Boiler"]
    assert shelf.titles(everything, metadata={"level": "easy"}) == ["Bread"]
    source = shelf.search("soup")["results"][0]["sourceId"]
    assert shelf.titles(everything, sourceId=source) == ["Soup"]
    assert shelf.titles(everything, partition="nowhere") == []
    assert shelf.titles(everything, sourceId=source[:8]) == shelf.titles(everything, sourceId="Soup") == ["Soup"]
    with pytest.raises(NotFound, match="sourceId"):
        shelf.search("soup", sourceId="not an id")


def test_an_explanation_names_ranks_words_and_what_was_left_out(shelf: Desk) -> None:
    answer = shelf.search("the boiler valve", explain=True)
    hit = answer["results"][0]["explain"]
    assert hit["semantic"]["rank"] == hit["keyword"]["rank"] == 1
    assert (hit["semantic"]["weight"], hit["keyword"]["weight"]) == (0.7, 0.3)
    assert hit["keyword"]["score"] == answer["results"][0]["keywordScore"]
    assert hit["matchedWords"] == ["boiler", "valve"]
    why = answer["explain"]
    assert {term["word"] for term in why["terms"]} >= {"boiler", "valve"}
    assert why["searched"] == {"collections": 1, "chunks": 3, "vectors": 3}
    assert why["candidates"] >= answer["count"]
    assert why["calibration"] == {"factor": 1.0, "offset": 0.0}
    assert set(why["milliseconds"]) == {"embedding", "filters", "keyword", "vector", "rows"}


# ---------------------------------------------------------------- pages


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
@pytest.mark.parametrize("limit", [7, 90])
def test_pages_follow_each_other_without_gap_or_repetition(desk: Desk, mode: str, limit: int) -> None:
    text = "\n\n".join(f"Paragraph number{number} speaks of bread and of topic{number % 7}." for number in range(260))
    desk.library.put(text, title="Long", paragraphs=True)
    ids: list[str] = []
    cursor: Any = ""
    while cursor is not None and len(ids) < 600:
        answer = desk.search("bread and topic3", mode=mode, limit=limit, **({"cursor": cursor} if cursor else {}))
        ids += [hit["id"] for hit in answer["results"]]
        cursor = answer.get("nextCursor")
    assert len(ids) == len(set(ids)) >= 100
    assert ids[:100] == [hit["id"] for hit in desk.search("bread and topic3", mode=mode, limit=100)["results"]]


@pytest.mark.parametrize("cursor", ["nonsense", "AAAA", "é", "====", "\ud800"])
def test_a_made_up_cursor_is_refused(shelf: Desk, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        shelf.search("bread", cursor=cursor)


# ---------------------------------------------------------------- scope and collections


@pytest.fixture
def two_rooms(desk: Desk) -> Desk:
    for number in range(5):
        text = f"The public menu of day{number}: bread and soup."
        desk.library.put(text, title=f"Menu {number}", collection="public")
    desk.library.put("The secret recipe: bread with saffron.", title="Recipe", collection="secret")
    return desk


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
def test_nothing_outside_the_scope_is_found_counted_or_named(two_rooms: Desk, mode: str) -> None:
    assert two_rooms.titles("bread saffron", mode=mode, collection="secret") == ["Recipe"]
    assert "Recipe" in two_rooms.titles("bread saffron", mode=mode)
    with pytest.raises(NotFound, match="Did you mean 'secret'"):
        two_rooms.search("bread", collection="secrte")
    with use_scope(Scope(caller="key", trusted=False, collections=frozenset({"public"}))):
        answer = two_rooms.search("bread with saffron recipe", mode=mode, limit=20, explain=True)
        assert {hit["collection"] for hit in answer["results"]} == {"public"}
        why = answer["explain"]
        assert (why["searched"]["chunks"], why["searched"].get("vectors", 5), why["candidates"]) == (5, 5, 5)
        assert all(term["chunks"] <= 5 and term["word"] != "saffron" for term in why["terms"])
        assert two_rooms.search("saffrno", mode="keyword").keys() >= {"message"}
        assert "repairs" not in two_rooms.search("saffrno")
    with use_scope(Scope(collections=frozenset())):
        assert two_rooms.search("bread")["results"] == []
        assert two_rooms.call("list_sources")["sources"] == []
        assert two_rooms.call("get_stats")["collections"] == []


# ---------------------------------------------------------------- models


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
def test_without_a_model_words_answer_and_the_answer_says_so(shelf: Desk, mode: str) -> None:
    without = Desk(shelf.library.database, None, ModelUnavailable("The weights are gone."))
    answer = without.search("boiler valve", mode=mode)
    assert [hit["sourceTitle"] for hit in answer["results"]] == ["Boiler"]
    assert answer["results"][0]["matchType"] == "keyword_only"
    notices = [] if mode == "keyword" else ["Answered by keyword only: The weights are gone."]
    assert answer.get("notices", []) == notices


def test_without_any_vector_the_model_is_not_even_asked(database: Database) -> None:
    desk = Desk(database, None, ModelUnavailable("never"))
    desk.library.put("The boiler has a valve.", title="Boiler")
    answer = desk.search("boiler")
    assert answer["count"] == 1
    assert answer["notices"] == [
        "Answered by keyword only: no document has vectors yet.",
        "1 of 1 passages still wait for their meaning to be read; they are found by word.",
    ]
    assert answer["coverage"] == 0


def test_collections_of_two_models_are_searched_together(shelf: Desk) -> None:
    other = Desk(shelf.library.database, HashEmbedder(128))
    other.library.put("A valve for the garden hose.", title="Hose", collection="garden")
    answer = other.search("valve", limit=10)
    kinds = {hit["sourceTitle"]: hit["matchType"] for hit in answer["results"]}
    assert kinds == {"Boiler": "keyword_only", "Hose": "both"}
    says = "Searched by words only: collection default, whose vectors come from another model."
    assert answer["notices"] == [says]
    by_meaning = other.search("valve", mode="semantic")
    assert [hit["sourceTitle"] for hit in by_meaning["results"]] == ["Hose"]
    assert "Not searched" in by_meaning["notices"][0]


# ---------------------------------------------------------------- context


@pytest.mark.parametrize(
    ("at", "window", "expected"),
    [(0, 2, [0, 1, 2]), (3, None, [1, 2, 3, 4, 5]), (5, 1, [4, 5]), (2, 0, [2]), (2, 50, [0, 1, 2, 3, 4, 5])],
)
def test_context_is_two_chunks_on_each_side_by_default_and_cut_at_the_edges(
    desk: Desk, at: int, window: int | None, expected: list[int]
) -> None:
    text = "\n\n".join(f"Paragraph number{number}." for number in range(6))
    desk.library.put(text, title="Story", paragraphs=True)
    chunk = desk.call("get_document", sourceId="Story")["chunks"][at]["id"]
    answer = desk.call("get_context", chunkId=chunk, **({} if window is None else {"window": window}))
    assert [chunk["chunkIndex"] for chunk in answer["chunks"]] == expected
    assert [chunk["relativePosition"] for chunk in answer["chunks"]] == [each - at for each in expected]
    assert [chunk["chunkIndex"] for chunk in answer["chunks"] if chunk["isTarget"]] == [at]
    assert answer["concatenatedContent"] == JOINT.join(f"Paragraph number{each}." for each in expected)
    assert (answer["chunksRetrieved"], answer["window"], answer["chunkTotal"]) == (
        len(expected),
        2 if window is None else window,
        6,
    )
    assert (answer["sourceTitle"], answer["sourceType"]) == ("Story", "docs")


def test_context_of_what_does_not_exist(desk: Desk) -> None:
    with pytest.raises(NotFound, match="Chunk not found"):
        desk.call("get_context", chunkId=str(uuid.uuid4()))
    with pytest.raises(InvalidInput, match="chunkId"):
        desk.call("get_context", chunkId="17")
    with pytest.raises(InvalidInput, match="^chunkId parameter is required$"):
        desk.call("get_context")


# ---------------------------------------------------------------- documents


def test_an_unknown_document_is_an_answer_with_a_hint(shelf: Desk) -> None:
    unknown = str(uuid.uuid4())
    assert shelf.call("get_document", sourceId=unknown)["error"] == "Document not found"
    for name in ("no such thing", "../x", "", "%", "\ud800", ".md"):
        answer = shelf.call("get_document", sourceId=name)
        assert answer["error"] == "Invalid sourceId format", name
        assert answer["hint"]


def test_a_trashed_document_is_gone_from_every_tool(shelf: Desk) -> None:
    hit = shelf.search("boiler")["results"][0]
    with shelf.library.database.write() as connection:
        trash_sources(connection, [3])
    assert "Boiler" not in shelf.titles("boiler valve", mode="keyword")
    assert "error" in shelf.call("get_document", sourceId=hit["sourceId"])
    listed, stats = shelf.call("list_sources"), shelf.call("get_stats")
    assert (listed["total"], stats["totalSources"], stats["trashedSources"]) == (2, 2, 1)
    assert listed["sources"][0].keys() >= {"id", "title", "sourceType", "metadata", "createdAt"}
    with pytest.raises(NotFound):
        shelf.call("get_context", chunkId=hit["chunkId"])


def test_a_long_document_is_cut_and_its_parts_join_exactly(desk: Desk) -> None:
    text = "".join(f"Line {number} of a very long document, è così.\n\n" for number in range(9000))
    desk.library.put(text, title="Long")
    parts: list[str] = []
    offset = 0
    while True:
        answer = desk.call("get_document", sourceId="Long", offset=offset)
        assert sum(len(chunk["content"].encode()) for chunk in answer["chunks"]) * 2 <= MOST_DOCUMENT_BYTES
        assert answer["source"]["content"] == "".join(chunk["content"] for chunk in answer["chunks"])
        parts.append(answer["source"]["content"])
        if not answer["truncated"]:
            break
        offset = answer["nextOffset"]
    assert len(parts) > 1
    assert "".join(parts) == text
    assert desk.call("get_document", sourceId="Long", offset=10**6)["chunks"] == []


def test_stats_count_what_can_be_searched(shelf: Desk) -> None:
    shelf.library.put("Un testo italiano della casa.", title="Casa", language="italian", collection="casa")
    stats = shelf.call("get_stats")
    assert (stats["totalSources"], stats["totalChunks"]) == (4, 4)
    assert (stats["chunksWithEmbeddings"], stats["chunksWithoutEmbeddings"]) == (4, 0)
    assert stats["languages"] == {"english": 3, "italian": 1}
    assert [(each["name"], each["sources"], each["model"]) for each in stats["collections"]] == [
        ("casa", 1, "hash"),
        ("default", 3, "hash"),
    ]
    assert stats["fileBytes"] > 0


# ---------------------------------------------------------------- freshness


def test_a_hit_tells_whether_its_file_still_is_what_was_indexed(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "note.md"
    texts = ("The gate code is 4711.",) * 2 + ("The gate code is 4712.", "Another length.")
    for number, (text, expected) in enumerate(zip(texts, ("fresh", "fresh", "changed", "changed"), strict=True)):
        file.write_text(text)
        if not number:
            desk.library.put(text, title="Gate", uri=str(file))
        else:
            os.utime(file, ns=(number, number))
        assert desk.search("gate code")["results"][0]["freshness"] == expected
    file.unlink()
    assert desk.search("gate code")["results"][0]["freshness"] == "missing"


def test_a_database_from_elsewhere_is_searched_without_touching_the_paths_in_it(
    desk: Desk, own_directories: Path, tmp_path: Path
) -> None:
    file = tmp_path / "note.md"
    file.write_text("The gate code is 4711.")
    desk.library.put("The gate code is 4711.", title="Gate", uri=str(file))
    desk.library.database.close()
    for known in (own_directories / "state" / "files").iterdir():
        known.unlink()
    assert desk.search("gate code")["results"][0]["freshness"] == "unverifiable"
    assert desk.call("list_sources")["sources"][0]["freshness"] == "unverifiable"
    assert desk.call("get_document", sourceId="Gate")["source"]["freshness"] == "unverifiable"


def test_a_passage_without_a_vector_is_ranked_by_its_words_beside_those_that_have_one(shelf: Desk) -> None:
    without = Library(shelf.library.database, None)
    without.put("The quinoa salad wants flour and water, flour and water.", title="Waiting")
    answer = shelf.search("quinoa salad")
    assert answer["results"][0]["sourceTitle"] == "Waiting"
    assert (answer["results"][0]["matchType"], answer["results"][0]["combinedScore"]) == ("keyword_only", 60)
    assert 0 < answer["coverage"] < 1
    assert any("meaning" in notice for notice in answer["notices"])
    stats = shelf.call("get_stats")
    assert (stats["chunksWithEmbeddings"], stats["chunksWithoutEmbeddings"]) == (3, 1)
