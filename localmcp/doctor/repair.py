"""`doctor --fix`: make again what is made from the documents, which themselves are never touched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from localmcp.doctor.backups import name_beside
from localmcp.doctor.contents import ABANDONED_SECONDS, STUCK_JOBS, count_wrong_counts
from localmcp.doctor.file import REMADE_TABLES, VECTOR_TABLES, WORD_TABLES, damaged_tables, owner_of
from localmcp.doctor.location import unfinished_beside
from localmcp.doctor.optimization import remove_dead_rows, truncate_log
from localmcp.errors import FileUnavailable
from localmcp.humanize import counted
from localmcp.index.consistency import disagreements
from localmcp.index.lexicon import add_to_index
from localmcp.index.reembedding import KIND as REEMBED
from localmcp.index.reembedding import rebuild_signs
from localmcp.index.vector_queue import requeue_collection
from localmcp.quickstarts.store import rebuild_index
from localmcp.storage.connections import open_copy
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_column, fetch_one
from localmcp.storage.times import utc_now

AT_ONCE = 2000
"""Chunks whose words are counted together."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Damage that can be repaired from the documents."""

    words: bool = False
    """The keyword index, or the counts of words and groups."""
    signs: bool = False
    vectors: bool = False
    """There are vectors of the wrong length, or of no passage."""
    tables: frozenset[str] = frozenset()
    """Tables with pages that cannot be read."""

    def __bool__(self) -> bool:
        return self.words or self.signs or self.vectors or bool(self.tables)


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
    damage = find_damage(database.path)
    if damage:
        say("Copying the file")
        repaired.backup = _copy(database)
        repaired.done.append(f"copied the file to {repaired.backup}")
    if damage.tables:
        _empty_tables(database, damage.tables)
        repaired.done.append(f"emptied what cannot be read: {', '.join(sorted(damage.tables)) or 'spare pages'}")
    if damage.vectors:
        removed = _delete_wrong_vectors(database) + remove_dead_rows(database)
        repaired.done.append(
            f"deleted {removed} rows that belonged to nothing; `localmcp refresh` makes what is missing"
        )
    if damage.words:
        say("Making the keyword index again")
        chunks = _rebuild_words(database)
        repaired.done.append(f"made the keyword index again from {counted(chunks, 'passage')}")
    if damage.signs or damage.vectors:
        say("Making the sign codes again")
        repaired.done.append(f"made {counted(_rebuild_signs(database), 'sign code')} again")
    _tidy(database, repaired)
    return repaired


def find_damage(path: Path) -> Damage:
    """Return what of a file has to be made again, from a separate look at it.

    Raises:
        FileUnavailable: a table is damaged that only a backup brings back.
    """
    with closing(Database(path, read_only=True)) as database, database.read() as connection:
        if damages := damaged_tables(connection).keys():
            return _damage_of_tables(path, frozenset(damages))
        wrong = disagreements(connection)
        counts = count_wrong_counts(connection)
    return Damage(
        words=bool(counts) or any("keyword index" in problem for problem in wrong),
        signs=any("sign code" in problem for problem in wrong),
        vectors=any(problem.endswith(("belong to no model", "belong to no passage")) for problem in wrong),
    )


def _damage_of_tables(path: Path, tables: frozenset[str]) -> Damage:
    if lost := tables - REMADE_TABLES:
        message = f"{path} is damaged where nothing can make it again: {', '.join(sorted(lost))}."
        raise FileUnavailable(message, hint="Restore a backup: localmcp restore FILE")
    if tables & VECTOR_TABLES:
        tables |= VECTOR_TABLES
    return Damage(bool(tables & WORD_TABLES), "signs" in tables, bool(tables & VECTOR_TABLES), tables)


def _empty_tables(database: Database, tables: frozenset[str]) -> None:
    """Make tables anew. SQLite cannot delete pages that it cannot read; rewriting the file leaves them behind."""
    sql = "select tbl_name, sql from sqlite_schema order by type = 'index'"
    with closing(open_copy(database.path)) as connection:
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
            ids = _live_chunks(connection, collection_id)
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
        bump_generations(connection, "content", "words")
    return total


def _live_chunks(connection: apsw.Connection, collection_id: int) -> list[int]:
    sql = """
        select chunks.id from chunks join sources on sources.id = source_id
        where collection_id = ? and trashed_at is null order by chunks.id
    """
    return fetch_column(connection, sql, (collection_id,))


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
    ended = _end_stuck_jobs(database)
    if ended:
        repaired.done.append(f"ended {counted(ended, 'job')} that nobody worked on")
    for scrap in unfinished_beside(database.path):
        if scrap.is_dir():
            shutil.rmtree(scrap, ignore_errors=True)
        else:
            scrap.unlink(missing_ok=True)
        repaired.done.append(f"deleted {scrap.name}, which was left behind")
    log = database.path.with_name(f"{database.path.name}-wal")
    if log.exists() and log.stat().st_size and truncate_log(database.path):
        repaired.done.append("brought the write-ahead log into the file")


def _end_stuck_jobs(database: Database) -> int:
    bindings = {"before": utc_now(ABANDONED_SECONDS), "ours": REEMBED}
    with database.read() as connection:
        if not fetch_one(connection, STUCK_JOBS, bindings):
            return 0
    with database.write() as connection:
        connection.execute(
            """
            update jobs set status = 'failed', message = 'its program ended; run it again', finished_at = :now
            where status = 'running' and heartbeat_at < :before and kind not in (:ours, 'words')
            """,
            {**bindings, "now": utc_now()},
        )
        return connection.changes()
