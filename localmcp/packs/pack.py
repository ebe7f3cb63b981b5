"""`localmcp pack`: one consistent file from a live one, without what is private, with a manifest."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, cast

import apsw

from localmcp import __version__, files
from localmcp.errors import FileUnavailable, InvalidInput
from localmcp.index.collections import choose_collections
from localmcp.index.word_vectors import UNUSED_WORDS
from localmcp.packs.digest import digest_content
from localmcp.packs.manifest import Manifest, count_contents, seal_of
from localmcp.readers.chunking import CHUNKER_VERSION
from localmcp.storage.database import Database, fetch_all, fetch_column
from localmcp.storage.schema import expected_schema, schema_of
from localmcp.storage.times import utc_now

PRIVATE_TABLES = (
    "api_keys", "calls", "equal_passages", "jobs", "leases", "ledger", "roots", "rule_uses",
    "trash",
)  # fmt: skip
"""API keys, calls, paths of this machine, pages of documents that are not in yet, and the progress of the person."""


@dataclass(frozen=True, slots=True)
class PackOptions:
    """The contents and the description of a pack."""

    collections: tuple[str, ...] | None = None
    """Only these; then quick starts and rules stay out. None = everything."""
    title: str = ""
    author: str = ""
    note: str = ""
    overwrite: bool = False


def write_pack(
    database: Database, target: Path, options: PackOptions, say: Callable[[str], None] = lambda _: None
) -> Manifest:
    """Write a pack of `database` to `target`, whole or not at all.

    One snapshot of the live file is copied into a temporary file without a name, so that a kill leaves no private
    rows on the disk. There they and what was not asked for are deleted, the keyword indexes are merged into one piece
    without them, and only then are the pages written that will be given away: deleting alone would leave the text.

    Raises:
        InvalidInput: the target exists, or is the file itself.
        NotFound: a collection that is not there.
        FileUnavailable: the target cannot be written, or the disk is full.
    """
    target = files.expand_home(target).absolute()
    _check_target(database, target, options.overwrite)
    unwanted = _unwanted(database, options)
    try:
        with files.scratch_folder(target.parent) as scratch:
            packed = scratch / "packed"
            manifest = _write(database, packed, unwanted, options, say)
            os.replace(packed, target)
    except apsw.FullError as error:
        raise FileUnavailable("The disk is full; no pack was written.", hint="Free some space.") from error
    except (OSError, apsw.IOError, apsw.CantOpenError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FileUnavailable(f"{target} cannot be written: {reason}.", hint="Name a file elsewhere.") from error
    return manifest


def _write(
    database: Database, packed: Path, unwanted: Sequence[int] | None, options: PackOptions,
    say: Callable[[str], None],
) -> Manifest:  # fmt: skip
    say("copying")
    with closing(database.copy_unnamed()) as connection:
        say("leaving out what is private")
        _reduce(connection, unwanted)
        say("counting")
        manifest = _describe(connection, options)
        content = json.dumps(asdict(manifest), ensure_ascii=False)
        connection.execute("insert or replace into manifest (one, content) values (1, ?)", (content,))
        say("writing")
        files.make_private_file(packed)
        connection.execute("vacuum into ?", (str(packed),))
    return manifest


def _check_target(database: Database, target: Path, overwrite: bool) -> None:
    if target.exists() and database.path.exists() and target.samefile(database.path):
        raise InvalidInput("A file cannot be packed into itself.", hint="Name another file.")
    if target.is_dir():
        raise InvalidInput(f"{target} is a folder.", hint="Name a file in it.")
    if target.exists() and not overwrite:
        raise InvalidInput(f"{target} is there already.", hint="Name another file, or say --force.")
    if not target.parent.is_dir():
        raise InvalidInput(f"The folder {target.parent} does not exist.")


def _unwanted(database: Database, options: PackOptions) -> list[int] | None:
    """Return ids of the collections to leave out; None when everything goes in."""
    if options.collections is None:
        return None
    with database.read() as connection:
        packed_ids = [collection.id for collection in choose_collections(connection, list(options.collections))]
        rows = fetch_all(connection, "select id from collections")
    return [collection_id for (collection_id,) in rows if collection_id not in packed_ids]


def _reduce(connection: apsw.Connection, unwanted: Sequence[int] | None) -> None:
    # Nobody else sees the copy, and it is thrown away if anything fails.
    connection.pragma("foreign_keys", False)
    connection.pragma("synchronous", "off")
    connection.execute("begin immediate")
    _drop_foreign_tables(connection)
    connection.execute("update file set id = ?, created_at = ?", (uuid.uuid4().hex, utc_now()))
    dropped: list[int] = fetch_column(connection, "select id from collections where kind = 'dropped'")
    _delete_sources(connection, [*(unwanted or []), *dropped])
    _hide_places(connection)
    for table in PRIVATE_TABLES:
        connection.execute(f"delete from {table}")
    _delete_collections(connection, [*(unwanted or []), *dropped])
    if unwanted is not None:
        _delete_quickstarts_and_rules(connection)
    connection.execute("delete from vector_queue where source_id not in (select id from sources)")
    _forget_history(connection)
    _delete_spare_vectors(connection)
    connection.execute(UNUSED_WORDS)
    connection.execute(
        "delete from sqlite_sequence where name in (select value from json_each(?))", (json.dumps(PRIVATE_TABLES),)
    )
    connection.execute("commit")
    for index in ("chunks_fts", "quickstarts_fts"):
        connection.execute(f"insert into {index} ({index}) values ('optimize')")


def _drop_foreign_tables(connection: apsw.Connection) -> None:
    """Drop tables and indexes that the person added by hand, and statistics, which may hold sampled values."""
    ours = expected_schema()
    for kind, name in schema_of(connection):
        if (kind, name) not in ours and not name.startswith(("sqlite_sequence", "sqlite_autoindex")):
            quoted = name.replace('"', '""')
            connection.execute(f'drop {kind} if exists "{quoted}"')


def _forget_history(connection: apsw.Connection) -> None:
    """Delete removed quick starts, retired rules, the instructions behind rules, and the record of their use."""
    connection.execute("""
        delete from quickstart_tags where quickstart_id in (select id from quickstarts where deleted_at is not null);
        delete from quickstarts where deleted_at is not null;
        delete from vectors where id in (select embedding from rules where retired_at is not null);
        delete from rules where retired_at is not null;
        delete from user_instructions where id not in (select created_from_instruction_id from rules);
        update user_instructions set origin = 'pack', context = '', inserted_at = rules.inserted_at,
            instruction = rules.rule_text, rule_id = rules.id
            from rules where user_instructions.id = created_from_instruction_id;
        update rules set last_applied = null, instructions_count = 1;
    """)


def _delete_sources(connection: apsw.Connection, unwanted: Sequence[int]) -> None:
    """Delete what is in the trash, and every document of the unwanted collections."""
    connection.execute(
        """
        create temp table leaving as select id from sources
            where trashed_at is not null or collection_id in (select value from json_each(?));
        """,
        (json.dumps(list(unwanted)),),
    )
    connection.execute("""
        create temp table leaving_chunks as select id from chunks where source_id in (select id from leaving);
        delete from chunks_fts where rowid in (select id from leaving_chunks);
        delete from vectors where (id & 1099511627775) in (select id from leaving_chunks);
        delete from chunks where id in (select id from leaving_chunks);
        delete from sources where id in (select id from leaving);
        drop table leaving_chunks;
        drop table leaving;
    """)


def _delete_collections(connection: apsw.Connection, unwanted: Sequence[int]) -> None:
    which = json.dumps(list(unwanted))
    for table in ("words", "terms", "signs", "groups", "partitions"):
        connection.execute(f"delete from {table} where collection_id in (select value from json_each(?))", (which,))
    connection.execute("delete from collections where id in (select value from json_each(?))", (which,))


def _delete_quickstarts_and_rules(connection: apsw.Connection) -> None:
    connection.execute("""
        delete from quickstarts_fts where rowid in (select id from quickstarts);
        delete from quickstart_tags;
        delete from quickstarts;
        delete from vectors where id in (select embedding from rules);
        delete from rules;
        delete from user_instructions;
    """)


def _delete_spare_vectors(connection: apsw.Connection) -> None:
    """Delete vectors and sign codes that an earlier model left behind, and models that then have none."""
    connection.execute("""
        delete from vectors where id not in (
            select collections.model_id << 40 | chunks.id from chunks
            join sources on sources.id = source_id join collections on collections.id = collection_id
            where collections.model_id is not null
            union select embedding from rules where embedding is not null
        );
        delete from signs where not exists (
            select 1 from collections as owner where owner.id = signs.collection_id and owner.model_id = signs.model_id
        );
        delete from models where id not in (select model_id from collections where model_id is not null)
    """)


def _describe(connection: apsw.Connection, options: PackOptions) -> Manifest:
    models = fetch_all(connection, "select name, sha256, dimension from models order by name")
    collections = fetch_all(
        connection,
        """
        select name, count(sources.id), coalesce(sum(chunk_count), 0) from collections
        left join sources on sources.collection_id = collections.id where kind = 'documents' group by collections.id
        """,
    )
    manifest = Manifest(
        title=options.title,
        author=options.author,
        note=options.note,
        created_at=utc_now(),
        made_by=f"localmcp {__version__}",
        chunker=CHUNKER_VERSION,
        models=[dict(zip(("name", "sha256", "dimension"), row, strict=True)) for row in models],
        counts=count_contents(connection),
        collections=[dict(zip(("name", "sources", "chunks"), row, strict=True)) for row in collections],
        digest=digest_content(connection),
    )
    return replace(manifest, seal=seal_of(manifest))


# ---------------------------------------------------------------- paths


def _hide_places(connection: apsw.Connection) -> None:
    """Turn absolute paths into paths below the folder that was added: of documents, and in their metadata."""
    roots = [PurePath(path) for path in fetch_column(connection, "select path from roots order by length(path) desc")]
    rows = fetch_all(connection, "select id, collection_id, uri, metadata from sources order by id")
    used_uris = {(collection_id, uri) for _, collection_id, uri, _ in rows if uri is not None and not _is_absolute(uri)}
    for source_id, collection_id, uri, metadata in rows:
        place = uri
        if uri is not None and _is_absolute(uri):
            place = _free(_below(uri, roots), collection_id, used_uris)
        connection.execute(
            "update sources set uri = ?, mtime_ns = null, metadata = ? where id = ?",
            (place, _cleaned(metadata, uri, place, roots), source_id),
        )


def _is_absolute(place: str) -> bool:
    """Return whether it names a place on some machine's disk, whichever system that has."""
    if place.startswith("file:"):
        return True
    return PurePosixPath(place).is_absolute() or PureWindowsPath(place).is_absolute()


