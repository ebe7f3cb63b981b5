"""The open file: a connection for each call, one writer at a time, and errors that say what to do."""

from __future__ import annotations

import os
import threading
import uuid
from array import array
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw

from localmcp.errors import FileTooNew, FileUnavailable, Interrupted, LocalMCPError, NotOurFile
from localmcp.files import expand_home, make_private_file, make_private_folder
from localmcp.humanize import command_line
from localmcp.storage import connections, schema
from localmcp.storage.connections import READ, READ_WRITE, connect, switch_to_wal

PAGE_SIZE = 8192
"""A float32 vector of 384 takes 1641 bytes a row at 8192, 2053 at 4096."""
HOW_TO_BEGIN = "Begin with: localmcp add FOLDER   (or look around first: localmcp demo)"
MAX_FOREIGN_VALUE_BYTES = 8_000_000
"""Largest text or blob that is read from a file that this machine has not adopted; what we write is far smaller.

A passage of 3 MB costs a search 5 s."""
UNREADABLE_ROWS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What reading raises for rows that break the promises of the schema; only a foreign file can have them."""
_NOT_ADOPTED = "it comes from somewhere else and has not been adopted"
_WRITING_FAILED = (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_TRUNCATE, apsw.SQLITE_IOERR_FSYNC)


class Generations(NamedTuple):
    """Counters that only grow when what is searched changes; caches compare them."""

    content: int
    signs: int


class Interruption:
    """`with Interruption() as mine:` around calls: `mine.stop()`, from any thread, ends the running query; later ones
    of the block are refused (Interrupted). Writing is never interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: apsw.Connection | None = None
        self.stopped = False

    def __enter__(self) -> Interruption:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_error: object) -> None:
        _current.reset(self._token)

    def stop(self) -> None:
        """End what is being read; harmless when nothing is."""
        with self._lock:
            self.stopped = True
            if self._connection is not None:
                self._connection.interrupt()

    @contextmanager
    def reach(self, connection: apsw.Connection) -> Generator[None]:
        """Let `stop` end what this connection reads."""
        with self._lock:
            if self.stopped:
                raise Interrupted("The search was interrupted.")
            self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None


_current: ContextVar[Interruption | None] = ContextVar("localmcp_interruption", default=None)


