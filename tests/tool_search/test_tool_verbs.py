"""What a request wants done."""

from __future__ import annotations

import pytest

from localmcp.tool_search.words import known_verbs, read_lines, verbs_asked
from localmcp.wording.normalize import stem


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


@pytest.mark.parametrize("request_", ["cheap sails", "the harbour at night", "i lost an oar", ""])
def test_what_names_no_verb_asks_for_none(request_: str) -> None:
    assert verbs_asked(request_.split()) == frozenset()


def test_the_shipped_words_are_well_formed() -> None:
    assert all(line.count(":") == 1 and line.partition(":")[2].strip() for line in read_lines("tool_verbs.txt"))
    assert "*" not in known_verbs()
