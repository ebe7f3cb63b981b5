"""The one file: made, shared, refused, and never left half written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from localmcp.errors import FileTooNew, FileTooOld, FileUnavailable, NotOurFile
from localmcp.storage import connections
from localmcp.storage.adoption import adopt
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_one, read_generations
from localmcp.storage.schema import SCHEMA_VERSION


def made(path: Path) -> Path:
    """A finished file with nothing beside it."""
    database = Database(path)
    with database.write() as connection:
        connection.execute("insert into collections (name, created_at) values ('default', '')")
    database.close()
    return path


def tampered(path: Path, sql: str) -> Path:
    """The file after somebody else's program changed it."""
    made(path)
    with apsw.Connection(str(path)) as connection:
        connection.execute(sql)
        connection.pragma("journal_mode", "delete")
    connection.close()
    return path


def test_a_file_that_another_process_has_only_begun_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "begun.localmcp"
    with closing(apsw.Connection(str(path))) as begun:
        begun.pragma("page_size", 8192)
        begun.pragma("journal_mode", "wal")
    assert path.stat().st_size > 0
    database = Database(path)
    with database.write() as connection:
        assert fetch_one(connection, "select count(*) from sources") == 0
    database.close()


def test_a_file_and_its_id_in_the_state_directory_are_made_both_or_neither(
    tmp_path: Path, own_directories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "blocked").touch()
    with pytest.raises(FileUnavailable, match="cannot be made"), Database(tmp_path / "blocked" / "new").read():
        pass
    assert not any((own_directories / "state" / "files").iterdir())
    path = tmp_path / "new.localmcp"
    with monkeypatch.context() as patched:
        patched.setenv("LOCALMCP_STATE_DIR", str(tmp_path / "blocked"))
        with pytest.raises(FileUnavailable, match="blocked"), Database(path).read():
            pass
        assert list(tmp_path.glob("new*")) == []
    assert Database(made(path)).file_id


def test_a_file_from_elsewhere_is_read_only_until_it_is_adopted(tmp_path: Path, own_directories: Path) -> None:
    path = made(tmp_path / "theirs.localmcp")
    for known in (own_directories / "state" / "files").iterdir():
        known.unlink()
    database = Database(path)
    with database.read() as connection:
        assert fetch_one(connection, "select name from collections") == "default"
    assert not database.adopted
    with pytest.raises(FileUnavailable, match="localmcp adopt"), database.write():
        pass

    adopt(path)

    # Also by a program that had it open.
    for opened in (database, Database(path)):
        with opened.write() as connection:
            connection.execute("update collections set name = 'ours'")
        opened.close()


def test_opened_read_only_a_file_is_never_written(tmp_path: Path) -> None:
    path = made(tmp_path / "a.localmcp")
    before = path.read_bytes()
    database = Database(path, read_only=True)
    with database.read() as connection, pytest.raises(apsw.ReadOnlyError):
        connection.execute("delete from collections")
    with pytest.raises(FileUnavailable, match="opened read-only"), database.write():
        pass
    database.close()
    assert path.read_bytes() == before


