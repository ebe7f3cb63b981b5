"""The open file: connections checked out for one call, one writer at a time, every failure told in our words."""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import apsw

from localmcp import config
from localmcp.errors import FileTooNew, FileUnavailable, LocalMCPError, NotOurFile
from localmcp.storage.migrations import (
    APPLICATION_ID,
    apply_migrations,
    expected_schema,
    schema_of,
    schema_version,
)

log = logging.getLogger(__name__)

PAGE_SIZE = 8192
"""A float32 vector of 384 takes 1641 bytes a row at 8192, 2053 at 4096."""
BUSY_MILLISECONDS = 30_000
MAX_VALUE_BYTES = 256_000_000
"""No text or blob in the file may be larger: bounds what a hostile file can make us hold."""


@dataclass(frozen=True, slots=True)
class Generations:
    """Counters that only grow when what is searched changes; caches compare them."""

    content: int
    words: int
    signs: int
    tools: int


class Database:
    """One SQLite file. Constructing it touches nothing; the first `read` or `write` opens, creates or migrates it."""

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, adopt: bool = False) -> None:
        self.path = Path(path).expanduser().absolute()
        self.read_only = read_only
        self._adopt = adopt
        self._why_read_only = "it was opened read-only" if read_only else ""
        self._lock = threading.RLock()
        self._writer: apsw.Connection | None = None
        self._idle: list[apsw.Connection] = []
        self._open = False
        self._immutable = False
        self.levenshtein_works = False
        """The registered SQL function answered its self-check (S0-18); otherwise searches use fallback mode (S0-17)."""

    @property
    def file_id(self) -> str:
        """The random id that the file was born with."""
        with self.read() as connection:
            return fetch_one(connection, "select id from file")

    @contextmanager
    def read(self) -> Generator[apsw.Connection]:
        """A connection for one call, inside one snapshot of the file.

        Raises:
            FileUnavailable: the file cannot be opened or is locked.
            NotOurFile, FileTooNew: the file does not belong to this program.
        """
        with self._translated():
            connection = self._take_reader()
            try:
                connection.execute("begin deferred")
                yield connection
            finally:
                self._give_back(connection)

    @contextmanager
    def write(self) -> Generator[apsw.Connection]:
        """A transaction: all of the block or none of it; one at a time in this process, others wait.

        Raises:
            FileUnavailable: read-only, locked for 30 s, or the disk is full.
            FileTooNew: another process migrated the file meanwhile.
        """
        with self._lock, self._translated():
            connection = self._take_writer()
            connection.execute("begin immediate")
            try:
                if connection.pragma("user_version") != schema_version():
                    raise FileTooNew(f"{self.path} was upgraded by another program.", hint="Restart this one.")
                yield connection
                connection.execute("commit")
            except BaseException:
                # A failed commit (full disk) may have rolled back by itself.
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    def close(self) -> None:
        """Close every connection; the object can be used again and then reopens."""
        with self._lock:
            for connection in (*self._idle, *([self._writer] if self._writer else [])):
                with suppress(apsw.Error):
                    connection.close()
            self._idle, self._writer, self._open = [], None, False

    def ensure_writable(self) -> None:
        """Raise now what `write` would raise because the file is read-only.

        Raises:
            FileUnavailable: says why, and how to change it.
        """
        with self._translated():
            self._ensure_open()
        if self._why_read_only:
            raise FileUnavailable(f"{self.path} cannot be changed: {self._why_read_only}.", hint=self._how_to_write())

    # ------------------------------------------------------------ connections

    def _take_reader(self) -> apsw.Connection:
        with self._lock:
            self._ensure_open()
            if self._idle:
                return self._idle.pop()
        connection = self._connect(apsw.SQLITE_OPEN_READONLY if self._why_read_only else apsw.SQLITE_OPEN_READWRITE)
        connection.pragma("query_only", True)
        return connection

    def _give_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("rollback")
        with self._lock:
            if self._open and len(self._idle) < 8:
                self._idle.append(connection)
                return
        connection.close()

    def _take_writer(self) -> apsw.Connection:
        self.ensure_writable()
        if self._writer is None:
            self._writer = self._connect(apsw.SQLITE_OPEN_READWRITE)
        return self._writer

    def _connect(self, flags: int) -> apsw.Connection:
        name = f"{self.path.as_uri()}?immutable=1" if self._immutable else str(self.path)
        connection = apsw.Connection(name, flags=flags | (apsw.SQLITE_OPEN_URI if self._immutable else 0))
        for practice in PRACTICES:
            practice(connection)
        load_sqlite_vec(connection)
        self.levenshtein_works = register_levenshtein(connection)
        return connection

    # ------------------------------------------------------------ opening

    def _ensure_open(self) -> None:
        if self._open:
            return
        if not self.path.exists():
            self._create()
        elif self.path.stat().st_size == 0 and not self.read_only:
            self._create()
        self._inspect()
        self._open = True

    def _create(self) -> None:
        if self.read_only:
            raise FileUnavailable(f"{self.path} does not exist.")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileUnavailable(f"{self.path.parent} cannot be made: {error.strerror}.") from error
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        connection.pragma("page_size", PAGE_SIZE)
        _switch_to_wal(connection)
        connection.execute("begin exclusive")
        # Another process may have created the file while this one waited.
        if connection.pragma("user_version") == 0 and not schema_of(connection):
            apply_migrations(connection, 0)
            adopt_file(fetch_one(connection, "select id from file"))
        connection.execute("commit")
        connection.close()

    def _inspect(self) -> None:
        """Refuse a foreign or newer file, migrate an older one, and find out whether we may write."""
        version, file_id = self._look()
        if version < schema_version() and not self.read_only and self._is_ours(file_id):
            self._migrate(version)
        if self.read_only:
            return
        if not self._is_ours(file_id):
            self._why_read_only = "it comes from somewhere else and has not been adopted"
        elif not os.access(self.path, os.W_OK) or self._immutable:
            self._why_read_only = "the file or its folder is write-protected"
        else:
            self._why_read_only = ""

    def _look(self) -> tuple[int, str]:
        connection = self._first_connection()
        try:
            if connection.pragma("application_id") != APPLICATION_ID:
                raise NotOurFile(f"{self.path} is not a localmcp file.", hint="Name another with --db.")
            version = int(connection.pragma("user_version"))
            if version > schema_version():
                raise FileTooNew(
                    f"{self.path} was written by a newer localmcp (version {version}; this one knows "
                    f"{schema_version()}).",
                    hint="Update localmcp; the file was left untouched.",
                )
            _compare_schema(connection, version, self.path)
            return version, fetch_one(connection, "select id from file")
        finally:
            connection.close()

    def _first_connection(self) -> apsw.Connection:
        try:
            connection = self._connect(apsw.SQLITE_OPEN_READONLY)
            connection.pragma("application_id")
            return connection
        except apsw.CantOpenError:
            # A file in WAL mode on a write-protected folder can be read only if nobody else may write it.
            if not self.path.exists() or os.access(self.path.parent, os.W_OK):
                raise
            self._immutable = True
            return self._connect(apsw.SQLITE_OPEN_READONLY)

    def _is_ours(self, file_id: str) -> bool:
        if self._adopt:
            adopt_file(file_id)
        return is_adopted(file_id)

    def _migrate(self, version: int) -> None:
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
        copy = self.path.with_name(f"{self.path.name}.v{version}-backup")
        if not copy.exists():
            connection.execute("vacuum into ?", (str(copy),))
        connection.execute("begin exclusive")
        now = int(connection.pragma("user_version"))
        if now < schema_version():
            apply_migrations(connection, now)
            log.warning(
                "%s was upgraded from version %d to %d; a copy is in %s", self.path, now, schema_version(), copy
            )
        connection.execute("commit")
        connection.close()

    def _how_to_write(self) -> str:
        if "adopted" in self._why_read_only:
            return f"Searching works. To change it, run: localmcp adopt {self.path}"
        return "Searching works. Copy the file to a folder you may write."

    # ------------------------------------------------------------ errors

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except apsw.Error as error:
            told = _in_our_words(error, self.path)
            if told is None:
                raise
            raise told from error


