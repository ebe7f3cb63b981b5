"""The parameters that a manifest declares, as a schema, and the arguments that a call gives for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from localmcp.errors import InvalidInput
from localmcp.own_tools.fields import Fields
from localmcp.schemas import Json, check_arguments, list_of, numbers_from_texts, shorten_value

KINDS: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}
_ITEMS = ("string", "integer", "number")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>[A-Za-z_]\w*)\}\}|\{(?P<name>[A-Za-z_]\w*)\}", re.ASCII)
"""`{name}` in an argument, a URL or a body; `{{name}}` represents `{name}` itself."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a manifest."""

    schema: Json
    required: bool
    pattern: re.Pattern[str] | None
    allow_dash: bool
    """Whether a value may begin with `-` where a program could take it for an option."""

    @property
    def default(self) -> Any:
        """The value where a call gives none; None = the argument may be missing."""
        return self.schema.get("default")

    @property
    def always_there(self) -> bool:
        """Whether a call has a value for it in any case."""
        return self.required or self.default is not None


def read_parameters(fields: Fields, kinds: Iterable[str], *, dashes: bool) -> dict[str, Parameter]:
    """Return the table `[parameters]`: name -> parameter, in the order they are written.

    Args:
        fields: of the table.
        kinds: the types that fit this kind of manifest.
        dashes: whether `allow_dash` is a key here.
    """
    read: dict[str, Parameter] = {}
    for name in fields.keys():
        own = fields.table(name)
        if not _NAME.fullmatch(name):
            fields.complain(f"'{name}' is no name for a parameter: letters, digits and _, at most 64.", name)
            continue
        read[name] = _read_parameter(own, list(kinds), dashes)
        own.refuse_others()
    return read


def _read_parameter(fields: Fields, kinds: list[str], dashes: bool) -> Parameter:
    kind = fields.choice("type", kinds, "string")
    schema: Json = {"type": kind}
    if says := fields.text("description"):
        schema["description"] = says
    pattern = _read_limits(fields, kind, schema)
    allowed = fields.raw("enum")
    if allowed is not None:
        schema["enum"] = _read_enum(fields, kind, allowed)
    default = fields.raw("default")
    if default is not None:
        _check_default(fields, kind, default, schema)
        schema["default"] = default
    required = fields.flag("required", False)
    if required and default is not None:
        fields.complain(f"{fields.named('required')}: a parameter with a default is never missing.", "required")
    return Parameter(schema, required, pattern, dashes and fields.flag("allow_dash", False))


def _read_limits(fields: Fields, kind: str, schema: Json) -> re.Pattern[str] | None:
    """Add the limits that belong to the type to its schema; the compiled pattern, if there is one."""
    pattern = None
    if kind in ("integer", "number"):
        for key in ("minimum", "maximum"):
            if fields.has(key):
                schema[key] = fields.number(key, 0, least=-1e15, most=1e15)
    elif kind == "string":
        for key, keyword in (("min_length", "minLength"), ("max_length", "maxLength")):
            if fields.has(key):
                schema[keyword] = fields.whole(key, 0, least=0, most=1_000_000)
        if pattern := _read_pattern(fields):
            # JSON Schema looks for a pattern anywhere; here the whole value has to fit.
            schema["pattern"] = f"^(?:{pattern.pattern})$"
    elif kind == "array":
        schema["items"] = {"type": fields.choice("items", _ITEMS, "string")}
        if fields.has("max_items"):
            schema["maxItems"] = fields.whole("max_items", 0, least=1, most=10_000)
    return pattern


def _read_pattern(fields: Fields) -> re.Pattern[str] | None:
    written = fields.text("pattern")
    try:
        return re.compile(written) if written else None
    except re.error as error:
        fields.complain(f"{fields.named('pattern')} is no regular expression: {error}.", "pattern")
        return None


def _read_enum(fields: Fields, kind: str, allowed: Any) -> list[Any]:
    values = list_of(allowed)
    if not values or not all(fits(value, kind) for value in values):
        fields.complain(f"{fields.named('enum')} must be a list of {kind} values.", "enum")
    return values


def _check_default(fields: Fields, kind: str, default: Any, schema: Json) -> None:
    if not fits(default, kind):
        fields.complain(f"{fields.named('default')} must be {kind}, not {shorten_value(default)}.", "default")
    elif "enum" in schema and default not in schema["enum"]:
        fields.complain(f"{fields.named('default')} is not one of the values of enum.", "default")


def fits(value: Any, kind: str) -> bool:
    """Return whether a value has the JSON type `kind`."""
    return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))


def input_schema(parameters: Mapping[str, Parameter]) -> Json:
    """Return the JSON Schema of the arguments; unknown ones are refused."""
    schema: Json = {"type": "object", "properties": {name: parameter.schema for name, parameter in parameters.items()}}
    if required := [name for name, parameter in parameters.items() if parameter.required]:
        schema["required"] = required
    return {**schema, "additionalProperties": False}


def accept_arguments(tool: str, parameters: Mapping[str, Parameter], arguments: Json) -> Json:
    """Return the arguments with the defaults filled in; null represents "not given" where the parameter may be missing.

    Raises:
        InvalidInput: lists everything that does not fit.
    """
    supplied = {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in parameters or parameters[name].required
    }
    schema = input_schema(parameters)
    supplied = numbers_from_texts(supplied, schema)
    check_arguments(tool, schema, supplied)
    for name, value in supplied.items():
        pattern = parameters[name].pattern
        # `$` of JSON Schema lets a line break through at the end.
        if pattern and not pattern.fullmatch(str(value)):
            raise InvalidInput(f"{name}: {shorten_value(value)} does not fit the pattern {pattern.pattern}")
    defaults = {name: parameter.default for name, parameter in parameters.items() if parameter.default is not None}
    return {**defaults, **supplied}


def placeholders(text: str) -> list[str]:
    """Return the parameters that a template names."""
    return [match["name"] for match in _PLACEHOLDER.finditer(text) if match["name"]]


def only_placeholder(text: str) -> str | None:
    """Return the parameter's name if the template is nothing but `{name}`: then its value keeps its type."""
    match = _PLACEHOLDER.fullmatch(text)
    return match["name"] if match else None


def as_text(value: Any) -> str:
    """Return a value as it is written inside a text: `true`, and `3` for 3.0."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def fill(template: str, arguments: Json, write: Callable[[Any], str] = as_text) -> str:
    """Return the template with each `{name}` replaced by what `write` makes of its value; every name must be given."""
    return _PLACEHOLDER.sub(
        lambda match: write(arguments[match["name"]]) if match["name"] else f"{{{match['literal']}}}", template
    )