def killed_in_the_middle(path: Path) -> Path:
    """A copy of a file while a program without a write-ahead log changes it, as a kill leaves it."""
    connection = apsw.Connection(str(path))
    if path.stat().st_size:
        connection.pragma("journal_mode", "delete")
    connection.pragma("cache_size", 1)
    connection.execute("begin immediate; create table half (x)")
    connection.executemany("insert into half values (zeroblob(8000))", [()] * 50)
    copy = path.with_name("killed.localmcp")
    for suffix in ("", "-journal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    connection.close()
    return copy


@pytest.mark.parametrize("begun", ["nothing", "a file"])
def test_what_a_kill_left_outside_of_wal_mode_is_taken_back(tmp_path: Path, begun: str) -> None:
    path = tmp_path / "a.localmcp"
    database = Database(killed_in_the_middle(made(path) if begun == "a file" else path))
    with database.write() as connection:
        assert len(fetch_all(connection, "select * from collections")) == (begun == "a file")
        assert not fetch_all(connection, "select * from sqlite_schema where name = 'half'")
    database.close()


def test_a_journal_that_names_another_file_is_left_alone(tmp_path: Path) -> None:
    path = killed_in_the_middle(made(tmp_path / "a.localmcp"))
    other = tmp_path / "other"
    other.write_text("kept")
    name = os.fsencode(other)
    end = struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7")
    with path.with_name(f"{path.name}-journal").open("ab") as journal:
        journal.write(name + end)
    with pytest.raises(FileUnavailable), Database(path).read():
        pass
    assert other.read_text() == "kept"


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("another program's", NotOurFile, "not a localmcp file"),
        ("no database", NotOurFile, "not a SQLite database"),
        ("newer", FileTooNew, "Update localmcp"),
        ("from before the first release", FileTooOld, "localmcp --db NEW add FOLDER"),
        ("without an id", NotOurFile, "no valid id"),
        ("with two ids", NotOurFile, "no valid id"),
    ],
)
def test_a_file_that_is_not_of_this_program_and_version_is_refused_and_stays_byte_for_byte(
    tmp_path: Path, kind: str, error: type[FileUnavailable], says: str
) -> None:
    path = tmp_path / "a.localmcp"
    if kind == "another program's":
        with sqlite3.connect(path) as theirs:
            theirs.execute("create table bookmarks (url)")
        theirs.close()
    elif kind == "no database":
        path.write_bytes(b"Dear Sir or Madam, " * 1000)
    else:
        tampered(
            path,
            {
                "newer": f"pragma user_version = {SCHEMA_VERSION + 1}",
                "from before the first release": "pragma application_id = 0x6C6D6370",
                "without an id": "delete from file",
                "with two ids": "insert into file values ('0', '')",
            }[kind],
        )
    before, database = path.read_bytes(), Database(path)
    with pytest.raises(error) as caught, database.read():
        pass
    assert says in f"{caught.value} {caught.value.hint}"
    with pytest.raises(error), database.write():
        pass
    assert path.read_bytes() == before


def test_a_folder_or_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, says in (("", "is a folder"), ("pipe", "is a pipe or a device")):
        with pytest.raises(FileUnavailable, match=says), Database(tmp_path / name).read():
            pass


HIDDEN = """
    pragma writable_schema = on;
    create virtual table spy using fts5(text);
    update sqlite_schema set sql = 'create/* ( */virtual table spy using fts5(text)' where name = 'spy';
    pragma writable_schema = reset;
"""


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("create trigger spy after insert on sources begin delete from chunks; end", "trigger"),
        ("create trigger sources after insert on chunks begin delete from sources; end", "trigger"),
        ("create trigger sqlitespy after insert on sources begin delete from chunks; end", "trigger"),
        ("create view spy as select * from sources", "view"),
        ("create virtual table spy using fts5(text)", "table"),
        (HIDDEN, "spy"),
        ("drop index sources_by_time", "sources_by_time"),
        ("alter table sources add column spy text", "sources"),
    ],
)
def test_a_schema_that_differs_from_ours_is_refused(tmp_path: Path, sql: str, named: str) -> None:
    path = tampered(tmp_path / "a.localmcp", sql)
    with pytest.raises(NotOurFile, match=named), Database(path).read():
        pass


IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
AS_A_PERSON = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if IS_ROOT else []
"""The superuser may write everywhere, but for this."""


