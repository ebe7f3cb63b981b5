"""Writes that may come late, or not at all: gathered by callers who never wait, written by one thread in batches."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import apsw

from localmcp.errors import ConfigurationError, FileTooNew, LocalMCPError
from localmcp.files import is_filled
from localmcp.storage.connections import PRACTICES
from localmcp.storage.database import Database
from localmcp.storage.migrations import schema_version
from localmcp.storage.provenance import check_version, is_adopted, is_blank, read_file_id

log = logging.getLogger(__name__)

GATHERING_SECONDS = 0.5
"""How long the thread lets items gather before it writes them in one transaction."""
BUSY_MILLISECONDS = 1000
"""How long it waits for another writer; then the items wait for the next round."""
CLOSING_SECONDS = 0.4
"""How long the end of the program waits for the last batch."""
MOST_WAITING = 5000
"""When more items wait, the oldest are given up."""

Item = TypeVar("Item")


class _Protected(Exception):
    """The file may not be changed by this program."""


class WriteBehind(Generic[Item]):
    """A queue, and a thread that writes it to the file through a separate connection.

    It never makes, migrates or adopts a file, and holds no lock of `Database`: what cannot be written waits (a file
    that is not there yet, or locked) or is dropped (a file that may not be changed, a full disk). Thread-safe.
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
        """Held while the connection is used."""
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._connection: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of the file behind the connection: another may have taken its place."""
        self._refused = False
        self._warned = False
        self.lost = 0
        """Items given up so far, on files that may be changed."""

    def add(self, item: Item) -> None:
        """Take an item; returns at once. Nothing is taken after `close`, or for a file that may not be changed."""
        if self._refused or self._ended.is_set():
            return
        if len(self._waiting) >= MOST_WAITING:
            with suppress(IndexError):
                self._waiting.popleft()
            self._lose(1, "too many wait")
        self._waiting.append(item)
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._start()

    def flush(self) -> None:
        """Write now what waits; what cannot be written now goes on waiting."""
        with self._flushing:
            self._flush(BUSY_MILLISECONDS)

    def close(self) -> None:
        """Write what waits, for at most about CLOSING_SECONDS, and end; what is left is given up."""
        self._ended.set()
        self._wake.set()
        if not self._flushing.acquire(timeout=CLOSING_SECONDS):
            self._lose(len(self._waiting), "the file is locked by another program")
            return
        try:
            self._flush(int(CLOSING_SECONDS * 1000))
            # What nobody has begun to use keeps no record.
            if self._waiting and is_filled(self._database.path):
                self._lose(len(self._waiting), "the file is locked by another program")
            self._waiting.clear()
            self._disconnect()
        finally:
            self._flushing.release()
        with self._starting:  # what is being started cannot be waited for yet
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSING_SECONDS)

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
            if self._ended.is_set():
                return
            self.flush()
            if self._waiting:
                self._wake.set()

    # ------------------------------------------------------------ one batch; `_flushing` is held

    def _flush(self, busy_milliseconds: int) -> None:
        items = self._take()
        if not items:
            return
        try:
            if not self._write_batch(items, busy_milliseconds):
                self._keep(items)
        except apsw.BusyError:
            self._keep(items)
        except (_Protected, apsw.ReadOnlyError, ConfigurationError) as error:
            self._refuse(str(error))
        except (apsw.Error, LocalMCPError, OSError) as error:
            self._disconnect()
            self._lose(len(items), str(error))
        except Exception:
            # One odd item must not end the thread, and with it all later writing.
            log.exception("a batch of the %s could not be written", self._items)
            self._lose(len(items), "see above")

    def _take(self) -> list[Item]:
        items: list[Item] = []
        with suppress(IndexError):
            while True:
                items.append(self._waiting.popleft())
        return items

    def _keep(self, items: list[Item]) -> None:
        self._waiting.extendleft(reversed(items))
        while len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self._lose(1, "too many wait")

    def _write_batch(self, items: list[Item], busy_milliseconds: int) -> bool:
        """False when the file is not there yet, or not of this version yet."""
        connection = self._connected(busy_milliseconds)
        if connection is None:
            return False
        connection.set_busy_timeout(busy_milliseconds)
        connection.execute("begin immediate")
        try:
            if connection.pragma("user_version") != schema_version():
                raise FileTooNew(f"{self._database.path} was upgraded by another program.")
            self._write(connection, items)
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
        return True

    def _connected(self, busy_milliseconds: int) -> apsw.Connection | None:
        path = self._database.path
        try:
            state = path.stat()
        except FileNotFoundError:
            self._disconnect()
            return None
        if self._connection is None or self._file != (state.st_dev, state.st_ino):
            self._disconnect()
            self._connection = self._connect(busy_milliseconds)
            self._file = (state.st_dev, state.st_ino)
        return self._connection

    def _connect(self, busy_milliseconds: int) -> apsw.Connection | None:
        path = self._database.path
        if self._database.read_only:
            raise _Protected("it was opened read-only")
        if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
            raise _Protected("the file or its folder is write-protected")
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        ready = False
        try:
            for practice in PRACTICES:
                practice(connection)
                # The practices' own patience is longer, and some of them read the file.
                connection.set_busy_timeout(busy_milliseconds)
            ready = self._is_ready(connection)
        finally:
            if not ready:
                connection.close()
        return connection if ready else None

    def _is_ready(self, connection: apsw.Connection) -> bool:
        """False for a file that is still to be filled or migrated, which is not for us to do."""
        if is_blank(connection) or check_version(connection, self._database.path) < schema_version():
            return False
        if not is_adopted(read_file_id(connection, self._database.path)):
            raise _Protected("it comes from somewhere else and has not been adopted")
        return True

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(apsw.Error):
                self._connection.close()
            self._connection = None

    def _refuse(self, why: str) -> None:
        """A file that may not be changed is no fault: searching it works, and it keeps no record."""
        self._refused = True
        self._waiting.clear()
        self._disconnect()
        log.info("%s: no %s is kept: %s", self._database.path, self._items, why)

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        if count and not self._warned:
            self._warned = True
            log.warning("%s: part of the %s is lost: %s", self._database.path, self._items, why)
