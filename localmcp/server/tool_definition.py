"""Definitions of tools for the library, in all accepted forms, and the schema of parameters in short form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from localmcp.errors import InvalidInput
from localmcp.schemas import Json
from localmcp.tool_search.discovery import ToolMetadata

_TYPES: dict[object, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object",
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a client needs it (S1-2)."""

    name: str
    description: str = ""
    input_schema: Json = field(default_factory=lambda: {"type": "object", "properties": {}})
    keywords: tuple[str, ...] = ()

    @property
    def inputSchema(self) -> Json:
        """The other spelling (C1-2)."""
        return self.input_schema


class ToolProvider(Protocol):
    """A source of tools (S1-4). Any of the three methods may be `async`."""

    def list_tools(self) -> Any:
        """`ToolMetadata` of every tool, or mappings or objects with name, description, keywords."""
        ...

    def get_tool(self, name: str) -> Any:
        """`ToolDefinition`, a mapping, or the `Tool` of the `mcp` package; None when the name is not mine."""
        ...

    def call_tool(self, name: str, arguments: Json) -> Any:
        """Run it; text, any JSON, an `Answer` or a result of the `mcp` package.

        Raises:
            ToolNotFound: the name is not mine; the next provider is asked. Anything else ends the call.
        """
        ...


def _get(source: Any, *names: str) -> Any:
    """Return the first of these keys or attributes that is there."""
    for name in names:
        value = cast(Json, source).get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        if value is not None:
            return value
    return None


def metadata_of(source: Any) -> ToolMetadata:
    """Return what a provider lists, as one record."""
    name = source if isinstance(source, str) else _get(source, "name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"A tool needs a name; got {source!r}.")
    if isinstance(source, str):
        return ToolMetadata(name)
    return ToolMetadata(name, _get(source, "description") or "", tuple(_get(source, "keywords", "tags") or ()))


def definition_of(source: Any, keywords: Sequence[str] = ()) -> ToolDefinition:
    """Return a definition in any of its forms, as one record: ours, a mapping, or the `Tool` of the `mcp` package."""
    metadata = metadata_of(source)
    schema = _get(source, "input_schema", "inputSchema")
    if schema is None:
        schema = schema_of(_get(source, "parameters") or {})
    return ToolDefinition(metadata.name, metadata.description, schema, (*metadata.keywords, *keywords))


def schema_of(parameters: Mapping[str, Any]) -> Json:
    """Return the JSON Schema of parameters in short form.

    Args:
        parameters: a schema already (`type: object`), or name -> a type (`str`, `"string"`), or name -> a schema in
            which `required: True` is allowed.
    """
    if parameters.get("type") == "object":
        return dict(parameters)
    properties: Json = {}
    required: list[str] = []
    for name, written in parameters.items():
        spec: Json = dict(cast(Json, written)) if isinstance(written, Mapping) else {"type": written}
        if spec.get("required") is True:
            required.append(name)
        if not isinstance(spec.get("required"), list):
            spec.pop("required", None)
        kind = spec.get("type", "string")
        # A list of types is JSON Schema already.
        spec["type"] = _TYPES.get(kind, kind) if isinstance(kind, str | type) else kind
        properties[name] = spec
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema
