"""Collections: made once, seen only inside the scope, bound to one model."""

from __future__ import annotations

import pytest

from localmcp.errors import InvalidInput, ModelMismatch, NotFound
from localmcp.index.collections import (
    choose_collections,
    claim_collection,
    ensure_collection,
    ensure_model,
    ensure_partition,
    find_model,
    visible_collections,
)
from localmcp.models import HashEmbedder
from localmcp.storage.database import Database, fetch_all
from localmcp.tools import Scope, use_scope


def only(*names: str) -> Scope:
    return Scope(collections=frozenset(names))


@pytest.fixture
def filled(database: Database) -> Database:
    with database.write() as connection:
        for name in ("work", "Cooking", "secret plans"):
            ensure_collection(connection, name)
    return database


def test_a_collection_is_made_once_whatever_its_case(database: Database) -> None:
    with database.write() as connection:
        first = ensure_collection(connection, "Work")
        assert ensure_collection(connection, "work") == first
        assert [each.name for each in visible_collections(connection)] == ["Work"]


@pytest.mark.parametrize(
    "name", ["", "  ", "a\nb", "x" * 101, "nul\0", "\ud800", "\u202e", " work", "work ", "mount:bees", "Mount:bees"]
)
def test_a_name_that_cannot_be_shown_or_that_a_search_would_take_for_another_is_refused(
    database: Database, name: str
) -> None:
    with database.write() as connection, pytest.raises(InvalidInput, match="collection|space|mounted"):
        ensure_collection(connection, name)


def test_a_name_taken_by_another_kind_is_refused(database: Database) -> None:
    with database.write() as connection:
        ensure_collection(connection, "tools", kind="retriever")
        assert visible_collections(connection) == []
        with pytest.raises(InvalidInput, match="taken"):
            ensure_collection(connection, "tools")


def test_the_scope_decides_what_is_visible(filled: Database) -> None:
    with filled.read() as connection:
        assert [each.name for each in choose_collections(connection, None)] == ["Cooking", "secret plans", "work"]
        with use_scope(only("work")):
            assert [each.name for each in choose_collections(connection, None)] == ["work"]
        with use_scope(only()):
            assert choose_collections(connection, None) == []


def test_a_name_is_found_in_any_case_and_once(filled: Database) -> None:
    with filled.read() as connection:
        found = choose_collections(connection, ["COOKING", "work", "COOKING"])
    assert [each.name for each in found] == ["Cooking", "work"]


def test_a_scope_makes_and_opens_only_its_own_collections_and_the_case_of_a_name_opens_no_door(
    filled: Database,
) -> None:
    for scope in (only("work"), only("SECRET PLANS", "WORK", "Cooking")):
        for name in ("secret plans", "SECRET PLANS", "new one"):
            with filled.write() as connection, use_scope(scope), pytest.raises(NotFound):
                ensure_collection(connection, name)
    with filled.write() as connection, use_scope(only("Cooking")):
        assert ensure_collection(connection, "cooking").name == "Cooking"


def test_partitions_belong_to_their_collection(filled: Database) -> None:
    with filled.write() as connection:
        work, cooking = (choose_collections(connection, [name])[0] for name in ("work", "cooking"))
        assert ensure_partition(connection, work, None) is None
        first = ensure_partition(connection, work, "2024")
        assert ensure_partition(connection, work, "2024") == first
        assert ensure_partition(connection, cooking, "2024") != first
        with pytest.raises(InvalidInput, match="partition"):
            ensure_partition(connection, work, "")


def test_a_collection_is_bound_to_the_first_model_that_claims_it(filled: Database) -> None:
    with filled.write() as connection:
        small, large = HashEmbedder(64).identity, HashEmbedder(128).identity
        assert find_model(connection, small) is None
        model_id = ensure_model(connection, small)
        assert ensure_model(connection, small) == model_id == find_model(connection, small)
        work = choose_collections(connection, ["work"])[0]
        assert claim_collection(connection, work, model_id).model_id == model_id
        assert claim_collection(connection, work, model_id).model_id == model_id
        with pytest.raises(ModelMismatch, match="'work' holds vectors of 'hash'"):
            claim_collection(connection, work, ensure_model(connection, large))
        assert fetch_all(connection, "select model_id from collections where name = 'work'") == [(model_id,)]
