"""The file's location: synchronized folders, free space, and what is beside the file."""

from __future__ import annotations

import glob
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from localmcp.doctor.check import Check, fail, ok, warn
from localmcp.files import abandoned_folders
from localmcp.humanize import size

SYNCED = {
    "dropbox": "Dropbox", "onedrive": "OneDrive", "google drive": "Google Drive", "googledrive": "Google Drive",
    "my drive": "Google Drive", "mobile documents": "iCloud Drive", "icloud drive": "iCloud Drive",
    "iclouddrive": "iCloud Drive", "icloud~": "iCloud Drive", "cloudstorage": "a cloud drive",
    "nextcloud": "Nextcloud", "owncloud": "ownCloud", "pcloud drive": "pCloud", "box sync": "Box",
    "proton drive": "Proton Drive", "megasync": "MEGA", "syncthing": "Syncthing",
}  # fmt: skip
"""Beginning of a folder's name, folded -> who synchronizes it."""
SYNC_MARKS = {".stfolder": "Syncthing", ".dropbox": "Dropbox", ".sync": "Resilio Sync"}
"""What programs leave in the folders that they synchronize."""
LEAST_FREE = 100_000_000
LARGE_LOG = 64_000_000
FORGOTTEN_SECONDS = 3600
"""What is unfinished and older belongs to a process that was killed."""


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
    if path.is_file():
        yield from _beside(path)


def synced_by(path: Path) -> str | None:
    """Return the program that synchronizes the folder that the file is in; None when none seems to."""
    for folder in path.absolute().parents:
        name = folder.name.casefold()
        for beginning, who in SYNCED.items():
            if name == beginning or name.startswith((f"{beginning} ", f"{beginning}-", f"{beginning.rstrip('~')}~")):
                return who
        for mark, who in SYNC_MARKS.items():
            if (folder / mark).exists() and folder != Path.home():
                return who
    return None


def _beside(path: Path) -> Iterator[Check]:
    log = path.with_name(f"{path.name}-wal")
    bytes_ = log.stat().st_size if log.exists() else 0
    if bytes_ > LARGE_LOG:
        says = f"{size(bytes_)} of changes are not yet in the file itself: somebody has been reading for long"
        yield warn("left behind", says, "localmcp doctor --fix")
    if scraps := unfinished_beside(path):
        names = ", ".join(scrap.name for scrap in scraps[:3]) + (", …" if len(scraps) > 3 else "")
        says = f"unfinished copies were left behind by a program that was killed: {names}"
        yield warn("left behind", says, "localmcp doctor --fix")


def unfinished_beside(path: Path) -> list[Path]:
    """Parts of copies that nobody works on any more."""
    before = time.time() - FORGOTTEN_SECONDS
    parts = path.parent.glob(f"{glob.escape(path.stem)}-before-repair-*{glob.escape(path.suffix)}.part")
    return [part for part in sorted(parts) if part.stat().st_mtime < before] + abandoned_folders(path.parent)