def _in_our_words(error: apsw.Error, path: Path) -> LocalMCPError | None:
    """What happened, for the person; None for what only a mistake in our SQL can cause."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return FileUnavailable(f"{path} is locked by another program.", hint="Try again when it has finished.")
    if isinstance(error, apsw.FullError):
        return FileUnavailable("The disk is full; nothing was changed.", hint="Free some space and try again.")
    if isinstance(error, apsw.ReadOnlyError):
        return FileUnavailable(f"{path} is write-protected.", hint="Copy it to a folder you may write.")
    if isinstance(error, apsw.CantOpenError | apsw.AuthError | apsw.PermissionsError):
        return FileUnavailable(f"{path} cannot be opened: {error}.", hint="Check that it exists and may be read.")
    if isinstance(error, apsw.NotADBError):
        return NotOurFile(f"{path} is not a SQLite database.", hint="Name another with --db.")
    if isinstance(error, apsw.CorruptError | apsw.IOError):
        return FileUnavailable(f"{path} is damaged or unreadable: {error}.", hint="Restore a backup.")
    if isinstance(error, apsw.InterruptError):
        return LocalMCPError("The search was interrupted.")
    return None


def _compare_schema(connection: apsw.Connection, version: int, path: Path) -> None:
    """A file may only hold our objects; plain tables and indexes that a person added are left alone."""
    found, expected = schema_of(connection), expected_schema(version)
    for name, sql in expected.items():
        if name not in found or found[name][1] != sql:
            raise NotOurFile(f"{path} does not have the schema of a localmcp file: '{name}' differs.")
    for name, (kind, sql) in found.items():
        if name not in expected and (kind in ("trigger", "view") or sql.lower().startswith("create virtual")):
            raise NotOurFile(f"{path} holds a {kind} that is not ours: '{name}'.", hint="It was left untouched.")


# ---------------------------------------------------------------- files this machine may change


def is_adopted(file_id: str) -> bool:
    """Whether this machine made the file or was told to trust it; others are read-only."""
    return file_id.isalnum() and (config.state_directory() / "files" / file_id).exists()


def adopt_file(file_id: str) -> None:
    """Remember the file's id in the state directory."""
    if not file_id.isalnum():
        raise NotOurFile("The file has no valid id.")
    place = config.state_directory() / "files"
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / file_id).touch()
    except OSError as error:
        raise FileUnavailable(f"{place} cannot be written: {error.strerror}.") from error


