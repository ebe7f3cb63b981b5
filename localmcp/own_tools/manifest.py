"""One tool manifest: what every kind of it says, its parameters, and the tool that it makes."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from localmcp.errors import InvalidInput
from localmcp.own_tools.problems import Mistake, Place
from localmcp.own_tools.tables import Filled, Table, unknown_choice, unknown_key
from localmcp.schemas import Json, check_arguments, did_you_mean, numbers_from_texts, shorten_value
from localmcp.tools import Answer, Tool, ToolMark

if TYPE_CHECKING:
    from localmcp.own_tools.command import RunningPrograms

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
}  # fmt: skip
_NUMBERS, _ALWAYS = ("minimum", "maximum"), ("type", "description", "enum", "default", "required")
_LIMITS = {
    "integer": _NUMBERS, "number": _NUMBERS, "string": ("min_length", "max_length", "pattern"),
    "array": ("items", "max_items"),
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>[A-Za-z_]\w*)\}\}|\{(?P<name>[A-Za-z_]\w*)\}", re.ASCII)
"""`{name}` in an argument, a URL or a body; `{{name}}` represents `{name}` itself."""


# ---------------------------------------------------------------- parameters


class Parameter(Table):
    """One parameter of a manifest."""

    type: Literal["string", "integer", "number", "boolean", "array", "object"] = "string"
    description: str = ""
    enum: list[Any] | None = None
    default: Any = None
    required: bool = False
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str = ""
    items: Literal["string", "integer", "number"] = "string"
    max_items: int | None = None
    allow_dash: bool = False
    """Whether a value may begin with `-` where a program could take it for an option."""

    @property
    def always_there(self) -> bool:
        """Whether a call has a value for it in any case."""
        return self.required or self.default is not None

    @property
    def schema_of_value(self) -> Json:
        """JSON Schema of a value."""
        schema: Json = {
            "description": self.description or None,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "minLength": self.min_length,
            "maxLength": self.max_length,
            # JSON Schema looks for a pattern anywhere; here the whole value has to fit.
            "pattern": f"^(?:{self.pattern})$" if self.pattern else None,
            "items": {"type": self.items} if self.type == "array" else None,
            "maxItems": self.max_items,
            "enum": self.enum,
            "default": self.default,
        }
        return {"type": self.type, **{key: value for key, value in schema.items() if value is not None}}

    def mistakes(self, place: Place, types: tuple[str, ...], *, dashes: bool) -> Iterator[Mistake]:
        """Yield what does not go together. `types`: those that fit the kind of manifest."""
        named = ".".join(place)
        if self.type not in types:
            yield unknown_choice((*place, "type"), self.type, types)
        known = [*_ALWAYS, *_LIMITS.get(self.type, ()), *(["allow_dash"] if dashes else [])]
        for key in self.model_fields_set:
            if key not in known:
                yield unknown_key((*place, key), known)
        try:
            re.compile(self.pattern)
        except re.error as error:
            yield Mistake((*place, "pattern"), f"{named}.pattern is no regular expression: {error}.")
        if self.enum is not None and not (self.enum and all(map(self._fits, self.enum))):
            yield Mistake((*place, "enum"), f"{named}.enum must be a list of {self.type} values.")
        if self.default is None:
            return
        if not self._fits(self.default):
            says = f"{named}.default must be {self.type}, not {shorten_value(self.default)}."
            yield Mistake((*place, "default"), says)
        elif self.enum is not None and self.default not in self.enum:
            yield Mistake((*place, "default"), f"{named}.default is not one of the values of enum.")
        if self.required:
            yield Mistake((*place, "required"), f"{named}.required: a parameter with a default is never missing.")

    def _fits(self, value: Any) -> bool:
        return isinstance(value, _TYPES[self.type]) and (self.type == "boolean" or not isinstance(value, bool))


# ---------------------------------------------------------------- templates


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
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def fill(template: str, arguments: Json, write: Callable[[Any], str] = as_text) -> str:
    """Return the template with each `{name}` replaced by what `write` makes of its value; every name must be given."""
    return _PLACEHOLDER.sub(
        lambda match: write(arguments[match["name"]]) if match["name"] else f"{{{match['literal']}}}", template
    )


# ---------------------------------------------------------------- the manifest


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a manifest's tool runs."""

    path: Path
    """The manifest."""
    database: Path
    """The localmcp file in use."""
    running: RunningPrograms


