"""The door's log: one line per event on stderr, as text for people or as JSON for programs (S3-14)."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

Format = Literal["text", "json"]

log = logging.getLogger("localmcp.door")
"""Speaks at `info` even where the program as a whole only warns: a person who starts a server wants to see it work."""

LONGEST = 200
"""Characters of one field; some come from strangers."""


def say(message: str, **fields: Any) -> None:
    """Write one event. Fields are short facts: never a key, an argument or a document's text."""
    log.info(message, extra={"fields": fields})


def set_up_logging(form: Format, level: str, *, quiet: bool = False) -> None:
    """Send every log line of the process to stderr in that form; `level` is for all but the door's own lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("ERROR" if quiet else level.upper())
    log.setLevel("ERROR" if quiet else min(logging.INFO, logging.getLevelNamesMapping()[level.upper()]))


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO HTTP Transport request: method=tools/call id=1`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_bare(value)}" for key, value in _fields(record).items())
        source = "" if record.name == log.name else f"{record.name}: "
        message = " ".join(record.getMessage().splitlines())
        joint = "" if not fields else " " if ": " in message else ": "
        line = f"{_moment(record)} {record.levelname} {source}{message}{joint}{fields}"
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
        return json.dumps(line, ensure_ascii=True, default=str)


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return {key: value[:LONGEST] if isinstance(value, str) else value for key, value in fields.items()}


def _bare(value: Any) -> str:
    """Strings that could be mistaken for something else, or forge a line, are quoted."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    plain = isinstance(value, str) and value and text[1:-1] == value and not set(value) & set(" =:,")
    return str(value) if plain else text
