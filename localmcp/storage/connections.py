"""One way to open a connection, with limits, a cache, sqlite-vec and SQL functions of ours; and one to let a statement
of somebody else only read, for so long."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import stat
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from localmcp.arrays import np
from localmcp.errors import FileUnavailable
from localmcp.wording.normalize import fold

if TYPE_CHECKING:
    from apsw.ext import QueryDetails

log = logging.getLogger(__name__)

READ, READ_WRITE = apsw.SQLITE_OPEN_READONLY, apsw.SQLITE_OPEN_READWRITE
BUSY_MILLISECONDS = 30_000
LEAST_CACHE, MOST_CACHE = 16_000, 48_000
"""Kilobytes of the file that a connection keeps in memory: an eightieth, between these. With 16 MB a search in a
million passages (4.2 GB) took 32 ms, with 64 MB 24; at 100,000 there is no difference."""


def connect(name: str | Path, flags: int = READ_WRITE) -> apsw.Connection:
    """Open a file, hardened, with sqlite-vec and `levenshtein`; "" is a temporary file without a name."""
    if isinstance(name, Path):
        refuse_odd_companions(name)
    flags |= 0 if name else apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(str(name), flags=flags)
    harden(connection)
    register_levenshtein(connection)

    def distance(*vectors: Any) -> float:
        one, other = (np.frombuffer(vector, np.float32) for vector in vectors)
        return 1.0 - float(one @ other)

    direct = apsw.SQLITE_DIRECTONLY
    connection.create_scalar_function("vec_distance_cosine", distance, 2, deterministic=True, flags=direct)
    # Its function takes the place of ours, which stays where there is no wheel of it.
    load_sqlite_vec(connection)
    return connection


def refuse_odd_companions(path: Path) -> None:
    """Refuse a log or journal that is no regular file, or larger than one of SQLite's can be (FileUnavailable)."""
    for ending in ("-wal", "-shm", "-journal"):
        with suppress(OSError):
            status, length = os.lstat(f"{path}{ending}"), path.stat().st_size
            # The file may have been larger before the change that the journal takes back.
            is_too_long = ending == "-journal" and status.st_size > 2 * length + 100_000_000
            if not stat.S_ISREG(status.st_mode) or is_too_long:
                raise FileUnavailable(f"{path}{ending} is none that SQLite makes.", hint="Move it away.")


def harden(connection: apsw.Connection) -> None:
    """Run no code from the schema and bound every value, since the file may come from anybody; wait for others."""
    connection.set_busy_timeout(BUSY_MILLISECONDS)
    for switch in (
        apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA,
        apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER,
        apsw.SQLITE_DBCONFIG_DQS_DML,
        apsw.SQLITE_DBCONFIG_DQS_DDL,
    ):
        connection.config(switch, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.pragma("cell_size_check", True)
    # No text or blob in the file may be larger: bounds what a hostile file can make us hold.
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, 256_000_000)
    connection.pragma("foreign_keys", True)
    connection.pragma("synchronous", "normal")
    cache = LEAST_CACHE
    with suppress(OSError):
        cache = min(max(os.stat(connection.filename).st_size // 80_000, LEAST_CACHE), MOST_CACHE)
    connection.pragma("cache_size", -cache)

    def folded(*values: Any) -> str:
        return fold(str(values[0]))

    # A text without case and accents: of case SQLite knows that of ASCII letters only.
    connection.create_scalar_function("folded", folded, 1, deterministic=True, flags=apsw.SQLITE_DIRECTONLY)


def quote_name(name: str) -> str:
    """Return the name of a table or column as SQL has it, in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def register_levenshtein(connection: apsw.Connection) -> None:
    """Register `levenshtein(a, b)`; what counts is imported at the first call (12 ms)."""

    def levenshtein(*texts: Any) -> int | None:
        from rapidfuzz.distance.Levenshtein import distance

        return None if None in texts else distance(str(texts[0]), str(texts[1]))

    connection.create_scalar_function("levenshtein", levenshtein, 2, deterministic=True, flags=apsw.SQLITE_DIRECTONLY)


def load_sqlite_vec(connection: apsw.Connection) -> None:
    """Load the extension by its path: importing the package would import numpy (100 ms)."""
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or not spec.submodule_search_locations:
        return
    connection.enable_load_extension(True)
    try:
        connection.load_extension(os.path.join(spec.submodule_search_locations[0], "vec0"))
    except apsw.ExtensionLoadingError as error:
        log.warning("sqlite-vec cannot be loaded: %s", error)
    finally:
        connection.enable_load_extension(False)


def check_levenshtein(connection: apsw.Connection) -> bool:
    """Return whether `levenshtein` is there and right (S0-18): ('test','test') = 0, ('API','APIs') = 1."""
    with suppress(apsw.SQLError):
        check = "select levenshtein('test', 'test') = 0 and levenshtein('API', 'APIs') = 1"
        return bool(connection.execute(check).get)
    return False


def switch_to_wal(connection: apsw.Connection, path: Path) -> None:
    """Switch to WAL mode; it needs the file alone for a moment, and SQLite does not wait for that by itself."""
    for _ in range(100):
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            time.sleep(0.05)
    raise FileUnavailable(f"{path} is locked by another program.", hint="Try again when it has finished.")


def truncate_log(path: Path) -> None:
    """Write the log back into the file and empty it, unless others read meanwhile, or the disk is full."""
    until = time.monotonic() + 2.0
    with closing(connect(path)) as connection:
        connection.set_busy_timeout(200)
        # A journal that a kill left is played back.
        connection.pragma("application_id")
        with suppress(apsw.FullError, apsw.IOError):
            while time.monotonic() < until:
                with suppress(apsw.BusyError):
                    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                    return


# ---------------------------------------------------------------- one statement of somebody else


@contextmanager
def reading_only(
    connection: apsw.Connection, seconds: float, may_read: Callable[[str], bool] = lambda _: True
) -> Generator[None]:
    """Let a connection only read, for so long, tables that it `may_read` by their names in small letters."""

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
) -> tuple[list[str], list[list[Any]], bool]:
    """Run a statement; return its columns, its rows as JSON has them, and whether there were more than the limits."""
    columns = [str(name) for name, *_ in prepare(connection, sql).description]
    rows: list[list[Any]] = []
    characters = 0
    for row in connection.execute(sql, dict(bindings)):
        # JSON has neither blobs nor infinite numbers; 0.1 + 0.2 is .3 for those who read it.
        shown: list[Any] = []
        for value in row:
            if isinstance(value, float):
                value = round(value, 10) if math.isfinite(value) else str(value)
            shown.append(f"<{len(value)} bytes>" if isinstance(value, bytes) else value)
        characters += sum(len(value) if isinstance(value, str) else 8 for value in shown)
        if len(rows) == most_rows or characters > most_characters:
            return columns, rows, True
        rows.append(shown)
    return columns, rows, False
