"""Lists of the library for people to browse: documents in pages, folders, what was not read, and links."""

from __future__ import annotations

import os
import re
import uuid
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, Literal
from urllib.parse import quote, unquote

import apsw

from localmcp.files import Freshness, check_freshness
from localmcp.index.collections import choose_collections, visible_ids
from localmcp.index.vector_queue import waiting
from localmcp.library.ledger import range_below, waiting_pages
from localmcp.library.names import sources_named
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.wording.normalize import index_text

WIKI = "wiki:"
"""Before the name in the target of a wiki link."""
_LINK = re.compile(r"\[\[([^\]|\n]{1,200})(?:\|[^\]\n]{0,200})?\]\]|\]\(<?([^()\s<>]{1,500})>?(?:\s[^()\n]{0,200})?\)")
_UNREAD = "from ledger where status = 'failed' and source_id is null and collection_id = ?"
_ITEM = """
    select uuid, title, collections.name, chunk_count, uri, sources.size, sources.mtime_ns, sources.sha256,
        (select reason from ledger where path = uri and ledger.collection_id = sources.collection_id
            and ledger.status = 'failed' and ledger.source_id = sources.id)
    from sources join collections on collections.id = sources.collection_id
"""


@dataclass(frozen=True, slots=True)
class Item:
    """A document in a list."""

    id: str
    title: str
    collection: str
    chunks: int
    path: str | None
    state: Freshness | Literal["failed"]
    """Its file is as it was read, has changed, is gone, is not a file here, or could not be read again."""
    why: str
    """Why it could not be read again; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a collection's files, with how many in it and below it are so."""

    name: str
    path: str
    """With the separator at its end."""
    documents: int = 0
    unread: int = 0
    """Files that could not be read, with or without an earlier version."""
    changed: int = 0
    missing: int = 0


