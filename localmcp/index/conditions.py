"""Conditions on metadata: one meaning wherever the vectors are searched.

Two forms are read, and may be mixed. Short: `{"lang": "it", "year": {"gte": 2020}, "kind": ["a", "b"]}`. Long:
`{"and": [{"field": "year", "gte": 2020}, {"not": {"field": "lang", "in": ["it", "en"]}}]}`.

What a comparison means, for every backend:

- A field is a key of the metadata; `a.b` is the key b inside the object a, and a list of keys names those with a dot.
- A missing field, and null, fulfil no comparison; `not` is plain negation, so `not` of such a comparison holds.
- Text compares with text, numbers with numbers (1 equals 1.0), true and false with themselves; nothing is converted,
  and another type fulfils no comparison. Text is compared exactly, by code points: case and accents count.
- `eq` and `in` look into arrays, where one equal element is enough. Ranges and `prefix` do not, and nothing looks into
  objects.
- `gt`, `gte`, `lt`, `lte` take a number or text; `prefix` takes text and compares its start.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import apsw

from localmcp.errors import InvalidInput

Operator = Literal["eq", "in", "gt", "gte", "lt", "lte", "prefix"]
Scalar = str | int | float | bool
_NAME = re.compile("[^\"'\\\\`\0\ud800-\udfff]+")

MOST_COMPARISONS, MOST_VALUES, MOST_VALUES_IN_ALL, DEEPEST = 100, 1000, 10_000, 20
"""A query of more than these is one that a backend refuses: SQLite binds 32,766 values, and each is compared thrice."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field against one value, or against several for `in`."""

    field: tuple[str, ...]
    """The key, and the keys inside it."""
    operator: Operator
    values: tuple[Scalar, ...]
    """Exactly one but for `in`."""

    @property
    def value(self) -> Scalar:
        return self.values[0]


@dataclass(frozen=True, slots=True)
class And:
    """All of them; at least one."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of them; at least one."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Everything that does not fulfil it."""

    part: Condition


Condition = Comparison | And | Or | Not


# ---------------------------------------------------------------- reading


def parse_condition(raw: Any, name: str = "filter") -> Condition | None:
    """Return the condition that a JSON value states; None for null and for an empty object.

    Raises:
        InvalidInput: names the place, which begins with `name`, the value and what is accepted.
    """
    if raw is None or raw == {}:
        return None
    condition = _parse(raw, name, 1)
    compared = comparisons(condition)
    if len(compared) > MOST_COMPARISONS:
        raise InvalidInput(f"{name}: more than {MOST_COMPARISONS} comparisons; use `in` for many values.")
    if (values := sum(len(comparison.values) for comparison in compared)) > MOST_VALUES_IN_ALL:
        raise InvalidInput(f"{name}: {values:,} values are too many; use at most {MOST_VALUES_IN_ALL:,}.")
    return condition


def _parse(raw: Any, place: str, depth: int) -> Condition:
    if not isinstance(raw, dict) or not raw:
        raise InvalidInput(f'{place}: {shown_value(raw)} is not a condition; use an object such as {{"lang": "it"}}.')
    if depth > DEEPEST:
        raise InvalidInput(f"{place}: nested more than {DEEPEST} deep.")
    entries = cast("dict[str, Any]", raw)
    # `{"field": "year", "gte": 2020}` is the long form; `{"field": "x"}` compares a key that is called field.
    if "field" in entries and (len(entries) > 1 or isinstance(entries["field"], list)):
        keys = _parse_field(entries["field"], f"{place}.field")
        return _joined([_comparison(keys, name, value, place) for name, value in entries.items() if name != "field"])
    return _joined([_parse_entry(key, value, place, depth) for key, value in entries.items()])


def _parse_entry(key: str, value: Any, place: str, depth: int) -> Condition:
    if key in ("and", "or"):
        if not isinstance(value, list):
            raise InvalidInput(f"{place}.{key}: {shown_value(value)} is not a list of conditions.")
        parts = [_parse(part, f"{place}.{key}[{i}]", depth + 1) for i, part in enumerate(cast("list[Any]", value))]
        if not parts:
            raise InvalidInput(f"{place}.{key}: needs at least one condition.")
        return (And if key == "and" else Or)(tuple(parts))
    if key == "not":
        return Not(_parse(value, f"{place}.not", depth + 1))
    keys = _parse_field(key, place)
    if isinstance(value, dict):
        operators = cast("dict[str, Any]", value) or {"": None}
        return _joined([_comparison(keys, name, operand, f"{place}.{key}") for name, operand in operators.items()])
    return _comparison(keys, "in" if isinstance(value, list) else "eq", value, f"{place}.{key}")


