"""Ranking tools for a sentence: phrases, words, typing errors, meaning, and abstention."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmcp.errors import ModelUnavailable
from localmcp.models import LazyEmbedder
from localmcp.models.local_model import DefaultEmbedder
from localmcp.tool_search.ask import fill_arguments
from localmcp.tool_search.discovery import Discovery
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tool_search.sentence_ranking import (
    PhraseMatch,
    Ranking,
    ToolRanking,
    match_phrase,
    parse_phrase,
    trim,
    written,
)
from localmcp.tools import Param, Registry, Tool, tool, tools_of
from localmcp.wording.sentences import tokenize


class Garden:
    """Tools of a service of the tests' own, so that nothing here is tuned to localmcp's."""

    @tool(
        "waterPlants",
        title="Water the plants",
        keywords=("irrigation", "hose"),
        examples=("water the {bed} for {minutes} minutes", "water the {bed}"),
    )
    def water(
        self, bed: Annotated[str, Param("Which bed")], minutes: Annotated[int, Param("How long, minutes")] = 5
    ) -> dict[str, Any]:
        """Opens the hose over a bed."""
        return {}

    @tool("plan_harvest", title="Plan the harvest", keywords=("crop", "ripe"), examples=("when can I harvest {crop}",))
    def harvest(self, crop: Annotated[str, Param("Vegetable or fruit")]) -> dict[str, Any]:
        """Tells the week in which a crop is ripe."""
        return {}

    @tool("read_sensor", title="Read a sensor", keywords=("temperature", "humidity"))
    def sensor(self, id: Annotated[str, Param("Id of the sensor")]) -> dict[str, Any]:  # noqa: A002
        """Returns temperature and humidity of the soil."""
        return {}

    @tool("import_seeds", title="Import a seed list", examples=("load the seeds from {path}",))
    def seeds(self, path: Annotated[str, Param("File with the list")], format: str = "csv") -> dict[str, Any]:  # noqa: A002
        """Reads names and quantities of seeds from a file."""
        return {}


TOOLS: list[Tool] = list(tools_of(Garden()))


def ranker(embedder: LazyEmbedder | None = None, cache: Path | None = None) -> ToolRanking:
    return ToolRanking(ToolFinder(embedder, cache), Discovery(Registry()).describe)


@pytest.fixture(scope="module")
def ranking() -> ToolRanking:
    return ranker(LazyEmbedder(DefaultEmbedder))


def best_name(ranked: Ranking) -> str | None:
    return ranked.best.tool.name if ranked.best else None


def arguments(ranked: Ranking) -> dict[str, Any]:
    assert ranked.best
    return fill_arguments(ranked.sentence, ranked.tokens, ranked.best, {})[0]


def match(phrase: str, sentence: str, **types: str) -> PhraseMatch | None:
    properties = {name: {"type": kind} for name, kind in types.items()}
    return match_phrase(parse_phrase(phrase), tokenize(sentence), properties)


class TestPhrases:
    def test_forgive_courtesies_articles_and_typing_errors(self) -> None:
        sentence = "could you please irigate my quickstrats about beans, thanks"
        found = match("irrigate quickstarts about {topic}", sentence)
        tokens = tokenize(sentence)
        assert found and found.score > 0.8
        assert written(sentence, trim([tokens[place] for place in found.captured["topic"]])) == "beans"

    def test_a_number_slot_takes_only_a_number(self) -> None:
        numbers = {"a": "number", "b": "number"}
        found = match("add {a} and {b}", "add 2 and -3.5", **numbers)
        worse = match("add {a} and {b}", "add milk and eggs", **numbers)
        assert found and found.score > 0.97 and set(found.captured) == {"a", "b"}
        assert worse is None or not worse.captured


class TestRanking:
    @pytest.mark.parametrize(
        ("sentence", "name"),
        [
            ("water the roses for 10 minutes", "waterPlants"),
            ("please wter the plants of the north bed", "waterPlants"),
            ("when are the tomatoes ripe for harvest?", "plan_harvest"),
            ("read sensor 1f0c3a52-7b5e-4c1d-9a66-0d2f4b8c9e10", "read_sensor"),
            ("load the seeds from /home/ada/seeds.csv", "import_seeds"),
        ],
    )
    def test_finds_the_tool_that_is_meant(self, ranking: ToolRanking, sentence: str, name: str) -> None:
        assert best_name(ranking.rank(sentence, TOOLS)) == name

    @pytest.mark.parametrize(
        "sentence", ["who won the match", "translate this into Korean", "xyzzy", "?", "", "the of"]
    )
    def test_abstains_where_nothing_fits(self, ranking: ToolRanking, sentence: str) -> None:
        assert ranking.rank(sentence, TOOLS).best is None

    def test_works_by_words_while_the_model_is_unavailable(self) -> None:
        def fail() -> DefaultEmbedder:
            raise ModelUnavailable("no model here")

        ranked = ranker(LazyEmbedder(fail)).rank("irrigation of the plants with a hose", TOOLS)
        assert ranked.tools[0].tool.name == "waterPlants"


class TestArguments:
    @pytest.mark.parametrize(
        ("sentence", "expected"),
        [
            ("water the roses for 10 minutes", {"bed": "roses", "minutes": 10}),
            ("water the 'north bed'", {"bed": "north bed"}),
            ("load the seeds from ~/My-seeds.txt please", {"path": "~/My-seeds.txt"}),
            ("Load seeds: C:\\data\\seeds.csv", {"path": "C:\\data\\seeds.csv"}),
            ("when can I harvest sweet corn?", {"crop": "sweet corn"}),
        ],
    )
    def test_come_out_of_the_sentence(self, sentence: str, expected: dict[str, Any]) -> None:
        assert arguments(ranker().rank(sentence, TOOLS)) == expected

    def test_that_are_nowhere_are_told(self) -> None:
        ranked = ranker().rank("read a sensor", TOOLS)
        _, missing = fill_arguments(ranked.sentence, ranked.tokens, ranked.tools[0], {})
        assert (ranked.tools[0].tool.name, missing) == ("read_sensor", ["id"])

    def test_given_beside_the_sentence_go_first_and_only_where_they_belong(self) -> None:
        ranked = ranker().rank("water the roses for 10 minutes", TOOLS)
        filled, _ = fill_arguments(ranked.sentence, ranked.tokens, ranked.tools[0], {"minutes": 3, "limit": 5})
        assert filled == {"bed": "roses", "minutes": 3}

    @given(st.text(max_size=200))
    def test_never_break(self, words: str) -> None:
        ranked = ranker().rank(f"water {words}", TOOLS)
        assert 0 <= ranked.none <= 1
        for each in ranked.tools:
            filled, _ = fill_arguments(ranked.sentence, ranked.tokens, each, {})
            assert set(filled) <= set(each.tool.input_schema["properties"])
