"""The manifest of a pack: what it says of itself, and the checks before that is believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import apsw

from localmcp.storage.database import fetch_one

LONGEST = 1_000_000
"""Characters of a manifest; ours have a few hundred a collection."""


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
    """sha256 over the other fields (`seal_of`); empty in packs that were made without one."""


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


def has_manifest(connection: apsw.Connection) -> bool:
    """Return whether the file says anything of itself, readable or not."""
    return bool(fetch_one(connection, "select count(*) from manifest"))


def count_contents(connection: apsw.Connection) -> dict[str, int]:
    """Return table -> rows, of what a person would count."""
    tables = ("sources", "chunks", "vectors", "quickstarts", "rules")
    return {table: fetch_one(connection, f"select count(*) from {table}") for table in tables}


def list_sources(connection: apsw.Connection) -> Iterator[dict[str, Any]]:
    """Yield title, place, collection, sha256 and number of passages of each document, by collection and place."""
    sql = """
        select title, uri, name, sha256, chunk_count from sources join collections on collections.id = collection_id
        where trashed_at is null order by name, uri, title
    """
    for row in connection.execute(sql):
        yield dict(zip(("title", "place", "collection", "sha256", "passages"), row, strict=True))
