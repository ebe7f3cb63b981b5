"""Matters of software development, and the words that name them: a Dockerfile and a container are about the same."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from localmcp.wording.normalize import stem, stems, words

PREFIX = "about"
"""Before a matter's name in the keyword index: one token, which no word of a text is likely to be."""


@cache
def _matters() -> dict[str, tuple[str, ...]]:
    """English stem -> names of the matters it belongs to; a matter is called by its first word."""
    from localmcp.config import tokenizer_directory

    found: dict[str, dict[str, None]] = {}
    for line in (tokenizer_directory() / "concepts.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name = line.split()[0]
            for word in line.split():
                found.setdefault(stem(word, "english"), {})[name] = None
    return {stemmed: tuple(names) for stemmed, names in found.items()}


def matters_of(stemmed: Iterable[str]) -> dict[str, None]:
    """The matters that English stems belong to, in order."""
    table = _matters()
    return dict.fromkeys(name for each in stemmed for name in table.get(each, ()))


def matter_tokens(text: str) -> str:
    """What the keyword index holds besides the words of a text: a token for each of its matters."""
    return " ".join(f"{PREFIX}{name}" for name in matters_of(stems(words(text), "english")))
