"""The file's location: synchronized folders, disks of other machines, free space, and what is beside the file."""

from __future__ import annotations

import glob
import os
import shutil
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from localmcp.doctor.check import Check, fail, ok, warn
from localmcp.files import abandoned_folders
from localmcp.humanize import counted, size

SYNCED = {
    "dropbox": "Dropbox", "onedrive": "OneDrive", "google drive": "Google Drive", "googledrive": "Google Drive",
    "my drive": "Google Drive", "mobile documents": "iCloud Drive", "icloud drive": "iCloud Drive",
    "iclouddrive": "iCloud Drive", "cloudstorage": "a cloud drive", "nextcloud": "Nextcloud", "owncloud": "ownCloud",
    "pcloud drive": "pCloud", "pclouddrive": "pCloud", "box sync": "Box", "proton drive": "Proton Drive",
    "megasync": "MEGA", "syncthing": "Syncthing",
}  # fmt: skip
"""Beginning of a folder's name, folded -> who synchronizes it."""
SYNC_MARKS = {".stfolder": "Syncthing", ".dropbox": "Dropbox", ".sync": "Resilio Sync"}
"""What programs leave in the folders that they synchronize."""
NETWORK_KINDS = frozenset(
    "nfs nfs4 cifs smb smb2 smb3 smbfs afpfs ncpfs afs 9p drvfs davfs webdav fuse.sshfs fuse.rclone fuse.davfs2 "
    "fuse.gvfsd-fuse fuse.s3fs macfuse sshfs ceph glusterfs fuse.glusterfs lustre".split()
)
LEAST_FREE = 100_000_000
LARGE_LOG = 64_000_000
FORGOTTEN_SECONDS = 3600
"""What is unfinished and older belongs to a process that was killed."""
UNFINISHED = ("{name}.v*-backup.part", "{stem}-before-repair-*{suffix}.part")
COPIES = ("{name}.v*-backup", "{name}.before-restore*", "{stem}-backup-*{suffix}", "{stem}-before-repair-*{suffix}")


def check_place(path: Path) -> Iterator[Check]:
    """Check the folder and the disk of the file, without opening it."""
    yield _synced(path)
    yield _network(path)
    yield _free(path)
    if path.is_file():
        yield _log_size(path)
        yield from _beside(path)


def synced_by(path: Path) -> str | None:
    """Return the program that synchronizes the folder that the file is in; None when none seems to."""
    for folder in path.absolute().parents:
        name = folder.name.casefold()
        for beginning, who in SYNCED.items():
            if name == beginning or name.startswith((f"{beginning} ", f"{beginning}-", f"{beginning}~")):
                return who
        if name.startswith("icloud~"):
            return "iCloud Drive"
        for mark, who in SYNC_MARKS.items():
            if (folder / mark).exists() and folder != Path.home():
                return who
    return None


def _synced(path: Path) -> Check:
    who = synced_by(path)
    if who is None:
        return ok("folder", "not in a synchronized folder")
    says = (
        f"{path.parent} is synchronized by {who}, which may copy the file half-written or bring back an old one;"
        " keep it elsewhere and synchronize backups"
    )
    return warn("folder", says, "localmcp config set database PATH")


def _network(path: Path) -> Check:
    kind = file_system(path.parent)
    if kind is None:
        return ok("file system", "the kind of disk is unknown")
    if kind in NETWORK_KINDS:
        says = f"{path.parent} is on another machine's disk ({kind}): SQLite's locks may not hold there"
        return warn("file system", says, "localmcp config set database PATH")
    return ok("file system", f"a disk of this machine ({kind})")


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that is there."""
    return next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)


def file_system(folder: Path) -> str | None:
    """Return the kind of file system, as the system names it; None when it is unknown."""
    import psutil

    place = _existing(folder).resolve()
    if place.drive.startswith("\\\\"):
        return "smb"
    above = [mount for mount in psutil.disk_partitions(all=True) if place.is_relative_to(mount.mountpoint)]
    # Of two mounts at one place the later one hides the other.
    mount = max(reversed(above), key=lambda mount: len(Path(mount.mountpoint).parts), default=None)
    if mount is None:
        return None
    if sys.platform == "win32":
        return "smb" if "remote" in mount.opts.split(",") else "local"
    return mount.fstype


def _free(path: Path) -> Check:
    free = shutil.disk_usage(_existing(path.parent)).free
    used = path.stat().st_size if path.is_file() else 0
    if free < LEAST_FREE:
        return fail("disk", f"only {size(free)} left: writing may fail, though nothing is lost then")
    if free < used + LEAST_FREE:
        return warn("disk", f"{size(free)} left, less than the file has ({size(used)}): no room for a backup")
    return ok("disk", f"{size(free)} left")


def _log_size(path: Path) -> Check:
    beside = path.with_name(f"{path.name}-wal")
    bytes_ = beside.stat().st_size if beside.exists() else 0
    if bytes_ > LARGE_LOG:
        says = f"{size(bytes_)} of changes are not yet in the file itself: somebody has been reading for long"
        return warn("write-ahead log", says, "localmcp doctor --fix")
    return ok("write-ahead log", size(bytes_))


def _beside(path: Path) -> Iterator[Check]:
    scraps = unfinished_beside(path)
    if scraps:
        says = f"unfinished copies were left behind by a program that was killed: {_named(scraps)}"
        yield warn("left behind", says, "localmcp doctor --fix")
    copies = copies_beside(path)
    if copies:
        bytes_ = sum(copy.stat().st_size for copy in copies)
        says = f"{counted(len(copies), 'older copy').replace('copys', 'copies')} beside it, {size(bytes_)}"
        yield ok("backups", f"{says}: {_named(copies)}")


def _named(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths[:3]) + (", …" if len(paths) > 3 else "")


def unfinished_beside(path: Path) -> list[Path]:
    """Parts of copies that nobody works on any more."""
    before = time.time() - FORGOTTEN_SECONDS
    return [file for file in _matching(path, UNFINISHED) if _changed(file) < before] + abandoned_folders(path.parent)


def copies_beside(path: Path) -> list[Path]:
    """Return the backups beside the file."""
    return [file for file in _matching(path, COPIES) if file.is_file() and not file.name.endswith(("-wal", "-shm"))]


def _matching(path: Path, patterns: tuple[str, ...]) -> list[Path]:
    parts = {"name": path.name, "stem": path.stem, "suffix": path.suffix}
    globs = [pattern.format(**{key: glob.escape(part) for key, part in parts.items()}) for pattern in patterns]
    names = sorted(os.listdir(path.parent)) if path.parent.is_dir() else []
    return [path.with_name(name) for name in names if any(fnmatchcase(name, pattern) for pattern in globs)]


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return time.time()
