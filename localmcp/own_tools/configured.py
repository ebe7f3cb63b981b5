"""The providers of the configuration directory, imported and made only when it holds something for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from localmcp.tools import Provider, Tool

if TYPE_CHECKING:
    from localmcp.own_tools.manifests import ManifestFolder
    from localmcp.own_tools.switches import Switches

MANIFESTS, SWITCHES = "tools", "providers.toml"
"""In the configuration directory: the folder of manifests, and the file of switches."""


class ConfiguredTools:
    """The person's own programs, queries, HTTP calls and Python functions."""

    def __init__(self, config_directory: Path, database: Path) -> None:
        """`database` is the localmcp file in use, which queries may read. Nothing is looked at yet."""
        self.directory = config_directory
        self.database = database
        self.listeners: list[Callable[[], None]] = []
        """Called after tools came, went or changed, by the thread that lists them."""
        self._seen_empty = False
        self._manifests, self._switches = str(config_directory / MANIFESTS), str(config_directory / SWITCHES)
        self.providers = tuple(Deferred(name, self) for name in ("commands", "queries", "http", "python"))

    @property
    def is_configured(self) -> bool:
        """Whether there are manifests or switches."""
        present = os.path.exists(self._manifests) or os.path.exists(self._switches)
        self._seen_empty = self._seen_empty or not present
        return present

    @cached_property
    def manifests(self) -> ManifestFolder:
        """The manifest files."""
        from localmcp.own_tools.manifests import ManifestFolder

        return ManifestFolder(Path(self._manifests), self.listeners, seen_empty=self._seen_empty)

    @cached_property
    def switches(self) -> Switches:
        """What `providers.toml` says."""
        from localmcp.own_tools.switches import Switches

        return Switches(self.directory)

    def open(self, name: str) -> Provider:
        """Import and make the provider of that name."""
        if name == "commands":
            from localmcp.own_tools.commands import Commands

            return Commands(self.manifests, self.switches)
        if name == "queries":
            from localmcp.own_tools.queries import Queries

            return Queries(self.manifests, self.switches, self.database)
        if name == "http":
            from localmcp.own_tools.http import HttpCalls

            return HttpCalls(self.manifests, self.switches)
        from localmcp.own_tools.python import PythonTools

        return PythonTools(self.switches, self.listeners, seen_empty=self._seen_empty)

    def close(self) -> None:
        """End the programs that still run."""
        for provider in self.providers:
            provider.close()


class Deferred:
    """A provider that is imported and made when there is something configured for it. Thread-safe."""

    only_hidden = True
    """tools/list need not ask it."""

    def __init__(self, name: str, owner: ConfiguredTools) -> None:
        self.name = name
        self._owner = owner
        self._lock = threading.Lock()
        self._opened: Provider | None = None

    @property
    def opened(self) -> Provider:
        """The provider itself."""
        with self._lock:
            if self._opened is None:
                self._opened = self._owner.open(self.name)
            return self._opened

    def tools(self) -> Sequence[Tool]:
        return list(self.opened.tools()) if self._owner.is_configured else ()

    def find(self, name: str) -> Tool | None:
        return self.opened.find(name) if self._owner.is_configured else None

    def close(self) -> None:
        close = getattr(self._opened, "close", None)
        if close is not None:
            close()
