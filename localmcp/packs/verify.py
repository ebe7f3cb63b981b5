"""`localmcp verify`: whether a file is whole, ours, and still what its manifest says of it."""

from __future__ import annotations

import hashlib
import json
import marshal
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import apsw

from localmcp.errors import FileUnavailable, LocalMCPError, NotFound
from localmcp.index.sources import disagreements
from localmcp.storage.adoption import run_killable
from localmcp.storage.connections import quote_name
from localmcp.storage.database import (
    MAX_FOREIGN_VALUE_BYTES,
    UNREADABLE_ROWS,
    Database,
    fetch_all,
    fetch_column,
    fetch_one,
)
from localmcp.storage.schema import foreign_objects


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a pack, stored in it."""

    title: str
    author: str
    note: str
    created_at: str
    made_by: str
    """Name and version of the program."""
    chunker: int
    models: list[dict[str, Any]]
    """name, sha256, dimension of each model whose vectors are inside."""
    counts: dict[str, int]
    collections: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    digest: str = ""
    """sha256 over every row (`digest_content`)."""
    seal: str = ""
    """sha256 over the other fields (`seal_of`)."""


def seal_of(manifest: Manifest) -> str:
    """Return sha256 of every field but the seal, as JSON with sorted keys."""
    sealed_fields = {name: value for name, value in asdict(manifest).items() if name != "seal"}
    return hashlib.sha256(json.dumps(sealed_fields, sort_keys=True).encode()).hexdigest()


def read_manifest(connection: apsw.Connection) -> Manifest | None:
    """Return the manifest of an open file; None for a file that is no pack, or whose manifest is not ours."""
    # Ours have a few hundred characters a collection.
    content = fetch_one(connection, "select iif(length(content) <= 1000000, content, null) from manifest")
    if not isinstance(content, str):
        return None
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(Manifest).validate_json(content, strict=True, extra="forbid")
    except ValueError:
        return None


def count_contents(connection: apsw.Connection) -> dict[str, int]:
    """Return table -> rows, of what a person would count."""
    tables = ("sources", "chunks", "vectors", "quickstarts", "rules")
    return {table: fetch_one(connection, f"select count(*) from {table}") for table in tables}


def digest_content(connection: apsw.Connection) -> str:
    """Return sha256 over every row of every table, shadow tables of full-text indexes included; 64 hex digits.

    Two files with the same rows have the same digest, however SQLite laid out their pages.
    """
    whole = hashlib.sha256()
    # A virtual table's rows are in its shadow tables.
    sql = "select name from sqlite_schema where type = 'table' and sql not like 'create virtual%' order by name"
    for table in fetch_column(connection, sql):
        # The manifest holds the digest; statistics change with `pragma optimize` and answer nothing.
        if table in ("manifest", "sqlite_stat1", "sqlite_stat4"):
            continue
        whole.update(f"table {table}\n".encode())
        keys = fetch_column(connection, "select name from pragma_table_info(?) where pk order by pk", (table,))
        order = ", ".join(map(quote_name, keys)) or "rowid"
        for row in connection.execute(f"select * from {quote_name(table)} order by {order}"):
            # The second form of marshal: types and lengths before each value, the same in every Python.
            whole.update(marshal.dumps(row, 2))
    return whole.hexdigest()


# ---------------------------------------------------------------- verifying


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
                messages = fetch_column(connection, "pragma integrity_check(20)")
                if messages != ["ok"]:
                    verification.problems += [f"damaged: {message}" for message in messages]
                elif parents := fetch_all(connection, "select * from pragma_foreign_key_check limit 1000"):
                    verification.problems.append(f"{len(parents)} rows point at something that is not there")
                else:
                    _compare(connection, verification)
        except LocalMCPError as error:
            verification.problems.append(error.message)
        except (apsw.Error, *UNREADABLE_ROWS) as error:
            verification.problems.append(f"it cannot be read to its end: {error}")
    return verification


def _compare(connection: apsw.Connection, verification: Verification) -> None:
    problems = verification.problems
    verification.counts = count_contents(connection)
    # Only a file of this machine can have them; every other is refused.
    verification.notes += [f"It holds what is not ours: {name}" for name in foreign_objects(connection)[:20]]
    problems += disagreements(connection)
    names = ("title", "place", "collection", "sha256", "passages")
    sql = """
        select title, uri, name, sha256, chunk_count from sources join collections on collections.id = collection_id
        where trashed_at is null order by name, uri, title limit 100000
    """
    verification.sources = [dict(zip(names, row, strict=True)) for row in connection.execute(sql)]
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
