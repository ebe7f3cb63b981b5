"""Who calls, what they may reach, and how a running call reports, asks and is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

    from localmcp.schemas import Json
    from localmcp.tools.base import Provider, ToolMark

Value = TypeVar("Value")


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
        """Return whether the caller has the right.

        For a tool that runs others, their rights are checked instead.
        """
        return mark.read_only or mark.proxy or "write" in self.rights


ReportProgress = Callable[[float, float | None, str], None]
"""Called with how much is done, of how much (None = unknown), and a word; from any thread."""
AskPerson = Callable[["Json"], "Future[Json]"]
"""Called with the parameters of `elicitation/create`, from any thread.

The future gets the client's result, or an error if the client cannot show this question.
"""


class CallCancellation:
    """Whether the client has given up a call, and what to do then. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []
        self.cancelled = False

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the call is given up, at once if it already is; it must be quick."""
        with self._lock:
            if not self.cancelled:
                self._callbacks.append(callback)
                return
        callback()

    def cancel(self) -> None:
        """Give the call up."""
        with self._lock:
            callbacks, self._callbacks, self.cancelled = self._callbacks, [], True
        for callback in callbacks:
            callback()


@dataclass(frozen=True, slots=True)
class ClientCall:
    """What the client of the running call lets it do; a thread that works for the call needs it passed on."""

    progress: ReportProgress = lambda _done, _total, _message: None
    cancellation: CallCancellation | None = None
    """None where nobody can give the call up."""
    ask_person: AskPerson | None = None
    """None where the client cannot be asked in the middle of a call."""
    input: Json | None = None
    """The `inputResponses` and `requestState` of a client that answers an unfinished result by calling again.

    Empty at a first call; None where the client is of the handshake era, or asks the person nothing.
    """


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
