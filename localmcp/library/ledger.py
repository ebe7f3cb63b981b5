"""The files and folders that the person added, and the status of every path that was ever found."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

import apsw

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import unicode_path
from localmcp.index.collections import Collection
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
LONGEST_TITLE = 200

# ---------------------------------------------------------------- roots

_ROOT = "path, kind, collection_id, partition_id, options, id"
WATCHED = "kind in ('file', 'folder')"
"""Selects the roots that the person has not removed."""
_REMOVE_ROOTS = f"update roots set kind = 'removed ' || kind where {WATCHED} and collection_id = ?"
_OPTIONS = ("title", "source_type", "metadata", "include_hidden", "patterns")


@dataclass(slots=True)
class Root:
    """A file or folder that the person added, with its options."""

    path: str
    kind: Kind
    collection_id: int = 0
    partition_id: int | None = None
    title: str | None = None
    source_type: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    include_hidden: bool = False
    patterns: tuple[str, ...] = ()
    id: int | None = None

    @property
    def options(self) -> str:
        """The options as JSON, as they are stored."""
        options = {name: getattr(self, name) for name in _OPTIONS}
        return json.dumps({name: value for name, value in options.items() if value}, ensure_ascii=False)


def roots_of(connection: apsw.Connection, collection_ids: Iterable[int]) -> list[Root]:
    """Return what was added to those collections, outer folders first."""
    sql = f"select {_ROOT} from roots where {WATCHED} order by path"
    ids = set(collection_ids)
    return [_root(row) for row in fetch_all(connection, sql) if row[2] in ids]


def watched_folders(connection: apsw.Connection) -> list[str]:
    """Return the paths of the folders that were added to any collection."""
    return fetch_column(connection, "select path from roots where kind = 'folder'")


def removed_roots_above(connection: apsw.Connection, collection_id: int, path: str) -> list[Root]:
    """Return the roots at or above a path that the person removed, outer folders first."""
    places = apsw.carray((path, *_folders_above(path)))
    sql = f"""
        select {_ROOT.replace("kind", "substr(kind, 9)")} from roots
        where collection_id = ? and not {WATCHED} and path in (select value from carray(?)) order by path
    """
    return [_root(row) for row in fetch_all(connection, sql, (collection_id, places))]


def _root(row: tuple[Any, ...]) -> Root:
    path, kind, collection_id, partition_id, options, root_id = row
    stored_options: dict[str, Any] = json.loads(options)
    stored_options["patterns"] = tuple(stored_options.get("patterns", ()))
    return Root(path, kind, collection_id, partition_id, id=root_id, **stored_options)


def save_root(connection: apsw.Connection, root: Root) -> None:
    """Remember a root and fill in its id. Part of the caller's write transaction."""
    root.id = fetch_one(
        connection,
        """
        insert into roots (path, collection_id, partition_id, kind, options, added_at)
        values (:path, :collection_id, :partition_id, :kind, :options, :now)
        on conflict (path, collection_id) do update set
            partition_id = excluded.partition_id, kind = excluded.kind, options = excluded.options
        returning id
        """,
        {**asdict(root), "options": root.options, "now": utc_now()},
    )


def forget_root(connection: apsw.Connection, collection_id: int, path: str) -> None:
    """Forget the root that is exactly this path."""
    connection.execute("delete from roots where collection_id = ? and path = ?", (collection_id, path))


def remove_root(connection: apsw.Connection, collection_id: int, path: str) -> None:
    """Watch the root that is exactly this path no longer; what a foreign file calls `/` covers no document.

    Its options are kept as long as something from it is in the trash.
    """
    connection.execute(f"{_REMOVE_ROOTS} and path = ?", (collection_id, path))


def remove_roots(connection: apsw.Connection, collection_id: int, path: str) -> None:
    """Watch the roots at or below a path no longer; as `remove_root`."""
    sql = f"{_REMOVE_ROOTS} and (path = ? or path >= ? and path < ?)"
    connection.execute(sql, (collection_id, path, *range_below(path)))


