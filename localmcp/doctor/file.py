"""Checks of the file itself: whether it exists, is ours, may be written, and is undamaged."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw

from localmcp.doctor.check import Check, fail, ok, warn
from localmcp.errors import LocalMCPError
from localmcp.files import is_filled
from localmcp.humanize import command_line, size
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.provenance import foreign_objects, is_adopted
from localmcp.storage.schema import APPLICATION_ID, EARLIER_APPLICATION_ID, SCHEMA_VERSION

MAGIC = b"SQLite format 3\0"
MOST_DAMAGES = 20
WORD_TABLES = frozenset({"words", "terms", "chunks_fts", "quickstarts_fts"})
VECTOR_TABLES = frozenset({"vectors"})
REMADE_TABLES = WORD_TABLES | VECTOR_TABLES | {"signs", "calls", ""}
"""What can be made again from the documents, or, as the log of calls, be begun anew."""
CLOCK_SLACK = timedelta(minutes=5)
BEFORE_EVERYTHING = datetime(2025, 1, 1, tzinfo=UTC)
"""A clock that is earlier than the program is wrong."""
TIMES = (
    ("the file", "select max(created_at) from file"),
    ("a document", "select max(max(created_at), max(updated_at), coalesce(max(trashed_at), '')) from sources"),
    ("a call", "select max(started_at) from calls"),
)


def check_file(path: Path) -> Iterator[Check]:
    """Check the file as such; the last check fails when nothing of it can be read."""
    if not path.exists():
        yield warn("file", f"{path} does not exist yet", "localmcp add FOLDER")
        return
    if not is_filled(path):
        yield fail("file", f"{path} is empty", "localmcp add FOLDER, or: localmcp restore BACKUP")
        return
    yield _header(path)
    # A separate database: SQLite checks a full-text table against what its connection read of it earlier.
    database = Database(path, read_only=True)
    try:
        with database.read() as connection:
            yield _version(connection)
            if damages := damaged_tables(connection):
                yield _damage(damages, path)
                return
            yield ok("integrity", "every page is whole")
            yield from _references(connection, path)
            yield from _clock(connection)
    except LocalMCPError as error:
        yield fail("opening", str(error))
    finally:
        database.close()


def _restore(path: Path) -> str:
    return command_line("localmcp", "restore", "BACKUP", "--db", path)


def _header(path: Path) -> Check:
    """Look at the first hundred bytes: https://www.sqlite.org/fileformat.html#the_database_header."""
    with path.open("rb") as file:
        first = file.read(100)
    if len(first) < 100 or not first.startswith(MAGIC):
        return fail("file", f"{path} is not a SQLite database", _restore(path))
    version, application_id = struct.unpack(">I4xI", first[60:72])
    if application_id == EARLIER_APPLICATION_ID:
        return fail("file", f"{path} was made before the first release", "localmcp --db NEW add FOLDER")
    if application_id != APPLICATION_ID:
        return fail("file", f"{path} is a SQLite database, but not one of localmcp's", "localmcp --db OTHER doctor")
    if version > SCHEMA_VERSION:
        says = f"{path} was written by a newer localmcp (version {version}, this one knows {SCHEMA_VERSION})"
        return fail("file", says, "pip install --upgrade localmcp")
    return ok("file", f"{path}: {size(path.stat().st_size)}")


def _version(connection: apsw.Connection) -> Check:
    version = f"version {connection.pragma('user_version')}"
    if foreign := foreign_objects(connection):
        says = f"{version}; not ours, and in no pack, copy or restored file: {', '.join(foreign[:MOST_DAMAGES])}"
        return warn("version", says)
    return ok("version", f"{version}, the schema is ours")


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


def _damage(damages: Mapping[str, str], path: Path) -> Check:
    words = [f"the table '{table}': {message}" if table else message for table, message in damages.items()]
    fix = "localmcp doctor --fix" if damages.keys() <= REMADE_TABLES else _restore(path)
    return fail("integrity", f"damaged: {'; '.join(words)}", fix)


def _references(connection: apsw.Connection, path: Path) -> Iterator[Check]:
    parents = fetch_all(connection, "select * from pragma_foreign_key_check limit 1000")
    if parents:
        says = f"{len(parents)} rows point at something that is not there"
        yield fail("references", says, _restore(path))


def _clock(connection: apsw.Connection) -> Iterator[Check]:
    now = datetime.now(UTC)
    if now < BEFORE_EVERYTHING:
        yield warn("clock", f"this machine thinks it is {now:%Y-%m-%d}: what is written gets wrong times")
        return
    for kind, sql in TIMES:
        latest = fetch_one(connection, sql)
        if latest and latest > (now + CLOCK_SLACK).isoformat():
            says = f"{kind} is from the future ({latest}): a clock was, or is, wrong. Nothing is lost by it"
            yield warn("clock", says)
            return
    yield ok("clock", "no time in the file lies in the future")


def check_writable(database: Database) -> Check:
    """Return whether the file may be changed, and why not."""
    path = database.path
    if not is_adopted(database.file_id):
        return warn(
            "writing",
            "the file comes from somewhere else and is read-only here",
            command_line("localmcp", "adopt", path),
        )
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return warn("writing", "the file or its folder is write-protected: searching works, changing does not")
    return ok("writing", "the file can be changed")
