"""The digest of everything a file holds: it changes with any row of any table."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

import apsw

from localmcp.storage.database import fetch_all, fetch_column

NOT_COUNTED = ("manifest", "sqlite_stat1", "sqlite_stat4")
"""The manifest holds the digest; statistics change with `pragma optimize` and answer nothing."""


def digest_content(connection: apsw.Connection) -> str:
    """Return sha256 over every row of every table, shadow tables of full-text indexes included; 64 hex digits.

    Two files with the same rows have the same digest, however SQLite laid out their pages.
    """
    whole = hashlib.sha256()
    for table in _tables(connection):
        whole.update(f"table {table}\n".encode())
        for part in _rows(connection, table):
            whole.update(part)
    return whole.hexdigest()


def _tables(connection: apsw.Connection) -> list[str]:
    """Return names of the tables that hold rows themselves; a virtual table's rows are in its shadow tables."""
    sql = "select name from sqlite_schema where type = 'table' and sql not like 'create virtual%' order by name"
    return [name for name in fetch_column(connection, sql) if name not in NOT_COUNTED]


def _rows(connection: apsw.Connection, table: str) -> Iterator[bytes]:
    """Yield the rows; whole numbers and text are read as one JSON array that SQLite makes, others as they are."""
    columns = fetch_all(connection, "select name, type, pk from pragma_table_info(?)", (table,))
    together = [_quoted(name) for name, kind, _ in columns if kind.upper() in ("INTEGER", "TEXT", "INT")]
    alone = [quoted for name, _, _ in columns if (quoted := _quoted(name)) not in together]
    keys = [_quoted(name) for name, _, key_position in sorted(columns, key=lambda column: column[2]) if key_position]
    names = ", ".join([f"json_array({', '.join(together)})" if together else "''", *alone])
    order = ", ".join(keys) or "rowid"
    for first, *others in connection.execute(f"select {names} from {_quoted(table)} order by {order}"):
        yield str(first).encode("utf-8", "surrogatepass") + b"\n"
        for value in others:
            yield from _encoded(value)


def _encoded(value: Any) -> Iterator[bytes]:
    """Yield a value of any type behind its length, which separates it from its neighbors."""
    if isinstance(value, bytes):
        yield f"blob {len(value)}\n".encode()
        yield value
    elif isinstance(value, float):
        yield b"real " + struct.pack("<d", value)
    else:
        yield f"{type(value).__name__} {value!r}\n".encode("utf-8", "surrogatepass")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
