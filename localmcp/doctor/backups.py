"""Back up, restore, repair and optimize the file while others have it open. All of it may be killed anywhere."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import apsw

from localmcp.errors import AlteredSchema, FileUnavailable, InvalidInput, LocalMCPError, NotOurFile
from localmcp.files import abandoned_folders, expand_home, make_private_folder, scratch_folder
from localmcp.humanize import counted
from localmcp.index.multilingual import UNUSED_WORDS
from localmcp.index.sources import add_to_index, disagreements
from localmcp.index.vector_queue import forget_unused_models, rebuild_signs, requeue_collection
from localmcp.packs.pack import Verification, count_contents, verify
from localmcp.quickstarts.store import rebuild_index
from localmcp.schemas import Json
from localmcp.storage.adoption import Dropped, copy_rows, free_name, keep_bytes, replace_file
from localmcp.storage.connections import connect, truncate_log
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_column, fetch_one, translate_error
from localmcp.storage.schema import adopt_file

REMADE_TABLES = frozenset({"words", "terms", "chunks_fts", "quickstarts_fts", "vectors", "sentence_codes",
                           "word_vectors", "signs", "calls", ""})  # fmt: skip
"""What can be made again from the documents, or, as the log of calls, be begun anew."""
LOST_PASSAGES = ("another number of passages", "do not continue")
"""In what is said of passages that are torn or lost, which cannot be made again from the file itself."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore."""

    previous: Path | None
    """The copy of the file as it was; None when there was none."""
    counts: dict[str, int]
    dropped: Dropped
    """Powers of a backup from another machine that were not taken over."""


def back_up(database: Database, target: Path | None = None) -> Verification:
    """Copy the whole file, keys and history included, to `target` (beside it, named by the time, for None).

    One snapshot; the copy appears only when it was read to its end: returns what is found in it. Problems are those of
    the file itself, which `doctor --fix` fixes. InvalidInput if the target exists; FileUnavailable if it cannot be
    written, or the file is damaged.
    """
    name = f"{database.path.stem}-backup-{datetime.now():%Y%m%d-%H%M%S}{database.path.suffix}"
    target = expand_home(target).absolute() if target else database.path.with_name(name)
    if target.is_dir():
        target = target / name
    if target.exists():
        raise InvalidInput(f"{target} is there already.", hint="Name another file.")
    if not target.parent.is_dir():
        raise InvalidInput(f"The folder {target.parent} does not exist.")
    with _scratch(target.parent) as scratch:
        copy = scratch / "copy"
        database.copy_to(copy)
        verification = verify(copy)
        # Indexes that do not agree are no reason to be without a copy.
        if not verification.sound and not verification.counts:
            message = f"The file is damaged, so no backup was made: {verification.problems[0].rstrip('.')}."
            raise FileUnavailable(message, hint="localmcp doctor")
        # It holds keys: no more people may read it than the file itself.
        shutil.copymode(database.path, copy)
        os.replace(copy, target)
    verification.path = target
    return verification


def restore(path: Path, backup: Path, *, other: bool = False, **powers: bool) -> Restored:
    """Bring the content of a backup into the file at `path`, all of it or nothing.

    The rows of the backup are copied into a new file; what is in the file is kept beside it. The content is replaced in
    one transaction, a file that cannot be read any more as a whole. `other`: the backup may be of another file, else
    InvalidInput. `powers`: those that stay of a backup from another machine.
    FileUnavailable if there is no sound backup, or the file is locked; NotOurFile if it is not a localmcp file.
    """
    path, backup = expand_home(path).absolute(), expand_home(backup).absolute()
    if backup == path:
        raise InvalidInput("A file cannot be restored from itself.", hint="Name the backup.")
    with _scratch(path.parent) as scratch:
        prepared = scratch / "prepared"
        dropped = copy_rows(backup, prepared, **powers) or Dropped()
        with closing(connect(prepared)) as connection:
            counts, file_id = count_contents(connection), str(fetch_one(connection, "select id from file"))
        previous = free_name(path, "before-restore")
        current = _open_current(path) if path.exists() else None
        if current is None:
            kept = keep_bytes(path, previous)
            adopt_file(file_id)
            replace_file(path, prepared)
            return Restored(kept, counts, dropped)
        with closing(current):
            if file_id != current.file_id and not other:
                message = f"{backup} is a backup of another file than {path}."
                raise InvalidInput(message, hint="Say --other if that is what you want.")
            counters = current.counters()
            with current.read() as connection:
                numbers = fetch_all(connection, "select seq, name from sqlite_sequence")
            with closing(connect(prepared)) as connection:
                connection.execute("begin immediate")
                # Far above those of the file, so that caches of other processes notice the change.
                for name in counters.keys() - {"one"}:
                    sql = f"update state set {name} = max({name}, ?) + ?"
                    connection.execute(sql, (counters[name], 1_000_000))
                missing = "insert into sqlite_sequence select ?2, ?1 where ?2 not in (select name from sqlite_sequence)"
                connection.executemany(missing, numbers)
                connection.executemany("update sqlite_sequence set seq = max(seq, ?) where name = ?", numbers)
                if file_id != current.file_id:
                    # Whoever has segments of sign codes in memory knows them by their ids.
                    connection.execute("""
                        update signs set id = id + (select seq from sqlite_sequence where name = 'signs');
                        update sqlite_sequence set seq = 2 * seq where name = 'signs'
                    """)
                connection.execute("commit")
            adopt_file(file_id)
            _replace_content(prepared, current, previous)
    return Restored(previous, counts, dropped)


