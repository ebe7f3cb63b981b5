"""The library: tools that an MCP server does not list, found by `tool_search` and run by `execute_tool` (S1).

from localmcp import ToolRegistry

registry = ToolRegistry()
registry.register_tool(send_email, "email", "smtp")      # a function with type hints and a docstring
registry.attach(server)                                  # an `mcp` server: adds exactly the two tools
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from localmcp.errors import InvalidInput, ToolNotFound, UnknownTool
from localmcp.models import LazyEmbedder, open_embedder
from localmcp.models.language_model import describe_function
from localmcp.own_tools.python import FunctionTool, as_answer, hidden_mark
from localmcp.schemas import Json, check_arguments
from localmcp.tool_search.discovery import EXECUTE_TOOL as EXECUTE_TOOL
from localmcp.tool_search.discovery import TOOL_SEARCH as TOOL_SEARCH
from localmcp.tool_search.discovery import Discovery
from localmcp.tool_search.ranking import Profile, ToolFinder
from localmcp.tool_search.words import ToolMetadata
from localmcp.tools import Answer, Provider, Registry, Tool, current_scope, use_scope

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from mcp.server.lowlevel.server import Server

Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a client needs it (S1-2)."""

    name: str
    description: str = ""
    input_schema: Json = field(default_factory=lambda: {"type": "object", "properties": {}})
    keywords: tuple[str, ...] = ()


class ToolProvider(Protocol):
    """A source of tools (S1-4)."""

    def list_tools(self) -> Iterable[ToolMetadata | ToolDefinition]:
        """Return name, description and keywords of every tool."""
        ...

    def get_tool(self, name: str) -> ToolDefinition | None:
        """Return the definition of a tool; None when the name is not mine."""
        ...

    def call_tool(self, name: str, arguments: Json) -> Any:
        """Run it; text, any JSON, an `Answer` or a result of the `mcp` package. May be `async`."""
        ...


class ForeignTool(Tool):
    """A tool that somebody else defined and runs; its schema may be fetched only when it is needed."""

    def __init__(
        self, listed: ToolMetadata | ToolDefinition, schema: Callable[[], Json], run: Callable[[Json], Any]
    ) -> None:
        self.mark = hidden_mark(listed.name, tuple(listed.keywords))
        self.description = listed.description
        self._schema, self._run = schema, run

    @property
    def input_schema(self) -> Json:
        return self._schema()

    def call(self, arguments: Json) -> Answer:
        return as_answer(self._run(arguments))


class AdaptedProvider:
    """A `ToolProvider` as the registry's own protocol wants it."""

    def __init__(self, provider: ToolProvider) -> None:
        self.provider = provider
        self.name = type(provider).__name__

    def tools(self) -> list[Tool]:
        """Return every tool it lists."""
        return [self._tool(listed) for listed in self.provider.list_tools()]

    def find(self, name: str) -> Tool | None:
        """Return the tool of that name, if it knows one."""
        definition = self.provider.get_tool(name)
        return None if definition is None else self._tool(definition)

    def _tool(self, listed: ToolMetadata | ToolDefinition) -> Tool:
        def schema() -> Json:
            definition = self.provider.get_tool(listed.name)
            if definition is None:
                raise ToolNotFound(listed.name)
            return definition.input_schema

        return ForeignTool(listed, schema, lambda arguments: self.provider.call_tool(listed.name, arguments))


def adapt(provider: Any) -> Provider:
    """Return a provider in either form as the registry's own; raises InvalidInput for what is neither."""
    if isinstance(provider, Registry):
        return provider
    if all(callable(getattr(provider, name, None)) for name in ("list_tools", "get_tool", "call_tool")):
        return AdaptedProvider(cast(ToolProvider, provider))
    hint = "It needs list_tools, get_tool and call_tool."
    raise InvalidInput(f"{type(provider).__name__} is no provider of tools.", hint=hint)


class ToolRegistry(Registry):
    """Tools that can be searched and called, and the sources they come from. Thread-safe.

    Registered tools come first, then global providers, then those of the request; of two tools with one name the
    first is called and listed. A registry is a provider itself (S1-4). An unknown name raises `ToolNotFound`, which
    names the nearest; what a tool raises passes through.
    """

    def __init__(self, name: str = "registry", *, model: str | None = None) -> None:
        """With an embedding model (`default` is the one that localmcp brings) tools are also found by meaning; None
        compares words only, and loads nothing. `name` is its own as a provider.
        """
        super().__init__()
        self.name = name
        self.embedder = LazyEmbedder(lambda: open_embedder(model)) if model else None
        """The model; it is loaded by the first search, or when the registry is attached to a server."""
        self.discovery = Discovery(self, ToolFinder(self.embedder))

    def register_tool(self, tool: Any, *more: Handler | str) -> None:
        """Add a tool that is not listed, only found; an earlier one of that name is replaced (S1-2).

        `tool` is a function whose type hints and docstring say everything; or a definition, `ToolDefinition` or the
        `Tool` of the `mcp` package. After a definition comes the function that runs it, which takes the parameters by
        name and may be `async`; then words under which the tool is found. Raises InvalidInput; says what is missing.
        """
        handler = next((part for part in more if callable(part)), None)
        keywords = tuple(part for part in more if isinstance(part, str))
        if callable(tool):
            self.add(FunctionTool(tool, keywords=keywords))
            return
        keywords = (*getattr(tool, "keywords", ()), *keywords)
        definition = ToolDefinition(tool.name, tool.description or "", tool.input_schema, keywords)
        if handler is None:
            raise InvalidInput(f"{definition.name} needs a handler: a function that runs it.")

        def run(arguments: Json) -> Any:
            check_arguments(definition.name, definition.input_schema, arguments)
            return handler(**arguments)

        self.add(ForeignTool(definition, lambda: definition.input_schema, run))

    def add_provider(self, provider: Any) -> None:
        """Add a source of tools for every request (S1-5); raises InvalidInput for no provider, or for itself."""
        if provider is self:
            raise InvalidInput("A registry cannot be its own provider.")
        super().add_provider(adapt(provider))

    def remove_provider(self, provider: Any) -> bool:
        """Take a source away; False if it was not there."""
        adapted = (own for own in self._providers if getattr(own, "provider", None) is provider)
        return super().remove_provider(next(adapted, provider))

    def search(self, query: str = "", max_results: int = 0, *, profile: Profile = "best") -> list[Json]:
        """Return the tools that fit, best first: name, description, score, input_schema.

        An empty query lists all; `max_results` of 0 and less do not cut; `classic` scores by the original's ladder
        alone (S1-9).
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

    def unknown(self, name: str) -> UnknownTool:
        return ToolNotFound(name, hint=super().unknown(name).hint)

    def attach(self, server: MCPServer[Any] | Server[Any]) -> None:
        """Add exactly `tool_search` and `execute_tool` to a server of the `mcp` package; a second time does nothing.

        A client that calls one of the hidden tools by its own name is answered too. Raises InvalidInput if it is no
        such server, or another registry is attached to it.
        """
        from localmcp.server.mcp import attach

        attach(self, self.discovery, server)
        if self.embedder is not None:
            self.embedder.start_loading()


@contextmanager
def with_request_providers(*providers: Any) -> Generator[None]:
    """Tools that exist inside this block only, in this request and what it starts (S1-6); nested blocks add up.

        with with_request_providers(UserTools(user_id)):
            await app(scope, receive, send)

    Raises InvalidInput if one of them is no provider.
    """
    scope = current_scope()
    with use_scope(replace(scope, providers=(*scope.providers, *map(adapt, providers)))):
        yield
