"""One SELECT over tables of documents, in a SQLite in memory that never sees the library's file.

`answer` runs in a worker process, which is killed when a document or a statement overruns its limits. What it has
loaded stays for the next statement, until the document is another.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from rapidfuzz.distance import JaroWinkler

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
LIMITS = {apsw.SQLITE_LIMIT_LENGTH: 100_000, apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100, apsw.SQLITE_LIMIT_ATTACHED: 0}


class TableSource(NamedTuple):
    """A table that a statement may name, and the document that it is in."""

    name: str
    title: str
    """Of the table in its document."""
    path: str
    """Of the file; or the id of a document that is read from its text."""
    text: str | None


@dataclass(slots=True)
class Outcome:
    """The rows, or why there are none."""

    columns: list[str] = field(default_factory=list[str])
    rows: list[list[Any]] = field(default_factory=list[list[Any]])
    truncated: bool = False
    used: dict[str, tuple[int, tuple[int, int]]] = field(default_factory=dict[str, tuple[int, tuple[int, int]]])
    """Table that was read -> its rows, and the time (ns) and bytes of its file as it is now."""
    problem: str = ""
    hint: str = ""


class _Loaded(NamedTuple):
    """A table in memory, under a name that is unknown to those who ask; a statement sees a view of it."""

    name: str
    columns: list[str]
    rows: int


class _Document(NamedTuple):
    signature: tuple[int, int]
    tables: dict[str, _Loaded]
    """By title."""


_memory = apsw.Connection(":memory:")
_documents: dict[str, _Document] = {}


def answer(task: tuple[str, Sequence[TableSource]]) -> Iterator[Outcome]:
    """Yield the outcome of a statement; the documents that it names are loaded first."""
    statement, sources = task
    outcome, named = Outcome(), dict[str, _Loaded]()
    try:
        for source in sources:
            document = _load(source)
            if source.title in document.tables:
                named[source.name] = document.tables[source.title]
                outcome.used[source.name] = (named[source.name].rows, document.signature)
        _run(statement, named, outcome)
    except OSError as error:
        outcome.problem = f"{error.filename} cannot be read: {(error.strerror or str(error)).lower()}."
        outcome.hint = "A query reads the file itself; search and get_document show what was read of it."
    except apsw.InterruptError:
        outcome.problem = f"The query took longer than {SECONDS:g} s and was stopped."
    except apsw.AuthError:
        outcome.problem = "A query may only read: one SELECT over the tables that list_tables names."
    except apsw.Error as error:
        outcome.problem = f"The statement cannot be run: {str(error).rstrip('.')}."
        outcome.hint = _nearest_columns(str(error), named)
    yield outcome


def _load(source: TableSource) -> _Document:
    """Return a document with its tables, which are loaded if it is another than before.

    Raises:
        OSError: the file cannot be read.
    """
    if source.text is None:
        status = Path(source.path).stat()
        signature = (status.st_mtime_ns, status.st_size)
    else:
        signature = (hash(source.text), len(source.text))
    known = _documents.get(source.path)
    if known and known.signature == signature:
        return known
    _drop(source.path)
    tables: dict[str, _Loaded] = {}
    for table in read_tables(source.path, source.text):
        loaded = _Loaded(uuid.uuid4().hex, [column.name for column in table.columns], len(table.rows))
        _memory.execute(f"create table '{loaded.name}' ({', '.join(map(quote_name, loaded.columns))})")
        with _memory:
            slots = ", ".join("?" * len(loaded.columns))
            _memory.executemany(f"insert into '{loaded.name}' values ({slots})", table.rows)
        tables.setdefault(table.title, loaded)
    _documents[source.path] = _Document(signature, tables)
    while len(_documents) > 1 and sum(t.rows for d in _documents.values() for t in d.tables.values()) > MOST_KEPT:
        _drop(next(iter(_documents)))
    return _documents[source.path]


def _drop(path: str) -> None:
    if document := _documents.pop(path, None):
        for table in document.tables.values():
            _memory.execute(f"drop table '{table.name}'")


def _run(sql: str, named: Mapping[str, _Loaded], outcome: Outcome) -> None:
    read: set[str] = set()

    def may_read(table: str) -> bool:
        read.add(table)
        return not table.startswith("sqlite_")

    for name, loaded in named.items():
        _memory.execute(f"create temp view {quote_name(name)} as select * from main.'{loaded.name}'")
    try:
        with reading_only(_memory, SECONDS, may_read):
            outcome.columns, outcome.rows, outcome.truncated = read_rows(
                _memory, sql, {}, most_rows=MOST_ROWS, most_characters=MOST_CHARACTERS
            )
    finally:
        for name in named:
            _memory.execute(f"drop view temp.{quote_name(name)}")
    outcome.used = {name: about for name, about in outcome.used.items() if named[name].name in read}


def _nearest_columns(message: str, named: Mapping[str, _Loaded]) -> str:
    wanted = message.partition("no such column: ")[2].rpartition(".")[2].strip('"').casefold()
    names = dict.fromkeys(name for loaded in named.values() for name in loaded.columns)
    near = sorted(names, key=lambda name: JaroWinkler.distance(name.casefold(), wanted))[:5]
    return f"Nearest columns: {', '.join(map(quote_name, near))}." if wanted and near else ""


def _contains(*texts: Any) -> int:
    """Return whether each word of the second text begins a word of the first, whatever the case and accents."""
    text, wanted = texts
    present = words(str(text))
    return int(all(any(word.startswith(start) for word in present) for start in words(str(wanted))))


# A wrong column in double quotes is an error, not a text.
_memory.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
for _limit, _most in LIMITS.items():
    _memory.limit(_limit, _most)
register_levenshtein(_memory)
_memory.create_scalar_function("contains", _contains, 2, deterministic=True)
