"""Writes that may come late, or not at all: gathered by callers who never wait, written by one thread in batches."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import apsw

from localmcp.errors import ConfigurationError, FileTooNew, FileUnavailable, NotOurFile
from localmcp.files import is_filled
from localmcp.storage.database import Database

log = logging.getLogger(__name__)

GATHERING_SECONDS = 0.5
"""How long the thread lets items gather before it writes them in one transaction."""
BUSY_MILLISECONDS = 400
"""How long it waits for another writer; then the items wait for the next round."""
CLOSING_SECONDS = 0.8
"""How long the end of the program waits for the last batch."""
MOST_WAITING = 5000
"""When more items wait, the oldest are given up."""

Item = TypeVar("Item")


class WriteBehind(Generic[Item]):
    """A queue, and a thread that writes it to the file.

    It never makes a file: what cannot be written waits (a file that is not there yet, or locked, a full disk), or is
    dropped (a file that may not be changed). Thread-safe.
    """

    def __init__(self, database: Database, write: Callable[[apsw.Connection, list[Item]], None], items: str) -> None:
        """`write` stores a batch inside one transaction; `items` names them in warnings."""
        self._database = database
        self._write = write
        self._items = items
        self._waiting: deque[Item] = deque()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._flushing = threading.Lock()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._in_hand = 0
        """Items of the batch that is being written."""
        self._refused = False
        self._why = f"{database.path} is locked by another program"
        """Why what waits could not be written."""
        self._warned = False
        self.lost = 0
        """Items given up so far, on files that may be changed."""

    def add(self, item: Item) -> None:
        """Take an item; returns at once. Nothing is taken after `close`, or for a file that may not be changed."""
        if self._refused or self._ended.is_set():
            return
        self._waiting.append(item)
        self._drop_oldest()
        self._wake.set()
        if self._thread is None:
            self._start()

    def flush(self) -> None:
        """Write now what waits; what cannot be written now goes on waiting."""
        with self._flushing:
            items = self._take()
            self._in_hand = len(items)
            if items:
                self._flush(items)
            self._in_hand = 0

    def close(self) -> None:
        """Write what waits, for at most about CLOSING_SECONDS, and end; what is left is given up."""
        self._ended.set()
        self._wake.set()
        with self._starting:  # what is being started cannot be waited for yet
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSING_SECONDS)
        # What nobody has begun to use keeps no record.
        if is_filled(self._database.path):
            self._lose(len(self._waiting) + self._in_hand, self._why)
        self._waiting.clear()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name=f"localmcp-{self._items}", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.wait()
            self._ended.wait(GATHERING_SECONDS)
            self._wake.clear()
            self.flush()
            if self._waiting:
                self._wake.set()

    # ------------------------------------------------------------ one batch; `_flushing` is held

    def _take(self) -> list[Item]:
        items: list[Item] = []
        with suppress(IndexError):
            while True:
                items.append(self._waiting.popleft())
        return items

    def _flush(self, items: list[Item]) -> None:
        try:
            if not is_filled(self._database.path):
                self._keep(items)
            elif not self._database.is_writable:
                self._refuse("it may not be changed")
            else:
                with self._database.write(BUSY_MILLISECONDS) as connection:
                    self._write(connection, items)
        except (NotOurFile, FileTooNew, ConfigurationError) as error:
            self._refuse(str(error))
        except FileUnavailable as error:
            self._why = error.message
            self._keep(items)
        except Exception:
            # One odd item must not end the thread, and with it all later writing.
            log.exception("a batch of the %s could not be written", self._items)
            self._lose(len(items), "see above")

    def _keep(self, items: list[Item]) -> None:
        self._waiting.extendleft(reversed(items))
        self._in_hand = 0
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while len(self._waiting) > MOST_WAITING:
            with suppress(IndexError):
                self._waiting.popleft()
                self._lose(1, "too many wait")

    def _refuse(self, why: str) -> None:
        """A file that may not be changed is no fault: searching it works, and it keeps no record."""
        self._refused = True
        self._waiting.clear()
        log.info("%s: no %s is kept: %s", self._database.path, self._items, why)

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        if count and not self._warned:
            self._warned = True
            log.warning("part of the %s is lost: %s", self._items, why)
