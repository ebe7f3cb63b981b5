"""Writing files so that nobody reads half of one, and only its owner reads it at all."""

import hashlib
import json
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

log = logging.getLogger(__name__)

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
SCRATCH = ".localmcp-scratch-"


def is_filled(path: Path) -> bool:
    """Return whether a file is there and holds a byte; `touch` makes one that does not."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be read, in words for a person."""
    if isinstance(error, UnicodeDecodeError):
        return f"not text in UTF-8 (byte {error.start + 1:,})"
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()


def modified_ns(status: os.stat_result) -> int:
    """Return when a file was changed, in ns since 1970; later than the year 2262 counts as 2262, SQLite's limit."""
    return max(1 - 2**63, min(status.st_mtime_ns, 2**63 - 1))


HASH_AT_MOST = 20_000_000
"""Larger files are not read to see whether they have changed."""
Freshness = Literal["fresh", "changed", "missing", "unverifiable"]


def check_freshness(
    uri: str | None, size: int | None, mtime_ns: int | None, sha256: str | None, adopted: bool = True
) -> Freshness:
    """Return whether the file still is what was indexed: by size and time, and by content if only its time differs.

    A database from somewhere else (not `adopted`) names paths of another machine, or ones that it wants to be asked
    about; looking at `\\\\host\\share` would contact a host. None of them is touched.
    """
    if uri is None or mtime_ns is None or not adopted:
        return "unverifiable"
    # A document with the uri `path#member` is in that file.
    for place in [uri, *(uri[: mark.start()] for mark in islice(re.finditer("#", uri), 8))]:
        try:
            status = os.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError):
            return "unverifiable"
        if stat.S_ISREG(status.st_mode):
            break
        if place == uri:
            # A device or a pipe could block, or never end.
            return "unverifiable"
    else:
        return "missing"
    if place == uri and status.st_size != size:
        return "changed"
    if modified_ns(status) == mtime_ns:
        return "fresh"
    if place != uri or size is None or size > HASH_AT_MOST or sha256 is None:
        return "changed"
    try:
        with open(uri, "rb") as file:
            is_same = hashlib.sha256(file.read(HASH_AT_MOST + 1)).hexdigest() == sha256
        return "fresh" if is_same else "changed"
    except OSError:
        return "unverifiable"


Signature = tuple[int, int, int, int]


def signature_of(status: os.stat_result) -> Signature:
    """Return numbers of which one changes with a file; the last tells of an edit that kept its time and size."""
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def signature_at(path: Path) -> Signature | None:
    """Return the signature of the file at a path; None where none can be seen."""
    try:
        return signature_of(path.stat())
    except OSError:
        return None


def unicode_path(path: str) -> str:
    """Return a path that can be stored and shown: each byte of it that is not valid Unicode as U+FFFD."""
    return path.encode(errors="surrogateescape").decode(errors="replace")


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Return the path, `~` and `~name` replaced; of a name that nobody here has, it is the file's own."""
    return Path(os.path.expanduser(path))


def make_private_folder(folder: Path) -> None:
    """Make the folder and its parents; those that are made are the owner's alone. Raises OSError."""
    if folder.is_dir():
        return
    if folder.parent != folder:  # as for a drive that is not there
        make_private_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=PRIVATE_FOLDER)


def open_private(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=open_private)`: a new one is its owner's alone."""
    return os.open(path, flags, PRIVATE_FILE)


def make_private_file(path: Path) -> None:
    """Make an empty file that its owner alone reads, unless it is there; SQLite gives its logs the same rights."""
    os.close(open_private(str(path), os.O_RDWR | os.O_CREAT))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file or nothing: a new one is its owner's alone, an old one keeps its mode, a link stays one."""
    path = path.resolve()
    make_private_folder(path.parent)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    beside = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, beside)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object that a file of ours holds; empty where there is none, or none that can be read."""
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        log.warning("%s cannot be read and counts as empty: %s", path, error)
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


@contextmanager
def scratch_folder(parent: Path) -> Generator[Path]:
    """Yield a private folder below `parent` that is removed afterwards; those of killed processes go first.

    A lock on a file in it tells a folder in use from one that was left behind. Raises OSError if it cannot be made.
    """
    for abandoned in abandoned_folders(parent):
        shutil.rmtree(abandoned, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=parent))
    try:
        with (folder / "lock").open("wb") as lock:
            _try_lock(lock.fileno())
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def abandoned_folders(parent: Path) -> list[Path]:
    """Return the scratch folders whose process is gone."""
    abandoned: list[Path] = []
    for folder in parent.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            try:
                with open(folder / "lock", "r+b") as lock:
                    is_left = _try_lock(lock.fileno())
            except FileNotFoundError:
                # One without a lock is younger only while another process is making it.
                is_left = time.time() - folder.stat().st_mtime > 60
            abandoned += [folder] if is_left else []
    return abandoned


def _try_lock(descriptor: int) -> bool:
    # Until the file is closed; false where another process has it, or the disk knows no locks.
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
