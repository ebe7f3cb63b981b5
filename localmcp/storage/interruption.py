"""Stopping a search that nobody waits for any more, from another thread."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token

import apsw

from localmcp.errors import Interrupted


class Interruption:
    """`with Interruption() as mine:` around calls: `mine.stop()`, from any thread, ends the running queries.

    Later queries of the block are refused. Writing is never interrupted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[apsw.Connection] = []
        self._token: Token[Interruption | None] | None = None
        self.stopped = False

    def __enter__(self) -> Interruption:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._token is not None:
            _current.reset(self._token)

    def stop(self) -> None:
        """End what is being read; harmless when nothing is."""
        with self._lock:
            self.stopped = True
            for connection in self._connections:
                connection.interrupt()

    @contextmanager
    def hold(self, connection: apsw.Connection) -> Generator[None]:
        """Let a connection read for this caller; several may, in threads that run in a copy of its context.

        Raises:
            Interrupted: it was stopped meanwhile.
        """
        with self._lock:
            if self.stopped:
                raise Interrupted("The search was interrupted.")
            self._connections.append(connection)
        try:
            yield
        finally:
            with self._lock:
                self._connections.remove(connection)


_current: ContextVar[Interruption | None] = ContextVar("localmcp_interruption", default=None)


def interruptible(connection: apsw.Connection) -> AbstractContextManager[None]:
    """Let the caller's `Interruption`, if there is one, reach this connection."""
    interruption = _current.get()
    return nullcontext() if interruption is None else interruption.hold(connection)
