"""The HTTP server's log: one line per event on stderr, as text for people or as JSON for programs (S3-14)."""

from __future__ import annotations

import json
import logging
import queue
import sys
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from typing import Any, Literal

from localmcp.masking import mask_text
from localmcp.server.opening import close_within
from localmcp.storage.times import utc_text
from localmcp.visible_text import VisibleFormatter, visible

Format = Literal["text", "json"]

log = logging.getLogger("localmcp.http")
"""Writes `info` even where the program as a whole only warns: whoever starts a server wants to see that it works."""

LONGEST = 200
"""Characters of one field; some come from strangers."""
ENDING_SECONDS = 1.0
"""How long the end of the program waits for the last lines to be read."""


def say(message: str, **fields: Any) -> None:
    """Write one event. Fields are short facts, a key among them masked: never an argument or a document's text."""
    log.info(mask_text(message), extra={"fields": {name: _short(value) for name, value in fields.items()}})


def _short(value: Any) -> Any:
    return mask_text(value[:LONGEST]) if isinstance(value, str) else value


def set_up_logging(form: Format, level: str, *, quiet: bool = False) -> QueueListener:
    """Send every log line of the process to stderr in that form; `level` does not apply to the server's own lines.

    The lines are written by a thread: a reader that does not read stderr must not stop the server.
    """
    lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = QueueHandler(lines)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("ERROR" if quiet else level.upper())
    log.setLevel("ERROR" if quiet else min(logging.INFO, logging.getLevelNamesMapping()[level.upper()]))
    listener = QueueListener(lines, logging.StreamHandler(sys.stderr))
    listener.start()
    return listener


def finish_lines(listener: QueueListener) -> None:
    """Write the lines that wait, unless nobody reads them within ENDING_SECONDS."""
    close_within(ENDING_SECONDS, listener.stop)


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
        return json.dumps(line, default=str)


def _moment(record: logging.LogRecord) -> str:
    return utc_text(datetime.fromtimestamp(record.created, UTC))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return getattr(record, "fields", {})


def _bare(value: Any) -> str:
    """Return a value as text, in quotes if it could be misread or could look like another line."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    plain = isinstance(value, str) and value and text[1:-1] == value and not set(value) & set(" =:,")
    return str(value) if plain else text
