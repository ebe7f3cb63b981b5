"""One statement of somebody else, which may only read, and is ended when its time is over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

if TYPE_CHECKING:
    from apsw.ext import QueryDetails


class Rows(NamedTuple):
    """What a statement gave."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool


@contextmanager
def reading_only(
    connection: apsw.Connection, seconds: float, may_read: Callable[[str], bool] = lambda _: True
) -> Generator[None]:
    """Let a connection only read, for so long, tables for whose name in small letters `may_read` is true.

    Anything else ends with apsw.AuthError; when the time is over, apsw.InterruptError.
    """

    def authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
        table = (first or "").lower()
        allowed = (
            action in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE)
            or (action == apsw.SQLITE_READ and not table.startswith("pragma_") and may_read(table))
            or (action == apsw.SQLITE_FUNCTION and (second or "").lower() != "load_extension")
            # Full-text tables read it to learn whether the file has changed.
            or (action == apsw.SQLITE_PRAGMA and first == "data_version" and second is None)
        )
        return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY

    deadline = time.monotonic() + seconds
    connection.authorizer = authorize
    # So many steps of SQLite's machine take a fraction of a millisecond.
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 5000)
    try:
        yield
    finally:
        connection.set_progress_handler(None)
        connection.authorizer = None


def prepare(connection: apsw.Connection, sql: str) -> QueryDetails:
    """Let SQLite read the statement, without running it; apsw.SQLError if it is none, gives no rows, or is several."""
    # Its import takes twice as long as that of apsw itself.
    from apsw.ext import query_info  # pyright: ignore[reportUnknownVariableType]

    statement = query_info(connection, sql)
    if statement.query_remaining and query_info(connection, statement.query_remaining).has_vdbe:
        raise apsw.SQLError("there must be one statement, and this is more than one")
    if not statement.description:
        raise apsw.SQLError("the statement is empty, or gives no rows")
    return statement


def read_rows(
    connection: apsw.Connection, sql: str, bindings: Mapping[str, Any], *, most_rows: int, most_characters: int
) -> Rows:
    """Run a statement, and return its rows as JSON has them, within these limits."""
    columns = [str(name) for name, *_ in prepare(connection, sql).description]
    rows: list[list[Any]] = []
    characters = 0
    for row in connection.execute(sql, dict(bindings)):
        shown = [_json_value(value) for value in row]
        characters += sum(len(value) if isinstance(value, str) else 8 for value in shown)
        if len(rows) == most_rows or characters > most_characters:
            return Rows(columns, rows, True)
        rows.append(shown)
    return Rows(columns, rows, False)


def _json_value(value: Any) -> Any:
    """JSON has neither blobs nor infinite numbers; 0.1 + 0.2 is .3 for those who read it."""
    if isinstance(value, float):
        return round(value, 10) if math.isfinite(value) else str(value)
    return f"<{len(value)} bytes>" if isinstance(value, bytes) else value
