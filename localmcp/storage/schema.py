"""The tables, indexes and triggers of a file, and those that a version should have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import lru_cache

import apsw

from localmcp.storage.migrations import MIGRATIONS


def expected_schema(version: int) -> Mapping[tuple[str, str], str]:
    """Return (type, name) -> SQL of every object that a file of that version has."""
    return _schema_after(tuple(MIGRATIONS[:version]))


@lru_cache(maxsize=4)
def _schema_after(steps: tuple[Callable[[apsw.Connection], object], ...]) -> Mapping[tuple[str, str], str]:
    with closing(apsw.Connection(":memory:")) as connection:
        for step in steps:
            step(connection)
        return schema_of(connection)


def has_table(connection: apsw.Connection, name: str) -> bool:
    """Return whether the file has a table; a read-only one of an older version lacks some."""
    sql = "select 1 from sqlite_schema where type = 'table' and name = ?"
    return connection.execute(sql, (name,)).fetchone() is not None


def schema_of(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    """Return (type, name) -> SQL of every object in the file; a trigger may bear the name of a table."""
    rows = connection.execute("select type, name, coalesce(sql, '') from sqlite_schema")
    return {(kind, name): sql for kind, name, sql in rows}
