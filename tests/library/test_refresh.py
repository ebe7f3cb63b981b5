"""The library kept up to date: what is deleted, moved, vanished, removed and brought back, and what it says of it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest
from folders import CountingEmbedder, column, ids, status, titles, write

from localmcp.errors import NeedsConfirmation, NotFound
from localmcp.library.ingest import Library
from localmcp.storage.database import Database, fetch_all
from localmcp.storage.schema import utc_now
from localmcp.tools import Scope, use_scope

pytestmark = pytest.mark.usefixtures("sound_afterwards")

DAY = 86_400


def test_why_tells_of_a_path_that_was_never_offered_and_of_paths_like_it_that_the_caller_may_see(
    library: Library, folder: Path
) -> None:
    library.add_paths([folder], collection="secret")
    elsewhere = library.why(folder.parent / "elsewhere" / "bees.md")
    assert str(folder / "bees.md") in elsewhere["nearest"]
    with use_scope(Scope(collections=frozenset(["default"]))):
        hidden = library.why(folder / "bees.md")
    assert (hidden["entries"], hidden["nearest"]) == ([], [])
    assert elsewhere["explanation"] == hidden["explanation"] == "never offered: not below any added folder"


# ---------------------------------------------------------------- deleted, moved, vanished


def test_a_deleted_file_goes_into_the_trash_and_comes_back_with_its_vectors(
    library: Library, database: Database, embedder: CountingEmbedder, folder: Path
) -> None:
    library.add_paths([folder])
    before = ids(database)
    text = (folder / "bees.md").read_text()
    (folder / "bees.md").unlink()
    assert library.refresh().missing == 1
    assert titles(database) == ["Roses", "soil"]
    assert status(library, folder / "bees.md") == ("missing", "the file is gone; in the trash for 30 days")
    embedder.embedded.clear()
    write(folder / "bees.md", text)
    assert library.refresh().restored == 1
    assert (ids(database), embedder.embedded) == (before, [])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell when a file was touched")
def test_an_edit_that_keeps_size_and_time_is_seen_and_a_touch_is_not_an_edit(
    library: Library, database: Database, folder: Path
) -> None:
    library.add_paths([folder])
    bees, modified = folder / "bees.md", (folder / "bees.md").stat().st_mtime_ns
    time.sleep(0.05)  # The clock of a disk ticks every few milliseconds.
    text = bees.read_text()
    bees.write_text(text.swapcase())
    os.utime(bees, ns=(modified, modified))
    assert library.why(bees)["entries"][0]["onDisk"] == "changed"
    report = library.refresh()
    assert (report.updated, report.unchanged) == (1, 2)
    assert text.swapcase() in column(database, "select text from chunks")
    bees.chmod(0o600)
    os.link(folder / "garden" / "roses.md", folder.parent / "linked.txt")
    report = library.refresh()
    assert (report.updated, report.unchanged) == (0, 3)


def test_a_moved_file_keeps_its_id_and_nothing_is_embedded(
    library: Library, database: Database, embedder: CountingEmbedder, folder: Path
) -> None:
    library.add_paths([folder])
    before = ids(database)["bees.md"]
    embedder.embedded.clear()
    (folder / "animals").mkdir()
    (folder / "bees.md").rename(folder / "animals" / "insects.md")
    report = library.refresh()
    assert (report.moved, report.missing, report.indexed) == (1, 0, 0)
    assert (ids(database)["insects.md"], embedder.embedded) == (before, [])
    assert status(library, folder / "bees.md") == ("moved", f"moved to {folder / 'animals' / 'insects.md'}")


def test_a_watched_folder_that_is_renamed_in_another_or_moved_into_one_is_no_disappearance(
    library: Library, database: Database, folder: Path
) -> None:
    for number in range(7):
        write(folder / "notes" / f"{number}.md", f"# Note {number}\n\nWords of note {number}.\n")
    other = folder.parent / "other"
    write(other / "one.md", "# One\n\nOther words.\n")
    library.add_paths([folder, folder / "notes", other])
    before = ids(database)
    (folder / "notes").rename(folder / "archive")
    assert library.refresh().moved == 7
    (folder / "archive").rename(other / "archive")
    assert library.refresh().moved == 7
    assert ids(database) == before
    assert [root.path for root in library.roots()] == [str(folder), str(other)]


BIKE = "# Bike\n\nThe chain wants oil in spring, and the brakes want new pads before the winter comes.\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("velo.md", BIKE),
        ("velo.md", BIKE.replace("spring", "March")),
        ("bike.md", "\n".join([BIKE, "A long new part about tires and tubes of each size."] * 2)),
    ],
)
def test_what_was_said_of_a_file_stays_with_it_through_rename_and_edit(
    library: Library, database: Database, folder: Path, name: str, text: str
) -> None:
    bike = write(folder / "bike.md", BIKE)
    library.add_paths([folder])
    library.add_paths([bike], title="My bike", metadata={"tags": "garage"}, partition="things")
    before = ids(database)["bike.md"]
    moved = write(bike.rename(folder / "garden" / name), text)
    report = library.refresh()
    assert (report.moved, report.missing, report.indexed) == (1, 0, 0)
    for _ in range(2):
        assert ids(database)[moved.name] == before
        sql = "select metadata ->> '$.tags' from sources where trashed_at is null and partition_id is not null"
        assert column(database, sql) == ['["garage"]'] and "My bike" in titles(database)
        write(moved, moved.read_text() + "One more word.")
        assert library.refresh().updated == 1
    assert str(bike) not in [root.path for root in library.roots()]


def test_a_renamed_folder_keeps_its_options_and_collection_and_new_files_in_it_get_them(
    library: Library, database: Database, folder: Path
) -> None:
    private = folder / "private"
    for number in range(6):
        write(private / f"{number}.md", f"# Diary {number}\n\nA day with number {number}.\n")
    library.add_paths([folder], patterns=["!private/"])
    library.add_paths([private], collection="diary", metadata={"tags": "mine"})
    (private / "0.md").unlink()
    private.rename(folder / "secret")
    with database.write() as connection:
        connection.execute("update roots set options = '{}' where kind = 'folder' and path = ?", (str(folder),))
    report = library.refresh()
    assert (report.moved, report.missing) == (5, 1)
    write(folder / "secret" / "new.md", "# New\n\nAnother day.\n")
    library.refresh()
    where = "trashed_at is null and collection_id = 2 and metadata ->> '$.tags[0]' = 'mine'"
    sql = f"select count(*) from sources where {where}"
    assert column(database, sql) == [6]
    assert [root.path for root in library.roots()] == [str(folder), str(folder / "secret")]


def test_a_copy_and_another_file_of_the_same_name_elsewhere_are_documents_of_their_own(
    library: Library, database: Database, folder: Path
) -> None:
    write(folder / "README.md", "# Kites\n\nHow to build a kite out of paper and of two thin sticks.\n")
    library.add_paths([folder])
    before = ids(database)
    (folder / "README.md").unlink()
    write(folder / "garden" / "README.md", "# Soup\n\nLeeks, potatoes, cream; cook for half an hour; serve hot.\n")
    shutil.copy(folder / "bees.md", folder / "copy.md")
    report = library.refresh()
    assert (report.indexed, report.missing, report.moved) == (2, 1, 0)
    after = ids(database)
    assert after["README.md"] != before["README.md"] and after["bees.md"] == before["bees.md"]
    assert len(set(after.values())) == 5


def test_an_emptied_file_is_an_empty_document_and_its_old_text_is_in_the_trash(
    library: Library, database: Database, folder: Path
) -> None:
    library.add_paths([folder], metadata={"shelf": 3})
    before = ids(database)["bees.md"]
    write(folder / "bees.md", " \n\n")
    assert library.refresh().updated == 1
    assert column(database, "select count(*) from chunks") == [2]
    assert status(library, folder / "bees.md") == ("indexed", "empty; what was in it before is in the trash")
    assert library.refresh().unchanged == 3
    write(folder / "bees.md", "\n")
    assert library.refresh().unchanged == 3
    [(version, _)] = library.trashed()
    assert version.title == "Bees (document before it was replaced)"
    write(folder / "bees.md", "# Bees\n\nThey are back.\n")
    assert library.refresh().updated == 1
    assert ids(database)["bees.md"] == before
    write(folder / "bees.md", "")
    library.refresh()
    library.restore(version.uuid)
    assert status(library, folder / "bees.md") == ("indexed", "an earlier version, brought back from the trash")
    assert "A hive has one queen." in "".join(column(database, "select text from chunks"))
    assert set(column(database, "select metadata ->> '$.shelf' from sources")) == {3}


def test_an_emptied_mailbox_leaves_no_messages(library: Library, database: Database, folder: Path) -> None:
    mail = "From a@b.example Mon Jan  6 09:00:00 2025\nFrom: a@b.example\nSubject: Tea\n\nThe tea is in the shed.\n"
    mailbox = write(folder / "a.mbox", mail)
    library.add_paths([folder])
    write(mailbox, "")
    assert library.refresh().missing == 1
    assert status(library, mailbox)[0] == "skipped"
    library.restore("Tea")
    assert "Tea" in titles(database)


def test_two_files_that_change_places_keep_their_paths(library: Library, database: Database, folder: Path) -> None:
    library.add_paths([folder])
    first, second = folder / "bees.md", folder / "garden" / "roses.md"
    first.rename(folder / "aside.md")
    second.rename(first)
    (folder / "aside.md").rename(second)
    library.refresh()
    with database.read() as connection:
        rows = dict(fetch_all(connection, "select uri, title from sources where trashed_at is null"))
    assert (rows[str(first)], rows[str(second)]) == ("Roses", "Bees")


def test_a_missing_root_stops_and_asks(library: Library, database: Database, folder: Path) -> None:
    library.add_paths([folder], collection="garden")
    folder.rename(folder.parent / "unmounted")
    with pytest.raises(NeedsConfirmation, match="is not there; 3 documents") as caught:
        library.refresh()
    assert caught.value.hint and "localmcp add FOLDER --collection garden" in caught.value.hint
    assert len(titles(database)) == 3
    (folder.parent / "unmounted").rename(folder)
    assert library.refresh().unchanged == 3


def test_many_files_gone_at_once_change_nothing_until_confirmed(
    library: Library, database: Database, folder: Path
) -> None:
    other = write(folder.parent / "other" / "a.md", "Here.").parent
    for number in range(30):
        write(folder / "notes" / f"{number}.md", f"Note {number}.")
    library.add_paths([folder, other])
    shutil.rmtree(folder / "notes")
    write(folder / "new.md", "New.")
    write(other / "b.md", "There.")
    for again in (library.refresh, lambda: library.add_paths([folder])):
        with pytest.raises(NeedsConfirmation, match="30 of 33 documents"):
            again()
    assert len(titles(database)) == 35
    assert "new" not in titles(database)
    assert "b" in titles(database)
    report = library.refresh(confirm_removals=True)
    assert (report.missing, report.indexed) == (30, 1)


@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
@pytest.mark.parametrize("what", ["file", "folder", "root"])
def test_what_becomes_a_link_to_the_outside_is_not_read(
    library: Library, database: Database, folder: Path, tmp_path: Path, what: str
) -> None:
    write(folder / "inner" / "note.md", "A note about anchors.")
    outside = write(tmp_path / "outside" / "inner" / "note.md", "A secret about barometers.")
    library.add_paths([folder, folder / "inner" / "note.md"])
    target = {"file": folder / "inner" / "note.md", "folder": folder / "inner", "root": folder}[what]
    target.rename(tmp_path / "kept")
    target.symlink_to({"file": outside, "folder": outside.parent, "root": outside.parent.parent}[what])
    library.refresh(confirm_removals=True)
    assert column(database, "select count(*) from chunks where text like '%barometers%'") == [0]


def test_files_added_one_by_one_are_one_group_when_their_disk_is_missing(
    library: Library, database: Database, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    library.add_paths([write(disk / f"{number}.md", f"Note {number}.") for number in range(12)])
    disk.rename(tmp_path / "unplugged")
    with pytest.raises(NeedsConfirmation, match="12 of 12 files"):
        library.refresh()
    assert len(titles(database)) == 12


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_what_lies_in_a_folder_that_cannot_be_read_stays(library: Library, database: Database, folder: Path) -> None:
    library.add_paths([folder])
    (folder / "garden").chmod(0)
    try:
        assert library.refresh().missing == 0
    finally:
        (folder / "garden").chmod(0o700)
    assert len(titles(database)) == 3


def test_what_becomes_ignored_leaves_the_search_and_comes_back_when_it_is_not(
    library: Library, database: Database, folder: Path
) -> None:
    library.add_paths([folder])
    ignore = write(folder / ".localmcpignore", "garden/\nbees.md\n")
    report = library.refresh()
    assert (report.removed, titles(database)) == (3, [])
    assert status(library, folder / "bees.md") == ("skipped", "ignored by .localmcpignore: bees.md")
    assert "which was skipped: ignored by" in library.why(folder / "garden" / "soil.txt")["explanation"]
    ignore.unlink()
    report = library.refresh()
    assert (report.restored, len(titles(database))) == (3, 3)


# ---------------------------------------------------------------- the trash


def test_a_removed_file_stays_out_until_it_is_added_by_its_own_path(
    library: Library, database: Database, embedder: CountingEmbedder, folder: Path
) -> None:
    library.add_paths([folder])
    before = ids(database)["bees.md"]
    assert library.remove([str(folder / "bees.md")]).removed == 1
    assert status(library, folder / "bees.md") == ("removed", "removed by you; in the trash for 30 days")
    library.refresh()
    library.add_paths([folder])
    assert titles(database) == ["Roses", "soil"]
    embedder.embedded.clear()
    assert library.add_paths([folder / "bees.md"]).restored == 1
    assert (ids(database)["bees.md"], embedder.embedded) == (before, [])


def test_a_removed_folder_is_no_longer_watched_and_can_be_added_again(
    library: Library, database: Database, embedder: CountingEmbedder, folder: Path
) -> None:
    library.add_paths([folder])
    before = ids(database)
    assert library.remove([str(folder)]).removed == 3
    assert (titles(database), library.roots()) == ([], [])
    assert library.refresh().indexed == 0
    embedder.embedded.clear()
    assert library.add_paths([folder]).restored == 3
    assert (ids(database), embedder.embedded) == (before, [])


def test_what_is_put_into_a_removed_folder_later_stays_out(library: Library, database: Database, folder: Path) -> None:
    library.add_paths([folder])
    library.remove([str(folder / "garden")])
    write(folder / "garden" / "tulips.md", "# Tulips\n\nPlant in autumn.\n")
    library.refresh()
    assert titles(database) == ["Bees"]
    library.add_paths([folder / "garden"])
    assert titles(database) == ["Bees", "Roses", "Tulips", "soil"]


def test_a_target_that_is_nothing_known_removes_nothing_and_only_what_is_near_is_suggested(
    library: Library, database: Database, folder: Path
) -> None:
    write(folder / "boiler-2019.md", "# Boiler\n\nBleed it.\n")
    library.add_paths([folder])
    with pytest.raises(NotFound, match="The nearest is '.*roses.md'"):
        library.remove(["Bees", "Rosess"])
    for target, nearest in (("boiler-2018.md", "boiler-2019.md"), ("broken-2024.md", "")):
        with pytest.raises(NotFound) as refused:
            library.remove([target])
        assert ("The nearest is" in str(refused.value.hint)) == bool(nearest) and nearest in str(refused.value.hint)
    assert len(titles(database)) == 4


def test_a_restored_source_whose_file_is_gone_is_kept(library: Library, database: Database, folder: Path) -> None:
    library.add_paths([folder])
    (folder / "bees.md").unlink()
    library.refresh()
    [(source, _)] = library.trashed()
    library.restore(source.uuid)
    library.refresh()
    assert "Bees" in titles(database)
    assert status(library, folder / "bees.md")[0] == "kept"
    with pytest.raises(NotFound):
        library.restore(source.uuid)


def test_a_file_that_was_added_alone_is_watched_again_with_its_options_when_it_is_restored(
    library: Library, database: Database, folder: Path
) -> None:
    path = folder / "bees.md"
    for collection in ("default", "papers"):
        library.add_paths([path], collection=collection, title="My bees", metadata={"shelf": 3})
    library.remove([str(path)])
    assert library.roots() == []
    library.restore(str(folder))
    write(path, "# Bees\n\nThey dance.\n")
    assert library.refresh().updated == 2
    assert titles(database) == ["My bees", "My bees"]
    assert column(database, "select metadata ->> '$.shelf' from sources where trashed_at is null") == [3, 3]

    path.unlink()
    library.refresh()
    assert titles(database) == []


@pytest.mark.parametrize("is_inside", [False, True], ids=["watched", "in one that is watched"])
def test_a_removed_folder_is_watched_again_when_all_of_it_is_restored_and_until_then_its_files_alone(
    library: Library, database: Database, folder: Path, is_inside: bool
) -> None:
    herbs = folder / "herbs"
    for name in ("Basil", "Thyme"):
        write(herbs / f"{name.lower()}.md", f"# {name}\n\nGrows in pots.\n")
    library.add_paths([folder if is_inside else herbs], metadata={"shelf": 3})
    library.remove([str(herbs)])
    library.restore("Basil")
    write(herbs / "mint.md", "# Mint\n\nGrows everywhere.\n")
    write(herbs / "basil.md", "# Basil\n\nGrows on the sill.\n")
    report = library.refresh()
    assert (report.updated, report.removed) == (1, 0)
    assert {"Basil", "Thyme", "Mint"} & set(titles(database)) == {"Basil"}

    library.restore("Thyme" if is_inside else str(herbs))
    library.refresh()
    assert {"Basil", "Thyme", "Mint"} <= set(titles(database))
    assert str(folder if is_inside else herbs) in [root.path for root in library.roots()]
    assert set(column(database, "select metadata ->> '$.shelf' from sources")) == {3}


def test_a_refresh_deletes_what_has_been_in_the_trash_too_long(
    library: Library, database: Database, folder: Path
) -> None:
    library.add_paths([folder / "bees.md"])
    (folder / "bees.md").unlink()
    library.refresh()
    with database.write() as connection:
        connection.execute("update sources set trashed_at = ?, updated_at = ?", (utc_now(40 * DAY), utc_now(2 * DAY)))
    library.refresh()
    assert column(database, "select count(*) from sources") == [0]
    assert (library.roots(), library.why(folder / "bees.md")["entries"]) == ([], [])


def test_a_clock_that_jumps_ahead_does_not_empty_the_trash(library: Library, database: Database, folder: Path) -> None:
    library.add_paths([folder])
    (folder / "bees.md").unlink()
    library.refresh()
    with database.write() as connection:
        # As the file looks to a clock that is 400 days ahead.
        connection.execute("update sources set updated_at = ?", (utc_now(403 * DAY),))
        connection.execute("update sources set trashed_at = ? where trashed_at is not null", (utc_now(400 * DAY),))
    (folder / "new.md").write_text("# Written by the wrong clock\n")
    library.refresh()
    library.refresh()
    assert len(library.trashed()) == 1
    with database.write() as connection:
        connection.execute("update sources set updated_at = ? where title like 'Written%'", (utc_now(2 * DAY),))
    library.refresh()
    assert library.trashed() == []
