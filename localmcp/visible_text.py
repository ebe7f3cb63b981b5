"""Untrusted text for a terminal: characters that control the terminal, or reorder the line, become visible."""

import json
import logging
import re
from typing import Any

from localmcp.masking import mask_text

_UNSAFE = re.compile(
    r"(\U0001F3F4[\U000E0030-\U000E0039\U000E0061-\U000E007A]+\U000E007F)"  # the flag of a region, such as Wales
    r"|[\x00-\x1F\x7F-\x9F]"  # C0 and C1 controls
    r"|[\u2028\u2029]"  # line breaks
    r"|[\u202A-\u202E\u2066-\u206F]"  # bidirectional embeddings, overrides and isolates
    r"|[\uFFF9-\uFFFB\uD800-\uDFFF]"  # annotations, lone surrogates
    r"|[\U000E0000-\U000E007F]"  # invisible tags
)


def visible(text: str, *, newlines: bool = False) -> str:
    """Return `text` with every control and reordering character replaced by a visible sign, which a second time stays.

    ESC becomes `␛`, U+202E becomes `⟨U+202E⟩`; letters of all scripts and emoji stay. With `newlines`, line feeds and
    tabs stay and CRLF becomes a line feed; without, the result is one line.
    """
    # Unsafe characters are never printable, and most texts are printable, which is quick to check.
    if (text.replace("\n", "") if newlines else text).isprintable():
        return text
    if not newlines:
        return _UNSAFE.sub(_sign, text)
    kept = text.replace("\r\n", "\n")
    return _UNSAFE.sub(lambda match: match[0] if match[0] in "\n\t" else _sign(match), kept)


def visible_json(text: str) -> str:
    """Return JSON text with those characters as `\\u` escapes: the same value, safe on a terminal and in one line."""
    if text.replace("\n", "").isprintable():
        return text
    return _UNSAFE.sub(lambda match: match[0] if match[0] in "\n\t\r" else json.dumps(match[0])[1:-1], text)


def _sign(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    code = ord(match[0])
    # Unicode has a picture of each C0 control: ␀ to ␟.
    return chr(0x2400 + code) if code < 32 else "␡" if code == 127 else f"⟨U+{code:04X}⟩"


class VisibleFormatter(logging.Formatter):
    """Log lines for a terminal, without secrets: a record is one line, and a traceback keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return visible(mask_text(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:
        return visible(mask_text(super().formatException(ei)), newlines=True)
