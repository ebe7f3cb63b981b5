"""Files from elsewhere: their rows are copied into a new file of our own schema, without powers over this machine."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import apsw

from localmcp import files
from localmcp.errors import AlteredSchema, FileUnavailable, LocalMCPError
from localmcp.files import expand_home, make_private_file
from localmcp.humanize import counted
from localmcp.storage import database as storage
from localmcp.storage import schema
from localmcp.storage.connections import connect, refuse_odd_companions, truncate_log
from localmcp.storage.database import Database, fetch_all, fetch_column, fetch_one, translate_error
from localmcp.storage.schema import SEGMENT_FITS, VECTOR_ID_BITS

HIGHEST_ID = 1 << (VECTOR_ID_BITS - 2)
"""Rows with higher ids, and counters that are higher, would leave no room for new ones; of an id's bits in `vectors`
the highest says that it is of a rule."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The number of removed rows of each power over this machine that a file from elsewhere brings."""

    keys: int = 0
    """API keys: whoever has one may read the file over HTTP, and change it if the key says so."""
    watched_folders: int = 0
    """Folders of this machine that the next refresh reads, such as `~/.ssh`, and files whose scans wait to be read."""

    def sentence(self) -> str:
        """Return a sentence with each power that was dropped, and the option that keeps it; empty if all stayed."""
        phrases = [f"{counted(self.keys, 'API key')} (--keep-keys)"] if self.keys else []
        if self.watched_folders:
            phrases.append(f"{counted(self.watched_folders, 'watched folder')} (--keep-watched-folders)")
        return f"Not taken over: {', '.join(phrases)}." if phrases else ""


def adopt(path: str | os.PathLike[str], *, keys: bool = False, watched_folders: bool = False) -> Dropped:
    """Put a file of our own schema, with the rows of the one that was given, in its place; powers stay on demand.

    One that this machine made or adopted, and nobody changed, stays as it is. The given file is kept beside it, named
    `….before-adoption`. Killed at any moment, it can be repeated. Raises as `copy_rows`.
    """
    path = expand_home(path).absolute()
    try:
        with files.scratch_folder(path.parent) as scratch:
            copy = scratch / "copy"
            dropped = copy_rows(path, copy, keys=keys, watched_folders=watched_folders)
            if dropped is None:
                # This machine made it: unless its schema was changed, it stays as it is.
                with closing(Database(path, read_only=True)) as database, suppress(AlteredSchema):
                    database.size()
                    return Dropped()
            with closing(connect(copy)) as connection:
                # What a pack says of itself is no longer true once the file changes.
                connection.execute("delete from manifest")
                schema.adopt_file(fetch_one(connection, "select id from file"))
            keep_bytes(path, free_name(path, "before-adoption"))
            # What is in its log goes into the file itself, so that no moment is without it.
            truncate_log(path)
            replace_file(path, copy)
            return dropped or Dropped()
    except OSError as error:
        raise FileUnavailable(f"{path} cannot be written: {error.strerror or error}.") from error


def free_name(path: Path, note: str) -> Path:
    """`main.localmcp.before-adoption`, with the time added when that is there already."""
    named = path.with_name(f"{path.name}.{note}")
    return named if not named.exists() else path.with_name(f"{named.name}-{datetime.now():%Y%m%d-%H%M%S-%f}")


def keep_bytes(path: Path, target: Path) -> Path | None:
    """Copy a file and the logs beside it, itself last: where it is, all of it is; None if none is there."""
    if not path.exists():
        return None
    for ending in ("-wal", "-journal", ""):
        if (part := path.with_name(f"{path.name}{ending}")).exists():
            unfinished = Path(f"{target}{ending}.part")
            shutil.copy2(part, unfinished)
            unfinished.replace(f"{target}{ending}")
    return target


def replace_file(path: Path, copy: Path) -> None:
    """Put a copy in the place of a file. Logs beside that would be played into the copy."""
    for ending in ("-wal", "-shm", "-journal"):
        path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)
    copy.replace(path)


def copy_rows(given: Path, target: Path, *, keys: bool = False, watched_folders: bool = False) -> Dropped | None:
    """Copy the rows of a given file, table by table and column by column, into a new file of our own schema.

    The given file is only read, in a process that is killed when it takes too long. What is not ours in its schema is
    left behind unevaluated. Powers that do not stay are dropped, and the new file has another id, unless this
    machine made or adopted the given one: None then. NotOurFile, FileTooOld or FileTooNew for one of another program or
    version; FileUnavailable if it is damaged, cannot be read, or takes too long, or the disk is full.
    """
    if not given.is_file():
        raise FileUnavailable(f"There is no file {given}.")
    try:
        refuse_odd_companions(given)
        with files.scratch_folder(target.parent) as scratch:
            copy = scratch / "given"
            for ending in ("", "-wal", "-journal"):
                if (part := given.with_name(f"{given.name}{ending}")).is_file():
                    shutil.copyfile(part, f"{copy}{ending}")
            if schema.names_another_file(copy):
                raise FileUnavailable(f"{given} was left in the middle of a change to several files.")
            return run_killable(given, _copy, given, copy, target, keys, watched_folders)
    except OSError as error:
        raise FileUnavailable(f"{target.parent} cannot be written: {error.strerror or error}.") from error


