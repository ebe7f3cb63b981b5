"""Files as a stranger may give them end soon, refused or clean, and what was taken over can be used."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import given_files
import pytest

from localmcp.config import Settings, state_directory
from localmcp.doctor.backups import restore
from localmcp.errors import FileUnavailable, LocalMCPError
from localmcp.packs.pack import verify
from localmcp.storage.adoption import adopt
from localmcp.storage.database import Database, fetch_column
from localmcp.storage.schema import expected_schema, schema_of
from localmcp.tools import Scope
from localmcp.workspace import Workspace

REFUSED = {
    "a table without pages", "a table of ours less", "a view instead of a table", "another encoding",
    "the highest id", "another program's id", "a later version", "an id that is a path", "two ids",
    "the log of a change to several files",
}  # fmt: skip
"""What adopt, merge and restore refuse; of all others the rows are taken over."""
ROWS_ALONE = {
    "statistics that lie", "rows of other types", "another encoding", "the highest ids", "the highest id",
    "the highest generations", "sign codes of another length",
}  # fmt: skip
"""What is in the rows, and may be mounted; all else is no file of ours."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return given_files.make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(Settings(database=tmp_path / "own.localmcp", model="hash")) as workspace:
        workspace.library.add_text("Our own words.", "Ours")
        yield workspace


@pytest.mark.parametrize("name", given_files.SQL)
def test_a_given_file_is_refused_or_taken_over_clean(
    base: Path, ours: Workspace, tmp_path: Path, request: pytest.FixtureRequest, name: str
) -> None:
    if "endless" not in name:
        request.getfixturevalue("in_process")
    given = given_files.make_given(base, tmp_path / "given.localmcp", name)
    before, restored = given.read_bytes(), tmp_path / "restored.localmcp"
    if name not in ROWS_ALONE:
        assert not verify(given).sound
        with pytest.raises(LocalMCPError):
            ours.mounts.mount(given)
    elif name not in REFUSED:
        ours.mounts.mount(given)
        assert ours.registry.call("search", {"query": "a hive has one queen"}).value["results"]
        ours.mounts.unmount("given")
    ways: dict[Path, Callable[[], object]] = {given: lambda: adopt(given)}
    often = [*given_files.SQL].index(name) % 5 == 0
    if often:
        # All copy rows in one way; the campaign in tests/benchmarks tries each with every kind.
        merging = ours.merging(partial(ours.registry.call, scope=Scope(caller="cli")))
        ways = {ours.database.path: lambda: merging.run(given), restored: lambda: restore(restored, given), **ways}
    for path, way in ways.items():
        if name in REFUSED:
            with pytest.raises(LocalMCPError):
                way()
            continue
        way()
        with closing(apsw.Connection(str(path))) as connection:
            assert schema_of(connection) == expected_schema()
            titles = fetch_column(connection, "select title from sources order by title")
            assert [title for title in titles if title != "Ours"] == [f"Bees {number}" for number in range(5)]
        if often:
            given_files.use(path)
    kept = given if name in REFUSED else given.with_name("given.localmcp.before-adoption")
    assert kept.read_bytes() == before


def test_a_file_of_this_machine_that_came_back_endless_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmcp.storage.adoption.LEAST_SECONDS", 1.0)
    path = tmp_path / "main.localmcp"
    with Workspace(Settings(database=path, model="hash")) as workspace:
        workspace.library.add_text("A hive has one queen.", "Bees")
    with closing(apsw.Connection(str(path))) as connection:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute(given_files.SQL["an index of an endless expression"])
    assert ["takes too long" in problem for problem in verify(path).problems] == [True]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(
    "step",
    ["schema.adopt_file", "adoption.keep_bytes", "adoption.truncate_log", "adoption.replace_file", "Path.replace"],
)
def test_an_adoption_that_was_killed_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "given.localmcp"
    with Workspace(Settings(database=tmp_path / "theirs.localmcp", model="hash")) as workspace:
        workspace.library.add_text("A hive has one queen.", "Bees")
        with workspace.database.read():
            # Its last words are in the log alone.
            workspace.library.add_text("Wasps have one too.", "Wasps")
            for ending in ("", "-wal"):
                (tmp_path / f"given.localmcp{ending}").write_bytes(
                    Path(f"{workspace.database.path}{ending}").read_bytes()
                )
    for known in (state_directory() / "files").iterdir():
        known.unlink()

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        if step == "Path.replace":
            place = Path.replace
            patched.setattr(Path, "replace", lambda self, to: kill() if self.name == "copy" else place(self, to))
        else:
            patched.setattr(f"localmcp.storage.{step}", kill)
        adopt(path)
    adopt(path)
    with closing(Database(path)) as database, database.read() as connection:
        assert database.is_writable
        assert fetch_column(connection, "select title from sources order by title") == ["Bees", "Wasps"]


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes in folders")
@pytest.mark.parametrize("companion", ["pipe", "link", "endless journal"])
def test_what_lies_beside_a_given_file_is_neither_waited_for_nor_loaded(
    base: Path, ours: Workspace, tmp_path: Path, companion: str
) -> None:
    given = given_files.make_given(base, tmp_path / "given.localmcp", "indexes")
    beside = tmp_path / "given.localmcp-journal"
    if companion == "pipe":
        os.mkfifo(beside)
    elif companion == "link":
        beside.symlink_to("/dev/zero")
    else:
        beside.touch()
        os.truncate(beside, 50_000_000_000)
    assert "none that SQLite makes" in verify(given).problems[0]
    ways: list[Callable[[], object]] = [
        lambda: ours.mounts.mount(given),
        lambda: ours.merging(partial(ours.registry.call, scope=Scope(caller="cli"))).run(given),
        lambda: adopt(given),
        lambda: restore(tmp_path / "restored.localmcp", given),
    ]
    for way in ways:
        with pytest.raises(FileUnavailable, match="none that SQLite makes"):
            way()
