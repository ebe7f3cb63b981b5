"""Sources: whatever is stored, replaced, trashed, restored or purged, every index tells the same story."""

from __future__ import annotations

from contextlib import closing
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


# ---------------------------------------------------------------- one at a time


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ("Apples.\n\nPears.\n\nPlums.", "New.\n\nPears.\n\nPlums.", (1, 2, 1)),
        ("One.\n\nTwo.\n\nThree.\n\n", "Three.\n\nOne.\n\nTwo.\n\n", (0, 3, 0)),
        ("Same.\n\nSame.\n\nSame.\n\n", "Same.\n\nSame.\n\n", (0, 2, 1)),
    ],
)
def test_chunks_that_did_not_change_and_those_that_only_change_places_keep_their_ids(
    library: Library, database: Database, before: str, after: str, counts: tuple[int, int, int]
) -> None:
    first = library.put(before, paragraphs=True)
    ids = {each: text for text, each, _ in chunks_of(database, first.source_id)}
    again = library.put(after, paragraphs=True, replaces=first.source_id)
    rows = chunks_of(database, first.source_id)
    assert "".join(text for text, *_ in rows) == after
    kept = [text for text, each, _ in rows if each in ids]
    assert kept == [ids[each] for _, each, _ in rows if each in ids] and len({each for _, each, _ in rows}) == len(rows)
    assert (again.added, len(kept), again.removed) == (counts[0], again.kept, counts[2]) and again.kept == counts[1]
    assert (again.source_id, again.uuid) == (first.source_id, first.uuid)
    assert disagreements(database) == []


def test_a_vector_of_another_length_is_refused_and_nothing_is_stored(library: Library, database: Database) -> None:
    class Longer(HashEmbedder):
        def embed_passages(self, texts: Any) -> Any:
            return np.ones((len(texts), 65), np.float32)

    library.put("Fine.")
    with pytest.raises(ModelMismatch, match="65 numbers"):
        Library(database, Longer(64)).put("Too long.")
    with database.read() as connection:
        assert fetch_one(connection, "select count(*) from sources") == 1
    assert disagreements(database) == []


def test_a_file_that_was_added_again_is_not_restored_over_it(library: Library, database: Database) -> None:
    stored = library.put("Old.", uri="/notes/a.md")
    with database.write() as connection:
        trash_sources(connection, [stored.source_id])
    library.put("New.", uri="/notes/a.md")
    with pytest.raises(InvalidInput, match=r"/notes/a\.md is in the knowledge base again"), database.write() as writer:
        restore_source(writer, stored.source_id)
    assert disagreements(database) == []


# ---------------------------------------------------------------- anything in any order

PARAGRAPHS = st.sampled_from(
    [
        "The quick brown fox.", "Il gatto dorme sul tetto della casa.", "getUserName max_results 3.11.7",
        "Running runners ran.", "东京都 データ", "The quick brown fox.", "Ähnliche Straßen, naïve café", "x", "—", "42",
    ]
)  # fmt: skip
TEXTS = st.lists(PARAGRAPHS, min_size=1, max_size=5).map("\n\n".join)


KINDS = st.sampled_from(["put", "replace", "trash", "restore", "purge"])
TITLES = st.sampled_from(["Fox", "Gatto", "The quick one"])
STEPS = st.tuples(KINDS, st.integers(0, 9), TEXTS, TITLES, st.sampled_from(["a", "b"]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=3, max_size=12))
def test_after_any_story_every_index_equals_a_recount(steps: list[tuple[str, int, str, str, str]]) -> None:
    live, trash = dict[int, str](), dict[int, str]()
    with TemporaryDirectory() as folder, closing(Database(Path(folder) / "story.localmcp")) as database:
        library = Library(database, HashEmbedder(64))
        for kind, number, text, title, collection in steps:
            known = [*(trash if kind == "restore" else live)] or [0]
            source_id = known[number % len(known)]
            match kind:
                case "put":
                    live[library.put(text, title=title, collection=collection, paragraphs=True).source_id] = collection
                case "replace" if source_id:
                    place = live[source_id]
                    library.put(text, title=title, collection=place, paragraphs=True, replaces=source_id)
                case "trash" if source_id:
                    with database.write() as connection:
                        assert trash_sources(connection, [source_id, source_id, 99]) == 1
                    trash[source_id] = live.pop(source_id)
                case "restore" if source_id:
                    with database.write() as connection:
                        assert restore_source(connection, source_id)
                        assert not restore_source(connection, source_id)
                    live[source_id] = trash.pop(source_id)
                case "purge":
                    with database.write() as connection:
                        assert purge_sources(connection, "1970-01-01") == 0
                        assert purge_sources(connection, "9999-01-01") == len(trash)
                    trash.clear()
                case _:
                    pass
            assert disagreements(database) == []
        with database.read() as connection:
            assert fetch_one(connection, "select count(*) from sources") == len(live) + len(trash)
