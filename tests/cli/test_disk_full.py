"""A disk that is full at any moment: a clear error, nothing half done, and the next run completes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from consistency import disagreements
from folders import many_sections, titles, write
from full_disk import full_disk

from localmcp.doctor.backups import back_up, optimize
from localmcp.errors import FileUnavailable
from localmcp.index.collections import choose_collections
from localmcp.index.vector_queue import reembed
from localmcp.models import HashEmbedder
from localmcp.packs.pack import verify
from localmcp.storage.database import Database, fetch_all
from localmcp.workspace import open_workspace

MOMENTS = 8
"""So many moments of each operation are tried; the benchmark disk_full.py tries every one."""


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    for number in range(12):
        write(folder / f"note{number}.md", f"# Note {number}\n\nLanterns and rivers, the {number}th time.\n")
    write(folder / "many.md", many_sections(25))
    return folder


def contents(path: Path) -> list[Any]:
    with Database(path, read_only=True).read() as connection:
        sql = "select uri, text from chunks join sources on sources.id = source_id where trashed_at is null order by 1"
        return fetch_all(connection, f"{sql}, position")


def ingest(path: Path, documents: Path) -> None:
    with open_workspace(path, model="hash:64", log_calls="none") as workspace:
        workspace.library.add_paths([documents])


def change_model(path: Path, _: Path) -> None:
    with closing(Database(path)) as database:
        with database.read() as connection:
            place = choose_collections(connection, ["default"])[0]
        reembed(database, place, HashEmbedder(128))


def make_better(path: Path, _: Path) -> None:
    with closing(Database(path)) as database:
        optimize(database)


OPERATIONS: dict[str, Callable[[Path, Path], None]] = {
    "ingest": ingest, "reembed": change_model, "optimize": make_better
}  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is open cannot be replaced there")
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_meets_a_full_disk_says_so_and_leaves_nothing_half_done(
    name: str, tmp_path: Path, documents: Path
) -> None:
    work, base = OPERATIONS[name], tmp_path / "base.localmcp"
    if name != "ingest":
        ingest(base, documents)
    clean = copied(base, tmp_path / "clean.localmcp")
    with full_disk(tmp_path) as disk:
        work(clean, documents)
    refused = 0
    for at in range(1, disk.writes, max(disk.writes // MOMENTS, 1)):
        path = copied(base, tmp_path / f"full{at}.localmcp")
        with full_disk(tmp_path, at):
            try:
                work(path, documents)
            except FileUnavailable as error:
                assert "disk is full" in error.message
                # What only tidies up may go without.
                refused += 1
        assert not path.exists() or not path.stat().st_size or disagreements(Database(path)) == []
        work(path, documents)
        assert disagreements(Database(path)) == []
        assert contents(path) == contents(clean)
    assert refused


def copied(base: Path, path: Path) -> Path:
    if base.exists():
        shutil.copy(base, path)
    return path


def test_a_backup_on_a_full_disk_leaves_no_file_behind(tmp_path: Path, documents: Path) -> None:
    path = tmp_path / "library.localmcp"
    ingest(path, documents)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    database = Database(path)
    with full_disk(elsewhere, 3):
        with pytest.raises(FileUnavailable, match="disk is full"):
            back_up(database, elsewhere / "copy.localmcp")
        database.close()
    assert list(elsewhere.iterdir()) == []
    assert verify(back_up(database, elsewhere / "copy.localmcp").path).sound
    database.close()


# ---------------------------------------------------------------- a file that is no longer there


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is open cannot be taken away there")
def test_nothing_is_written_into_a_file_that_was_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "disk" / "library.localmcp"
    with open_workspace(path, model="hash:64", log_calls="none") as workspace:
        workspace.library.add_text("A hive has one queen.", "Bees")
        path.parent.rename(tmp_path / "away")
        with pytest.raises(FileUnavailable, match="no longer there"):
            workspace.library.add_text("Prune them in winter.", "Roses")
        (tmp_path / "away").rename(path.parent)
        workspace.library.add_text("Prune them in winter.", "Roses")
        assert titles(workspace.database) == ["Bees", "Roses"]


@pytest.mark.skipif(sys.platform == "win32", reason="a file that is open cannot be replaced there")
def test_nothing_is_written_into_a_file_that_was_replaced(tmp_path: Path) -> None:
    path = tmp_path / "library.localmcp"
    with open_workspace(path, model="hash:64", log_calls="none") as workspace:
        workspace.library.add_text("A hive has one queen.", "Bees")
        copy = back_up(workspace.database).path
        path.rename(tmp_path / "old.localmcp")
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        copy.rename(path)
        with pytest.raises(FileUnavailable, match="replaced by another file"):
            workspace.library.add_text("Prune them in winter.", "Roses")
        workspace.library.add_text("Prune them in winter.", "Roses")
        assert titles(workspace.database) == ["Bees", "Roses"]
