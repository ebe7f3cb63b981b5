"""Checks of this machine, of the file, and of its content against the documents, the disk and the model."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from localmcp import __version__
from localmcp.config import Settings
from localmcp.doctor.check import Check, fail, ok, warn
from localmcp.errors import AlteredSchema, ConfigurationError, FileTooNew, LocalMCPError
from localmcp.files import abandoned_folders, is_filled, modified_ns
from localmcp.humanize import command_line, counted, size
from localmcp.index.collections import spec_of, unread_languages
from localmcp.index.consistency import disagreements
from localmcp.index.reembedding import REFRESH
from localmcp.index.vector_queue import waiting, word_only_passages
from localmcp.storage.adoption import run_killable
from localmcp.storage.connections import check_levenshtein, connect, has_sqlite_vec
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one
from localmcp.storage.schema import foreign_objects, is_adopted

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

MOST_DAMAGES = 20
REMADE_TABLES = frozenset({"words", "terms", "chunks_fts", "quickstarts_fts", "vectors", "sentence_codes",
                           "word_vectors", "signs", "calls", ""})  # fmt: skip
"""What can be made again from the documents, or, as the log of calls, be begun anew."""
FIX = "localmcp doctor --fix"
LOST_PASSAGES = ("another number of passages", "do not continue")
"""In what is said of passages that are torn or lost, which cannot be made again from the file itself."""


# ---------------------------------------------------------------- the machine


def check_installation(settings: Settings | None) -> Iterator[Check]:
    """Check Python, SQLite, and what SQLite is extended by."""
    if settings is not None and settings.milvus_address and importlib.util.find_spec("pymilvus") is None:
        yield fail("python", "not installed: pymilvus", "pip install localmcp[milvus]")
    else:
        system = f"{platform.system()} {platform.machine()}"
        yield ok("python", f"localmcp {__version__}, Python {platform.python_version()}, {system}")
    version = apsw.sqlite_lib_version()
    with closing(connect("")) as connection:
        if not check_levenshtein(connection):
            yield warn("sqlite", f"SQLite {version}; its levenshtein function is wrong: quick starts use fallback")
        elif not has_sqlite_vec(connection):
            says = "sqlite-vec is not loaded (there is no wheel for Windows arm64 and musl); numpy compares the vectors"
            yield warn("sqlite", says, "pip install --force-reinstall 'sqlite-vec>=0.1.9,<0.1.10'")
        else:
            yield ok("sqlite", f"SQLite {version}, brought by apsw, with sqlite-vec")


def check_place(path: Path) -> Iterator[Check]:
    """Check the folder and the disk of the file, without opening it."""
    if who := synced_by(path):
        says = f"{path.parent} is synchronized by {who}, which may copy the file half-written or bring back an old one"
        yield warn("folder", f"{says}; keep it elsewhere and synchronize backups", "localmcp config set database PATH")
    else:
        yield ok("folder", "not in a synchronized folder")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    free, used = shutil.disk_usage(folder).free, path.stat().st_size if path.is_file() else 0
    if free < 100_000_000:
        yield fail("disk", f"only {size(free)} left: writing may fail, though nothing is lost then")
    elif free < used + 100_000_000:
        yield warn("disk", f"{size(free)} left, less than the file has ({size(used)}): no room for a backup")
    else:
        yield ok("disk", f"{size(free)} left")
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and (bytes_ := log.stat().st_size) > 64_000_000:
        says = f"{size(bytes_)} of changes are not yet in the file itself: somebody has been reading for long"
        yield warn("left behind", says, "localmcp doctor --fix")
    if scraps := abandoned_folders(path.parent):
        says = "unfinished copies were left behind by a program that was killed"
        yield warn("left behind", f"{says}: {', '.join(scrap.name for scrap in scraps[:3])}", "localmcp doctor --fix")


def synced_by(path: Path) -> str | None:
    """Return the program that synchronizes the folder that the file is in; None when none seems to."""
    known = {
        "dropbox": "Dropbox", "onedrive": "OneDrive", "google drive": "Google Drive", "googledrive": "Google Drive",
        "my drive": "Google Drive", "mobile documents": "iCloud Drive", "icloud drive": "iCloud Drive",
        "icloud": "iCloud Drive", "cloudstorage": "a cloud drive", "nextcloud": "Nextcloud", "owncloud": "ownCloud",
        "proton drive": "Proton Drive", "syncthing": "Syncthing",
    }  # fmt: skip
    for folder in path.absolute().parents:
        name = folder.name.casefold()
        for beginning, who in known.items():
            if name == beginning or name.startswith((f"{beginning} ", f"{beginning}-", f"{beginning}~")):
                return who
    return None


# ---------------------------------------------------------------- the file


def check_file(path: Path) -> Iterator[Check]:
    """Check the file as such; the last check fails when nothing of it can be read."""
    if not path.exists():
        yield warn("file", f"{path} does not exist yet", "localmcp add FOLDER")
        return
    if not is_filled(path):
        yield fail("file", f"{path} is empty", "localmcp add FOLDER, or: localmcp restore BACKUP")
        return
    try:
        yield from run_killable(path, _look_at_pages, path)
    except FileTooNew as error:
        yield fail("file", error.message, "pip install --upgrade localmcp")
    except AlteredSchema as error:
        yield fail("file", error.message, command_line("localmcp", "adopt", path))
    except LocalMCPError as error:
        yield fail("file", error.message, command_line("localmcp", "restore", "BACKUP", "--db", path))


def _look_at_pages(path: Path) -> list[Check]:
    """Check what is in the file, in a process that knows nothing of it.

    SQLite checks a full-text table against what its connection read of it earlier.
    """
    with closing(Database(path, read_only=True)) as database, database.read() as connection:
        checks = [ok("file", f"{path}: {size(path.stat().st_size)}")]
        if foreign := foreign_objects(connection)[:MOST_DAMAGES]:
            checks.append(warn("file", f"not ours, and in no pack, merged or restored file: {', '.join(foreign)}"))
        damages = damaged_tables(connection)
        parents = [] if damages else fetch_all(connection, "select * from pragma_foreign_key_check limit 1000")
    restore = command_line("localmcp", "restore", "BACKUP", "--db", path)
    if damages:
        told = [f"the table '{table}': {says}" if table else says for table, says in damages.items()]
        fix = "localmcp doctor --fix" if damages.keys() <= REMADE_TABLES else restore
        return [*checks, fail("integrity", f"damaged: {'; '.join(told)}", fix)]
    if parents:
        lost = f"{len(parents)} rows point at something that is not there"
        return [*checks, fail("integrity", lost, restore)]
    return [*checks, ok("integrity", "every page is whole")]


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


def check_writable(database: Database) -> Check:
    """Return whether the file may be changed, and why not."""
    path = database.path
    if not is_adopted(database.file_id):
        says = "the file comes from somewhere else and is read-only here"
        return warn("writing", says, command_line("localmcp", "adopt", path))
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return warn("writing", "the file or its folder is write-protected: searching works, changing does not")
    return ok("writing", "the file can be changed")


# ---------------------------------------------------------------- the content


def check_contents(workspace: Workspace) -> Iterator[Check]:
    """Check everything that is read from tables. Needs a file that opens."""
    with workspace.database.read() as connection:
        checks = list(_check_tables(connection))
    if check_writable(workspace.database).status != "ok":
        # No command changes the file before it is writable, of which a check of its own tells.
        checks = [replace(check, fix="") for check in checks]
    yield from checks
    for mount in workspace.mounts.described():
        if mount["problem"]:
            says = f"'{mount['name']}' ({mount['path']}) is not searched: {mount['problem']}"
            yield warn("mounted", says, command_line("localmcp", "unmount", mount["name"]))
    yield from check_model(workspace)


def _check_tables(connection: apsw.Connection) -> Iterator[Check]:
    sql = "select count(*), coalesce(sum(chunk_count), 0) from sources where trashed_at is null"
    sources, chunks = fetch_one(connection, sql)
    yield ok("holds", f"{counted(sources, 'document')} in {counted(chunks, 'passage')}")
    wrong = disagreements(connection)
    for problem in wrong:
        lost = any(part in problem for part in LOST_PASSAGES)
        yield fail("indexes", problem, "localmcp restore BACKUP" if lost else FIX)
    if counts := count_wrong_counts(connection):
        yield fail("indexes", f"{counts} counts of words or kinds of text are wrong", FIX)
    if not wrong and not counts:
        yield ok("indexes", "keywords, vectors and sign codes agree with the documents")
    ids = fetch_column(connection, "select id from collections where kind = 'documents'")
    if missing := waiting(connection, ids).passages:
        yield warn("vectors", f"{counted(missing, 'passage')} found by word only so far", REFRESH)
    else:
        by_word_only = word_only_passages(connection, ids)
        word_only = f", {by_word_only:,} aside that are found by word only" if by_word_only else ""
        yield ok("vectors", f"every passage has one{word_only}")
    yield from _documents(connection)
    if unread := unread_languages(connection):
        yield warn("model", unread.sentence, unread.command)


def count_wrong_counts(connection: apsw.Connection) -> int:
    """Return how many rows of words, terms and groups are certainly counted wrongly; costs little."""
    sql = """
        select (select count(*) from words where chunks <= 0) + (select count(*) from terms where chunks <= 0)
            + (select count(*) from groups where chunks <> (
                select count(*) from chunks join sources on sources.id = source_id
                where group_id = groups.id and trashed_at is null))
            + (select (select count(*) from chunks_fts) > 0 and not exists (select 1 from terms))
    """
    return fetch_one(connection, sql)


def _documents(connection: apsw.Connection) -> Iterator[Check]:
    sql = """
        select path, ledger.size, ledger.mtime_ns from ledger join sources on sources.id = source_id
        where status = 'indexed' and trashed_at is null and ledger.mtime_ns is not null order by sources.id
    """
    counts = Counter(_state(*row) for row in islice(connection.execute(sql), 50_000))
    for path in fetch_column(connection, "select distinct path from roots where kind = 'folder'"):
        if not os.path.isdir(path):
            says = f"{path} is not there; if its disk is only not mounted, or it was moved, nothing has to be done"
            yield warn("freshness", says, command_line("localmcp", "remove", path))
    if closed := counts["closed"]:
        says = f"{counted(closed, 'file')} cannot be looked at; what was read of them is still searched"
        yield warn("freshness", says)
    if told := [f"{counted(counts[state], 'file')} {state}" for state in ("changed", "gone") if counts[state]]:
        yield warn("freshness", f"{' and '.join(told)}, of {counts.total():,}", REFRESH)
    elif counts:
        yield ok("freshness", f"{counted(counts.total(), 'file')} as they were indexed")


def _state(path: str, bytes_: int, mtime_ns: int) -> str:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return "gone"
    except OSError:
        return "closed"
    return "same" if (status.st_size, modified_ns(status)) == (bytes_, mtime_ns) else "changed"


def check_model(workspace: Workspace) -> Iterator[Check]:
    """Check whether the model that is set opens, and made the vectors that are there."""
    setting = workspace.settings.model
    try:
        embedder = workspace.embedder.get()
    except LocalMCPError as error:
        fix = "localmcp config set model default" if isinstance(error, ConfigurationError) else "localmcp models list"
        yield fail("model", f"{setting}: {error}", "" if error.hint else fix)
        return
    identity = embedder.identity
    dimensions = f"{identity.dimension} dimensions, {identity.max_tokens} tokens"
    yield ok("model", f"{setting}: {identity.name}, {dimensions}")
    sql = """
        select collections.name, kind, models.name, dimension from collections join models on models.id = model_id
        where fingerprint <> ? and kind <> 'dropped' order by 1
    """
    with workspace.database.read() as connection:
        foreign = fetch_all(connection, sql, (identity.fingerprint,))
    for name, kind, model, dimension in foreign:
        says = f"come from {model}, not from {identity.name}: not found by meaning"
        if kind == "rules":
            yield warn("model", f"the vectors of rules {says}", "localmcp rules reembed")
        else:
            fix = f"localmcp config set model {spec_of(model, dimension)}, or: localmcp reembed"
            yield warn("model", f"the vectors of '{name}' {says}", fix)
