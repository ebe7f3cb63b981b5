"""The library: tools that an MCP server does not list, found by `tool_search` and run by `execute_tool` (S1).

from localmcp import ToolRegistry

registry = ToolRegistry()
registry.register_tool(send_email, "email", "smtp")      # a function with type hints and a docstring
registry.attach(server)                                  # an `mcp` server: adds exactly the two tools
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from localmcp.errors import InvalidInput, ToolNotFound, UnknownTool
from localmcp.own_tools.functions import FunctionTool, as_answer, hidden_mark, run_coroutine
from localmcp.schemas import Json, check_arguments
from localmcp.tool_search.discovery import EXECUTE_TOOL, TOOL_SEARCH, Discovery, Profile, ToolHit
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tool_search.words import ToolMetadata
from localmcp.tools import Answer, Provider, Registry, Scope, Tool, current_scope, use_scope

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from mcp.server.lowlevel.server import Server

Handler = Callable[..., Any]

_TYPES: dict[object, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object",
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "list": "array",
}  # fmt: skip

# ---------------------------------------------------------------- definitions


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
        """Run it; text, any JSON, an `Answer` or a result of the `mcp` package. What it raises ends the call."""
        ...


def metadata_of(source: Any) -> ToolMetadata:
    """Return what a provider lists, as one record."""
    name = _get(source, "name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"A tool needs a name; got {source!r}.")
    return ToolMetadata(name, _get(source, "description") or "", tuple(_get(source, "keywords", "tags") or ()))


def definition_of(source: Any, keywords: Sequence[str] = ()) -> ToolDefinition:
    """Return a definition in any of its forms, as one record: ours, a mapping, or the `Tool` of the `mcp` package."""
    metadata = metadata_of(source)
    schema = _get(source, "input_schema", "inputSchema")
    if schema is None:
        schema = schema_of(_get(source, "parameters") or {})
    return ToolDefinition(metadata.name, metadata.description, schema, (*metadata.keywords, *keywords))


def _get(source: Any, *names: str) -> Any:
    """Return the first of these keys or attributes that is there."""
    table = cast(Json, source) if isinstance(source, Mapping) else {name: getattr(source, name, None) for name in names}
    return next((table[name] for name in names if table.get(name) is not None), None)


def schema_of(parameters: Mapping[str, Any]) -> Json:
    """Return the JSON Schema of parameters in short form.

    Args:
        parameters: a schema already (`type: object`), or name -> a type (`str`, `"string"`), or name -> a schema in
            which `required: True` is allowed.
    """
    if parameters.get("type") == "object":
        return dict(parameters)
    properties: dict[str, Json] = {}
    required: list[str] = []
    for name, written in parameters.items():
        spec = dict(cast(Json, written)) if isinstance(written, Mapping) else {"type": written}
        if isinstance(spec.get("required"), bool):
            required += [name] * spec.pop("required")
        kind = spec.get("type", "string")
        # A list of types is JSON Schema already.
        properties[name] = {**spec, "type": _TYPES.get(kind, kind) if isinstance(kind, str | type) else kind}
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


# ---------------------------------------------------------------- tools and providers


class DefinedTool(Tool):
    """A definition with the function that runs it."""

    def __init__(self, definition: ToolDefinition, handler: Handler) -> None:
        """`handler` takes the tool's parameters by name, or one mapping with all of them.

        Raises:
            InvalidInput: it takes neither.
        """
        self.definition = definition
        self.mark = hidden_mark(definition.name, definition.keywords)
        self.description = definition.description
        self._handler = handler
        properties, signature = definition.input_schema.get("properties", {}), inspect.signature(handler)
        names = list(signature.parameters)
        try:
            signature.bind(**dict.fromkeys(properties))
            self._takes_names = True
        except TypeError:
            self._takes_names = False
            if len(names) != 1 or names[0] in properties:
                raise InvalidInput(
                    f"The handler of {definition.name} takes ({', '.join(names)}), but the tool has "
                    f"({', '.join(properties)}).",
                    hint="Let it take the tool's parameters by name, or one mapping with all of them.",
                ) from None

    @property
    def input_schema(self) -> Json:
        return self.definition.input_schema

    def call(self, arguments: Json) -> Answer:
        check_arguments(self.name, self.input_schema, arguments)
        return as_answer(self._handler(**arguments) if self._takes_names else self._handler(arguments))


class ProvidedTool(Tool):
    """A tool of somebody's provider; its definition is fetched only when its schema is needed."""

    def __init__(self, provider: ToolProvider, metadata: ToolMetadata) -> None:
        self._provider = provider
        self.mark = hidden_mark(metadata.name, metadata.keywords)
        self.description = metadata.description

    @property
    def input_schema(self) -> Json:
        definition = _settled(self._provider.get_tool(self.name))
        if definition is None:
            raise ToolNotFound(self.name)
        return definition_of(definition).input_schema

    def call(self, arguments: Json) -> Answer:
        return as_answer(self._provider.call_tool(self.name, arguments))


