"""Writes that may come late, or not at all: gathered by callers who never wait, written in batches."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

import apsw

from localmcp.errors import ConfigurationError, FileUnavailable
from localmcp.files import is_filled
from localmcp.storage.database import Database

log = logging.getLogger(__name__)

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
        self._ended = False
        self._trouble = f"{database.path} is locked by another program"

    def add(self, item: Item) -> None:
        """Take an item; returns at once. Nothing is taken after `close`, or for a file that may not be changed."""
        if not self._ended:
            self._wait([item])

    def _wait(self, items: list[Item], *, again: bool = False) -> None:
        with self._lock:
            if again:
                items = [*items, *self._waiting]
                self._waiting.clear()
            self._waiting.extend(items)
            if self._timer is None and not self._ended:
                # Meanwhile items gather that are written in one transaction.
                self._timer = threading.Timer(0.5, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Write now what waits; what cannot be written now goes on waiting."""
        with self._writing:
            with self._lock:
                batch, self._timer = list(self._waiting), None
                self._waiting.clear()
            if not batch:
                return
            try:
                if not is_filled(self._database.path):
                    self._wait(batch, again=True)
                elif self._database.is_writable:
                    with self._database.write(BUSY_MILLISECONDS) as connection:
                        self._write(connection, batch)
                else:
                    self._ended = True
            except FileUnavailable as error:
                self._trouble = error.message
                self._wait(batch, again=True)
            except ConfigurationError:
                self._ended = True
            except Exception:
                # One odd item must not end all later writing.
                log.exception("a batch of the %s could not be written", self._items)

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
