"""One SELECT over tables of documents, in a SQLite in memory that never sees the library's file.

`answer` runs in a worker process, which is killed when a document or a statement overruns its limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from rapidfuzz.distance import JaroWinkler

from localmcp.errors import InvalidInput
from localmcp.storage.connections import quote_name, register_levenshtein
from localmcp.storage.statements import read_rows, reading_only
from localmcp.tables.documents import Table, read_tables
from localmcp.wording.normalize import words

SECONDS = 2.0
"""Time that a statement may take; documents are loaded before."""
MOST_ROWS, MOST_CHARACTERS = 500, 40_000
"""Of an answer."""

Signature = tuple[int, int]
"""Time (ns) and bytes of a file."""
TableSource = tuple[str, str, str, str | None]
"""A table that a statement may name: its name, its title in its document, the path of that document's file, or its id,
and its text where that is read instead of the file."""


class Outcome(NamedTuple):
    """The rows of a statement."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool
    used: dict[str, tuple[int, Signature]]
    """Table that was read -> its rows, and the time (ns) and bytes of its file as it is now."""


def answer(task: tuple[str, Sequence[TableSource]]) -> Iterator[Outcome]:
    """Yield the outcome of a statement; the documents that it names are loaded first.

    Raises:
        InvalidInput: it cannot be run, and why.
    """
    statement, sources = task
    named: dict[str, tuple[Table, Signature]] = {}
    read: set[str] = set()

    def may_read(table: str) -> bool:
        read.add(table)
        return not table.startswith("sqlite_")

    try:
        memory, named = _load(tuple((source, _sign(source)) for source in sources))
        with reading_only(memory, SECONDS, may_read):
            answered = read_rows(memory, statement, {}, most_rows=MOST_ROWS, most_characters=MOST_CHARACTERS)
        used = {name: (len(table.rows), now) for name, (table, now) in named.items() if name.lower() in read}
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
        if wanted := str(error).partition("no such column: ")[2].rpartition(".")[2].strip('"').casefold():
            columns = dict.fromkeys(name for table, _ in named.values() for name in table.columns)
            near = sorted(columns, key=lambda name: JaroWinkler.distance(name.casefold(), wanted))[:5]
            reason += f" Nearest columns: {', '.join(map(quote_name, near))}." if near else ""
        raise InvalidInput(reason) from error


def _sign(source: TableSource) -> Signature:
    """Return time (ns) and bytes of the file of a table as it is now; zeros where the text is given."""
    _, _, path, text = source
    if text is not None:
        return 0, 0
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=1)
def _load(
    sources: tuple[tuple[TableSource, Signature], ...],
) -> tuple[apsw.Connection, dict[str, tuple[Table, Signature]]]:
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
    named: dict[str, tuple[Table, Signature]] = {}
    for (name, title, path, text), signature in sources:
        for table in [table for table in _read(path, text, signature) if table.title == title][:1]:
            named[name] = table, signature
            with memory:
                memory.execute(f"create table {quote_name(name)} ({', '.join(map(quote_name, table.columns))})")
                slots = ", ".join("?" * len(table.columns))
                memory.executemany(f"insert into {quote_name(name)} values ({slots})", table.rows)
    return memory, named


@lru_cache(maxsize=4)
def _read(path: str, text: str | None, signature: Signature) -> list[Table]:
    """Return the tables of a document of that time and size."""
    return read_tables(path, text)


def _contains(*texts: Any) -> int:
    """Return whether each word of the second text begins a word of the first, whatever the case and accents."""
    present = words(str(texts[0]))
    return int(all(any(word.startswith(start) for word in present) for start in words(str(texts[1]))))
