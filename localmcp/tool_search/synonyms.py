"""Read the lists of words that are shipped for tool search."""

from __future__ import annotations


def read_lines(name: str) -> list[str]:
    """Return the lines of a file of words that is shipped, without comments."""
    from localmcp.config import packaged_data

    text = (packaged_data() / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
