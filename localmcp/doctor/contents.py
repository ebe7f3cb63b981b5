"""Checks of the content: indexes against documents, documents against the disk, vectors against the model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import apsw

from localmcp.doctor.check import Check, fail, ok, warn
from localmcp.doctor.file import check_writable
from localmcp.errors import ConfigurationError, LocalMCPError
from localmcp.files import modified_ns
from localmcp.humanize import command_line, counted
from localmcp.index.collections import spec_of, unread_languages
from localmcp.index.consistency import disagreements
from localmcp.index.reembedding import REFRESH
from localmcp.index.vector_queue import waiting, word_only_passages
from localmcp.storage.database import fetch_all, fetch_column, fetch_one

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

MOST_FILES = 50_000
"""Files whose size and time are compared with the disk."""
FIX = "localmcp doctor --fix"
LOST_PASSAGES = ("another number of passages", "do not continue")
"""In what is said of passages that are torn or lost, which cannot be made again from the file itself."""


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
    yield from _indexes(connection)
    yield from _missing_vectors(connection)
    yield from _documents(connection)
    if unread := unread_languages(connection):
        yield warn("model", unread.sentence, unread.command)


def _indexes(connection: apsw.Connection) -> Iterator[Check]:
    wrong = disagreements(connection)
    for problem in wrong:
        lost = any(part in problem for part in LOST_PASSAGES)
        yield fail("indexes", problem, "localmcp restore BACKUP" if lost else FIX)
    if counts := count_wrong_counts(connection):
        yield fail("indexes", f"{counts} counts of words or kinds of text are wrong", FIX)
    if not wrong and not counts:
        yield ok("indexes", "keywords, vectors and sign codes agree with the documents")


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


def _missing_vectors(connection: apsw.Connection) -> Iterator[Check]:
    ids = fetch_column(connection, "select id from collections where kind = 'documents'")
    if missing := waiting(connection, ids).passages:
        says = f"{counted(missing, 'passage')} found by word only so far"
        yield warn("vectors", says, REFRESH)
    else:
        by_word_only = word_only_passages(connection, ids)
        word_only = f", {by_word_only:,} aside that are found by word only" if by_word_only else ""
        yield ok("vectors", f"every passage has one{word_only}")


def _documents(connection: apsw.Connection) -> Iterator[Check]:
    sql = """
        select path, ledger.size, ledger.mtime_ns from ledger join sources on sources.id = source_id
        where status = 'indexed' and trashed_at is null and ledger.mtime_ns is not null order by sources.id
    """
    counts = Counter(_state(*row) for row in islice(connection.execute(sql), MOST_FILES))
    yield from _missing_folders(connection)
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


def _missing_folders(connection: apsw.Connection) -> Iterator[Check]:
    for path in fetch_column(connection, "select distinct path from roots where kind = 'folder'"):
        if not os.path.isdir(path):
            says = f"{path} is not there; if its disk is only not mounted, or it was moved, nothing has to be done"
            yield warn("freshness", says, command_line("localmcp", "remove", path))


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
    size = f"{identity.dimension} dimensions, {identity.max_tokens} tokens"
    yield ok("model", f"{setting}: {identity.name}, {size}")
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
