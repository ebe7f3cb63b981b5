"""One SELECT over tables of documents, in a SQLite in memory that never sees the library's file.

`answer` runs in a worker process, which is killed when a document or a statement overruns its limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import rapidfuzz.process

from localmcp.errors import InvalidInput
from localmcp.storage.connections import quote_name, read_rows, reading_only, register_levenshtein
from localmcp.tables.documents import Signature, Table, TableSource, read_tables
from localmcp.wording.normalize import words

SECONDS = 2.0
"""Time that a statement may take; documents are loaded before."""


class Outcome(NamedTuple):
    """The rows of a statement."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool
    used: dict[str, tuple[int, bool]]
    """Table that was read -> its rows, and whether its file has changed since it was indexed."""


def answer(task: tuple[str, Sequence[TableSource]]) -> Iterator[Outcome]:
    """Yield the outcome of a statement; the documents that it names are loaded first.

    Raises:
        InvalidInput: it cannot be run, and why.
    """
    statement, sources = task
    tables: dict[str, Table] = {}
    read: set[str] = set()

    def may_read(table: str) -> bool:
        read.add(table)
        return not table.startswith("sqlite_")

    try:
        signatures: list[Signature] = []
        for source in sources:
            status = Path(source.path).stat() if source.text is None else None
            signatures.append((status.st_mtime_ns, status.st_size) if status else source.signature)
        memory, tables = _load(tuple(zip(sources, signatures, strict=True)))
        with reading_only(memory, SECONDS, may_read):
            answered = read_rows(memory, statement, {}, most_rows=500, most_characters=40_000)
        used = {
            source.name: (len(tables[source.name].rows), now != source.signature)
            for source, now in zip(sources, signatures, strict=True)
            if source.name in tables and source.name.lower() in read
        }
        yield Outcome(*answered, used)
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
        if wanted := str(error).partition("no such column: ")[2].rpartition(".")[2].strip('"'):
            columns = dict.fromkeys(name for table in tables.values() for name in table.columns)
            near = rapidfuzz.process.extract(wanted, list(columns), processor=str.casefold, limit=5)
            reason += f" Nearest columns: {', '.join(quote_name(name) for name, *_ in near)}." if near else ""
        raise InvalidInput(reason) from error


@lru_cache(maxsize=1)
def _load(sources: tuple[tuple[TableSource, Signature], ...]) -> tuple[apsw.Connection, dict[str, Table]]:
    """Return a SQLite in memory that holds these tables, and the tables by name.

    The last one is kept: several questions in a row mostly ask the same tables (50,000 rows on a busy machine: 93 ms ->
    15 ms).
    """
    memory = apsw.Connection(":memory:")
    # A wrong column in double quotes is an error, not a text.
    memory.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    memory.limit(apsw.SQLITE_LIMIT_LENGTH, 100_000)
    memory.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)
    memory.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    register_levenshtein(memory)
    memory.create_scalar_function("contains", _contains, 2, deterministic=True)
    tables: dict[str, Table] = {}
    documents: dict[str, list[Table]] = {}
    for source, _ in sources:
        if source.path not in documents:
            documents[source.path] = read_tables(source.path, source.text)
        for table in [table for table in documents[source.path] if table.title == source.title][:1]:
            tables[source.name] = table
            name = quote_name(source.name)
            with memory:
                memory.execute(f"create table {name} ({', '.join(map(quote_name, table.columns))})")
                memory.executemany(f"insert into {name} values ({', '.join('?' * len(table.columns))})", table.rows)
    return memory, tables


def _contains(*texts: Any) -> int:
    """Return whether each word of the second text begins a word of the first, whatever the case and accents."""
    present = words(str(texts[0]))
    return int(all(any(word.startswith(start) for word in present) for start in words(str(texts[1]))))
