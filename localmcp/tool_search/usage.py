"""Counts of the calls of each tool on this machine; they decide between tools that fit equally well."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path

from localmcp.files import read_json_object, write_atomically
from localmcp.tools import CallRecord

log = logging.getLogger(__name__)

SAVED_EVERY = 30.0
"""Seconds between two savings at most."""
MOST_TOOLS = 5000
"""Names kept, the most used ones."""


class ToolUsage:
    """Counts of successful calls by tool name; nothing about arguments or callers. Thread-safe."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` None keeps the counts in memory only; processes may share a file."""
        self._path = path
        self._lock = threading.Lock()
        self._counts: dict[str, int] | None = None
        self._unsaved: dict[str, int] = {}
        self._saved_at = time.monotonic()

    def count(self, name: str) -> int:
        """Return the successful calls of a tool so far."""
        with self._lock:
            return self._all_counts().get(name, 0)

    def note_call(self, record: CallRecord) -> None:
        """Count a finished call; an observer of the registry."""
        if record.error is not None or record.answer is None or record.answer.is_error:
            return
        with self._lock:
            counts = self._all_counts()
            counts[record.tool] = counts.get(record.tool, 0) + 1
            self._unsaved[record.tool] = self._unsaved.get(record.tool, 0) + 1
            due = time.monotonic() - self._saved_at > SAVED_EVERY
        if due:
            self.save()

    def save(self) -> None:
        """Add what was counted since the last time to the file; a file that cannot be written is ignored."""
        with self._lock:
            self._saved_at = time.monotonic()
            if self._path is None or not self._unsaved:
                return
            counts = _read(self._path)
            for name, number in self._unsaved.items():
                counts[name] = counts.get(name, 0) + number
            most_used = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_TOOLS]
            self._counts, self._unsaved = dict(most_used), {}
            try:
                write_atomically(self._path, json.dumps(self._counts))
            except OSError as error:
                log.info("the counts of calls cannot be kept in %s: %s", self._path, error)

    def _all_counts(self) -> dict[str, int]:
        if self._counts is None:
            self._counts = _read(self._path) if self._path else {}
        return self._counts


def _read(path: Path) -> dict[str, int]:
    return {name: value for name, value in read_json_object(path).items() if isinstance(value, int)}
