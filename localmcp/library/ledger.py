"""The files and folders that the person added, and the status of every path that was ever found."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

import apsw

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import unicode_path
from localmcp.library.walk import NOT_UNICODE, below, prefix_of
from localmcp.schemas import without_surrogates
from localmcp.storage.database import fetch_all, fetch_column, fetch_one, upsert_rows
from localmcp.storage.times import utc_now

Status = Literal["indexed", "skipped", "failed", "missing", "moved", "removed", "kept"]
"""`missing`: deleted, its source in the trash. `removed`: taken out by the person, and left out by later walks.
`kept`: brought back from the trash although its file is gone."""
Kind = Literal["file", "folder"]
SourceType = Literal["text", "website", "docs", "qa", "notion"]
SOURCE_TYPES: tuple[SourceType, ...] = get_args(SourceType)

# ---------------------------------------------------------------- what was added


@dataclass(frozen=True, slots=True)
class Options:
    """What was said of a file or folder when it was added; None, {} and () leave it to an outer folder."""

    title: str | None = None
    source_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    include_hidden: bool = False
    patterns: tuple[str, ...] = ()


@dataclass(slots=True)
class Root:
    """A file or folder that the person added."""

    path: str
    kind: Kind
    collection_id: int
    partition_id: int | None = None
    options: Options = Options()
    id: int | None = None

    @property
    def values(self) -> tuple[Any, ...]:
        """What is stored with every source of it."""
        return self.partition_id, self.options.title, self.options.source_type, self.options.metadata

    def within(self, owner: Root | None) -> Root:
        """Return a root that inherits what is not said of it from the root at or above it."""
        if owner is None:
            return self
        own, outer = self.options, owner.options
        options = Options(
            own.title or (outer.title if owner.path == self.path else None),
            own.source_type or outer.source_type,
            {**outer.metadata, **own.metadata},
            own.include_hidden or outer.include_hidden,
            own.patterns or outer.patterns,
        )
        partition_id = owner.partition_id if self.partition_id is None else self.partition_id
        return Root(self.path, self.kind, self.collection_id, partition_id, options)


WATCHED = "kind in ('file', 'folder')"
"""Selects the roots that the person has not removed; of the others the kind is `removed file` or `removed folder`."""


def roots_of(connection: apsw.Connection, collection_ids: Iterable[int], *, removed: bool = False) -> list[Root]:
    """Return what was added to those collections, outer folders first; with `removed`, what was removed of it."""
    sql = f"""
        select path, kind, collection_id, partition_id, options, id from roots
        where {"not " if removed else ""}({WATCHED}) order by path
    """
    ids, roots = set(collection_ids), list[Root]()
    for path, kind, collection_id, partition_id, options, number in fetch_all(connection, sql):
        if collection_id in ids:
            stored: dict[str, Any] = {"patterns": (), **json.loads(options)}
            stored["patterns"] = tuple(stored["patterns"])
            kind = kind.removeprefix("removed ")
            roots.append(Root(path, kind, collection_id, partition_id, Options(**stored), number))
    return roots


def save_root(connection: apsw.Connection, root: Root) -> None:
    """Remember a root and fill in its id. Part of the caller's write transaction."""
    options = {name: value for name, value in asdict(root.options).items() if value}
    sql = """
        insert into roots (path, collection_id, partition_id, kind, options, added_at) values (?, ?, ?, ?, ?, ?)
        on conflict (path, collection_id) do update set
            partition_id = excluded.partition_id, kind = excluded.kind, options = excluded.options
        returning id
    """
    row = (root.path, root.collection_id, root.partition_id, root.kind, json.dumps(options, ensure_ascii=False))
    root.id = fetch_one(connection, sql, (*row, utc_now()))


def forget_root(connection: apsw.Connection, collection_id: int, path: str) -> None:
    """Forget the root that is exactly this path."""
    connection.execute("delete from roots where collection_id = ? and path = ?", (collection_id, path))