# ---------------------------------------------------------------- options


@dataclass(frozen=True, slots=True)
class Options:
    """Options of files; None, {} and () are inherited from an earlier `add` of the same folder."""

    title: str | None = None
    source_type: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    include_hidden: bool = False
    patterns: tuple[str, ...] = ()


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
    line = " ".join(without_surrogates(title or "").split())[:LONGEST_TITLE]
    return Options(line or None, source_type, _json(metadata or {}), include_hidden, tuple(patterns))


def _json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    try:
        text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata cannot be stored as JSON: {error}.") from error
    return json.loads(without_surrogates(text))


def find_targets(paths: Iterable[str | os.PathLike[str]], options: Options) -> dict[str, Kind | None]:
    """Return resolved path -> kind; None for one that does not exist, or whose name the file cannot hold.

    Raises:
        NotFound: none exists.
        InvalidInput: an empty path, a title for a folder, or nothing but names that are not Unicode.
    """
    targets: dict[str, Kind | None] = {}
    for name in paths:
        if not os.fspath(name):
            raise InvalidInput("path is empty; name a file or a folder ('.' is the current one).")
        real = os.path.realpath(os.path.expanduser(name))
        kind = "folder" if os.path.isdir(real) else "file" if os.path.lexists(real) else None
        if kind == "folder" and options.title:
            raise InvalidInput(f"title: {real} is a folder; only a single file can be given a title.")
        path = unicode_path(real)
        targets[path] = kind if path == real else None
    if not any(targets.values()):
        if unnamed := [path for path in targets if why_absent(path) == NOT_UNICODE]:
            raise InvalidInput(f"{', '.join(unnamed)}: {NOT_UNICODE}.", hint="Rename it, and add it again.")
        raise NotFound(f"There is no file or folder {', '.join(targets) or 'named'}.")
    return targets


def why_absent(path: str) -> str:
    """Return why a target has no kind."""
    return NOT_UNICODE if "\ufffd" in path else "no such file or folder"


def owner_of(path: str, roots: Sequence[Root]) -> Root | None:
    """Return the innermost root at or above a path."""
    above = [root for root in roots if below(path, root.path)]
    return max(above, key=lambda root: len(root.path), default=None)


def make_root(
    path: str, kind: Kind, collection: Collection, options: Options, partition_id: int | None, owner: Root | None
) -> Root:
    """Return the root for a path that is added; options not given are inherited from the root at or above it."""
    inherited = owner or Root(path, kind)
    return Root(
        path,
        kind,
        collection.id,
        partition_id if partition_id is not None else inherited.partition_id,
        options.title or (inherited.title if inherited.path == path else None),
        options.source_type or inherited.source_type,
        {**inherited.metadata, **options.metadata},
        options.include_hidden or inherited.include_hidden,
        options.patterns or inherited.patterns,
    )


def values_of(root: Root) -> tuple[Any, ...]:
    """Return what is stored with every source of a root."""
    return (root.partition_id, root.title, root.source_type, root.metadata)


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
    seconds: float | None = None
    seen_at: str = ""

    @property
    def holds_source(self) -> bool:
        """Whether a source that is searched came from this path."""
        return self.source_id is not None and self.status in ("indexed", "failed")


_COLUMNS = tuple(column.name for column in fields(Entry))


def is_at(connection: apsw.Connection, entry: Entry) -> bool:
    """Return whether the source is still the one of this path: it may have been found under another in the same run."""
    sql = "select coalesce(metadata ->> '$.container', uri) from sources where id = ? and trashed_at is null"
    return fetch_one(connection, sql, (entry.source_id,)) == entry.path


def entries_below(connection: apsw.Connection, collection_id: int, path: str) -> dict[str, Entry]:
    """Return path -> entry of a file, or of a folder and everything in it."""
    sql = f"select {', '.join(_COLUMNS)} from ledger where collection_id = ? and (path = ? or path >= ? and path < ?)"
    rows = fetch_all(connection, sql, (collection_id, path, *range_below(path)))
    return {row[0]: Entry(*row) for row in rows}


