"""The schemas of tools: the meaning of parameters, and JSON Schema in its shortest form."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin

from localmcp.errors import InvalidInput, Unavailable
from localmcp.linear_patterns import may_match

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

Json = dict[str, Any]

_SURROGATE = re.compile("[\ud800-\udfff]")
log = logging.getLogger(__name__)


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


_JSON_KINDS = {"dict": "an object", "list": "a list", "str": "text", "bool": "true or false", "NoneType": "null"}


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
    """Return the value of a JSON text; NaN and infinities, which many programs print and JSON does not have, are null.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deep.
    """
    return json.loads(text, parse_constant=lambda _: None)


def without_none(record: Mapping[str, Any]) -> Any:
    """Return the record without the fields that are None."""
    return {name: value for name, value in record.items() if value is not None}


def nearest(name: str, names: Iterable[str], *, least: int = 60) -> str | None:
    """Return the most similar of `names`, if one is similar enough (0..100) to be meant."""
    from rapidfuzz import fuzz, process

    best = process.extractOne(name.lower(), {n: n.lower() for n in names}, scorer=fuzz.ratio, score_cutoff=least)
    return best[2] if best else None


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return the question whether the most similar of `names` is meant, or `otherwise` if none is similar."""
    near = nearest(name, names)
    return f"Did you mean '{near}'?" if near else otherwise


def bare_type(hint: Any) -> Any:
    """Return the type without our `Param`, which pydantic does not know."""
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
    return without_none(limits)


def is_plain_value(value: Any, hint: Any) -> bool:
    """Return whether a text, whole number or truth value certainly fits the hint and its limits.

    False means that pydantic has to decide. A text with control characters or lone surrogates is not plain.
    """
    param = param_of(hint)
    kind = get_args(hint)[0] if param else hint
    if get_origin(kind) is Literal:
        return type(value) is str and value in get_args(kind)
    if type(value) not in (get_args(kind) if isinstance(kind, UnionType) else (kind,)):
        return False
    if isinstance(value, str):
        least, most = (param.min_length, param.max_length) if param else (None, None)
        return value.isprintable() and (least or 0) <= len(value) <= (1e15 if most is None else most)
    if not isinstance(value, int):
        return False
    least, most = (param.minimum, param.maximum) if param else (None, None)
    return (-1e15 if least is None else least) <= value <= (1e15 if most is None else most)


def tidy(schema: Any, drop: Callable[[str, Any], bool], *, names: bool = False) -> Any:
    """Return the schema without the keywords that `drop` names; `names`: its keys are properties, not keywords."""
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
    return key == "title" or (key == "default" and value is None) or (key == "additionalProperties" and value is True)


def without_null(schema: Json) -> Json:
    """Return the schema without null alternatives: optional parameters may simply be left out."""
    properties: Json = schema.setdefault("properties", {})
    for name, spec in properties.items():
        alternatives = [alternative for alternative in spec.get("anyOf", ()) if alternative != {"type": "null"}]
        if len(alternatives) == 1:
            properties[name] = {**alternatives[0], **{key: spec[key] for key in spec if key != "anyOf"}}
    return schema


def describe_kind(schema: Any, root: Json | None = None) -> str:
    """Return the type in few words; a schema may also be True or False, or anything that another server wrote.

    References are looked up in `root`. That null may be given is left out: an optional parameter may be left out too.
    """
    spec = followed(schema, root or {})
    if isinstance(spec.get("enum"), list):
        return _describe_choices(cast("list[Any]", spec["enum"]))
    if "const" in spec:
        return _describe_choices([spec["const"]])
    kind = _type_words(spec, root)
    if "minimum" in spec or "maximum" in spec:
        kind += f" {spec.get('minimum', '')}..{spec.get('maximum', '')}"
    items = followed(spec.get("items"), root or {})
    return f"array of {items.get('type', 'any')}" if kind == "array" else kind


