"""Checks of the file itself: whether it exists, is ours, may be written, and is undamaged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

from localmcp.doctor.check import Check, fail, ok, warn
from localmcp.errors import AlteredSchema, FileTooNew, LocalMCPError
from localmcp.files import is_filled
from localmcp.humanize import command_line, size
from localmcp.storage.database import Database, fetch_all, fetch_column
from localmcp.storage.killable import run_killable
from localmcp.storage.provenance import foreign_objects, is_adopted

MOST_DAMAGES = 20
WORD_TABLES = frozenset({"words", "terms", "chunks_fts", "quickstarts_fts"})
REMADE_TABLES = WORD_TABLES | {"vectors", "sentence_codes", "word_vectors", "signs", "calls", ""}
"""What can be made again from the documents, or, as the log of calls, be begun anew."""


def check_file(path: Path) -> Iterator[Check]:
    """Check the file as such; the last check fails when nothing of it can be read."""
    if not path.exists():
        yield warn("file", f"{path} does not exist yet", "localmcp add FOLDER")
        return
    if not is_filled(path):
        yield fail("file", f"{path} is empty", "localmcp add FOLDER, or: localmcp restore BACKUP")
        return
    try:
        yield from run_killable(path, _look_at_pages, path)
    except FileTooNew as error:
        yield fail("file", error.message, "pip install --upgrade localmcp")
    except AlteredSchema as error:
        yield fail("file", error.message, command_line("localmcp", "adopt", path))
    except LocalMCPError as error:
        yield fail("file", error.message, _restore_command(path))


def _restore_command(path: Path) -> str:
    return command_line("localmcp", "restore", "BACKUP", "--db", path)


def _look_at_pages(path: Path) -> list[Check]:
    """Check what is in the file, in a process that knows nothing of it.

    SQLite checks a full-text table against what its connection read of it earlier.
    """
    with closing(Database(path, read_only=True)) as database, database.read() as connection:
        checks = [ok("file", f"{path}: {size(path.stat().st_size)}")]
        if foreign := foreign_objects(connection)[:MOST_DAMAGES]:
            checks.append(warn("file", f"not ours, and in no pack, merged or restored file: {', '.join(foreign)}"))
        damages = damaged_tables(connection)
        parents = [] if damages else fetch_all(connection, "select * from pragma_foreign_key_check limit 1000")
    if damages:
        told = [f"the table '{table}': {says}" if table else says for table, says in damages.items()]
        fix = "localmcp doctor --fix" if damages.keys() <= REMADE_TABLES else _restore_command(path)
        return [*checks, fail("integrity", f"damaged: {'; '.join(told)}", fix)]
    if parents:
        lost = f"{len(parents)} rows point at something that is not there"
        return [*checks, fail("integrity", lost, _restore_command(path))]
    return [*checks, ok("integrity", "every page is whole")]


def damaged_tables(connection: apsw.Connection) -> dict[str, str]:
    """Return table -> what SQLite says of it, "" -> what is wrong with no table; empty for a sound file."""
    messages = _integrity(connection, str(MOST_DAMAGES))
    if messages == ["ok"]:
        return {}
    damages: dict[str, str] = {}
    for table in fetch_column(connection, "select name from sqlite_schema where type = 'table'"):
        message = _integrity(connection, f"'{table}'")[0]
        if message != "ok":
            damages[owner_of(table)] = message
    return damages or {"": messages[0]}


def owner_of(table: str) -> str:
    """Return the full-text table that has this table for its pages, or the table itself."""
    return re.sub("(?<=_fts)_.*", "", table)


def _integrity(connection: apsw.Connection, argument: str) -> list[str]:
    try:
        return fetch_column(connection, f"pragma integrity_check({argument})")
    except apsw.CorruptError as error:
        return [str(error)]


def check_writable(database: Database) -> Check:
    """Return whether the file may be changed, and why not."""
    path = database.path
    if not is_adopted(database.file_id):
        says = "the file comes from somewhere else and is read-only here"
        return warn("writing", says, command_line("localmcp", "adopt", path))
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return warn("writing", "the file or its folder is write-protected: searching works, changing does not")
    return ok("writing", "the file can be changed")
