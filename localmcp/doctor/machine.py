"""Checks of this machine: Python and SQLite, and where the file lies."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

from localmcp import __version__
from localmcp.config import Settings
from localmcp.doctor.check import Check, fail, ok, warn
from localmcp.files import abandoned_folders
from localmcp.humanize import size
from localmcp.storage.connections import check_levenshtein, connect, has_sqlite_vec

SYNCED = {
    "dropbox": "Dropbox", "onedrive": "OneDrive", "google drive": "Google Drive", "googledrive": "Google Drive",
    "my drive": "Google Drive", "mobile documents": "iCloud Drive", "icloud drive": "iCloud Drive",
    "iclouddrive": "iCloud Drive", "icloud~": "iCloud Drive", "cloudstorage": "a cloud drive",
    "nextcloud": "Nextcloud", "owncloud": "ownCloud", "pcloud drive": "pCloud", "box sync": "Box",
    "proton drive": "Proton Drive", "megasync": "MEGA", "syncthing": "Syncthing",
}  # fmt: skip
"""Beginning of a folder's name, folded -> who synchronizes it."""
LEAST_FREE = 100_000_000
LARGE_LOG = 64_000_000


def check_installation(settings: Settings | None) -> Iterator[Check]:
    """Check Python, SQLite, and what SQLite is extended by."""
    if settings is not None and settings.milvus_address and importlib.util.find_spec("pymilvus") is None:
        yield fail("python", "not installed: pymilvus", "pip install localmcp[milvus]")
    else:
        system = f"{platform.system()} {platform.machine()}"
        yield ok("python", f"localmcp {__version__}, Python {platform.python_version()}, {system}")
    version = apsw.sqlite_lib_version()
    with closing(connect("")) as connection:
        if not check_levenshtein(connection):
            yield warn("sqlite", f"SQLite {version}; its levenshtein function is wrong: quick starts use fallback")
        elif not has_sqlite_vec(connection):
            says = "sqlite-vec is not loaded (there is no wheel for Windows arm64 and musl); numpy compares the vectors"
            yield warn("sqlite", says, "pip install --force-reinstall 'sqlite-vec>=0.1.9,<0.1.10'")
        else:
            yield ok("sqlite", f"SQLite {version}, brought by apsw, with sqlite-vec")


def check_place(path: Path) -> Iterator[Check]:
    """Check the folder and the disk of the file, without opening it."""
    if who := synced_by(path):
        says = f"{path.parent} is synchronized by {who}, which may copy the file half-written or bring back an old one"
        yield warn("folder", f"{says}; keep it elsewhere and synchronize backups", "localmcp config set database PATH")
    else:
        yield ok("folder", "not in a synchronized folder")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    free, used = shutil.disk_usage(folder).free, path.stat().st_size if path.is_file() else 0
    if free < LEAST_FREE:
        yield fail("disk", f"only {size(free)} left: writing may fail, though nothing is lost then")
    elif free < used + LEAST_FREE:
        yield warn("disk", f"{size(free)} left, less than the file has ({size(used)}): no room for a backup")
    else:
        yield ok("disk", f"{size(free)} left")
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and (bytes_ := log.stat().st_size) > LARGE_LOG:
        says = f"{size(bytes_)} of changes are not yet in the file itself: somebody has been reading for long"
        yield warn("left behind", says, "localmcp doctor --fix")
    if scraps := abandoned_folders(path.parent):
        says = "unfinished copies were left behind by a program that was killed"
        yield warn("left behind", f"{says}: {', '.join(scrap.name for scrap in scraps[:3])}", "localmcp doctor --fix")


def synced_by(path: Path) -> str | None:
    """Return the program that synchronizes the folder that the file is in; None when none seems to."""
    for folder in path.absolute().parents:
        name = folder.name.casefold()
        for beginning, who in SYNCED.items():
            if name == beginning or name.startswith((f"{beginning} ", f"{beginning}-", f"{beginning.rstrip('~')}~")):
                return who
    return None