def followed(schema: Any, root: Json) -> Json:
    """Return the schema, or what its reference into `root` names; an empty one for what is no table."""
    for _ in range(MOST_REFERENCES):
        reference = mapping_of(schema).get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = root
        for key in reference[2:].split("/"):
            name = key.replace("~1", "/").replace("~0", "~")
            schema = mapping_of(schema).get(name)
    return mapping_of(schema)


def _type_words(spec: Json, root: Json | None) -> str:
    kind: Any = spec.get("type")
    if isinstance(kind, list):
        kinds = [str(name) for name in cast("list[Any]", kind) if name != "null"] or ["null"]
        return " or ".join(kinds)
    if kind is not None:
        return str(kind)
    if choices := list_of(spec.get("anyOf")) or list_of(spec.get("oneOf")):
        # Of an alternative no more references are followed: they may lead back to where it is.
        names = dict.fromkeys(describe_kind(followed(choice, root or {})) for choice in choices[:MOST_ALTERNATIVES])
        return " or ".join(name for name in names if name != "null") or "any"
    return "object" if "properties" in spec or "required" in spec else "any"


def _describe_alternative(schema: Any, root: Json) -> str:
    """Return the type, and what an object must have: of two objects only that tells which one is meant."""
    spec = followed(schema, root)
    names = ", ".join(map(str, list_of(spec.get("required"))))
    kind = describe_kind(spec, root)
    return f"object with {names}" if names and kind in ("object", "any") else kind


def _describe_choices(choices: Sequence[Any]) -> str:
    """Return the first choices, each cut; a schema of another server may have 200,000."""
    more = f"|… ({len(choices)} in all)" if len(choices) > MOST_CHOICES else ""
    return "|".join(_choice_text(choice)[:LONGEST_CHOICE] for choice in choices[:MOST_CHOICES]) + more


def _choice_text(choice: Any) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False, default=str)


def shorten_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def lenient_value(value: Any, spec: Json) -> Any:
    """Return the value that was meant: what a text holds (`"5"`, `"true"`, JSON), or the one text in a list.

    A choice may be written in any case. Where a list is expected, one text, number or table becomes a list of one.
    What does not fit stays, and is refused later.
    """
    kind = spec.get("type")
    if kind == "string" and isinstance(value, list):
        items = cast("list[Any]", value)
        return items[0] if len(items) == 1 and isinstance(items[0], str) else items
    if isinstance(value, str) and "enum" in spec:
        choices = [choice for choice in spec["enum"] if str(choice).casefold() == value.casefold()]
        return choices[0] if len(choices) == 1 else value
    if kind == "array" and not isinstance(value, str):
        return _lenient_items(value, spec.get("items", {}))
    if not isinstance(value, str) or kind not in _KINDS:
        return value
    try:
        parsed = json.loads(value.lower() if kind == "boolean" else value)
    except (ValueError, RecursionError):
        parsed = None
    if type(parsed) in _KINDS[kind]:
        return parsed
    return [value] if kind == "array" and spec.get("items", {}).get("type") == "string" else value


def _lenient_items(value: Any, spec: Json) -> Any:
    """Return a list of whole numbers as it was meant, also for one number; one table as a list of one."""
    kind = spec.get("type")
    if kind in ("integer", "object") and type(value) in _KINDS[kind]:
        return [value]
    if kind != "integer" or not isinstance(value, list):
        return value
    return [lenient_value(item, spec) for item in cast("list[Any]", value)]


def numbers_from_texts(arguments: Json, schema: Json) -> Json:
    """Return the arguments with the number in place of a text such as "5", where the schema takes nothing else.

    Only a text that is written exactly as the number is counts, so that nothing is lost.
    """
    specs = mapping_of(schema.get("properties"))
    return {name: _number_from_text(value, specs.get(name)) for name, value in arguments.items()}


