"""What servers have listed, kept between runs, and their tools as they were when the person approved them.

Connecting a server approves its first list of tools. What a description or schema says later may be instructions that
nobody has read ("rug pull"), so a tool that has changed or was added since is refused.
"""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Iterable
from pathlib import Path

from localmcp.files import read_json_object, write_atomically
from localmcp.schemas import Json, list_of, mapping_of

log = logging.getLogger(__name__)

_DEFINING = ("title", "description", "inputSchema", "annotations")


class KeptLists:
    """Two files for each server entry, named by its digest. Processes may share the folders."""

    def __init__(self, cache: Path, approved: Path) -> None:
        """
        Args:
            cache: the folder for what servers offered last: tools, resources, prompts.
            approved: the folder for the definitions that the person approved; it is in the state directory, for what
                only saves time may be deleted.
        """
        self._cache = cache
        self._approved = approved

    def load(self, digest: str) -> dict[str, list[Json]]:
        """Return what the server offered last, kind -> entries; empty when that is not known."""
        kept = read_json_object(self._cache / f"{digest}.json")
        return {kind: [mapping_of(item) for item in list_of(items)] for kind, items in kept.items()}

    def save(self, digest: str, offers: dict[str, list[Json]]) -> None:
        """Keep what the server offers; where that fails, the next start only takes longer."""
        try:
            write_atomically(self._cache / f"{digest}.json", json.dumps(offers))
        except OSError as error:
            log.info("what an MCP server offers cannot be kept: %s", error)

    def unapproved(self, digest: str, tools: Iterable[Json]) -> dict[str, Json]:
        """Return the approved definition of each tool that is another now, by name; empty for one that was added.

        The first list of an entry is approved. Of a file that cannot be read every tool counts as added.
        """
        current, path = definitions(tools), self._approved / f"{digest}.json"
        if not path.exists():
            try:
                self.approve(digest, tools)
            except OSError as error:
                log.warning("changes of tools cannot be noticed: %s", error)
            return {}
        approved = read_json_object(path)
        return {name: approved.get(name, {}) for name in current if approved.get(name) != current[name]}

    def approve(self, digest: str, tools: Iterable[Json]) -> None:
        """Approve all definitions as they are now.

        Raises:
            OSError: the state directory cannot be written.
        """
        write_atomically(self._approved / f"{digest}.json", json.dumps(definitions(tools)))

    def forget(self, digest: str) -> None:
        """Remove what is kept of this entry."""
        for folder in (self._cache, self._approved):
            (folder / f"{digest}.json").unlink(missing_ok=True)


def definitions(tools: Iterable[Json]) -> dict[str, Json]:
    """Return, by name, what a model reads of each tool."""
    return {tool["name"]: {key: tool[key] for key in _DEFINING if key in tool} for tool in tools}


def difference(name: str, approved: Json, current: Json) -> list[str]:
    """Return a unified diff of two definitions, line by line."""
    before, after = (
        json.dumps(entry, ensure_ascii=False, indent=1, sort_keys=True).splitlines() for entry in (approved, current)
    )
    return [*difflib.unified_diff(before, after, f"{name} (approved)", f"{name} (now)", n=1, lineterm="")]
