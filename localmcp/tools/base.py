"""What a tool is, what it answers, and who provides tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from localmcp.schemas import Json
from localmcp.tools.mark import ToolMark


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call: the structured value, and the text that a model reads."""

    value: Json
    text: str
    is_error: bool = False
    content: tuple[Json, ...] | None = None
    """The content blocks of a tool of another MCP server (text, images, ...), which then replace `text`."""
    unfinished: Json | None = None
    """A result `input_required` of another server: the client answers it by calling again (`client_input`)."""
    whole_text: bool = False
    """The text holds everything that the structured value does: a client may read only one of them."""


class Tool(ABC):
    """Anything that can be listed, searched and called."""

    mark: ToolMark
    description: str
    described: object = None
    """The tool as the search of tools sees it.

    A table of weak references would take a third of a search of 10,000.
    """
    notice: str = ""
    """What a search adds, such as a warning."""
    addition: Callable[[], str] | None = None
    """Returns what each listing adds to the description; None adds nothing."""

    @property
    def listed_description(self) -> str:
        """The description with its addition."""
        more = self.addition() if self.addition is not None else ""
        return f"{self.description} {more}" if more else self.description

    @property
    def name(self) -> str:
        return self.mark.name

    @property
    @abstractmethod
    def input_schema(self) -> Json:
        """JSON Schema (2020-12) of the arguments; the root is an object that refuses unknown keys."""

    @property
    def output_schema(self) -> Json | None:
        """JSON Schema of the structured result, an object."""
        return None

    @abstractmethod
    def call(self, arguments: Json) -> Answer:
        """Check the arguments and run.

        Raises:
            InvalidInput: the arguments do not fit; the message lists every problem.
            LocalMCPError: what the tool itself raises.
        """


class Provider(Protocol):
    """A source of tools."""

    @property
    def name(self) -> str:
        """Its name for people and keys: `commands`, `queries`, `mcp:github`."""
        ...

    def tools(self) -> Iterable[Tool]:
        """Return every tool it offers to the current scope; if it raises, searches skip it."""
        ...

    def find(self, name: str) -> Tool | None:
        """The tool of that name; None = not mine (a miss). Anything raised is a real error and stops the call."""
        ...
