"""Late writing: callers never wait, and a file that cannot be written costs the record, never the call."""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from localmcp.storage import write_behind
from localmcp.storage.database import Database, fetch_column
from localmcp.storage.write_behind import WriteBehind


def insert(connection: apsw.Connection, names: list[str]) -> None:
    connection.executemany("insert into collections (name, created_at) values (?, '')", [(name,) for name in names])


def names_in(path: Path) -> list[str]:
    with closing(Database(path)) as database, database.read() as connection:
        return fetch_column(connection, "select name from collections order by id")


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> None:
    """The command line quiets this logger for the process that it runs in."""
    caplog.set_level(logging.WARNING, logger=write_behind.__name__)


@pytest.fixture
def writer(database: Database) -> Iterator[WriteBehind[str]]:
    writer = WriteBehind(database, insert, "names")
    yield writer
    writer.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the writer says; a thread that another test left behind may speak too."""
    records = [each for each in caplog.records if each.name == write_behind.__name__]
    return [each.getMessage() for each in records if each.levelno >= logging.WARNING]


def test_closing_writes_what_waits_and_takes_no_more(database: Database, writer: WriteBehind[str]) -> None:
    database.ensure_writable()
    writer.add("a")
    writer.close()
    writer.add("late")
    writer.close()
    assert names_in(database.path) == ["a"]


def test_no_file_is_made_and_what_waits_is_written_once_there_is_one(
    database: Database, writer: WriteBehind[str]
) -> None:
    writer.add("early")
    writer.flush()
    assert not database.path.exists()
    database.ensure_writable()
    writer.flush()
    assert names_in(database.path) == ["early"]


@pytest.mark.parametrize("kind", ["opened read-only", "from elsewhere", "too new", "another program's"])
def test_a_file_that_may_not_be_changed_stays_byte_for_byte_without_a_word(
    kind: str, database: Database, own_directories: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database.ensure_writable()
    database.close()
    if kind == "from elsewhere":
        for known in (own_directories / "state" / "files").iterdir():
            known.unlink()
    elif kind != "opened read-only":
        pragma = "user_version = 999" if kind == "too new" else "application_id = 1"
        with apsw.Connection(str(database.path)) as connection:
            connection.execute(f"pragma {pragma}")
        connection.close()
    before = database.path.read_bytes()
    writer = WriteBehind(Database(database.path, read_only=kind == "opened read-only"), insert, "names")
    writer.add("a")
    writer.flush()
    writer.add("b")
    writer.close()
    assert database.path.read_bytes() == before
    assert warnings(caplog) == []


def test_a_file_that_stays_locked_to_the_end_costs_the_items_and_one_warning(
    database: Database, writer: WriteBehind[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(write_behind, "BUSY_MILLISECONDS", 1)
    database.ensure_writable()
    holder = apsw.Connection(str(database.path))
    holder.execute("begin immediate")
    for name in "abc":
        writer.add(name)
    writer.close()
    holder.execute("rollback")
    holder.close()
    assert names_in(database.path) == []
    [warning] = warnings(caplog)
    assert warning == f"part of the names is lost: {database.path} is locked by another program."


def test_what_a_full_disk_does_not_take_is_written_once_there_is_room(
    database: Database, writer: WriteBehind[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with database.write() as connection:
        pages = connection.pragma("max_page_count")
        connection.pragma("max_page_count", 1)
    for number in range(500):
        writer.add(f"{number:0100}")
    writer.flush()
    assert names_in(database.path) == []
    with database.write() as connection:
        connection.pragma("max_page_count", pages)
    writer.flush()
    assert len(names_in(database.path)) == 500
    assert warnings(caplog) == []


def test_the_oldest_are_given_up_and_an_odd_batch_does_not_stop_the_next(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(connection: apsw.Connection, names: list[str]) -> None:
        insert(connection, names)
        if "odd" in names:
            raise ValueError("odd")

    monkeypatch.setattr(write_behind, "MOST_WAITING", 3)
    writer = WriteBehind(database, store, "names")
    for name in "abcdef":
        writer.add(name)
    database.ensure_writable()
    writer.flush()
    writer.add("odd")
    writer.flush()
    writer.add("good")
    writer.close()
    assert names_in(database.path) == ["d", "e", "f", "good"]
