"""What a tool is, its mark and its answer, who provides tools, who calls and what they may reach, and profiles."""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from localmcp.config import config_directory
from localmcp.errors import ConfigurationError, InvalidInput, LocalMCPError
from localmcp.humanize import choices, quoted
from localmcp.schemas import Json, one_or_more

if TYPE_CHECKING:
    from concurrent.futures import Future

Method = TypeVar("Method", bound=Callable[..., Any])
Value = TypeVar("Value")


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
    """Phrases a person would say: `{p}` captures the argument p, `{p:singular}` in the singular, `{p=value}` represents
    a constant, `a|b` for alternatives. A phrase that is only `{p}` takes the whole sentence and counts only if the tool
    then finds something."""
    visible: bool = True
    """Listed by tools/list; others are found by `tool_search`."""
    read_only: bool = True
    """This and the next three are the annotations of MCP."""
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    proxy: bool = False
    """It only runs another tool through the registry, which checks the rights for that tool."""
    stand_in: bool = False
    """It finds or runs the tools that are not listed, so it is not listed where all are."""
    accepts: Mapping[str, Callable[[str, Any], Any]] = field(default_factory=dict[str, Callable[[str, Any], Any]])
    """Parameter -> function(name, value) that turns a lenient value into a strict one (S0-6)."""
    says: Mapping[str, str] = field(default_factory=dict[str, str])
    """The contract's own words for a bad argument: `"texts"` for the field, `"texts[]"` for an item (`{index}` is
    filled in), `"texts required"` when it is missing."""
    text: Callable[[Any], str] | None = None
    """Makes the text block of the answer from the result; by default it is the result as compact JSON."""
    lean: Callable[[Any], Answer] | None = None
    """Makes the whole answer from the result where a language model reads it (`Scope.lean`)."""
    on_error: Callable[[LocalMCPError], Json] | None = None
    """Turns a deliberate error into a result (`{"success": False, ...}`)."""

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
    """The tool as the search of tools sees it; a table of weak references would take a third of a search of 10,000."""
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
        """How it is called on the wire."""
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

    name: str
    """For people and keys: `mcp:github`; empty: it looks itself at the names in the scope."""

    def tools(self) -> Iterable[Tool]:
        """Return every tool it offers to the current scope; if it raises, searches skip it."""
        ...

    def find(self, name: str) -> Tool | None:
        """The tool of that name; None = not mine (a miss). Anything raised is a real error and stops the call."""
        ...


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


@dataclass(frozen=True, slots=True)
class Scope:
    """Who is asking and what they may reach, for the length of one call."""

    caller: str = "local"
    """`cli`, `tui`, `stdio`, or the id of an API key."""
    trusted: bool = True
    """The person at the machine (CLI, TUI); an assistant may only add files from allowed folders."""
    collections: frozenset[str] | None = None
    """Names of the visible collections; None = all."""
    tools: frozenset[str] | None = None
    """Names of the callable tools; None = all."""
    providers: tuple[Provider, ...] = ()
    """Tools that exist for this request only (S1-6)."""
    provider_names: frozenset[str] | None = None
    """Names of the global providers whose tools exist for this caller; None = all."""
    rights: frozenset[str] = frozenset({"read", "write", "admin"})
    """What the caller may do; without `write`, only tools that are marked read-only."""
    expires_at: str | None = None
    """When the caller's key ends (ISO 8601, UTC); None = never. What it makes ends no later."""
    lean: bool = False
    """A language model reads the answers: they are kept short, and text blocks are written for reading."""

    def names(self, *tools: str) -> bool:
        """Return whether the caller may call all these tools, as far as their names decide."""
        return self.tools is None or self.tools.issuperset(tools)

    def allows(self, mark: ToolMark) -> bool:
        """Return whether the caller has the right; for a tool that runs others, theirs are checked instead."""
        return mark.read_only or mark.proxy or "write" in self.rights


