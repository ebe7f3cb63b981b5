"""Lists to browse: documents by name in pages, their passages, and the files that could not be read.

Every list is of what the scope may see; a collection that is not there raises NotFound.
"""

from __future__ import annotations

import json
import os
import uuid
from array import array
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import apsw

from localmcp.index.collections import choose_collections, visible_collections, visible_ids
from localmcp.index.vector_queue import waiting
from localmcp.library.citations import check_freshness
from localmcp.library.ledger import Root, range_below, roots_of, waiting_pages, waiting_scans
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one

State = Literal["fresh", "changed", "missing", "unverifiable", "failed"]
"""Of a document: its file is as it was read, has changed, is gone, is not a file here, could not be read again."""

MOST_MATCHES = 300
"""Titles that are ranked: more that fit a few letters are not told apart by them."""


@dataclass(frozen=True, slots=True)
class Item:
    """A document in a list."""

    id: str
    title: str
    collection: str
    chunks: int
    path: str | None
    state: State
    why: str
    """Why it could not be read again; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list."""

    items: list[Item]
    total: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a collection's files."""

    name: str
    path: str
    """With the separator at its end."""
    documents: int
    """In it and below it."""
    unread: int
    """Files below it that could not be read, with or without an earlier version."""


@dataclass(frozen=True, slots=True)
class FolderState:
    """How many files in a folder and below it are changed or missing, and passages without a vector."""

    changed: int = 0
    missing: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class WaitingFile:
    """A document whose passages have no vectors yet, or a scan whose pages are not recognized yet."""

    title: str
    passages: int = 0
    pages: int = 0


@dataclass(frozen=True, slots=True)
class PassageLine:
    """A passage in a list."""

    id: str
    position: int
    heading: str
    """The innermost; empty if it has none."""
    first_line: int
    last_line: int
    beginning: str
    """Its first words."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that holds no document because it could not be read."""

    path: str
    reason: str