class Database:
    """One SQLite file. Constructing it touches nothing; the first `read` or `write` opens or creates it."""

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False, foreign: bool = False) -> None:
        """`foreign`: distrust the file, even if this machine once adopted it."""
        self.path = expand_home(path).absolute()
        self.read_only = read_only
        self.may_create = True
        """Whether the first use makes the file if it is missing or empty; False for programs that only read."""
        self.adopted = False
        """This machine made the file or was told to trust it; known once the file is open."""
        self._foreign = foreign
        self._why_read_only = "it was opened read-only" if read_only else ""
        self._writing = threading.RLock()
        """Held for a whole transaction, and always taken before `_lock`."""
        self._lock = threading.RLock()
        """Held only while the file is opened or a connection changes hands: readers never wait for the writer."""
        self._writer: apsw.Connection | None = None
        self._idle: list[apsw.Connection] = []
        self.is_open = False
        """Whether anything was read or written so far."""
        self._immutable = False
        """In WAL mode in a write-protected folder, and all of it is in the file itself."""
        self._identity: tuple[int, int] | None = None
        """Device and inode of the file that was opened."""

    @property
    def file_id(self) -> str:
        """The random id that the file was born with."""
        with self.read() as connection:
            return fetch_one(connection, "select id from file")

    def size(self) -> int:
        """Return the bytes of the file once SQLite has written its log back into it."""
        with self.read() as connection:
            return fetch_one(connection, "pragma page_count") * fetch_one(connection, "pragma page_size")

    @contextmanager
    def read(self) -> Generator[apsw.Connection]:
        """Yield a connection for one call, in one snapshot of the file (FileUnavailable, NotOurFile, FileTooNew)."""
        with self._translated():
            with self._lock:
                self._ensure_open()
                idle = self._idle
                connection = idle.pop() if idle else None
            if connection is None:
                connection = self._connect(READ if self._why_read_only else READ_WRITE)
                connection.pragma("query_only", True)
            interruption = _current.get()
            try:
                with interruption.reach(connection) if interruption else nullcontext():
                    connection.execute("begin deferred")
                    yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("rollback")
                with self._lock:
                    # After `close` there is another list: what was lent before reads a file that may be replaced.
                    keep = idle is self._idle and self.is_open and len(idle) < 8
                    if keep:
                        idle.append(connection)
                if not keep:
                    connection.close()

    @contextmanager
    def write(self, patience: int | None = None) -> Generator[apsw.Connection]:
        """Yield a transaction: all of the block or none of it; one at a time in this process, others wait.

        FileUnavailable if the file is read-only, locked for 30 s or `patience` in milliseconds, gone or replaced, or
        the disk is full; FileTooNew if a newer program changed it meanwhile.
        """
        with self._writing, self._translated():
            self.ensure_writable()
            # Nobody would find again what is written into a file that is gone, or has another in its place.
            if (identity := _identity_of(self.path)) is None:
                raise self._gone()
            if identity != self._identity:
                self.close()
                message = f"{self.path} was replaced by another file; nothing was changed."
                raise FileUnavailable(message, hint="Try again.")
            connection = self._writer = self._writer or self._connect(READ_WRITE)
            connection.set_busy_timeout(patience or connections.BUSY_MILLISECONDS)
            connection.execute("begin immediate")
            try:
                if connection.pragma("user_version") != schema.SCHEMA_VERSION:
                    raise FileTooNew(f"{self.path} was upgraded by another program.", hint="Restart this one.")
                yield connection
                connection.execute("commit")
            except BaseException:
                # A failed commit (full disk) may have rolled back by itself.
                if connection.in_transaction:
                    connection.execute("rollback")
                raise

    def counters(self) -> dict[str, int]:
        """Return every generation by its name: what any process changed; cheap enough to ask twice a second."""
        if self.is_open and not self.path.exists():
            raise self._gone()
        with self.read() as connection:
            row = connection.execute("select * from state")
            return dict(zip([column[0] for column in row.description], next(row), strict=True))

    def _gone(self) -> FileUnavailable:
        return FileUnavailable(f"{self.path} is no longer there.", hint="Was it moved, or its disk taken away?")

    def close(self) -> None:
        """Close every connection; the object can be used again and then reopens."""
        with self._writing, self._lock:
            for connection in (*self._idle, *([self._writer] if self._writer else [])):
                with suppress(apsw.Error):
                    connection.close()
            self._idle, self._writer, self.is_open, self._immutable = [], None, False, False

    def copy_to(self, target: Path) -> None:
        """Write one snapshot to `target`, which must not exist: whole, without free pages, not in WAL mode."""
        with self._translated():
            self._ensure_open()
            with closing(self._connect(READ)) as reader:
                if target.parent.is_dir() and not target.exists():
                    make_private_file(target)
                reader.execute("vacuum into ?", (str(target),))

    def attached(self) -> apsw.Connection:
        """Return a connection to a temporary file, gone with it, and this file read-only beside it as `live`."""
        with self._translated():
            self._ensure_open()
            connection = connect("")
            mode = "immutable=1" if self._immutable else "mode=ro"
            connection.execute("attach ? as live", (f"{self.path.as_uri()}?{mode}",))
            return connection

    @property
    def is_writable(self) -> bool:
        """Whether `write` may change the file; opens it."""
        with self._translated():
            self._ensure_open()
            if self._why_read_only and self._identity != _identity_of(self.path):
                self.close()  # It has been adopted meanwhile.
                self._ensure_open()
        return not self._why_read_only

    def ensure_writable(self) -> None:
        """Raise now the FileUnavailable that `write` would raise because the file is read-only: why, and what to do."""
        if not self.is_writable:
            how = "Copy the file to a folder you may write."
            if self._why_read_only == _NOT_ADOPTED:
                how = f"To change it, run: {command_line('localmcp', 'adopt', self.path)}"
            message = f"{self.path} cannot be changed: {self._why_read_only}."
            raise FileUnavailable(message, hint=f"Searching works. {how}")

    def _connect(self, flags: int) -> apsw.Connection:
        if self._immutable:
            connection = connect(f"{self.path.as_uri()}?immutable=1", flags | apsw.SQLITE_OPEN_URI)
        else:
            connection = connect(self.path, flags)
        if self._foreign or (self.is_open and not self.adopted):
            connection.limit(apsw.SQLITE_LIMIT_LENGTH, MAX_FOREIGN_VALUE_BYTES)
        return connection

    def _ensure_open(self) -> None:
        with self._lock:
            if self.is_open:
                return
            exists = self.path.exists()
            if exists and not self.path.is_file():
                kind = "a folder" if self.path.is_dir() else "a pipe or a device"
                raise FileUnavailable(f"{self.path} is {kind}.", hint="Name a file.")
            if not exists or not self._inspect():
                if self.read_only or not self.may_create:
                    state = "is empty" if self.path.exists() else "does not exist yet"
                    raise FileUnavailable(f"{self.path} {state}.", hint=None if self._foreign else HOW_TO_BEGIN)
                # Before there is a file: where this fails, no blank one may stay behind.
                adopted = schema.adopt_file(file_id := uuid.uuid4().hex)
                try:
                    make_private_folder(self.path.parent)
                    make_private_file(self.path)
                except OSError as error:
                    adopted.unlink(missing_ok=True)
                    message = f"{self.path} cannot be made: {error.strerror}."
                    raise FileUnavailable(message, hint="Name a file elsewhere with --db.") from error
                with closing(self._connect(READ_WRITE)) as connection:
                    connection.pragma("page_size", PAGE_SIZE)
                    switch_to_wal(connection, self.path)
                    connection.execute("begin exclusive")
                    # Another process may have created the file while this one waited.
                    if schema.is_blank(connection):
                        schema.create_schema(connection, file_id)
                    connection.execute("commit")
                self._inspect()
            self._identity = _identity_of(self.path)
            self.is_open = True

    def _inspect(self) -> bool:
        # Refuses what is not ours; false for a file without any content yet.
        with closing(self._first_connection()) as connection:
            if schema.is_blank(connection):
                return False
            is_ours = schema.is_adopted(schema.read_file_id(connection, self.path))
            self.adopted = is_ours and not self._foreign
            schema.check_schema(connection, self.path, adopted=self.adopted)
            in_wal = connection.pragma("journal_mode") == "wal"
        is_protected = self._immutable or not all(os.access(path, os.W_OK) for path in (self.path, self.path.parent))
        if self.read_only:
            self._why_read_only = "it was opened read-only"
        elif not is_ours:
            self._why_read_only = _NOT_ADOPTED
        else:
            self._why_read_only = "the file or its folder is write-protected" if is_protected else ""
        if not self._why_read_only and not in_wal:
            # An exported copy or a restored backup.
            with closing(self._connect(READ_WRITE)) as connection:
                switch_to_wal(connection, self.path)
        return True

    def _first_connection(self) -> apsw.Connection:
        # One that has read of the file; a journal that a kill left is played back.
        try:
            connection = self._connect(READ)
            connection.pragma("application_id")
            return connection
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            is_protected = self.path.is_file() and not os.access(self.path.parent, os.W_OK)
            if is_protected and not any(Path(f"{self.path}{ending}").exists() for ending in ("-wal", "-journal")):
                self._immutable = True
                return self._connect(READ)
            stays = is_protected or self.read_only or self._foreign or schema.names_another_file(self.path)
            if stays or isinstance(error, apsw.CantOpenError):
                raise
        with closing(self._connect(READ_WRITE)) as connection:
            connection.pragma("application_id")
        return self._connect(READ)

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (apsw.Error, *UNREADABLE_ROWS) as error:
            translated = translate_error(error, self.path) if isinstance(error, apsw.Error) else None
            if translated is None and self.is_open and self.adopted:
                raise
            raise translated or self._unreadable(error) from error

    def explain(self, error: Exception) -> LocalMCPError | None:
        """Return what an unexpected error means: the rows of a foreign file need not be what the schema promises."""
        is_suspect = self.is_open and not self.adopted
        return self._unreadable(error) if is_suspect and isinstance(error, UNREADABLE_ROWS) else None

    def _unreadable(self, error: Exception) -> FileUnavailable:
        message = f"{self.path} holds rows that localmcp did not write: {type(error).__name__}: {str(error)[:200]}."
        hint = f"See what is wrong with: {command_line('localmcp', 'verify', self.path)}"
        return FileUnavailable(message, hint=hint)