ReportProgress = Callable[[float, float | None, str], None]
"""Called with how much is done, of how much (None = unknown), and a word; from any thread."""
AskPerson = Callable[["Json"], "Future[Json]"]
"""Called with the parameters of `elicitation/create`, from any thread; the future gets the client's result, or an error
if the client cannot show this question."""


@dataclass(frozen=True, slots=True)
class ClientCall:
    """What the client of the running call lets it do; a thread that works for the call needs it passed on."""

    progress: ReportProgress = lambda _done, _total, _message: None
    cancellation: Future[None] | None = None
    """Cancelled when the client gives the call up; None where nobody can."""
    ask_person: AskPerson | None = None
    """None where the client cannot be asked in the middle of a call."""
    input: Json | None = None
    """The `inputResponses` and `requestState` of a client that answers an unfinished result by calling again; empty at
    a first call, None where the client is of the handshake era, or asks the person nothing."""


@contextmanager
def _set_during(variable: ContextVar[Value], value: Value) -> Generator[Value]:
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


EVERYTHING = Scope()
_scope: ContextVar[Scope] = ContextVar("localmcp_scope", default=EVERYTHING)
current_scope = _scope.get
"""Returns the scope of the call that is running."""
use_scope = partial(_set_during, _scope)
"""Runs a block in a scope."""
NO_CLIENT = ClientCall()
_client_call: ContextVar[ClientCall] = ContextVar("localmcp_client_call", default=NO_CLIENT)
client_call = _client_call.get
"""Returns what the client of the running call lets it do."""
use_client_call = partial(_set_during, _client_call)
"""Runs the calls of a block for a client."""

RIGHTS = {"read": {"read"}, "write": {"read", "write"}, "admin": {"read", "write", "admin"}}
"""Right -> what it allows; each implies the ones before it."""
LISTS = {"tools": "tools", "providers": "provider_names", "collections": "collections"}
"""Key of a profile -> the field of a scope that it limits; without the key, nothing is limited. `tools` are those
that can be called, `tool_search` and `execute_tool` only if they are named; `providers` are `commands`, `queries`,
`mcp:github`, ...; an empty list leaves localmcp's own tools only."""


def profiles_file() -> Path:
    """Return the user's profiles, TOML: one table for each."""
    return config_directory() / "profiles.toml"


def read_profile(name: str) -> Json:
    """Return the limits of a profile, for `dataclasses.replace(scope, **read_profile(name))`.

    Raises ConfigurationError for anything that is missing or cannot be used: nothing in a limit is overlooked.
    """
    path = profiles_file()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        hint = f'Make {path} with a table, such as: [{name}] tools = ["search"]'
        raise ConfigurationError(f"There is no profile '{name}', because there are no profiles.", hint=hint) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}.", hint="Fix or remove the file.") from error
    if not isinstance(table.get(name), dict):
        raise ConfigurationError(f"There is no profile '{name}' in {path}.", hint=choices(sorted(table)))
    limits: Json = {}
    for key, value in cast(Json, table[name]).items():
        is_right, accepted = key == "rights", "a list of names"
        if is_right:
            accepted = f"one of {', '.join(RIGHTS)}, or a list of them"
        elif key not in LISTS:
            keys = f"Known: {', '.join(LISTS)}, rights."
            raise ConfigurationError(f"Unknown key '{key}' in [{name}] of {path}.", hint=keys)
        texts: list[Any] = one_or_more(value) if is_right or isinstance(value, list) else [None]
        is_list = all(isinstance(text, str) for text in texts)
        if not is_list or (is_right and not (texts and RIGHTS.keys() >= set(texts))):
            raise ConfigurationError(f"{key} = {value!r} in [{name}] of {path} cannot be used: it must be {accepted}.")
        names = [right for text in texts for right in RIGHTS[text]] if is_right else texts
        limits[LISTS.get(key, key)] = frozenset(names)
    return limits
