"""Quick starts of mounted files: found, listed and read together with yours, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import apsw

from localmcp.index.federation import Federation, MountedFile, split_name
from localmcp.quickstarts import store
from localmcp.quickstarts.candidates import WordCache
from localmcp.quickstarts.search import Found, Request, find_by_substring, find_quickstarts
from localmcp.quickstarts.store import Row
from localmcp.storage.connections import check_levenshtein
from localmcp.storage.database import Database


@dataclass(frozen=True, slots=True)
class MountedList:
    """What a mounted file adds to a list."""

    rows: list[Row]
    total: int
    tags: dict[str, int]


class MountedQuickstarts:
    """Reads the quick starts of mounted files; those that your file holds as they are count as yours.

    Thread-safe. `own` is a connection to your file.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._words: WeakKeyDictionary[Database, WordCache] = WeakKeyDictionary()

    def search(self, own: apsw.Connection, request: Request, notices: list[str]) -> list[list[Found]]:
        """Return the matches of each mounted file, best first; `notices` names files that cannot be read."""

        def look(mounted_file: MountedFile, theirs: apsw.Connection) -> list[Found] | None:
            if check_levenshtein(theirs):
                matches = find_quickstarts(theirs, self._words.setdefault(mounted_file.database, WordCache()), request)
            else:
                matches = find_by_substring(theirs, request)
            their_contents = store.contents(theirs, [match.name for match in matches])
            own_contents = store.contents(own, their_contents)
            fresh = [
                match
                for match in matches
                if match.name in their_contents and own_contents.get(match.name) != their_contents[match.name]
            ]
            return [_marked(match, mounted_file.name) for match in fresh] or None

        return self._federation.read_mounted(look, notices)

    def list_rows(self, own: apsw.Connection, tag: str | None, limit: int) -> list[MountedList]:
        """Return the first `limit` by title of each mounted file that has any."""

        def look(mounted_file: MountedFile, theirs: apsw.Connection) -> MountedList | None:
            own_contents = store.contents(own, store.names(theirs))
            their_contents = store.contents(theirs, own_contents)
            same = [name for name in their_contents if their_contents[name] == own_contents[name]]
            rows, total = store.list_mounted_rows(theirs, mounted_file.name, tag, same, limit)
            return MountedList(rows, total, store.count_tags(theirs, same)) if total else None

        return self._federation.read_mounted(look)

    def find(self, name: str) -> Row | None:
        """Return the quick start of that name or title in any mounted file; `NAME:name` is in that one."""
        origin, bare = split_name(name)

        def look(mounted_file: MountedFile, theirs: apsw.Connection) -> Row | None:
            row = store.find_row(theirs, bare, mounted_file.name) if origin == mounted_file.name else None
            return row or store.find_row(theirs, name, mounted_file.name)

        rows = self._federation.read_mounted(look)
        return next((row for row in rows if row.origin == origin), rows[0] if rows else None)

    def path_of(self, origin: str) -> str:
        """Return the path of a mounted file, for merging from it."""
        files, _ = self._federation.mounted()
        return next((str(mounted_file.database.path) for mounted_file in files if mounted_file.name == origin), "FILE")


def _marked(match: Found, origin: str) -> Found:
    """Also takes care that its texts are texts."""
    title, description = str(match.display_name), str(match.description)
    return match._replace(display_name=title, description=description, origin=origin)
