"""Relevance means the same in every search, and the sentence that answers is marked."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from library import Library

from localmcp.index.fusion import Judge
from localmcp.index.keyword import LONGEST, MOST_READ, PART, sentence_parts, sentences
from localmcp.index.search import Hit, SearchOutcome, SearchRequest
from localmcp.storage.database import Database

MANUAL = """The boiler is in the utility room. Its contract number is TH-55-8013.

| Code | Meaning |
| --- | --- |
| E09 | Water pressure below 0.6 bar |
| E27 | Outdoor sensor not connected |

- Bleed the radiators first.
- Then close the grey valve.
"""


@pytest.fixture
def library(database: Database) -> Library:
    library = Library(database, None)
    library.put(MANUAL, title="Boiler")
    for number in range(12):
        library.put(f"Page {number} of the garden diary: carrots, peas and onions were sown.", title=f"Diary {number}")
    return library


def search(library: Library, text: str) -> SearchOutcome:
    return library.index.search(SearchRequest(text, "keyword"))


def marked(hit: Hit) -> str:
    assert hit.highlight is not None
    start, stop = hit.highlight
    return hit.passage.text.strip()[start:stop]


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("contract number", "Its contract number is TH-55-8013."),
        ("water pressure", "| E09 | Water pressure below 0.6 bar |"),
        ("which valve must be closed", "- Then close the grey valve."),
    ],
)
def test_the_sentence_row_or_list_item_that_answers_is_marked(library: Library, question: str, sentence: str) -> None:
    assert marked(search(library, question).hits[0]) == sentence


def test_a_sentence_is_marked_rather_than_the_heading_above_it(library: Library) -> None:
    library.put("# Reefing\n\nReef at 15 knots. Two turns of the boom are one reef.", title="Dinghies")
    assert marked(search(library, "when to reef").hits[0]) == "Reef at 15 knots."


def test_a_directive_of_a_program_is_no_heading(library: Library) -> None:
    library.put("The gyroscope module begins so.\n\n#include <gyroscope.h> // of the tiller\n", title="Autopilot")
    assert marked(search(library, "gyroscope tiller").hits[0]).startswith("#include")


def test_a_rare_exact_code_is_relevant_beyond_doubt(library: Library) -> None:
    outcome = search(library, "TH-55-8013")
    assert outcome.hits[0].relevance > 85
    assert not outcome.doubtful


def test_a_question_about_a_code_that_is_nowhere_is_doubtful(library: Library) -> None:
    outcome = search(library, "boiler E77")
    assert outcome.hits
    assert max(hit.relevance for hit in outcome.hits) < 50
    assert outcome.doubtful


def test_a_version_between_two_that_are_there_is_doubtful(library: Library) -> None:
    library.put("Firmware releases: 4.2.0 fades scenes, 4.1.3 keeps the clock right.", title="Firmware")
    assert not search(library, "firmware releases 4.1.3").doubtful
    assert search(library, "firmware releases 4.1.2").doubtful


def test_a_passage_with_more_of_the_question_is_more_relevant(library: Library) -> None:
    whole = search(library, "outdoor sensor not connected").hits[0]
    part = search(library, "outdoor swimming lessons for beginners").hits[0]
    assert whole.relevance > 50 > part.relevance


def test_a_word_shared_by_chance_does_not_make_a_passage_relevant_that_is_far_in_meaning() -> None:
    judge = Judge({"write": 4.0})
    assert judge.relevance(0.05, ["write"]) < 50 < judge.relevance(0.4, ["write"])


def test_a_passage_that_holds_the_one_word_asked_for_is_no_doubtful_answer() -> None:
    name = Judge({"meyer": 5.0}, is_one_word=True)
    assert name.relevance(0.02, {"meyer"}) >= 50 > name.relevance(0.02, set())


def test_a_passage_without_the_number_that_was_asked_for_is_less_relevant() -> None:
    judge = Judge({"gas": 3.0, "reading": 4.0, "june": 3.0, "2024": 5.0})
    lacking = judge.relevance(0.45, ["gas", "reading", "june"])
    assert lacking < 50 < Judge({"gas": 3.0, "reading": 4.0, "june": 3.0}).relevance(0.45, ["gas", "reading", "june"])


def test_function_words_of_another_language_say_nothing(library: Library) -> None:
    library.put("Le prix de la tarte est de 4 euros.", title="Marché")
    outcome = search(library, "recette de la soupe aux poireaux")
    assert outcome.doubtful


def test_sentences_keep_numbers_and_cover_the_text() -> None:
    text = "Version 3.11.7 is out. Install it.\n\nThen restart!"
    assert [text[start:stop] for start, stop in sentences(text)] == [
        "Version 3.11.7 is out.", "Install it.", "Then restart!",
    ]  # fmt: skip


@given(
    st.lists(st.sampled_from(["word ", "line\n", "end. ", "x" * 90, " " * 50, "\n\n", "\u6d17\u8863"]), max_size=400)
)
def test_parts_of_sentences_follow_each_other_and_are_short(pieces: list[str]) -> None:
    text = "".join(pieces)
    parts = list(sentence_parts(text))
    assert all(start < stop for start, stop in parts) and all(a[1] <= b[0] for a, b in pairwise(parts))
    assert all(stop - start <= LONGEST for start, stop in parts)
    if all(stop - start <= MOST_READ for start, stop in sentences(text)):
        assert "".join("".join(text[slice(*part)] for part in parts).split()) == "".join(text.split())


def test_a_sentence_of_a_megabyte_is_read_at_its_beginning_only() -> None:
    parts = list(sentence_parts("word " * 400_000))
    assert len(parts) <= MOST_READ // (PART // 2) and parts[-1][1] <= MOST_READ
