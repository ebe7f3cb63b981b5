"""The schemas of tools: what a parameter means, and JSON Schema as short as it can be said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast, get_args

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Param:
    """What the schema says of one parameter besides its type; stands in `Annotated[type, Param(...)]`."""

    description: str
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    required: bool = False
    """Advertised as required in spite of its default: the tool itself answers a call without it."""


def compact_json(value: Any) -> str:
    """JSON without spaces, text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`, if one is similar enough to be meant."""
    from rapidfuzz import fuzz, process

    best = process.extractOne(name.lower(), {n: n.lower() for n in names}, scorer=fuzz.ratio, score_cutoff=60)
    return best[2] if best else None


def bare_type(hint: Any) -> Any:
    """The type without our `Param`, which pydantic does not know."""
    return get_args(hint)[0] if param_of(hint) else hint


def param_of(hint: Any) -> Param | None:
    return next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Param)), None)


def field_limits(hint: Any) -> Json:
    param = param_of(hint)
    if param is None:
        return {}
    limits = {
        "description": param.description,
        "ge": param.minimum,
        "le": param.maximum,
        "min_length": param.min_length,
        "max_length": param.max_length,
    }
    return {key: value for key, value in limits.items() if value is not None}


def tidy(schema: Any, drop: Callable[[str, Any], bool], *, names: bool = False) -> Any:
    """The schema without what only costs tokens; `names`: the keys are names of properties, not keywords."""
    if isinstance(schema, list):
        return [tidy(item, drop) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: tidy(value, drop, names=not names and key in ("properties", "$defs"))
        for key, value in cast(Json, schema).items()
        if names or not drop(key, value)
    }


def drop_from_input(key: str, value: Any) -> bool:
    return key == "title" or (key == "default" and value is None)


def drop_from_output(key: str, value: Any) -> bool:
    """Our docstrings explain results to developers; a model reads the result itself."""
    return key in ("title", "description") or (key == "additionalProperties" and value is True)


def shorten_output(schema: Json) -> Json:
    """Which fields are always there is said for the result itself; said of every nested record too, it would make up
    a tenth of tools/list."""
    for record in schema.get("$defs", {}).values():
        record.pop("required", None)
    return schema


def without_null(schema: Json) -> Json:
    """An optional parameter may be left out, so its null alternative need not be advertised."""
    properties: Json = schema.setdefault("properties", {})
    for name, spec in properties.items():
        alternatives = [each for each in spec.get("anyOf", ()) if each != {"type": "null"}]
        if len(alternatives) == 1:
            properties[name] = {**alternatives[0], **{key: spec[key] for key in spec if key != "anyOf"}}
    return schema


def describe_kind(spec: Json) -> str:
    if "enum" in spec:
        return "|".join(map(str, spec["enum"]))
    kind = str(spec.get("type", "any"))
    if "minimum" in spec or "maximum" in spec:
        kind += f" {spec.get('minimum', '')}..{spec.get('maximum', '')}"
    if kind == "array":
        kind = f"array of {spec.get('items', {}).get('type', 'any')}"
    return kind


def shorten_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
