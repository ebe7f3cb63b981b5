"""Move sources to the trash, restore them, or delete them for good."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import apsw

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import unicode_path
from localmcp.index.collections import Collection
from localmcp.index.sources import clear_collection, purge_sources, restore_source, trash_sources
from localmcp.index.trash import (
    dropped_partition_of,
    restore_collection,
    restore_partition,
    restore_version,
    return_to_partition,
)
from localmcp.library.ledger import (
    Root,
    Status,
    forget,
    forget_purged,
    forget_root,
    forget_skipped,
    holds_removed,
    holds_trashed,
    mark,
    owner_of,
    range_below,
    remove_root,
    remove_roots,
    removed_folders_above,
    removed_roots_above,
    roots_of,
    save_root,
    values_of,
)
from localmcp.library.names import SELECT_ROW, Ambiguous, SourceRow, find_source, is_uuid, nearest_source
from localmcp.library.walk import below
from localmcp.schemas import nearest
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.times import utc_moment, utc_now, utc_text
from localmcp.storage.trash import TrashEntry, read_trashed, take_from_trash, trash_entries
from localmcp.tools import current_scope


@dataclass(frozen=True, slots=True)
class Removal:
    """The documents that one target of `remove` means."""

    sources: list[SourceRow] = field(default_factory=list[SourceRow])
    path: str | None = None
    """Set when the target is a path: what was added there is forgotten too."""

    def path_of(self, row: SourceRow) -> str | None:
        """Return what is marked as removed with a source: the whole file, if its documents are removed with it."""
        return self.path if row.uri is not None and row.uri.startswith(f"{self.path}#") else row.uri


def canonical_path(target: str | os.PathLike[str]) -> str:
    """Return the absolute path by which the library knows a file; links in the folders above it are resolved."""
    path = os.path.abspath(os.path.expanduser(target))
    return unicode_path(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))


# ---------------------------------------------------------------- finding


def find_removal(connection: apsw.Connection, collections: Sequence[Collection], target: str) -> Removal:
    """Return the sources of a UUID, a path (a file, or a folder with all in it), or a title that only one source has.

    Raises:
        NotFound: none of the three; names the nearest title.
        InvalidInput: nothing is named, or a title that several sources have.
    """
    if not target:
        raise InvalidInput("Name a document by its id, path or title ('.' is the current folder).")
    target = unicode_path(target)
    if is_uuid(target) and (matching := _live_sources(connection, collections, "uuid = ?", target.lower())):
        return Removal(matching)
    path = canonical_path(target)
    matching = _sources_at(connection, collections, target, path)
    if matching or _is_of_collections(connection, collections, path):
        return Removal(matching, path)
    matching = _live_sources(connection, collections, "title = ?", target)
    if len(matching) > 1:
        ids = ", ".join(row.uuid for row in matching[:5])
        raise InvalidInput(f"'{target}' is the title of {len(matching)} documents.", hint=f"Name one by its id: {ids}.")
    if not matching:
        try:
            is_trashed = find_source(connection, target, trashed=True) is not None
        except Ambiguous:
            is_trashed = True
        if is_trashed:
            raise NotFound(f"'{target}' is in the trash already.")
        near = nearest_source(connection, target)
        raise NotFound(f"No document '{target}'.", hint=f"Did you mean '{near}'?" if near else None)
    return Removal(matching)


def still_there(connection: apsw.Connection, collections: Sequence[Collection], removal: Removal) -> list[SourceRow]:
    """Return the sources at a removed path that another process has added since they were found."""
    return _sources_at(connection, collections, removal.path, removal.path) if removal.path else []


def documents_in(connection: apsw.Connection, collection_id: int, path: str) -> list[tuple[int, str]]:
    """Return (id, uri) of the documents in a file, such as the messages of a mailbox; none for an ordinary file."""
    sql = """
        select id, uri from sources where collection_id = ? and uri >= ? and uri < ? and trashed_at is null
            and metadata ->> '$.container' = ?
    """
    return fetch_all(connection, sql, (collection_id, f"{path}#", f"{path}$", path))


def count_documents(connection: apsw.Connection, collection_id: int, paths: Sequence[str]) -> int:
    """Return how many documents came out of indexed files; at least one counts for each file."""
    sql = """
        select max(1, (
            select count(*) from sources where collection_id = ?1 and uri = value and trashed_at is null
        ) + (
            select count(*) from sources where collection_id = ?1 and uri >= value || '#' and uri < value || '$'
                and trashed_at is null and metadata ->> '$.container' = value
        )) from carray(?2)
    """
    return sum(row[0] for row in fetch_all(connection, sql, (collection_id, apsw.carray(tuple(paths))))) if paths else 0


def _sources_at(
    connection: apsw.Connection, collections: Sequence[Collection], target: str, path: str
) -> list[SourceRow]:
    """Return the sources of an address or a file, of what came out of it, and of the files in a folder."""
    # Apart from each other, so that each of them reads an index: thousands of documents may be removed at once.
    rows = [
        *_live_sources(connection, collections, "uri = ?", target),
        *_live_sources(connection, collections, "uri = ?", path),
        *_live_sources(connection, collections, "uri >= ? and uri < ?", *range_below(path)),
    ]
    for collection in collections:
        for number, _ in documents_in(connection, collection.id, path):
            rows += _live_sources(connection, [collection], "id = ?", number)
    return sorted({row.id: row for row in rows}.values(), key=lambda row: row.id)


def _live_sources(
    connection: apsw.Connection, collections: Sequence[Collection], condition: str, *bindings: str | int
) -> list[SourceRow]:
    sql = f"{SELECT_ROW} where collection_id = ? and trashed_at is null and {condition} order by id"
    rows = [row for collection in collections for row in fetch_all(connection, sql, (collection.id, *bindings))]
    return sorted((SourceRow(*row) for row in rows), key=lambda row: row.id)


def _is_of_collections(connection: apsw.Connection, collections: Sequence[Collection], path: str) -> bool:
    collection_ids = {collection.id for collection in collections}
    if any(below(root.path, path) for root in roots_of(connection, collection_ids)):
        return True
    rows = fetch_all(connection, "select collection_id from ledger where path = ?", (path,))
    return any(row[0] in collection_ids for row in rows)


def note_removal(connection: apsw.Connection, collections: Sequence[Collection], removal: Removal, reason: str) -> None:
    """Note a removal in roots and ledger, so that no later walk brings it back. Part of the write transaction.

    The sources themselves are put into the trash by `move_to_trash`.
    """
    for row in removal.sources:
        if path := removal.path_of(row):
            remove_root(connection, row.collection_id, path)
            mark(connection, row.collection_id, path, "removed", reason)
    if removal.path is None:
        return
    for collection in collections:
        remove_roots(connection, collection.id, removal.path)
        forget_skipped(connection, collection.id, removal.path)
        outer = [r for r in roots_of(connection, [collection.id]) if r.kind == "folder" and below(removal.path, r.path)]
        if outer:
            # A folder stays marked as a whole: what is put into it later is not wanted either.
            mark(connection, collection.id, removal.path, "removed", reason)


def move_to_trash(
    connection: apsw.Connection, sources: Iterable[tuple[int, int, str | None]], status: Status, reason: str
) -> int:
    """Move sources (id, collection id, path) to the trash with what came out of their files, and note it in the ledger.

    Returns how many documents.
    """
    rows = list(sources)
    inside = [number for _, owner, path in rows if path for number, _ in documents_in(connection, owner, path)]
    count = trash_sources(connection, dict.fromkeys([*(source_id for source_id, _, _ in rows), *inside]))
    for _, collection_id, path in rows:
        if path is not None:
            mark(connection, collection_id, path, status, reason)
    return count


# ---------------------------------------------------------------- restoring, or deleting for good


def trashed_sources(connection: apsw.Connection, collections: Sequence[Collection]) -> list[tuple[SourceRow, str]]:
    """Return what is in the trash, and since when; the latest first."""
    sql = """
        select id, uuid, collection_id, title, uri, trashed_at from sources
        where trashed_at is not null order by trashed_at desc, id desc
    """
    collection_ids = {collection.id for collection in collections}
    return [(SourceRow(*row[:5]), row[5]) for row in fetch_all(connection, sql) if row[2] in collection_ids]


def named_in_trash(connection: apsw.Connection, collections: Sequence[Collection], name: str) -> list[SourceRow]:
    """Return the sources in the trash that a name means: one, or those from a folder or a mailbox.

    Raises:
        NotFound: there is none; names the nearest.
        Ambiguous: several have that title; the hint lists them.
    """
    if name.startswith("trash:") and (entry := _entry_named(connection, name)):
        return [entry]
    if source := find_source(connection, unicode_path(name), trashed=True):
        return [source]
    if entry := _entry_named(connection, name):
        return [entry]
    rows = [row for row, _ in trashed_sources(connection, collections)]
    place = os.path.normcase(canonical_path(name))
    # Of a file that was removed twice, the last version.
    by_path = {row.uri: row for row in reversed(rows) if row.uri}
    inside = {
        path: row
        for path, row in by_path.items()
        if below(os.path.normcase(path), place) or os.path.normcase(path).startswith(f"{place}#")
    }
    if inside:
        return list(inside.values())
    near = nearest(name, [row.title for row in rows] + [row.uri for row in rows if row.uri])
    see = "See what is in it: localmcp trash list   (as a tool: list_trash)" if rows else "The trash is empty."
    hint = f"The nearest there is '{near}'." if near else see
    raise NotFound(f"No document '{name}' in the trash.", hint=hint)


def bring_back(connection: apsw.Connection, rows: Iterable[SourceRow]) -> None:
    """Restore sources that are in the trash. Part of the write transaction.

    Raises:
        InvalidInput: another version of the same file has been added meanwhile.
    """
    files: dict[tuple[int, str], None] = {}
    for row in rows:
        sql = "select uuid from sources where collection_id = ? and uri = ? and trashed_at is null"
        newer = fetch_one(connection, sql, (row.collection_id, row.uri))
        if newer:
            raise InvalidInput(f"{row.uri} is in the library again, as {newer}.", hint="Remove that one first.")
        restore_source(connection, row.id)
        if (dropped := dropped_partition_of(connection, row.id)) is not None:
            [entry] = [entry for entry in trash_entries(connection) if entry.id == dropped]
            return_to_partition(connection, entry, [row.id])
        if row.uri is not None and (path := _note_return(connection, row.id)):
            files[row.collection_id, path] = None
    # Only now: a folder is watched again when all of it is back.
    for collection_id, path in files:
        _watch_again(connection, collection_id, path)


def _note_return(connection: apsw.Connection, source_id: int) -> str | None:
    """Return the file to watch again; without one that is still there the text is kept until it is removed."""
    sql = "select collection_id, uri, size, mtime_ns, sha256, metadata ->> '$.container' from sources where id = ?"
    collection_id, uri, size, mtime_ns, sha256, container = fetch_one(connection, sql, (source_id,))
    if container and os.path.lexists(container):
        _follow_container(connection, collection_id, source_id, uri, container)
        return container
    there = os.path.lexists(uri)
    mark(connection, collection_id, uri, "indexed" if there else "kept", "brought back from the trash")
    connection.execute(
        "update ledger set source_id = ?, size = ?, mtime_ns = ?, sha256 = ? where path = ? and collection_id = ?",
        (source_id, size, mtime_ns, sha256, uri, collection_id),
    )
    return uri if there else None


def _follow_container(
    connection: apsw.Connection, collection_id: int, source_id: int, uri: str, container: str
) -> None:
    """Follow a file again, such as a mailbox, of which a document is back; what was removed with it stays out."""
    forget(connection, collection_id, [uri])
    # The document may have changed while it was in the trash: a file that has is read again by the next refresh.
    sql = """
        update ledger set size = null, mtime_ns = null, sha256 = null where collection_id = ? and path = ?
            and mtime_ns is not (select mtime_ns from sources where id = ?)
    """
    connection.execute(sql, (collection_id, container, source_id))
    sql = "select status from ledger where collection_id = ? and path = ?"
    if fetch_one(connection, sql, (collection_id, container)) == "removed":
        sql = """
            select distinct uri from sources where collection_id = ? and uri >= ? and uri < ? and trashed_at is not null
                and metadata ->> '$.container' = ?
        """
        for other in fetch_column(connection, sql, (collection_id, f"{container}#", f"{container}$", container)):
            mark(connection, collection_id, other, "removed", "removed with the file that it is in")
        mark(connection, collection_id, container, "indexed", "brought back from the trash")
        sql = "update ledger set source_id = ? where collection_id = ? and path = ?"
        connection.execute(sql, (source_id, collection_id, container))


def _watch_again(connection: apsw.Connection, collection_id: int, path: str) -> None:
    """Watch a file again as it was: a removed folder above it when all of it is back, until then the file alone.

    Else its changes would go unseen, or the next refresh would put it into the trash again, with its folder.
    """
    owner = owner_of(path, roots_of(connection, [collection_id]))
    removed = removed_roots_above(connection, collection_id, path)
    removed = [root for root in removed if owner is None or below(root.path, owner.path)]
    complete = (r for r in removed if r.path == path or not holds_trashed(connection, collection_id, r.path))
    root = next(complete, None)
    folders = removed_folders_above(connection, collection_id, path)
    if root is not None:
        save_root(connection, root)
        forget(connection, collection_id, [folder for folder in folders if below(folder, root.path)])
        _forget_files_watched_alone(connection, collection_id, root.path)
    elif removed:
        _watch_alone(connection, removed[-1], path)
    elif owner is not None and any(holds_removed(connection, collection_id, folder) for folder in folders):
        _watch_alone(connection, owner, path)
    elif owner is not None and folders:
        forget(connection, collection_id, folders)
        _forget_files_watched_alone(connection, collection_id, folders[0])


def _watch_alone(connection: apsw.Connection, owner: Root, path: str) -> None:
    save_root(connection, replace(owner, path=path, kind="file", title=None, id=None))


def _forget_files_watched_alone(connection: apsw.Connection, collection_id: int, folder: str) -> None:
    """Leave the files in a folder to the root above them, where that stores the same with them."""
    roots = roots_of(connection, [collection_id])
    for root in roots:
        outer = owner_of(os.path.dirname(root.path), roots)
        if root.kind == "file" and below(root.path, folder) and outer and values_of(root) == values_of(outer):
            forget_root(connection, collection_id, root.path)


END_OF_TIME = "9999-12-31T23:59:59.999Z"
"""After every time that a file holds."""


def purge(database: Database, days: float) -> int:
    """Delete for good what has been in the trash longer than `days`, and what no longer serves a purpose."""
    # For 0 days all of it, also what was put there before a clock was set back.
    return _purge_before(database, utc_now(86_400 * days) if days > 0 else END_OF_TIME)


def purge_expired(database: Database, days: float) -> int:
    """Do the same unasked: a clock that jumps ahead is not believed before the file was used for a day at its time."""
    if days <= 0:
        return purge(database, days)
    expired = utc_now(86_400 * days)
    with database.read() as connection:
        latest = fetch_one(connection, _LATEST_USE, {"until": utc_now(86_400)})
    shown = utc_text(utc_moment(latest) - timedelta(days=days - 1)) if latest else expired
    return _purge_before(database, min(expired, shown))


def _purge_before(database: Database, moment: str) -> int:
    with database.write() as connection:
        entries = trash_entries(connection, moment)
        dropped = [read_trashed(connection, entry)["id"] for entry in entries if entry.kind == "collection"]
        for entry in entries:
            take_from_trash(connection, entry)
        count = purge_sources(connection, moment) + len(entries)
        forget_purged(connection)
    for collection_id in dropped:
        clear_collection(database, collection_id)
    return count


_LATEST_USE = """
    select max(moment) from (
        select max(started_at) as moment from calls where started_at <= :until
        union all select max(created_at) from sources where created_at <= :until
        union all select max(updated_at) from sources where updated_at <= :until
        union all select max(trashed_at) from sources where trashed_at <= :until
        union all select max(trashed_at) from trash where trashed_at <= :until
    )