# ---------------------------------------------------------------- generations


def read_generations(connection: apsw.Connection) -> Generations:
    """The generations in this snapshot."""
    row = connection.execute("select content, words, signs, tools from state").get
    return Generations(*row)


def bump_generations(connection: apsw.Connection, *names: str) -> None:
    """Count up the named generations; part of the transaction that changes what is searched."""
    for name in names:
        connection.execute(f"update state set {name} = {name} + 1")


# ---------------------------------------------------------------- what every connection gets


def _wait_when_busy(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(BUSY_MILLISECONDS)


def _trust_nothing(connection: apsw.Connection) -> None:
    """The file may come from anybody: no code in its schema runs, no value is boundless, nothing is attached."""
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    connection.pragma("cell_size_check", True)
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)


def _keep_promises(connection: apsw.Connection) -> None:
    connection.pragma("foreign_keys", True)
    connection.pragma("synchronous", "normal")
    connection.pragma("cache_size", -16_000)


PRACTICES: tuple[Callable[[apsw.Connection], None], ...] = (_wait_when_busy, _trust_nothing, _keep_promises)


def load_sqlite_vec(connection: apsw.Connection) -> None:
    """Load the extension by its path: importing the package would import numpy (100 ms). Without it numpy stands in."""
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or not spec.submodule_search_locations:
        return
    connection.enable_load_extension(True)
    try:
        connection.load_extension(os.path.join(spec.submodule_search_locations[0], "vec0"))
    except apsw.ExtensionLoadingError as error:
        log.warning("sqlite-vec cannot be loaded (%s); vectors are compared by numpy", error)
    finally:
        connection.enable_load_extension(False)


def has_sqlite_vec(connection: apsw.Connection) -> bool:
    """Whether this connection knows sqlite-vec's functions."""
    try:
        return bool(fetch_one(connection, "select vec_version()"))
    except apsw.SQLError:
        return False


def register_levenshtein(connection: apsw.Connection) -> bool:
    """Register `levenshtein(a, b)` and check it (S0-18): ('test','test') = 0, ('API','APIs') = 1."""
    from rapidfuzz.distance.Levenshtein import distance

    def levenshtein(*texts: Any) -> int | None:
        first, second = texts
        return None if first is None or second is None else distance(str(first), str(second))

    connection.create_scalar_function("levenshtein", levenshtein, 2, deterministic=True, flags=apsw.SQLITE_DIRECTONLY)
    check = "select levenshtein('test', 'test') = 0 and levenshtein('API', 'APIs') = 1"
    return bool(fetch_one(connection, check))


def _switch_to_wal(connection: apsw.Connection) -> None:
    """WAL needs the file alone for a moment, and SQLite does not wait for that by itself."""
    for _ in range(100):
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            time.sleep(0.05)
    raise FileUnavailable("The new file is locked by another program.")


def fetch_all(connection: apsw.Connection, sql: str, bindings: Any = ()) -> list[Any]:
    """All rows of a query, each a tuple."""
    return cast("list[Any]", connection.execute(sql, bindings).fetchall())


def fetch_one(connection: apsw.Connection, sql: str, bindings: Any = ()) -> Any:
    """The only row of a query as a tuple, or its value if it has one column; None if there is none."""
    return connection.execute(sql, bindings).get