def translate_error(error: apsw.Error, path: Path) -> LocalMCPError | None:
    """Return what happened, for the person; None for what only a mistake in our SQL can cause."""
    hint = None
    match error:
        case apsw.BusyError() | apsw.LockedError():
            message, hint = f"{path} is locked by another program.", "Try again when it has finished."
        case apsw.FullError():
            message, hint = "The disk is full; what was done before is kept.", "Free some space and run it again."
        case apsw.ReadOnlyError():
            message, hint = f"{path} is write-protected.", "Copy it to a folder you may write."
        case apsw.CantOpenError() | apsw.AuthError() | apsw.PermissionsError():
            message, hint = f"{path} cannot be opened: {error}.", "Check that it exists and may be read."
        case apsw.IOError() if getattr(error, "extendedresult", 0) in _WRITING_FAILED:
            message = f"{path} cannot be written any further; nothing of this change was kept."
            hint = "Is there a limit on the size of files (ulimit -f), a quota, or a fault of the disk?"
        case apsw.CorruptError() | apsw.IOError():
            message = f"{path} is damaged or unreadable: {error}."
            hint = "See what helps: localmcp doctor   (if the file was given to you: ask for it again)"
        case apsw.TooBigError() | apsw.NoMemError():
            message = f"{path} holds, or would get, a value that is too large."
        case apsw.NotADBError():
            return NotOurFile(f"{path} is not a SQLite database.", hint="Name a file that localmcp made.")
        case apsw.InterruptError():
            return Interrupted("The search was interrupted.")
        case _:
            return None
    return FileUnavailable(message, hint=hint)