"""
"""The last time that the file was used, a day ago or earlier."""


# ---------------------------------------------------------------- overwritten and dropped

Restorer = Callable[[apsw.Connection, TrashEntry], object]


def visible_entries(connection: apsw.Connection) -> list[TrashEntry]:
    """Return what is in the trash beside documents, as far as the caller may see it; the latest first."""
    allowed = current_scope().collections
    entries = trash_entries(connection)
    return [entry for entry in entries if allowed is None or entry.collection is None or entry.collection in allowed]


def entry_row(entry: TrashEntry) -> SourceRow:
    """Return an entry as lists of documents show it; its row id is 0."""
    kinds = {"document": "document before it was replaced", "record": "record before a change"}
    return SourceRow(0, entry.key, 0, f"{entry.name} ({kinds.get(entry.kind, entry.kind)})", None)


def restore_entry(connection: apsw.Connection, key: str, restorers: Mapping[str, Restorer]) -> tuple[str, int | None]:
    """Bring back what `entry_row` showed; returns its kind, and the id of a source whose vectors may be missing.

    Part of the write transaction.
    """
    entry = next(entry for entry in visible_entries(connection) if entry.key == key)
    source_id = None
    if entry.kind in ("document", "record"):
        source_id = restore_version(connection, entry)
    else:
        {"collection": restore_collection, "partition": restore_partition, **restorers}[entry.kind](connection, entry)
    take_from_trash(connection, entry)
    return entry.kind, source_id


def _entry_named(connection: apsw.Connection, name: str) -> SourceRow | None:
    """Return the latest entry of that id, name or title in a list."""
    rows = [(entry, entry_row(entry)) for entry in visible_entries(connection)]
    return next((row for entry, row in rows if name in (entry.key, entry.name, row.title)), None)
