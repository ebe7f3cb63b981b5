"""Upkeep while nobody asks anything: look at the added folders again, and make the missing vectors."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

from localmcp.errors import LocalMCPError, NeedsConfirmation
from localmcp.library.ingest import Library
from localmcp.tools import CallRecord

log = logging.getLogger(__name__)

QUIET_SECONDS = 5.0
"""A call within this time means that somebody is at work: the folders can wait."""
POLL_SECONDS = 2.0
"""How often the queue of passages without vectors is asked for: one look-up in an index."""
PAUSE_SECONDS = 1.0
"""Vectors wait for so long after a call."""
LONGEST_PAUSE = 5.0
"""Between two batches, however many calls there are."""
NICENESS = 10


class Upkeep:
    """A thread that looks after the library whenever the program has been idle for a while."""

    def __init__(self, library: Library, seconds: float) -> None:
        """`seconds`: between two looks at the folders; 0 = never."""
        self._library = library
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_call = self._last_walk = time.monotonic()

    def start(self) -> None:
        """Begin, once; does nothing after `stop`."""
        if self._thread is not None or self._ended.is_set():
            return
        self._thread = threading.Thread(target=self._run, name="localmcp-upkeep", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the walk or the batch that it may be on."""
        self._ended.set()

    def note_call(self, _record: CallRecord) -> None:
        """Observer of the registry: remembers that somebody is at work."""
        self._last_call = time.monotonic()

    def _run(self) -> None:
        _lower_priority()
        while not self._ended.wait(min(POLL_SECONDS, self._seconds or POLL_SECONDS)):
            try:
                if walked := self._walk_is_due():
                    self._walk()
                if self._library.is_open:
                    waiting = self._library.make_vectors(behind=True, pause=self._pause).waiting
                    if walked and not waiting:
                        self._library.read_scans(self._pause)
            except LocalMCPError as error:
                # A missing disk, a locked file or the end of the program: the next round, or the person, deals with it.
                log.info("the library was not looked after: %s", error)

    def _walk_is_due(self) -> bool:
        """Return whether the folders wait to be looked at, and nobody is at work."""
        now = time.monotonic()
        return 0 < self._seconds <= now - self._last_walk and now - self._last_call >= QUIET_SECONDS

    def _walk(self) -> None:
        self._last_walk = time.monotonic()
        try:
            report = self._library.refresh(wait=False)
        except NeedsConfirmation as error:
            log.info("a folder waits for the person: %s", error)  # The others are done.
            return
        gone = report.missing + report.removed
        if report.indexed or report.updated or gone:
            log.info("refreshed: %d new, %d changed, %d gone", report.indexed, report.updated, gone)

    def _pause(self) -> bool:
        """Wait while calls come; true when the work must stop, also for a walk that is due."""
        begin = time.monotonic()
        while time.monotonic() - self._last_call < PAUSE_SECONDS and time.monotonic() - begin < LONGEST_PAUSE:
            if self._ended.wait(0.1):
                return True
        return self._walk_is_due() or self._ended.is_set()


def _lower_priority() -> None:
    """Lower the priority of this thread. Linux gives each thread a separate priority; elsewhere it is the process's."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
