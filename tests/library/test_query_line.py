"""The one line that a person types: words and filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmcp.library.query_line import FILTERS, QueryLine, parse_query_line


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
    assert parse_query_line(line) == QueryLine(words, filters)


def test_of_a_filter_that_holds_once_the_last_counts() -> None:
    parsed = parse_query_line("source:a source:b")
    assert parsed.last("source") == "b"
    assert parsed.last("tag") is None


@given(st.text(max_size=80))
def test_any_line_can_be_read_and_its_words_hold_no_filter(line: str) -> None:
    parsed = parse_query_line(line)
    assert set(parsed.filters) <= set(FILTERS)
    assert all(value.strip() for values in parsed.filters.values() for value in values)
    assert len(parsed.words) <= len(line)