def _number_from_text(value: Any, spec: Any) -> Any:
    if not isinstance(value, str) or not isinstance(spec, dict):
        return value
    table = cast(Json, spec)
    number = lenient_value(value, table) if table.get("type") in ("integer", "number") else value
    return number if repr(number) == value else value


_KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


def camel_case(name: str) -> str:
    """`chunks_added` -> `chunksAdded`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


# ---------------------------------------------------------------- checking arguments against any schema

MOST_PROBLEMS = 20
"""Problems in one message; more are counted."""
MOST_CHOICES, LONGEST_CHOICE = 50, 80
"""Choices of an enum in one message, and the characters of each."""
_COMBINING = ("anyOf", "oneOf", "allOf")
MOST_ALTERNATIVES, MOST_REFERENCES = 8, 5
"""Alternatives of a schema told at once, and references followed in a row: they may go in a circle."""


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
    alternatives = [part for key in _COMBINING for part in list_of(schema.get(key))]
    tables: list[Any] = [followed(part, schema).get("properties") for part in (schema, *alternatives)]
    properties: Json = {}
    for table in tables:
        if isinstance(table, dict):
            properties = {**properties, **cast(Json, table), **properties}
    return properties


def check_arguments(name: str, schema: Json, arguments: Json, *, seconds: float = 10.0) -> None:
    """Check the arguments of the tool `name` against the JSON Schema that somebody else wrote for it.

    References to other documents are never followed. Where the schema itself is no valid one, nothing is checked: the
    tool then has to answer for itself. The same holds for a pattern that `linear_patterns` does not support.

    Raises:
        InvalidInput: the arguments do not fit; the message lists every problem and the expected parameters.
        Unavailable: the check takes longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    try:
        errors = _schema_errors(name, schema, arguments, deadline)
    except TimeoutError:
        raise Unavailable(f"The arguments of {name} could not be checked within {seconds:g} s.") from None
    problems = dict.fromkeys(line for error in errors for line in _tell(error, schema))
    if not problems:
        return
    lines = [f"- {line}" for line in list(problems)[:MOST_PROBLEMS]]
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"- and {len(problems) - MOST_PROBLEMS} more")
    expected = f"Parameters: {describe_parameters(schema)}"
    raise InvalidInput("\n".join([f"Invalid arguments for {name}:", *lines, expected]))


def _schema_errors(name: str, schema: Json, arguments: Json, deadline: float) -> list[ValidationError]:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    dialect = validator_for(schema, default=Draft202012Validator)
    try:
        # Not by `check_schema`: a pattern that only JavaScript understands is no reason to check nothing.
        for error in dialect(dialect.META_SCHEMA).iter_errors(schema):
            raise SchemaError.create_from(error)
        # An empty registry: the default one fetches what `$ref` names from the network.
        nothing: Registry[Any] = Registry()
        checker = _bounded(dialect, deadline)(schema, registry=nothing)
        errors = list(checker.iter_errors(arguments))
    except (SchemaError, Unresolvable, RecursionError) as error:
        log.warning("the schema of %s cannot be used, so its arguments are not checked: %s", name, error)
        return []
    return sorted(errors, key=lambda error: [str(part) for part in error.absolute_path])