def _joined(parts: list[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _parse_field(raw: Any, place: str) -> tuple[str, ...]:
    keys: Any = raw.split(".") if isinstance(raw, str) else raw
    # Every backend's paths hold keys without quotes and backslashes.
    names = cast("list[Any]", keys) if isinstance(keys, list) else [None]
    if not 0 < len(names) <= DEEPEST or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        raise InvalidInput(
            f"{place}: {shown_value(raw)} is not the name of a metadata field; use letters, digits, spaces and signs "
            'but no quotes or backslashes, "a.b" for the key b inside a.'
        )
    return cast("tuple[str, ...]", tuple(names))


def _comparison(keys: tuple[str, ...], operator: str, value: Any, place: str) -> Comparison:
    if operator not in get_args(Operator):
        raise InvalidInput(f"{place}: '{operator}' is not a comparison; use one of {', '.join(get_args(Operator))}.")
    accepted, fits = "a number or text", _is_ordered
    if operator in ("eq", "in"):
        accepted, fits = "text, a number, true or false", _is_scalar
    elif operator == "prefix":
        accepted, fits = "text", _is_text
    values = [value]
    if operator == "in":
        accepted = f"a list of 1 to {MOST_VALUES} texts, numbers, true or false"
        values = cast("list[Any]", value) if isinstance(value, list) else []
    if not 0 < len(values) <= MOST_VALUES or not all(map(fits, values)):
        raise InvalidInput(f"{place}.{operator}: {shown_value(value)} cannot be compared; use {accepted}.")
    return Comparison(keys, cast("Operator", operator), tuple(values))


def _is_text(value: Any) -> bool:
    """Return whether a value is text that UTF-8 can write, without NUL, at which SQLite ends text."""
    return isinstance(value, str) and not re.search("[\0\ud800-\udfff]", value)


def _is_ordered(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
    return math.isfinite(value) if isinstance(value, float) else _is_text(value)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, bool) or _is_ordered(value)


def shown_value(value: Any) -> str:
    """Return a value as JSON writes it, shortened."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def comparisons(condition: Condition) -> list[Comparison]:
    """Return every comparison in it, left to right."""
    if isinstance(condition, Comparison):
        return [condition]
    parts = (condition.part,) if isinstance(condition, Not) else condition.parts
    return [comparison for part in parts for comparison in comparisons(part)]


# ---------------------------------------------------------------- meaning


def evaluate(condition: Condition, metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata that are not in the file fulfil the condition."""
    sql, bindings = sql_condition(condition, ":metadata", {})
    with closing(apsw.Connection(":memory:")) as connection:
        return bool(connection.execute(f"select {sql}", {**bindings, "metadata": json.dumps(metadata)}).get)


def sql_condition(condition: Condition, metadata: str, columns: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the condition over a JSON text column: SQL that is 1 or 0 for every row, never null, and its bindings.

    `metadata` is the SQL of the JSON text, which counts as an empty object if it is none; `columns`: field -> SQL of
    the column that replaces it where the metadata has no such key.
    """
    bindings: dict[str, Any] = {}
    sound = f"iif(json_valid({metadata}), {metadata}, '{{}}')"

    def bind(value: Any) -> str:
        bindings[name := f"condition_{len(bindings)}"] = value
        return f":{name}"

    def write(condition: Condition) -> str:
        if isinstance(condition, Not):
            return f"not {write(condition.part)}"
        if isinstance(condition, And | Or):
            return f"({(' and ' if isinstance(condition, And) else ' or ').join(map(write, condition.parts))})"
        path = bind("$" + "".join(f'."{key}"' for key in condition.field))
        kind, value = f"json_type({sound}, {path})", f"json_extract({sound}, {path})"
        either = f"coalesce({_test(condition, kind, value, bind)}, 0)"
        if condition.operator in ("eq", "in"):
            items = f"json_each(iif({kind} = 'array', {value}, '[]')) as item"
            either = (
                f"({either} or exists (select 1 from {items} where {_test(condition, 'item.type', 'item.atom', bind)}))"
            )
        column = columns.get(condition.field[0]) if len(condition.field) == 1 else None
        if column is None:
            return either
        return f"iif({kind} is null, coalesce({_test(condition, f'typeof({column})', column, bind)}, 0), {either})"

    return write(condition), bindings


def _test(comparison: Comparison, kind: str, value: str, bind: Callable[[Any], str]) -> str:
    """Return SQL that compares one value of a type; null where it is missing."""
    tests = [f"{kind} = '{str(truth).lower()}'" for truth in comparison.values if isinstance(truth, bool)]
    texts = [option for option in comparison.values if isinstance(option, str)]
    numbers = [option for option in comparison.values if not isinstance(option, str | bool)]
    for kinds, options in (("('text')", texts), ("('integer', 'real')", numbers)):
        if options:
            names = [bind(option) for option in options]
            sign = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}.get(comparison.operator)
            test = f"{value} {sign} {names[0]}" if sign else f"{value} in ({', '.join(names)})"
            if comparison.operator == "prefix":
                test = f"substr({value}, 1, length({names[0]})) = {names[0]}"
            tests.append(f"({kind} in {kinds} and {test})")
    return f"({' or '.join(tests)})"
