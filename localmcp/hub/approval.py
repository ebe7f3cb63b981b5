"""Tools as they were when the person approved them: one that has changed or was added since is refused.

Connecting a server approves its first list of tools. What a description or schema says later may be instructions that
nobody has read ("rug pull").
"""

from __future__ import annotations

import difflib
import json
import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from localmcp.files import read_json_object, write_atomically
from localmcp.schemas import Json

log = logging.getLogger(__name__)

_DEFINING = ("title", "description", "inputSchema", "annotations")


class ApprovedDefinitions:
    """One file for each server entry, in the state directory. Thread-safe; processes may share the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def unapproved(self, digest: str, tools: Iterable[Json]) -> dict[str, Json]:
        """Return the approved definition of each tool that is another now, by name; empty for one that was added.

        The first list of an entry is approved. Of a file that cannot be read every tool counts as added.
        """
        current = definitions(tools)
        with self._lock:
            if not self._path(digest).exists():
                try:
                    write_atomically(self._path(digest), json.dumps(current))
                except OSError as error:
                    log.warning("changes of tools cannot be noticed: %s", error)
                return {}
            approved = read_json_object(self._path(digest))
        return {name: approved.get(name, {}) for name in current if approved.get(name) != current[name]}

    def approve(self, digest: str, tools: Iterable[Json]) -> None:
        """Approve all definitions as they are now.

        Raises:
            OSError: the state directory cannot be written.
        """
        with self._lock:
            write_atomically(self._path(digest), json.dumps(definitions(tools)))

    def forget(self, digest: str) -> None:
        """Delete what is approved of this entry."""
        self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


def definitions(tools: Iterable[Json]) -> dict[str, Json]:
    """Return, by name, what a model reads of each tool."""
    return {tool["name"]: {key: tool[key] for key in _DEFINING if key in tool} for tool in tools}


def difference(name: str, approved: Json, current: Json) -> list[str]:
    """Return a unified diff of two definitions, line by line."""
    before, after = (json.dumps(entry, ensure_ascii=False, indent=1, sort_keys=True) for entry in (approved, current))
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"{name} (approved)", f"{name} (now)", n=1, lineterm=""
    )
    return list(lines)
