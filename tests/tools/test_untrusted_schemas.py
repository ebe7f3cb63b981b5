"""Schemas that other servers wrote cannot hold up a call: patterns and references are bounded."""

from __future__ import annotations

import time
from typing import Any

import pytest

from localmcp.errors import InvalidInput, Unavailable
from localmcp.linear_patterns import matches
from localmcp.schemas import check_arguments

EXPLODING = "^(a+)+$"
VICTIM = "a" * 40 + "b"


def schema(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", **keywords}


@pytest.mark.parametrize(
    ("keywords", "arguments"),
    [
        ({"properties": {"a": {"type": "string", "pattern": EXPLODING}}}, {"a": VICTIM}),
        ({"propertyNames": {"pattern": EXPLODING}}, {VICTIM: 1}),
    ],
)
def test_a_pattern_that_would_backtrack_for_ever_is_checked_at_once(
    keywords: dict[str, Any], arguments: dict[str, Any]
) -> None:
    began = time.process_time()
    with pytest.raises(InvalidInput, match="aaab"):
        check_arguments("dangerous", schema(**keywords), arguments)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_a_pattern_that_the_engine_does_not_support_is_left_to_the_server(keyword: str) -> None:
    spec: dict[str, Any] = {"pattern": "(?=x)y"} if keyword == "pattern" else {"patternProperties": {"(a)\\1": False}}
    check_arguments("odd", schema(properties={"a": {**spec}}), {"a": "q" if keyword == "pattern" else {"aa": 1}})
    assert matches("(?=x)y", "y") is None


@pytest.mark.parametrize("pattern", ["[[]a-z]+", r"^\p{Letter}+$", "^(?<year>[0-9]{4})$", "("])
def test_a_pattern_that_is_none_for_python_leaves_the_other_arguments_checked(pattern: str) -> None:
    strange = schema(properties={"a": {"pattern": pattern}, "b": {"type": "integer"}}, patternProperties={pattern: {}})
    with pytest.raises(InvalidInput, match="b: should be integer"):
        check_arguments("odd", {**strange, "additionalProperties": False}, {"a": "(", "b": "x"})


@pytest.mark.parametrize("keyword", ["additionalProperties", "unevaluatedProperties"])
def test_names_that_a_pattern_selects_are_left_to_the_server(keyword: str) -> None:
    check_arguments("odd", schema(patternProperties={EXPLODING: {"type": "string"}}, **{keyword: False}), {VICTIM: 1})
    with pytest.raises(InvalidInput):
        check_arguments("plain", schema(unevaluatedProperties=False), {"a": 1})


def test_references_that_double_at_each_step_end_with_the_time_of_the_call() -> None:
    steps = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    doubling = schema(**{"$defs": {**steps, "d40": {"type": "object"}}, "$ref": "#/$defs/d0"})
    with pytest.raises(Unavailable, match="could not be checked within 0.2 s"):
        check_arguments("doubling", doubling, {"a": 1}, seconds=0.2)
