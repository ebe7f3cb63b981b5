"""Files from elsewhere: their content is taken over, what would act on this machine is not."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from folders import write

from localmcp.cli.program import execute
from localmcp.cli.session import Session
from localmcp.config import Settings
from localmcp.doctor.backups import back_up, restore
from localmcp.errors import FileUnavailable
from localmcp.index.collections import visible_collections
from localmcp.index.search import SearchRequest
from localmcp.library.ledger import waiting_pages
from localmcp.storage.adoption import Dropped, adopt
from localmcp.storage.database import Database, fetch_column, fetch_one
from localmcp.workspace import Workspace


@pytest.fixture(scope="module")
def strangers_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stranger's file: a document, an admin key, a watched folder."""
    folder = tmp_path_factory.mktemp("stranger")
    write(folder / "ssh" / "key.md", "# Secret\n\nA private key.\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALMCP_STATE_DIR", str(folder / "state"))
        with Workspace(Settings(database=folder / "theirs.localmcp", model="hash")) as workspace:
            workspace.library.add_text("A hive has one queen.", "Bees")
            workspace.library.add_paths([folder / "ssh"])
            workspace.api_keys.create(name="back door", scopes=("admin",))
    return folder / "theirs.localmcp"


@pytest.fixture
def trojan(strangers_file: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(strangers_file, tmp_path / "theirs.localmcp"))


def powers(path: Path) -> Dropped:
    with closing(Database(path)) as database, database.read() as connection:
        tables = ("api_keys", "roots")
        return Dropped(*(fetch_one(connection, f"select count(*) from {table}") for table in tables))


def test_an_adopted_file_keeps_its_documents_and_loses_its_powers(trojan: Path) -> None:
    assert adopt(trojan) == Dropped(keys=1, watched_folders=1)
    assert powers(trojan) == Dropped()
    with Workspace(Settings(database=trojan, model="hash")) as workspace:
        assert [hit.passage.title for hit in workspace.index.search(SearchRequest("hive queen")).hits][0] == "Bees"
        assert workspace.library.refresh().indexed == 0


def test_no_scan_that_an_adopted_file_names_waits_to_be_read(trojan: Path, tmp_path: Path) -> None:
    with closing(apsw.Connection(str(trojan))) as connection:
        connection.execute(
            """
            insert into ledger (path, collection_id, status, reason, pages, seen_at)
                select ?, id, 'skipped', 'waits for text recognition: 1 page', 1, '2026' from collections limit 1
            """,
            (str(tmp_path / "passport.png"),),
        )
    adopt(trojan)
    with closing(Database(trojan)) as database, database.read() as connection:
        collections = [collection.id for collection in visible_collections(connection)]
        assert waiting_pages(connection, collections) == 0


def test_each_power_is_kept_on_request_and_when_a_file_of_this_machine_is_adopted_again(trojan: Path) -> None:
    assert adopt(trojan, keys=True, watched_folders=True) == Dropped()
    assert adopt(trojan) == Dropped()
    assert powers(trojan) == Dropped(keys=1, watched_folders=1)


# ---------------------------------------------------------------- what is not ours


def test_a_given_file_with_a_hot_journal_is_only_read(trojan: Path) -> None:
    with closing(apsw.Connection(str(trojan))) as connection:
        connection.pragma("journal_mode", "delete")
        connection.pragma("cache_size", 1)
        connection.execute("begin immediate; update sources set title = 'half'; create table half (x)")
        connection.executemany("insert into half values (zeroblob(8000))", [()] * 50)
        given = trojan.with_name("given.localmcp")
        for ending in ("", "-journal"):
            shutil.copy(f"{trojan}{ending}", f"{given}{ending}")
    parts = [given.read_bytes(), given.with_name("given.localmcp-journal").read_bytes()]
    adopt(given)
    with closing(Database(given, read_only=True)) as database, database.read() as connection:
        assert "Bees" in fetch_column(connection, "select title from sources")
    kept = given.with_name("given.localmcp.before-adoption")
    assert [kept.read_bytes(), kept.with_name(f"{kept.name}-journal").read_bytes()] == parts


def test_rows_that_point_at_nothing_are_refused(trojan: Path) -> None:
    with closing(apsw.Connection(str(trojan))) as connection:
        connection.execute("pragma foreign_keys = off; delete from sources")
    with pytest.raises(FileUnavailable, match="point at something"):
        adopt(trojan)


# ---------------------------------------------------------------- backups, and the command line


@pytest.mark.parametrize("present", [False, True])
def test_a_restored_backup_of_a_stranger_loses_its_powers_and_ones_own_comes_back_whole(
    trojan: Path, tmp_path: Path, present: bool
) -> None:
    mine = tmp_path / "mine.localmcp"
    with Workspace(Settings(database=mine, model="hash")) as workspace:
        workspace.api_keys.create(name="mine", scopes=("admin",))
        made = back_up(workspace.database, tmp_path / "copy.localmcp")
    if not present:
        mine.unlink()
        assert restore(mine, made.path).dropped == Dropped()
        assert powers(mine).keys == 1
    assert restore(mine, trojan, other=True).dropped == Dropped(keys=1, watched_folders=1)
    assert powers(mine) == Dropped()
    assert powers(trojan).keys == 1


def test_the_command_line_says_what_was_dropped_and_how_to_keep_it(
    trojan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(Session(), ["adopt", str(trojan), "--keep-keys"]) == 0
    captured = capsys.readouterr().out
    assert "Not taken over: 1 watched folder (--keep-watched-folders)." in captured
