"""Writes that may come late, or not at all: gathered by callers who never wait, written in batches."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import apsw

from localmcp.errors import ConfigurationError, FileUnavailable
from localmcp.files import is_filled
from localmcp.storage.database import Database

log = logging.getLogger(__name__)

GATHERING_SECONDS = 0.5
"""How long items gather before they are written in one transaction."""
BUSY_MILLISECONDS = 400
"""How long a write waits for another writer; then the items wait for the next round."""
MOST_WAITING = 5000
"""When more items wait, the oldest are given up."""

Item = TypeVar("Item")


class WriteBehind(Generic[Item]):
    """A list, and a timer that writes it to the file.

    It never makes a file: what cannot be written waits (a file that is not there yet, or locked, a full disk), or is
    dropped (a file that may not be changed). Thread-safe.
    """

    def __init__(self, database: Database, write: Callable[[apsw.Connection, list[Item]], None], items: str) -> None:
        """`write` stores a batch inside one transaction; `items` names them in warnings."""
        self._database, self._write, self._items = database, write, items
        self._waiting: deque[Item] = deque(maxlen=MOST_WAITING)
        self._lock, self._writing = threading.Lock(), threading.Lock()
        """The first is held while the list changes hands, never while it is written."""
        self._timer: threading.Timer | None = None
        self._refused = self._ended = False
        self._trouble = f"{database.path} is locked by another program"

    def add(self, item: Item) -> None:
        """Take an item; returns at once. Nothing is taken after `close`, or for a file that may not be changed."""
        if not (self._refused or self._ended):
            self._wait([item])

    def _wait(self, items: Iterable[Item]) -> None:
        with self._lock:
            self._waiting.extend(items)
            if self._timer is None and not self._ended:
                self._timer = threading.Timer(GATHERING_SECONDS, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Write now what waits; what cannot be written now goes on waiting."""
        with self._writing:
            with self._lock:
                batch, self._timer = list(self._waiting), None
                self._waiting.clear()
            try:
                is_kept_waiting = bool(batch) and not self._store(batch)
            except FileUnavailable as error:
                self._trouble, is_kept_waiting = error.message, True
            except Exception as error:
                # One odd item must not end all later writing.
                is_kept_waiting, self._refused = False, isinstance(error, ConfigurationError)
                if not self._refused:
                    log.exception("a batch of the %s could not be written", self._items)
            if is_kept_waiting:
                with self._lock:
                    self._waiting = deque((*batch, *self._waiting), MOST_WAITING)
                self._wait(())

    def close(self) -> None:
        """Write what waits, and end; what cannot be written is given up."""
        self._ended = True
        if (timer := self._timer) is not None:
            timer.cancel()
        self.flush()
        # What nobody has begun to use keeps no record.
        if self._waiting and is_filled(self._database.path):
            log.warning("part of the %s is lost: %s", self._items, self._trouble)
        self._waiting.clear()

    def _store(self, items: list[Item]) -> bool:
        """Write items; return False where there is no file yet. One that may not be changed keeps no record."""
        if not is_filled(self._database.path):
            return False
        self._refused = not self._database.is_writable
        if not self._refused:
            with self._database.write(BUSY_MILLISECONDS) as connection:
                self._write(connection, items)
        return True
