"""Backup, restore and optimize: copies of a file that is in use, and the way back under the eyes of its users."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command_line import run
from consistency import disagreements
from folders import many_sections, titles, write

from localmcp.doctor.backups import back_up, optimize, restore
from localmcp.errors import FileUnavailable, InvalidInput, NotOurFile
from localmcp.index.search import SearchRequest
from localmcp.storage.database import Database, fetch_column, fetch_one
from localmcp.workspace import Workspace, open_workspace

pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with open_workspace(tmp_path / "library.localmcp", model="hash:64") as workspace:
        workspace.library.add_text("A hive has one queen.", "Bees")
        workspace.library.add_text("Prune them in late winter.", "Roses")
        yield workspace
        assert disagreements(workspace.database) == []


def found(workspace: Workspace, query: str) -> list[str]:
    return [hit.passage.title for hit in workspace.index.search(SearchRequest(query)).hits]


# ---------------------------------------------------------------- backup


def test_a_backup_holds_everything_while_the_file_is_written(workspace: Workspace, tmp_path: Path) -> None:
    workspace.database.path.chmod(0o600)
    with workspace.database.write() as connection:
        connection.execute("update collections set description = 'unfinished'")
        made = back_up(workspace.database, tmp_path / "copy.localmcp")
    with open_workspace(made.path, model="hash:64") as copy:
        assert titles(copy.database) == ["Bees", "Roses"]
        assert found(copy, "queen")[0] == "Bees"
        with copy.database.read() as connection:
            assert fetch_one(connection, "select max(description) from collections") == ""
    assert made.counts["sources"] == 2
    assert made.path.stat().st_mode & 0o777 == 0o600, "nobody reads it who may not read the file"


def test_a_backup_replaces_nothing(workspace: Workspace, tmp_path: Path) -> None:
    there = write(tmp_path / "precious.localmcp", "mine")
    with pytest.raises(InvalidInput, match="is there already"):
        back_up(workspace.database, there)
    with pytest.raises(InvalidInput, match="does not exist"):
        back_up(workspace.database, tmp_path / "none" / "copy.localmcp")
    assert there.read_text() == "mine"


def test_a_backup_is_made_of_a_file_whose_indexes_do_not_agree_and_says_so(
    workspace: Workspace, tmp_path: Path
) -> None:
    with workspace.database.write() as connection:
        signs = connection.execute("select * from signs").fetchall()
        connection.execute("delete from signs")
    made = back_up(workspace.database, tmp_path / "copy.localmcp")
    assert "sign code" in made.problems[0]
    restore(workspace.database.path, made.path)
    with workspace.database.write() as connection:
        connection.executemany("insert into signs values (?, ?, ?, ?, ?, ?, ?)", signs)


# ---------------------------------------------------------------- restore


def test_a_restore_brings_back_what_was_keeps_what_is_and_is_seen_by_whoever_has_the_file_open(
    workspace: Workspace,
) -> None:
    backup = back_up(workspace.database).path
    workspace.library.add_text("Lanterns by the river.", "Lantern")
    workspace.library.remove(["Bees"])
    assert found(workspace, "lanterns river")[0] == "Lantern"
    sql = "select group_concat(title) from (select title from sources where trashed_at is null order by title)"
    with workspace.database.read() as connection:
        before = fetch_one(connection, sql)
        restored = restore(workspace.database.path, backup)
        assert fetch_one(connection, sql) == before == "Lantern,Roses", "who reads meanwhile sees the old content"
    assert titles(workspace.database) == ["Bees", "Roses"]
    assert "Lantern" not in found(workspace, "lanterns river")
    workspace.library.add_text("Lanterns by the sea.", "Sea")
    assert found(workspace, "lanterns sea")[0] == "Sea"
    assert restored.previous is not None and restored.previous.name.endswith(".before-restore")
    assert titles(Database(restored.previous, read_only=True)) == ["Lantern", "Roses"]


def test_what_another_writes_while_a_restore_waits_is_in_the_copy_that_is_kept(workspace: Workspace) -> None:
    backup = back_up(workspace.database).path
    kept: list[Path | None] = []
    with workspace.database.write() as connection:
        thread = threading.Thread(target=lambda: kept.append(restore(workspace.database.path, backup).previous))
        thread.start()
        thread.join(0.5)
        connection.execute("update sources set title = 'Wasps' where title = 'Bees'")
    thread.join()
    assert kept[0] is not None
    assert titles(Database(kept[0], read_only=True)) == ["Roses", "Wasps"]
    assert titles(workspace.database) == ["Bees", "Roses"]


def test_a_damaged_backup_changes_nothing(workspace: Workspace, tmp_path: Path) -> None:
    backup = back_up(workspace.database, tmp_path / "copy.localmcp").path
    data = bytearray(backup.read_bytes())
    data[8192 * 3 : 8192 * 4] = bytes(8192)
    backup.write_bytes(data)
    with pytest.raises(FileUnavailable, match="damaged"):
        restore(workspace.database.path, backup)
    assert titles(workspace.database) == ["Bees", "Roses"]


def test_a_backup_of_another_file_needs_a_word(workspace: Workspace, tmp_path: Path) -> None:
    with open_workspace(tmp_path / "other.localmcp", model="hash:64") as other:
        other.library.add_text("Clay holds water.", "Soil")
        copy = back_up(other.database, tmp_path / "copy.localmcp").path
    with pytest.raises(InvalidInput, match="another file"):
        restore(workspace.database.path, copy)
    with workspace.database.read() as connection:
        segments = fetch_column(connection, "select id from signs")
    restore(workspace.database.path, copy, other=True)
    assert titles(Database(workspace.database.path)) == ["Soil"]
    with workspace.database.read() as connection:
        assert not {*segments} & {*fetch_column(connection, "select id from signs")}, "a running server has read these"
    Database(workspace.database.path).ensure_writable()


def test_a_file_that_cannot_be_read_any_more_is_replaced_and_its_bytes_are_kept(
    workspace: Workspace, tmp_path: Path
) -> None:
    path, backup = workspace.database.path, back_up(workspace.database).path
    workspace.close()
    path.write_bytes(b"garbage" * 1000)
    restored = restore(path, backup)
    assert titles(Database(path)) == ["Bees", "Roses"]
    assert restored.previous is not None and restored.previous.read_bytes() == b"garbage" * 1000
    restore(tmp_path / "new.localmcp", backup)
    assert titles(Database(tmp_path / "new.localmcp")) == ["Bees", "Roses"], "one that is gone is made again"


def test_a_file_whose_tables_somebody_changed_names_what_brings_it_back(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, backup = workspace.database.path, back_up(workspace.database).path
    workspace.close()
    for way in (["adopt", str(path)], ["restore", str(backup), "--yes"]):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("alter table sources add column mine text")
            connection.commit()
        code, _, refused = run(capsys, "--db", str(path), "sources")
        assert code == 4 and "'sources' differs" in refused and "localmcp adopt" in refused
        assert run(capsys, "--db", str(path), *way).code == 0
        assert titles(Database(path)) == ["Bees", "Roses"]
        Database(path).ensure_writable()
    for kept in ("before-restore", "before-adoption"):
        with closing(sqlite3.connect(tmp_path / f"library.localmcp.{kept}")) as connection:
            assert connection.execute("select title, mine from sources").fetchall()[0] == ("Bees", None)


def test_a_database_of_another_program_is_never_overwritten(workspace: Workspace, tmp_path: Path) -> None:
    backup = back_up(workspace.database).path
    theirs = tmp_path / "theirs.db"
    connection = sqlite3.connect(theirs)
    connection.execute("create table precious (a)")
    connection.close()
    before = theirs.read_bytes()
    with pytest.raises(NotOurFile):
        restore(theirs, backup)
    assert theirs.read_bytes() == before


# ---------------------------------------------------------------- optimize


def test_optimizing_gives_back_the_room_of_what_was_deleted_and_loses_nothing(tmp_path: Path) -> None:
    with open_workspace(tmp_path / "library.localmcp", model="hash:256") as workspace:
        workspace.library.add_text(many_sections(120), "Many")
        workspace.library.add_text("A hive has one queen.", "Bees")
        workspace.library.remove(["Many"])
        workspace.library.empty_trash()
        done = optimize(workspace.database)
        assert done["vacuumed"] and done["bytes_after"] < 0.8 * done["bytes_before"]
        assert disagreements(workspace.database) == []
        assert found(workspace, "queen") == ["Bees"]


def test_the_commands_tell_what_they_did(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(workspace.database.path)
    copy = tmp_path / "copy.localmcp"
    assert run(capsys, "--db", path, "backup", str(copy))[1].count(str(copy))
    workspace.library.remove(["Bees"])
    code, _, said = run(capsys, "--db", path, "restore", str(copy))
    assert code == 1 and "--yes" in said
    code, out, said = run(capsys, "--db", path, "restore", "-y", str(copy))
    assert code == 0 and "before-restore" in said
    assert titles(workspace.database) == ["Bees", "Roses"]
    code, out, _ = run(capsys, "--db", path, "--json", "optimize")
    assert code == 0 and '"bytes_after"' in out
    code, _, said = run(capsys, "--db", path, "restore", str(tmp_path / "none"))
    assert code == 1 and "no file" in said
