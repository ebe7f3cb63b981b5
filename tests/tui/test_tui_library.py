"""The pane Library, by its keys, on a real file."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import write
from textual.widgets import Input
from tui_driver import RunningTui, make_library, open_tui, settings_of

from localmcp.config import Settings
from localmcp.storage.database import bump_generations
from localmcp.workspace import Workspace


@pytest.fixture
async def tui(tui: RunningTui) -> RunningTui:
    await tui.go("library")
    return tui


def titles(tui: RunningTui) -> list[str]:
    """The documents and what is in the trash, as they are listed."""
    return [row.record.name for row in tui.pane.rows if row.record.kind in ("document", "trashed")]


async def test_branches_open_and_close_and_enter_reads(tui: RunningTui) -> None:
    assert [row.record.name for row in tui.pane.rows] == ["default", "garden"]
    await tui.press("right")
    assert titles(tui) == ["Bees", "soil"]
    await tui.press("right", "right", "down", "down")
    assert titles(tui) == ["Kafka lag", "Restore a backup", "Bees", "soil"]
    assert tui.pane.place.name == "Restore a backup"
    await tui.press("left", "left", "down")
    assert titles(tui) == ["Bees", "soil"]
    assert "A hive has one queen." in tui.text()
    await tui.press("y")
    assert tui.app.clipboard.startswith("Bees (")
    await tui.press("enter")
    assert "whole document" in tui.text()


async def test_the_state_of_a_document_is_shown_and_files_that_could_not_be_read_stand_first(
    tui: RunningTui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "docs" / "soil.txt", "Another text.\n")
    write(tmp_path / "docs" / "ops" / "kafka.md", "# Kafka lag\n\nAnother text.\n")
    (tmp_path / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 broken")
    await tui.press("enter", "down", "down", "down")
    assert "ops/  2  ✎ 1" in tui.text() and "the file has changed since" in tui.text()
    await tui.press("r")
    await tui.until(lambda: "✎" not in tui.text() and "ops/  2" in tui.text(), "the marks to go")
    await tui.press("g", "down")
    assert "1 file could not be read" in tui.text()
    await tui.press("enter", "down")
    assert "✗ " in tui.text() and "broken.pdf" in tui.text()
    # After a filter, the text beside the list is that of the highlighted row.
    await tui.press("slash")
    await tui.type("bees")
    await tui.press("enter", "down")
    assert "A hive has one queen." in tui.pane.reader.text.plain and str(tui.pane.reader.border_title) == "Bees"
    await tui.press("d")
    assert "Remove “Bees”?" in tui.text()
    await tui.press("n")
    monkeypatch.setattr("localmcp.tui.dialogs.UNASKED_SECONDS", 3600)
    tui.app.ask_removals("Many files are gone.")
    await tui.press("y", "enter", "n")
    assert "Many files are gone." in tui.text(), "what is typed is no answer to a question that comes unasked"


async def test_a_folder_is_added_in_the_background_and_its_path_completed(tui: RunningTui, tmp_path: Path) -> None:
    write(tmp_path / "new" / "zebra.md", "# Zebra\n\nStripes.\n")
    await tui.press("a")
    await tui.type(str(tmp_path / "nowhere"))
    await tui.press("enter")
    assert "There is no" in tui.text()
    line = tui.app.screen.query_one(Input)
    line.clear()
    await tui.type(str(tmp_path / "ne"))
    await tui.press("right")
    assert line.value == f"{tmp_path}/new/"
    await tui.press("enter")
    await tui.until(lambda: not tui.app.session.job and "6 documents" in tui.text(), "the new document")
    write(tmp_path / "new" / "lion.md", "# Lion\n\nA mane.\n")
    await tui.press("r")
    await tui.until(lambda: "7 documents" in tui.text(), "what a refresh finds")


async def test_when_many_files_are_gone_it_is_asked_before_they_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmcp.tui.dialogs.UNASKED_SECONDS", 0)
    file, many = make_library(tmp_path), tmp_path / "many"
    for number in range(15):
        write(many / f"{number}.md", f"# Note {number}\n\nThe zebra of note {number}.\n")
    with Workspace(settings_of(tmp_path)) as workspace:
        workspace.library.add_paths([many])
    for number in range(14):
        (many / f"{number}.md").unlink()
    async with open_tui(file) as tui:
        await tui.go("library")
        for adds in (False, True):
            await tui.press("a" if adds else "r")
            if adds:
                tui.app.screen.query_one(Input).value = str(many)
                await tui.press("enter")
            await tui.until(lambda: "Into the trash" in tui.text(), "the question")
            assert "14 of 15 documents" in tui.text()
            await tui.press("n")
            await tui.until(lambda: "20 documents" in tui.text(), "nothing to be removed")
            assert "14 of 15 documents" in tui.error()
        await tui.press("f2", "y")
        await tui.until(lambda: "6 documents" in tui.text(), "the removal")
        assert tui.error() == ""


async def test_removing_asks_first_and_the_trash_gives_back_or_is_emptied(tui: RunningTui) -> None:
    await tui.press("enter", "down", "down", "d")
    assert "Remove “Bees”?" in tui.text()
    await tui.press("n")
    assert "Bees" in titles(tui)
    await tui.press("d", "y")
    await tui.until(lambda: "Bees" not in titles(tui) and "4 documents" in tui.text(), "the removal")
    tui.pane.undoable = []
    await tui.press("G", "enter", "down", "u")
    await tui.until(lambda: "5 documents" in tui.text(), "the document to be back")
    await tui.press("g", "down", "down", "d", "y")
    await tui.until(lambda: "Trash  1" in tui.text(), "the trash")


async def test_removing_takes_only_what_the_filter_leaves_and_undo_only_what_this_window_removed(
    tui: RunningTui,
) -> None:
    library = tui.app.session.workspace.library
    library.remove([tui.app.session.workspace.inventory.find("Roses").id])
    await tui.until(lambda: "Trash  1" in tui.text(), "what another has removed")
    await tui.press("f")
    await tui.type("soil")
    assert titles(tui) == ["soil"]
    await tui.press("enter", "g", "d")
    assert "Remove the 1 document of default that hold “soil”?" in tui.text()
    await tui.press("y")
    await tui.until(lambda: "Trash  2" in tui.text(), "the removal")
    await tui.press("u")
    await tui.until(lambda: "Trash  1" in tui.text(), "the document to be back")
    assert [row.title for row, _ in library.trashed()] == ["Roses"]
    assert "Restored: the 1 document of default that hold “soil”." in str([*tui.app._notifications])


async def test_of_a_long_branch_the_first_rows_are_listed_and_words_find_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmcp.tui.library.MOST_BELOW", 8)
    file = make_library(tmp_path)
    with Workspace(settings_of(tmp_path)) as workspace:
        for number in range(12):
            workspace.library.add_text(f"Words of note {number}.", f"Note {number:04}", collection="many")
    async with open_tui(file) as tui:
        await tui.go("library")
        await tui.press("G", "enter", "G")
        assert len(titles(tui)) == 8 and "4 more" in tui.text()
        await tui.press("slash")
        await tui.type("0011")
        assert titles(tui) == ["Note 0011"]


async def test_a_mounted_file_is_shown_as_read_only(tmp_path: Path) -> None:
    with Workspace(Settings(database=tmp_path / "pack.localmcp", model="hash")) as pack:
        pack.library.add_text("The okapi lives in the forest.", "Okapi", collection="zoo")
    async with open_tui(make_library(tmp_path)) as tui:
        tui.app.session.workspace.mounts.mount(tmp_path / "pack.localmcp", "animals")
        await tui.type("okapi")
        assert "animals, read-only" in tui.text()
        await tui.go("library")
        assert "animals/zoo  1  read-only" in tui.text()
        await tui.press("G", "enter", "down")
        assert titles(tui) == ["Okapi"] and "lives in the forest" in tui.text()
        await tui.press("d")
        assert "localmcp unmount animals" in tui.error()
        await tui.press("escape", "v")
        await tui.until(lambda: "Okapi — " in tui.text() and "lives in the forest" in tui.text(), "the reader")


async def test_open_folders_and_the_highlighted_row_stay_when_the_file_changes(tui: RunningTui) -> None:
    await tui.press("right", "down", "right", "down", "down")
    assert tui.pane.place.name == "Restore a backup"
    with Workspace(settings_of(tui.app.session.path.parent)) as workspace:
        workspace.library.add_text("Zebras.", title="A zebra")
    await tui.until(lambda: "A zebra" in titles(tui), "the new document")
    assert tui.pane.place.name == "Restore a backup"


async def test_what_waits_for_vectors_is_counted_anew_while_they_are_made(tui: RunningTui) -> None:
    database = tui.app.session.workspace.database
    tui.app.session.workspace.upkeep.stop()  # It would make them.
    for left in (2, 1):
        with database.write() as connection:
            connection.execute("delete from vector_queue")
            connection.execute(f"insert into vector_queue select id, 1, 100 from chunks limit {left}")
            bump_generations(connection, "signs")
        words = "2 passages without vectors" if left == 2 else "1 passage without vectors"
        await tui.until(lambda words=words: words in tui.text(), words)  # type: ignore[misc]
