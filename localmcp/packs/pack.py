"""`localmcp pack` writes a file to give away, without what is private; `localmcp verify` checks such a file."""

from __future__ import annotations

import hashlib
import json
import marshal
import os
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, count
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import apsw

from localmcp import files
from localmcp.errors import FileUnavailable, InvalidInput, LocalMCPError, NotFound
from localmcp.index.collections import choose_collections
from localmcp.index.multilingual import UNUSED_WORDS
from localmcp.index.sources import disagreements
from localmcp.storage import database as storage
from localmcp.storage.adoption import copy_table, run_killable
from localmcp.storage.connections import quote_name
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import create_schema, foreign_objects, utc_now
from localmcp.version import __version__

OF_COLLECTIONS = {
    "state": "true",
    "collections": "kind <> 'dropped' and (:chosen is null or id in (select value from json_each(:chosen)))",
    "models": "id in (select model_id from main.collections)",
    "partitions": "dropped_at is null and collection_id in (select id from main.collections)",
    "groups": "collection_id in (select id from main.collections)",
    "words": "collection_id in (select id from main.collections)",
    "terms": "collection_id in (select id from main.collections)",
    "signs": "(collection_id, model_id) in (select id, model_id from main.collections)",
    "sources": "trashed_at is null and collection_id in (select id from main.collections)",
    "chunks": "source_id in (select id from main.sources)",
    "vector_queue": "chunk_id in (select id from main.chunks)",
    **{f"chunks_fts_{part}": "true" for part in ("data", "idx", "docsize", "config")},
    "word_vectors": "model_id in (select id from main.models)",
}
OF_THE_FILE = {
    "quickstarts": "deleted_at is null",
    "quickstart_tags": "quickstart_id in (select id from main.quickstarts)",
    **{f"quickstarts_fts_{part}": "true" for part in ("data", "idx", "docsize", "config")},
    "rules": "retired_at is null",
    "user_instructions": "id in (select created_from_instruction_id from main.rules)",
}
"""Tables that go into a pack, in order -> which of their rows; those of the file stay out where collections are named.

All others are private: API keys, calls, the trash, paths of this machine, jobs."""
VECTORS = {
    "vectors": """
        id in (
            select model_id << 40 | chunks.id from main.chunks join main.sources on sources.id = source_id
            join main.collections on collections.id = collection_id where model_id is not null
            union select embedding from main.rules where embedding is not null
        )
    """,
    "sentence_codes": "id in (select id from main.vectors)",
}
"""Of passages and rules that go in, by the models in use."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a pack, stored in it."""

    title: str
    author: str
    note: str
    created_at: str
    made_by: str
    """Name and version of the program."""
    models: list[dict[str, Any]]
    """name, sha256, dimension of each model whose vectors are inside."""
    counts: dict[str, int]
    collections: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    digest: str = ""
    """sha256 over the other fields and every row (`digest_pack`)."""


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


def digest_pack(connection: apsw.Connection, manifest: Manifest) -> str:
    """Return sha256 over a manifest and every row, shadow tables of full-text indexes included; 64 hex digits.

    Two files with the same rows have the same digest, however SQLite laid out their pages.
    """
    whole = hashlib.sha256(json.dumps(asdict(replace(manifest, digest="")), sort_keys=True).encode())
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


