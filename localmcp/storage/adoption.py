"""Adopt a file from elsewhere: its content stays, its powers over this machine are dropped unless asked for."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path

import apsw

from localmcp.storage.connections import open_copy
from localmcp.storage.database import Database, fetch_one
from localmcp.storage.failures import translate_error
from localmcp.storage.provenance import adopt_file, check_content, is_adopted


@dataclass(frozen=True, slots=True)
class KeptPowers:
    """Which powers of a file from elsewhere stay."""

    keys: bool = False
    """API keys: whoever has one may read the file over HTTP, and change it if the key says so."""
    watched_folders: bool = False
    """Folders of this machine that the next refresh reads, such as `~/.ssh`, and files whose scans wait to be read."""
    jobs: bool = False
    """Work that was begun and would go on here."""
    replicas: bool = False
    """Collections that are copied to the Milvus server of this machine's settings."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The number of removed rows of each power."""

    keys: int = 0
    watched_folders: int = 0
    jobs: int = 0
    replicas: int = 0

    def summary(self) -> list[str]:
        """One phrase for each power that was dropped, with the option that keeps it."""
        return [
            f"{count} {label if count > 1 else label.removesuffix('s')} (--keep-{field.name.replace('_', '-')})"
            for field in fields(self)
            if (count := int(getattr(self, field.name))) and (label := _POWERS[field.name][0])
        ]


_POWERS = {
    "keys": ("API keys", "api_keys", ""),
    "watched_folders": ("watched folders", "roots", "where kind not like 'removed %'"),
    "jobs": ("unfinished jobs", "jobs", "where status = 'running'"),
    "replicas": ("copies on Milvus", "replicas", ""),
}
"""Power -> what it is called, its table, and which rows of it count."""


def adopt(path: str | os.PathLike[str], keep: KeptPowers | None = None) -> Dropped:
    """Allow changes to a file from elsewhere, after dropping its powers; a file of this machine stays as it is.

    Raises:
        NotOurFile, FileTooNew: the file is not one of this program, or of a newer one.
        FileUnavailable: it is damaged, or cannot be read or written.
    """
    with closing(Database(path, read_only=True, foreign=True)) as foreign:
        file_id, file = foreign.file_id, foreign.path
        with foreign.read() as connection:
            check_content(connection, file)
    dropped = drop_foreign_powers(file, keep or KeptPowers())
    # Only now: a kill before this leaves a file without powers that nobody may change yet.
    adopt_file(file_id)
    with closing(Database(file)) as database, database.write() as connection:
        # What a pack says of itself is no longer true once the file changes.
        connection.execute("delete from manifest")
    return dropped


def drop_foreign_powers(path: Path, keep: KeptPowers) -> Dropped:
    """Delete the powers of a file that this machine neither made nor adopted; another stays as it is.

    Raises:
        FileUnavailable: it cannot be written.
    """
    try:
        with closing(open_copy(path)) as connection:
            if is_adopted(fetch_one(connection, "select id from file")):
                return Dropped()
            connection.execute("begin immediate")
            dropped = _drop_powers(connection, keep)
            connection.execute("commit")
            return dropped
    except apsw.Error as error:
        raise translate_error(error, path) or error from error


def _drop_powers(connection: apsw.Connection, keep: KeptPowers) -> Dropped:
    """Delete the rows that would act on this machine; part of the caller's transaction."""
    counts: dict[str, int] = {}
    for power, (_, table, which) in _POWERS.items():
        if getattr(keep, power):
            continue
        counts[power] = int(fetch_one(connection, f"select count(*) from {table} {which}"))
        connection.execute(f"delete from {table}")
    if not keep.watched_folders:
        # Text recognition reads every file that waits here, in a watched folder or not.
        connection.execute("delete from ledger where status in ('skipped', 'failed')")
    return Dropped(**counts)