class Inventory:
    """Lists what is in the library."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def _read(self, collection: str) -> Generator[tuple[apsw.Connection, int]]:
        with self._database.read() as connection:
            [chosen] = choose_collections(connection, [collection])
            yield connection, chosen.id

    # ------------------------------------------------------------ folders

    def folders(self, collection: str, folder: str | None = None) -> list[Folder]:
        """Return the folders right below `folder`, by name; for None, below the folder that holds every file."""
        with self._read(collection) as (connection, collection_id):
            above = _root_folder(connection, collection_id) if folder is None else folder
            inside = (collection_id, *range_below(above))
            sql = "where trashed_at is null and collection_id = ? and uri >= ? and uri < ?"
            documents = _folders_in(above, fetch_column(connection, f"select uri from sources {sql}", inside))
            sql = "select path from ledger where status = 'failed' and collection_id = ? and path >= ? and path < ?"
            failed = _folders_in(above, fetch_column(connection, sql, inside))
        return [Folder(name, f"{above}{name}{os.sep}", documents[name], failed[name]) for name in sorted(documents)]

    def folder_states(self, collection: str, folder: str | None = None) -> dict[str, FolderState]:
        """Return, by name, the folders right below `folder` with changed, missing or waiting documents.

        Every file is looked at on the disk, at most 50,000 of them.
        """
        with self._read(collection) as (connection, collection_id):
            above = _root_folder(connection, collection_id) if folder is None else folder
            inside = (collection_id, *range_below(above))
            where = "where trashed_at is null and sources.collection_id = ? and uri >= ? and uri < ?"
            sql = f"select uri, sources.size, mtime_ns, sha256 from sources {where} limit 50000"
            rows = fetch_all(connection, sql, inside)
            queue = "vector_queue join chunks on chunks.id = chunk_id join sources on sources.id = source_id"
            waits = _folders_in(above, fetch_column(connection, f"select uri from {queue} {where}", inside))
        by_state: dict[str, list[str]] = {"changed": [], "missing": []}
        for path, size, mtime_ns, sha256 in rows:
            state = check_freshness(path, size, mtime_ns, sha256, self._database.adopted)
            by_state.setdefault(state, []).append(path)
        changed, missing = _folders_in(above, by_state["changed"]), _folders_in(above, by_state["missing"])
        names = sorted({*changed, *missing, *waits})
        return {name: FolderState(changed[name], missing[name], waits[name]) for name in names}

    def roots(self) -> list[tuple[Root, str]]:
        """Return the files and folders that were added, each with its collection's name."""
        with self._database.read() as connection:
            names = {collection.id: collection.name for collection in visible_collections(connection)}
            return [(root, names[root.collection_id]) for root in roots_of(connection, names)]

    # ------------------------------------------------------------ what waits, and what could not be read

    def waiting(self, collection: str, *, limit: int = 200) -> list[WaitingFile]:
        """Return the scans that wait for text recognition, then documents that wait for vectors, next ones first."""
        sql = """
            select coalesce(uri, title), count(*) from vector_queue join chunks on chunks.id = chunk_id
            join sources on sources.id = source_id
            where sources.collection_id = ? group by source_id order by source_id desc limit ?
        """
        with self._read(collection) as (connection, collection_id):
            scans = [WaitingFile(entry.path, pages=entry.pages) for entry in waiting_scans(connection, collection_id)]
            rows = fetch_all(connection, sql, (collection_id, limit))
        return [*scans, *(WaitingFile(*row) for row in rows)][:limit]

    def count_waiting(self, collection: str) -> tuple[int, int]:
        """Return how many passages of a collection have no vector, and how many pages of scans are not recognized."""
        with self._read(collection) as (connection, collection_id):
            return waiting(connection, [collection_id]).passages, waiting_pages(connection, [collection_id])

    def unread(self, collection: str, *, limit: int = 200) -> list[Unread]:
        """Return the files of a collection that could not be read and hold no earlier version, by path."""
        with self._read(collection) as (connection, collection_id):
            rows = fetch_all(connection, f"select path, reason {_UNREAD} order by path limit ?", (collection_id, limit))
        return [Unread(*row) for row in rows]

    def count_unread(self, collection: str) -> int:
        """Return how many files could not be read and hold no earlier version."""
        with self._read(collection) as (connection, collection_id):
            return fetch_one(connection, f"select count(*) {_UNREAD}", (collection_id,))

    # ------------------------------------------------------------ documents and passages

    def documents(
        self, collection: str, words: str = "", *, folder: str | None = None, limit: int = 200, offset: int = 0
    ) -> Page:
        """Return a page of a collection's documents by path, then title; with `words`, of those that hold all of them.

        Words are looked for in path and title. `folder`: only those right in it; "" = in the folder that holds every
        file, and those without a path.
        """
        test, bindings = _holding(words)
        with self._read(collection) as (connection, collection_id):
            if folder is not None:
                above = folder or _root_folder(connection, collection_id)
                inside = "substr(uri, 1, ?) = ? and instr(substr(uri, ?), ?) = 0"
                test += f" and (({inside}){'' if folder else ' or uri is null'})"
                bindings += [len(above), above, len(above) + 1, os.sep]
            where, values = f"collection_id = ? and trashed_at is null {test}", (collection_id, *bindings)
            total = fetch_one(connection, f"select count(*) from sources where {where}", values)
            order = "order by uri is null, uri, title, sources.id"
            sql = f"select id from sources where {where} {order} limit ? offset ?"
            ids = fetch_column(connection, sql, (*values, limit, offset))
            # Only the page's own rows are joined.
            sql = f"{_ITEM} where sources.id in (select value from carray(?)) {order}"
            rows = fetch_all(connection, sql, (apsw.carray(array("q", ids)),)) if ids else []
        return Page([self._item(row) for row in rows], total)

    def find(self, name: str) -> Item | None:
        """Return the document of that id, path or title, or else the shortest path or title that holds the words."""
        test, bindings = _holding(name)
        with self._database.read() as connection:
            sql = f"""
                {_ITEM} where sources.collection_id in ({visible_ids(connection)}) and trashed_at is null
                    and (uuid = ? or uri = ? or title = ? collate nocase or (1 {test}))
                order by uuid = ? desc, uri = ? desc, title = ? collate nocase desc, length(coalesce(uri, title))
                limit 1
            """
            row = fetch_one(connection, sql, (name.lower(), name, name, *bindings, name.lower(), name, name))
        return self._item(row) if row else None

    def matching(self, letters: str, *, limit: int = MOST_MATCHES) -> list[Item]:
        """Return documents whose title or file name holds these letters in this order, which a fuzzy finder then ranks.

        Titles come before file names, the shortest first.
        """
        letters = "".join(letters.split())
        pattern = "%" + "%".join(map(_escape, letters)) + "%"
        with self._database.read() as connection:
            sql = f"""
                {_ITEM} where sources.collection_id in ({visible_ids(connection)}) and trashed_at is null
                    and (title like ? escape '\\' or uri like ? escape '\\')
                order by title like ? escape '\\' desc, length(title) limit ?
            """
            rows = fetch_all(connection, sql, (pattern, pattern, pattern, limit))
        # Folders hold nearly every letter, so a path counts by its end alone.
        fitting = [row for row in rows if _holds(row[1], letters) or _holds(os.path.basename(row[4] or ""), letters)]
        return [self._item(row) for row in fitting]

    def passages(self, source_id: str, *, limit: int = 200, offset: int = 0) -> list[PassageLine]:
        """Return a page of a document's passages, in order."""
        with self._database.read() as connection:
            sql = f"""
                select chunks.uuid, position, headings, first_line, last_line, substr(text, 1, 200)
                from chunks join sources on sources.id = chunks.source_id
                where sources.uuid = ? and trashed_at is null and collection_id in ({visible_ids(connection)})
                order by position limit ? offset ?
            """
            rows = fetch_all(connection, sql, (source_id, limit, offset))
        return [
            PassageLine(
                str(uuid.UUID(bytes=number)), position, (json.loads(headings) or [""])[-1], first, last,
                " ".join(text.split()),
            )
            for number, position, headings, first, last, text in rows
        ]  # fmt: skip

    def format_of(self, source_id: str) -> str:
        """Return which reader made the text of a document; "" if it is gone."""
        with self._database.read() as connection:
            return fetch_one(connection, "select max(format) from sources where uuid = ?", (source_id,)) or ""

    def _item(self, row: Any) -> Item:
        source_id, title, collection, chunks, path, size, mtime_ns, sha256, why = row
        freshness = check_freshness(path, size, mtime_ns, sha256, self._database.adopted)
        return Item(source_id, title, collection, chunks, path, "failed" if why else freshness, why or "")


