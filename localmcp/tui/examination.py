"""What the doctor hands to its pane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: str
    """`ok`, `warn` or `fail`."""
    says: str
    fix: str = ""
    """The command that mends it."""


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found."""

    checks: Sequence[Check]
    sizes: Sequence[tuple[str, int]] = ()
    """(table, bytes), the largest first."""
    search_milliseconds: Sequence[float] = ()
    """Of the last searches, oldest first; empty = as the log of calls has it."""
