"""Long work: jobs that go on after their call, what other processes see of it and can stop, and the idle upkeep."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from folders import write

from localmcp.config import Settings
from localmcp.errors import AccessDenied, Interrupted, LocalMCPError, NotFound
from localmcp.library import reading
from localmcp.library.ingest import Library
from localmcp.library.jobs import Job, Jobs, Progress, Upkeep, Work, end_run, work_on
from localmcp.library.lists import Inventory
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.storage.database import Database
from localmcp.tools import Json, Scope, use_scope
from localmcp.workspace import Workspace


def test_what_the_work_raises_reaches_the_caller() -> None:
    def denied(job: Job) -> Json:
        raise AccessDenied("Not there.")

    def broken(job: Job) -> Json:
        raise ZeroDivisionError("oops")

    with pytest.raises(AccessDenied, match="Not there"):
        Jobs().run("denied", denied)
    with pytest.raises(LocalMCPError, match="broken failed: ZeroDivisionError: oops"):
        Jobs().run("broken", broken)


def test_a_job_on_what_one_may_not_see_does_not_exist() -> None:
    jobs = Jobs()
    job = jobs.run("quick", lambda job: {})
    with use_scope(Scope(collections=frozenset(["default"]))):
        with pytest.raises(NotFound):
            jobs.find(job.id)
        own = jobs.run("quick", lambda job: {})
        assert jobs.find(own.id) is own
    assert jobs.find(own.id) is own
    with pytest.raises(NotFound, match="No job 'x'"):
        jobs.find("x")


# ---------------------------------------------------------------- what any process does with the file


def seen(database: Database) -> list[Work]:
    """What another connection to the file sees."""
    other = Database(database.path)
    with other.read() as connection:
        works = work_on(connection)
    other.close()
    return works


def make(database: Database) -> Library:
    return Library(database, LazyEmbedder(lambda: HashEmbedder(64)), Settings())


def many(folder: Path, files: int) -> Path:
    for number in range(files):
        write(folder / "part" / f"n{number}.md", f"# Note {number}\n\nAbout bees and {number}.\n")
    return folder


def test_a_run_is_seen_with_its_progress_while_it_goes_on_and_not_after_it(database: Database, tmp_path: Path) -> None:
    works: list[Work] = []

    def look(progress: Progress) -> None:
        works.extend(seen(database))

    make(database).add_paths([many(tmp_path / "docs", 20)], progress=look, wait=False)
    assert {(work.kind, work.total, work.is_ours) for work in works} == {("words", 20, True)}
    assert max(work.done for work in works) <= 20
    assert seen(database) == []


def test_a_run_stops_when_another_process_says_so_and_keeps_what_it_has(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each file is a transaction.
    monkeypatch.setattr(reading, "FIRST_SECONDS", -1.0)
    monkeypatch.setattr(reading, "GROUP_SECONDS", -1.0)

    def stop_it(progress: Progress) -> None:
        for work in seen(database):
            end_run(database, work.job_id)

    folder = many(tmp_path / "docs", 30)
    with pytest.raises(Interrupted, match="another window"):
        make(database).add_paths([folder], progress=stop_it, wait=False)
    kept = Inventory(database).documents("default", limit=1)[1]
    assert 0 < kept < 30
    assert make(database).add_paths([folder], wait=False).indexed == 30 - kept


# ---------------------------------------------------------------- upkeep


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(Settings(database=tmp_path / "a.localmcp", model="hash"))


def test_an_idle_program_notices_a_new_file_and_leaves_a_folder_alone_that_vanished(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, disk = tmp_path / "notes", many(tmp_path / "disk", 20)
    write(notes / "first.md", "# First\n\nAn old note about anchors.\n")
    workspace.library.add_paths([notes, disk])
    disk.rename(tmp_path / "unmounted")
    rounds = threading.Semaphore(0)
    refresh = workspace.library.refresh

    def count(wait: bool) -> object:
        try:
            return refresh(wait=wait)
        finally:
            rounds.release()

    monkeypatch.setattr("localmcp.library.jobs.QUIET_SECONDS", 0.0)
    monkeypatch.setattr(workspace.library, "refresh", count)
    upkeep = Upkeep(workspace.library, workspace.registry, 0.05)
    upkeep.start()
    assert rounds.acquire(timeout=60)
    write(notes / "second.md", "# Second\n\nA new note about barometers.\n")
    assert all(rounds.acquire(timeout=60) for _ in range(3))
    upkeep.stop()
    assert workspace.knowledge.search("barometers", mode="keyword")["count"] == 1
    assert workspace.knowledge.get_stats()["totalSources"] == 22
    workspace.close()


@pytest.mark.parametrize("are_calls_coming", [False, True])
def test_what_was_added_without_waiting_is_found_by_meaning_soon_also_while_calls_keep_the_folders_waiting(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_calls_coming: bool
) -> None:
    note = write(tmp_path / "note.md", "A note about anchors.\n")
    assert workspace.library.add_paths([note], wait=False).waiting == 1
    monkeypatch.setattr("localmcp.library.jobs.POLL_SECONDS", 0.02)
    monkeypatch.setattr("localmcp.library.jobs.LONGEST_PAUSE", 0.1)
    upkeep = Upkeep(workspace.library, workspace.registry, 0.05 if are_calls_coming else 0)
    upkeep.start()
    deadline = time.monotonic() + 60
    while workspace.knowledge.get_stats()["chunksWithoutEmbeddings"] and time.monotonic() < deadline:
        if are_calls_coming:
            workspace.registry.last_call = time.monotonic()
        time.sleep(0.02)
    upkeep.stop()
    assert workspace.knowledge.get_stats()["chunksWithoutEmbeddings"] == 0
    assert workspace.knowledge.search("anchors", mode="semantic")["count"] == 1
    workspace.close()
