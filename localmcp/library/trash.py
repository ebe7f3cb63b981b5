"""Move sources to the trash, restore them, or delete them for good."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePath

import apsw

from localmcp.errors import InvalidInput, NotFound
from localmcp.files import unicode_path
from localmcp.index import sources as stored
from localmcp.index.collections import Collection, visible_ids
from localmcp.index.multilingual import UNUSED_WORDS
from localmcp.library import ledger
from localmcp.library.names import SELECT_ROW, SourceRow, find_source, is_uuid, nearest_hint, sources_named, spelled
from localmcp.library.walk import below
from localmcp.schemas import nearest
from localmcp.storage import trash as storage
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import utc_moment, utc_now
from localmcp.storage.trash import TrashEntry
from localmcp.tools import current_scope

BROUGHT_BACK = "brought back from the trash"
AT_ONCE = 50
"""Sources put into the trash in one transaction."""


def canonical_path(target: str | os.PathLike[str]) -> str:
    """Return the absolute path by which the library knows a file; links in the folders above it are resolved."""
    path = spelled(os.path.abspath(os.path.expanduser(target)))
    return unicode_path(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))


def find_removal(connection: apsw.Connection, collections: Sequence[Collection], target: str) -> str | int:
    """Return the target if it is a path (file, or folder with all in it), or the id of the source that it names."""
    if not target:
        raise InvalidInput("Name a document by its id, path or title ('.' is the current folder).")
    target = unicode_path(target)
    path, ids = canonical_path(target), {collection.id for collection in collections}
    is_known = any(below(root.path, path) for root in ledger.roots_of(connection, ids)) or not ids.isdisjoint(
        fetch_column(connection, "select collection_id from ledger where path = ?", (path,))
    )
    if not is_uuid(target) and (is_known or sources_of(connection, collections, target, 1)):
        return target
    name = collections[0].name if len(collections) == 1 else None
    if source := find_source(connection, target, collection=name):
        return source.id
    if sources_named(connection, target, trashed=True):
        raise NotFound(f"'{target}' is in the trash already.")
    raise NotFound(f"No document '{target}'.", hint=nearest_hint(connection, target))


def sources_of(
    connection: apsw.Connection, collections: Sequence[Collection], removal: str | int, limit: int = -1
) -> list[SourceRow]:
    """Return the sources that are not in the trash: of an id, or at a path, in it, and what came out of its files."""
    # Apart from each other, so that each of them reads an index: thousands of documents may be removed at once.
    tests: list[tuple[str, tuple[str | int, ...]]] = [("id = ?", (removal,))]
    if isinstance(removal, str):
        path = canonical_path(removal)
        tests = [
            ("uri in (?, ?)", (removal, path)),
            ("uri >= ? and uri < ?", ledger.range_below(path)),
            ("uri >= ? and uri < ? and metadata ->> '$.container' = ?", (f"{path}#", f"{path}$", path)),
        ]
    rows: dict[int, SourceRow] = {}
    for test, values in tests:
        sql = f"{SELECT_ROW} where collection_id = ? and trashed_at is null and {test} limit ?"
        for owner in collections:
            rows |= {row[0]: SourceRow(*row) for row in fetch_all(connection, sql, (owner.id, *values, limit))}
    return [rows[source_id] for source_id in sorted(rows)]


def remove(database: Database, collections: Sequence[Collection], removal: str | int, reason: str) -> int:
    """Put a source, or all at a path, into the trash, so that no later walk brings them back; returns how many."""
    count, path = 0, canonical_path(removal) if isinstance(removal, str) else None
    while True:
        with database.write() as connection:
            rows = sources_of(connection, collections, removal, AT_ONCE)
            # A whole file is marked if its documents are removed with it.
            place = "coalesce(iif(?, metadata ->> '$.container', null), uri)"
            sql = f"select id, collection_id, {place} from sources where id = ?"
            marked = [fetch_one(connection, sql, (path is not None, row.id)) for row in rows]
            count += move_to_trash(connection, marked, "removed", reason)
            for _, collection_id, place in marked:
                if place:
                    ledger.unwatch(connection, collection_id, place, inside=False)
            if path is None:
                return count
            # Others may have come meanwhile.
            for collection in collections if not rows else ():
                ledger.unwatch(connection, collection.id, path)
                # Entries without a source at or below it.
                sql = """
                    delete from ledger
                    where source_id is null and collection_id = ? and (path = ? or path >= ? and path < ?)
                """
                connection.execute(sql, (collection.id, path, *ledger.range_below(path)))
                if any(below(path, root.path) for root in ledger.roots_of(connection, [collection.id])):
                    # A folder stays marked as a whole: what is put into it later is not wanted either.
                    ledger.mark(connection, collection.id, path, "removed", reason)
        if not rows:
            return count


def move_to_trash(
    connection: apsw.Connection, sources: Iterable[tuple[int, int, str | None]], status: ledger.Status, reason: str
) -> int:
    """Move sources (id, collection id, path) and what came out of their files to the trash; returns how many."""
    ids: dict[int, None] = {}
    for source_id, collection_id, path in sources:
        ids[source_id] = None
        if path is not None:
            ids |= dict.fromkeys(number for number, _ in ledger.documents_in(connection, collection_id, path))
            ledger.mark(connection, collection_id, path, status, reason)
    return stored.trash_sources(connection, ids)


def trashed(connection: apsw.Connection) -> list[tuple[SourceRow, str]]:
    """Return what is in the trash, as far as the caller may see it, and since when; the latest first."""
    sql = f"""
        select id, uuid, collection_id, title, uri, trashed_at from sources
        where trashed_at is not null and collection_id in ({visible_ids(connection)})
        order by trashed_at desc, id desc
    """
    documents = [(SourceRow(*row[:5]), row[5]) for row in fetch_all(connection, sql)]
    others = [(row, entry.trashed_at) for row, entry in visible_entries(connection).items()]
    return sorted([*documents, *others], key=lambda row: row[1], reverse=True)


def named_in_trash(connection: apsw.Connection, name: str) -> list[SourceRow]:
    """Return the sources in the trash that a name means: one, or those in a folder or mailbox; else NotFound."""
    entries = visible_entries(connection).items()
    entry = next((row for row, entry in entries if name in (entry.key, entry.name, row.title)), None)
    if entry and name.startswith("trash:"):
        return [entry]
    name = unicode_path(name)
    if source := find_source(connection, name, trashed=True):
        # In each collection that had the file, the last version; not where it is there again.
        last = {row.collection_id: row for row in reversed(sources_named(connection, name, trashed=True))}
        sql = "select collection_id from sources where uri = ? and trashed_at is null"
        again = {*fetch_column(connection, sql, (source.uri,))}
        return [row for owner, row in last.items() if owner not in again] or [*last.values()]
    if entry:
        return [entry]
    held = [row for row, _ in trashed(connection)]
    rows, place = [row for row in held if row.id], os.path.normcase(canonical_path(name))
    by_path = {(row.collection_id, os.path.normcase(row.uri)): row for row in reversed(rows) if row.uri}
    if inside := [row for (_, path), row in by_path.items() if below(path, place) or path.startswith(f"{place}#")]:
        return inside
    near = nearest(name, [row.title for row in rows] + [row.uri for row in rows if row.uri])
    see = "See what is in it: localmcp trash list   (as a tool: list_trash)" if held else "The trash is empty."
    hint = f"The nearest there is '{near}'." if near else see
    raise NotFound(f"No document '{name}' in the trash.", hint=hint)


def bring_back(connection: apsw.Connection, rows: Iterable[SourceRow]) -> None:
    """Restore sources that are in the trash; InvalidInput if another version of a file has been added meanwhile."""
    files: dict[tuple[int, str], None] = {}
    for row in rows:
        stored.restore_source(connection, row.id)
        if row.uri is None:
            continue
        sql = "select size, mtime_ns, sha256, metadata ->> '$.container' from sources where id = ?"
        size, mtime_ns, sha256, container = fetch_one(connection, sql, (row.id,))
        if container and os.path.lexists(container):
            ledger.forget(connection, row.collection_id, [row.uri])
            # It may have changed while it was in the trash: a file that has is read again by the next refresh.
            sql = """
                update ledger set source_id = ?1, size = iif(mtime_ns is ?2, size, null),
                    sha256 = iif(mtime_ns is ?2, sha256, null) where collection_id = ?3 and path = ?4
            """
            connection.execute(sql, (row.id, mtime_ns, row.collection_id, container))
        else:
            # Without a file that is still there the text is kept until it is removed.
            container, status = row.uri, "indexed" if os.path.lexists(row.uri) else "kept"
            values = {"source_id": row.id, "size": size, "mtime_ns": mtime_ns, "sha256": sha256}
            ledger.mark(connection, row.collection_id, row.uri, status, BROUGHT_BACK, **values)
        files[row.collection_id, container] = None
    # Only now: a folder is watched again when all of it is back.
    for collection_id, path in files:
        if os.path.lexists(path):
            _watch_again(connection, collection_id, path)


def _watch_again(connection: apsw.Connection, collection_id: int, path: str) -> None:
    """Watch a file again as it was: with the removed folder around it when all of that is back, until then alone."""
    # Else its changes would go unseen, or the next refresh would put it into the trash again, with its folder. A
    # mailbox, too, is followed again when all of its documents are back.
    watched = ledger.roots_of(connection, [collection_id])
    removed = ledger.roots_of(connection, [collection_id], removed=True)
    around = (path, *map(str, PurePath(path).parents))
    sql = """
        select path from ledger
        where collection_id = ? and status = 'removed' and path in (select value from carray(?))
    """
    places = {*fetch_column(connection, sql, (collection_id, apsw.carray(around)))}
    places |= {root.path for root in removed if root.path in around}
    sql = "select 1 from sources where collection_id = ? and uri >= ? and uri < ? and trashed_at is not null limit 1"
    insides = {place: (f"{path}#", f"{path}$") if place == path else ledger.range_below(place) for place in places}
    still_out = {place for place, inside in insides.items() if fetch_one(connection, sql, (collection_id, *inside))}
    if path in still_out:
        return
    if path in places:
        ledger.mark(connection, collection_id, path, "indexed", BROUGHT_BACK)
    ledger.forget(connection, collection_id, places - still_out - {path})
    for root in (root for root in removed if root.path in places - still_out):
        ledger.save_root(connection, root)
    owner = ledger.owner_of(path, [*watched, *removed])
    if owner and still_out:
        ledger.save_root(connection, replace(owner, path=path, kind="file", title=None))


def purge(database: Database, days: float, *, by_itself: bool = False) -> int:
    """Delete for good what has been in the trash longer than `days`, and what no longer serves a purpose.

    `by_itself`: nobody asks for it, so a clock that jumps ahead is not believed before a day of use.
    """
    if by_itself and days > 0:
        # The last time that the file was used, a day ago or earlier.
        sql = """
            select max(moment) from (select started_at as moment from calls union all select updated_at from sources
                union all select trashed_at from sources union all select trashed_at from trash) where moment <= ?
        """
        with database.read() as connection:
            latest = fetch_one(connection, sql, (utc_now(86_400),))
        since_use = datetime.now(UTC) - utc_moment(latest) if latest else timedelta(1)
        days += max(since_use / timedelta(1) - 1, 0)
    # For 0 days all of it, also what was put there before a clock was set back.
    moment = utc_now(86_400 * days) if days > 0 else "9999-12-31"
    with database.write() as connection:
        entries = storage.trash_entries(connection, moment)
        dropped = [storage.read_trashed(connection, entry)["id"] for entry in entries if entry.kind == "collection"]
        for entry in entries:
            storage.take_from_trash(connection, entry)
        count = stored.purge_sources(connection, moment) + len(entries)
        if entries or not by_itself:
            # The words of versions are in passages no more, nor are those of what was edited.
            connection.execute(UNUSED_WORDS)
        # What is known of files that are gone and whose sources have left the trash; `removed` marks stay.
        gone = "status = 'missing' and not exists (select 1 from sources where sources.id = ledger.source_id)"
        sql = f"(path, collection_id) in (select path, collection_id from ledger where {gone})"
        connection.execute(f"delete from roots where kind = 'file' and {sql}")
        connection.execute(f"delete from ledger where {gone}")
        connection.execute(f"""
            delete from roots where not {ledger.WATCHED} and not exists (
                select 1 from sources
                where sources.collection_id = roots.collection_id and trashed_at is not null
                    and substr(uri, 1, length(path)) = path
            )
        """)
    for collection_id in dropped:
        stored.clear_collection(database, collection_id)
    return count


def visible_entries(connection: apsw.Connection) -> dict[SourceRow, TrashEntry]:
    """Return what the caller may see in the trash beside documents, the latest first, by its row in lists (id 0)."""
    allowed = current_scope().collections
    kinds = {"document": "document before it was replaced", "record": "record before a change"}
    return {
        SourceRow(0, entry.key, 0, f"{entry.name} ({kinds.get(entry.kind, entry.kind)})", None): entry
        for entry in storage.trash_entries(connection)
        if allowed is None or entry.collection is None or entry.collection in allowed
    }
