"""Filters: each holds in both arms, alone and together, whatever is in the metadata."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from library import Library

from localmcp.errors import InvalidInput
from localmcp.index.filters import Filters, parse_condition
from localmcp.index.fusion import Mode
from localmcp.index.search import SearchRequest
from localmcp.models import HashEmbedder
from localmcp.storage.database import Database


def path(*parts: str) -> str:
    return os.path.join(os.path.abspath(os.sep), "home", *parts)


SHELF: dict[str, dict[str, Any]] = {
    "plain": {"uri": path("notes", "plain.md"), "metadata": {"year": 2024, "tags": ["red", "blue"], "draft": True}},
    "old": {"uri": path("notes-old", "old.md"), "metadata": {"year": 2019, "tags": "red", "draft": False}},
    "percent": {"uri": path("100%_done", "a.md"), "source_type": "qa", "metadata": {"year": "2024"}},
    "other": {"uri": path("100xxdone", "b.md"), "partition": "2024", "metadata": {"nested": {"year": 2024}}},
    "loose": {"partition": "2023", "source_type": "website", "metadata": {"ratio": 0.5}},
}
MODES: tuple[Mode, ...] = ("hybrid", "semantic", "keyword")


@pytest.fixture
def library(database: Database, hash_embedder: HashEmbedder) -> Library:
    library = Library(database, hash_embedder)
    for title, options in SHELF.items():
        library.put("Bread is made of flour and water.", title=title, **options)
    return library


def found(library: Library, filters: Filters, mode: Mode) -> set[str]:
    outcome = library.index.search(SearchRequest("flour and water", mode=mode, limit=20, filters=filters))
    assert outcome.total == len(outcome.hits)
    assert outcome.searched.get("sources", len(SHELF)) == len(outcome.hits)
    return {hit.passage.title for hit in outcome.hits}


def test_a_filter_holds_in_every_mode(library: Library) -> None:
    for filters, expected in (
        (Filters(), set(SHELF)),
        (Filters(partitions=("2024",)), {"other"}),
        (Filters(partitions=("'; drop table sources; --",)), set()),
        (Filters(source_types=("qa", "website")), {"percent", "loose"}),
        (Filters(condition=parse_condition({"year": 2024})), {"plain"}),
        (Filters(condition=parse_condition({"year": [2019, 2024]})), {"plain", "old"}),
        (Filters(condition=parse_condition({"year": {"gte": 2020}})), {"plain"}),
        (Filters(condition=parse_condition({"nested.year": 2024})), {"other"}),
        (Filters(condition=parse_condition({"year": 2024, "tags": "red"})), {"plain"}),
        (Filters(partitions=("2023",), source_types=("qa",)), set()),
        (Filters(path_prefix=path("notes")), {"plain"}),
        (Filters(path_prefix=path("notes", "..", "notes-old")), {"old"}),
        (Filters(path_prefix=path("note")), set()),
        (Filters(path_prefix=path("100__done")), set()),
        (Filters(path_prefix=os.path.abspath(os.sep)), {"plain", "old", "percent", "other"}),
        (Filters(path_prefix="notes"), {"plain"}),
        (Filters(path_prefix="./notes/plain.md"), {"plain"}),
        (Filters(path_prefix="%"), set()),
    ):
        for mode in MODES:
            assert found(library, filters, mode) == expected, (filters, mode)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"partitions": ("\ud800",)}, "partition"), ({"path_prefix": "\ud800"}, "pathPrefix")],
)
def test_what_cannot_be_compared_is_refused_by_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        Filters(**options)


def test_as_many_values_as_are_allowed_can_be_compared(library: Library) -> None:
    values: list[Any] = [str(year) for year in range(1025, 2025)]
    compared = dict.fromkeys(("year", *(f"key{number}" for number in range(7))), values)
    filters = Filters(condition=parse_condition({"year": values, "or": [compared, {"year": "2024"}]}))
    assert found(library, filters, "keyword") == {"percent"}


VALUES = st.one_of(st.text(max_size=8), st.integers(), st.floats(), st.booleans())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(metadata={}, prefix=None, partition="\0")
@given(
    metadata=st.dictionaries(st.text(max_size=8), st.one_of(VALUES, st.lists(VALUES, max_size=3)), max_size=3),
    prefix=st.one_of(st.none(), st.text(max_size=12)),
    partition=st.text(max_size=8),
)
def test_no_filter_breaks_a_search(library: Library, metadata: Any, prefix: str | None, partition: str) -> None:
    try:
        filters = Filters(partitions=(partition,), path_prefix=prefix, condition=parse_condition(metadata))
    except InvalidInput:
        return
    assert found(library, filters, "hybrid") <= set(SHELF)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0.\"'\\`"), min_size=1, max_size=8),
    value=st.one_of(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
        st.integers(-(2**53), 2**53),
        st.booleans(),
    ),
)
def test_what_is_stored_in_the_metadata_is_found_by_it(library: Library, key: str, value: Any) -> None:
    stored = library.put("Flour and water.", title="found", metadata={key: value})
    filters = Filters(source_ids=(stored.uuid,), condition=parse_condition({"field": [key], "eq": value}))
    assert found(library, filters, "keyword") == {"found"}


def test_broken_metadata_in_the_file_matches_nothing(library: Library) -> None:
    with library.database.write() as connection:
        connection.execute("update sources set metadata = '{broken' where title = 'plain'")
    assert all(
        found(library, Filters(condition=parse_condition({"year": [2024, 2019]})), mode) == {"old"} for mode in MODES
    )