class Inventory:
    """Lists to browse, of what the scope may see; NotFound for a collection that is not there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def folders(self, collection: str, folder: str | None = None) -> list[Folder]:
        """Return the folders right below `folder`, by name; for None, below the folder that holds every file."""
        with self._database.read() as connection:
            [owner] = choose_collections(connection, [collection])
            above = _root_folder(connection, owner.id) if folder is None else folder
            inside = (owner.id, *range_below(above))
            sql = """
                select uri, size, mtime_ns, sha256 from sources
                where trashed_at is null and collection_id = ? and uri >= ? and uri < ?
            """
            files = fetch_all(connection, sql, inside)
            sql = "select path from ledger where status = 'failed' and collection_id = ? and path >= ? and path < ?"
            failed = Counter(path[len(above) :].partition(os.sep)[0] for path in fetch_column(connection, sql, inside))
        documents, changed, missing = Counter[str](), Counter[str](), Counter[str]()
        for uri, size, mtime_ns, sha256 in files:
            name, separator, _ = uri[len(above) :].partition(os.sep)
            if separator:
                documents[name] += 1
                # Every file is looked at on the disk.
                state = check_freshness(uri, size, mtime_ns, sha256, self._database.adopted and len(files) <= 50_000)
                changed[name] += state == "changed"
                missing[name] += state == "missing"
        return [
            Folder(name, f"{above}{name}{os.sep}", documents[name], failed[name], changed[name], missing[name])
            for name in sorted(documents)
        ]

    def count_waiting(self, collection: str) -> tuple[int, int, int]:
        """Count passages without a vector, pages of scans not recognized, and files not read, as `unread` has them."""
        with self._database.read() as connection:
            [owner] = choose_collections(connection, [collection])
            unread = fetch_one(connection, f"select count(*) {_UNREAD}", (owner.id,))
            return waiting(connection, [owner.id]).passages, waiting_pages(connection, [owner.id]), unread

    def unread(self, collection: str, *, limit: int = 200) -> list[tuple[str, str]]:
        """Return (path, reason) of the files of a collection that could not be read and hold no earlier version."""
        with self._database.read() as connection:
            [owner] = choose_collections(connection, [collection])
            return fetch_all(connection, f"select path, reason {_UNREAD} order by path limit ?", (owner.id, limit))

    def documents(
        self, collection: str, words: str = "", *, folder: str | None = None, limit: int = 200, offset: int = 0
    ) -> tuple[list[Item], int]:
        """Return a page of a collection's documents by path, then title, and how many there are in all.

        `words`: all of them are in path or title. `folder`: it holds them directly; "" = the one that holds every file.
        """
        parts = [re.sub(r"([|%_])", r"|\1", part) for part in words.split()]
        test = " ".join("and (title like ? escape '|' or uri like ? escape '|')" for _ in parts)
        bindings: list[Any] = [f"%{part}%" for part in parts for _ in range(2)]
        with self._database.read() as connection:
            [owner] = choose_collections(connection, [collection])
            if folder is not None:
                above = folder or _root_folder(connection, owner.id)
                inside = "substr(uri, 1, ?) = ? and instr(substr(uri, ?), ?) = 0"
                test += f" and (({inside}){'' if folder else ' or uri is null'})"
                bindings += [len(above), above, len(above) + 1, os.sep]
            where, values = f"collection_id = ? and trashed_at is null {test}", (owner.id, *bindings)
            total = fetch_one(connection, f"select count(*) from sources where {where}", values)
            order = "order by uri is null, uri, title, sources.id"
            # Only the page's own rows are joined.
            page = f"select id from sources where {where} {order} limit ? offset ?"
            rows = fetch_all(connection, f"{_ITEM} where sources.id in ({page}) {order}", (*values, limit, offset))
        return [self._item(row) for row in rows], total

    def find(self, name: str) -> Item | None:
        """Return the document that `sources_named` finds, of several the one of the shortest path; None if none."""
        with self._database.read() as connection:
            rows = sources_named(connection, name)
            shortest = min(rows, key=lambda row: len(row.uri or row.title), default=None)
            row = fetch_one(connection, f"{_ITEM} where sources.id = ?", (shortest.id,)) if shortest else None
        return self._item(row) if row else None

    def passage_at(self, source_id: str, position: int = 0) -> str:
        """Return the id of the passage of a document at a position, or of its first; "" if it has none."""
        with self._database.read() as connection:
            sql = f"""
                select chunks.uuid from chunks join sources on sources.id = chunks.source_id
                where sources.uuid = ? and trashed_at is null and collection_id in ({visible_ids(connection)})
                order by position = ? desc, position limit 1
            """
            number = fetch_one(connection, sql, (source_id, position))
        return str(uuid.UUID(bytes=number)) if number else ""

    def formats(self) -> list[str]:
        """Return the kinds of file that the documents were made of, such as `markdown`, in alphabetical order."""
        with self._database.read() as connection:
            where = f"trashed_at is null and format != '' and collection_id in ({visible_ids(connection)})"
            return fetch_column(connection, f"select distinct format from sources where {where} order by 1")

    def format_of(self, source_id: str) -> str:
        """Return which reader made the text of a document; "" if it is gone."""
        with self._database.read() as connection:
            return fetch_one(connection, "select max(format) from sources where uuid = ?", (source_id,)) or ""

    def _item(self, row: Any) -> Item:
        source_id, title, collection, chunks, path, size, mtime_ns, sha256, why = row
        freshness = check_freshness(path, size, mtime_ns, sha256, self._database.adopted)
        return Item(source_id, title, collection, chunks, path, "failed" if why else freshness, why or "")

    def linked(self, path: str | None, target: str) -> Item | None:
        """Return the document that a link of the document at `path` leads to; None if the library has none.

        `target`: a path, percent-encoded as in Markdown, or `wiki:` and the title of a document or the end of its path.
        """
        if target.startswith(WIKI):
            return self.find(target.removeprefix(WIKI).partition("#")[0].strip())
        name = unquote(target).partition("#")[0]
        full = os.path.normpath(os.path.join(os.path.dirname(path or ""), name))
        # One after the other: where the first is found, looking for the second would scan the file.
        documents = ((place, self.find(place)) for place in (full, f"{full}.md"))
        return next((item for place, item in documents if item is not None and item.path == place), None)

    def linking_to(self, source_id: str) -> list[Item]:
        """Return at most 100 documents with a link to this one, by title; none if it is gone."""
        item = self.find(source_id)
        if item is None:
            return []
        names = {item.title, *([PurePath(item.path).stem, PurePath(item.path).name] if item.path else [])}
        with self._database.read() as connection:
            # A link has the words of the name, in whatever language its passage is indexed; a path may be encoded.
            languages = fetch_column(connection, "select distinct language from groups")
            forms = {form for name in names for form in (name, quote(name))}
            spellings = (index_text(form, language) for form in forms for language in languages)
            words = {" AND ".join(f'"{stem}"' for stem in spelling.split()) for spelling in spellings if spelling}
            query = " OR ".join(f"({phrase})" for phrase in words)
            sql = f"""
                select distinct sources.uuid, uri, text from chunks join sources on sources.id = source_id
                where chunks.id in (select rowid from chunks_fts where chunks_fts match ?)
                    and (instr(text, '[[') or instr(text, '](')) and trashed_at is null
                    and collection_id in ({visible_ids(connection)}) and sources.uuid <> ?
            """
            rows = fetch_all(connection, sql, (query, item.id)) if words else []
        linking: dict[str, Item | None] = {}
        for linking_id, path, text in rows:
            if linking_id not in linking and len(linking) < 100:
                targets = (f"{WIKI}{name}" if name else target for name, target in _LINK.findall(text))
                documents = map(partial(self.linked, path), targets)
                if any(document and document.id == item.id for document in documents):
                    linking[linking_id] = self.find(linking_id)
        return sorted(filter(None, linking.values()), key=lambda document: document.title.casefold())


def _root_folder(connection: apsw.Connection, collection_id: int) -> str:
    # The folder that holds every file, with the separator at its end; empty if none.
    sql = "select min(uri), max(uri) from sources where collection_id = ? and trashed_at is null and uri is not null"
    first, last = fetch_one(connection, sql, (collection_id,))
    return os.path.commonprefix([first, last]).rpartition(os.sep)[0] + os.sep if first else ""