def _copy(given: Path, copy: Path, target: Path, keep_keys: bool, keep_folders: bool) -> Dropped | None:
    try:
        with closing(connect(copy)) as connection:
            mine = schema.is_adopted(schema.read_file_id(connection, given))
        make_private_file(target)
        with closing(connect(target)) as connection:
            connection.pragma("page_size", storage.PAGE_SIZE)
            connection.pragma("foreign_keys", False)
            connection.limit(apsw.SQLITE_LIMIT_LENGTH, storage.MAX_FOREIGN_VALUE_BYTES)
            # Pages of full-text indexes are copied too.
            connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
            connection.execute("attach ? as given", (str(copy),))
            connection.execute("begin immediate")
            schema.create_schema(connection)
            # Last the highest ids: inserting writes them too.
            is_table = "type = 'table' and rootpage > 0"
            sql = f"select name from main.sqlite_schema where {is_table} order by name = 'sqlite_sequence'"
            given_tables = set(fetch_column(connection, f"select name from given.sqlite_schema where {is_table}"))
            for table in fetch_column(connection, sql):
                if table not in given_tables:
                    raise apsw.SQLError(f"it has no table '{table}'")
                connection.execute(f'delete from main."{table}"')
                is_ours = "name in (select name from main.sqlite_schema)"
                copy_table(connection, table, "given", is_ours if table == "sqlite_sequence" else "true")
            if broken := fetch_all(connection, "select * from main.pragma_foreign_key_check limit 1000"):
                raise FileUnavailable(f"{given} is damaged: {len(broken)} rows point at something that is not there.")
            for table in fetch_column(connection, "select name from main.sqlite_sequence"):
                if (fetch_one(connection, f'select max(rowid) from main."{table}"') or 0) > HIGHEST_ID:
                    raise FileUnavailable(f"{given} is damaged: rows of '{table}' have ids that nothing gives them.")
            connection.execute("update main.sqlite_sequence set seq = min(seq, ?)", (HIGHEST_ID,))
            for name in fetch_column(connection, "select name from main.pragma_table_info('state') where pk = 0"):
                connection.execute(f"update main.state set {name} = min({name}, ?)", (HIGHEST_ID,))
            # `doctor --fix` makes anew what is left out.
            connection.execute(f"""
                delete from main.signs where id not in (
                    select signs.id from main.signs join main.models on models.id = model_id where {SEGMENT_FITS})
            """)
            keys = folders = 0
            if not mine:
                connection.execute("update main.file set id = ?", (uuid.uuid4().hex,))
                connection.execute("delete from main.jobs")
                if not keep_keys:
                    keys = fetch_one(connection, "select count(*) from main.api_keys")
                    connection.execute("delete from main.api_keys")
                if not keep_folders:
                    folders = fetch_one(connection, "select count(*) from main.roots where kind not like 'removed %'")
                    # Text recognition reads every file that waits here, in a watched folder or not.
                    connection.execute("update main.ledger set pages = 0 where pages > 0")
                    connection.execute("delete from main.roots")
            connection.execute("commit")
            return None if mine else Dropped(keys, folders)
    except (apsw.ConstraintError, apsw.SQLError, apsw.MismatchError) as error:
        raise FileUnavailable(f"{given} is damaged, or was changed by another program: {error}.") from error
    except apsw.Error as error:
        raise translate_error(error, given) or error from error


def copy_table(
    connection: apsw.Connection, table: str, given: str, which: str, bindings: dict[str, Any] | None = None
) -> None:
    """Copy rows for which `which` holds from an attached file, but no generated columns: reading one evaluates it."""
    columns = "select name from pragma_table_xinfo(?, ?) where hidden = 0"
    theirs = set(fetch_column(connection, columns, (table, given)))
    ours = fetch_column(connection, columns, (table, "main"))
    names = ", ".join(f'"{name}"' for name in ours if name in theirs)
    connection.execute(
        f'insert into main."{table}" ({names}) select {names} from {given}."{table}" where {which}', bindings
    )


LEAST_SECONDS = 6.0
"""Processor time that a file may take, and a second more for each 5 MB; ours take a tenth."""
P = ParamSpec("P")
Result = TypeVar("Result")


def run_killable(path: Path, work: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Return `work(*args, **kwargs)` of a module's function that reads the file at `path`, run in its own process.

    One step of SQLite may take hours, such as an expression of a schema that a stranger wrote; no handler ends it.
    FileUnavailable if it takes too long, or crashes; else the LocalMCPError that `work` raises.
    """
    seconds = LEAST_SECONDS + path.stat().st_size / 5_000_000
    child = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from localmcp.storage.adoption import run; run()"
    command = [sys.executable, "-c", child, json.dumps(sys.path)]
    task = pickle.dumps((int(seconds), work, args, kwargs))
    code, answer = -1, b""
    with suppress(subprocess.TimeoutExpired):
        # A busy machine may take a minute more, or one where processor time is not limited (Windows).
        done = subprocess.run(command, input=task, capture_output=True, timeout=seconds + 60.0, check=False)
        code, answer = done.returncode, done.stdout
    if code < 0:
        raise FileUnavailable(f"{path} takes too long to read.", hint="Ask for the file again.")
    if code or not answer:
        raise FileUnavailable(f"{path} cannot be read.")
    outcome: Any = pickle.loads(answer)
    if isinstance(outcome, LocalMCPError):
        raise outcome
    return outcome


def run() -> None:
    """Do what the other process asks for on stdin; the result, or the error, goes to stdout."""
    seconds, work, args, kwargs = pickle.loads(sys.stdin.buffer.read())
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        outcome = work(*args, **kwargs)
    except LocalMCPError as error:
        outcome = error
    sys.stdout.buffer.write(pickle.dumps(outcome))
