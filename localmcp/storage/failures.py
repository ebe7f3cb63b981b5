"""Translate SQLite's errors into errors of localmcp."""

from __future__ import annotations

from pathlib import Path

import apsw

from localmcp.errors import FileUnavailable, Interrupted, LocalMCPError, NotOurFile

_WRITE_FAILURES = (apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_TRUNCATE, apsw.SQLITE_IOERR_FSYNC)


def translate_error(error: apsw.Error, path: Path) -> LocalMCPError | None:
    """Return what happened, for the person; None for what only a mistake in our SQL can cause."""
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return FileUnavailable(f"{path} is locked by another program.", hint="Try again when it has finished.")
    if isinstance(error, apsw.FullError):
        return FileUnavailable(
            "The disk is full; what was done before is kept.", hint="Free some space and run it again."
        )
    if isinstance(error, apsw.ReadOnlyError):
        return FileUnavailable(f"{path} is write-protected.", hint="Copy it to a folder you may write.")
    if isinstance(error, apsw.CantOpenError | apsw.AuthError | apsw.PermissionsError):
        return FileUnavailable(f"{path} cannot be opened: {error}.", hint="Check that it exists and may be read.")
    if isinstance(error, apsw.NotADBError):
        return NotOurFile(f"{path} is not a SQLite database.", hint="Name a file that localmcp made.")
    if isinstance(error, apsw.IOError) and getattr(error, "extendedresult", 0) in _WRITE_FAILURES:
        return FileUnavailable(
            f"{path} cannot be written any further; nothing of this change was kept.",
            hint="Is there a limit on the size of files (ulimit -f), a quota, or a fault of the disk?",
        )
    if isinstance(error, apsw.CorruptError | apsw.IOError):
        return FileUnavailable(
            f"{path} is damaged or unreadable: {error}.",
            hint="See what helps: localmcp doctor   (if the file was given to you: ask for it again)",
        )
    if isinstance(error, apsw.TooBigError | apsw.NoMemError):
        return FileUnavailable(f"{path} holds, or would get, a value that is too large.")
    if isinstance(error, apsw.InterruptError):
        return Interrupted("The search was interrupted.")
    return None
