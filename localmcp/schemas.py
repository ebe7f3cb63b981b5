"""The schemas of tools: the meaning of parameters, JSON Schema in few words, and arguments checked against it."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin

from localmcp.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from pydantic_core import SchemaValidator

Json = dict[str, Any]

log = logging.getLogger(__name__)

MOST_SHOWN, LONGEST_SHOWN = 50, 80
"""Choices of an enum in one message, and the characters of each: a schema of another server may have 200,000."""
MOST_ALTERNATIVES, MOST_REFERENCES = 8, 5
"""Alternatives of a schema in one message, and references followed in a row: they may go in a circle."""
MOST_PROBLEMS = 20
"""Problems in one message; more are counted."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON_KINDS = {"dict": "an object", "list": "a list", "str": "text", "bool": "true or false", "NoneType": "null"}
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,), "array": (list,),
}  # fmt: skip


def json_kind(value: Any) -> str:
    """Return what a value of a JSON file is, in a word for messages."""
    return _JSON_KINDS.get(type(value).__name__, "a number")


def mapping_of(value: Any) -> Json:
    """Return a value of foreign JSON if it is an object, empty for anything else."""
    return cast(Json, value) if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a value of foreign JSON if it is a list, empty for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def one_or_more(value: Any) -> list[Any]:
    """Return a value of foreign JSON as a list, of itself alone if it is none."""
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def compact_json(value: Any) -> str:
    """Return JSON without spaces or escapes of non-ASCII text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_json(text: str) -> Any:
    """Return the value of a JSON text, null for NaN and infinities; raises ValueError, or RecursionError."""
    return json.loads(text, parse_constant=lambda _: None)


def json_or_none(text: Any) -> Any:
    """Return the value of a stored JSON text; None for what somebody else wrote there."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def without_none(record: Mapping[str, Any]) -> Any:
    """Return the record without the fields that are None."""
    return {name: value for name, value in record.items() if value is not None}


def without_surrogates(value: Any) -> Any:
    """Return the value with U+FFFD for every lone surrogate, which UTF-8 cannot encode."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return {without_surrogates(key): without_surrogates(value) for key, value in table.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in cast("list[Any]", value)]
    return value


def shorten_value(value: Any) -> str:
    """Return a value as JSON of at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def camel_case(name: str) -> str:
    """`chunks_added` -> `chunksAdded`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def nearest(name: str, names: Iterable[str], *, least: int = 60) -> str | None:
    """Return the most similar of `names`, if one is similar enough (0..100) to be meant."""
    from rapidfuzz import fuzz, process

    best = process.extractOne(name.lower(), {n: n.lower() for n in names}, scorer=fuzz.ratio, score_cutoff=least)
    return best[2] if best else None


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the question whether the most similar of `names` is meant, or `otherwise` if none is similar."""
    near = nearest(name, names)
    return f"Did you mean '{near}'?" if near else otherwise


@dataclass(frozen=True, slots=True)
class Param:
    """What the schema says of one parameter besides its type; is in `Annotated[type, Param(...)]`."""

    description: str
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    required: bool = False
    """Advertised as required in spite of its default: the tool itself answers a call without it."""

    def limits(self) -> Json:
        """Return the arguments of pydantic's `Field` that say the same."""
        limits = {"ge": self.minimum, "le": self.maximum, "min_length": self.min_length, "max_length": self.max_length}
        return without_none({"description": self.description, **limits})


def bare_type(hint: Any) -> Any:
    """Return the type without our `Param`, which pydantic does not know."""
    return get_args(hint)[0] if param_of(hint) else hint


def param_of(hint: Any) -> Param | None:
    """Return what the schema says of a parameter with this hint; None if nothing."""
    return next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Param)), None)


def is_plain_value(value: Any, hint: Any) -> bool:
    """Return whether a text, whole number or truth value certainly fits the hint; else pydantic decides."""
    param, kind = param_of(hint) or Param(""), bare_type(hint)
    if get_origin(kind) is Literal:
        return type(value) is str and value in get_args(kind)
    if type(value) not in (get_args(kind) if isinstance(kind, UnionType) else (kind,)):
        return False
    size, least, most = value, param.minimum, param.maximum
    if isinstance(value, str):
        size, least, most = len(value), param.min_length, param.max_length
        if not value.isprintable():
            return False
    return isinstance(size, int) and (least is None or least <= size) and (most is None or size <= most)


