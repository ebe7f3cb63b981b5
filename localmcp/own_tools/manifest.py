"""One tool manifest: what every kind of it says, its parameters, and the tool that it makes."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from localmcp.errors import InvalidInput
from localmcp.files import Signature
from localmcp.schemas import Json, check_arguments, did_you_mean, shorten_value, values_from_texts
from localmcp.tools import Answer, Tool, ToolMark

if TYPE_CHECKING:
    from localmcp.own_tools.folder import ManifestFile, Problem

Filled = Annotated[str, Field(pattern=r"\S")]
"""Text that is not blank."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>[A-Za-z_]\w*)\}\}|\{(?P<name>[A-Za-z_]\w*)\}", re.ASCII)
"""`{name}` in an argument, a URL or a body; `{{name}}` represents `{name}` itself."""


class Table(BaseModel):
    """A table whose keys and types must be exactly these."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def mistake(message: str, *place: str) -> PydanticCustomError:
    """Return the error of a value that does not go together with others; `place` leads there from its table."""
    return PydanticCustomError("mistake", "{message}", {"message": message, "place": place})


class Parameter(Table):
    """One parameter of a manifest."""

    type: Literal["string", "integer", "number", "boolean", "array", "object"] = "string"
    description: str = ""
    enum: list[Any] | None = None
    default: Any = None
    required: bool = False
    minimum: int | float | None = None
    maximum: int | float | None = None
    min_length: int | None = Field(None, serialization_alias="minLength")
    max_length: int | None = Field(None, serialization_alias="maxLength")
    pattern: str = ""
    items: Literal["string", "integer", "number"] = "string"
    max_items: int | None = Field(None, serialization_alias="maxItems")
    allow_dash: bool = False
    """Whether a value may begin with `-` where a program could take it for an option."""

    @model_validator(mode="after")
    def _check(self) -> Parameter:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise mistake(f"no regular expression: {error}", "pattern") from error
        if self.default is not None:
            try:
                check_arguments("", {"properties": {"default": self.schema_of_value}}, {"default": self.default})
            except InvalidInput as error:
                raise mistake(error.message.splitlines()[1].removeprefix("- default: "), "default") from error
        return self

    @property
    def schema_of_value(self) -> Json:
        """JSON Schema of a value."""
        schema = self.model_dump(by_alias=True, exclude_defaults=True, exclude={"required", "allow_dash", "items"})
        if self.pattern:
            # JSON Schema looks for a pattern anywhere; here the whole value has to fit.
            schema["pattern"] = f"^(?:{self.pattern})$"
        if self.type == "array":
            schema["items"] = {"type": self.items}
        return {"type": self.type, **schema}


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


class Manifest(Table):
    """What every kind of manifest says that makes one tool."""

    types: ClassVar[tuple[str, ...]] = ("string", "integer", "number", "boolean", "array")
    only_reads: ClassVar[bool] = False
    """Whether this kind can do nothing but read, so that the manifest need not say it."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None = None
    title: str = ""
    description: Filled
    keywords: list[str] = []
    examples: list[str] = []
    read_only: bool = False
    destructive: bool | None = None
    idempotent: bool = False
    open_world: bool | None = None
    parameters: dict[str, Parameter] = {}

    @model_validator(mode="after")
    def _check_parameters(self) -> Manifest:
        for name, parameter in self.parameters.items():
            if not _NAME.fullmatch(name):
                raise mistake("no name for a parameter: letters, digits and _, at most 64", "parameters", name)
            if parameter.type not in self.types:
                raise mistake(f"{parameter.type} does not fit this kind of tool", "parameters", name, "type")
        return self

    @abstractmethod
    def run(self, tool: str, arguments: Json, here: ManifestFile) -> Answer:
        """Do it, with arguments that fit and defaults filled in.

        Raises LocalMCPError if it cannot be done; a program or server that answers "no" is an answer with `is_error`.
        """

    def check_template(self, key: str, template: str, *, always: bool, given: str = "") -> None:
        """Refuse placeholders that are no parameter, or (`always`) that a call may leave out, but for `given`."""
        for name in placeholders(template):
            if name not in self.parameters:
                hint = did_you_mean(name, self.parameters, f"Describe it in [parameters.{name}].")
                raise mistake(f"{{{name}}} is not a parameter. {hint}", key)
            parameter = self.parameters[name]
            if always and name != given and not parameter.required and parameter.default is None:
                raise mistake(f"{{{name}}} may be missing in a call; make it required, or give it a default", key)

    def warnings(self, here: ManifestFile) -> Iterator[Problem]:
        """Yield what is wrong on this machine, such as a program that is missing."""
        yield from ()

    def sources(self, _path: Path) -> dict[Path, Signature | None]:
        """Return the other files that it is made of."""
        return {}

    def tools(self, here: ManifestFile) -> list[Tool]:
        """Return its tools."""
        return [ManifestTool(self, here)]


class ManifestTool(Tool):
    """The tool of a manifest."""

    def __init__(self, manifest: Manifest, here: ManifestFile) -> None:
        self.manifest, self.here = manifest, here
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
            idempotent=safe or manifest.idempotent,
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
        parameters = self.manifest.parameters
        # Null is "not given" where the parameter may be missing.
        supplied = {
            name: value
            for name, value in arguments.items()
            if value is not None or name not in parameters or parameters[name].required
        }
        supplied = values_from_texts(supplied, self.input_schema)
        check_arguments(self.name, self.input_schema, supplied)
        for name, value in supplied.items():
            pattern = parameters[name].pattern
            # `$` of JSON Schema lets a line break through at the end.
            if pattern and not re.fullmatch(pattern, str(value)):
                raise InvalidInput(f"{name}: {shorten_value(value)} does not fit the pattern {pattern}")
        defaults = {name: p.default for name, p in parameters.items() if p.default is not None}
        return self.manifest.run(self.name, {**defaults, **supplied}, self.here)
