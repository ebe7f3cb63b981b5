"""The thread that sends to Milvus what has changed in the file, soon after it changed."""

from __future__ import annotations

import logging
import threading

from localmcp.errors import LocalMCPError
from localmcp.retriever.replication import Replication
from localmcp.tools import CallRecord

log = logging.getLogger(__name__)

GATHER_SECONDS = 1.0
"""Changes often come in a row: they are sent together."""
IDLE_SECONDS = 60.0
"""How often changes of other processes are looked for."""


class Follower:
    """Runs `Replication.follow` after calls, and now and then; opens no file before the first call."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._called = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, once; does nothing after `stop`."""
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="localmcp-follower", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread after what it may be sending."""
        self._ended.set()
        self._called.set()

    def note_call(self, record: CallRecord) -> None:
        """Observer of the registry: after a call there may be something to send."""
        del record
        self._called.set()

    def _run(self) -> None:
        self._called.wait()
        while not self._ended.wait(GATHER_SECONDS):
            self._called.clear()
            try:
                self._replication.follow()
            except LocalMCPError as error:
                # A locked or missing file: the next round deals with it.
                log.info("nothing was sent to Milvus: %s", error)
            self._called.wait(IDLE_SECONDS)
