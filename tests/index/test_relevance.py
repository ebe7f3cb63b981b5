"""Relevance means the same in every search, and the sentence that answers is marked."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from library import Library

from localmcp.index.fusion import Judge
from localmcp.index.keyword import LONGEST, MOST_READ, PART, sentence_parts, sentences
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


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("contract number", "Its contract number is TH-55-8013."),
        ("water pressure", "| E09 | Water pressure below 0.6 bar |"),
        ("which valve must be closed", "- Then close the grey valve."),
        ("when to reef", "Reef at 15 knots."),
        ("gyroscope tiller", "#include <gyroscope.h> // of the tiller"),
    ],
)
def test_the_sentence_row_or_list_item_that_answers_is_marked_rather_than_a_heading(
    library: Library, question: str, sentence: str
) -> None:
    library.put("# Reefing\n\nReef at 15 knots. Two turns of the boom are one reef.", title="Dinghies")
    library.put("The gyroscope module begins so.\n\n#include <gyroscope.h> // of the tiller\n", title="Autopilot")
    best = library.search(question).hits[0]
    assert best.highlight is not None
    assert best.passage.text.strip()[slice(*best.highlight)] == sentence


@pytest.mark.parametrize(
    ("question", "doubtful"),
    [
        ("TH-55-8013", False),
        ("boiler E77", True),
        ("firmware releases 4.1.3", False),
        ("firmware releases 4.1.2", True),
        ("recette de la soupe aux poireaux", True),
    ],
)
def test_only_what_holds_the_code_or_the_words_that_matter_is_no_doubtful_answer(
    library: Library, question: str, doubtful: bool
) -> None:
    library.put("Firmware releases: 4.2.0 fades scenes, 4.1.3 keeps the clock right.", title="Firmware")
    library.put("Le prix de la tarte est de 4 euros.", title="Marché")
    outcome = library.search(question)
    assert outcome.doubtful == doubtful and (max(hit.relevance for hit in outcome.hits) < 50) == doubtful


def test_a_passage_with_more_of_the_question_is_more_relevant(library: Library) -> None:
    whole = library.search("outdoor sensor not connected").hits[0]
    part = library.search("outdoor swimming lessons for beginners").hits[0]
    assert whole.relevance > 50 > part.relevance


READING = {"gas": 3.0, "reading": 4.0, "june": 3.0}


@pytest.mark.parametrize(
    ("judge", "weak", "strong"),
    [
        # A word shared by chance is not enough where the meaning is far.
        (Judge({"write": 4.0}), (0.05, {"write"}), (0.4, {"write"})),
        # The one word asked for is enough.
        (Judge({"meyer": 5.0}, is_one_word=True), (0.02, set[str]()), (0.02, {"meyer"})),
        # The number that was asked for must be there.
        (Judge({**READING, "2024": 5.0}), (0.45, {*READING}), (0.45, {*READING, "2024"})),
    ],
)
def test_meaning_and_the_words_that_matter_make_a_passage_relevant(
    judge: Judge, weak: tuple[float, set[str]], strong: tuple[float, set[str]]
) -> None:
    assert judge.relevance(*weak) < 50 <= judge.relevance(*strong)


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
