"""`localmcp verify`: whether a file is whole, ours, and still what its manifest says."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from localmcp.errors import FileUnavailable, LocalMCPError, NotFound
from localmcp.index.consistency import disagreements
from localmcp.packs.manifest import Manifest, count_contents, digest_content, read_manifest, seal_of
from localmcp.storage.adoption import run_killable
from localmcp.storage.database import (
    MAX_FOREIGN_VALUE_BYTES,
    UNREADABLE_ROWS,
    Database,
    fetch_all,
    fetch_column,
    fetch_one,
)
from localmcp.storage.schema import foreign_objects

MOST_PROBLEMS = 20
_SOURCES = """
    select title, uri, name, sha256, chunk_count from sources join collections on collections.id = collection_id
    where trashed_at is null order by name, uri, title limit 100000
"""


@dataclass(slots=True)
class Verification:
    """The result of a verification."""

    path: Path
    manifest: Manifest | None = None
    counts: dict[str, int] = field(default_factory=dict[str, int])
    sources: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """title, place, collection, sha256 and number of passages of each document."""
    problems: list[str] = field(default_factory=list[str])
    """What is wrong, a sentence each."""
    notes: list[str] = field(default_factory=list[str])

    @property
    def sound(self) -> bool:
        return not self.problems


def verify(path: Path) -> Verification:
    """Look at every page and every row of a file, changing nothing. 3 s for 100,000 passages.

    It is read in a process that is killed when it takes too long.
    A file that cannot even be opened is reported as the one problem it then has.

    Raises:
        NotFound: there is no such file.
    """
    if not path.is_file():
        raise NotFound(f"There is no file {path}.")
    try:
        return run_killable(path, _verify, path)
    except FileUnavailable as error:
        return Verification(path, problems=[error.message])


def _verify(path: Path) -> Verification:
    verification = Verification(path)
    # Its own connection: SQLite checks a full-text table against what the connection read of it earlier.
    with closing(Database(path, read_only=True)) as database:
        try:
            with database.read() as connection:
                connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_FOREIGN_VALUE_BYTES)
                verification.problems += _find_damage(connection)
                if verification.sound:
                    _compare(connection, verification)
        except LocalMCPError as error:
            verification.problems.append(error.message)
        except (apsw.Error, *UNREADABLE_ROWS) as error:
            verification.problems.append(f"it cannot be read to its end: {error}")
    return verification


def _find_damage(connection: apsw.Connection) -> list[str]:
    messages = fetch_column(connection, f"pragma integrity_check({MOST_PROBLEMS})")
    if messages != ["ok"]:
        return [f"damaged: {message}" for message in messages]
    parents = fetch_all(connection, "select * from pragma_foreign_key_check limit 1000")
    return [f"{len(parents)} rows point at something that is not there"] if parents else []


def _compare(connection: apsw.Connection, verification: Verification) -> None:
    problems = verification.problems
    verification.counts = count_contents(connection)
    # Only a file of this machine can have them; every other is refused.
    verification.notes += [f"It holds what is not ours: {name}" for name in foreign_objects(connection)[:MOST_PROBLEMS]]
    problems += disagreements(connection)
    names = ("title", "place", "collection", "sha256", "passages")
    verification.sources = [dict(zip(names, row, strict=True)) for row in connection.execute(_SOURCES)]
    if not fetch_one(connection, "select count(*) from manifest"):
        verification.notes.append("It has no manifest: it is no pack, so nobody says what should be in it.")
        return
    manifest = verification.manifest = read_manifest(connection)
    if manifest is None:
        problems.append("its manifest is not one that localmcp writes")
        return
    if manifest.seal != seal_of(manifest):
        problems.append("its manifest is not the one that was written: its seal does not fit it")
    if manifest.counts != verification.counts:
        problems.append(f"the manifest counts {manifest.counts}, the file holds {verification.counts}")
    if digest_content(connection) != manifest.digest:
        problems.append("the content is not what was packed: its digest differs from the manifest's")