def write_pack(
    database: Database, target: Path, collections: Sequence[str] | None = None, *, title: str = "", author: str = "",
    note: str = "", overwrite: bool = False, say: Callable[[str], None] = lambda _: None,
) -> Manifest:  # fmt: skip
    """Write a pack of `database` to `target`, whole or not at all; of some collections without quick starts and rules.

    What goes in is copied into a temporary file without a name, so that a kill leaves nothing on the disk, and the
    keyword indexes are merged there: deleting alone would leave the text of the rest. InvalidInput if the target
    exists, or is the file itself; NotFound if there is no such collection; FileUnavailable if it cannot be written.
    """
    target = files.expand_home(target).absolute()
    if target.exists() and database.path.exists() and target.samefile(database.path):
        raise InvalidInput("A file cannot be packed into itself.", hint="Name another file.")
    if target.exists() and not overwrite:
        raise InvalidInput(f"{target} is there already.", hint="Name another file, or say --force.")
    chosen = None
    if collections is not None:
        with database.read() as connection:
            chosen = json.dumps([collection.id for collection in choose_collections(connection, list(collections))])
    try:
        with files.scratch_folder(target.parent) as scratch, closing(database.attached()) as connection:
            say("copying")
            _copy_rows(connection, chosen)
            say("counting")
            sql = "select json_object('name', name, 'sha256', sha256, 'dimension', dimension) from models order by name"
            models = map(json.loads, fetch_column(connection, sql))
            sql = """
                select json_object('name', name, 'sources', count(sources.id), 'chunks', coalesce(sum(chunk_count), 0))
                from collections left join sources on sources.collection_id = collections.id
                where kind = 'documents' group by collections.id
            """
            packed = map(json.loads, fetch_column(connection, sql))
            counts, made_by = count_contents(connection), f"localmcp {__version__}"
            manifest = Manifest(title, author, note, utc_now(), made_by, [*models], counts, [*packed])
            manifest = replace(manifest, digest=digest_pack(connection, manifest))
            content = json.dumps(asdict(manifest), ensure_ascii=False)
            connection.execute("insert or replace into manifest (one, content) values (1, ?)", (content,))
            say("writing")
            files.make_private_file(scratch / "packed")
            connection.execute("vacuum into ?", (str(scratch / "packed"),))
            os.replace(scratch / "packed", target)
    except apsw.FullError as error:
        raise FileUnavailable("The disk is full; no pack was written.", hint="Free some space.") from error
    except (OSError, apsw.IOError, apsw.CantOpenError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FileUnavailable(f"{target} cannot be written: {reason}.", hint="Name a file elsewhere.") from error
    return manifest


def _copy_rows(connection: apsw.Connection, chosen: str | None) -> None:
    # Only of the collections in `chosen`, a JSON array of ids, if it is not None.
    # Nobody else sees the temporary file, and it is thrown away if anything fails.
    connection.pragma("page_size", storage.PAGE_SIZE)
    connection.pragma("foreign_keys", False)
    connection.pragma("synchronous", "off")
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute("begin")
    create_schema(connection)
    connection.execute("delete from state")
    tables = OF_COLLECTIONS if chosen else {**OF_COLLECTIONS, **OF_THE_FILE}
    for table, which in {**tables, **VECTORS}.items():
        if "_fts_" in table:
            connection.execute(f"delete from main.{table}")
        copy_table(connection, table, "live", which, {"chosen": chosen})
    # Absolute paths of documents, and in their metadata, become paths below the folder that was added. What only looks
    # like a path, such as `/api/users`, stays.
    sql = "select path from live.roots order by length(path) desc"
    roots = [PurePath(path) for path in fetch_column(connection, sql)]
    # As JSON has it: the folder itself, or what is below it.
    hidden = [
        (re.compile(rf'(?:file://)?{re.escape(json.dumps(str(folder), ensure_ascii=False)[1:-1])}(?=["/\\#])'), name)
        for folder, name in [*((root, root.name) for root in roots), (Path.home(), "~")]
        if folder.name
    ]
    rows = fetch_all(connection, "select id, collection_id, uri, metadata from sources order by id")
    used_uris = {(collection_id, uri) for _, collection_id, uri, _ in rows if uri is not None and not _is_absolute(uri)}
    for source_id, collection_id, uri, metadata in rows:
        if uri is not None and _is_absolute(uri):
            # `notes/a/b.md` for a file of the added folder `…/notes`; its bare name for one that was added by itself.
            path, below = PurePath(uri), PureWindowsPath(uri).name or "document"
            if root := next((root for root in roots if path != root and path.is_relative_to(root)), None):
                below = PurePath(root.name, path.relative_to(root)).as_posix()
            candidates = chain([below], (f"{number}/{below}" for number in count(2)))
            uri = next(place for place in candidates if (collection_id, place) not in used_uris)
            used_uris.add((collection_id, uri))
        for folder, name in hidden:
            metadata = folder.sub(lambda _, name=name: name, metadata)
        sql = "update sources set uri = ?, mtime_ns = null, metadata = ? where id = ?"
        connection.execute(sql, (uri, metadata, source_id))
    connection.execute(UNUSED_WORDS)
    # Not what a person said, only what was made of it.
    connection.execute("""
        delete from main.chunks_fts where rowid in (
            select id from main.chunks_fts_docsize where id not in (select id from main.chunks)
        );
        delete from main.quickstarts_fts where rowid in (
            select id from main.quickstarts_fts_docsize where id not in (select id from main.quickstarts)
        );
        update main.user_instructions set origin = 'pack', context = '', inserted_at = rules.inserted_at,
            instruction = rules.rule_text, rule_id = rules.id
            from main.rules where user_instructions.id = created_from_instruction_id;
        update main.rules set last_applied = null, instructions_count = 1;
    """)
    connection.execute("commit")
    connection.execute("detach live")
    for index in ("chunks_fts", "quickstarts_fts"):
        connection.execute(f"insert into {index} ({index}) values ('optimize')")


def _is_absolute(place: str) -> bool:
    # Whichever system the machine has.
    return place.startswith("file:") or PurePosixPath(place).is_absolute() or PureWindowsPath(place).is_absolute()


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

    It is read in a process that is killed when it takes too long. A file that cannot even be opened is reported as the
    one problem it then has. NotFound if there is no such file.
    """
    if not path.is_file():
        raise NotFound(f"There is no file {path}.")
    try:
        return run_killable(path, _verify, path)
    except FileUnavailable as error:
        return Verification(path, problems=[error.message])


def _verify(path: Path) -> Verification:
    verification = Verification(path)
    problems, notes = verification.problems, verification.notes
    try:
        # Its own connection: SQLite checks a full-text table against what the connection read of it earlier.
        with closing(Database(path, read_only=True)) as database, database.read() as connection:
            connection.limit(apsw.SQLITE_LIMIT_LENGTH, storage.MAX_FOREIGN_VALUE_BYTES)
            messages = fetch_column(connection, "pragma integrity_check(20)")
            if messages != ["ok"]:
                problems += [f"damaged: {message}" for message in messages]
                return verification
            if parents := fetch_all(connection, "select * from pragma_foreign_key_check limit 1000"):
                problems.append(f"{len(parents)} rows point at something that is not there")
                return verification
            verification.counts = count_contents(connection)
            # Only a file of this machine can have them; every other is refused.
            notes += [f"It holds what is not ours: {name}" for name in foreign_objects(connection)[:20]]
            problems += disagreements(connection)
            names = ("title", "place", "collection", "sha256", "passages")
            sql = """
                select title, uri, name, sha256, chunk_count from sources
                join collections on collections.id = collection_id
                where trashed_at is null order by name, uri, title limit 100000
            """
            verification.sources = [dict(zip(names, row, strict=True)) for row in connection.execute(sql)]
            manifest = verification.manifest = read_manifest(connection)
            if not fetch_one(connection, "select count(*) from manifest"):
                notes.append("It has no manifest: it is no pack, so nobody says what should be in it.")
            elif manifest is None:
                problems.append("its manifest is not one that localmcp writes")
            elif digest_pack(connection, manifest) != manifest.digest:
                problems.append("it is not what was packed: its digest differs from the manifest's")
    except LocalMCPError as error:
        problems.append(error.message)
    except (apsw.Error, *storage.UNREADABLE_ROWS) as error:
        problems.append(f"it cannot be read to its end: {error}")
    return verification
