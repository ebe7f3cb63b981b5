"""The few lines of a passage that show why it was found."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable

from localmcp.wording.normalize import stem, words

LINES = 4
_RUN = re.compile(r"\w+")


class Matcher:
    """Recognizes the words of a query in a text of one language, as the keyword index does."""

    def __init__(self, searched: Iterable[str], language: str) -> None:
        self._searched = {part for phrase in searched for part in phrase.split()}
        self._language = language
        self._stems_by_run: dict[str, set[str]] = {}

    def stems_in(self, text: str) -> set[str]:
        """Return the stems searched for that are in `text`."""
        return {word for run in _RUN.findall(text) for word in self._stems(run)}

    def mark(self, text: str, style: Callable[[str], str]) -> str:
        """`text` with every word that was searched for in `style`."""
        return _RUN.sub(lambda run: style(run[0]) if self._stems(run[0]) else run[0], text)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return (start, stop) of each word that was searched for."""
        return [run.span() for run in _RUN.finditer(text) if self._stems(run[0])]

    def _stems(self, run: str) -> set[str]:
        if run not in self._stems_by_run:
            self._stems_by_run[run] = {stem(word, self._language) for word in words(run)} & self._searched
        return self._stems_by_run[run]


def excerpt(text: str, matcher: Matcher, width: int, most: int = LINES) -> list[str]:
    """The `most` lines of `text`, wrapped at `width`, that hold most of the words; its beginning when none does."""
    lines: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        # Two columns are kept for the marks of an excerpt. Indentation of code stays.
        indent = line[: len(line) - len(line.lstrip())].expandtabs(4)[: width // 2]
        lines += textwrap.wrap(line.strip(), width - 4, initial_indent=indent, subsequent_indent=indent) or [""]
    start = _best_window([matcher.stems_in(line) for line in lines], most)
    shown = lines[start : start + most]
    if not shown:
        return []
    if start > 0:
        shown[0] = "… " + shown[0].lstrip()
    if start + most < len(lines):
        shown[-1] += " …"
    return shown


def _best_window(stems_by_line: list[set[str]], size: int) -> int:
    """First line of the window with most different stems, then most lines that hold one, then one line of lead-in."""
    best, best_start = (0, 0, False), 0
    for start in range(max(len(stems_by_line) - size, 0) + 1):
        window = stems_by_line[start : start + size]
        score = (len(set[str]().union(*window)), sum(map(bool, window)), not window[0] if window else False)
        if score > best and score[0]:
            best, best_start = score, start
    return best_start
