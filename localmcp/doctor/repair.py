"""`doctor --fix`: make again what is made from the documents, which themselves are never touched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from localmcp.doctor.backups import name_beside
from localmcp.doctor.contents import count_wrong_counts
from localmcp.doctor.file import REMADE_TABLES, damaged_tables, owner_of
from localmcp.doctor.location import unfinished_beside
from localmcp.doctor.optimization import remove_dead_rows
from localmcp.errors import FileUnavailable
from localmcp.humanize import counted
from localmcp.index.consistency import disagreements
from localmcp.index.lexicon import add_to_index
from localmcp.index.reembedding import rebuild_signs
from localmcp.index.vector_queue import requeue_collection
from localmcp.quickstarts.store import rebuild_index
from localmcp.storage.connections import connect, truncate_log
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_column, fetch_one

AT_ONCE = 2000
"""Chunks whose words are counted together."""


@dataclass(slots=True)
class Repaired:
    """The result of a repair."""

    backup: Path | None = None
    """The file as it was; None when nothing had to be made again."""
    done: list[str] = field(default_factory=list[str])


def repair(database: Database, say: Callable[[str], None] = lambda _: None) -> Repaired:
    """Fix what is safe to fix, after copying the file. Each part is one transaction: a kill leaves it done or undone.

    Raises:
        FileUnavailable: the file is read-only or locked, or the disk is full; nothing is half done.
    """
    database.ensure_writable()
    repaired = Repaired()
    say("Looking for damage")
    tables, problems = _find_damage(database.path)
    if tables or problems:
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
        chunks, codes = _rebuild_words(database), _rebuild_signs(database)
        text = (
            f"made the keyword index again from {counted(chunks, 'passage')}, and {counted(codes, 'sign code')} again"
        )
        repaired.done.append(text)
    _tidy(database, repaired)
    return repaired


def _find_damage(path: Path) -> tuple[frozenset[str], list[str]]:
    """Return the tables that cannot be read, or else what does not agree, from a separate look at the file.

    Raises:
        FileUnavailable: a table is damaged that only a backup brings back.
    """
    with closing(Database(path, read_only=True)) as database, database.read() as connection:
        tables = frozenset(damaged_tables(connection))
        if lost := tables - REMADE_TABLES:
            message = f"{path} is damaged where nothing can make it again: {', '.join(sorted(lost))}."
            raise FileUnavailable(message, hint="Restore a backup: localmcp restore FILE")
        if tables:
            return tables, []
        lost_passages = ("another number of passages", "do not continue")
        problems = [text for text in disagreements(connection) if not any(part in text for part in lost_passages)]
        return tables, [*problems, *(["counts"] if count_wrong_counts(connection) else [])]


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


def _copy(database: Database) -> Path:
    target = name_beside(database.path, "before-repair")
    part = target.with_name(f"{target.name}.part")
    # A repair that was killed within this second has left its own.
    part.unlink(missing_ok=True)
    try:
        database.copy_to(part)
    except FileUnavailable:
        # Pages that cannot be read are copied as they are.
        part.unlink(missing_ok=True)
        truncate_log(database.path)
        try:
            shutil.copy2(database.path, part)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise FileUnavailable(f"{target} cannot be written: {error.strerror}.") from error
    part.replace(target)
    return target


def _delete_wrong_vectors(database: Database) -> int:
    sql = """
        delete from vectors where id in (
            select vectors.id from vectors left join models on models.id = vectors.id >> 40
            where length(embedding) is not 4 * dimension
        )
    """
    with database.write() as connection:
        connection.execute(sql)
        removed = connection.changes()
        connection.execute("update rules set embedding = null where embedding not in (select id from vectors)")
        for collection_id in fetch_column(connection, "select id from collections"):
            requeue_collection(connection, collection_id)
        return removed


def _rebuild_words(database: Database) -> int:
    """Rebuild the index in one transaction: a search in between finds the old one. 20 s for 100,000 passages."""
    with database.write() as connection:
        connection.execute("insert into chunks_fts (chunks_fts) values ('delete-all')")
        connection.execute("delete from words")
        connection.execute("delete from terms")
        total = 0
        for collection_id in fetch_column(connection, "select id from collections"):
            ids = fetch_column(connection, _LIVE_CHUNKS, (collection_id,))
            for start in range(0, len(ids), AT_ONCE):
                add_to_index(connection, collection_id, ids[start : start + AT_ONCE])
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


_LIVE_CHUNKS = """
    select chunks.id from chunks join sources on sources.id = source_id
    where collection_id = ? and trashed_at is null order by chunks.id
"""


def _rebuild_signs(database: Database) -> int:
    total = 0
    with database.read() as connection:
        sql = "select id from collections where model_id is not null and kind = 'documents'"
        ids = fetch_column(connection, sql)
    for collection_id in ids:
        with database.write() as connection:
            model_id = fetch_one(connection, "select model_id from collections where id = ?", (collection_id,))
            total += rebuild_signs(connection, collection_id, model_id) if model_id is not None else 0
    return total


def _tidy(database: Database, repaired: Repaired) -> None:
    for scrap in unfinished_beside(database.path):
        if scrap.is_dir():
            shutil.rmtree(scrap, ignore_errors=True)
        else:
            scrap.unlink(missing_ok=True)
        repaired.done.append(f"deleted {scrap.name}, which was left behind")
    log = database.path.with_name(f"{database.path.name}-wal")
    if log.exists() and log.stat().st_size and truncate_log(database.path):
        repaired.done.append("brought the write-ahead log into the file")
