"""The idle look at the added folders."""

import threading
import time
from pathlib import Path

import pytest
from folders import write

from localmcp.config import Settings
from localmcp.library.jobs import Upkeep
from localmcp.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(Settings(database=tmp_path / "a.localmcp", model="hash"))


def test_an_idle_program_notices_a_new_file(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "notes"
    write(folder / "first.md", "# First\n\nAn old note about anchors.\n")
    workspace.library.add_paths([folder])
    write(folder / "second.md", "# Second\n\nA new note about barometers.\n")
    refreshed = threading.Event()
    refresh = workspace.library.refresh
    monkeypatch.setattr("localmcp.library.jobs.QUIET_SECONDS", 0.0)
    monkeypatch.setattr(workspace.library, "refresh", lambda wait: (refresh(wait=wait), refreshed.set())[0])
    upkeep = Upkeep(workspace.library, 0.05)
    upkeep.start()
    assert refreshed.wait(60)
    upkeep.stop()
    assert workspace.knowledge.search("barometers", mode="keyword")["count"] == 1
    workspace.close()


def test_a_folder_that_vanished_is_left_alone_and_the_thread_goes_on(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "disk"
    for number in range(20):
        write(folder / f"{number}.md", f"Note {number} about lanterns.\n")
    workspace.library.add_paths([folder])
    folder.rename(tmp_path / "unmounted")
    rounds = threading.Semaphore(0)
    refresh = workspace.library.refresh

    def count(wait: bool) -> object:
        rounds.release()
        return refresh(wait=wait)

    monkeypatch.setattr("localmcp.library.jobs.QUIET_SECONDS", 0.0)
    monkeypatch.setattr(workspace.library, "refresh", count)
    upkeep = Upkeep(workspace.library, 0.05)
    upkeep.start()
    assert rounds.acquire(timeout=60) and rounds.acquire(timeout=60)
    upkeep.stop()
    assert workspace.knowledge.get_stats()["totalSources"] == 20
    workspace.close()


def test_what_was_added_without_waiting_is_found_by_meaning_soon(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = write(tmp_path / "note.md", "A note about anchors.\n")
    assert workspace.library.add_paths([note], wait=False).waiting == 1
    assert workspace.knowledge.get_stats()["chunksWithoutEmbeddings"] == 1
    monkeypatch.setattr("localmcp.library.jobs.POLL_SECONDS", 0.02)
    upkeep = Upkeep(workspace.library, 0)
    upkeep.start()
    deadline = time.monotonic() + 60
    while workspace.knowledge.get_stats()["chunksWithoutEmbeddings"] and time.monotonic() < deadline:
        time.sleep(0.02)
    upkeep.stop()
    assert workspace.knowledge.search("anchors", mode="semantic")["count"] == 1
    workspace.close()


def test_calls_that_keep_the_folders_waiting_do_not_keep_the_meaning_from_being_read(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = write(tmp_path / "note.md", "A note about anchors.\n")
    workspace.library.add_paths([note], wait=False)
    monkeypatch.setattr("localmcp.library.jobs.LONGEST_PAUSE", 0.1)
    upkeep = Upkeep(workspace.library, 0.05)
    upkeep.note_call(None)  # type: ignore[arg-type]
    upkeep.start()
    deadline = time.monotonic() + 60
    while workspace.knowledge.get_stats()["chunksWithoutEmbeddings"] and time.monotonic() < deadline:
        upkeep.note_call(None)  # type: ignore[arg-type]
        time.sleep(0.02)
    upkeep.stop()
    assert workspace.knowledge.get_stats()["chunksWithoutEmbeddings"] == 0
    workspace.close()
