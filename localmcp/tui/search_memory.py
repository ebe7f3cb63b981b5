"""Memory of the TUI between two runs: searches, saved searches, and the last position in each document."""

from __future__ import annotations

import json
import logging
from typing import Any

from localmcp.config import state_directory
from localmcp.files import read_json_object, write_atomically
from localmcp.schemas import list_of, mapping_of
from localmcp.visible_text import visible

log = logging.getLogger(__name__)

MOST_SEARCHES, MOST_POSITIONS = 100, 500


class SearchMemory:
    """Lists in a file of the state directory; one that cannot be read or written is ignored."""

    def __init__(self) -> None:
        self._path = state_directory() / "tui_searches.json"
        self.recent: list[str] = []
        """The latest first."""
        self.saved: list[str] = []
        self.positions: dict[str, int] = {}
        """Source id -> the passage at the top of the reader."""
        self._load()

    def _load(self) -> None:
        """Read what is kept now: another window may have added to it."""
        table = read_json_object(self._path)
        self.recent, self.saved = _texts(table.get("recent")), _texts(table.get("saved"))
        positions = mapping_of(table.get("positions"))
        self.positions = {key: value for key, value in positions.items() if isinstance(value, int)}

    def remember(self, line: str) -> None:
        """Put a search first among the recent ones."""
        self._load()
        self.recent = [line, *(earlier for earlier in self.recent if earlier != line)][:MOST_SEARCHES]
        self._write()

    def toggle_saved(self, line: str) -> bool:
        """Save a search, or forget it if it is saved; returns whether it is saved now."""
        self._load()
        is_saved = line in self.saved
        self.saved = [other for other in self.saved if other != line] if is_saved else [*self.saved, line]
        self._write()
        return not is_saved

    def remember_position(self, source_id: str, passage: int) -> None:
        """Keep which passage of a document is at the top of the reader."""
        self._load()
        self.positions.pop(source_id, None)
        self.positions[source_id] = passage
        self.positions = dict(list(self.positions.items())[-MOST_POSITIONS:])
        self._write()

    def _write(self) -> None:
        table = {"recent": self.recent, "saved": self.saved, "positions": self.positions}
        try:
            write_atomically(self._path, json.dumps(table, ensure_ascii=False))
        except OSError as error:
            log.warning("searches are not remembered: %s", error)


def _texts(value: Any) -> list[str]:
    return [visible(item) for item in list_of(value) if isinstance(item, str)]
