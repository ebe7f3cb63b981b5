"""The pane Library, by its keys, on a real file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import write
from tui_driver import House, make_library, open_house, settings_of

from localmcp.config import Settings
from localmcp.errors import NeedsConfirmation
from localmcp.tui.library_tree import PAGE, WINDOW, More
from localmcp.workspace import Workspace


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(make_library(tmp_path)) as house:
        await house.go("library")
        yield house


def nodes(tree: Any) -> Iterator[Any]:
    waiting = [tree.root]
    while waiting:
        node = waiting.pop(0)
        waiting = [*node.children, *waiting]
        yield node


def titles(house: House) -> list[str]:
    return [node.data.title for node in nodes(house.pane.tree_view) if hasattr(node.data, "title")]


async def test_collections_open_into_documents_and_documents_into_passages(house: House) -> None:
    assert [node.data.name for node in house.pane.tree_view.root.children] == ["default", "garden"]
    await house.press("enter")
    assert titles(house) == ["Bees", "Kafka lag", "Restore a backup", "soil"]
    await house.press("down", "enter", "down")
    assert "A hive has one queen." in house.text()


async def test_the_state_of_a_document_is_shown_with_its_reason(house: House, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "bees.md", "# Bees\n\nChanged.\n")
    await house.press("enter", "down")
    assert "the file has changed since" in house.text()


async def test_files_that_could_not_be_read_stand_first(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    (tmp_path / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    with Workspace(settings_of(tmp_path)) as workspace:
        workspace.library.refresh()
    async with open_house(file) as house:
        await house.go("library")
        await house.press("enter", "down")
        assert "1 file could not be read" in house.text()
        await house.press("enter", "down")
        assert "✗ " in house.text()
        assert "broken.pdf" in house.text()


async def test_a_folder_is_added_in_the_background(house: House, tmp_path: Path) -> None:
    write(tmp_path / "new" / "zebra.md", "# Zebra\n\nStripes.\n")
    await house.press("a")
    await house.pilot.press(*str(tmp_path / "nowhere"), "enter")
    assert "There is no" in house.text()
    house.app.screen.query_one("Input").value = str(tmp_path / "new")  # type: ignore[attr-defined]
    await house.press("enter")
    await house.until(lambda: not house.app.desk.chore and "6 documents" in house.text(), "the new document")


async def test_refresh_finds_new_files(house: House, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "new.md", "# New\n\nWords.\n")
    await house.press("r")
    await house.until(lambda: "6 documents" in house.text(), "the new document")


@pytest.mark.parametrize("add_instead", [False, True])
async def test_when_many_files_are_gone_it_is_asked_before_they_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, add_instead: bool
) -> None:
    monkeypatch.setattr("localmcp.tui.dialogs.UNASKED_SECONDS", 0)
    file, many = make_library(tmp_path), tmp_path / "many"
    for number in range(15):
        write(many / f"{number}.md", f"# Note {number}\n\nThe zebra of note {number}.\n")
    with Workspace(settings_of(tmp_path)) as workspace:
        workspace.library.add_paths([many])
    for number in range(14):
        (many / f"{number}.md").unlink()
    async with open_house(file) as house:
        await house.go("library")
        if add_instead:
            await house.press("a")
            house.app.screen.query_one("Input").value = str(many)  # type: ignore[attr-defined]
            await house.press("enter")
        else:
            await house.press("r")
        await house.until(lambda: "Into the trash" in house.text(), "the question")
        assert "14 of 15 documents" in house.text()
        await house.press("n")
        await house.until(lambda: "20 documents" in house.text(), "nothing to be removed")
        assert "14 of 15 documents" in house.error()
        await house.press("f2", "y")
        await house.until(lambda: "6 documents" in house.text(), "the removal")
        assert house.error() == ""


async def test_a_question_that_comes_unasked_does_not_take_what_is_typed_for_an_answer(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmcp.tui.dialogs.UNASKED_SECONDS", 3600)
    house.app.ask_removals(NeedsConfirmation("Many files are gone."))
    await house.press("y", "enter", "n")
    assert "Many files are gone." in house.text()


async def test_removing_asks_first_and_the_trash_gives_back(house: House) -> None:
    await house.press("enter", "down", "d")
    assert "Remove “Bees”?" in house.text()
    await house.press("n")
    assert "Bees" in titles(house)
    await house.press("d", "y")
    await house.until(lambda: "Bees" not in titles(house) and "4 documents" in house.text(), "the removal")
    tree = house.pane.tree_view
    trash = tree.root.children[-1]
    tree.move_cursor(trash)
    await house.press("enter")
    tree.move_cursor(trash.children[0])
    await house.press("u")
    await house.until(lambda: "5 documents" in house.text(), "the document to be back")


async def test_removing_a_collection_takes_its_folders_too(house: House) -> None:
    await house.press("G", "d", "y")
    await house.until(lambda: "4 documents" in house.text(), "the removal")
    await house.press("r")
    await house.settle()
    assert "4 documents" in house.text()


async def test_the_filter_keeps_what_holds_the_words(house: House) -> None:
    await house.press("enter", "f")
    await house.type("kaf")
    assert titles(house) == ["Kafka lag"]
    await house.press("escape")
    assert "Bees" in titles(house)


async def test_reading_and_citing_a_document(house: House) -> None:
    await house.press("enter", "down", "y")
    assert house.app.clipboard.startswith("Bees (")
    await house.press("v")
    assert "whole document" in house.text()
    await house.press("escape")


async def test_of_a_long_branch_only_a_window_is_built(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    with Workspace(settings_of(tmp_path)) as workspace:
        for number in range(3 * PAGE + 50):
            workspace.library.add_text(f"Words of note {number}.", f"Note {number:04}", collection="many")
    async with open_house(file) as house:
        await house.go("library")
        await house.press("G", "enter")
        tree = house.pane.tree_view
        await house.until(lambda: any(isinstance(n.data, More) for n in nodes(tree)), "the first page")
        assert len(titles(house)) == PAGE
        for _ in range(3):
            await house.press("G")
            assert sum(1 for _ in nodes(tree)) <= WINDOW + 10
        assert titles(house)[-1] == f"Note {3 * PAGE + 49:04}"
        before = [n for n in nodes(tree) if isinstance(n.data, More) and n.data.before]
        tree.move_cursor(before[0])
        await house.settle()
        assert len(titles(house)) == WINDOW
        assert titles(house) == sorted(titles(house))
        assert tree.cursor_node.data.title in titles(house)
        # Everything is listed anew, as after a change by another process: nothing of the old window is left.
        house.pane.reload()
        await house.settle()
        for _ in range(4):
            await house.press("G")
        assert titles(house) == sorted(titles(house)) and len(titles(house)) <= WINDOW


async def test_a_mounted_file_is_shown_as_read_only(tmp_path: Path) -> None:
    file = make_library(tmp_path)
    with Workspace(Settings(database=tmp_path / "pack.localmcp", model="hash")) as pack:
        pack.library.add_text("The okapi lives in the forest.", "Okapi", collection="zoo")
    async with open_house(file) as house:
        house.app.desk.workspace.mounts.mount(tmp_path / "pack.localmcp", "animals")
        await house.type("okapi")
        assert "animals, read-only" in house.text()
        await house.go("library")
        assert "animals/zoo  1  read-only" in house.text()
        await house.press("G", "enter", "down")
        assert titles(house) == ["Okapi"]
        await house.press("enter", "down")
        assert "lives in the forest" in house.text()
        await house.press("d")
        assert "localmcp unmount animals" in house.error()
