"""Words that people use for one another when they ask for a tool: synonyms and kinds of action."""

from __future__ import annotations

from functools import cache

from localmcp.wording.normalize import stem


def read_lines(name: str) -> list[str]:
    """Return the lines of a file of words that is shipped, without comments."""
    from localmcp.config import packaged_data

    text = (packaged_data() / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def request_words(group: str) -> frozenset[str]:
    """Return a group of `request_words.txt`."""
    lines = (line.partition(":") for line in read_lines("request_words.txt"))
    return next(frozenset(listed.split()) for name, _, listed in lines if name == group)


@cache
def kinds_of_action() -> tuple[str, ...]:
    """Return the kinds of action there are."""
    return tuple(line.partition(":")[0] for line in read_lines("tool_actions.txt"))


@cache
def _actions_by_stem() -> dict[str, frozenset[str]]:
    partners: dict[str, set[str]] = {}
    for line in read_lines("tool_actions.txt"):
        kind, _, verbs = line.partition(":")
        for verb in verbs.split():
            partners.setdefault(stem(verb, "english"), set()).add(kind)
    return {verb: frozenset(kinds) for verb, kinds in partners.items()}


def actions_of(stemmed: str) -> frozenset[str]:
    """Return the kinds of action that a stem asks for; empty for a word that is no verb of the table."""
    return _actions_by_stem().get(stemmed, frozenset())
