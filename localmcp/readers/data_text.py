"""Finds texts that are not worth an embedding: lock files, minified code, tables of numbers, encoded data."""

from __future__ import annotations

import re
from pathlib import PurePath

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
_HAS_DIGIT_AND_LETTERS = re.compile(r"(?s)(?=.*\d)(?=.*[a-z])(?=.*[A-Z])|(?=.*\d)[0-9a-fA-F]+\Z")
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalpha())
_SPACELESS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uac00-\ud7ff]")


def is_data_file(path: str) -> bool:
    """Return whether a file of this name is written by programs for programs."""
    name = PurePath(path).name.casefold()
    return name in _FILES or name.endswith(_ENDINGS)


def is_data(text: str) -> bool:
    """Return whether a passage is a table of numbers, encoded data or minified code."""
    words = text.split()
    visible = sum(map(len, words))
    if visible < LEAST_CHARACTERS:
        return False
    # Counted in bytes, which takes a tenth of the time.
    if len(text.encode().translate(None, _NO_LETTERS)) <= MOST_LETTERS * visible:
        return any(map(str.isdigit, text))
    runs = _ENCODED.findall(text) if max(map(len, words)) >= LEAST_RUN else []
    encoded = sum(len(run) for run in runs if _HAS_DIGIT_AND_LETTERS.match(run))
    line = max(text.splitlines(), key=len)
    is_minified = len(line) >= LONG_LINE and len(line) - sum(map(len, line.split())) < MOST_SPACE * len(line)
    return encoded >= LEAST_ENCODED * visible or (is_minified and not _SPACELESS.search(line))