_UNREAD = "from ledger where status = 'failed' and source_id is null and collection_id = ?"
_ITEM = """
    select uuid, title, collections.name, chunk_count, uri, sources.size, sources.mtime_ns, sources.sha256,
        (select reason from ledger where path = uri and ledger.collection_id = sources.collection_id
            and ledger.status = 'failed' and ledger.source_id = sources.id)
    from sources join collections on collections.id = sources.collection_id
"""


def _folders_in(above: str, paths: Iterable[str]) -> Counter[str]:
    """Return how many of the paths are in each folder right below the folder `above`."""
    inside = (path[len(above) :].partition(os.sep) for path in paths)
    return Counter(name for name, separator, _ in inside if separator)


def _root_folder(connection: apsw.Connection, collection_id: int) -> str:
    """Return the folder that holds every file of a collection, with the separator at its end; empty if none."""
    sql = "select min(uri), max(uri) from sources where collection_id = ? and trashed_at is null and uri is not null"
    first, last = fetch_all(connection, sql, (collection_id,))[0]
    return os.path.commonprefix([first, last]).rpartition(os.sep)[0] + os.sep if first else ""


def _holding(words: str) -> tuple[str, list[Any]]:
    """Return a condition: title or path hold each of the words."""
    parts = words.split()
    test = "and (title like ? escape '\\' or uri like ? escape '\\')"
    return " ".join(test for _ in parts), [f"%{_escape(part)}%" for part in parts for _ in range(2)]


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _holds(text: str, letters: str) -> bool:
    """Return whether the letters are in the text in their order."""
    remaining = iter(text.casefold())
    return all(letter in remaining for letter in letters.casefold())


def file_name(item: Item) -> str:
    """Return the last part of a document's path, or its title."""
    return os.path.basename(item.path) if item.path else item.title