def _identity_of(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def read_generations(connection: apsw.Connection) -> Generations:
    """Return the generations in this snapshot."""
    return Generations(*fetch_one(connection, "select content, signs from state"))


def bump_generations(connection: apsw.Connection, *names: str) -> None:
    """Count up the named generations; part of the transaction that changes what is searched."""
    for name in names:
        connection.execute(f"update state set {name} = {name} + 1")


def insert_row(connection: apsw.Connection, table: str, row: Mapping[str, Any]) -> int:
    """Insert column -> value into a table, and return the id of the new row."""
    values = ", ".join(f":{column}" for column in row)
    return fetch_one(connection, f"insert into {table} ({', '.join(row)}) values ({values}) returning rowid", row)


def upsert_rows(connection: apsw.Connection, table: str, key: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows of column -> value, all with the same columns, or change those that have the same key."""
    if not rows:
        return
    values = ", ".join(f":{column}" for column in rows[0])
    changes = ", ".join(f"{column} = excluded.{column}" for column in rows[0] if column not in key)
    sql = f"insert into {table} ({', '.join(rows[0])}) values ({values}) on conflict ({', '.join(key)}) do update set"
    connection.executemany(f"{sql} {changes}", rows)


def fetch_all(connection: apsw.Connection, sql: str, bindings: Any = ()) -> list[Any]:
    """Return all rows of a query, each a tuple."""
    return cast("list[Any]", connection.execute(sql, bindings).fetchall())


def fetch_column(connection: apsw.Connection, sql: str, bindings: Any = ()) -> list[Any]:
    """Return the first value of every row of a query."""
    return [row[0] for row in fetch_all(connection, sql, bindings)]


def fetch_one(connection: apsw.Connection, sql: str, bindings: Any = ()) -> Any:
    """Return the only row of a query as a tuple, or its value if it has one column; None if there is none."""
    # Not `get`, which passes over the check of foreign rows.
    row = next(iter(fetch_all(connection, sql, bindings)), None)
    return row[0] if row is not None and len(row) == 1 else row


def id_list(ids: Iterable[int]) -> Any:
    """Return ids for `(select value from carray(?))`, which takes no empty list: -1 is the id of nothing."""
    return apsw.carray(array("q", ids) or array("q", (-1,)))