def _open_current(path: Path) -> Database | None:
    # None when it cannot be read any more. A sound database of another program is not ours to replace.
    database = Database(path, read_only=True)
    try:
        with database.read() as connection:
            if fetch_one(connection, "pragma quick_check(1)") == "ok":
                return database
    except (LocalMCPError, apsw.Error) as error:
        is_other = isinstance(error, NotOurFile) and not isinstance(error, AlteredSchema)
        if is_other and not isinstance(error.__cause__, apsw.NotADBError):
            raise
    database.close()
    return None


def _replace_content(prepared: Path, current: Database, previous: Path) -> None:
    # In one transaction: a kill leaves either the old content or the new. The first page takes the lock for writing, so
    # the copy is of the last state that was written.
    copy = prepared.with_name("previous")
    try:
        with (
            closing(connect(current.path)) as target,
            closing(connect(prepared)) as source,
            target.backup("main", source, "main") as pages,
        ):
            pages.step(1)
            current.copy_to(copy)
            os.replace(copy, previous)
            while not pages.done:
                pages.step(2000)
        # Whoever reads the old content meanwhile is not waited for longer.
        truncate_log(current.path)
    except apsw.Error as error:
        raise translate_error(error, current.path) or error from error


@contextmanager
def _scratch(folder: Path) -> Generator[Path]:
    # Beside the target, so that the last step is a rename.
    try:
        make_private_folder(folder)
        with scratch_folder(folder) as scratch:
            yield scratch
    except OSError as error:
        raise FileUnavailable(f"{folder} cannot be written: {error.strerror or error}.") from error


def damaged_tables(connection: apsw.Connection) -> dict[str, str]:
    """Return table -> what SQLite says of it, "" -> what is wrong with no table; empty for a sound file."""
    whole, damages = _integrity(connection, "20"), dict[str, str]()
    tables = fetch_column(connection, "select name from sqlite_schema where type = 'table'")
    for table in tables if whole != "ok" else ():
        message = _integrity(connection, f"'{table}'")
        if message != "ok":
            damages[_owner_of(table)] = message
    return damages or ({} if whole == "ok" else {"": whole})


def _owner_of(table: str) -> str:
    # The full-text table that has this table for its pages, or the table itself.
    return re.sub("(?<=_fts)_.*", "", table)


def _integrity(connection: apsw.Connection, argument: str) -> str:
    try:
        return fetch_one(connection, f"pragma integrity_check({argument})")
    except apsw.CorruptError as error:
        return str(error)


def count_wrong_counts(connection: apsw.Connection) -> int:
    """Return how many rows of words, terms and groups are certainly counted wrongly; costs little."""
    sql = """
        select (select count(*) from words where chunks <= 0) + (select count(*) from terms where chunks <= 0)
            + (select count(*) from groups where chunks <> (
                select count(*) from chunks join sources on sources.id = source_id
                where group_id = groups.id and trashed_at is null))
            + (select (select count(*) from chunks_fts) > 0 and not exists (select 1 from terms))
    """
    return fetch_one(connection, sql)


