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
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import apsw

from localmcp.errors import InvalidInput

Operator = Literal["eq", "in", "gt", "gte", "lt", "lte", "prefix"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)
Scalar = str | int | float | bool

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


def parse_condition(raw: Any) -> Condition | None:
    """Return the condition that a JSON value states; None for null and for an empty object.

    Raises:
        InvalidInput: names the place, the value and what is accepted.
    """
    if raw is None or raw == {}:
        return None
    condition = _parse(raw, "filter", 1)
    compared = comparisons(condition)
    if len(compared) > MOST_COMPARISONS:
        raise InvalidInput(f"filter: more than {MOST_COMPARISONS} comparisons; use `in` for many values.")
    if (values := sum(len(comparison.values) for comparison in compared)) > MOST_VALUES_IN_ALL:
        raise InvalidInput(f"filter: {values:,} values are too many; use at most {MOST_VALUES_IN_ALL:,}.")
    return condition


def _parse(raw: Any, place: str, depth: int) -> Condition:
    if not isinstance(raw, dict) or not raw:
        raise InvalidInput(f'{place}: {shown_value(raw)} is not a condition; use an object such as {{"lang": "it"}}.')
    if depth > DEEPEST:
        raise InvalidInput(f"{place}: nested more than {DEEPEST} deep.")
    entries = cast("dict[str, Any]", raw)
    if _is_long(entries):
        keys = _parse_field(entries["field"], f"{place}.field")
        return _joined([_parse_operator(keys, o, v, place) for o, v in entries.items() if o != "field"])
    return _joined([_parse_entry(key, value, place, depth) for key, value in entries.items()])


def _is_long(entries: Mapping[str, Any]) -> bool:
    """Tell `{"field": "year", "gte": 2020}` from `{"field": "x"}`, which compares a key that is called field."""
    return "field" in entries and (len(entries) > 1 or isinstance(entries["field"], list))


def _parse_entry(key: str, value: Any, place: str, depth: int) -> Condition:
    if key in ("and", "or") and isinstance(value, list):
        parts = cast("list[Any]", value)
        if not parts:
            raise InvalidInput(f"{place}.{key}: needs at least one condition.")
        operands = tuple(_parse(part, f"{place}.{key}[{i}]", depth + 1) for i, part in enumerate(parts))
        return And(operands) if key == "and" else Or(operands)
    if key in ("and", "or"):
        raise InvalidInput(f"{place}.{key}: {shown_value(value)} is not a list of conditions.")
    if key == "not":
        return Not(_parse(value, f"{place}.not", depth + 1))
    keys = _parse_field(key, place)
    if isinstance(value, dict):
        operators = cast("dict[str, Any]", value) or {"": None}
        return _joined([_parse_operator(keys, o, v, f"{place}.{key}") for o, v in operators.items()])
    return _parse_operator(keys, "in" if isinstance(value, list) else "eq", value, f"{place}.{key}")


def _joined(parts: list[Condition]) -> Condition:
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _parse_field(raw: Any, place: str) -> tuple[str, ...]:
    keys: list[Any] = raw.split(".") if isinstance(raw, str) else []
    if isinstance(raw, list):
        keys = cast("list[Any]", raw)
    if not 0 < len(keys) <= DEEPEST or not all(isinstance(key, str) and _is_name(key) for key in keys):
        raise InvalidInput(
            f"{place}: {shown_value(raw)} is not the name of a metadata field; use letters, digits, spaces and signs "
            'but no quotes or backslashes, "a.b" for the key b inside a.'
        )
    return tuple(keys)


def _is_name(key: str) -> bool:
    """Return whether every backend's paths can hold a key: without quotes and backslashes."""
    return 0 < len(key) <= 200 and key.isprintable() and not re.search(r"[\"'\\`]", key)


def _parse_operator(keys: tuple[str, ...], operator: str, value: Any, place: str) -> Comparison:
    if operator not in OPERATORS:
        raise InvalidInput(f"{place}: '{operator}' is not a comparison; use one of {', '.join(OPERATORS)}.")
    many = operator == "in"
    values: tuple[Any, ...] = tuple(cast("list[Any]", value)) if many and isinstance(value, list) else (value,)
    fits = _is_scalar if operator in ("eq", "in") else _is_text if operator == "prefix" else _is_ordered
    if not 0 < len(values) <= MOST_VALUES or many != isinstance(value, list) or not all(map(fits, values)):
        accepted = {
            "eq": "text, a number, true or false",
            "in": f"a list of 1 to {MOST_VALUES} texts, numbers, true or false",
            "prefix": "text",
        }.get(operator, "a number or text")
        raise InvalidInput(f"{place}.{operator}: {shown_value(value)} cannot be compared; use {accepted}.")
    return Comparison(keys, operator, values)


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

    Args:
        metadata: the SQL of the JSON text; what is not JSON counts as an empty object.
        columns: field -> SQL of the column that replaces it where the metadata has no such key.
    """
    compiler = _SqlCompiler(f"iif(json_valid({metadata}), {metadata}, '{{}}')", columns)
    return compiler.compile(condition), compiler.bindings


class _SqlCompiler:
    def __init__(self, metadata: str, columns: Mapping[str, str]) -> None:
        self.metadata = metadata
        self.columns = columns
        self.bindings: dict[str, Any] = {}

    def compile(self, condition: Condition) -> str:
        if isinstance(condition, Not):
            return f"not {self.compile(condition.part)}"
        if isinstance(condition, And | Or):
            word = " and " if isinstance(condition, And) else " or "
            return f"({word.join(self.compile(part) for part in condition.parts)})"
        path = self._bind("$" + "".join(f'."{key}"' for key in condition.field))
        kind = f"json_type({self.metadata}, {path})"
        value = f"json_extract({self.metadata}, {path})"
        either = f"coalesce({self._test(condition, kind, value)}, 0)"
        if condition.operator in ("eq", "in"):
            items = f"json_each(iif({kind} = 'array', {value}, '[]')) as item"
            in_array = self._test(condition, "item.type", "item.atom")
            either = f"({either} or exists (select 1 from {items} where {in_array}))"
        column = self.columns.get(condition.field[0]) if len(condition.field) == 1 else None
        if column is None:
            return either
        return f"iif({kind} is null, coalesce({self._test(condition, f'typeof({column})', column)}, 0), {either})"

    def _test(self, comparison: Comparison, kind: str, value: str) -> str:
        """Return SQL that compares one value of a type; null where it is missing."""
        texts = [option for option in comparison.values if isinstance(option, str)]
        numbers = [option for option in comparison.values if not isinstance(option, str | bool)]
        tests = [f"{kind} = '{str(truth).lower()}'" for truth in comparison.values if isinstance(truth, bool)]
        for kinds, options in (("('text')", texts), ("('integer', 'real')", numbers)):
            if options:
                names = [self._bind(option) for option in options]
                signs = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
                if comparison.operator == "prefix":
                    test = f"substr({value}, 1, length({names[0]})) = {names[0]}"
                elif sign := signs.get(comparison.operator):
                    test = f"{value} {sign} {names[0]}"
                else:
                    test = f"{value} in ({', '.join(names)})"
                tests.append(f"({kind} in {kinds} and {test})")
        return f"({' or '.join(tests)})"

    def _bind(self, value: Any) -> str:
        name = f"condition_{len(self.bindings)}"
        self.bindings[name] = value
        return f":{name}"
