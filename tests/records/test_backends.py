"""What every place that holds vectors must do: one body for the SQLite file and for Milvus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_backend import Backend, FileBackend
from milvus_servers import backend_params, backends

from localmcp.errors import ModelMismatch, NotFound
from localmcp.index.backend import DEFAULT_PARTITION, Neighbor, Record
from localmcp.index.conditions import evaluate, parse_condition
from localmcp.index.index import Index
from localmcp.models import HashEmbedder, LazyEmbedder
from localmcp.storage.database import Database

DIMENSION = 64
MODEL = f"synthetic#{'0' * 16}"


CONDITIONS: list[dict[str, Any]] = [
    {"lang": "en"},
    {"lang": ["it", "fr"]},
    {"lang": {"prefix": "en"}},
    {"year": {"gte": 2020}},
    {"year": {"gt": 2017, "lt": 2023}},
    {"year": "2023"},
    {"year": {"lte": "3"}},
    {"open": True},
    {"open": False},
    {"tags": "ai"},
    {"tags": [1]},
    {"tags": True},
    {"author.name": "Ann"},
    {"title": {"prefix": "A title"}},
    {"missing": 1},
    {"not": {"missing": 1}},
    {"not": {"lang": "en"}},
    {"not": {"year": {"gte": 2000}}},
    {"not": {"tags": "ai"}},
    {"or": [{"lang": "it"}, {"tags": "nlp"}]},
    {"and": [{"lang": "en"}, {"not": {"year": {"lt": 2020}}}]},
    {"not": {"or": [{"lang": "en"}, {"open": True}]}},
]


@pytest.fixture(params=["sqlite", *backend_params])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """An empty backend of each kind that can run here."""
    if request.param != "sqlite":
        with backends[request.param](tmp_path) as opened:
            yield opened
        return
    database = Database(tmp_path / "library.localmcp")
    yield sqlite_backend(database)
    database.close()


def sqlite_backend(database: Database) -> FileBackend:
    return FileBackend(database, Index(database, LazyEmbedder(lambda: HashEmbedder(DIMENSION))))


def unit(seed: int) -> Any:
    vector = np.random.default_rng(seed).standard_normal(DIMENSION).astype(np.float32)
    return vector / np.linalg.norm(vector)


def record(number: int, partition: str = DEFAULT_PARTITION, **metadata: Any) -> Record:
    return Record(number, unit(number), f"text number {number}", metadata, partition)


@pytest.fixture
def filled(backend: Backend) -> Backend:
    """Six records in two partitions."""
    backend.create("papers", DIMENSION, MODEL)
    backend.upsert(
        "papers",
        [
            record(1, year=2017, lang="en", tags=["ai", "nlp"]),
            record(2, year=2020, lang="it", open=True),
            record(3, "reports", year=2023, lang="en", author={"name": "Ann"}),
            record(4, "reports", year="2023", open=False),
            record(5, "reports", lang="english"),
            record(6, tags=[1, True], title="A title of its own"),
        ],
    )
    return backend


def found(backend: Backend, seed: int, limit: int = 10, **options: Any) -> list[int]:
    [neighbors] = backend.search("papers", unit(seed)[None, :], limit, **options)
    return [each.id for each in neighbors]


class TestCollections:
    def test_are_made_described_listed_and_dropped(self, backend: Backend) -> None:
        backend.create("papers", DIMENSION, MODEL)
        backend.create("papers", DIMENSION, MODEL)
        backend.create("another", DIMENSION, MODEL)
        space = backend.describe("papers")
        assert (space.name, space.dimension, space.count) == ("papers", DIMENSION, 0)
        assert space.model.rpartition("#")[2] == MODEL.rpartition("#")[2]
        assert backend.collections() == ["another", "papers"]
        backend.drop("papers")
        assert backend.collections() == ["another"]
        with pytest.raises(NotFound):
            backend.describe("papers")

    def test_of_another_dimension_is_not_taken_for_the_same(self, backend: Backend) -> None:
        backend.create("papers", DIMENSION, MODEL)
        with pytest.raises(ModelMismatch):
            backend.create("papers", DIMENSION * 2, f"larger#{'1' * 16}")

    def test_that_are_missing_are_said_to_be(self, backend: Backend) -> None:
        for call in (
            lambda: backend.describe("nope"),
            lambda: backend.drop("nope"),
            lambda: backend.search("nope", unit(1)[None, :], 3),
            lambda: backend.upsert("nope", [record(1)]),
            lambda: backend.fetch("nope", [1]),
        ):
            with pytest.raises(NotFound):
                call()


class TestPartitions:
    def test_hold_what_was_put_into_them(self, filled: Backend) -> None:
        counts = filled.describe("papers").partitions
        assert set(counts) == {DEFAULT_PARTITION, "reports"}
        assert {name: count for name, count in counts.items() if count >= 0}.items() <= {
            DEFAULT_PARTITION: 3,
            "reports": 3,
        }.items()
        assert sorted(found(filled, 1, partition="reports")) == [3, 4, 5]
        assert sorted(found(filled, 1, partition=DEFAULT_PARTITION)) == [1, 2, 6]

    def test_that_are_missing_are_said_to_be(self, filled: Backend) -> None:
        with pytest.raises(NotFound, match="partition 'nope' not found"):
            found(filled, 1, partition="nope")


class TestRecords:
    def test_come_back_as_they_were_put_in(self, filled: Backend) -> None:
        fetched = filled.fetch("papers", [3, 999, 1])
        assert set(fetched) == {1, 3}
        assert fetched[3].text == "text number 3"
        assert fetched[3].metadata == {"year": 2023, "lang": "en", "author": {"name": "Ann"}}
        assert (fetched[3].partition, fetched[1].partition) == ("reports", DEFAULT_PARTITION)
        np.testing.assert_allclose(fetched[1].vector, unit(1), atol=1e-6)

    def test_are_replaced_under_the_same_id(self, filled: Backend) -> None:
        filled.upsert("papers", [Record(1, unit(77), "other words", {"lang": "fr"}, "reports")])
        assert found(filled, 77, 1) == [1]
        [replaced] = filled.fetch("papers", [1]).values()
        assert (replaced.text, replaced.metadata, replaced.partition) == ("other words", {"lang": "fr"}, "reports")
        assert filled.describe("papers").count == 6

    def test_the_same_text_may_get_another_vector(self, filled: Backend) -> None:
        filled.upsert("papers", [Record(1, unit(78), "text number 1", {}, DEFAULT_PARTITION)])
        [[nearest]] = filled.search("papers", unit(78)[None, :], 1)
        assert nearest.id == 1 and nearest.score == pytest.approx(1, abs=1e-5)

    def test_are_deleted_and_unknown_ids_passed_over(self, filled: Backend) -> None:
        filled.delete("papers", [2, 999])
        assert sorted(found(filled, 2)) == [1, 3, 4, 5, 6]
        assert filled.fetch("papers", [2]) == {}
        filled.upsert("papers", [record(2, lang="it")])
        assert found(filled, 2, 1) == [2]

    def test_are_all_read_in_batches_by_id(self, filled: Backend) -> None:
        batches = list(filled.records("papers", batch=4))
        assert [each.id for batch in batches for each in batch] == [1, 2, 3, 4, 5, 6]
        assert max(len(batch) for batch in batches) <= 4

    def test_of_another_length_are_refused(self, filled: Backend) -> None:
        with pytest.raises(ModelMismatch):
            filled.upsert("papers", [Record(9, np.ones(8, np.float32) / np.sqrt(8), "short")])
        with pytest.raises(ModelMismatch):
            filled.search("papers", np.ones((1, 8), np.float32), 3)


class TestSearching:
    def test_each_query_gets_its_own_nearest_best_first(self, filled: Backend) -> None:
        queries = np.stack([unit(3), unit(5)])
        first, second = filled.search("papers", queries, 6)
        vectors = {number: unit(number) for number in range(1, 7)}
        for neighbors, query in ((first, queries[0]), (second, queries[1])):
            cosines = {number: float(vector @ query) for number, vector in vectors.items()}
            assert [each.id for each in neighbors] == sorted(cosines, key=lambda n: -cosines[n])
            for each in neighbors:
                assert each.score == pytest.approx(cosines[each.id], abs=1e-4)

    def test_the_limit_holds(self, filled: Backend) -> None:
        assert len(found(filled, 1, 2)) == 2
        assert found(filled, 4, 1) == [4]

    def test_an_empty_collection_answers_with_nothing(self, backend: Backend) -> None:
        backend.create("papers", DIMENSION, MODEL)
        assert backend.search("papers", np.stack([unit(1), unit(2)]), 5) == [[], []]

    def test_a_condition_means_the_same_everywhere(self, filled: Backend) -> None:
        everything = [each for batch in filled.records("papers") for each in batch]
        answers: dict[str, list[int]] = {}
        expected: dict[str, list[int]] = {}
        for given in CONDITIONS:
            condition = parse_condition(given)
            assert condition is not None
            answers[str(given)] = sorted(found(filled, 1, condition=condition))
            expected[str(given)] = [each.id for each in everything if evaluate(condition, each.metadata)]
        assert answers == expected

    def test_condition_and_partition_hold_together(self, filled: Backend) -> None:
        condition = parse_condition({"lang": {"prefix": "en"}})
        assert sorted(found(filled, 1, partition="reports", condition=condition)) == [3, 5]


@pytest.mark.parametrize("name", backend_params)
def test_every_backend_gives_the_same_ten(name: str, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    vectors = random.standard_normal((300, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    # Equal scores: the same vector under several ids.
    vectors[100:105] = vectors[7]
    records = [Record(n + 1, vector, f"text {n}", {"half": n % 2}) for n, vector in enumerate(vectors)]
    queries = vectors[[7, 20, 33]] + 0.05 * random.standard_normal((3, DIMENSION)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    database = Database(tmp_path / "library.localmcp")
    answers: list[list[list[Neighbor]]] = []
    with backends[name](tmp_path) as other:
        for each in (sqlite_backend(database), other):
            each.create("same", DIMENSION, MODEL)
            each.upsert("same", records)
            answers.append(each.search("same", queries, 10))
    database.close()
    for ours, theirs in zip(*answers, strict=True):
        assert [round(each.score, 4) for each in ours] == pytest.approx([e.score for e in theirs], abs=2e-4)
        assert {each.id for each in ours} == {each.id for each in theirs}
