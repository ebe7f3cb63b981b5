"""The vector arm: finds what an exact scan finds, in every dimension, with filters, deletes and many segments."""

from __future__ import annotations

import gc
import uuid
import weakref
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from localmcp.index import vector as vector_module
from localmcp.index.collections import claim_collection, ensure_collection, ensure_model
from localmcp.index.search import Index
from localmcp.index.vector import (
    Made,
    SignIndex,
    add_signs,
    exact_cosines,
    nearest_chunks,
    pack_signs,
    remove_signs,
    write_vectors,
)
from localmcp.models.embedder import HashEmbedder, LazyEmbedder, ModelIdentity
from localmcp.storage import connections
from localmcp.storage.database import Database, bump_generations, fetch_all, fetch_one


def clustered(count: int, dimension: int, clusters: int = 40, seed: int = 1) -> Any:
    random = np.random.default_rng(seed)
    centres = random.standard_normal((clusters, dimension))
    vectors = centres[random.integers(0, clusters, count)] + 0.8 * random.standard_normal((count, dimension))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("<f4")


class Shelf:
    """Vectors 1..n of one model in one or more collections; ten chunks make a source."""

    def __init__(self, database: Database, dimension: int) -> None:
        self.database = database
        identity = ModelIdentity("test", uuid.uuid4().hex, "none", "", "", dimension, 256)
        with database.write() as connection:
            self.model_id = ensure_model(connection, identity)
        self.count = 0
        self.vectors: dict[int, Any] = {}

    def add(self, vectors: Any) -> None:
        ids = list(range(self.count + 1, self.count + len(vectors) + 1))
        with self.database.write() as connection:
            place = claim_collection(connection, ensure_collection(connection, "default"), self.model_id)
            made = {each: Made(vector.tobytes()) for each, vector in zip(ids, vectors, strict=True)}
            write_vectors(connection, self.model_id, made)
            add_signs(connection, self.model_id, place.id, {each: each // 10 for each in ids})
            bump_generations(connection, "signs")
        self.count += len(ids)
        self.vectors |= dict(zip(ids, vectors, strict=True))

    def remove(self, ids: list[int]) -> None:
        with self.database.write() as connection:
            remove_signs(connection, 1, ids)
            bump_generations(connection, "signs")
        for each in ids:
            del self.vectors[each]

    def nearest(self, query: Any, k: int = 10, **options: Any) -> list[int]:
        return [each for each, _ in self.scored(query, k, **options)]

    def scored(self, query: Any, k: int, **options: Any) -> list[tuple[int, float]]:
        with self.database.read() as connection:
            blocks = SignIndex().blocks(connection, self.model_id, (1,))
            return nearest_chunks(connection, self.model_id, blocks, query, k, **options)

    def truly_nearest(self, query: Any, k: int = 10) -> list[int]:
        ids = np.array(list(self.vectors))
        scores = np.stack(list(self.vectors.values())) @ query
        return ids[np.lexsort((ids, -scores))][:k].tolist()


def recall(shelf: Shelf, queries: Any) -> float:
    return float(np.mean([len({*shelf.nearest(q)} & {*shelf.truly_nearest(q)}) / 10 for q in queries]))


@pytest.fixture(params=["sqlite-vec", "numpy"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test with sqlite-vec, and as on a machine that has no wheel of it."""
    if request.param == "numpy":
        monkeypatch.setattr(connections, "load_sqlite_vec", lambda connection: None)
    return request.param


@pytest.mark.parametrize("dimension", [72, 384])
def test_nearly_all_of_the_true_ten_are_found(database: Database, either_way: str, dimension: int) -> None:
    vectors = clustered(4550, dimension)
    shelf = Shelf(database, dimension)
    shelf.add(vectors[:4500])
    assert recall(shelf, vectors[4500:4525]) >= 0.97


@pytest.mark.parametrize("dimension", [3, 12, 72, 384])
def test_among_few_all_are_found_in_order(database: Database, either_way: str, dimension: int) -> None:
    vectors = clustered(450, dimension)
    shelf = Shelf(database, dimension)
    shelf.add(vectors[:400])
    for query in vectors[400:]:
        assert shelf.nearest(query, k=100) == shelf.truly_nearest(query, k=100)


@pytest.mark.parametrize("dimension", [12, 64, 72])
def test_with_and_without_the_extension_the_answers_are_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch, dimension: int
) -> None:
    vectors = clustered(900, dimension)
    with monkeypatch.context() as patched:
        patched.setattr(connections, "load_sqlite_vec", lambda connection: None)
        shelf = Shelf(database, dimension)
        shelf.add(vectors[:400])
        alone = [shelf.scored(query, 20) for query in vectors[800:820]]
    database.close()
    helped = [shelf.scored(query, 20) for query in vectors[800:820]]
    for one, other in zip(alone, helped, strict=True):
        assert [each for each, _ in one] == [each for each, _ in other]
        assert [score for _, score in one] == pytest.approx([score for _, score in other], abs=1e-6)


def test_a_sign_code_is_that_of_sqlite_vec(database: Database) -> None:
    vector = np.array([0.5, -0.5, 0.0, 1.0, -1.0, 1e-9, 2.0, -2.0] * 8, np.float32)
    with database.read() as connection:
        signs = fetch_one(connection, "select vec_quantize_binary(?)", (vector.tobytes(),))
    assert pack_signs(vector[None]).tobytes() == signs


def test_many_vectors_fill_segments_and_blocks_of_several_that_are_searched_alike(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = clustered(2050, 64)
    monkeypatch.setattr(vector_module, "SEGMENT_SIZE", 100)
    monkeypatch.setattr(vector_module, "SEGMENTS_IN_BLOCK", 3)
    shelf = Shelf(database, 64)
    for start in range(0, 2000, 150):
        shelf.add(vectors[start : min(start + 150, 2000)])
    with database.read() as connection:
        assert fetch_all(connection, "select count from signs") == [(100,)] * 20
    assert recall(shelf, vectors[2000:]) == 1.0


def test_what_is_removed_is_not_found(database: Database) -> None:
    vectors = clustered(1200, 64)
    shelf = Shelf(database, 64)
    shelf.add(vectors[:1000])
    gone = list(range(1, 1000, 3))
    shelf.remove(gone)
    for query in vectors[1000:1040]:
        assert not set(shelf.nearest(query)) & set(gone)
    assert recall(shelf, vectors[1000:1040]) == 1.0


def test_allowed_sources_narrow_the_search(database: Database) -> None:
    vectors = clustered(3100, 64)
    shelf = Shelf(database, 64)
    shelf.add(vectors[:3000])
    allowed = np.array([5, 17, 18, 200], np.int64)
    shelf.vectors = {each: vector for each, vector in shelf.vectors.items() if each // 10 in allowed}
    for query in vectors[3000:3030]:
        assert shelf.nearest(query, allowed=allowed) == shelf.truly_nearest(query)
    nobody = np.empty(0, np.int64)
    assert shelf.nearest(vectors[0], allowed=nobody) == []


def test_repeated_texts_do_not_break_the_order(database: Database) -> None:
    shelf = Shelf(database, 64)
    shelf.add(np.repeat(clustered(3, 64), 3000, axis=0))
    found = shelf.scored(shelf.vectors[1], 20)
    assert len(found) == 20
    assert all(score == pytest.approx(1.0) for _, score in found)


def test_a_vector_without_direction_has_a_cosine_of_zero(database: Database, either_way: str) -> None:
    shelf = Shelf(database, 64)
    odd = np.stack([np.zeros(64), np.full(64, np.nan), np.full(64, 0.125)]).astype("<f4")
    shelf.add(odd)
    query = np.full(64, 0.125, np.float32)
    with database.read() as connection:
        cosines = exact_cosines(connection, shelf.model_id, [1, 2, 3, 99], query)
    assert cosines == pytest.approx({1: 0.0, 2: 0.0, 3: 1.0})
    assert shelf.nearest(query) == [3, 1, 2]


def test_a_cache_serves_each_snapshot_its_own_vectors(database: Database) -> None:
    shelf = Shelf(database, 64)
    vectors = clustered(60, 64)
    shelf.add(vectors[:20])
    index = SignIndex()

    def seen(connection: Any) -> int:
        blocks = index.blocks(connection, shelf.model_id, (1,))
        return sum(len(block.ids) for block in blocks)

    with database.read() as old:
        assert seen(old) == 20
        shelf.add(vectors[20:50])
        with database.read() as new:
            assert (seen(new), seen(old), seen(new)) == (50, 20, 50)
        shelf.remove(list(range(1, 11)))
        with database.read() as newest:
            assert (seen(newest), seen(old)) == (40, 20)


def test_codes_of_words_are_kept_of_one_snapshot(database: Database) -> None:
    made = Mock(side_effect=(Mock() for _ in range(3)))
    index = Index(database, LazyEmbedder(HashEmbedder))
    codes = [weakref.ref(index.keep(generation, "codes", made)) for generation in (1, 1, 2, 2)]
    gc.collect()
    assert made.call_count == 2
    assert [code() is None for code in codes] == [True, True, False, False]


def test_a_refresh_reads_only_what_is_new(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_module, "SEGMENT_SIZE", 10)
    monkeypatch.setattr(vector_module, "SEGMENTS_IN_BLOCK", 2)
    shelf = Shelf(database, 64)
    vectors = clustered(60, 64)
    shelf.add(vectors[:40])
    index = SignIndex()
    with database.read() as connection:
        before = index.blocks(connection, shelf.model_id, (1,))
    shelf.add(vectors[40:])
    with database.read() as connection:
        after = index.blocks(connection, shelf.model_id, (1,))
    assert [block for block in after if any(block is old for old in before)] == before[:2]
    assert sum(len(block.ids) for block in after) == 60
