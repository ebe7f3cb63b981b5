"""Sources: whatever is stored, replaced, trashed, restored or purged, every index tells the same story."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from consistency import disagreements
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library import Library

from localmcp.errors import InvalidInput, ModelMismatch
from localmcp.index.sources import purge_sources, restore_source, trash_sources
from localmcp.models import HashEmbedder
from localmcp.storage.database import Database, fetch_all, fetch_one


@pytest.fixture
def library(database: Database, hash_embedder: HashEmbedder) -> Library:
    return Library(database, hash_embedder)


def chunks_of(database: Database, source_id: int) -> list[Any]:
    with database.read() as connection:
        sql = "select text, id, uuid from chunks where source_id = ? order by position"
        return fetch_all(connection, sql, (source_id,))


def vector_of(database: Database, chunk_id: int) -> bytes:
    with database.read() as connection:
        return fetch_one(connection, "select embedding from embeddings where chunk_id = ?", (chunk_id,))


def check_everything(database: Database) -> None:
    """Count again what is counted, and compare every index with the texts it was made from."""
    assert disagreements(database) == []


# ---------------------------------------------------------------- one at a time


def test_replacing_keeps_id_and_vector_of_what_did_not_change(library: Library, database: Database) -> None:
    first = library.put("Apples are red.\n\nPears are green.\n\nPlums are blue.", paragraphs=True)
    before = {text.strip(): (each, uuid) for text, each, uuid in chunks_of(database, first.source_id)}
    pear = vector_of(database, before["Pears are green."][0])

    second = library.put(
        "New first line.\n\nPears are green.\n\nPlums are blue.", paragraphs=True, replaces=first.source_id
    )
    after = {text.strip(): (each, uuid) for text, each, uuid in chunks_of(database, first.source_id)}
    assert (second.source_id, second.uuid) == (first.source_id, first.uuid)
    assert (second.added, second.kept, second.removed) == (1, 2, 1)
    assert after["Pears are green."] == before["Pears are green."]
    assert vector_of(database, after["Pears are green."][0]) == pear
    assert after["New first line."][0] > max(each for each, _ in before.values())
    check_everything(database)


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("One.\n\nTwo.\n\nThree.\n\n", "Three.\n\nOne.\n\nTwo.\n\n", (0, 3, 0)),
        ("Same.\n\nSame.\n\nSame.\n\n", "Same.\n\nSame.\n\n", (0, 2, 1)),
    ],
)
def test_chunks_that_only_change_places_and_equal_ones_keep_their_ids(
    library: Library, database: Database, before: str, after: str, counts: tuple[int, int, int]
) -> None:
    first = library.put(before, paragraphs=True)
    ids = {each: text for text, each, _ in chunks_of(database, first.source_id)}
    again = library.put(after, paragraphs=True, replaces=first.source_id)
    rows = chunks_of(database, first.source_id)
    assert "".join(text for text, *_ in rows) == after
    assert all(ids[each] == text for text, each, _ in rows) and len({each for _, each, _ in rows}) == len(rows)
    assert (again.added, again.kept, again.removed) == counts
    check_everything(database)


def test_a_new_title_is_indexed_with_every_chunk(library: Library, database: Database) -> None:
    first = library.put("Rye.\n\nWheat.\n\n", title="Grain", paragraphs=True)
    library.put("Rye.\n\nWheat.\n\n", title="Cereals", paragraphs=True, replaces=first.source_id)
    with database.read() as connection:
        titles = "select count(*) from chunks_fts where chunks_fts match ?"
        assert fetch_one(connection, titles, ("title : grain",)) == 0
        assert fetch_one(connection, titles, ("title : cereal",)) == 2
    check_everything(database)


def test_a_vector_of_another_length_is_refused_and_nothing_is_stored(library: Library, database: Database) -> None:
    class Longer(HashEmbedder):
        def embed_passages(self, texts: Any) -> Any:
            return np.ones((len(texts), 65), np.float32)

    library.put("Fine.")
    with pytest.raises(ModelMismatch, match="65 numbers"):
        Library(database, Longer(64)).put("Too long.")
    with database.read() as connection:
        assert fetch_one(connection, "select count(*) from sources") == 1
    check_everything(database)


def test_a_file_that_was_added_again_is_not_restored_over_it(library: Library, database: Database) -> None:
    stored = library.put("Old.", uri="/notes/a.md")
    with database.write() as connection:
        trash_sources(connection, [stored.source_id])
    library.put("New.", uri="/notes/a.md")
    with pytest.raises(InvalidInput, match=r"/notes/a\.md is in the knowledge base again"), database.write() as writer:
        restore_source(writer, stored.source_id)
    check_everything(database)


# ---------------------------------------------------------------- anything in any order

PARAGRAPHS = st.sampled_from(
    [
        "The quick brown fox.", "Il gatto dorme sul tetto della casa.", "getUserName max_results 3.11.7",
        "Running runners ran.", "东京都 データ", "The quick brown fox.", "Ähnliche Straßen, naïve café", "x", "—", "42",
    ]
)  # fmt: skip
TEXTS = st.lists(PARAGRAPHS, min_size=1, max_size=5).map("\n\n".join)
TITLES = st.sampled_from(["Fox", "Gatto", "The quick one"])
STEPS = st.one_of(
    st.tuples(st.just("put"), TEXTS, TITLES, st.sampled_from(["a", "b"])),
    st.tuples(st.just("replace"), st.integers(0, 9), TEXTS, TITLES),
    st.tuples(st.just("trash"), st.integers(0, 9)),
    st.tuples(st.just("restore"), st.integers(0, 9)),
    st.tuples(st.just("purge")),
)


class Story:
    """Runs steps against a database and knows which sources are where."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.live: dict[int, str] = {}
        self.trash: dict[int, str] = {}

    def put(self, text: str, title: str, collection: str) -> None:
        stored = self.library.put(text, title=title, collection=collection, paragraphs=True)
        self.live[stored.source_id] = collection

    def replace(self, number: int, text: str, title: str) -> None:
        if self.live:
            source_id = list(self.live)[number % len(self.live)]
            place = self.live[source_id]
            self.library.put(text, title=title, collection=place, paragraphs=True, replaces=source_id)

    def trash_(self, number: int) -> None:
        if self.live:
            source_id = list(self.live)[number % len(self.live)]
            with self.library.database.write() as connection:
                assert trash_sources(connection, [source_id]) == 1
            self.trash[source_id] = self.live.pop(source_id)

    def restore(self, number: int) -> None:
        if self.trash:
            source_id = list(self.trash)[number % len(self.trash)]
            with self.library.database.write() as connection:
                assert restore_source(connection, source_id)
            self.live[source_id] = self.trash.pop(source_id)

    def purge(self) -> None:
        with self.library.database.write() as connection:
            assert purge_sources(connection, "9999-01-01") == len(self.trash)
        self.trash = {}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=12))
def test_after_any_story_every_index_equals_a_recount(steps: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        database = Database(Path(folder) / "story.localmcp")
        story = Story(Library(database, HashEmbedder(64)))
        for name, *arguments in steps:
            getattr(story, "trash_" if name == "trash" else name)(*arguments)
        check_everything(database)
        with database.read() as connection:
            assert fetch_one(connection, "select count(*) from sources") == len(story.live) + len(story.trash)
        database.close()