def _settled(value: Any) -> Any:
    return run_coroutine(value) if inspect.iscoroutine(value) else value


class AdaptedProvider:
    """A `ToolProvider` as the registry's own protocol wants it."""

    def __init__(self, provider: ToolProvider) -> None:
        self.provider = provider
        self.name = str(getattr(provider, "name", type(provider).__name__))

    def tools(self) -> list[Tool]:
        listed = cast("Iterable[Any]", _settled(self.provider.list_tools()) or ())
        return [ProvidedTool(self.provider, metadata_of(item)) for item in listed]

    def find(self, name: str) -> Tool | None:
        """Return the tool if the provider defines or lists it, even if its definition cannot be fetched."""
        try:
            defined = _settled(self.provider.get_tool(name))
        except Exception:
            defined = None
        if defined is None:
            return next((tool for tool in self.tools() if tool.name == name), None)
        return ProvidedTool(self.provider, metadata_of(defined))


def adapt(provider: Any) -> Provider:
    """Return a provider in either form as the registry's own.

    Raises:
        InvalidInput: it is neither.
    """
    if callable(getattr(provider, "tools", None)) and callable(getattr(provider, "find", None)):
        return cast(Provider, provider)
    if all(callable(getattr(provider, name, None)) for name in ("list_tools", "get_tool", "call_tool")):
        return AdaptedProvider(cast(ToolProvider, provider))
    raise InvalidInput(
        f"{type(provider).__name__} is no provider of tools.", hint="It needs list_tools, get_tool and call_tool."
    )


# ---------------------------------------------------------------- the registry


