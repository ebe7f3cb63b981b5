"""SQL as tools: `kind = "query"` manifests, one read-only statement over the localmcp file or another SQLite file.

A statement can only read: the file is opened read-only, and an authorizer allows nothing but SELECT, the tables and
views of that file, and a list of functions without side effects. In a localmcp file the tables `api_keys` and `calls`
are out of reach too. Time, rows and bytes are bounded.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import apsw

from localmcp.config import SUFFIX
from localmcp.errors import AccessDenied, InvalidInput, LocalMCPError, Unavailable
from localmcp.files import expand_home
from localmcp.own_tools.fields import Fields, Source
from localmcp.own_tools.manifests import (
    ManifestFolder,
    ManifestProvider,
    ManifestTool,
    read_common,
)
from localmcp.own_tools.parameters import Parameter
from localmcp.own_tools.switches import Switches
from localmcp.schemas import Json, compact_json, nearest
from localmcp.storage.connections import PRACTICES
from localmcp.storage.database import fetch_all
from localmcp.storage.schema import APPLICATION_ID
from localmcp.tools import Answer, current_scope

if TYPE_CHECKING:
    from apsw.ext import QueryDetails

OUR_FILE = "localmcp"
"""As `database`: the localmcp file in use."""
SECRET_TABLES = frozenset({"api_keys", "calls"})
"""Of a localmcp file: hashes of keys, and what other callers asked for."""
PARAMETER_KINDS = ("string", "integer", "number", "boolean")
MOST_BYTES = 400_000
"""Bytes of values in one answer; the rest is cut and the answer says so."""
MOST_VALUE = 16_000_000
"""Bytes of any value that a statement makes on its way."""
MOST_SEARCHED = 1_000
"""Characters of what is searched for in a text, and of a pattern: the time limit counts only between two steps of
SQLite, and one step that searches a long text for a long text takes minutes."""
MOST_COMPARED = 10_000
"""Characters of each text that `levenshtein` compares."""
_STEPS = 2_000
"""SQLite's steps between two checks of the time limit: about 0.1 ms."""

FUNCTIONS = frozenset(
    """
    -> ->> abs acos acosh asin asinh atan atan2 atanh avg bm25 ceil ceiling char coalesce concat concat_ws cos cosh
    count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp first_value floor
    format glob group_concat hex highlight if ifnull iif instr json json_array json_array_insert json_array_length
    json_each json_error_position json_extract json_group_array json_group_object json_insert json_object json_patch
    json_pretty json_quote json_remove json_replace json_set json_tree json_type json_valid jsonb jsonb_array
    jsonb_array_insert jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch
    jsonb_remove jsonb_replace jsonb_set julianday lag last_value lead length levenshtein like likelihood likely ln log
    log10 log2 lower ltrim match max median min mod nth_value ntile nullif octet_length percent_rank percentile
    percentile_cont percentile_disc pi pow power printf quote radians random rank replace round row_number rtrim sign
    sin sinh snippet sqlite_version sqrt strftime string_agg substr substring subtype sum tan tanh time timediff total
    trim trunc typeof unhex unicode unistr unixepoch unlikely upper
    """.split()
)
TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})
_SCHEMA_TABLES = frozenset({"sqlite_schema", "sqlite_master"})


@dataclass(frozen=True, slots=True)
class Query:
    """One statement, where it runs and within which limits."""

    sql: str
    database: Path
    timeout: float
    """Seconds."""
    max_rows: int


@dataclass(eq=False)
class QueryTool(ManifestTool):
    """A statement that a manifest describes."""

    query: Query

    def run(self, arguments: Json) -> Answer:
        bindings = {name: arguments.get(name) for name in self.parameters}
        with _open(self.query.database, self.query.timeout) as connection:
            value = _fetch(connection, self.query, bindings)
        return Answer(value, compact_json(value))

    @property
    def reads_localmcp(self) -> bool:
        """Whether it reads a localmcp file, and so every collection in it."""
        return is_localmcp_file(self.query.database)

    def check(self, source: Source) -> None:
        if not self.query.database.is_file():
            message = f"The database {self.query.database} does not exist."
            source.complain(message, ("database",), level="warning")
            return
        try:
            with _open(self.query.database, self.query.timeout) as connection:
                statement = prepare(connection, self.query.sql)
        except LocalMCPError as error:
            source.complain(error.message, ("sql",), hint=error.hint)
            return
        _check_bindings(source, cast("tuple[str, ...]", statement.bindings_names), self.parameters)


