"""What a person browses: documents in pages, passages, files that could not be read."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock, call

import pytest
from folders import write

from localmcp.library.ingest import Library
from localmcp.library.lists import Folder, Inventory
from localmcp.storage.database import Database


@pytest.fixture
def inventory(database: Database) -> Inventory:
    return Inventory(database)


def test_folders_say_what_has_changed_and_is_gone(
    library: Library, inventory: Inventory, database: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    for number in range(3):
        write(folder / "part" / f"n{number}.md", f"# Note {number}\n\nAbout bees and {number}.\n")
    write(folder / "other" / "a.md", "# Other\n\nNothing here changes.\n")
    library.add_paths([folder], wait=False)
    assert inventory.count_waiting("default") == (4, 0, 0)
    write(folder / "part" / "n0.md", "# Note 0\n\nIt is about wasps now.\n")
    (folder / "part" / "n1.md").unlink()
    assert inventory.folders("default") == [
        Folder("other", f"{folder}/other/", 1),
        Folder("part", f"{folder}/part/", 3, changed=1, missing=1),
    ]


def test_documents_that_link_to_one_are_found_by_title_and_by_path(
    library: Library, inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {
        "wiki": "[[Boiler Manual|the manual]]",
        "path": "[how](sub/boiler%20manual.md#reset)",
        "text": "The boiler manual is in the cellar.",
        "else": "[[Boiler]] and [x](boiler.md)",
    }
    for name, text in names.items():
        write(tmp_path / "docs" / f"{name}.md", f"# {name}\n\nSee {text} first.\n")
    write(tmp_path / "docs" / "sub" / "boiler manual.md", "# Boiler manual\n\nPress reset.\n")
    write(tmp_path / "docs" / "web.html", "<h1>web</h1><p>See <a href='sub/boiler manual.md#reset'>this</a>.")
    library.add_paths([tmp_path / "docs"], wait=False)
    item = inventory.find("Boiler manual")
    assert item is not None
    looked_for = Mock(wraps=inventory.find)
    monkeypatch.setattr(inventory, "find", looked_for)
    assert [document.title for document in inventory.linking_to(item.id)] == ["path", "web", "wiki"]
    # The ending is added only where nothing has the name: a name that nothing has costs a look at every document.
    assert call(f"{item.path}.md") not in looked_for.mock_calls