def record(connection: apsw.Connection, collection_id: int, root_id: int | None, entries: Iterable[Entry]) -> None:
    """Record the status of paths. Part of the caller's write transaction."""
    seen = {"collection_id": collection_id, "root_id": root_id, "seen_at": utc_now()}
    rows = [{name: getattr(entry, name) for name in _COLUMNS} | seen for entry in entries]
    upsert_rows(connection, "ledger", ("path", "collection_id"), rows)


_WAITING_PAGES = re.compile(r"(?:text recognition|no text layer): ([\d,]+) pages?")


def waiting_scans(connection: apsw.Connection, collection_id: int) -> list[tuple[Entry, int]]:
    """Return the files of a collection with scans that no text was recognized in yet, and their pages; few come first.

    Those of which a reason says so: no other look-up is needed, and a scan that is gone is forgotten with its file.
    """
    sql = f"""
        select {", ".join(_COLUMNS)} from ledger
        where collection_id = ? and (reason like '% for text recognition: %' or reason like '% has no text layer: %')
    """
    entries = [Entry(*row) for row in fetch_all(connection, sql, (collection_id,))]
    scans = [
        (entry, int(match[1].replace(",", ""))) for entry in entries if (match := _WAITING_PAGES.search(entry.reason))
    ]
    return sorted(scans, key=lambda scan: (scan[1], scan[0].path))


def waiting_pages(connection: apsw.Connection, collection_ids: Iterable[int]) -> int:
    """Return how many pages of scans wait for text recognition in those collections."""
    return sum(pages for owner in collection_ids for _, pages in waiting_scans(connection, owner))


def mark(connection: apsw.Connection, collection_id: int, path: str, status: Status, reason: str) -> None:
    """Change status and reason of a path, and keep the rest of its entry."""
    row = {"path": path, "collection_id": collection_id, "status": status, "reason": reason, "seen_at": utc_now()}
    upsert_rows(connection, "ledger", ("path", "collection_id"), [row])


def removed_folders_above(connection: apsw.Connection, collection_id: int, path: str) -> list[str]:
    """Return the folders above a path that the person removed as a whole, the outermost first."""
    sql = """
        select path from ledger
        where collection_id = ? and status = 'removed' and path in (select value from carray(?)) order by path
    """
    return fetch_column(connection, sql, (collection_id, apsw.carray(_folders_above(path))))


def _folders_above(path: str) -> tuple[str, ...]:
    above: list[str] = []
    while (folder := os.path.dirname(path)) != path:
        above.append(path := folder)
    return tuple(above)


def holds_trashed(connection: apsw.Connection, collection_id: int, folder: str) -> bool:
    """Return whether something from inside a folder is in the trash."""
    sql = """
        select 1 from sources
        where collection_id = ? and uri >= ? and uri < ? and trashed_at is not null limit 1
    """
    return fetch_one(connection, sql, (collection_id, *range_below(folder))) is not None


def holds_removed(connection: apsw.Connection, collection_id: int, folder: str) -> bool:
    """Return whether something inside a folder is still marked as removed."""
    sql = "select 1 from ledger where collection_id = ? and status = 'removed' and path >= ? and path < ? limit 1"
    return fetch_one(connection, sql, (collection_id, *range_below(folder))) is not None


def forget(connection: apsw.Connection, collection_id: int, paths: Iterable[str]) -> None:
    """Delete the entries of paths that no longer mean anything."""
    sql = "delete from ledger where path = ? and collection_id = ?"
    connection.executemany(sql, ((path, collection_id) for path in paths))


def forget_skipped(connection: apsw.Connection, collection_id: int, path: str) -> None:
    """Delete the entries without a source at or below a path."""
    sql = "delete from ledger where collection_id = ? and (path = ? or path >= ? and path < ?) and source_id is null"
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


def range_below(path: str) -> tuple[str, str]:
    """Return the bounds of the paths inside a folder, for the index: `/a/` <= path < `/a0`."""
    prefix = prefix_of(path)
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
