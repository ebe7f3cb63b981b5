"""Spelling: slips are undone, correct words are left alone."""

from __future__ import annotations

import pytest

from localmcp.wording.spelling import WordList, correct, is_word, slip_cost

TEXTS = {"apartment", "advice", "could", "readline", "schutzen", "appartiene", "password", "washing", "anticipazione"}


def word_list(words: set[str]) -> WordList:
    return WordList(dict.fromkeys(words, 1))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("passwrod", "password"), ("apartmment", "apartment"), ("washng", "washing"), ("anticipazone", "anticipazione")],
)
def test_a_slip_of_the_fingers_is_undone(typed: str, meant: str) -> None:
    assert [correction.replacement for correction in correct(typed, word_list(TEXTS))] == [meant]


@pytest.mark.parametrize("word", ["advance", "cold", "deadline", "schuppen", "raincoat", "walnuts", "x509", "cat"])
def test_a_correct_word_that_is_in_no_text_stays(word: str) -> None:
    assert correct(word, word_list(TEXTS)) == []


def test_a_misspelled_word_is_not_taken_for_a_far_one_when_a_nearer_one_exists() -> None:
    assert correct("appartment", word_list(TEXTS - {"apartment"})) == []


def test_dictionary_words_are_known_alone_in_the_plural_and_joined() -> None:
    assert is_word("kettle")
    assert is_word("kettles")
    assert is_word("raincoat")
    assert not is_word("ketle")


def test_likely_slips_cost_less_than_unlikely_ones() -> None:
    assert slip_cost("honney", "honey") < slip_cost("hoeny", "honey") < slip_cost("hkney", "honey")
    assert slip_cost("honey", "honey") == 0
