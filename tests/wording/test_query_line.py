"""The one line that a person types: words and filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmcp.humanize import parse_query_line


@pytest.mark.parametrize(
    ("line", "words", "filters"),
    [
        ("kafka lag", "kafka lag", {}),
        ("kafka tag:ops lag", "kafka lag", {"tag": ["ops"]}),
        ('source:"Boiler manual" reset', "reset", {"source": ["Boiler manual"]}),
        ("Collection:Notes x", "x", {"collection": ["Notes"]}),
        ("tag:a tag:b x", "x", {"tag": ["a", "b"]}),
        ("path:~/docs type:code partition:p x", "x", {"path": ["~/docs"], "type": ["code"], "partition": ["p"]}),
        ("source:", "", {}),
        ('source:"', "", {}),
        ('source:"half open', "", {"source": ["half open"]}),
        ("http://tag:x std::vector retag:y", "http://tag:x std::vector retag:y", {}),
        ('"exact phrase" tag:z', '"exact phrase"', {"tag": ["z"]}),
    ],
)
def test_filters_are_taken_out_of_the_words(line: str, words: str, filters: dict[str, list[str]]) -> None:
    assert parse_query_line(line) == (words, filters)


@given(st.text(max_size=80))
def test_any_line_can_be_read_and_its_words_hold_no_filter(line: str) -> None:
    words, filters = parse_query_line(line)
    assert len(words) <= len(line) and all(value.strip() for values in filters.values() for value in values)
