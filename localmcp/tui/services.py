"""What other packages do for the TUI, handed to it so that neither imports the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from localmcp.workspace import Workspace


class Check(Protocol):
    """One thing that was looked at: `ok`, `warn` or `fail`, and the command that repairs it, which may be empty."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def says(self) -> str: ...
    @property
    def fix(self) -> str: ...


class Examination(Protocol):
    """What the doctor reports: checks, and (table, bytes) with the largest first."""

    @property
    def checks(self) -> Sequence[Check]: ...
    @property
    def sizes(self) -> Sequence[tuple[str, int]]: ...


@dataclass(frozen=True, slots=True)
class NotExamined:
    """An empty report, for where there is no doctor."""

    checks: Sequence[Check] = ()
    sizes: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class Services:
    """Functions of other packages."""

    examine: Callable[[Workspace], Examination] = field(default=lambda _workspace: NotExamined())
    """The doctor."""
    save_theme: Callable[[str], object] = field(default=lambda _name: None)
    """Remembers the theme that was chosen."""