def is_localmcp_file(path: Path) -> bool:
    """Return whether the file is a localmcp database, by the application id at byte 68 of its header."""
    try:
        with path.open("rb") as file:
            header = file.read(72)
    except OSError:
        return False
    return header[68:72] == APPLICATION_ID.to_bytes(4, "big")


# ---------------------------------------------------------------- a connection that can only read


@contextmanager
def _open(path: Path, timeout: float) -> Generator[apsw.Connection]:
    """Yield the file, read-only, with every limit in force.

    Raises:
        Unavailable: it cannot be opened or read, or the time is over.
        InvalidInput: the statement is refused.
        AccessDenied: it is a localmcp file, and the caller is bound to some of its collections.
    """
    if not path.is_file():
        hint = "Begin with: localmcp add FOLDER" if path.suffix == SUFFIX else "Look at database in its manifest."
        raise Unavailable(f"The database {path} does not exist.", hint=hint)
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            for practice in PRACTICES:
                practice(connection)
            connection.set_busy_timeout(int(timeout * 1000))
            _register_bounded_functions(connection)
            _restrict(connection)
            deadline = time.monotonic() + timeout
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            yield connection
    except apsw.InterruptError as error:
        raise Unavailable(f"The query took longer than {timeout:g} s and was stopped.") from error
    except (apsw.SQLError, apsw.AuthError, apsw.BindingsError, apsw.TooBigError) as error:
        raise InvalidInput(f"The statement cannot be run: {error}.") from error
    except apsw.Error as error:
        raise Unavailable(f"{path} cannot be read: {error}.") from error


def _register_bounded_functions(connection: apsw.Connection) -> None:
    """Replace the functions whose time grows with the product of two lengths."""
    from rapidfuzz.distance.Levenshtein import distance

    def compare(first: Any, second: Any) -> int:
        return distance(str(first), str(second))

    def put(text: Any, old: Any, new: Any) -> Any:
        return str(text).replace(str(old), str(new)) if old else text

    def strip(how: Callable[[str, str], str]) -> Callable[..., str]:
        return lambda *values: how(str(values[0]), str(values[1]))

    bounded: dict[str, tuple[int, int, Callable[..., Any]]] = {
        "levenshtein": (2, MOST_COMPARED, compare),
        "instr": (2, MOST_SEARCHED, _instr),
        "replace": (3, MOST_SEARCHED, put),
        "trim": (2, MOST_SEARCHED, strip(str.strip)),
        "ltrim": (2, MOST_SEARCHED, strip(str.lstrip)),
        "rtrim": (2, MOST_SEARCHED, strip(str.rstrip)),
    }
    for name, (arity, most, function) in bounded.items():
        connection.create_scalar_function(name, _within(name, most, function), arity, deterministic=True)


