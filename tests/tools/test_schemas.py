"""Arguments checked against schemas of others, which cannot hold up a call: patterns and references are bounded."""

from __future__ import annotations

import socket
import time
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, Field, TypeAdapter

from localmcp.errors import InvalidInput, Unavailable
from localmcp.schemas import (
    Param,
    bare_type,
    check_arguments,
    describe_parameters,
    is_plain_value,
    lenient_value,
    matches,
    param_of,
    values_from_texts,
)

ISSUE: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 1},
        "state": {"enum": ["open", "closed"]},
        "labels": {"type": "array", "items": {"type": "string"}},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "due": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "owner": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
    "required": ["title", "state"],
    "additionalProperties": False,
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def complaint(schema: dict[str, Any], arguments: dict[str, Any]) -> str:
    """Return what is refused; empty if the arguments fit."""
    try:
        check_arguments("create_issue", schema, arguments)
    except InvalidInput as error:
        return error.message
    return ""


def test_arguments_that_fit_pass() -> None:
    assert complaint(ISSUE, {"title": "Leak", "state": "open", "labels": ["bug"], "due": None}) == ""
    assert complaint({}, {"whatever": 1}) == ""


def test_every_problem_is_told_at_once_with_the_expected_parameters() -> None:
    wrong = {"titel": "Leak", "state": "opened", "labels": ["a", 2], "count": 12, "due": 3, "owner": {}}
    assert complaint(ISSUE, wrong).splitlines() == [
        "Invalid arguments for create_issue:",
        "- title: required",
        "- titel: not a parameter; did you mean 'title'?",
        "- count: 12 is greater than the maximum of 9",
        "- due: should be string, got 3",
        "- labels.1: should be string, got 2",
        "- owner.name: required",
        "- state: should be open|closed, got \"opened\"; did you mean 'open'?",
        "Parameters: title* (string), state* (open|closed), labels (array of string), count (integer 1..9), "
        "due (string), owner (object)",
    ]


def test_very_many_problems_are_cut_and_counted() -> None:
    schema = {"properties": {"rows": {"items": {"type": "string"}}}}
    assert "- and 30 more" in complaint(schema, {"rows": list(range(50))})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"properties": {"a": {"$ref": "#/$defs/missing"}}},
        {"properties": {"a": {"$ref": "https://schemas.invalid/remote.json"}}},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
    ],
)
def test_a_schema_that_cannot_be_used_checks_nothing_and_fetches_nothing(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    check_arguments("remote", schema, {"a": 1})
    assert "its arguments are not checked" in caplog.text


@given(json_values.filter(lambda value: isinstance(value, dict)))
def test_any_arguments_are_accepted_or_refused_in_words(arguments: dict[str, Any]) -> None:
    assert complaint(ISSUE, arguments).startswith("Invalid arguments for create_issue:")


def test_parameters_are_described_in_one_line_by_what_their_references_and_alternatives_say() -> None:
    assert describe_parameters({}) == "none"
    assert describe_parameters({"properties": {"a": True, "b": {"type": "number"}}, "required": ["b"]}) == (
        "a (any), b* (number)"
    )
    point = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    schema = {
        "$defs": {"Point": point, "Circle": {"anyOf": [{"$ref": "#/$defs/Circle"}, {"type": "null"}]}},
        "properties": {
            "from": {"$ref": "#/$defs/Point"},
            "to": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "string"}, {"type": "null"}]},
            "circle": {"$ref": "#/$defs/Circle"},
            "lost": {"$ref": "#/$defs/Lost"},
            "name": {"type": ["string", "null"]},
            "way": {"enum": ["car", 3, None, True]},
            "kind": {"const": "route"},
            "stops": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
        },
        "required": ["from"],
    }
    assert describe_parameters(schema) == (
        "from* (object), to (object or string), circle (any), lost (any), name (string), way (car|3|null|true), "
        "kind (route), stops (array of object)"
    )
    assert "- to: should be object or string, got 5" in complaint(
        {**schema, "$defs": {"Point": point}}, {"from": {"x": 1}, "to": 5}
    )


@pytest.mark.parametrize("value", ["a", "", "x" * 9, "a\nb", "\ud800", 0, 1, 5, 9, 2**70, True, 1.0, None, ["a"], {}])
@pytest.mark.parametrize(
    "hint",
    [
        str,
        int,
        bool,
        float,
        str | None,
        int | bool,
        list[str],
        str | list[str],
        Literal["a", "b"],
        Annotated[str, Param("", min_length=1, max_length=8)],
        Annotated[int | None, Param("", minimum=1, maximum=5)],
    ],
)
def test_what_is_plainly_right_is_right_for_pydantic_too(hint: Any, value: Any) -> None:
    if is_plain_value(value, hint):
        param = param_of(hint)
        limits: Any = Field(**param.limits() if param else {})
        exact = TypeAdapter(Annotated[bare_type(hint), limits], config=ConfigDict(strict=True))
        assert exact.validate_python(value) is value


@pytest.mark.parametrize(
    ("value", "spec", "meant"),
    [
        ("CHANGED", {"type": "string", "enum": ["changed", "added"]}, "changed"),
        ("in progress", {"enum": ["Not started", "In Progress"]}, "In Progress"),
        ("newest", {"enum": ["changed", "added"]}, "newest"),
        ("A", {"enum": ["a", "b", "A"]}, "A"),
        (7, {"type": "array", "items": {"type": "integer"}}, [7]),
        (["7", 8, "x"], {"type": "array", "items": {"type": "integer"}}, [7, 8, "x"]),
        ({"text": "a"}, {"type": "array", "items": {"type": "object"}}, [{"text": "a"}]),
        (True, {"type": "array", "items": {"type": "integer"}}, True),
        (["7"], {"type": "array", "items": {"type": "string"}}, ["7"]),
        ([[1]], {"type": "array", "items": {"type": "array"}}, [[1]]),
    ],
)
def test_a_value_that_is_written_in_another_way_is_the_one_that_was_meant(value: Any, spec: Any, meant: Any) -> None:
    assert lenient_value(value, spec) == meant


@pytest.mark.parametrize(
    ("schema", "value", "meant"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, "-12", -12),
        ({"type": "number"}, "0.5", 0.5),
        ({"type": "integer"}, "5.0", "5.0"),
        ({"type": "integer"}, "05", "05"),
        ({"type": "number"}, "0.30000000000000000001", "0.30000000000000000001"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "string"}, "5", "5"),
        ({"type": "array", "items": {"type": "string"}}, '["a"]', ["a"]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "object"}, "[1]", "[1]"),
        ({"type": "array"}, "a, b", "a, b"),
        ({"type": ["integer", "string"]}, "5", "5"),
        ({"anyOf": [{"type": "integer"}]}, "5", "5"),
        (True, "5", "5"),
    ],
)
def test_a_text_becomes_the_number_only_where_nothing_else_fits_and_nothing_is_lost(
    schema: Any, value: str, meant: Any
) -> None:
    changed = values_from_texts({"n": value}, {"properties": {"n": schema}})["n"]
    assert (changed, type(changed)) == (meant, type(meant))


# ---------------------------------------------------------------- schemas that would take for ever

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