class Manifest(Table):
    """What every kind of manifest says."""

    provider: ClassVar[str]
    types: ClassVar[tuple[str, ...]] = ("string", "integer", "number", "boolean", "array")
    """The types of parameters that fit this kind."""
    only_reads: ClassVar[bool] = False
    """Whether this kind can do nothing but read, so that the manifest need not say it."""

    name: str = ""
    title: str = ""
    description: Filled
    keywords: list[str] = []
    examples: list[str] = []
    read_only: bool = False
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    parameters: dict[str, Parameter] = {}

    @abstractmethod
    def run(self, tool: str, arguments: Json, here: Surroundings) -> Answer:
        """Do it, with arguments that fit and defaults filled in.

        Raises:
            LocalMCPError: it could not be done; a program or server that answers "no" is an answer with `is_error`.
        """

    def mistakes(self) -> Iterator[Mistake]:
        """Yield what does not go together in the manifest."""
        if self.only_reads and "read_only" in self.model_fields_set:
            yield unknown_key(("read_only",), [key for key in type(self).model_fields if key != "read_only"])
        for name, parameter in self.parameters.items():
            if not _NAME.fullmatch(name):
                says = f"'{name}' is no name for a parameter: letters, digits and _, at most 64."
                yield Mistake(("parameters", name), says)
            yield from parameter.mistakes(("parameters", name), self.types, dashes=self.provider == "commands")
        for phrase in self.examples:
            # A slot may carry more: {name:singular}, {name=value}.
            for slot in re.findall(r"\{(\w+)[^}]*\}", phrase):
                if slot not in self.parameters:
                    yield Mistake(("examples",), f"The example '{phrase}' names '{slot}', which is no parameter.")

    def unfillable(self, key: str, template: str, *, always: bool, given: str = "") -> Iterator[Mistake]:
        """Yield the placeholders of a template that are no parameter, or (`always`) that a call may leave out.

        `given` is a parameter that a call is known to give.
        """
        for name in placeholders(template):
            if name not in self.parameters:
                hint = did_you_mean(name, self.parameters, f"Describe it in [parameters.{name}].")
                yield Mistake((key,), f"{{{name}}} in {key} is not a parameter.", hint)
            elif always and name != given and not self.parameters[name].always_there:
                hint = f"Make {name} required, or give it a default."
                yield Mistake((key,), f"{{{name}}} in {key} may be missing in a call.", hint)

    def warnings(self, here: Surroundings) -> Iterator[Mistake]:
        """Yield what is wrong on this machine, such as a program that is missing."""
        yield from ()

    def is_offered(self, here: Surroundings) -> bool:
        """Return whether the caller may see the tool."""
        return True


class ManifestTool(Tool):
    """The tool of a manifest."""

    def __init__(self, manifest: Manifest, here: Surroundings) -> None:
        self.manifest, self.here, self.path = manifest, here, here.path
        self.description = manifest.description
        name = manifest.name or here.path.stem
        safe = manifest.read_only or manifest.only_reads
        # The annotations default as MCP's do: not read-only, destructive, not idempotent, open world.
        self.mark = ToolMark(
            name=name,
            title=manifest.title or name.replace("_", " ").replace("-", " ").capitalize(),
            keywords=tuple(manifest.keywords),
            examples=tuple(manifest.examples),
            visible=False,
            read_only=safe,
            destructive=manifest.destructive is not False and not safe,
            idempotent=safe if manifest.idempotent is None else manifest.idempotent,
            open_world=not manifest.only_reads if manifest.open_world is None else manifest.open_world,
        )

    @cached_property
    def input_schema(self) -> Json:  # pyright: ignore[reportIncompatibleMethodOverride]
        parameters = self.manifest.parameters
        schema: Json = {"type": "object", "properties": {name: p.schema_of_value for name, p in parameters.items()}}
        if required := [name for name, parameter in parameters.items() if parameter.required]:
            schema["required"] = required
        return {**schema, "additionalProperties": False}

    def call(self, arguments: Json) -> Answer:
        return self.manifest.run(self.name, self._accepted(arguments), self.here)

    def _accepted(self, arguments: Json) -> Json:
        """Return the arguments with the defaults filled in; null is "not given" where the parameter may be missing.

        Raises:
            InvalidInput: lists everything that does not fit.
        """
        parameters = self.manifest.parameters
        supplied = {
            name: value
            for name, value in arguments.items()
            if value is not None or name not in parameters or parameters[name].required
        }
        supplied = numbers_from_texts(supplied, self.input_schema)
        check_arguments(self.name, self.input_schema, supplied)
        for name, value in supplied.items():
            pattern = parameters[name].pattern
            # `$` of JSON Schema lets a line break through at the end.
            if pattern and not re.fullmatch(pattern, str(value)):
                raise InvalidInput(f"{name}: {shorten_value(value)} does not fit the pattern {pattern}")
        return {**{name: p.default for name, p in parameters.items() if p.default is not None}, **supplied}
