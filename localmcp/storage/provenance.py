"""Check that a file is one of localmcp, and whether this machine may change it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import apsw

from localmcp import config
from localmcp.errors import AlteredSchema, FileTooNew, FileTooOld, FileUnavailable, NotOurFile
from localmcp.files import make_private_folder
from localmcp.humanize import command_line
from localmcp.storage.schema import APPLICATION_ID, EARLIER_APPLICATION_ID, SCHEMA_VERSION, expected_schema, schema_of


def is_blank(connection: apsw.Connection) -> bool:
    """Return whether nothing was ever written to the file."""
    return connection.pragma("application_id") == connection.pragma("user_version") == 0 and not schema_of(connection)


def names_another_file(path: Path) -> bool:
    """Return whether the journal beside a file ends with the name of another, which SQLite would delete."""
    journal = path.with_name(f"{path.name}-journal")
    return journal.is_file() and journal.read_bytes().endswith(bytes.fromhex("d9d505f920a163d7"))


def check_version(connection: apsw.Connection, path: Path) -> None:
    """Refuse a file that is not of this version.

    Raises:
        NotOurFile: another program's file.
        FileTooOld, FileTooNew: written by another version of localmcp.
    """
    application_id, version = connection.pragma("application_id"), int(connection.pragma("user_version"))
    if application_id == EARLIER_APPLICATION_ID:
        raise FileTooOld(
            f"{path} was made before the first release, and its tables differ.",
            hint="It was left untouched. Add its folders to a new file with: localmcp --db NEW add FOLDER",
        )
    if application_id != APPLICATION_ID:
        raise NotOurFile(f"{path} is not a localmcp file.", hint="Name a file that localmcp made.")
    if version > SCHEMA_VERSION:
        raise FileTooNew(
            f"{path} was written by a newer localmcp (version {version}; this one knows {SCHEMA_VERSION}).",
            hint="Update localmcp; the file was left untouched.",
        )


def check_schema(connection: apsw.Connection, path: Path, *, adopted: bool) -> None:
    """Refuse a file with another schema than ours; one that is adopted may have tables and indexes that a person added.

    Raises:
        AlteredSchema: an object of ours is missing or differs, or there is a foreign one, whose code SQLite would run.
    """
    actual, expected = schema_of(connection), expected_schema()
    problem = next((f"'{key[1]}' differs" for key, sql in expected.items() if actual.get(key) != sql), "")
    for (kind, name), sql in actual.items():
        # A hand-made schema may hold comments where SQLite itself writes one space.
        bare = re.sub(r"/\*.*?\*/|--[^\n]*", " ", sql, flags=re.DOTALL)
        is_plain = kind in ("table", "index") and not re.match(r"\s*create\s+virtual\b", bare, re.IGNORECASE)
        if not problem and (kind, name) not in expected and not is_plain:
            problem = f"it holds a {kind} that is not ours: '{name}'"
    if not problem and not adopted and (foreign := foreign_objects(connection)):
        problem = f"it holds what is not ours: {foreign[0]}"
    if problem:
        command = command_line("localmcp", "adopt", path)
        raise AlteredSchema(
            f"{path} does not have the schema of a localmcp file: {problem}.",
            hint=f"It was left untouched. Put a file with its rows alone in its place: {command}",
        )


def foreign_objects(connection: apsw.Connection) -> list[str]:
    """Return the tables and indexes that are not ours, such as those that a person added."""
    foreign = [f"{kind} '{name[:80]}'" for kind, name in schema_of(connection).keys() - expected_schema().keys()]
    return sorted(text for text in foreign if "'sqlite_" not in text)


def read_file_id(connection: apsw.Connection, path: Path) -> str:
    """Return the random id that the file was born with.

    Raises:
        NotOurFile: it has none, or one that we never give.
    """
    file_id = connection.execute("select id from file").get
    if not _is_file_id(file_id):
        raise NotOurFile(f"{path} has no valid id.")
    return file_id


def is_adopted(file_id: str) -> bool:
    """Return whether this machine made the file or was told to trust it; others are read-only."""
    return _is_file_id(file_id) and (config.state_directory() / "files" / file_id).exists()


def adopt_file(file_id: str) -> None:
    """Remember the file's id in the state directory.

    Raises:
        FileUnavailable: the state directory cannot be written.
    """
    if not _is_file_id(file_id):
        raise NotOurFile("The file has no valid id.")
    (adoption_folder() / file_id).touch()


def adoption_folder() -> Path:
    """Return the folder of the state directory that holds the ids of adopted files; make it if it is missing.

    Raises:
        FileUnavailable: it cannot be written.
    """
    folder = config.state_directory() / "files"
    try:
        make_private_folder(folder)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror}."
        raise FileUnavailable(message, hint="Name another folder with LOCALMCP_STATE_DIR.") from error
    return folder


def _is_file_id(value: Any) -> bool:
    """Return whether a value is a file's id: 32 hex digits, since a file in the state directory is named by it."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None
