"""Merge keyword indexes, delete dead rows and empty pages: faster searches, a smaller file. May be killed anywhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

import apsw

from localmcp.index.reembedding import KIND as REEMBED
from localmcp.index.reembedding import forget_unused_models
from localmcp.index.word_vectors import UNUSED_WORDS
from localmcp.storage.connections import connect, truncate_log
from localmcp.storage.database import Database, fetch_one

INDEXES = ("chunks_fts", "quickstarts_fts")
MERGED_PAGES = 300
"""Pages written by one step of a merge: about 50 ms, between which others get to write."""
MOST_STEPS = 20_000
AT_ONCE = 5000
EMPTY_SHARE = 0.2
"""From this share of empty pages on, the file is rewritten."""


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
    for index in INDEXES:
        say(f"Merging {index}")
        done.merged += merge_index(database, index)
    with database.write() as connection:
        connection.execute("pragma optimize")
        empty = fetch_one(connection, "pragma freelist_count") / max(fetch_one(connection, "pragma page_count"), 1)
    if empty >= EMPTY_SHARE:
        say("Writing the file anew")
        _vacuum(database, done)
    truncate_log(database.path)
    done.bytes_after = database.size()
    return done


def merge_index(database: Database, index: str) -> int:
    """Merge an FTS5 index into one segment, some pages at a time; returns the steps that had something to do.

    https://www.sqlite.org/fts5.html#the_merge_command: a negative number starts, positive ones go on until the number
    of changes stays below 2.
    """
    steps, pages = 0, -MERGED_PAGES
    while steps < MOST_STEPS:
        with database.write() as connection:
            before = connection.total_changes()
            connection.execute(f"insert into {index} ({index}, rank) values ('merge', ?)", (pages,))
            if connection.total_changes() - before < 2:
                return steps
        pages = MERGED_PAGES
        steps += 1
    return steps


def remove_dead_rows(database: Database) -> int:
    """Delete rows that belong to nothing; return how many.

    Vectors of no passage, sign codes of no collection or of a model that does not answer, words that nothing counts.
    """
    removed = 0
    while count := _delete(database, _ORPHAN_VECTORS):
        removed += count
    for sql in _DEAD:
        removed += _delete(database, sql)
    with database.write() as connection:
        forget_unused_models(connection)
    return removed


_ORPHAN_VECTORS = f"""
    delete from vectors where id in (
        select id from vectors where (id & 1099511627775) not in (select id from chunks)
            and id not in (select embedding from rules where embedding is not null) limit {AT_ONCE}
    )
"""
_DEAD = (
    """
    delete from signs where not exists (
        select 1 from collections where collections.id = collection_id and collections.model_id = signs.model_id
    )
    """,
    "delete from words where chunks <= 0 or collection_id not in (select id from collections)",
    "delete from terms where chunks <= 0 or collection_id not in (select id from collections)",
    UNUSED_WORDS,
    f"delete from jobs where kind = '{REEMBED}' and arguments ->> 'collection' not in (select id from collections)",
)


def _delete(database: Database, sql: str) -> int:
    with database.write() as connection:
        connection.execute(sql)
        return connection.changes()


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