def _within(name: str, most: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that gives null for null, and refuses a too long second argument (levenshtein: any)."""

    def bounded(*values: Any) -> Any:
        if any(value is None for value in values):
            return None
        for value in values if name == "levenshtein" else values[1:2]:
            if isinstance(value, str | bytes) and len(value) > most:
                raise InvalidInput(f"{name} takes at most {most:,} characters here, not {len(value):,}.")
        return function(*values)

    return bounded


def _instr(text: Any, part: Any) -> int:
    if isinstance(text, bytes) and isinstance(part, bytes):
        return text.find(part) + 1
    return str(text).find(str(part)) + 1


def _restrict(connection: apsw.Connection) -> None:
    """Allow only reading from here on; refuse a caller who may see only some of the collections that are read."""
    is_ours = connection.pragma("application_id") == APPLICATION_ID
    if is_ours and current_scope().collections is not None:
        raise AccessDenied("This query reads every collection, and the caller may only see some.")
    connection.limit(apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MOST_SEARCHED)
    connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, MOST_VALUE)
    connection.limit(apsw.SQLITE_LIMIT_WORKER_THREADS, 0)
    connection.pragma("temp_store", "memory")
    named = fetch_all(connection, "select name from sqlite_schema where type in ('table', 'view')")
    hidden = SECRET_TABLES if is_ours else frozenset[str]()
    readable = {name.lower() for (name,) in named if not name.lower().startswith("sqlite_")} - hidden
    connection.authorizer = _authorizer(frozenset(readable) | _SCHEMA_TABLES | TABLE_FUNCTIONS, hidden)


def _authorizer(readable: frozenset[str], hidden: frozenset[str]) -> Callable[..., int]:
    def decide(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
        allowed = (
            action in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE)
            or (action == apsw.SQLITE_READ and (first or "").lower() in readable)
            # Rows are only counted; the name may be one that a `with` clause gives.
            or (action == apsw.SQLITE_READ and second == "" and (first or "").lower() not in hidden)
            or (action == apsw.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS)
            # Full-text tables read it to learn whether the file has changed.
            or (action == apsw.SQLITE_PRAGMA and first == "data_version" and second is None)
        )
        return apsw.SQLITE_OK if allowed else apsw.SQLITE_DENY

    return decide


# ---------------------------------------------------------------- the statement


def prepare(connection: apsw.Connection, sql: str) -> QueryDetails:
    """Let SQLite prepare the statement, without running it.

    Raises:
        InvalidInput: it is empty, more than one, or does more than read.
    """
    # Its import takes twice as long as that of apsw itself.
    from apsw.ext import query_info  # pyright: ignore[reportUnknownVariableType]

    statement = query_info(connection, sql)
    if not statement.description:
        raise InvalidInput("The statement is empty, or gives no rows.")
    if None in statement.bindings_names:
        raise InvalidInput("Parameters of the statement need names: write :name, not ?.")
    # Comments have no program of SQLite's machine.
    if statement.query_remaining and query_info(connection, statement.query_remaining).has_vdbe:
        raise InvalidInput("There must be one statement, and this is more than one.")
    if not statement.is_readonly:
        raise InvalidInput("The statement changes things; a query may only read.")
    return statement


def _fetch(connection: apsw.Connection, query: Query, bindings: Mapping[str, Any]) -> Json:
    """Return the rows, as many as the limits allow: `{columns, rows, rowCount, truncated}`."""
    columns = [str(name) for name, *_ in prepare(connection, query.sql).description]
    rows: list[list[Any]] = []
    size = 0
    for row in cast("Iterator[Sequence[Any]]", connection.execute(query.sql, dict(bindings))):
        shown = [_as_json(value) for value in row]
        size += sum(len(value.encode("utf-8", "replace")) if isinstance(value, str) else 8 for value in shown)
        if len(rows) == query.max_rows or size > MOST_BYTES:
            return {"columns": columns, "rows": rows, "rowCount": len(rows), "truncated": True}
        rows.append(shown)
    return {"columns": columns, "rows": rows, "rowCount": len(rows), "truncated": False}


def _as_json(value: Any) -> Any:
    """Return a value of SQLite for JSON: a blob as its size, infinite numbers as text."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


# ---------------------------------------------------------------- reading the manifest


class Queries(ManifestProvider):
    """Every `query` manifest.

    A statement over a localmcp file reads every collection, so a caller that may see only some is not offered it.
    """

    name = "queries"
    kind = "query"

    def __init__(self, folder: ManifestFolder, switches: Switches, database: Path) -> None:
        """`database` is the localmcp file in use."""
        super().__init__(folder, switches)
        self.database = database

    def read(self, fields: Fields) -> QueryTool:
        common = read_common(fields, PARAMETER_KINDS, read_only=True)
        written, folder = fields.text("database", OUR_FILE), common.path.parent
        query = Query(
            sql=fields.text("sql", required=True),
            database=self.database if written == OUR_FILE else folder / expand_home(written),
            timeout=fields.number("timeout", 5, least=0.05, most=60),
            max_rows=fields.whole("max_rows", 200, least=1, most=10_000),
        )
        return QueryTool(*common, query)

    def _offered(self, tools: list[ManifestTool]) -> list[ManifestTool]:
        if current_scope().collections is None:
            return tools
        return [tool for tool in tools if isinstance(tool, QueryTool) and not tool.reads_localmcp]


def _check_bindings(source: Source, names: Sequence[str], parameters: Mapping[str, Parameter]) -> None:
    for name in dict.fromkeys(names):
        if name not in parameters:
            near = nearest(name, parameters)
            hint = f"Did you mean ':{near}'?" if near else f"Describe it in [parameters.{name}]."
            source.complain(f":{name} in sql is not a parameter.", ("sql",), hint=hint)
    for name in parameters:
        if name not in names:
            source.complain(f"The parameter {name} does not occur in sql as :{name}.", ("parameters", name))
