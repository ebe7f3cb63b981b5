"""The HTTP server's log: one line per event on stderr, as text for people or as JSON for programs (S3-14)."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from localmcp.storage.times import utc_text
from localmcp.visible_text import VisibleFormatter, visible

Format = Literal["text", "json"]

log = logging.getLogger("localmcp.http")
"""Writes `info` even where the program as a whole only warns: whoever starts a server wants to see that it works."""

LONGEST = 200
"""Characters of one field; some come from strangers."""
MOST_WAITING = 10_000
"""When more lines wait because nobody reads stderr, the oldest are dropped."""
ENDING_SECONDS = 1.0
"""How long the end of the program waits for the last lines to be read."""


def say(message: str, **fields: Any) -> None:
    """Write one event. Fields are short facts: never a key, an argument or a document's text."""
    log.info(message, extra={"fields": fields})


def set_up_logging(form: Format, level: str, *, quiet: bool = False) -> None:
    """Send every log line of the process to stderr in that form; `level` does not apply to the server's own lines."""
    handler = QueuedLines(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("ERROR" if quiet else level.upper())
    log.setLevel("ERROR" if quiet else min(logging.INFO, logging.getLevelNamesMapping()[level.upper()]))


def finish_lines() -> bool:
    """Write the lines that wait; False when nobody has read them within ENDING_SECONDS."""
    return all(handler.drain() for handler in logging.getLogger().handlers if isinstance(handler, QueuedLines))


class QueuedLines(logging.Handler):
    """Writes lines in a thread, in their order and many at a time.

    A write may block, and a reader that does not read stderr must not stop the server. It also releases Python's lock,
    so that on a busy machine the event loop would have to wait for it after each line.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._waiting: deque[logging.LogRecord | threading.Event] = deque(maxlen=MOST_WAITING)
        """Lines; an event between them is set when all lines before it are written."""
        self._wake = threading.Event()
        self._lost = 0
        threading.Thread(target=self._run, name="localmcp-log-lines", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line; returns at once."""
        if record.args:
            # The arguments may change before the line is written.
            record.msg, record.args = record.getMessage(), None
        if len(self._waiting) == MOST_WAITING:
            self._lost += 1
        self._add(record)

    def drain(self) -> bool:
        """Wait until the lines so far are written; False when that takes longer than ENDING_SECONDS."""
        written = threading.Event()
        self._add(written)
        return written.wait(ENDING_SECONDS)

    def flush(self) -> None:
        """As `drain`; called when the interpreter ends."""
        self.drain()

    def _add(self, item: logging.LogRecord | threading.Event) -> None:
        self._waiting.append(item)
        if not self._wake.is_set():
            self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            lines, passed = self._take()
            # The stream is gone, and there is no other place to say so.
            with suppress(OSError, ValueError):
                self._stream.write(lines)
                self._stream.flush()
            for argument in passed:
                argument.set()
            if self._lost:
                lost, self._lost = self._lost, 0
                log.warning("Log lines were lost, because nobody read them", extra={"fields": {"count": lost}})

    def _take(self) -> tuple[str, list[threading.Event]]:
        """Return the lines that wait, and what is to be set when they are written."""
        lines: list[str] = []
        passed: list[threading.Event] = []
        with suppress(IndexError):
            while True:
                item = self._waiting.popleft()
                if isinstance(item, threading.Event):
                    passed.append(item)
                else:
                    lines.append(self._line(item))
        return "".join(lines), passed

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return f"{self.format(record)}\n"
        except Exception:
            self.handleError(record)
            return ""


class TextLines(VisibleFormatter):
    """`2026-01-31T12:00:00.000Z INFO HTTP Transport request: method=tools/call id=1`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_bare(value)}" for key, value in _fields(record).items())
        source = "" if record.name == log.name else f"{record.name}: "
        message = " ".join(record.getMessage().splitlines())
        joint = "" if not fields else " " if ": " in message else ": "
        line = visible(f"{_moment(record)} {record.levelname} {source}{message}{joint}{fields}")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, the event's fields, and `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line)


_encode = json.JSONEncoder(default=str).encode


def _moment(record: logging.LogRecord) -> str:
    return utc_text(datetime.fromtimestamp(record.created, UTC))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return {key: value[:LONGEST] if isinstance(value, str) else value for key, value in fields.items()}


def _bare(value: Any) -> str:
    """Return a value as text, in quotes if it could be misread or could look like another line."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    plain = isinstance(value, str) and value and text[1:-1] == value and not set(value) & set(" =:,")
    return str(value) if plain else text
