"""The library: what goes in, from where, under which model, and the reason for what does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from consistency import disagreements
from folders import CountingEmbedder, column, many_sections, status, titles, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localmcp.config import Settings
from localmcp.errors import InvalidInput, ModelMismatch, ModelUnavailable, UnreadableDocument
from localmcp.library.ingest import Library
from localmcp.library.lists import Inventory
from localmcp.models import Embedder, HashEmbedder, LazyEmbedder
from localmcp.storage.database import Database, fetch_one

pytestmark = pytest.mark.usefixtures("sound_afterwards")


# ---------------------------------------------------------------- adding


def test_why_names_the_bad_line_of_front_matter(library: Library, tmp_path: Path) -> None:
    note = write(tmp_path / "plan.md", "---\ntitle: Plan: phase two\ndate: 2026-03-04\n---\nText.")
    library.add_paths([note])
    explanation = library.why(note)["explanation"]
    assert explanation.startswith("indexed") and "title: Plan: phase two" in explanation


def test_a_folder_goes_in_with_everything_that_can_be_read_and_nothing_is_read_or_embedded_again(
    library: Library, embedder: CountingEmbedder, database: Database, folder: Path
) -> None:
    report = library.add_paths([folder])
    assert (report.indexed, report.skipped, report.failed) == (3, 1, 0)
    assert titles(database) == ["Bees", "Roses", "soil"]
    assert report.chunks_added == column(database, "select count(*) from vectors")[0] == 3
    embedder.embedded.clear()
    report = library.add_paths([folder])
    assert (report.indexed, report.unchanged, report.skipped) == (0, 3, 1)
    assert embedder.embedded == []


def test_of_a_changed_file_only_the_changed_chunks_are_embedded(
    library: Library, embedder: CountingEmbedder, database: Database, tmp_path: Path
) -> None:
    path = write(tmp_path / "many.md", many_sections(12))
    library.add_paths([path])
    before = column(database, "select id from chunks order by position")
    embedder.embedded.clear()
    write(path, path.read_text().replace("topic 5 is told", "topic 5 is explained"))
    report = library.refresh()
    after = column(database, "select id from chunks order by position")
    assert report.updated == 1
    assert 1 <= len(embedder.embedded) == report.chunks_added <= 2
    assert len(set(before) & set(after)) == report.chunks_kept == len(before) - report.chunks_added


def test_what_the_person_says_overrides_what_the_document_says(
    library: Library, database: Database, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.md", "---\ntitle: Old\nauthor: Ada\nyear: 1843\n---\n\nText.\n")
    library.add_paths([path], title="New\ntitle", source_type="notion", metadata={"year": 2024}, partition="letters")
    with database.read() as connection:
        sql = "select title, source_type, metadata, name from sources join partitions on partitions.id = partition_id"
        title, source_type, metadata, partition = fetch_one(connection, sql)
    assert (title, source_type, partition) == ("New title", "notion", "letters")
    assert json.loads(metadata) == {"title": "Old", "author": "Ada", "year": 2024}


def test_something_else_said_about_a_folder_reaches_what_is_in_it_already(
    library: Library, database: Database, embedder: CountingEmbedder, folder: Path
) -> None:
    library.add_paths([folder])
    embedder.embedded.clear()
    report = library.add_paths([folder], partition="plants", source_type="qa")
    assert (report.updated, embedder.embedded) == (3, [])
    assert set(column(database, "select source_type from sources")) == {"qa"}
    assert None not in column(database, "select partition_id from sources")
    write(folder / "new.md", "Later.")
    library.refresh()
    assert column(database, "select source_type from sources where title = 'new'") == ["qa"]


def test_one_collection_knows_nothing_of_another(library: Library, database: Database, folder: Path) -> None:
    library.add_paths([folder])
    library.add_paths([folder], collection="other")
    assert column(database, "select count(*) from sources group by collection_id") == [3, 3]
    library.remove([str(folder)], collection="other")
    assert len(titles(database)) == 3
    library.remove([str(folder)])
    bees = str(folder / "bees.md")
    assert len(library.restore(bees)) == len(titles(database)) == 2
    library.remove([bees])
    write(folder / "bees.md", "Other words.")
    library.add_paths([bees])
    assert len(library.restore(bees)) == 1, "not where it is there again"


def test_a_hidden_or_ignored_file_goes_in_when_it_is_named(library: Library, database: Database, folder: Path) -> None:
    write(folder / ".gitignore", "secret.md")
    named = [write(folder / "secret.md", "Hush."), write(folder / ".todo.md", "Buy milk.")]
    library.add_paths([folder])
    assert len(titles(database)) == 3
    library.add_paths(named)
    assert library.refresh().unchanged == 5
    assert len(titles(database)) == 5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"source_type": "poem"}, "'poem' is unknown; use one of text, website"),
        ({"title": "T"}, "only a single file"),
        ({"metadata": {"a": object()}}, "metadata"),
        ({"metadata": {"a": float("nan")}}, "metadata"),
        ({"collection": " "}, "collection"),
        ({"partition": "a\nb"}, "partition"),
        ({"patterns": ["!"]}, "patterns"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    library: Library, database: Database, folder: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        library.add_paths([folder], **options)
    assert not database.path.exists() or titles(database) == []


def test_a_path_through_a_link_is_the_same_file(library: Library, database: Database, folder: Path) -> None:
    link = folder.parent / "link"
    try:
        link.symlink_to(folder)
    except OSError:
        pytest.skip("links need a right that this user lacks")
    library.add_paths([folder])
    assert library.add_paths([link]).unchanged == 3
    assert library.why(link / "bees.md")["entries"][0]["status"] == "indexed"


# ---------------------------------------------------------------- reasons


def test_every_file_that_is_not_taken_has_its_reason(library: Library, folder: Path) -> None:
    write(folder / ".gitignore", "*.log\nbuild/")
    files = {
        "photo.gif": ("skipped", "no reader for .gif"),
        "empty.md": ("skipped", "empty file"),
        "blank.txt": ("skipped", "only white space"),
        "mark.txt": ("skipped", "only white space"),
        "wide.txt": ("skipped", "only white space"),
        "a.log": ("skipped", "ignored by .gitignore: *.log"),
        "build": ("skipped", "ignored by .gitignore: build/"),
        "big.txt": ("skipped", "larger than 1 MB (setting max_file_mb)"),
        ".env": ("skipped", "hidden file"),
        "node_modules": ("skipped", "ignored by default: node_modules/"),
        "bees.md": ("indexed", ""),
    }
    write(folder / "empty.md", "")
    write(folder / "blank.txt", " \n\t\n")
    write(folder / "mark.txt", "\ufeff")
    (folder / "wide.txt").write_bytes("\ufeff \r\n".encode("utf-16-le"))
    write(folder / "big.txt", "Many words." + " " * 1_100_000)
    for name in ("a.log", ".env", "build/x.md", "node_modules/x.md"):
        write(folder / name, "x")
    library.settings = Settings(max_file_mb=1)
    library.add_paths([folder])
    assert {name: status(library, folder / name) for name in files} == files
    library.settings = Settings()
    assert (library.add_paths([folder]).indexed, status(library, folder / "big.txt")) == (1, ("indexed", ""))


def test_what_cannot_be_read_stops_none_of_the_others_and_is_tried_again_when_asked_or_changed(
    library: Library, database: Database, folder: Path
) -> None:
    (folder / "a.pdf").write_bytes(b"%PDF-1.7\nnot really\n")
    (folder / "b.docx").write_bytes(b"PK\x03\x04nothing")
    report = library.add_paths([folder, folder / "nowhere.md"])
    assert (report.indexed, report.failed) == (3, 3)
    problems = {Path(path).name: reason for path, reason in report.problems}
    assert problems.keys() == {"a.pdf", "b.docx", "nowhere.md"}
    assert problems["nowhere.md"] == "no such file or folder"
    assert status(library, folder / "a.pdf")[0] == "failed"
    [(unread, reason), _] = Inventory(database).unread("default")
    assert unread.endswith("a.pdf") and reason
    assert Inventory(database).count_waiting("default")[2] == 2
    assert library.refresh().problems == []
    assert library.refresh().failed == 2
    assert len(library.add_paths([folder]).problems) == 2
    (folder / "a.pdf").unlink()
    assert library.refresh().failed == 1
    assert library.why(folder / "a.pdf")["entries"] == []


def test_when_a_changed_file_cannot_be_read_the_version_before_stays(
    library: Library, database: Database, folder: Path
) -> None:
    library.add_paths([folder])
    good = (folder / "bees.md").read_bytes()
    (folder / "bees.md").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    library.refresh()
    [bees] = [item for item in Inventory(database).documents("default")[0] if item.title == "Bees"]
    assert bees.state == "failed" and bees.why
    found, reason = status(library, folder / "bees.md")
    assert found == "failed" and "binary file" in reason and "still searched" in reason
    (folder / "bees.md").write_bytes(good)
    library.refresh()
    assert status(library, folder / "bees.md") == ("indexed", "")
    assert column(database, "select count(*) from sources") == [3]


# ---------------------------------------------------------------- texts


@given(st.text(st.characters(codec=None), min_size=1, max_size=400), st.text(max_size=30))  # type: ignore[arg-type]
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_goes_in_and_out_again(library: Library, database: Database, text: str, title: str) -> None:
    try:
        added = library.add_text(text, title)
    except UnreadableDocument as error:
        assert "holds no text" in str(error)
    else:
        assert library.add_text(text, title).uuid == added.uuid
        assert disagreements(database) == []
        library.remove([added.uuid])
        assert disagreements(database) == []


# ---------------------------------------------------------------- models


def failing() -> Embedder:
    raise ModelUnavailable("The weights are not installed.")


def test_without_a_model_text_is_stored_and_vectors_follow_later(
    database: Database, embedder: CountingEmbedder, folder: Path
) -> None:
    report = Library(database, LazyEmbedder(failing), Settings()).add_paths([folder])
    assert report.indexed == 3
    assert report.notices == ["Found by words only until a refresh finds the model: The weights are not installed."]
    assert column(database, "select model_id from collections") == [None]
    later = Library(database, LazyEmbedder(lambda: embedder), Settings())
    assert later.refresh().vectors_added == 3
    assert column(database, "select count(*) from vectors") == [3]
    assert "Bees" in sorted(embedder.embedded)[0]
    assert later.refresh().vectors_added == 0


def test_another_model_is_refused_before_anything_is_read(library: Library, database: Database, folder: Path) -> None:
    library.add_paths([folder])
    write(folder / "new.md", "New.")
    other = Library(database, LazyEmbedder(lambda: HashEmbedder(128)), Settings())
    for attempt in (
        lambda: other.add_paths([folder]),
        other.refresh,
        lambda: other.add_text("Some text.", "Text"),
        lambda: other.add_paths([write(folder.parent / "another" / "a.md", "A.")]),
    ):
        with pytest.raises(ModelMismatch, match="holds vectors of 'hash'") as caught:
            attempt()
        assert "localmcp config set model hash:64 " in str(caught.value.hint)
    assert len(titles(database)) == 3
    assert [root.path for root in library.roots()] == [str(folder)]
    assert other.add_paths([folder], collection="other").indexed == 4


# ---------------------------------------------------------------- text by word only, and text that is there twice


def test_numbers_and_lock_files_are_found_by_word_only_and_why_says_so(
    library: Library, database: Database, tmp_path: Path
) -> None:
    numbers = "\n".join(f"{number},{number * 7},{number * 13}" for number in range(300))
    table = write(tmp_path / "d" / "table.csv", f"a,b,c\n{numbers}\n")
    lock = write(tmp_path / "d" / "yarn.lock", "lodash@^4.17.0:\n  version 4.17.21\n")
    text = write(tmp_path / "d" / "text.md", "Lodash is a library.\n")
    report = library.add_paths([table, lock, text])
    assert (report.indexed, report.waiting) == (3, 0)
    assert column(database, "select title from sources where id in (select source_id from chunks join vectors"
                            " on vectors.id & 1099511627775 = chunks.id)") == ["text"]  # fmt: skip
    assert "1 of them by word only (lock files" in library.why(lock)["explanation"]
    assert "by word only" not in library.why(text)["explanation"]


def test_copies_of_a_file_are_embedded_once(database: Database, embedder: CountingEmbedder, tmp_path: Path) -> None:
    header = "This program is free software and comes without any warranty. " * 5
    for number in range(20):
        write(tmp_path / "d" / str(number) / "LICENSE.md", f"{header}\n")
    library = Library(database, LazyEmbedder(lambda: embedder), Settings())
    library.add_paths([tmp_path / "d"])
    write(tmp_path / "later" / "LICENSE.md", f"{header}\n")
    library.add_paths([tmp_path / "later"])
    assert column(database, "select count(*) from vectors") == [21]
    assert len(embedder.embedded) == 1


def test_a_vector_tells_nothing_of_equal_texts_in_another_collection(library: Library, database: Database) -> None:
    letter = "The contract ends in June unless one of the two parties renews it in writing. " * 4
    for title, collection in (("Secret plans", "hers"), ("Letter", "his"), ("Letter", "alone")):
        library.add_text(letter, title, collection=collection)
    hers, his, alone = column(database, "select embedding from vectors order by id")
    assert his == alone != hers
