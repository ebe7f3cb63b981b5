"""What a tool is, its mark and its answer, who provides tools, and lenient parsing for several tools."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from localmcp.errors import InvalidInput, LocalMCPError
from localmcp.humanize import quoted
from localmcp.schemas import Json

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call: the structured value, and the text that a model reads."""

    value: Json
    text: str
    is_error: bool = False
    content: tuple[Json, ...] | None = None
    """The content blocks of a tool of another MCP server (text, images, ...), which then replace `text`."""
    unfinished: Json | None = None
    """A result `input_required` of another server: the client answers it by calling again (`ClientCall.input`)."""
    whole_text: bool = False
    """The text holds everything that the structured value does: a client may read only one of them."""


@dataclass(frozen=True, slots=True)
class ToolMark:
    """What describes a tool besides its method; as a decorator it marks a public method as a tool.

    `name` is how it is called on the wire: letters, digits, `_` and `-`, at most 40.
    """

    name: str
    title: str
    """A short label for people."""
    keywords: tuple[str, ...] = ()
    """Words under which `tool_search` finds it."""
    examples: tuple[str, ...] = ()
    """Phrases a person would say.

    `{p}` captures the argument p, `{p:singular}` in the singular, `{p=value}` represents a constant, `a|b` for
    alternatives. A phrase that is only `{p}` takes the whole sentence and counts only if the tool then finds
    something.
    """
    visible: bool = True
    """Listed by tools/list; others are found by `tool_search`."""
    read_only: bool = True
    """This and the next three are the annotations of MCP."""
    destructive: bool = False
    idempotent: bool | None = None
    """None = as `read_only`."""
    open_world: bool = False
    proxy: bool = False
    """It only runs another tool through the registry, which checks the rights for that tool."""
    stand_in: bool = False
    """It finds or runs the tools that are not listed, so it is not listed where all are."""
    accepts: Mapping[str, Callable[[str, Any], Any]] = field(default_factory=dict[str, Callable[[str, Any], Any]])
    """Parameter -> function(name, value) that turns a lenient value into a strict one (S0-6)."""
    says: Mapping[str, str] = field(default_factory=dict[str, str])
    """The contract's own words for a bad argument.

    `"texts"` for the field, `"texts[]"` for an item (`{index}` is filled in), `"texts required"` when it is missing.
    """
    text: Callable[[Any], str] | None = None
    """Makes the text block of the answer from the result; by default it is the result as compact JSON."""
    lean: Callable[[Any], Answer] | None = None
    """Makes the whole answer from the result where a language model reads it (`Scope.lean`)."""
    on_error: Callable[[LocalMCPError], Json] | None = None
    """Turns a deliberate error into a result (`{"success": False, ...}`)."""

    def __post_init__(self) -> None:
        if self.idempotent is None:
            object.__setattr__(self, "idempotent", self.read_only)

    def __call__(self, method: Method) -> Method:
        method.__tool__ = self  # pyright: ignore[reportFunctionMemberAccess]
        return method


tool = ToolMark
hidden_tool = partial(ToolMark, visible=False)
"""Marks a tool that only reads, and is not listed: `tool_search` finds it."""
hidden_change = partial(ToolMark, visible=False, read_only=False)
"""Marks a tool that changes something, and is not listed."""


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

    @abstractmethod
    def call(self, arguments: Json) -> Answer:
        """Check the arguments and run; raises InvalidInput, which lists every problem, and what the tool raises."""


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


# ---------------------------------------------------------------- lenient parsing


def integer_or_string(name: str, value: Any) -> Any:
    """S0-6: whole numbers may come as text or as 25.0; empty text means the default (None)."""
    if isinstance(value, bool):
        raise InvalidInput(f"{name} must be a number or string, got: bool")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return int(value.strip())
    except ValueError as error:
        raise InvalidInput(f"invalid {name} value: {quoted(value)}") from error


def at_most(most: int, name: str, value: Any) -> Any:
    """Read a limit as the originals did (S0-5, C0-2, C1-1): below 1 is the default (None), above `most` is `most`."""
    number = integer_or_string(name, value)
    if not isinstance(number, int):
        return number
    return min(number, most) if number > 0 else None


MOST_INTEGER = 2**63 - 1
