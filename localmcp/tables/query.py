"""One SELECT over tables of documents, in a SQLite in memory that never sees the library's file.

`answer` runs in a worker process, which is killed when a document or a statement overruns its limits. What it has
loaded stays for the next statement, until the document is another.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from rapidfuzz.distance import JaroWinkler

from localmcp.errors import InvalidInput
from localmcp.storage.connections import quote_name, register_levenshtein
from localmcp.storage.statements import read_rows, reading_only
from localmcp.tables.documents import read_tables
from localmcp.wording.normalize import words

SECONDS = 2.0
"""Time that a statement may take; documents are loaded before."""
MOST_ROWS, MOST_CHARACTERS = 500, 40_000
"""Of an answer."""
MOST_KEPT = 400_000
"""Rows that stay loaded."""

TableSource = tuple[str, str, str, str | None]
"""A table that a statement may name: its name, its title in its document, the path of that document's file, or its id,
and its text where that is read instead of the file."""


class Outcome(NamedTuple):
    """The rows of a statement."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool
    used: dict[str, tuple[int, tuple[int, int]]]
    """Table that was read -> its rows, and the time (ns) and bytes of its file as it is now."""


class _Loaded(NamedTuple):
    """A table in memory, under a name that is unknown to those who ask; a statement sees a view of it."""

    name: str
    columns: list[str]
    rows: int
    signature: tuple[int, int]
    """Time (ns) and bytes of its document."""


_memory = apsw.Connection(":memory:")
_documents: dict[str, tuple[tuple[int, int], dict[str, _Loaded]]] = {}
"""Path -> its time and bytes, and its tables by title."""


def answer(task: tuple[str, Sequence[TableSource]]) -> Iterator[Outcome]:
    """Yield the outcome of a statement; the documents that it names are loaded first.

    Raises:
        InvalidInput: it cannot be run, and why.
    """
    statement, sources = task
    named: dict[str, _Loaded] = {}
    try:
        for name, title, path, text in sources:
            if loaded := _load(path, text).get(title):
                named[name] = loaded
        yield _run(statement, named)
    except OSError as error:
        reason = f"{error.filename} cannot be read: {(error.strerror or str(error)).lower()}."
        raise InvalidInput(
            f"{reason} A query reads the file itself; search shows what was read of it before."
        ) from error
    except apsw.InterruptError as error:
        raise InvalidInput(f"The query took longer than {SECONDS:g} s and was stopped.") from error
    except apsw.AuthError as error:
        raise InvalidInput("A query may only read: one SELECT over the tables that list_tables names.") from error
    except apsw.Error as error:
        reason = f"The statement cannot be run: {str(error).rstrip('.')}."
        if wanted := str(error).partition("no such column: ")[2].rpartition(".")[2].strip('"').casefold():
            columns = dict.fromkeys(name for loaded in named.values() for name in loaded.columns)
            near = sorted(columns, key=lambda name: JaroWinkler.distance(name.casefold(), wanted))[:5]
            reason += f" Nearest columns: {', '.join(map(quote_name, near))}." if near else ""
        raise InvalidInput(reason) from error


def _load(path: str, text: str | None) -> dict[str, _Loaded]:
    """Return the tables of a document by title, loaded if it is another than before.

    Raises:
        OSError: the file cannot be read.
    """
    signature = (hash(text), len(text or ""))
    if text is None:
        status = Path(path).stat()
        signature = (status.st_mtime_ns, status.st_size)
    if path in _documents and _documents[path][0] == signature:
        return _documents[path][1]

    def drop(path: str) -> None:
        _, dropped = _documents.pop(path, (None, dict[str, _Loaded]()))
        for table in dropped.values():
            _memory.execute(f"drop table '{table.name}'")

    drop(path)
    tables: dict[str, _Loaded] = {}
    for table in read_tables(path, text):
        loaded = _Loaded(uuid.uuid4().hex, list(table.columns), len(table.rows), signature)
        with _memory:
            _memory.execute(f"create table '{loaded.name}' ({', '.join(map(quote_name, loaded.columns))})")
            slots = ", ".join("?" * len(loaded.columns))
            _memory.executemany(f"insert into '{loaded.name}' values ({slots})", table.rows)
        tables.setdefault(table.title, loaded)
    _documents[path] = (signature, tables)
    while len(_documents) > 1 and sum(t.rows for _, held in _documents.values() for t in held.values()) > MOST_KEPT:
        drop(next(iter(_documents)))
    return tables


def _run(sql: str, named: Mapping[str, _Loaded]) -> Outcome:
    read: set[str] = set()

    def may_read(table: str) -> bool:
        read.add(table)
        return not table.startswith("sqlite_")

    for name, loaded in named.items():
        _memory.execute(f"create temp view {quote_name(name)} as select * from main.'{loaded.name}'")
    try:
        with reading_only(_memory, SECONDS, may_read):
            answered = read_rows(_memory, sql, {}, most_rows=MOST_ROWS, most_characters=MOST_CHARACTERS)
    finally:
        for name in named:
            _memory.execute(f"drop view temp.{quote_name(name)}")
    used = {name: (table.rows, table.signature) for name, table in named.items() if table.name in read}
    return Outcome(*answered, used)


def _contains(*texts: Any) -> int:
    """Return whether each word of the second text begins a word of the first, whatever the case and accents."""
    present = words(str(texts[0]))
    return int(all(any(word.startswith(start) for word in present) for start in words(str(texts[1]))))


# A wrong column in double quotes is an error, not a text.
_memory.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
_memory.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
_memory.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)
_memory.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
register_levenshtein(_memory)
_memory.create_scalar_function("contains", _contains, 2, deterministic=True)
