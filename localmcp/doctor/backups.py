"""Copies of the file: made while it is in use, checked, and brought back under those who have it open."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import apsw

from localmcp import files
from localmcp.errors import AlteredSchema, FileUnavailable, InvalidInput, LocalMCPError, NotOurFile
from localmcp.files import expand_home
from localmcp.packs.verify import Verification, verify
from localmcp.storage.adoption import Dropped, KeptPowers, copy_rows, free_name, keep_bytes, replace_file
from localmcp.storage.connections import connect, truncate_log
from localmcp.storage.database import Database, fetch_all, fetch_one
from localmcp.storage.schema import adopt_file


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy that was written and read again."""

    path: Path
    bytes: int
    counts: dict[str, int]
    problems: list[str]
    """What does not agree in it, as in the file itself; `doctor --fix` fixes that."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore."""

    path: Path
    previous: Path | None
    """The copy of the file as it was; None when there was none."""
    counts: dict[str, int]
    dropped: Dropped
    """Powers of a backup from another machine that were not taken over."""


def back_up(database: Database, target: Path | None = None) -> Backup:
    """Copy the whole file, keys and history included, to `target` (beside it, named by the time, for None).

    One snapshot, while others go on writing. The copy appears only when it is complete and was read to its end.

    Raises:
        InvalidInput: the target exists.
        FileUnavailable: it cannot be written, the disk is full, or the file is damaged.
    """
    target = expand_home(target).absolute() if target else name_beside(database.path, "backup")
    if target.is_dir():
        target = target / name_beside(database.path, "backup").name
    if target.exists():
        raise InvalidInput(f"{target} is there already.", hint="Name another file.")
    if not target.parent.is_dir():
        raise InvalidInput(f"The folder {target.parent} does not exist.")
    with _scratch(target.parent) as scratch:
        copy = scratch / "copy"
        database.copy_to(copy)
        verification = _read_to_its_end(copy, "The file is damaged, so no backup was made", "localmcp doctor")
        # It holds keys: no more people may read it than the file itself.
        shutil.copymode(database.path, copy)
        os.replace(copy, target)
    return Backup(target, target.stat().st_size, verification.counts, verification.problems)


def name_beside(path: Path, note: str) -> Path:
    """`main-backup-20260131-093000.localmcp`, beside the file; a number is added when that is there already."""
    named = path.with_name(f"{path.stem}-{note}-{datetime.now():%Y%m%d-%H%M%S}{path.suffix}")
    free, number = named, 2
    while free.exists():
        free = named.with_stem(f"{named.stem}-{number}")
        number += 1
    return free


def restore(path: Path, backup: Path, *, other: bool = False, powers: KeptPowers | None = None) -> Restored:
    """Bring the content of a backup into the file at `path`, all of it or nothing.

    The rows of the backup are copied into a new file, and that is checked. What is in the file is copied beside it. A
    file that others have open stays the same file: its content is replaced in one transaction, and they see it at their
    next search. One that cannot be read any more, or whose tables somebody changed, is replaced as a whole.

    `other`: the backup may be of another file. `powers`: those that stay of a backup from another machine.

    Raises:
        FileUnavailable: there is no such backup, it is not sound, the file is locked, or the disk is full.
        NotOurFile: the backup is not a localmcp file.
        InvalidInput: the backup is of another file.
    """
    path, backup = expand_home(path).absolute(), expand_home(backup).absolute()
    if backup == path:
        raise InvalidInput("A file cannot be restored from itself.", hint="Name the backup.")
    with _scratch(path.parent) as scratch:
        prepared = scratch / "prepared"
        dropped = copy_rows(backup, prepared, powers or KeptPowers()) or Dropped()
        counts = _read_to_its_end(prepared, f"{backup} cannot be used", "Nothing was changed.").counts
        with closing(connect(prepared)) as connection:
            file_id = str(fetch_one(connection, "select id from file"))
        previous = free_name(path, "before-restore")
        current = _open_current(path) if path.exists() else None
        if current is None:
            kept = keep_bytes(path, previous)
            adopt_file(file_id)
            replace_file(path, prepared)
            return Restored(path, kept, counts, dropped)
        with closing(current):
            if file_id != current.file_id and not other:
                message = f"{backup} is a backup of another file than {path}."
                raise InvalidInput(message, hint="Say --other if that is what you want.")

            def copy_current() -> None:
                current.copy_to(scratch / "previous")
                os.replace(scratch / "previous", previous)

            _advance_counters(prepared, current)
            adopt_file(file_id)
            _replace_content(prepared, path, copy_current)
    return Restored(path, previous, counts, dropped)


