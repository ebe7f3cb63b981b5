"""The providers of the configuration directory, imported and made only when it holds something for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from localmcp.tools import Tool

if TYPE_CHECKING:
    from localmcp.own_tools.folder import ManifestFolder, ManifestProvider
    from localmcp.own_tools.problems import Problem, ProviderState
    from localmcp.own_tools.python import PythonTools
    from localmcp.own_tools.switches import Switches

MANIFESTS, SWITCHES = "tools", "providers.toml"
"""In the configuration directory: the folder of manifests, and the file of switches."""
KINDS = {"commands": "command", "queries": "query", "http": "http"}
"""Provider -> the kind of its manifests."""


class ConfiguredTools:
    """The person's own programs, queries, HTTP calls and Python functions."""

    def __init__(self, config_directory: Path, database: Path) -> None:
        """`database` is the localmcp file in use, which queries may read. Nothing is looked at yet."""
        self.directory = config_directory
        self.database = database
        self.listeners: list[Callable[[], None]] = []
        """Called after tools came, went or changed, by the thread that lists them."""
        self._seen_empty = False
        self._lock = threading.RLock()
        self._opened: dict[str, ManifestProvider | PythonTools] = {}
        self._manifests, self._switches = str(config_directory / MANIFESTS), str(config_directory / SWITCHES)
        self.providers = tuple(Deferred(name, self) for name in (*KINDS, "python"))

    @property
    def is_configured(self) -> bool:
        """Whether there are manifests or switches."""
        present = os.path.exists(self._manifests) or os.path.exists(self._switches)
        self._seen_empty = self._seen_empty or not present
        return present

    @cached_property
    def manifests(self) -> ManifestFolder:
        """The manifest files."""
        from localmcp.own_tools.folder import ManifestFolder

        return ManifestFolder(Path(self._manifests), self.database, self.listeners, seen_empty=self._seen_empty)

    @cached_property
    def switches(self) -> Switches:
        """What `providers.toml` says."""
        from localmcp.own_tools.switches import Switches

        return Switches(Path(self._switches))

    def open(self, name: str) -> ManifestProvider | PythonTools:
        """Return the provider of that name, imported and made once."""
        with self._lock:
            if name not in self._opened:
                self._opened[name] = self._make(name)
            return self._opened[name]

    def _make(self, name: str) -> ManifestProvider | PythonTools:
        if name in KINDS:
            from localmcp.own_tools.folder import ManifestProvider

            return ManifestProvider(name, KINDS[name], self.manifests, self.switches)
        from localmcp.own_tools.python import PythonTools

        return PythonTools(self.switches, self.listeners, seen_empty=self._seen_empty)

    def close(self) -> None:
        """End the programs that still run."""
        if "manifests" in vars(self):
            self.manifests.running.close()


class Deferred:
    """A provider that is imported and made when there is something configured for it. Thread-safe."""

    only_hidden = True
    """tools/list need not ask it."""

    def __init__(self, name: str, owner: ConfiguredTools) -> None:
        self.name = name
        self._owner = owner

    def tools(self) -> Sequence[Tool]:
        return self._owner.open(self.name).tools() if self._owner.is_configured else ()

    def find(self, name: str) -> Tool | None:
        return self._owner.open(self.name).find(name) if self._owner.is_configured else None

    def state(self) -> ProviderState:
        """Return how it is doing."""
        return self._owner.open(self.name).state()

    def check(self) -> list[Problem]:
        """Return every mistake in its configuration, and what would make a call fail."""
        return self._owner.open(self.name).check()
