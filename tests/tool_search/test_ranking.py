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
from localmcp.models import Embedder, HashEmbedder, LazyEmbedder
from localmcp.models.embedder import TextVectors
from localmcp.models.local_model import DefaultEmbedder
from localmcp.own_tools.python import FunctionTool
from localmcp.tool_search.discovery import Discovery
from localmcp.tool_search.ranking import Hits, ToolFinder, scale_of
from localmcp.tool_search.words import ToolMetadata, take_apart, take_query_apart
from localmcp.tools import Registry

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
        [
            "order a pizza",
            "what is the capital of France",
            "solve a quadratic equation",
            "? !",
            "the of",
        ],
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

    def test_while_it_loads_nobody_waits_longer_than_asked(self) -> None:
        loaded = threading.Event()

        def load() -> HashEmbedder:
            loaded.wait()
            return HashEmbedder(64)

        slow = ToolFinder(LazyEmbedder(load))
        assert names(slow.find("weigh the heavy animal", ZOO, patience=0))[0] == "weigh_animal"
        loaded.set()

    def test_a_call_of_a_tool_that_does_not_exist_waits_for_no_model_and_names_what_is_near_by_words(self) -> None:
        loaded = threading.Event()
        waits: list[float | None] = []

        def load() -> HashEmbedder:
            loaded.wait()
            return HashEmbedder(64)

        class Loading(LazyEmbedder):
            def get(self, wait: float | None = None) -> Embedder:
                waits.append(wait)
                return super().get(wait)

        registry = Registry()
        registry.suggest = Discovery(registry, ToolFinder(Loading(load))).suggest
        registry.add(FunctionTool(weigh_animal))
        with pytest.raises(UnknownTool) as unknown:
            registry.call("measure_weight_of_animal")
        assert "weigh_animal" in str(unknown.value.hint) and waits == [0.0]
        loaded.set()

    def test_embeds_a_tool_once_whoever_searches_which_part(self, tmp_path: Path) -> None:
        slow = Slow()
        slow.free.set()
        finder = ToolFinder(LazyEmbedder(lambda: slow), tmp_path)
        finder.find("weigh the heavy animal", ZOO, patience=WAIT)
        made = slow.passages
        finder.find("weigh the heavy animal", ZOO[:4], patience=WAIT)
        again = ToolFinder(LazyEmbedder(lambda: slow), tmp_path)
        again.find("weigh the heavy animal", ZOO[2:], patience=WAIT)
        assert slow.passages == made > 0

    def test_of_another_scale_is_brought_to_the_default_models(self) -> None:
        assert scale_of(DefaultEmbedder(), TextVectors()) == pytest.approx((1.0, 0.0), abs=0.06)


class Slow:
    """An embedder that embeds passages when it is let."""

    def __init__(self, failures: int = 0) -> None:
        self.inner = HashEmbedder(64)
        self.identity = self.inner.identity
        self.free = threading.Event()
        self.asked: list[str] = []
        self.passages = 0
        self.failures = failures

    def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.free.wait()
        if self.failures:
            self.failures -= 1
            raise ModelUnavailable("not this time")
        self.passages += len(texts)
        return self.inner.embed_passages(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.asked.append(text)
        return self.inner.embed_query(text)

    def count_tokens(self, text: str) -> int:
        return self.inner.count_tokens(text)


class TestTakenApart:
    def test_parameters_enums_and_nested_ones_count_too(self) -> None:
        schema = {
            "properties": {
                "pen": {"type": "object", "properties": {"roofColour": {"enum": ["magenta"]}}},
                "rows": {"type": "array", "items": {"properties": {"deep": {"description": "Quill length"}}}},
                "odd": True,
            }
        }
        weights = take_apart(ToolMetadata("x", schema=schema)).weights
        assert {"roof", "colour", "magenta", "quill", "length"} <= weights.keys()

    @pytest.mark.parametrize("schema", [{"properties": []}, {"properties": {"a": {"enum": 3}}}, {"properties": None}])
    def test_a_schema_that_is_none_does_no_harm(self, schema: dict[str, object]) -> None:
        assert take_apart(ToolMetadata("atlas", schema=schema)).texts == ("atlas",)

    @given(st.text(max_size=60), st.text(max_size=200), st.lists(st.text(max_size=20), max_size=3))
    def test_any_text_is_taken_apart(self, name: str, description: str, keywords: list[str]) -> None:
        assert take_apart(ToolMetadata(name, description, tuple(keywords))).texts or not name.strip()
        assert len(take_query_apart(description).words) <= len(description)
