"""What connected servers are for, in a few words, made from names that other people chose."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localmcp.tool_search.verbs import known_verbs
from localmcp.wording.normalize import stem, stop_words

MAX_WORDS = 60
"""Of the whole introduction."""
_BEGINS = "Connected servers:"
_ENDS = "Find their tools with tool_search by capability, verb and object; run them with execute_tool."
WORDS_OF_SERVER = 5
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PLAIN = re.compile(r"[^\w' -]+")


@dataclass(frozen=True, slots=True)
class Introduced:
    """What is known of a connected server without starting it."""

    name: str
    tools: Sequence[str]
    """The server's own names of its tools."""
    description: str = ""
    """What the person wrote of it in `mcp.json`."""


def introduce(
    servers: Iterable[Introduced], *, words: int = WORDS_OF_SERVER, ending: bool = True, characters: int = 1000
) -> str:
    """Return one paragraph of at most MAX_WORDS words, servers in the given order; "" if there is none.

    If it would be too long, each server gets fewer words, then only its name, and at last some names are left out.

    Args:
        words: at most so many for what each server is for.
        ending: say how their tools are found and run.
        characters: at most so many.
    """
    listed = list(servers)
    if not listed:
        return ""
    most_words, end = MAX_WORDS - len(f"{_BEGINS} {_ENDS}".split()), f" {_ENDS}" if ending else ""
    shortened = (_paragraph([_entry(server, most) for server in listed], end) for most in range(words, -1, -1))
    names = [_entry(server, 0) for server in listed]
    cut = (
        _paragraph([*names[:count], f"and {len(names) - count} more"], end) for count in range(len(names) - 1, 0, -1)
    )
    fitting = (text for text in (*shortened, *cut) if _fits(text.removesuffix(end), most_words, characters))
    return next(fitting, _paragraph([f"{len(names)}"], end))


def _paragraph(entries: Sequence[str], end: str) -> str:
    return f"{_BEGINS} {'; '.join(entries)}.{end}"


def _fits(text: str, words: int, characters: int) -> bool:
    return len(text.removeprefix(_BEGINS).split()) <= words and len(text) <= characters


def _entry(server: Introduced, most: int) -> str:
    name = "-".join(_plain(server.name, 3)) or "unnamed"
    words = _plain(server.description, most) if server.description else _common_nouns(server.tools)[:most]
    separator = " " if server.description else ", "
    return f"{name} ({separator.join(words)})" if words else name


def _plain(text: str, most: int) -> list[str]:
    """Return the first words, without markup, links and further sentences."""
    return [word[:24] for word in _PLAIN.sub(" ", text.splitlines()[0] if text else "").split()[:most]]


def _common_nouns(names: Iterable[str]) -> list[str]:
    """Return the words that most tool names have, without the verbs that they begin with."""
    counts: Counter[str] = Counter()
    stops = stop_words("english")
    for name in names:
        words = [word.lower() for word in _PART.findall(name)]
        if words and stem(words[0], "english") in known_verbs():
            del words[0]
        nouns = {word for word in words if len(word) > 2 and word not in stops}
        counts.update(nouns)
    merged: dict[str, str] = {}
    for word in sorted(counts, key=lambda word: (-counts[word], word)):
        merged.setdefault(stem(word, "english"), word[:24])
    return list(merged.values())
