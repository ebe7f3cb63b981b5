"""Upkeep: while nobody asks anything, look at the added folders again."""

from __future__ import annotations

import logging
import threading
import time

from localmcp.errors import LocalMCPError
from localmcp.knowledge.ingest import Library
from localmcp.tools import CallRecord

log = logging.getLogger(__name__)

QUIET_SECONDS = 5.0
"""A call within this time means that somebody is at work: the folders can wait."""


class Upkeep:
    """A thread that refreshes the library whenever the program has been idle for a while."""

    def __init__(self, library: Library, seconds: float) -> None:
        self._library = library
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_call = time.monotonic()

    def start(self) -> None:
        """Begin, once; does nothing when the interval is 0 or after `stop`."""
        if self._seconds <= 0 or self._thread is not None or self._ended.is_set():
            return
        self._thread = threading.Thread(target=self._run, name="localmcp-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the walk that it may be on."""
        self._ended.set()

    def note_call(self, _record: CallRecord) -> None:
        """Observer of the registry: remembers that somebody is at work."""
        self._last_call = time.monotonic()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            if time.monotonic() - self._last_call < QUIET_SECONDS:
                continue
            try:
                report = self._library.refresh()
            except LocalMCPError as error:
                # A missing disk, a locked file or the end of the program: the next round, or the person, deals with it.
                log.info("the folders were not refreshed: %s", error)
                continue
            if report.indexed or report.updated or report.removed:
                log.info("refreshed: %d new, %d changed, %d gone", report.indexed, report.updated, report.removed)
