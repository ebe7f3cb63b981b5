"""What a catalogue has no tool for."""

from __future__ import annotations

import numpy as np
import pytest

from localmcp.embeddings import DefaultEmbedder, LazyEmbedder
from localmcp.text_vectors import TextVectors
from localmcp.tool_search import unsupported_commands
from localmcp.tool_search.catalog import ToolCatalogue
from localmcp.tool_search.query import ToolDescription, take_apart
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tool_search.unsupported_commands import Commands, ComposedCommands, command_vectors

HARBOUR = [
    ToolDescription("harbour_list_berths", "List the berths and the ships that lie there."),
    ToolDescription("harbour_send_signal", "Send a signal to a ship in the bay."),
    ToolDescription("harbour_raise_bridge", "Raise the bridge for a ship."),
    ToolDescription("ferry__find_crossing", "Find a crossing to an island by day and hour."),
]
WAIT = 120.0


@pytest.fixture(scope="module")
def embedder() -> LazyEmbedder:
    return LazyEmbedder(DefaultEmbedder)


@pytest.fixture(scope="module")
def catalogue() -> ToolCatalogue:
    return ToolCatalogue([take_apart(each) for each in HARBOUR])


def commands_of(catalogue: ToolCatalogue, embedder: LazyEmbedder) -> Commands:
    made = catalogue.commands(embedder.get(), TextVectors(), WAIT)
    assert isinstance(made, Commands)
    return made


def test_a_program_is_a_namespace_or_what_several_names_begin_with(catalogue: ToolCatalogue) -> None:
    assert catalogue.services == ("harbour", "harbour", "harbour", "ferry")
    alone = ToolCatalogue([take_apart(ToolDescription(name)) for name in ("list_boats", "list_crews", "harbour_open")])
    assert alone.services == ("", "", "")


def test_a_query_for_what_no_tool_does_is_nearer_to_that(catalogue: ToolCatalogue, embedder: LazyEmbedder) -> None:
    commands = commands_of(catalogue, embedder)
    for offered, missing in (
        ("list the berths of the harbour", "delete a berth of the harbour"),
        ("find a crossing with the ferry", "rename the crossing of the ferry"),
    ):
        has, lacks = (commands.nearness(embedder.get().embed_query(query)) for query in (offered, missing))
        assert lacks[0] > has[0]


def test_nothing_is_both_done_and_not_done(catalogue: ToolCatalogue, embedder: LazyEmbedder) -> None:
    commands = commands_of(catalogue, embedder)
    assert commands.offered.shape[1] == commands.missing.shape[1] == 384
    assert float((commands.offered @ commands.missing.T).max()) < 0.9999
    assert np.allclose(np.linalg.norm(commands.missing, axis=1), 1, atol=1e-3)


def test_with_many_things_commands_are_put_together_and_say_much_the_same(
    catalogue: ToolCatalogue, embedder: LazyEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = commands_of(catalogue, embedder)
    monkeypatch.setattr(unsupported_commands, "MOST_THINGS", 3)
    composed = command_vectors(catalogue.tools, catalogue.services, embedder.get(), TextVectors())
    assert isinstance(composed, ComposedCommands)
    for query in ("demolish the berths", "which berths are there", "signal the ship", "rename the bridge"):
        row = embedder.embed_query(query)
        assert composed.nearness(row) == pytest.approx(embedded.nearness(row), abs=0.15)


def test_the_finder_tells_a_missing_action_from_one_that_is_there(embedder: LazyEmbedder) -> None:
    finder = ToolFinder(embedder)
    assert finder.find("which berths are there in the harbour", HARBOUR, patience=WAIT).hits
    assert finder.find("demolish the berths of the harbour", HARBOUR, patience=WAIT).hits == ()
