"""SQL as tools: `kind = "query"` manifests, one read-only statement over the localmcp file or another SQLite file.

The file is opened read-only and every statement has a time limit. SQLite's authorizer allows SELECT alone, and in a
localmcp file neither the tables `api_keys` and `calls` nor SQLite's own tables, which hold samples of others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import apsw
from pydantic import Field

from localmcp.config import SUFFIX
from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, Unavailable
from localmcp.files import expand_home
from localmcp.own_tools.manifest import Filled, Manifest, Surroundings
from localmcp.own_tools.problems import Mistake
from localmcp.schemas import Json, compact_json
from localmcp.storage.connections import harden
from localmcp.storage.schema import APPLICATION_ID
from localmcp.tools import Answer, current_scope

if TYPE_CHECKING:
    from apsw.ext import QueryDetails

OUR_FILE = "localmcp"
"""As `database`: the localmcp file in use."""
SECRET_TABLES = frozenset({"api_keys", "calls"})
"""Of a localmcp file: hashes of keys, and what other callers asked for."""
_SCHEMA_TABLES = ("sqlite_schema", "sqlite_master")
MOST_BYTES = 400_000
"""Bytes of values in one answer; the rest is cut and the answer says so."""
MOST_VALUE = 16_000_000
"""Bytes of any value that a statement makes on its way."""
_STEPS = 2_000
"""SQLite's steps between two checks of the time limit: about 0.1 ms."""


class QueryManifest(Manifest):
    """One statement, where it runs and within which limits."""

    types = ("string", "integer", "number", "boolean")
    only_reads: ClassVar[bool] = True

    kind: Literal["query"]
    sql: Filled
    database: str = OUR_FILE
    timeout: float = Field(5, ge=0.05, le=60)
    max_rows: int = Field(200, ge=1, le=10_000)

    def run(self, tool: str, arguments: Json, here: Surroundings) -> Answer:
        """Return `{columns, rows, rowCount, truncated}`: as many rows as the limits allow."""
        rows: list[list[Any]] = []
        size, truncated = 0, False
        with self._opened(here) as connection:
            columns = [str(name) for name, *_ in _describe(connection, self.sql).description]
            for row in connection.execute(self.sql, {name: arguments.get(name) for name in self.parameters}):
                # JSON has no blobs and no infinite numbers.
                shown = [
                    f"<{len(value)} bytes>"
                    if isinstance(value, bytes)
                    else (str(value) if isinstance(value, float) and not math.isfinite(value) else value)
                    for value in row
                ]
                size += sum(len(value.encode("utf-8", "replace")) if isinstance(value, str) else 8 for value in shown)
                if truncated := len(rows) == self.max_rows or size > MOST_BYTES:
                    break
                rows.append(shown)
        value = {"columns": columns, "rows": rows, "rowCount": len(rows), "truncated": truncated}
        return Answer(value, compact_json(value))

    def warnings(self, here: Surroundings) -> Iterator[Mistake]:
        if not self._file(here).is_file():
            yield Mistake(("database",), f"The database {self._file(here)} does not exist.", level="warning")
            return
        try:
            with self._opened(here) as connection:
                names = cast("tuple[str, ...]", _describe(connection, self.sql).bindings_names)
        except LocalMCPError as error:
            yield Mistake(("sql",), error.message, error.hint)
            return
        for name in {str(name) for name in names} ^ self.parameters.keys():
            place = ("parameters", name) if name in self.parameters else ("sql",)
            yield Mistake(place, f":{name} must be both in sql and in [parameters.{name}].")

    def _file(self, here: Surroundings) -> Path:
        return here.database if self.database == OUR_FILE else here.path.parent / expand_home(self.database)

    @contextmanager
    def _opened(self, here: Surroundings) -> Generator[apsw.Connection]:
        """Yield the file, read-only, with every limit in force.

        Raises:
            Unavailable: it cannot be opened or read, or the time is over.
            InvalidInput: the statement is refused.
            AccessDenied: it is a localmcp file, and the caller is bound to some of its collections.
        """
        path = self._file(here)
        if not path.is_file():
            hint = "Begin with: localmcp add FOLDER" if path.suffix == SUFFIX else "Look at database in its manifest."
            raise Unavailable(f"The database {path} does not exist.", hint=hint)
        try:
            with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
                harden(connection)
                connection.set_busy_timeout(int(self.timeout * 1000))
                connection.limit(apsw.SQLITE_LIMIT_LENGTH, MOST_VALUE)
                is_ours = connection.pragma("application_id") == APPLICATION_ID
                if is_ours and current_scope().collections is not None:
                    raise AccessDenied("This query reads every collection, and the caller may only see some.")
                connection.authorizer = _authorize_ours if is_ours else _authorize
                deadline = time.monotonic() + self.timeout
                connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
                yield connection
        except apsw.InterruptError as error:
            raise Unavailable(f"The query took longer than {self.timeout:g} s and was stopped.") from error
        except (apsw.SQLError, apsw.AuthError, apsw.BindingsError, apsw.TooBigError) as error:
            raise InvalidInput(f"The statement cannot be run: {error}.") from error
        except apsw.Error as error:
            raise Unavailable(f"{path} cannot be read: {error}.") from error


def _authorize(action: int, first: str | None, second: str | None, _database: Any, _trigger: Any) -> int:
    allowed = (
        action in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE)
        or (action == apsw.SQLITE_READ and not (first or "").lower().startswith("pragma_"))
        or (action == apsw.SQLITE_FUNCTION and (second or "").lower() != "load_extension")
        # Full-text tables read it to learn whether the file has changed.
        or (action == apsw.SQLITE_PRAGMA and first == "data_version" and second is None)
    )
    return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY


def _authorize_ours(action: int, first: str | None, second: str | None, database: Any, trigger: Any) -> int:
    """In a localmcp file, SQLite's own tables may hold samples of the secret ones."""
    table = (first or "").lower()
    is_secret = table in SECRET_TABLES or (table.startswith("sqlite_") and table not in _SCHEMA_TABLES)
    is_denied = action == apsw.SQLITE_READ and is_secret
    return apsw.SQLITE_DENY if is_denied else _authorize(action, first, second, database, trigger)


def _describe(connection: apsw.Connection, sql: str) -> QueryDetails:
    """Let SQLite prepare the statement, without running it.

    Raises:
        InvalidInput: it gives no rows, or is more than one.
    """
    # Its import takes twice as long as that of apsw itself.
    from apsw.ext import query_info  # pyright: ignore[reportUnknownVariableType]

    statement = query_info(connection, sql)
    if not statement.description or (statement.query_remaining or "").strip():
        raise InvalidInput("It must be one statement that gives rows.")
    return statement
