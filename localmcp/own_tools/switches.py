"""`providers.toml`: which providers are off, and which Python code may be loaded."""

from __future__ import annotations

import logging
import re
import threading
import tomllib
from pathlib import Path

from localmcp.files import Signature, expand_home, signature_at
from localmcp.own_tools.problems import Problem
from localmcp.own_tools.tables import Table, read_table
from localmcp.schemas import Json

log = logging.getLogger(__name__)


class _Python(Table):
    folders: list[str] = []
    entry_points: bool | list[str] = False


class _Providers(Table):
    disabled: list[str] = []
    python: _Python = _Python()


class Switches:
    """The switches in force; the file is read again when it changes. Thread-safe.

    Python code is loaded only from folders and packages that are named here: a person chooses the packages that they
    install, but not the dependencies that come along. A wrong key counts as not written; a file that cannot be read
    switches everything off, since it may say so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._signature: Signature | None = None
        self._unreadable = False
        self._file = _Providers()
        self._problems: tuple[Problem, ...] = ()

    def is_off(self, provider: str) -> bool:
        return provider in self._looked().disabled or self._unreadable

    def why_off(self) -> str:
        """Return the reason, for people."""
        return f"Off, since {self.path} cannot be read." if self._unreadable else f"Switched off in {self.path}."

    @property
    def python_folders(self) -> tuple[Path, ...]:
        """Folders whose Python files become tools."""
        return tuple(self.path.parent / expand_home(folder) for folder in self._looked().python.folders)

    def allows_entry_points(self, distribution: str) -> bool:
        """Return whether the tools of that installed package may be loaded."""
        allowed = self._looked().python.entry_points
        # Names of packages are compared as the package index does.
        return allowed if isinstance(allowed, bool) else distribution in map(canonical, allowed)

    @property
    def wants_entry_points(self) -> bool:
        """Whether any package is allowed at all."""
        return bool(self._looked().python.entry_points)

    def problems(self) -> tuple[Problem, ...]:
        self._looked()
        return self._problems

    def _looked(self) -> _Providers:
        signature = signature_at(self.path)
        with self._lock:
            if signature != self._signature:
                self._file, self._problems = self._read()
                self._signature = signature
                for problem in self._problems:
                    log.warning("%s", problem)
            return self._file

    def _read(self) -> tuple[_Providers, tuple[Problem, ...]]:
        text, table = "", Json()
        self._unreadable = False
        try:
            text = self.path.read_text(encoding="utf-8-sig")
            table = tomllib.loads(text)
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            self._unreadable = True
            hint = "Every provider it governs is off until it can be read."
            return _Providers(), (Problem(str(self.path), None, f"It cannot be read: {error}.", hint),)
        file, mistakes = read_table(_Providers, table)
        return file, tuple(mistake.in_file(self.path, text) for mistake in mistakes)


def canonical(distribution: str) -> str:
    """Return a package's name as the package index compares it: lower case, one dash for runs of `-`, `_` and `.`."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
