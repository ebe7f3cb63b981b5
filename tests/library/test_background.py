"""Work behind a file as other processes see it: how far it is, who does it, and stopping it; what still waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from folders import write

from localmcp.config import Settings
from localmcp.errors import Interrupted
from localmcp.index.vector_queue import Lease
from localmcp.library import reading
from localmcp.library.ingest import Library
from localmcp.library.inventory import Folder, Inventory, documents_linking_to
from localmcp.library.jobs import Progress, Work, stop, work_on
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.storage.database import Database


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
            stop(database, work.job_id)

    folder = many(tmp_path / "docs", 30)
    with pytest.raises(Interrupted, match="another window"):
        make(database).add_paths([folder], progress=stop_it, wait=False)
    kept = Inventory(database).documents("default", limit=1).total
    assert 0 < kept < 30
    assert make(database).add_paths([folder], wait=False).indexed == 30 - kept


def test_vectors_that_are_being_made_are_seen_with_what_is_left(database: Database, tmp_path: Path) -> None:
    make(database).add_paths([many(tmp_path / "docs", 3)], wait=False)
    assert seen(database) == []
    lease = Lease()
    with database.write() as connection:
        assert lease.take(connection)
    (work,) = seen(database)
    assert (work.kind, work.passages, work.process) == ("meaning", 3, os.getpid())


def test_folders_say_what_has_changed_and_is_gone(database: Database, tmp_path: Path) -> None:
    folder = many(tmp_path / "docs", 3)
    write(folder / "other" / "a.md", "# Other\n\nNothing here changes.\n")
    library = make(database)
    library.add_paths([folder], wait=False)
    inventory = Inventory(database)
    assert inventory.count_waiting("default") == (4, 0)
    write(folder / "part" / "n0.md", "# Note 0\n\nIt is about wasps now.\n")
    (folder / "part" / "n1.md").unlink()
    assert inventory.folders("default") == [
        Folder("other", f"{folder}/other/", 1),
        Folder("part", f"{folder}/part/", 3, changed=1, missing=1),
    ]


def test_documents_that_link_to_one_are_found_by_title_and_by_path(database: Database, tmp_path: Path) -> None:
    names = {
        "wiki": "[[Boiler Manual|the manual]]",
        "path": "[how](sub/boiler%20manual.md#reset)",
        "text": "The boiler manual is in the cellar.",
        "else": "[[Boiler]] and [x](boiler.md)",
    }
    for name, text in names.items():
        write(tmp_path / "docs" / f"{name}.md", f"# {name}\n\nSee {text} first.\n")
    write(tmp_path / "docs" / "sub" / "boiler manual.md", "# Boiler manual\n\nPress reset.\n")
    make(database).add_paths([tmp_path / "docs"], wait=False)
    item = Inventory(database).find("Boiler manual")
    assert item is not None
    assert [document.title for document in documents_linking_to(database, item.id)] == ["path", "wiki"]
