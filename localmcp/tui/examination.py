"""What the doctor hands to its pane; the doctor itself is another face, and neither knows the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Check(Protocol):
    """One thing that was looked at."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str:
        """`ok`, `warn` or `fail`."""
        ...

    @property
    def says(self) -> str: ...
    @property
    def fix(self) -> str:
        """The command that mends it; may be empty."""
        ...


class Examination(Protocol):
    """What was found."""

    @property
    def checks(self) -> Sequence[Check]: ...
    @property
    def sizes(self) -> Sequence[tuple[str, int]]:
        """(table, bytes), the largest first."""
        ...


@dataclass(frozen=True, slots=True)
class NotExamined:
    """Where there is no doctor."""

    checks: Sequence[Check] = ()
    sizes: Sequence[tuple[str, int]] = ()
