"""Fusion: the documented numbers, the order of ties, and what is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmcp.index.fusion import Arms, fuse, keyword_score, rank, semantic_score
from localmcp.index.keyword import ABSENT, KeywordQuery, Term
from localmcp.index.search import DEMANDED_SHARE

SCORES = st.dictionaries(st.integers(1, 50), st.floats(-1, 1), max_size=30)
BM25 = st.dictionaries(st.integers(1, 50), st.floats(0.001, 40), max_size=30)


def test_the_worked_example_comes_out() -> None:
    (hit,) = fuse(Arms({7: 0.855 * 0.8}, {7: 9.23}), 10.0)
    assert hit.semantic == pytest.approx(85.5)
    assert hit.keyword == pytest.approx(92.3)
    assert hit.combined == pytest.approx(0.7 * 85.5 + 0.3 * 92.3) == pytest.approx(87.54)
    assert hit.match_type == "both"


def test_four_fifths_of_cosine_are_a_full_score_and_of_keywords_a_share_of_a_full_match() -> None:
    assert [semantic_score(cosine) for cosine in (-1.0, 0.0, 0.4, 0.8, 1.0)] == [0, 0, 50, 100, 100]
    assert [keyword_score(*scores) for scores in ((5.0, 10.0), (15.0, 10.0), (1.0, 0.0))] == [50, 100, 0]


def test_equal_scores_are_ordered_by_id_and_what_is_neither_near_nor_holds_a_word_is_left_out() -> None:
    assert [hit.id for hit in fuse(Arms({3: 0.5, 1: 0.5, 2: 0.5}), 1.0)] == [1, 2, 3]
    hits = fuse(Arms({1: 0.25, 2: 0.2499, 3: 0.1, 4: -0.3}, {3: 1.0}), 1.0)
    assert {hit.id: hit.match_type for hit in hits} == {1: "semantic_only", 3: "keyword_only"}


@given(cosines=SCORES, bm25=BM25, weight=st.floats(0, 1), bound=st.floats(0, 100))
def test_scores_stay_between_0_and_100_and_come_best_first(
    cosines: dict[int, float], bm25: dict[int, float], weight: float, bound: float
) -> None:
    hits = fuse(Arms(cosines, bm25), bound, weight)
    combined = [hit.combined for hit in hits]
    assert combined == sorted(combined, reverse=True)
    assert {hit.id for hit in hits} <= set(cosines)
    assert all(0 <= score <= 100.000001 for hit in hits for score in (hit.semantic, hit.keyword, hit.combined))


@pytest.mark.parametrize(("reads_all", "order"), [(True, [1, 2]), (False, [2, 1])])
def test_words_it_cannot_hold_do_not_put_a_passage_in_another_language_behind(reads_all: bool, order: list[int]):
    arms = Arms({1: 0.5, 2: 0.48, 3: 0.0}, {2: 3.0, 3: 6.0}, {1: 1, 2: 2}, {3: 1, 2: 2})
    arms.other_language, arms.reads_all = frozenset({1}), reads_all
    assert [hit.id for hit in rank(arms, "hybrid")] == [*order, 3]


@pytest.mark.parametrize(("missing", "order"), [(0, [2, 1]), (4, [1, 2])])
def test_the_best_hit_by_one_word_of_many_is_no_full_hit_where_the_model_reads_all(
    missing: int, order: list[int]
) -> None:
    arms = Arms({1: 0.5, 2: 0.35}, {2: 6.0}, {1: 1, 2: 2}, {2: 1}, reads_all=True)
    words = tuple((f"word{number}", ABSENT) for number in range(missing))
    query = KeywordQuery((Term("vertrag", ("vertrag",), 3, 4.0),), ("german",), words, missing_idf=6.0)
    assert [hit.id for hit in rank(arms, "hybrid", demanded=DEMANDED_SHARE * query.attainable)] == order
