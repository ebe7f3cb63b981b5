"""TOML tables checked by pydantic, with every mistake in plain words."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localmcp.own_tools.problems import Mistake
from localmcp.schemas import Json, did_you_mean, shorten_value

Filled = Annotated[str, Field(pattern=r"\S")]
"""Text that is not blank."""


class Table(BaseModel):
    """A table whose keys and types must be exactly these."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Kind = TypeVar("Kind", bound=Table)


def read_table(model: type[Kind], table: Json) -> tuple[Kind, list[Mistake]]:
    """Return the table without the keys that are wrong, and what is wrong with these.

    Raises:
        ValidationError: a key without a default is missing or wrong.
    """
    mistakes: list[Mistake] = []
    while True:
        try:
            return model.model_validate(table), mistakes
        except ValidationError as error:
            new = mistakes_of(model, error)
            shorter = table
            for mistake in new:
                shorter = _without(shorter, mistake.place)
            if shorter == table:
                raise
            table, mistakes = shorter, [*mistakes, *new]


def _without(table: Json, place: tuple[str, ...]) -> Json:
    key, *inner = place
    if inner and isinstance(table.get(key), dict):
        return {**table, key: _without(table[key], tuple(inner))}
    return {name: value for name, value in table.items() if name != key}


def mistakes_of(model: type[BaseModel], error: ValidationError) -> list[Mistake]:
    """Return what is wrong with a table, each mistake once."""
    return list(dict.fromkeys(_mistake(model, cast(Json, slip)) for slip in error.errors(include_url=False)))


def unknown_key(place: tuple[str, ...], known: Iterable[str]) -> Mistake:
    """Return the mistake of a key that means nothing at its place."""
    names = list(known)
    hint = did_you_mean(place[-1], names, f"Known: {', '.join(names)}.")
    return Mistake(place, f"{'.'.join(place)} is not a known key.", hint)


def unknown_choice(place: tuple[str, ...], value: str, choices: Iterable[str]) -> Mistake:
    """Return the mistake of a text that is none of the choices."""
    names = list(choices)
    hint = did_you_mean(value, names, f"It must be one of {', '.join(names)}.")
    return Mistake(place, f"{'.'.join(place)} = '{value}' is not known.", hint)


def _mistake(model: type[BaseModel], slip: Json) -> Mistake:
    place, hint, limits, known = _locate(model, slip["loc"])
    name, kind, value = ".".join(place), slip["type"], slip["input"]
    if kind == "extra_forbidden":
        return unknown_key(place, known)
    if kind == "missing":
        return Mistake(place, f"{name} is missing; it must be {_expected(hint, limits, name)}.")
    if kind == "string_pattern_mismatch":
        return Mistake(place, f"{name} is empty.")
    if kind == "literal_error" and isinstance(value, str):
        return unknown_choice(place, value, map(str, get_args(hint)))
    if kind in ("greater_than_equal", "less_than_equal"):
        return Mistake(place, f"{name} must be {_range(limits)}, not {value}.")
    if get_origin(hint) is list and not isinstance(value, list):
        only = "texts only" if get_args(hint) == (str,) else 'texts and { if = "…", add = […] }'
        return Mistake(place, f"{name} must hold {only}.")
    return Mistake(place, f"{name} must be {_expected(hint, limits, name)}, not {shorten_value(value)}.")


def _locate(model: Any, loc: tuple[Any, ...]) -> tuple[tuple[str, ...], Any, list[Any], list[str]]:
    """Return the keys to a mistake, the type and limits of what belongs there, and the keys that are known there."""
    hint: Any = model
    limits, keys, known = list[Any](), list[str](), list[str]()
    for position, part in enumerate(loc):
        if isinstance(hint, type) and issubclass(hint, BaseModel):
            fields = {field.alias or name: field for name, field in hint.model_fields.items()}
            keys, known = [*keys, str(part)], list(fields)
            if part not in fields:
                break
            hint, limits = _without_none(fields[part].annotation), fields[part].metadata
        elif get_origin(hint) is dict:
            keys, hint = [*keys, str(part)], get_args(hint)[1]
        elif get_origin(hint) is list and position + 1 < len(loc):
            (hint,) = get_args(hint)
            hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        else:
            break
    return tuple(keys), cast(Any, hint), limits, known


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else hint


def _expected(hint: Any, limits: list[Any], name: str) -> str:
    """Return in words what belongs there."""
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_expected(kind, limits, name) for kind in get_args(hint) if kind is not None))
    if hint in (int, float):
        return f"{'a whole number' if hint is int else 'a number'} {_range(limits)}".strip()
    if get_origin(hint) is list:
        return "a list of texts" if get_args(hint) == (str,) else "a list"
    words: Mapping[Any, str] = {str: "text", bool: "true or false", type(None): "nothing"}
    return words.get(hint, f"a table: [{name}]")


def _range(limits: list[Any]) -> str:
    bounds = [getattr(limit, side) for side in ("ge", "le") for limit in limits if hasattr(limit, side)]
    return f"from {bounds[0]:g} to {bounds[1]:g}" if len(bounds) == 2 else ""


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts_in(list(cast(Json, value).values()))
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from texts_in(item)