def _below(place: str, roots: Sequence[PurePath]) -> str:
    """`notes/a/b.md` for a file of the added folder `…/notes`; its bare name for a file that was added by itself."""
    path = PurePath(place)
    for root in roots:
        if path != root and path.is_relative_to(root):
            return PurePath(root.name, path.relative_to(root)).as_posix()
    return PureWindowsPath(place).name or "document"


def _free(place: str, collection_id: int, used_uris: set[tuple[int, str]]) -> str:
    free, number = place, 1
    while (collection_id, free) in used_uris:
        number += 1
        free = f"{number}/{place}"
    used_uris.add((collection_id, free))
    return free


def _cleaned(metadata: str, uri: str | None, place: str | None, roots: Sequence[PurePath]) -> str:
    """Return the metadata without paths of this machine; what only looks like one, such as `/api/users`, stays."""
    if "/" not in metadata and "\\" not in metadata:
        return metadata
    homes = [*roots, PurePath(Path.home())]

    def shorten(text: str) -> str:
        if text == uri and place is not None:
            return place
        bare = text.removeprefix("file://")
        path = PurePath(bare)
        return _below(bare, homes) if os.path.isabs(bare) and any(path.is_relative_to(home) for home in homes) else text

    try:
        return json.dumps(_mapped(json.loads(metadata), shorten), ensure_ascii=False)
    except (ValueError, RecursionError):
        return "{}"


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _mapped(nested, change) for key, nested in cast("dict[str, Any]", value).items()}
    return value
