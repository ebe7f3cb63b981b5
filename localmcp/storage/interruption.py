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

    @contextmanager
    def reach(self, connection: apsw.Connection) -> Generator[None]:
        """Let `stop` end what this connection reads.

        Raises:
            Interrupted: it was stopped already.
        """
        with self._lock:
            if self.stopped:
                raise Interrupted("The search was interrupted.")
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None


_current: ContextVar[Interruption | None] = ContextVar("localmcp_interruption", default=None)


def current_interruption() -> Interruption | None:
    """Return the block that the caller is in."""
    return _current.get()
