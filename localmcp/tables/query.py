"""One SELECT over tables of documents, in a SQLite in memory that never sees the library's file.

`answer` runs in a worker process, which is killed when a file or a statement overruns its limits. What it has loaded
stays for the next statement, until the document is another.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
from apsw.ext import query_info  # pyright: ignore[reportUnknownVariableType]
from rapidfuzz.distance import JaroWinkler, Levenshtein

from localmcp.tables.documents import read_tables
from localmcp.tables.grids import Table
from localmcp.wording.normalize import words

SECONDS = 2.0
"""Time that a statement may take; documents are loaded before."""
MOST_ROWS, MOST_CHARACTERS = 500, 40_000
"""Of an answer."""
MOST_KEPT = 400_000
"""Rows that stay loaded."""
LIMITS = {
    apsw.SQLITE_LIMIT_LENGTH: 100_000, apsw.SQLITE_LIMIT_SQL_LENGTH: 20_000, apsw.SQLITE_LIMIT_EXPR_DEPTH: 100,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 20, apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100, apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_VDBE_OP: 25_000, apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}  # fmt: skip
STEPS = 5000
"""Steps of SQLite's machine between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table that a statement may name, and the document that it is in."""

    name: str
    title: str
    """Of the table in its document."""
    path: str
    """Of the file; or the name of a document without one."""
    text: str | None
    """Of a document without a file."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What the worker is asked."""

    sql: str
    sources: Sequence[TableSource]


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


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A table in memory."""

    name: str
    """There, unknown to those who ask: a statement sees it as a view under its own name."""
    table: Table


class _Memory:
    """The tables that were loaded, by document."""

    def __init__(self) -> None:
        self.connection = apsw.Connection(":memory:")
        for limit, value in LIMITS.items():
            self.connection.limit(limit, value)
        self.connection.create_scalar_function("levenshtein", _levenshtein, 2, deterministic=True)
        self.connection.create_scalar_function("contains", _contains, 2, deterministic=True)
        self._documents: dict[str, tuple[tuple[int, int], dict[str, _Loaded]]] = {}

    def load(self, source: TableSource) -> tuple[tuple[int, int], dict[str, _Loaded]]:
        """Return the signature of a document and its tables by title, loaded if it is another than before.

        Raises:
            OSError: the file cannot be read.
        """
        if source.text is None:
            status = Path(source.path).stat()
            signature = (status.st_mtime_ns, status.st_size)
        else:
            signature = (hash(source.text), len(source.text))
        if (known := self._documents.get(source.path)) and known[0] == signature:
            return known
        self._drop(source.path)
        loaded: dict[str, _Loaded] = {}
        for table in read_tables(source.path, source.text):
            name = uuid.uuid4().hex
            self.connection.execute(
                f"create table '{name}' ({', '.join(quote(column.name) for column in table.columns)})"
            )
            with self.connection:
                insert = f"insert into '{name}' values ({', '.join('?' * len(table.columns))})"
                self.connection.executemany(insert, table.rows)
            loaded.setdefault(table.title, _Loaded(name, table))
        self._documents[source.path] = signature, loaded
        while len(self._documents) > 1 and self._count_rows() > MOST_KEPT:
            self._drop(next(iter(self._documents)))
        return self._documents[source.path]

    def _count_rows(self) -> int:
        return sum(len(kept.table.rows) for _, loaded in self._documents.values() for kept in loaded.values())

    def _drop(self, path: str) -> None:
        for loaded in self._documents.pop(path, ((0, 0), dict[str, _Loaded]()))[1].values():
            self.connection.execute(f"drop table '{loaded.name}'")


_memory: _Memory | None = None


def answer(statement: Statement) -> Iterator[Outcome]:
    """Yield the outcome of a statement; the documents that it names are loaded first."""
    global _memory
    _memory = _memory or _Memory()
    outcome, named = Outcome(), dict[str, _Loaded]()
    try:
        for source in statement.sources:
            signature, tables = _memory.load(source)
            if source.title in tables:
                named[source.name] = tables[source.title]
                outcome.used[source.name] = (len(named[source.name].table.rows), signature)
        _run(_memory.connection, statement.sql, named, outcome)
    except OSError as error:
        outcome.problem = f"{error.filename} cannot be read: {(error.strerror or str(error)).lower()}."
        outcome.hint = "A query reads the file itself; search and get_document show what was read of it."
    except apsw.InterruptError:
        outcome.problem = f"The query took longer than {SECONDS:g} s and was stopped."
    except apsw.AuthError:
        outcome.problem = "A query may only read: one SELECT over the tables that list_tables names."
    except apsw.Error as error:
        outcome.problem, outcome.hint = _explain(str(error), named)
    yield outcome


def _run(connection: apsw.Connection, sql: str, named: Mapping[str, _Loaded], outcome: Outcome) -> None:
    shown = {loaded.name: name for name, loaded in named.items()}
    read: set[str] = set()

    def authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
        allowed = action in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE, apsw.SQLITE_FUNCTION) or (
            action == apsw.SQLITE_READ and not (first or "").lower().startswith(("sqlite_", "pragma_"))
        )
        read.add(first or "")
        return apsw.SQLITE_OK if allowed and second != "load_extension" else apsw.SQLITE_DENY

    for name, loaded in named.items():
        connection.execute(f"create temp view {quote(name)} as select * from main.'{loaded.name}'")
    deadline = time.monotonic() + SECONDS
    try:
        connection.authorizer = authorize
        connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
        statement = query_info(connection, sql)
        if statement.query_remaining and query_info(connection, statement.query_remaining).has_vdbe:
            raise apsw.SQLError("there must be one statement, and this is more than one")
        outcome.columns = [name for name, *_ in statement.description]
        characters = 0
        for row in connection.execute(sql):
            outcome.rows.append([_shown(value) for value in row])
            characters += sum(len(str(value)) for value in row)
            if len(outcome.rows) > MOST_ROWS or characters > MOST_CHARACTERS:
                outcome.truncated = True
                outcome.rows.pop()
                break
    finally:
        connection.set_progress_handler(None)
        connection.authorizer = None
        for name in named:
            connection.execute(f"drop view temp.{quote(name)}")
    outcome.used = {name: about for name, about in outcome.used.items() if name in {shown.get(each) for each in read}}


def _levenshtein(one: Any, other: Any) -> int | None:
    if one is None or other is None:
        return None
    return Levenshtein.distance(str(one)[:1000], str(other)[:1000])


def _contains(text: Any, wanted: Any) -> int | None:
    """Return whether each word of `wanted` begins a word of the text, whatever the case and accents."""
    if text is None or wanted is None:
        return None
    present = words(str(text))
    return int(all(any(word.startswith(start) for word in present) for start in words(str(wanted))))


def quote(name: str) -> str:
    """Return a name as SQL has it, in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, float):
        # 0.1 + 0.2 is .3 for those who read it.
        return round(value, 10) if math.isfinite(value) else str(value)
    return value


def _explain(message: str, named: Mapping[str, _Loaded]) -> tuple[str, str]:
    """Return what is wrong with a statement, and the names that come nearest."""
    problem = f"The statement cannot be run: {message.rstrip('.')}."
    wanted = message.partition("no such column: ")[2].rpartition(".")[2].strip('"').casefold()
    columns = dict.fromkeys(column.name for loaded in named.values() for column in loaded.table.columns)
    near = sorted(columns, key=lambda name: JaroWinkler.distance(name.casefold(), wanted))
    return problem, f"Nearest columns: {', '.join(map(quote, near[:5]))}." if wanted and near else ""
