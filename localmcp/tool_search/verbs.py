"""Map the words of a request to the verbs that a tool for it may have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from localmcp.wording.normalize import stem

REACH = 6
"""A second word of a verb ("turn the music down") is within so many words."""

_QUESTION = frozenset(
    """what whats which who whom whose where when how why is are am was were do does did has have had will there any
    can""".split()
)
_BEFORE_A_THING = frozenset(
    "the a an my this that our your his her their me it him us them all every some these those any one two".split()
)


def read_lines(name: str) -> list[str]:
    """Return the lines of a file of words that is shipped, without comments."""
    from localmcp.config import packaged_data

    text = (packaged_data() / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


# ---------------------------------------------------------------- tools


@cache
def known_verbs() -> frozenset[str]:
    """Return stems of every verb that a tool may have for what people say."""
    return frozenset[str]().union(*_verbs_for().values()) - {"*"}


@cache
def looking() -> frozenset[str]:
    """Return stems of the verbs of tools that only look."""
    return _verbs_for()["*"] - {"*"}


# ---------------------------------------------------------------- requests


def verbs_asked(words: Sequence[str]) -> frozenset[str]:
    """Return stems of the verbs that a tool for this request may have; empty where it has none that is known to be one.

    Args:
        words: of the request, folded, in order, courtesies left out.
    """
    if not words:
        return frozenset()
    if words[0] in _QUESTION or words[0].endswith("'s"):
        return looking()
    first = stem(words[0], "english")
    for other in words[1:REACH]:
        if (verbs := _verbs_for().get(f"{first}_{other}")) is not None:
            return verbs
    is_command = len(words) > 1 and words[1] in _BEFORE_A_THING
    return _verbs_for().get(first, frozenset((first,) if is_command else ()))


def opposites_of(words: Sequence[str], verbs: frozenset[str]) -> frozenset[str]:
    """Return stems of the opposites of a request's first word, without the verbs that a tool for it may have."""
    return _opposites().get(stem(words[0], "english"), frozenset()) - verbs if words else frozenset()


def has_opposite(stemmed: str) -> bool:
    """Return whether a stem is that of a verb with a known opposite."""
    return stemmed in _opposites()


@cache
def _opposites() -> dict[str, frozenset[str]]:
    stems: dict[str, frozenset[str]] = {}
    for line in read_lines("opposite_verbs.txt"):
        sides = [frozenset(stem(verb, "english") for verb in side.split()) for side in line.split(":")]
        stems |= dict.fromkeys(sides[0], sides[1]) | dict.fromkeys(sides[1], sides[0])
    return stems


@cache
def _verbs_for() -> dict[str, frozenset[str]]:
    """Return what is said, its first word as a stem -> stems of the verbs of the tools that may do it."""
    verbs_by_phrase: dict[str, set[str]] = {}
    for line in read_lines("tool_verbs.txt"):
        written, _, done = line.partition(":")
        verbs = {stem(verb, "english") for verb in done.split() if verb != "*"}
        verbs |= verbs_by_phrase["*"] if "*" in done.split() else set()
        for split in written.split():
            first, *second = split.split("_", 1)
            first = stem(first, "english")
            verbs_by_phrase.setdefault("_".join((first, *second)), set()).update(verbs if second else {*verbs, first})
    return {phrase: frozenset(verbs) for phrase, verbs in verbs_by_phrase.items()}
