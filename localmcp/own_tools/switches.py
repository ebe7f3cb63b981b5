"""`providers.toml`: which providers are off, and which Python code may be loaded."""

from __future__ import annotations

import logging
import re
import threading
import tomllib
from pathlib import Path

from localmcp.files import Signature, expand_home, signature_at
from localmcp.own_tools.fields import Fields, Problem, Source
from localmcp.schemas import Json

log = logging.getLogger(__name__)


class Switches:
    """The switches in force; the file is read again when it changes. Thread-safe.

    Python code is loaded only from folders and packages that are named here: a person chooses the packages that they
    install, but not the dependencies that come along. A file that cannot be read switches everything off, since it may
    say so.
    """

    def __init__(self, config_directory: Path) -> None:
        self.path = config_directory / "providers.toml"
        self._lock = threading.Lock()
        self._signature: Signature | None = None
        self._unreadable = False
        self._off: frozenset[str] = frozenset()
        self._folders: tuple[Path, ...] = ()
        self._entry_points: bool | frozenset[str] = False
        self._problems: tuple[Problem, ...] = ()

    def is_off(self, provider: str) -> bool:
        self._look()
        return self._unreadable or provider in self._off

    def why_off(self) -> str:
        """Return the reason, for people."""
        return f"Off, since {self.path} cannot be read." if self._unreadable else f"Switched off in {self.path}."

    @property
    def python_folders(self) -> tuple[Path, ...]:
        """Folders whose Python files become tools."""
        self._look()
        return self._folders

    def allows_entry_points(self, distribution: str) -> bool:
        """Return whether the tools of that installed package may be loaded."""
        self._look()
        return self._entry_points is True or (self._entry_points is not False and distribution in self._entry_points)

    @property
    def wants_entry_points(self) -> bool:
        """Whether any package is allowed at all."""
        self._look()
        return bool(self._entry_points)

    def problems(self) -> tuple[Problem, ...]:
        self._look()
        return self._problems

    def _look(self) -> None:
        signature = signature_at(self.path)
        with self._lock:
            if signature != self._signature:
                self._read()
                self._signature = signature

    def _read(self) -> None:
        source = Source(self.path, "")
        table: Json = {}
        self._unreadable = False
        try:
            source.text = self.path.read_text(encoding="utf-8-sig")
            table = tomllib.loads(source.text)
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            self._unreadable = True
            source.complain(
                f"It cannot be read: {error}.", hint="Every provider it governs is off until it can be read."
            )
        self._take(Fields(source, table))
        self._problems = tuple(source.problems)
        for problem in self._problems:
            log.warning("%s", problem)

    def _take(self, fields: Fields) -> None:
        self._off = frozenset(fields.texts("disabled"))
        python = fields.table("python")
        folders = (expand_home(text) for text in python.texts("folders"))
        self._folders = tuple(self.path.parent / folder for folder in folders)
        if isinstance(python.raw("entry_points"), bool):
            self._entry_points = python.flag("entry_points", False)
        else:
            # Names of packages are compared as the package index does.
            self._entry_points = frozenset(map(canonical, python.texts("entry_points")))
        python.refuse_others()
        fields.refuse_others()


def canonical(distribution: str) -> str:
    """Return a package's name as the package index compares it: lower case, one dash for runs of `-`, `_` and `.`."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