def _read_to_its_end(path: Path, otherwise: str, hint: str) -> Verification:
    """Return what is found in a copy; indexes that do not agree are no reason to be without it.

    Raises:
        FileUnavailable: pages are damaged, or it cannot be opened; begins with `otherwise`.
    """
    verification = verify(path)
    if not verification.sound and not verification.counts:
        raise FileUnavailable(f"{otherwise}: {verification.problems[0].rstrip('.')}.", hint=hint)
    return verification


def _open_current(path: Path) -> Database | None:
    """Return the file as it is, or None when it cannot be read any more.

    Raises:
        NotOurFile: it is a sound database of another program, which is not ours to replace.
    """
    database = Database(path, read_only=True)
    try:
        with database.read() as connection:
            if fetch_one(connection, "pragma quick_check(1)") == "ok":
                return database
    except AlteredSchema:
        pass
    except NotOurFile as error:
        if not isinstance(error.__cause__, apsw.NotADBError):
            raise
    except (LocalMCPError, apsw.Error):
        pass
    database.close()
    return None


def _advance_counters(prepared: Path, current: Database) -> None:
    """Lift generations and row ids far above those of the file, so that caches of other processes notice the change."""
    counters = current.counters()
    with current.read() as connection:
        numbers = fetch_all(connection, "select seq, name from sqlite_sequence")
    with closing(connect(prepared)) as connection:
        connection.execute("begin immediate")
        for name in counters.keys() - {"one"}:
            connection.execute(f"update state set {name} = max({name}, ?) + ?", (counters[name], 1_000_000))
        missing = "insert into sqlite_sequence select ?2, ?1 where ?2 not in (select name from sqlite_sequence)"
        connection.executemany(missing, numbers)
        connection.executemany("update sqlite_sequence set seq = max(seq, ?) where name = ?", numbers)
        connection.execute("commit")


def _replace_content(prepared: Path, path: Path, copy_current: Callable[[], None]) -> None:
    """Replace the content of a live file in one transaction: a kill leaves either the old content or the new.

    The first page takes the lock for writing, so `copy_current` copies the last state that was written.
    """
    try:
        with (
            closing(connect(path)) as target,
            closing(connect(prepared)) as source,
            target.backup("main", source, "main") as pages,
        ):
            pages.step(1)
            copy_current()
            while not pages.done:
                pages.step(2000)
        # Whoever reads the old content meanwhile is not waited for longer.
        truncate_log(path)
    except (apsw.BusyError, apsw.LockedError) as error:
        raise FileUnavailable(
            f"{path} is being written by another program; nothing was changed.", hint="Try again when it has finished."
        ) from error
    except apsw.FullError as error:
        message = "The disk is full; nothing was changed."
        raise FileUnavailable(message, hint="Free some space and try again.") from error
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError) as error:
        raise FileUnavailable(f"{path} cannot be written: {error}.") from error


@contextmanager
def _scratch(folder: Path) -> Generator[Path]:
    """Yield a folder beside the target, so that the last step is a rename."""
    try:
        files.make_private_folder(folder)
        with files.scratch_folder(folder) as scratch:
            yield scratch
    except OSError as error:
        raise FileUnavailable(f"{folder} cannot be written: {error.strerror or error}.") from error
