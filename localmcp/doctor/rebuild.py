"""`doctor --fix` makes again what is made from the documents, which themselves are never touched; `optimize` makes
searches faster and the file smaller. Both may be killed anywhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from localmcp.doctor.backups import name_beside
from localmcp.doctor.checks import LOST_PASSAGES, REMADE_TABLES, count_wrong_counts, damaged_tables, owner_of
from localmcp.errors import FileUnavailable
from localmcp.files import abandoned_folders, scratch_folder
from localmcp.humanize import counted
from localmcp.index.consistency import disagreements
from localmcp.index.lexicon import add_to_index
from localmcp.index.multilingual import UNUSED_WORDS
from localmcp.index.reembedding import forget_unused_models, rebuild_signs
from localmcp.index.vector_queue import requeue_collection
from localmcp.quickstarts.store import rebuild_index
from localmcp.storage.connections import connect, truncate_log
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_column, fetch_one

CHUNKS_AT_ONCE = 2000
MERGED_PAGES = 300
"""Pages written by one step of a merge: about 50 ms, between which others get to write."""

DEAD_ROWS = (
    """
    delete from vectors where id in (
        select id from vectors where (id & 1099511627775) not in (select id from chunks)
            and id not in (select embedding from rules where embedding is not null) limit 5000
    )
    """,
    """
    delete from signs where not exists (
        select 1 from collections where collections.id = collection_id and collections.model_id = signs.model_id
    )
    """,
    "delete from words where chunks <= 0 or collection_id not in (select id from collections)",
    "delete from terms where chunks <= 0 or collection_id not in (select id from collections)",
    UNUSED_WORDS,
)


@dataclass(slots=True)
class Repaired:
    """The result of a repair."""

    backup: Path | None = None
    """The file as it was; None when nothing had to be made again."""
    done: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Optimized:
    """The result of an optimization."""

    bytes_before: int
    bytes_after: int = 0
    merged: int = 0
    """Steps in which the keyword indexes were merged."""
    removed: int = 0
    """Rows that belonged to nothing."""
    vacuumed: bool = False
    notes: list[str] = field(default_factory=list[str])


# ---------------------------------------------------------------- repair


def repair(database: Database, say: Callable[[str], None] = lambda _: None) -> Repaired:
    """Fix what is safe to fix, after copying the file. Each part is one transaction: a kill leaves it done or undone.

    Raises:
        FileUnavailable: the file is read-only or locked, or the disk is full; nothing is half done.
    """
    database.ensure_writable()
    repaired = Repaired()
    say("Looking for damage")
    tables, is_wrong = _find_damage(database.path)
    if is_wrong:
        say("Copying the file")
        repaired.backup = _copy(database)
        repaired.done.append(f"copied the file to {repaired.backup}")
        if tables:
            _empty_tables(database, tables)
            repaired.done.append(f"emptied what cannot be read: {', '.join(sorted(tables)) or 'spare pages'}")
        removed = _delete_wrong_vectors(database) + remove_dead_rows(database)
        if removed or "vectors" in tables:
            text = f"deleted {removed} rows that belonged to nothing; `localmcp refresh` makes what is missing"
            repaired.done.append(text)
        say("Making the indexes again")
        passages = counted(_rebuild_words(database), "passage")
        sql = "select id, model_id from collections where model_id is not null and kind = 'documents'"
        with database.write() as connection:
            codes = sum(rebuild_signs(connection, *collection) for collection in fetch_all(connection, sql))
        repaired.done.append(f"made the keyword index again from {passages}, and {counted(codes, 'sign code')} again")
    for scrap in abandoned_folders(database.path.parent):
        shutil.rmtree(scrap, ignore_errors=True)
        repaired.done.append(f"deleted {scrap.name}, which was left behind")
    log = database.path.with_name(f"{database.path.name}-wal")
    if log.exists() and log.stat().st_size and truncate_log(database.path):
        repaired.done.append("brought the write-ahead log into the file")
    return repaired


def _find_damage(path: Path) -> tuple[frozenset[str], bool]:
    """Return the tables that cannot be read, and whether anything has to be made again, from a separate look.

    Raises:
        FileUnavailable: a table is damaged that only a backup brings back.
    """
    with closing(Database(path, read_only=True)) as database, database.read() as connection:
        tables = frozenset(damaged_tables(connection))
        if lost := tables - REMADE_TABLES:
            message = f"{path} is damaged where nothing can make it again: {', '.join(sorted(lost))}."
            raise FileUnavailable(message, hint="Restore a backup: localmcp restore FILE")
        if tables:
            return tables, True
        problems = [text for text in disagreements(connection) if not any(part in text for part in LOST_PASSAGES)]
        return tables, bool(problems or count_wrong_counts(connection))


def _copy(database: Database) -> Path:
    target = name_beside(database.path, "before-repair")
    with scratch_folder(target.parent) as scratch:
        copy = scratch / "copy"
        try:
            database.copy_to(copy)
        except FileUnavailable:
            # Pages that cannot be read are copied as they are.
            copy.unlink(missing_ok=True)
            truncate_log(database.path)
            try:
                shutil.copy2(database.path, copy)
            except OSError as error:
                raise FileUnavailable(f"{target} cannot be written: {error.strerror}.") from error
        os.replace(copy, target)
    return target


def _empty_tables(database: Database, tables: frozenset[str]) -> None:
    """Make tables anew. SQLite cannot delete pages that it cannot read; rewriting the file leaves them behind."""
    sql = "select tbl_name, sql from sqlite_schema order by type = 'index'"
    with closing(connect(database.path)) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute("begin immediate")
        parts = [(table, made_by) for table, made_by in fetch_all(connection, sql) if owner_of(table) in tables]
        connection.pragma("writable_schema", True)
        connection.executemany("delete from sqlite_schema where tbl_name = ?", {(table,) for table, _ in parts})
        connection.pragma("writable_schema", "reset")
        for table, made_by in parts:
            if made_by and table in tables:
                connection.execute(made_by)
        connection.execute("commit")
        connection.execute("vacuum")


def _delete_wrong_vectors(database: Database) -> int:
    with database.write() as connection:
        connection.execute("""
            delete from vectors where id in (
                select vectors.id from vectors left join models on models.id = vectors.id >> 40
                where length(embedding) is not 4 * dimension
            )
        """)
        removed = connection.changes()
        connection.execute("update rules set embedding = null where embedding not in (select id from vectors)")
        for collection_id in fetch_column(connection, "select id from collections"):
            requeue_collection(connection, collection_id)
        return removed


def _rebuild_words(database: Database) -> int:
    """Rebuild the index in one transaction: a search in between finds the old one. 20 s for 100,000 passages."""
    live_chunks = """
        select chunks.id from chunks join sources on sources.id = source_id
        where collection_id = ? and trashed_at is null order by chunks.id
    """
    total = 0
    with database.write() as connection:
        connection.execute("insert into chunks_fts (chunks_fts) values ('delete-all')")
        connection.execute("delete from words")
        connection.execute("delete from terms")
        for collection_id in fetch_column(connection, "select id from collections"):
            ids = fetch_column(connection, live_chunks, (collection_id,))
            for start in range(0, len(ids), CHUNKS_AT_ONCE):
                add_to_index(connection, collection_id, ids[start : start + CHUNKS_AT_ONCE])
            total += len(ids)
        connection.execute("""
            update groups set chunks = (
                select count(*) from chunks join sources on sources.id = source_id
                where group_id = groups.id and trashed_at is null
            )
        """)
        rebuild_index(connection)
        bump_generations(connection, "content")
    return total


# ---------------------------------------------------------------- optimization


def optimize(database: Database, say: Callable[[str], None] = lambda _: None) -> Optimized:
    """Merge the keyword indexes, delete dead rows, and rewrite the file when a fifth of it is empty.

    Every step is a separate transaction.

    Raises:
        FileUnavailable: the file is read-only, locked, or the disk is full; what was done is kept.
    """
    database.ensure_writable()
    done = Optimized(database.size())
    say("Looking for what belongs to nothing")
    done.removed = remove_dead_rows(database)
    for index in ("chunks_fts", "quickstarts_fts"):
        say(f"Merging {index}")
        # A negative number of pages starts, positive ones go on until the number of changes stays below 2:
        # https://www.sqlite.org/fts5.html#the_merge_command
        pages, changes = -MERGED_PAGES, 2
        while changes >= 2:
            with database.write() as connection:
                before = connection.total_changes()
                connection.execute(f"insert into {index} ({index}, rank) values ('merge', ?)", (pages,))
                changes = connection.total_changes() - before
            done.merged, pages = done.merged + (changes >= 2), MERGED_PAGES
    with database.write() as connection:
        connection.execute("pragma optimize")
        empty = fetch_one(connection, "pragma freelist_count") / max(fetch_one(connection, "pragma page_count"), 1)
    if empty >= 0.2:
        say("Writing the file anew")
        _vacuum(database, done)
    truncate_log(database.path)
    done.bytes_after = database.size()
    return done


def remove_dead_rows(database: Database) -> int:
    """Delete rows that belong to nothing; return how many.

    Vectors of no passage, sign codes of no collection or of a model that does not answer, words that nothing counts.
    """
    removed = 0
    for sql in DEAD_ROWS:
        count = -1
        while count:
            with database.write() as connection:
                connection.execute(sql)
                count = connection.changes()
            removed += count
    with database.write() as connection:
        forget_unused_models(connection)
    return removed


def _vacuum(database: Database, done: Optimized) -> None:
    """Rewrite the file through the log, which takes twice its size until the new pages are committed."""
    free, needed = shutil.disk_usage(database.path.parent).free, 2 * database.path.stat().st_size
    if free < needed:
        done.notes.append("There is not enough room to write the file anew; it needs twice its size for a moment.")
        return
    try:
        with closing(connect(database.path)) as connection:
            connection.set_busy_timeout(5000)
            connection.execute("vacuum")
            done.vacuumed = True
    except (apsw.BusyError, apsw.LockedError):
        done.notes.append("Others are writing; the empty pages stay until the next time.")
    except apsw.FullError:
        done.notes.append("The disk is too full to write the file anew; it is as it was.")