class ToolRegistry(Registry):
    """Tools that can be searched and called, and the sources they come from. Thread-safe.

    Registered tools come first, then global providers, then those of the request; of two tools with one name the
    first is called and listed. A registry is a provider itself (S1-4). An unknown name raises `ToolNotFound`, which
    names the nearest; what a tool raises passes through.
    """

    def __init__(self, name: str = "registry", *, model: str | None = None) -> None:
        """
        Args:
            name: as a provider.
            model: an embedding model (`default` is the one that localmcp brings), so that tools are also found by
                meaning; None compares words only, and loads nothing.
        """
        from localmcp.models import LazyEmbedder, open_embedder

        super().__init__()
        self.name = name
        self.embedder = LazyEmbedder(lambda: open_embedder(model)) if model else None
        """The model; it is loaded by the first search, or when the registry is attached to a server."""
        self.discovery = Discovery(self, ToolFinder(self.embedder))
        self._attached: weakref.WeakSet[Any] = weakref.WeakSet()

    # ------------------------------------------------------------ tools and providers

    def register_tool(
        self,
        tool: Any,
        handler: Handler | str | None = None,
        *keywords: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a tool that is not listed, only found; an earlier one of that name is replaced (S1-2).

        Args:
            tool: a function whose type hints and docstring say everything; or a definition: `ToolDefinition`, a
                mapping with name, description and parameters or input_schema, the `Tool` of the `mcp` package; or
                just a name, beside `description` and `parameters`.
            handler: what runs a definition; it takes the parameters by name, or one mapping. May be `async`.
            keywords: words under which the tool is found.
            description: for a name or a function.
            parameters: for a name, as `schema_of` takes them.

        Raises:
            InvalidInput: the tool cannot be described or run; says what is missing.
        """
        if isinstance(handler, str):
            # register_tool(function, "keyword", ...)
            handler, keywords = None, (handler, *keywords)
        if isinstance(tool, str):
            tool = ToolDefinition(tool, description or "", schema_of(parameters or {}))
        elif handler is None and callable(tool):
            self.add(FunctionTool(tool, description=description, keywords=keywords))
            return
        definition = definition_of(tool, keywords)
        if not callable(handler):
            raise InvalidInput(f"{definition.name} needs a handler: a function that runs it.")
        self.add(DefinedTool(definition, handler))

    def unregister_tool(self, name: str) -> bool:
        """Take a registered tool away; False if there was none."""
        return self.remove(name)

    def add_provider(self, provider: Any) -> None:
        """Add a source of tools for every request (S1-5).

        Raises:
            InvalidInput: it is no provider, or the registry itself.
        """
        if provider is self:
            raise InvalidInput("A registry cannot be its own provider.")
        super().add_provider(adapt(provider))

    def remove_provider(self, provider: Any) -> bool:
        """Take a source away; False if it was not there."""
        known: Any = provider
        for adapted in self._providers:
            if provider is getattr(adapted, "provider", None):
                known = adapted
        return super().remove_provider(known)

    # ------------------------------------------------------------ finding and calling

    def search(self, query: str = "", max_results: int = 0, *, profile: Profile = "best") -> list[ToolHit]:
        """Return the tools that fit, best first: name, description, score, input_schema.

        Args:
            query: what the tool should do; empty lists all.
            max_results: 0 and less do not cut.
            profile: `classic` scores by the original's ladder alone (S1-9).
        """
        return self.discovery.search(query, max_results, profile=profile)

    def list_tools(self) -> list[ToolMetadata]:
        """Return name, description and keywords of every tool, in the order of their sources."""
        return [ToolMetadata(tool.name, tool.description, tool.mark.keywords) for tool in self.tools()]

    def get_handler(self, name: str) -> Handler:
        """Return what runs a tool: a function of its arguments as one mapping (S0-27)."""
        return self.get(name).call

    def get_schemas(self) -> list[Json]:
        """Return every tool in the form that Ollama and OpenAI-compatible models take (S0-27)."""
        from localmcp.models.language_model import describe_function

        return [describe_function(tool) for tool in self.tools()]

    def get_tool_names(self) -> list[str]:
        """Return the names of all tools, in the order of their sources."""
        return [tool.name for tool in self.tools()]

    def get_tool(self, name: str) -> ToolDefinition:
        """Return the definition of a tool."""
        tool = self.get(name)
        return ToolDefinition(tool.name, tool.description, tool.input_schema, tool.mark.keywords)

    def call_tool(self, name: str, arguments: Json | None = None) -> Answer:
        """Run a tool; None represents no arguments."""
        return self.call(name, arguments)

    def call(self, name: str, arguments: Json | None = None, scope: Scope | None = None) -> Answer:
        """Run a tool; providers are asked in turn, also for what they do not list, until one knows it (S1-4)."""
        try:
            return super().call(name, arguments, scope)
        except ToolNotFound:
            with use_scope(scope or current_scope()) as inside, self._asking_providers() as providers:
                for provider in providers if inside.names(name) else ():
                    if not isinstance(provider, AdaptedProvider):
                        continue
                    tool = ProvidedTool(provider.provider, ToolMetadata(name))
                    if inside.allows(tool.mark):
                        with suppress(ToolNotFound):
                            return tool.call(arguments or {})
            raise

    def unknown(self, name: str) -> UnknownTool:
        return ToolNotFound(name, hint=super().unknown(name).hint)

    # ------------------------------------------------------------ serving

    def attach(self, server: MCPServer[Any] | Server[Any]) -> None:
        """Add exactly `tool_search` and `execute_tool` to a server of the `mcp` package; a second time does nothing.

        A client that calls one of the hidden tools by its own name is answered too.

        Raises:
            InvalidInput: it is no such server, or another registry is attached to it.
        """
        from localmcp.server.attachment import attach

        with self._lock:
            if server in self._attached:
                return
            attach(self, self.discovery, server)
            self._attached.add(server)
        if self.embedder is not None:
            self.embedder.start_loading()


@contextmanager
def with_request_providers(*providers: Any) -> Generator[None]:
    """Tools that exist inside this block only, in this request and what it starts (S1-6); nested blocks add up.

        with with_request_providers(UserTools(user_id)):
            await app(scope, receive, send)

    Raises:
        InvalidInput: one of them is no provider.
    """
    scope = current_scope()
    with use_scope(replace(scope, providers=(*scope.providers, *map(adapt, providers)))):
        yield


__all__ = [
    "EXECUTE_TOOL",
    "TOOL_SEARCH",
    "ToolDefinition",
    "ToolMetadata",
    "ToolNotFound",
    "ToolProvider",
    "ToolRegistry",
    "with_request_providers",
]
