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

ReportProgress = Callable[[float, float | None, str], None]
"""Called with how much is done, of how much (None = unknown), and a word; from any thread."""


def _ignore_progress(_done: float, _total: float | None, _message: str) -> None:
    """Nobody wants to know the progress."""


_progress: ContextVar[ReportProgress] = ContextVar("localmcp_progress", default=_ignore_progress)
progress_listener = _progress.get
"""Returns what the running call reports its progress to; a thread that works for the call needs it passed on."""
use_progress = partial(_set_during, _progress)
"""Reports the progress of the calls in a block to a listener."""


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


_cancellation: ContextVar[CallCancellation | None] = ContextVar("localmcp_cancellation", default=None)
call_cancellation = _cancellation.get
"""Returns what says whether the running call was given up; None where nobody can give it up."""
use_cancellation = partial(_set_during, _cancellation)
"""Lets the calls of a block be given up."""

AskPerson = Callable[["Json"], "Future[Json]"]
"""Called with the parameters of `elicitation/create`, from any thread.

The future gets the client's result, or an error if the client cannot show this question.
"""
_ask_person: ContextVar[AskPerson | None] = ContextVar("localmcp_ask_person", default=None)
person_asker = _ask_person.get
"""Returns what asks the person during the running call; None where the client cannot be asked so."""
use_person_asker = partial(_set_during, _ask_person)
"""Lets the calls of a block ask the person."""

_client_input: ContextVar[Json | None] = ContextVar("localmcp_client_input", default=None)
client_input = _client_input.get
"""Returns the `inputResponses` and `requestState` of a client that answers an unfinished result by calling again.

Empty at a first call; None where the client is of the handshake era, or asks the person nothing.
"""
use_client_input = partial(_set_during, _client_input)
"""Answers the calls of a block with what the client has sent."""
