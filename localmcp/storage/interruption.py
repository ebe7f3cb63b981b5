"""Stopping a search that nobody waits for any more, from another thread."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token

import apsw

from localmcp.errors import Interrupted


class Interruption:
    """`with Interruption() as mine:` around calls: `mine.stop()`, from any thread, ends the running query.

    Later queries of the block are refused. Writing is never interrupted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
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
            if self._connection is not None:
                self._connection.interrupt()

    def hold(self, connection: apsw.Connection | None) -> None:
        """Name the connection that reads for this caller; None when it is done.

        Raises:
            Interrupted: it was stopped meanwhile.
        """
        with self._lock:
            if self.stopped and connection is not None:
                raise Interrupted("The search was interrupted.")
            self._connection = connection


_current: ContextVar[Interruption | None] = ContextVar("localmcp_interruption", default=None)


@contextmanager
def interruptible(connection: apsw.Connection) -> Generator[None]:
    """Let the caller's `Interruption`, if there is one, reach this connection."""
    interruption = _current.get()
    if interruption is None:
        yield
        return
    interruption.hold(connection)
    try:
        yield
    finally:
        interruption.hold(None)
