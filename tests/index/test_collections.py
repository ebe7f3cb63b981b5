"""Collections: made once, seen only inside the scope, bound to one model."""

from __future__ import annotations

import pytest

from localmcp.errors import InvalidInput, NotFound
from localmcp.index.collections import (
    choose_collections,
    ensure_collection,
    ensure_partition,
    visible_collections,
)
from localmcp.storage.database import Database
from localmcp.tools import Scope, use_scope


@pytest.fixture
def filled(database: Database) -> Database:
    with database.write() as connection:
        for name in ("work", "Cooking", "secret plans"):
            ensure_collection(connection, name)
    return database


def test_a_collection_is_made_once_whatever_its_case_and_not_under_a_name_of_another_kind(database: Database) -> None:
    with database.write() as connection:
        first = ensure_collection(connection, "Work")
        assert ensure_collection(connection, "work") == first
        ensure_collection(connection, "tools", kind="retriever")
        assert [each.name for each in visible_collections(connection)] == ["Work"]
        with pytest.raises(InvalidInput, match="taken"):
            ensure_collection(connection, "tools")


@pytest.mark.parametrize(
    "name", ["", "  ", "a\nb", "x" * 101, "nul\0", "\ud800", "\u202e", " work", "work ", "mount:bees", "Mount:bees"]
)
def test_a_name_that_cannot_be_shown_or_that_a_search_would_take_for_another_is_refused(
    database: Database, name: str
) -> None:
    with database.write() as connection, pytest.raises(InvalidInput, match="collection|space|mounted"):
        ensure_collection(connection, name)


def test_the_scope_decides_what_is_visible_and_a_name_is_found_in_any_case_and_once(filled: Database) -> None:
    def chosen(*names: str) -> list[str]:
        return [each.name for each in choose_collections(connection, [*names] or None)]

    with filled.read() as connection:
        assert chosen() == ["Cooking", "secret plans", "work"]
        assert chosen("COOKING", "work", "COOKING") == ["Cooking", "work"]
        with use_scope(Scope(collections=frozenset({"work"}))):
            assert chosen() == ["work"]
        with use_scope(Scope(collections=frozenset())):
            assert chosen() == []


def test_a_scope_makes_and_opens_only_its_own_collections_and_the_case_of_a_name_opens_no_door(
    filled: Database,
) -> None:
    for visible in ({"work"}, {"SECRET PLANS", "WORK", "Cooking"}):
        scope = Scope(collections=frozenset(visible))
        for name in ("secret plans", "SECRET PLANS", "new one"):
            with filled.write() as connection, use_scope(scope), pytest.raises(NotFound):
                ensure_collection(connection, name)
    with filled.write() as connection, use_scope(Scope(collections=frozenset({"Cooking"}))):
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