@pytest.mark.skipif(IS_ROOT and not shutil.which("setpriv"), reason="the superuser may write everywhere")
def test_a_write_protected_folder_can_be_searched(tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    folder.mkdir()
    path = made(folder / "a.localmcp")
    script = """
import sys
from pathlib import Path
from localmcp.errors import FileUnavailable
from localmcp.storage.database import Database, fetch_one
database = Database(Path(sys.argv[1]))
with database.read() as connection:
    print(fetch_one(connection, "select name from collections"))
try:
    with database.write():
        pass
except FileUnavailable as error:
    print(error)
database.close()
"""
    mode = folder.stat().st_mode
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        command = [*AS_A_PERSON, sys.executable, "-c", script, str(path)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        folder.chmod(mode)
    assert ran.stdout.startswith("default\n") and "write-protected" in ran.stdout, ran.stderr


def test_a_process_whose_file_was_upgraded_under_it_stops_writing(database: Database) -> None:
    database.ensure_writable()
    with closing(apsw.Connection(str(database.path))) as other:
        other.pragma("user_version", SCHEMA_VERSION + 1)
    with pytest.raises(FileTooNew, match="Restart"), database.write():
        pass


def test_a_writer_waits_no_longer_than_the_timeout_for_another_program(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_MILLISECONDS", 20)
    database.ensure_writable()
    other = apsw.Connection(str(database.path))
    other.execute("begin immediate")
    with pytest.raises(FileUnavailable, match="locked by another program"), database.write():
        pass
    with database.read() as connection:
        assert fetch_one(connection, "select count(*) from collections") == 0
    other.close()
    with database.write() as connection:
        connection.execute("insert into collections (name, created_at) values ('later', '')")


def test_a_read_is_one_snapshot_and_does_not_wait_for_the_writer_of_its_own_process(database: Database) -> None:
    def look() -> int:
        with database.read() as connection:
            return read_generations(connection).content

    with ThreadPoolExecutor() as threads, database.read() as reader:
        assert read_generations(reader).content == 0
        with database.write() as writer:
            bump_generations(writer, "content", "signs")
            assert threads.submit(look).result(timeout=60) == 0
        assert threads.submit(look).result(timeout=60) == 1
        assert read_generations(reader).content == 0


def test_a_connection_lent_before_the_file_was_replaced_reads_for_nobody_else(tmp_path: Path) -> None:
    path, other = made(tmp_path / "a.localmcp"), made(tmp_path / "b.localmcp")
    database = Database(path)
    before = database.file_id
    with database.read() as connection:
        database.close()
        other.replace(path)
        assert fetch_one(connection, "select id from file") == before
        with database.read():
            pass
    assert {database.file_id for _ in range(3)} == {Database(path).file_id} != {before}
    database.close()


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [("test", "test", 0), ("API", "APIs", 1), ("", "abc", 3), ("è", "e", 1), (None, "a", None), ("a", None, None)],
)
def test_levenshtein_counts_edits_and_null_stays_null(
    database: Database, first: str | None, second: str | None, distance: int | None
) -> None:
    with database.read() as connection:
        assert fetch_one(connection, "select levenshtein(?, ?)", (first, second)) == distance
        assert connections.check_levenshtein(connection)


def test_nothing_in_the_file_can_call_our_functions(database: Database) -> None:
    with database.write() as connection:
        connection.execute("create view spy as select levenshtein(name, 'a') from collections")
        with pytest.raises(apsw.SQLError, match="unsafe use"):
            connection.execute("select * from spy")
        connection.execute("drop view spy")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_a_new_file_its_logs_and_copies_are_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        database = Database(tmp_path / "new" / "deeper" / "library.localmcp")
        with database.write() as connection:
            bump_generations(connection, "content")
        database.copy_to(tmp_path / "copy.localmcp")
        files = [*(tmp_path / "new" / "deeper").iterdir(), tmp_path / "copy.localmcp"]
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert {"library.localmcp", "library.localmcp-wal", "library.localmcp-shm"} <= set(modes)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    database.close()


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on resources")
def test_a_limit_on_the_size_of_files_is_not_called_damage(database: Database) -> None:
    import resource

    database.ensure_writable()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(FileUnavailable, match="cannot be written any further") as caught:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, limits[1]))
            with database.write() as connection:
                connection.execute("insert into vectors values (1, zeroblob(9000000))")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "ulimit" in str(caught.value.hint)
