"""Conditions on metadata: how they are read, what they mean, and that SQL means the same."""

from __future__ import annotations

import re
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmcp.errors import InvalidInput
from localmcp.index.filters import Condition, evaluate, parse_condition, sql_condition


def parsed(given: Any) -> Condition:
    condition = parse_condition(given)
    assert condition is not None
    return condition


def holds(given: Any, metadata: dict[str, Any]) -> bool:
    return evaluate(parsed(given), metadata)


class TestReading:
    def test_more_values_than_a_query_can_hold_are_refused(self) -> None:
        values = [str(number) for number in range(1000)]
        parsed({"and": [{"a": values}] * 10})
        with pytest.raises(InvalidInput, match="11,000 values"):
            parse_condition({"and": [{"a": values}] * 11})

    def test_the_short_form_joins_keys_and_the_long_one_names_the_field_whose_dots_a_list_keeps(self) -> None:
        short = {"lang": "it", "year": {"gte": 2020}, "kind": ["a", "b"]}
        fits = {"lang": "it", "year": 2020, "kind": "b"}
        assert holds(short, fits)
        assert not any(holds(short, fits | other) for other in ({"lang": "en"}, {"year": 2019}, {"kind": "c"}))
        long = {"or": [{"field": "year", "gte": 2020, "lt": 2025}, {"not": {"field": "lang", "in": ["it", "en"]}}]}
        assert [holds(long, {"lang": "it", "year": year}) for year in (2019, 2020, 2025)] == [False, True, False]
        assert holds(long, {"lang": "de"})
        assert holds({"author.name": "Ann"}, {"author": {"name": "Ann"}})
        assert holds({"field": ["v1.2"], "eq": 1}, {"v1.2": 1})

    @pytest.mark.parametrize("nothing", [None, {}])
    def test_nothing_is_no_condition(self, nothing: Any) -> None:
        assert parse_condition(nothing) is None

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ([], "filter: [] is not a condition"),
            ("lang", 'filter: "lang" is not a condition'),
            ({"and": []}, "filter.and: [] is not a list of conditions"),
            ({"or": {"lang": "it"}}, 'filter.or: {"lang": "it"} is not a list of conditions'),
            ({"and": [{"lang": "it"}, 5]}, "filter.and[1]: 5 is not a condition"),
            ({"year": {"ge": 1}}, "filter.year: 'ge' is not a comparison; use one of eq, in, gt, gte, lt, lte, prefix"),
            ({"year": {}}, "filter.year: '' is not a comparison"),
            ({"year": None}, "filter.year.eq: null cannot be compared; use text, a number, true or false"),
            ({"year": {"gt": True}}, "filter.year.gt: true cannot be compared; use a number or text"),
            ({"year": {"in": 3}}, "filter.year.in: 3 cannot be compared; use a list of 1 to 1000"),
            ({"year": []}, "filter.year.in"),
            ({"year": 1 << 70}, "filter.year.eq"),
            ({"lang": {"prefix": 3}}, "filter.lang.prefix: 3 cannot be compared; use text"),
            ({'a"b': 1}, "is not the name of a metadata field"),
            ({"": 1}, "is not the name of a metadata field"),
            ({"lang": "\ud800"}, "filter.lang.eq"),
            ({"and": [{"lang": "it"}] * 101}, "more than 100 comparisons"),
        ],
    )
    def test_what_cannot_be_read_is_told_with_its_place(self, wrong: Any, said: str) -> None:
        with pytest.raises(InvalidInput, match=re.escape(said)):
            parse_condition(wrong)

    def test_deep_nesting_is_refused(self) -> None:
        deep: dict[str, Any] = {"lang": "it"}
        for _ in range(2000):
            deep = {"not": deep}
        with pytest.raises(InvalidInput, match="deep"):
            parse_condition(deep)


class TestMeaning:
    def test_a_missing_field_fulfils_no_comparison_and_not_turns_that_round(self) -> None:
        for missing in ({}, {"year": None}, {"other": 1}):
            assert not holds({"year": {"gte": 2020}}, missing)
            assert holds({"not": {"year": {"gte": 2020}}}, missing)

    def test_types_are_never_converted(self) -> None:
        assert holds({"year": 2020}, {"year": 2020.0})
        for other in ("2020", True, [], {}, {"2020": 2020}):
            assert not holds({"year": 2020}, {"year": other})
        assert holds({"draft": True}, {"draft": True})
        assert not holds({"draft": True}, {"draft": 1})
        assert not holds({"count": 1}, {"count": True})
        assert not holds({"year": {"gt": "2"}}, {"year": 3})

    def test_equality_looks_into_arrays_and_ranges_do_not(self) -> None:
        tagged = {"tags": ["ai", 3, True], "scores": [5]}
        assert holds({"tags": "ai"}, tagged) and holds({"tags": [3]}, tagged) and holds({"tags": ["x", True]}, tagged)
        assert not holds({"tags": "a"}, tagged) and not holds({"tags": 1}, tagged)
        assert not holds({"scores": {"gt": 1}}, tagged) and not holds({"tags": {"prefix": "a"}}, tagged)

    def test_text_is_compared_exactly_by_code_points(self) -> None:
        assert holds({"city": {"prefix": "Pàd"}}, {"city": "Pàdova"})
        assert not holds({"city": {"prefix": "pàd"}}, {"city": "Pàdova"})
        assert holds({"city": {"prefix": "100%_"}}, {"city": "100%_sure"})
        assert not holds({"city": {"prefix": "100%"}}, {"city": "1000"})
        assert holds({"city": {"lt": "a"}}, {"city": "Z"})
        assert holds({"città.à": "è"}, {"città": {"à": "è"}})

    def test_and_or_not_are_what_they_say(self) -> None:
        either = {"or": [{"lang": "it"}, {"and": [{"year": {"gt": 2000}}, {"not": {"kind": "draft"}}]}]}
        assert holds(either, {"lang": "it"})
        assert holds(either, {"lang": "en", "year": 2001})
        assert not holds(either, {"lang": "en", "year": 2001, "kind": "draft"})

    def test_a_column_stands_in_only_where_the_metadata_have_no_such_key(self) -> None:
        connection = apsw.Connection(":memory:")
        fulfils, values = sql_condition(parsed({"title": "T"}), "data.metadata", {"title": "data.title"})
        for metadata, expected in (("{}", 1), ('{"title": "own"}', 0), ('{"title": null}', 0), ("broken", 1)):
            sql = f"select {fulfils} from (select :m as metadata, 'T' as title) as data"
            assert connection.execute(sql, {"m": metadata, **values}).get == expected


SCALARS = st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, -1.25, "", "a", "ab", "A", "è%_'"])
CONDITIONS = st.recursive(
    st.dictionaries(
        st.sampled_from(["a", "b", "a.b"]),
        SCALARS
        | st.lists(SCALARS, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from(["gt", "lte"]), st.integers(-5, 5) | st.just("a"), min_size=1)
        | st.just({"prefix": "a"}),
        min_size=1,
    ),
    lambda inner: (
        st.dictionaries(st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3), min_size=1)
        | st.builds(lambda part: {"not": part}, inner)
    ),
    max_leaves=6,
)
VALUES = st.none() | SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.just("b"), SCALARS)


@given(CONDITIONS, st.dictionaries(st.sampled_from(["a", "b"]), VALUES))
def test_a_condition_holds_or_its_opposite_does(condition: Any, metadata: dict[str, Any]) -> None:
    assert holds(condition, metadata) != holds({"not": condition}, metadata)
