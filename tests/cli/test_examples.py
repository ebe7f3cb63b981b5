"""The example tools: the exact texts of the specification (S0-1, S0-2, S0-4)."""

from __future__ import annotations

import pytest
from desk import check_promise

from localmcp.errors import InvalidInput
from localmcp.tools import Answer, Json, Registry
from localmcp.tools.examples import Examples


@pytest.fixture(name="registry")
def make_registry() -> Registry:
    registry = Registry()
    registry.add_service(Examples())
    return registry


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("greetUser", {"name": "John"}, "Hello, John!"),
        ("greetUser", {"name": "Zoë & Söhne"}, "Hello, Zoë & Söhne!"),
        ("addNumbers", {"a": 5, "b": 3}, "5.00 + 3.00 = 8.00"),
        ("addNumbers", {"a": 5.5, "b": 3.2}, "5.50 + 3.20 = 8.70"),
        ("addNumbers", {"a": -1, "b": 0.005}, "-1.00 + 0.01 = -0.99"),
        ("reverseString", {"text": "abc"}, "Reversed 'abc' to 'cba'"),
        ("analyzeText", {"text": "one two  three", "count_type": "words"}, "Text analysis: 3 words"),
        ("analyzeText", {"text": "abcd", "count_type": "characters"}, "Text analysis: 4 characters"),
        ("analyzeText", {"text": "a\nb", "count_type": "lines"}, "Text analysis: 2 lines"),
    ],
)
def test_each_example_answers_in_the_exact_words(registry: Registry, name: str, arguments: Json, text: str) -> None:
    answer: Answer = registry.call(name, arguments)
    assert answer.text == text
    assert not answer.is_error
    check_promise(registry, name, answer.value)


def test_an_unknown_count_type_is_refused_in_the_contracts_words(registry: Registry) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.call("analyzeText", {"text": "x", "count_type": "bytes"})
    assert str(caught.value) == "invalid count_type: bytes. Must be 'words', 'characters', or 'lines'"


def test_the_enumeration_and_the_required_parameters_stand_in_the_schema(registry: Registry) -> None:
    tool = registry.find("analyzeText")
    assert tool is not None
    assert tool.input_schema["properties"]["count_type"]["enum"] == ["words", "characters", "lines"]
    assert sorted(tool.input_schema["required"]) == ["count_type", "text"]


def test_the_examples_are_discoverable_but_not_listed(registry: Registry) -> None:
    assert [tool.name for tool in registry.tools()] == ["greetUser", "addNumbers", "reverseString", "analyzeText"]
    assert registry.visible() == []


def test_the_descriptions_are_those_of_the_specification(registry: Registry) -> None:
    described = {tool.name: tool.description for tool in registry.tools()}
    assert described["greetUser"] == "Greets users by their given name"
    assert described["addNumbers"] == "Adds two numbers together"
