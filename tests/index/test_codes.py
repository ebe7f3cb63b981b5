"""What is written with signs or in several spellings is found by any of them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from library import Library

from localmcp.index.search import SearchOutcome
from localmcp.storage.database import Database
from localmcp.wording.normalize import find_codes

TEXTS = {
    "C++": "C++ is a compiled language; C++23 is its last edition.",
    "C#": "C# runs on the common language runtime.",
    "C": "C is a small language. The letter C is everywhere, and net income too.",
    ".NET": "The .NET platform has a garbage collector.",
    "party": "We will meet at eight 🎉 bring cake.",
    "Hamlet": "To be, or not to be, that is the question.",
    "not": "It is not to be used by children, or to be left in the sun. Not that it matters.",
    "flags": "Run the tool with -v for more output and --quiet for none.",
    "v": "v is a letter. Verbose text has many words, v among them, and quiet people.",
    "law": "§ 5 The tenant pays the rent. § 6 The deposit is three rents.",
    "five": "5 apples and 6 pears, 5 plums.",
    "account": "Please transfer to DE89 3704 0044 0532 0130 00 by Friday.",
    "account in one": "Account GB29NWBK60161331926819 belongs to the club.",
    "bill": "The amount due is 1,250.00 EUR for the roof.",
    "windows": "Total 3480 EUR for windows.",
    "oil": "Das Öl wird jedes Jahr gewechselt und die Straße gesperrt.",
    "saw": "Die Saege braucht neues Fett, das ist nicht teuer.",
    "plumber": "Call the plumber at +49 (0) 30 123456-78 after five.",
    "office": "The office answers on 555-0199.",
    "cat": "The jaguar is a cat of the rain forest.",
    "car": "The Jaguar is a car with a straight six engine.",
}


@pytest.fixture
def library(database: Database) -> Library:
    library = Library(database, None)
    for number, (title, text) in enumerate(TEXTS.items()):
        language = "german" if title in ("oil", "saw") else "english"
        library.put(text, title=f"Note {number}", language=language)
    return library


def titles(outcome: SearchOutcome) -> list[str]:
    return [[*TEXTS][int(hit.passage.title.removeprefix("Note "))] for hit in outcome.hits]


def test_any_spelling_finds_it_first_and_without_doubt(library: Library) -> None:
    for question, title in (
        ("C++", "C++"), ("c++23", "C++"), ("C#", "C#"), (".NET", ".NET"), ("🎉", "party"), ("-v", "flags"),
        ("--quiet", "flags"), ("§ 5", "law"), ("§6", "law"), ("DE89370400440532013000", "account"),
        ("GB29 NWBK 6016 1331 9268 19", "account in one"), ("1250", "bill"), ("1.250,00", "bill"),
        ("1,250", "bill"), ("3,480.00", "windows"), ("Oel", "oil"), ("Strasse", "oil"), ("Säge", "saw"),
        ("030/12345678", "plumber"), ("+493012345678", "plumber"), ("5550199", "office"),
    ):  # fmt: skip
        outcome = library.search(question)
        assert titles(outcome)[0] == title and not outcome.doubtful, question


def test_quoted_words_are_looked_for_side_by_side_first(library: Library) -> None:
    quoted = library.search('"to be or not to be"')
    assert titles(quoted)[0] == "Hamlet" and not quoted.doubtful
    assert titles(library.search('"garbage that is collected"'))[0] == ".NET"


def test_a_word_with_a_minus_leaves_passages_out_and_the_answer_says_so(library: Library) -> None:
    outcome = library.search("jaguar -car")
    assert titles(outcome) == ["cat"] and outcome.notices == ["Left out: passages with car."]


@pytest.mark.parametrize("text", ["2026-03-14", "01/02/2021", "CVE-2024-1234", "3.11.7", "in 2019 2020", "well-known"])
def test_dates_versions_and_words_are_no_codes(text: str) -> None:
    assert find_codes(text) == []


@given(st.text(st.sampled_from("a1 0.,'+#§-()/Z🎉"), max_size=400))
def test_any_text_is_read_and_codes_do_not_run_into_each_other_without_end(text: str) -> None:
    assert all(0 <= code.start < code.stop <= len(text) and code.word for code in find_codes(text))


@pytest.mark.parametrize("sign", ["§", "1,111", "0 ", "((", "+1", "--a", "C#", ".a", "aa11 ", "1'", "🎉"])
def test_a_long_row_of_one_sign_is_read_at_once(sign: str) -> None:
    start = time.process_time()
    find_codes(sign * (300_000 // len(sign)))
    assert time.process_time() - start < 5
