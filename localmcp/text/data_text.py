"""Texts that nobody asks for by their meaning: lock files, minified code, tables of numbers, encoded data."""

from __future__ import annotations

import re
from pathlib import PurePath
from string import ascii_letters

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
"""Minified code has lines of so many characters, with less than this share of white space."""

_FILES = frozenset(
    """package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml cargo.lock poetry.lock uv.lock pdm.lock
    pipfile.lock composer.lock gemfile.lock go.sum flake.lock bun.lock""".split()
)
_ENDINGS = (".min.js", ".min.css", ".min.mjs", ".js.map", ".css.map")
_ENCODED = re.compile(rf"[A-Za-z0-9+/=_-]{{{LEAST_RUN},}}")
_HAS_DIGIT_AND_LETTERS = re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])|(?=.*\d)[0-9a-fA-F]+\Z", re.DOTALL)
_SPACELESS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uac00-\ud7ff]")


def is_data_file(path: str) -> bool:
    """Whether a file of this name is written by programs for programs."""
    name = PurePath(path).name.casefold()
    return name in _FILES or name.endswith(_ENDINGS)


def is_data(text: str) -> bool:
    """Whether a passage is a table of numbers, encoded data or minified code."""
    parts = text.split()
    visible = "".join(parts)
    if len(visible) < LEAST_CHARACTERS:
        return False
    if _letters(visible) <= MOST_LETTERS * len(visible):
        return any(map(str.isdigit, visible))
    longest = max(map(len, parts))
    return (longest >= LEAST_RUN and _is_encoded(text, len(visible))) or _is_minified(text)


def _letters(text: str) -> int:
    if not text.isascii():
        return sum(map(str.isalpha, text))
    return len(text) - len(text.encode().translate(None, ascii_letters.encode()))


def _is_encoded(text: str, visible: int) -> bool:
    encoded = sum(len(run) for run in _ENCODED.findall(text) if _HAS_DIGIT_AND_LETTERS.match(run))
    return encoded >= LEAST_ENCODED * visible


def _is_minified(text: str) -> bool:
    line = max(text.splitlines(), key=len)
    if len(line) < LONG_LINE or _SPACELESS.search(line):
        return False
    return sum(map(str.isspace, line)) < MOST_SPACE * len(line)
