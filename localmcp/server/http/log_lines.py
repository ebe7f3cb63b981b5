"""The HTTP server's log: one line per event on stderr (S3-14)."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from localmcp.masking import mask_text
from localmcp.storage.times import utc_text
from localmcp.visible_text import VisibleFormatter, visible

log = logging.getLogger("localmcp.http")
"""Writes `info` even where the program as a whole only warns: whoever starts a server wants to see that it works."""

LONGEST = 200
"""Characters of one field; some come from strangers."""


def say(message: str, **fields: Any) -> None:
    """Write one event. Fields are short facts, a key among them masked: never an argument or a document's text."""
    log.info(mask_text(message), extra={"fields": {name: _short(value) for name, value in fields.items()}})


def _short(value: Any) -> Any:
    return mask_text(value[:LONGEST]) if isinstance(value, str) else value


def set_up_logging(level: str, *, quiet: bool = False) -> None:
    """Send every log line of the process to stderr; `level` does not apply to the server's own lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("ERROR" if quiet else level.upper())
    log.setLevel("ERROR" if quiet else min(logging.INFO, logging.getLevelNamesMapping()[level.upper()]))


class TextLines(VisibleFormatter):
    """`2026-01-31T12:00:00.000Z INFO HTTP Transport request: method=tools/call id=1`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = utc_text(datetime.fromtimestamp(record.created, UTC))
        fields = " ".join(f"{key}={_bare(value)}" for key, value in getattr(record, "fields", {}).items())
        source = "" if record.name == log.name else f"{record.name}: "
        message = " ".join(record.getMessage().splitlines())
        joint = "" if not fields else " " if ": " in message else ": "
        line = visible(f"{moment} {record.levelname} {source}{message}{joint}{fields}")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _bare(value: Any) -> str:
    """Return a value as text, in quotes if it could be misread or could look like another line."""
    text = json.dumps(value, ensure_ascii=True, default=str)
    plain = isinstance(value, str) and value and text[1:-1] == value and not set(value) & set(" =:,")
    return str(value) if plain else text
