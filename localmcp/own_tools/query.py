"""SQL as tools: `kind = "query"` manifests, one read-only statement over the localmcp file or another SQLite file.

In a localmcp file neither the tables `api_keys` and `calls` can be read nor SQLite's own, which hold samples of others.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import apsw
from pydantic import Field

from localmcp.config import SUFFIX
from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, Unavailable
from localmcp.files import expand_home
from localmcp.own_tools import Problem
from localmcp.own_tools.manifest import Filled, Manifest
from localmcp.schemas import Json, compact_json
from localmcp.storage.connections import harden, prepare, read_rows, reading_only
from localmcp.storage.schema import APPLICATION_ID
from localmcp.tools import Answer, current_scope

if TYPE_CHECKING:
    from localmcp.own_tools.folder import ManifestFile

OUR_FILE = "localmcp"
"""As `database`: the localmcp file in use."""


class QueryManifest(Manifest):
    """One statement, where it runs and within which limits."""

    types = ("string", "integer", "number", "boolean")
    only_reads: ClassVar[bool] = True

    kind: Literal["query"]
    sql: Filled
    database: str = OUR_FILE
    timeout: float = Field(5, ge=0.05, le=60)
    max_rows: int = Field(200, ge=1, le=10_000)

    def run(self, tool: str, arguments: Json, here: ManifestFile) -> Answer:
        """Return `{columns, rows, rowCount, truncated}`: as many rows as the limits allow."""
        bindings = {name: arguments.get(name) for name in self.parameters}
        with self._opened(here) as connection:
            columns, rows, truncated = read_rows(
                connection, self.sql, bindings, most_rows=self.max_rows, most_characters=400_000
            )
        value = {"columns": columns, "rows": rows, "rowCount": len(rows), "truncated": truncated}
        return Answer(value, compact_json(value))

    def warnings(self, here: ManifestFile) -> Iterator[Problem]:
        if not self._file(here).is_file():
            yield here.problem(("database",), f"The database {self._file(here)} does not exist.", level="warning")
            return
        try:
            with self._opened(here) as connection:
                names = {str(name) for name in prepare(connection, self.sql).bindings_names}
        except LocalMCPError as error:
            yield here.problem(("sql",), error.message, error.hint)
            return
        for name in names ^ self.parameters.keys():
            place = ("parameters", name) if name in self.parameters else ("sql",)
            yield here.problem(place, f":{name} must be both in sql and in [parameters.{name}].")

    def _file(self, here: ManifestFile) -> Path:
        return here.folder.database if self.database == OUR_FILE else here.path.parent / expand_home(self.database)

    @contextmanager
    def _opened(self, here: ManifestFile) -> Generator[apsw.Connection]:
        """Yield the file, read-only, with every limit in force.

        Raises Unavailable if it cannot be read or the time is over, InvalidInput if the statement is refused,
        AccessDenied if it is a localmcp file and the caller is bound to some of its collections.
        """
        path = self._file(here)
        if not path.is_file():
            hint = "Begin with: localmcp add FOLDER" if path.suffix == SUFFIX else "Look at database in its manifest."
            raise Unavailable(f"The database {path} does not exist.", hint=hint)
        try:
            with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
                harden(connection)
                connection.set_busy_timeout(int(self.timeout * 1000))
                # Bytes of any value that a statement makes on its way.
                connection.limit(apsw.SQLITE_LIMIT_LENGTH, 16_000_000)
                is_ours = connection.pragma("application_id") == APPLICATION_ID
                if is_ours and current_scope().collections is not None:
                    raise AccessDenied("This query reads every collection, and the caller may only see some.")
                with reading_only(connection, self.timeout, _is_open_table if is_ours else lambda _: True):
                    yield connection
        except apsw.InterruptError as error:
            raise Unavailable(f"The query took longer than {self.timeout:g} s and was stopped.") from error
        except (apsw.SQLError, apsw.AuthError, apsw.BindingsError, apsw.TooBigError) as error:
            raise InvalidInput(f"The statement cannot be run: {error}.") from error
        except apsw.Error as error:
            raise Unavailable(f"{path} cannot be read: {error}.") from error


def _is_open_table(table: str) -> bool:
    """Return whether a table of a localmcp file may be read.

    Not the hashes of keys and what other callers asked for, nor SQLite's own tables, which may hold samples of these.
    """
    is_schema = table in ("sqlite_schema", "sqlite_master")
    return table not in ("api_keys", "calls") and (is_schema or not table.startswith("sqlite_"))
