"""The manifest of a pack: what it says of itself, the digest of all it holds, and the seal over both."""

from __future__ import annotations

import hashlib
import json
import marshal
from dataclasses import asdict, dataclass, field
from typing import Any

import apsw

from localmcp.storage.connections import quote_name
from localmcp.storage.database import fetch_column, fetch_one

LONGEST = 1_000_000
"""Characters of a manifest; ours have a few hundred a collection."""
NOT_COUNTED = ("manifest", "sqlite_stat1", "sqlite_stat4")
"""The manifest holds the digest; statistics change with `pragma optimize` and answer nothing."""


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
    content = fetch_one(connection, f"select iif(length(content) <= {LONGEST}, content, null) from manifest")
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
        if table in NOT_COUNTED:
            continue
        whole.update(f"table {table}\n".encode())
        keys = fetch_column(connection, "select name from pragma_table_info(?) where pk order by pk", (table,))
        order = ", ".join(map(quote_name, keys)) or "rowid"
        for row in connection.execute(f"select * from {quote_name(table)} order by {order}"):
            # The second form of marshal: types and lengths before each value, the same in every Python.
            whole.update(marshal.dumps(row, 2))
    return whole.hexdigest()