def unwatch(connection: apsw.Connection, collection_id: int, path: str, *, inside: bool = True) -> None:
    """Watch the root at a path, and with `inside` those below it, no longer.

    Their options are kept as long as something from them is in the trash.
    """
    first, last = range_below(path) if inside else ("", "")
    sql = f"""
        update roots set kind = 'removed ' || kind
        where {WATCHED} and collection_id = ? and (path = ? or path >= ? and path < ?)
    """
    connection.execute(sql, (collection_id, path, first, last))


def owner_of(path: str, roots: Sequence[Root]) -> Root | None:
    """Return the innermost root at or above a path."""
    above = [root for root in roots if below(path, root.path)]
    return max(above, key=lambda root: len(root.path), default=None)


def check_options(
    title: str | None = None,
    source_type: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    include_hidden: bool = False,
    patterns: Sequence[str] = (),
) -> Options:
    """Return the options, as they can be stored.

    Raises:
        InvalidInput: an unknown source type, or metadata that is not JSON.
    """
    if source_type is not None and source_type not in SOURCE_TYPES:
        raise InvalidInput(f"source type {source_type!r} is unknown; use one of {', '.join(SOURCE_TYPES)}.")
    line = " ".join(without_surrogates(title or "").split())[:200]
    try:
        text = json.dumps(dict(metadata or {}), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata cannot be stored as JSON: {error}.") from error
    stored = json.loads(without_surrogates(text))
    return Options(line or None, source_type, stored, include_hidden, tuple(patterns))


def find_targets(paths: Iterable[str | os.PathLike[str]], options: Options) -> dict[str, Kind | None]:
    """Return resolved path -> kind; None for one that does not exist.

    Raises:
        NotFound: none exists.
        InvalidInput: an empty path, a title for a folder, or a name that is not Unicode.
    """
    targets: dict[str, Kind | None] = {}
    for name in paths:
        if not os.fspath(name):
            raise InvalidInput("path is empty; name a file or a folder ('.' is the current one).")
        path = os.path.realpath(os.path.expanduser(name))
        if path != unicode_path(path):
            raise InvalidInput(f"{unicode_path(path)}: {NOT_UNICODE}.", hint="Rename it, and add it again.")
        targets[path] = "folder" if os.path.isdir(path) else "file" if os.path.lexists(path) else None
        if targets[path] == "folder" and options.title:
            raise InvalidInput(f"title: {path} is a folder; only a single file can be given a title.")
    if not any(targets.values()):
        raise NotFound(f"There is no file or folder {', '.join(targets) or 'named'}.")
    return targets


# ---------------------------------------------------------------- entries


@dataclass(frozen=True, slots=True)
class Entry:
    """Status of one path in one collection."""

    path: str
    status: Status
    reason: str = ""
    source_id: int | None = None
    sha256: str | None = None
    size: int | None = None
    mtime_ns: int | None = None
    chunks: int = 0
    pages: int = 0
    """Of scans in it that wait for text recognition."""
    seen_at: str = ""

    @property
    def holds_source(self) -> bool:
        """Whether a source that is searched came from this path."""
        return self.source_id is not None and self.status in ("indexed", "failed")


_COLUMNS = tuple(column.name for column in fields(Entry))
_AT_OR_BELOW = "collection_id = ? and (path = ? or path >= ? and path < ?)"


def is_at(connection: apsw.Connection, entry: Entry) -> bool:
    """Return whether the source is still the one of this path: it may have been found under another in the same run."""
    sql = "select coalesce(metadata ->> '$.container', uri) from sources where id = ? and trashed_at is null"
    return fetch_one(connection, sql, (entry.source_id,)) == entry.path


def entries_below(connection: apsw.Connection, collection_id: int, path: str) -> dict[str, Entry]:
    """Return path -> entry of a file, or of a folder and everything in it."""
    sql = f"select {', '.join(_COLUMNS)} from ledger where {_AT_OR_BELOW}"
    rows = fetch_all(connection, sql, (collection_id, path, *range_below(path)))
    return {row[0]: Entry(*row) for row in rows}


def record(connection: apsw.Connection, collection_id: int, root_id: int | None, entries: Iterable[Entry]) -> None:
    """Record the status of paths. Part of the caller's write transaction."""
    seen = {"collection_id": collection_id, "root_id": root_id, "seen_at": utc_now()}
    rows = [{name: getattr(entry, name) for name in _COLUMNS} | seen for entry in entries]
    upsert_rows(connection, "ledger", ("path", "collection_id"), rows)


def mark(
    connection: apsw.Connection, collection_id: int, path: str, status: Status, reason: str, **values: Any
) -> None:
    """Change status, reason and other columns of a path, and keep the rest of its entry."""
    row = {"path": path, "collection_id": collection_id, "status": status, "reason": reason, "seen_at": utc_now()}
    upsert_rows(connection, "ledger", ("path", "collection_id"), [row | values])


def forget(connection: apsw.Connection, collection_id: int, paths: Iterable[str]) -> None:
    """Delete the entries of paths that no longer mean anything."""
    sql = "delete from ledger where path = ? and collection_id = ?"
    connection.executemany(sql, ((path, collection_id) for path in paths))


def forget_skipped(connection: apsw.Connection, collection_id: int, path: str) -> None:
    """Delete the entries without a source at or below a path."""
    sql = f"delete from ledger where {_AT_OR_BELOW} and source_id is null"
    connection.execute(sql, (collection_id, path, *range_below(path)))


def forget_purged(connection: apsw.Connection) -> None:
    """Delete what is known of files that are gone and whose sources have left the trash; `removed` marks stay."""
    test = "status = 'missing' and not exists (select 1 from sources where sources.id = ledger.source_id)"
    connection.execute(f"""
        delete from roots where kind = 'file' and exists (
            select 1 from ledger where ledger.path = roots.path and ledger.collection_id = roots.collection_id
                and {test})
    """)
    connection.execute(f"delete from ledger where {test}")
    connection.execute(f"""
        delete from roots where not {WATCHED} and not exists (
            select 1 from sources
            where sources.collection_id = roots.collection_id and trashed_at is not null
                and substr(uri, 1, length(path)) = path
        )
    """)


def waiting_scans(connection: apsw.Connection, collection_id: int) -> list[Entry]:
    """Return the files of a collection with scans that no text was recognized in yet, those of few pages first."""
    sql = f"""
        select {", ".join(_COLUMNS)} from ledger
        where collection_id = ? and pages > 0 and status in ('indexed', 'skipped', 'failed') order by pages, path
    """
    return [Entry(*row) for row in fetch_all(connection, sql, (collection_id,))]


def waiting_pages(connection: apsw.Connection, collection_ids: Iterable[int]) -> int:
    """Return how many pages of scans wait for text recognition in those collections."""
    return sum(entry.pages for owner in collection_ids for entry in waiting_scans(connection, owner))


def range_below(path: str) -> tuple[str, str]:
    """Return the bounds of the paths inside a folder, for the index: `/a/` <= path < `/a0`."""
    prefix = prefix_of(path)
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def documents_in(connection: apsw.Connection, collection_id: int, path: str) -> list[tuple[int, str]]:
    """Return (id, uri) of the documents in a file, such as the messages of a mailbox; none for an ordinary file."""
    sql = """
        select id, uri from sources where collection_id = ? and uri >= ? and uri < ? and trashed_at is null
            and metadata ->> '$.container' = ?
    """
    return fetch_all(connection, sql, (collection_id, f"{path}#", f"{path}$", path))


def watched_folders(connection: apsw.Connection) -> list[str]:
    """Return the paths of the folders that were added to any collection."""
    return fetch_column(connection, "select path from roots where kind = 'folder'")