def shorten_schema(schema: Any, *, names: bool = False) -> Any:
    """Return pydantic's schema without what says nothing; `names`: its keys are properties, not keywords."""
    if isinstance(schema, list):
        return [shorten_schema(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    shorter = {
        key: shorten_schema(value, names=not names and key in ("properties", "$defs"))
        for key, value in cast(Json, schema).items()
        if names or not (key == "title" or (key, value) in (("default", None), ("additionalProperties", True)))
    }
    # Optional parameters may simply be left out, so null is no alternative.
    alternatives = [choice for choice in shorter.get("anyOf", ()) if choice != {"type": "null"}] if not names else []
    if len(alternatives) == 1:
        shorter = {**alternatives[0], **{key: value for key, value in shorter.items() if key != "anyOf"}}
    if not names and "const" in shorter:
        # Gemini's function declarations have no `const`.
        shorter["enum"] = [shorter.pop("const")]
    return shorter


# ---------------------------------------------------------------- schemas in words, also those of other servers


def describe_parameters(schema: Json) -> str:
    """Return the parameters in one line: `query* (string), limit (integer 1..50)`; `*` = required."""
    required = list_of(schema.get("required"))
    parts = [
        f"{name}{'*' if name in required else ''} ({describe_kind(spec, schema)})"
        for name, spec in properties_of(schema).items()
    ]
    return ", ".join(parts) or "none"


def properties_of(schema: Json) -> Json:
    """Return the parameters by name, with those that only an alternative of the schema names."""
    alternatives = [part for key in ("anyOf", "oneOf", "allOf") for part in list_of(schema.get(key))]
    properties: Json = {}
    for part in (schema, *alternatives):
        properties = {**properties, **mapping_of(followed(part, schema).get("properties")), **properties}
    return properties


def describe_kind(schema: Any, root: Json, *, nested: bool = False) -> str:
    """Return the type in few words; a schema may also be True or False, or anything that another server wrote.

    References are looked up in `root`. That null may be given is left out: an optional parameter may be left out too.
    `nested`: of an alternative no further ones are told, for they may lead back to where it is.
    """
    spec = followed(schema, root)
    if "const" in spec or isinstance(spec.get("enum"), list):
        choices = spec["enum"] if "enum" in spec else [spec["const"]]
        texts = [choice if isinstance(choice, str) else shorten_value(choice) for choice in choices[:MOST_SHOWN]]
        more = f"|… ({len(choices)} in all)" if len(choices) > MOST_SHOWN else ""
        return "|".join(text[:LONGEST_SHOWN] for text in texts) + more
    kind = "object" if "properties" in spec or "required" in spec else "any"
    if "type" in spec:
        kinds = [str(name) for name in one_or_more(spec["type"])]
        kind = " or ".join(name for name in kinds if name != "null") or "null"
    elif not nested and (choices := list_of(spec.get("anyOf")) or list_of(spec.get("oneOf"))):
        names = dict.fromkeys(describe_kind(choice, root, nested=True) for choice in choices[:MOST_ALTERNATIVES])
        kind = " or ".join(name for name in names if name != "null") or "any"
    if "minimum" in spec or "maximum" in spec:
        kind += f" {spec.get('minimum', '')}..{spec.get('maximum', '')}"
    return f"array of {followed(spec.get('items'), root).get('type', 'any')}" if kind == "array" else kind


def followed(schema: Any, root: Json) -> Json:
    """Return the schema, or what its reference into `root` names; an empty one for what is no table."""
    for _ in range(MOST_REFERENCES):
        reference = mapping_of(schema).get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = root
        for key in reference[2:].split("/"):
            schema = mapping_of(schema).get(key.replace("~1", "/").replace("~0", "~"))
    return mapping_of(schema)


# ---------------------------------------------------------------- arguments that mean what the schema says


def lenient_value(value: Any, spec: Json) -> Any:
    """Return the value that was meant: what a text holds (`"5"`, `"true"`, JSON), or the one text in a list.

    A choice may be written in any case. Where a list is expected, one text, number or table becomes a list of one.
    What does not fit stays, and is refused later.
    """
    kind, item_kind = spec.get("type"), mapping_of(spec.get("items")).get("type")
    items = list_of(value)
    if kind == "string" and len(items) == 1 and isinstance(items[0], str):
        return items[0]
    if isinstance(value, str) and "enum" in spec:
        choices = [choice for choice in spec["enum"] if str(choice).casefold() == value.casefold()]
        return choices[0] if len(choices) == 1 else value
    if kind == "array" and not isinstance(value, str):
        if item_kind in ("integer", "object") and type(value) in _PYTHON_TYPES[item_kind]:
            return [value]
        return [lenient_value(item, spec["items"]) for item in items] if items and item_kind == "integer" else value
    if not isinstance(value, str) or kind not in _PYTHON_TYPES:
        return value
    try:
        parsed = json.loads(value.lower() if kind == "boolean" else value)
    except (ValueError, RecursionError):
        parsed = None
    if type(parsed) in _PYTHON_TYPES[kind]:
        return parsed
    return [value] if kind == "array" and item_kind == "string" else value


def values_from_texts(arguments: Json, schema: Json) -> Json:
    """Return the arguments with the value that a text holds, where the schema takes nothing else.

    `"5"` becomes 5 where only a number fits, if it is written exactly as the number is, so that nothing is lost; a text
    of JSON becomes the list or object. Assistants write arguments so.
    """
    specs = mapping_of(schema.get("properties"))
    changed = dict(arguments)
    for name, value in arguments.items():
        kind = mapping_of(specs.get(name)).get("type")
        if isinstance(value, str) and kind in ("integer", "number", "array", "object"):
            parsed = lenient_value(value, {"type": kind})
            changed[name] = parsed if isinstance(parsed, list | dict) or repr(parsed) == value else value
    return changed


def check_arguments(name: str, schema: Json, arguments: Json, *, seconds: float = 10.0) -> None:
    """Check the arguments of the tool `name` against the JSON Schema that somebody else wrote for it.

    References to other documents are never followed. A schema that is none, and a pattern that `matches` does not
    support, check nothing. InvalidInput lists every problem and the parameters; Unavailable if it takes too long.
    """
    try:
        errors = _schema_errors(name, schema, arguments, time.monotonic() + seconds)
    except TimeoutError:
        raise Unavailable(f"The arguments of {name} could not be checked within {seconds:g} s.") from None
    problems = list(dict.fromkeys(line for error in errors for line in _describe_problem(error, schema)))
    if not problems:
        return
    lines = [f"- {line}" for line in problems[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"- and {len(problems) - MOST_PROBLEMS} more")
    expected = f"Parameters: {describe_parameters(schema)}"
    raise InvalidInput("\n".join([f"Invalid arguments for {name}:", *lines, expected]))


def _schema_errors(name: str, schema: Json, arguments: Json, deadline: float) -> list[ValidationError]:
    # By place. Patterns cannot backtrack, and each reference looks at the deadline; without references the work is
    # bounded by the size of the schema.
    from jsonschema import validators
    from jsonschema.exceptions import SchemaError, ValidationError
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    dialect = validators.validator_for(schema, default=validators.Draft202012Validator)

    def follow(original: Any) -> Any:
        def check(validator: Any, value: Any, instance: Any, inner: Any) -> Iterator[ValidationError]:
            if time.monotonic() > deadline:
                raise TimeoutError
            yield from original(validator, value, instance, inner) or ()

        return check

    def check_pattern(validator: Any, pattern: Any, instance: Any, _inner: Any) -> Iterator[ValidationError]:
        # None: this engine does not support the pattern.
        if validator.is_type(instance, "string") and matches(pattern, instance) is False:
            yield ValidationError(f"{shorten_value(instance)} does not match {shorten_value(pattern)}")

    def check_nothing(*_: Any) -> tuple[()]:
        return ()

    checks = {key: follow(dialect.VALIDATORS[key]) for key in dialect.VALIDATORS if key.lower().endswith("ref")}
    checks["pattern"] = check_pattern
    if "patternProperties" in json.dumps(schema, default=str):
        # The library would match these patterns with backtracking.
        checks |= dict.fromkeys(("patternProperties", "additionalProperties", "unevaluatedProperties"), check_nothing)
    try:
        # Not by `check_schema`: a pattern that only JavaScript understands is no reason to check nothing.
        for error in dialect(dialect.META_SCHEMA).iter_errors(schema):
            raise SchemaError.create_from(error)
        # An empty registry: the default one fetches what `$ref` names from the network.
        nothing: Registry[Any] = Registry()
        bounded: Any = cast("Callable[..., Any]", validators.extend)(dialect, checks)
        errors: list[ValidationError] = list(bounded(schema, registry=nothing).iter_errors(arguments))
    except (SchemaError, Unresolvable, RecursionError) as error:
        log.warning("the schema of %s cannot be used, so its arguments are not checked: %s", name, error)
        return []
    return sorted(errors, key=lambda error: [str(part) for part in error.absolute_path])


def _describe_problem(error: ValidationError, schema: Json) -> list[str]:
    place = ".".join(str(part) for part in error.absolute_path)
    inside = f"{place}." if place else ""
    value, expected = cast(Any, error.instance), cast(Any, error.validator_value)
    if error.validator in ("required", "additionalProperties") and isinstance(value, dict) and expected is not True:
        inner = cast(Json, error.schema)
        properties = mapping_of(inner.get("properties"))
        missing = [name for name in list_of(inner.get("required")) if name not in value]
        unknown = [name for name in cast(Json, value) if name not in properties]
        unknown = unknown if inner.get("additionalProperties") is False else []
        lines = [f"{inside}{name}: required" for name in missing]
        for name in unknown:
            near = nearest(name, properties)
            lines.append(f"{inside}{name}: not a parameter" + (f"; did you mean '{near}'?" if near else ""))
        return lines
    place = place or "arguments"
    if error.validator in ("type", "enum", "const", "anyOf", "oneOf"):
        texts = [choice for choice in one_or_more(expected) if isinstance(choice, str)]
        is_choice = error.validator in ("enum", "const")
        near = nearest(value, texts) if is_choice and isinstance(value, str) else None
        guess = f"; did you mean '{near}'?" if near else ""
        kinds = " or ".join(texts) if error.validator == "type" else describe_kind({error.validator: expected}, schema)
        return [f"{place}: should be {kinds}, got {shorten_value(value)}{guess}"]
    message = error.message if len(error.message) <= 160 else error.message[:157] + "..."
    return [f"{place}: {message}"]


# ---------------------------------------------------------------- untrusted patterns
# Matched in time that grows with the text, never exponentially, by Rust's `regex`, which pydantic brings; it has no
# look-around and no backreferences.

MOST_REPEATS = 3
"""Signs of repetition up to which Python's engine is quick with a path; each further one multiplies its attempts."""


def matches(pattern: str, text: str) -> bool | None:
    """Return whether the pattern is anywhere in the text; None if this engine does not support the pattern."""
    compiled = _compile(pattern)
    return None if compiled is None else compiled.isinstance_python(text)


def path_matcher(pattern: re.Pattern[str]) -> Callable[[str], Any]:
    """Return what tells whether a pattern is in a path; a slow one that this engine does not support is in none."""
    if pattern.pattern.count("*") + pattern.pattern.count("+") <= MOST_REPEATS:
        return pattern.search
    compiled = _compile(pattern.pattern)
    return compiled.isinstance_python if compiled else lambda _: False


@lru_cache(maxsize=1000)
def _compile(pattern: str) -> SchemaValidator | None:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    schema: Any = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
    try:
        return SchemaValidator(schema)
    except (SchemaError, UnicodeError):
        return None
