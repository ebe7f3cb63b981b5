"""A disk that is full from the n-th write on, for tests and benchmarks: SQLite on its own file system, but counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

NAME = "full-disk"


class FullDisk:
    """Counts what is written below a folder; from write `at` on, every write there is answered with FULL."""

    def __init__(self, folder: Path, at: int | None = None) -> None:
        self.folder = str(folder)
        self.at = at
        self.writes = 0

    def write(self, name: str) -> None:
        if not name.startswith(self.folder):
            return
        self.writes += 1
        if self.at is not None and self.writes >= self.at:
            raise apsw.FullError("the disk is full")


@contextmanager
def full_disk(folder: Path, at: int | None = None) -> Iterator[FullDisk]:
    """Every database opened within is on such a disk; None only counts."""
    disk = FullDisk(folder, at)
    system = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name: Any, flags: list[int]) -> None:
            if flags[0] & apsw.SQLITE_OPEN_READONLY:
                # Closing a read-only file tries a lock that fails, which SQLite overlooks, but not through apsw.
                flags[0] ^= apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_READWRITE
            super().__init__(system, name, flags)
            self.name = name.filename() if isinstance(name, apsw.URIFilename) else str(name or "")

        def xWrite(self, data: Any, offset: int) -> None:
            disk.write(self.name)
            super().xWrite(data, offset)

    class System(apsw.VFS):
        def __init__(self) -> None:
            super().__init__(NAME, system)

        def xOpen(self, name: Any, flags: list[int]) -> File:
            return File(name, flags)

    kept = System()
    apsw.set_default_vfs(NAME)
    try:
        yield disk
    finally:
        apsw.set_default_vfs(system)
        kept.unregister()
