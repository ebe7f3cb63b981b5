"""Read the lists of words that are shipped for tool search."""

from __future__ import annotations

from functools import cache


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