def _bounded(dialect: Any, deadline: float) -> Any:
    """Return the dialect with patterns that cannot backtrack, and a check of the deadline at each reference.

    Without references the work is bounded by the size of the schema.
    """
    from jsonschema import validators

    extend = cast("Callable[..., Any]", validators.extend)

    def within_time(keyword: str) -> Any:
        original = dialect.VALIDATORS[keyword]

        def follow(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            if time.monotonic() > deadline:
                raise TimeoutError
            yield from original(validator, value, instance, schema) or ()

        return follow

    references = [keyword for keyword in ("$ref", "$dynamicRef", "$recursiveRef") if keyword in dialect.VALIDATORS]
    keywords = {**_PATTERN_KEYWORDS, **{reference: within_time(reference) for reference in references}}
    return extend(dialect, {key: check for key, check in keywords.items() if key in dialect.VALIDATORS})


def _check_pattern(validator: Any, pattern: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "string") and not may_match(pattern, instance):
        yield ValidationError(f"{shorten_value(instance)} does not match {shorten_value(pattern)}")


def _check_pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    from localmcp.linear_patterns import matches

    if validator.is_type(instance, "object"):
        for pattern, inner in patterns.items():
            for key in [key for key in instance if matches(pattern, key)]:
                yield from validator.descend(instance[key], inner, path=key, schema_path=pattern)


def _check_additional(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    extras = _unknown_keys(instance, schema) if validator.is_type(instance, "object") else []
    if validator.is_type(allowed, "object"):
        for key in extras:
            yield from validator.descend(instance[key], allowed, path=key)
    elif allowed is False and extras:
        yield ValidationError(f"{', '.join(map(shorten_value, extras))}: not allowed")


def _check_unevaluated(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check nothing where patterns decide what was evaluated: the library would match them with backtracking."""
    from jsonschema.validators import Draft202012Validator

    if "patternProperties" not in json.dumps(validator.schema, default=str):
        original: Any = Draft202012Validator.VALIDATORS["unevaluatedProperties"]
        yield from original(validator, allowed, instance, schema) or ()


_PATTERN_KEYWORDS: Json = {
    "pattern": _check_pattern,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional,
    "unevaluatedProperties": _check_unevaluated,
}


def _unknown_keys(value: Json, schema: Json) -> list[str]:
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return [key for key in value if key not in properties and not any(may_match(pattern, key) for pattern in patterns)]


def _tell(error: ValidationError, schema: Json) -> list[str]:
    """Return the problem in words, one line for each key that is missing or unknown."""
    place = ".".join(str(part) for part in error.absolute_path)
    inside = f"{place}." if place else ""
    value, expected = cast(Any, error.instance), cast(Any, error.validator_value)
    if error.validator == "required" and isinstance(value, dict):
        table = cast(Json, value)
        unknown = _tell_unknown(inside, table, cast(Json, error.schema))
        return [*(f"{inside}{key}: required" for key in expected if key not in table), *unknown]
    if error.validator == "additionalProperties" and expected is False:
        return _tell_unknown(inside, cast(Json, value), cast(Json, error.schema))
    if error.validator == "type":
        kinds = " or ".join([expected] if isinstance(expected, str) else expected)
        return [f"{place or 'arguments'}: should be {kinds}, got {shorten_value(value)}"]
    if error.validator in ("enum", "const"):
        allowed: list[Any] = expected if error.validator == "enum" else [expected]
        texts = [choice for choice in allowed if isinstance(choice, str)]
        near = nearest(value, texts) if isinstance(value, str) else None
        guess = f"; did you mean '{near}'?" if near else ""
        return [f"{place}: should be {_describe_choices(allowed)}, got {shorten_value(value)}{guess}"]
    if error.validator in ("anyOf", "oneOf"):
        kinds = " or ".join(_describe_alternative(part, schema) for part in expected[:MOST_ALTERNATIVES])
        # A value that fits more than one alternative of oneOf has no error of its own.
        exactly = "exactly one of " if error.validator == "oneOf" and not error.context else ""
        return [f"{place or 'arguments'}: should be {exactly}{kinds}, got {shorten_value(value)}"]
    message = error.message if len(error.message) <= 160 else error.message[:157] + "..."
    return [f"{place or 'arguments'}: {message}"]


def _tell_unknown(inside: str, value: Json, schema: Json) -> list[str]:
    properties = cast(Json, schema.get("properties", {}))
    guesses = ((key, nearest(key, properties)) for key in _unknown_keys(value, schema))
    return [f"{inside}{key}: not a parameter" + (f"; did you mean '{near}'?" if near else "") for key, near in guesses]
