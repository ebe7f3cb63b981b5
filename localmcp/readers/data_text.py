"""Finds texts that are not worth an embedding: lock files, minified code, tables of numbers, encoded data."""

from __future__ import annotations

import re
from pathlib import PurePath
from string import ascii_letters, digits

RULE = "lock files, minified code, tables of numbers and encoded data are found by word only"
LEAST_CHARACTERS = 200
"""Shorter passages are taken as text."""
MOST_LETTERS = 0.2
"""A table of numbers has at most this share of letters among its visible characters."""
LEAST_RUN = 40
"""Characters without a space from which a run may be encoded data."""
LEAST_ENCODED = 0.5
"""Encoded data fills at least this share of the visible characters."""
LONG_LINE, MOST_SPACE = 400, 0.05
"""Minified code has a line of at least so many characters with less than this share of white space."""

_FILES = frozenset(
    """package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml cargo.lock poetry.lock uv.lock pdm.lock
    pipfile.lock composer.lock gemfile.lock go.sum flake.lock bun.lock""".split()
)
_ENDINGS = (".min.js", ".min.css", ".min.mjs", ".js.map", ".css.map")
_ENCODED = re.compile(rf"[A-Za-z0-9+/=_-]{{{LEAST_RUN},}}")
_SPACES, _LETTERS = b" \t\n\r\v\f\x1c\x1d\x1e\x1f", ascii_letters.encode()
_ENCODED_OR_NOT = bytes(120 if chr(code) in f"{ascii_letters}{digits}+/=_-" else 32 for code in range(256))
_LONG_RUN = b"x" * LEAST_RUN
# Seldom needed, so compiled at their first use: 5 ms.
_HAS_DIGIT_AND_LETTERS = r"(?s)(?=.*\d)(?=.*[a-z])(?=.*[A-Z])|(?=.*\d)[0-9a-fA-F]+\Z"
_SPACELESS = "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uac00-\ud7ff]"


def is_data_file(path: str) -> bool:
    """Return whether a file of this name is written by programs for programs."""
    name = PurePath(path).name.casefold()
    return name in _FILES or name.endswith(_ENDINGS)


def is_data(text: str) -> bool:
    """Return whether a passage is a table of numbers, encoded data or minified code."""
    data = text.encode()
    ascii_text = len(data) == len(text)
    visible = len(data.translate(None, _SPACES)) if ascii_text else sum(map(len, text.split()))
    if visible < LEAST_CHARACTERS:
        return False
    letters = len(data) - len(data.translate(None, _LETTERS)) if ascii_text else sum(map(str.isalpha, text))
    if letters <= MOST_LETTERS * visible:
        return any(map(str.isdigit, text))
    # Looked for in this way first, because it takes a tenth of the time.
    long_run = _LONG_RUN in data.translate(_ENCODED_OR_NOT)
    return (long_run and _is_encoded(text, visible)) or _is_minified(text)


def _is_encoded(text: str, visible: int) -> bool:
    encoded = sum(len(run) for run in _ENCODED.findall(text) if re.match(_HAS_DIGIT_AND_LETTERS, run))
    return encoded >= LEAST_ENCODED * visible


def _is_minified(text: str) -> bool:
    line = max(text.splitlines(), key=len) if len(text) >= LONG_LINE else ""
    if len(line) < LONG_LINE or re.search(_SPACELESS, line):
        return False
    return len(line) - sum(map(len, line.split())) < MOST_SPACE * len(line)