def repair(database: Database, say: Callable[[str], None] = lambda _: None) -> tuple[Path | None, list[str]]:
    """Fix what is safe to fix, after copying the file. Each part is one transaction: a kill leaves it done or undone.

    Returns the copy, None where nothing had to be made again, and what was done. FileUnavailable if a table is damaged
    that only a backup brings back, the file is read-only or locked, or the disk is full; nothing is half done.
    """
    database.ensure_writable()
    copy, done = None, list[str]()
    say("Looking for damage")
    # From a separate look, for SQLite checks a full-text table against what its connection read of it earlier.
    with closing(Database(database.path, read_only=True)) as looked_at, looked_at.read() as connection:
        tables = frozenset(damaged_tables(connection))
        if lost := tables - REMADE_TABLES:
            message = f"{database.path} is damaged where nothing can make it again: {', '.join(sorted(lost))}."
            raise FileUnavailable(message, hint="Restore a backup: localmcp restore FILE")
        problems = [] if tables else disagreements(connection)
        problems = [text for text in problems if not any(part in text for part in LOST_PASSAGES)]
        is_wrong = bool(tables or problems or count_wrong_counts(connection))
    if is_wrong:
        say("Copying the file")
        copy = free_name(database.path, "before-repair")
        with _scratch(copy.parent) as scratch:
            try:
                database.copy_to(scratch / "copy")
                os.replace(scratch / "copy", copy)
            except FileUnavailable:
                # Pages that cannot be read are copied as they are.
                keep_bytes(database.path, copy)
        done.append(f"copied the file to {copy}")
        if tables:
            _empty_tables(database, tables)
            done.append(f"emptied what cannot be read: {', '.join(sorted(tables)) or 'spare pages'}")
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
        removed += remove_dead_rows(database)
        if removed or "vectors" in tables:
            done.append(f"deleted {removed} rows that belonged to nothing; `localmcp refresh` makes what is missing")
        say("Making the indexes again")
        passages = counted(_rebuild_words(database), "passage")
        sql = "select id, model_id from collections where model_id is not null and kind <> 'rules'"
        with database.write() as connection:
            codes = sum(rebuild_signs(connection, *collection) for collection in fetch_all(connection, sql))
        done.append(f"made the keyword index again from {passages}, and {counted(codes, 'sign code')} again")
    for scrap in abandoned_folders(database.path.parent):
        shutil.rmtree(scrap, ignore_errors=True)
        done.append(f"deleted {scrap.name}, which was left behind")
    return copy, done


def _empty_tables(database: Database, tables: frozenset[str]) -> None:
    # SQLite cannot delete pages that it cannot read; rewriting the file leaves them behind.
    sql = "select tbl_name, sql from sqlite_schema order by type = 'index'"
    with closing(connect(database.path)) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute("begin immediate")
        parts = [(table, made_by) for table, made_by in fetch_all(connection, sql) if _owner_of(table) in tables]
        connection.pragma("writable_schema", True)
        connection.executemany("delete from sqlite_schema where tbl_name = ?", {(table,) for table, _ in parts})
        connection.pragma("writable_schema", "reset")
        for table, made_by in parts:
            if made_by and table in tables:
                connection.execute(made_by)
        connection.execute("commit")
        connection.execute("vacuum")


def _rebuild_words(database: Database) -> int:
    # In one transaction: a search in between finds the old index. 20 s for 100,000 passages.
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
            for start in range(0, len(ids), 2000):
                add_to_index(connection, collection_id, ids[start : start + 2000])
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


def optimize(database: Database, say: Callable[[str], None] = lambda _: None) -> Json:
    """Merge the keyword indexes, delete dead rows, and rewrite the file when a fifth of it is empty.

    Returns the bytes before and after, how many rows were removed, whether it was rewritten (`vacuumed`), and in `note`
    why the empty pages stay. FileUnavailable if the file is read-only or locked, or the disk is full.
    """
    database.ensure_writable()
    before, note, vacuumed = database.size(), "", False
    say("Looking for what belongs to nothing")
    removed = remove_dead_rows(database)
    for index in ("chunks_fts", "quickstarts_fts"):
        say(f"Merging {index}")
        with database.write() as connection:
            connection.execute(f"insert into {index} ({index}) values ('optimize')")
    with database.write() as connection:
        connection.execute("pragma optimize")
        empty = fetch_one(connection, "pragma freelist_count") / max(fetch_one(connection, "pragma page_count"), 1)
    if empty >= 0.2:
        say("Writing the file anew")
        try:
            with closing(connect(database.path)) as connection:
                connection.set_busy_timeout(5000)
                connection.execute("vacuum")
            vacuumed = True
        except (apsw.BusyError, apsw.LockedError, apsw.FullError) as error:
            note = f"The empty pages stay until the next time: {error}."
    truncate_log(database.path)
    sizes = {"bytes_before": before, "bytes_after": database.size()}
    return {**sizes, "removed": removed, "vacuumed": vacuumed, "note": note}


def remove_dead_rows(database: Database) -> int:
    """Delete rows that belong to nothing, as vectors of no passage or words that nothing counts; return how many."""
    removed = 0
    with database.write() as connection:
        for sql in (
            """
            delete from vectors where (id & 1099511627775) not in (select id from chunks)
                and id not in (select embedding from rules where embedding is not null)
            """,
            """
            delete from signs where not exists (
                select 1 from collections where collections.id = collection_id and collections.model_id = signs.model_id
            )
            """,
            "delete from words where chunks <= 0 or collection_id not in (select id from collections)",
            "delete from terms where chunks <= 0 or collection_id not in (select id from collections)",
            UNUSED_WORDS,
        ):
            connection.execute(sql)
            removed += connection.changes()
        forget_unused_models(connection)
    return removed
