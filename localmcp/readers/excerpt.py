"""Where the words of a query are in a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from localmcp.wording.normalize import stem, words

_RUN = re.compile(r"\w+")


class Matcher:
    """Recognizes the words of a query in a text of one language, as the keyword index does."""

    def __init__(self, searched: Iterable[str], language: str) -> None:
        self._searched = {part for phrase in searched for part in phrase.split()}
        self._language = language
        self._stems_by_run: dict[str, set[str]] = {}

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
