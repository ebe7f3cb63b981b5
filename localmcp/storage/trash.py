"""What was removed or overwritten and is no document: each row whole, as JSON, until the trash is emptied.

Documents that are removed stay in `sources`, marked with `trashed_at`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import apsw

from localmcp.storage.database import fetch_all, fetch_one, insert_row
from localmcp.storage.schema import utc_now


@dataclass(frozen=True, slots=True)
class TrashEntry:
    """Something that was removed or overwritten; `read_trashed` returns all that is needed to bring it back."""

    id: int
    kind: str
    name: str
    """As lists show it and `restore_source` takes it."""
    collection: str | None
    """None for what belongs to no collection, which every caller may see."""
    trashed_at: str

    @property
    def key(self) -> str:
        """The id by which tools and people name it."""
        return f"trash:{self.id}"


def put_into_trash(
    connection: apsw.Connection, kind: str, name: str, content: dict[str, Any], collection: str | None = None
) -> None:
    """Keep what is about to be removed or overwritten. Part of the caller's write transaction."""
    row = {"kind": kind, "name": name, "collection": collection, "trashed_at": utc_now()}
    insert_row(connection, "trash", {**row, "content": json.dumps(content, ensure_ascii=False)})


def trash_entries(connection: apsw.Connection, before: str = "9999") -> list[TrashEntry]:
    """Return what is there, the latest first; only what was put there before a time (ISO 8601 UTC)."""
    sql = "select id, kind, name, collection, trashed_at from trash where trashed_at < ? order by id desc"
    return [TrashEntry(*row) for row in fetch_all(connection, sql, (before,))]


def read_trashed(connection: apsw.Connection, entry: TrashEntry) -> dict[str, Any]:
    """Return what `put_into_trash` was given as the content of an entry."""
    return json.loads(fetch_one(connection, "select content from trash where id = ?", (entry.id,)))


def take_from_trash(connection: apsw.Connection, entry: TrashEntry) -> None:
    """Delete the entry, which is restored or no longer wanted. Part of the caller's write transaction."""
    connection.execute("delete from trash where id = ?", (entry.id,))
