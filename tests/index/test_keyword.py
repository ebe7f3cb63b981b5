"""The keyword arm: every query is literal, bounded, repaired in the open, and blind to what the caller may not see."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library import Library

from localmcp.index import keyword as keyword_module
from localmcp.index.filters import Filters
from localmcp.index.keyword import KeywordQuery
from localmcp.index.search import SearchOutcome
from localmcp.storage.database import Database
from localmcp.tools import Scope, use_scope
from localmcp.wording.normalize import detect_language


@pytest.fixture
def library(database: Database) -> Library:
    return Library(database, None)


def titles(outcome: SearchOutcome) -> list[str]:
    return [hit.passage.title for hit in outcome.hits]


def query_of(outcome: SearchOutcome) -> KeywordQuery:
    assert outcome.query is not None
    return outcome.query


def searched(outcome: SearchOutcome) -> list[str]:
    return [term.word for term in query_of(outcome).terms]


# ---------------------------------------------------------------- literal


@pytest.mark.parametrize(
    "text",
    [
        'apple AND "pear', "apple OR NOT pear", "NEAR(apple pear, 2)", "title : apple", "{title text} : apple",
        "-apple", "apple*", "^apple", "apple + pear", "(apple", "apple)", '"', '""""', "apple'; drop table chunks; --",
        "apple\0pear", "\ud800 apple", "apple\\", "* - ^ :",
    ],
)  # fmt: skip
def test_the_syntax_of_fts5_is_plain_text(library: Library, text: str) -> None:
    library.put("An apple a day.", title="Fruit")
    outcome = library.search(text)
    assert titles(outcome) == (["Fruit"] if "apple" in text else [])


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_no_text_breaks_the_query_and_a_text_is_found_by_its_own_words(library: Library, text: str) -> None:
    stored = library.put(text.replace("\0", " "), language="english", paragraphs=True)
    outcome = library.search(text, filters=Filters(source_ids=(stored.uuid,)))
    assert bool(outcome.total) == bool(query_of(outcome).terms)


# ---------------------------------------------------------------- what is searched for


@pytest.fixture
def manual(library: Library) -> Library:
    for number in range(100):
        library.put(f"The pump is in the house number{number}.", title=f"House {number}")
    library.put("The valve of the boiler.", title="Boiler")
    return library


def test_stop_words_are_dropped_beside_others_and_words_that_stand_nowhere_make_an_answer_less_likely(
    manual: Library,
) -> None:
    outcome = manual.search("where is the boiler")
    assert (titles(outcome), searched(outcome)) == (["Boiler"], ["boiler"])
    assert ("the", "stop word") in query_of(outcome).dropped
    alone = manual.search("the is in")
    assert (len(alone.hits), query_of(alone).dropped) == (20, ())
    whole, partial = manual.search("pump"), manual.search("pump zzyzx qwrtz xkcdq")
    assert ("zzyzx", "in no passage") in query_of(partial).dropped
    assert partial.hits[0].relevance < whole.hits[0].relevance


def test_stop_words_are_counted_where_the_caller_may_look(library: Library) -> None:
    for number in range(60):
        library.put(f"Ledger entry number{number}.", title="Ledger", collection="accounts")
    for number in range(5):
        library.put(f"It is the kettle number{number}.", title=f"Kettle {number}", collection="kitchen")
    library.put("Copper pan.", title="Pan", collection="kitchen")
    with use_scope(Scope(collections=frozenset({"kitchen"}))):
        outcome = library.search("the copper pan")
    assert titles(outcome) == ["Pan"]


def test_beyond_the_budget_a_passage_needs_a_rarer_word_and_the_most_frequent_ones_count_too(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword_module, "POSTINGS_BUDGET", 50)
    monkeypatch.setattr(keyword_module, "POSTINGS_A_WORD", 0)
    for number in range(60):
        library.put(f"The pump of the house, number{number}.", title="House")
    library.put("A boiler for the cellar.", title="Cellar")
    library.put("A boiler with its pump.", title="Both")
    for number in range(3):
        library.put(f"A boiler of the shop, number{number}.", title="Shop")
    outcome = library.search("pump boiler")
    assert titles(outcome)[0] == "Both" and "House" not in titles(outcome)
    assert (searched(outcome), query_of(outcome).dropped) == (["pump", "boiler"], ())
    only_frequent = library.search("pump house")
    assert len(only_frequent.hits) == 20


def test_scores_do_not_depend_on_the_budget_where_a_passage_has_a_rare_word(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        library.put(f"The pump of the house, number{number}.", title="House")
    library.put("A boiler with its pump, and another boiler.", title="Both")
    [whole, *_] = library.search("pump boiler").hits
    monkeypatch.setattr(keyword_module, "POSTINGS_BUDGET", 5)
    monkeypatch.setattr(keyword_module, "POSTINGS_A_WORD", 0)
    [within_budget] = library.search("pump boiler").hits
    assert within_budget.passage == whole.passage
    assert within_budget.bm25 == pytest.approx(whole.bm25)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("valve " + "filler " * 5000 + "boiler", ["valve"]),
        ("I would be glad for any tip on how long such things keep. " * 12 + "boiler", ["boiler"]),
        ("pump " * 500, ["pump"] * 8),
    ],
)
def test_of_a_very_long_text_the_first_words_and_of_a_long_question_all_are_searched(
    manual: Library, text: str, words: list[str]
) -> None:
    outcome = manual.search(text)
    assert outcome.hits and searched(outcome) == words


def test_a_german_word_finds_the_compounds_that_begin_with_it(library: Library) -> None:
    library.put("Die Kündigungsfristen stehen im Vertrag mit der Firma.", title="Vertrag", language="german")
    library.put("Die Firma schickt eine Rechnung und einen Brief.", title="Rechnung", language="german")
    outcome = library.search("Wie lange dauert eine Kündigung bei der Firma?")
    assert titles(outcome)[0] == "Vertrag"
    assert outcome.hits[0].matched == ["kundigung", "firma"]


@pytest.mark.parametrize(
    ("text", "question", "sentence"),
    [
        (
            "هل يولد الناس متساوين؟ يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ فِي الْكَرَامَةِ وَالْحُقُوقِ.",
            "الكرامة والحقوق",
            "يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ فِي الْكَرَامَةِ وَالْحُقُوقِ.",
        ),
        (
            "וְהָאָרֶץ הָיְתָה תֹהוּ וָבֹהוּ. בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ.",
            "בראשית השמים",
            "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ.",
        ),
    ],
)
def test_vocalized_text_from_right_to_left_is_found_by_plain_words(
    library: Library, text: str, question: str, sentence: str
) -> None:
    library.put(text, language=detect_language(text))
    [hit] = library.search(question).hits
    assert hit.highlight is not None
    assert text[slice(*hit.highlight)] == sentence


Texts = dict[str, str | tuple[str, str]]
"""Titles with texts, and with the languages of those that are not English."""


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        # Operators of FTS5 and its columns are words.
        (
            {"And": "Something and something.", "Near": "Something near it.", "Title": "It has a title and a rank."},
            {"and": ["And", "Title"], "NEAR": ["Near"], "title": ["Title"], "rank": ["Title"], "rowid": []},
        ),
        # Codes are matched side by side.
        (
            {"Right": "Fixed in 3.11.7 for all.", "Scattered": "The numbers 7, 11 and 3.", "CVE": "CVE-2024-1234."},
            {"3.11.7": ["Right"], "cve-2024-1234": ["CVE"], "CVE-2024-9999": []},
        ),
        # A version is found with and without its leading v.
        (
            {"With": "Release notes of v1.5.4.", "Without": "Release notes of 2.7.1."},
            {"notes 1.5.4": ["With", "Without"], "v2.7.1": ["Without"], "v2.7.3": []},
        ),
        # Identifiers are found whole and by their parts.
        (
            {"Code": "def getUserName(self): return self.max_results", "Prose": "Nothing here."},
            dict.fromkeys(("getUserName", "getusername", "user name", "max_results", "maxresults"), ["Code"]),
        ),
        # A repeated word weighs more.
        (
            {"Apple": "apple filler filler", "Plums": "plums filler filler"},
            {"plums apple apple": ["Apple", "Plums"], "plums plums apple": ["Plums", "Apple"]},
        ),
        # A word in the title weighs more.
        (
            {"Something": "The text speaks of bread once.", "Bread": "The text speaks of it once more."},
            {"bread": ["Bread", "Something"]},
        ),
        # A passage beside another that matches comes before a lucky one.
        (
            {"Lucky": "Rye in a vase.\n\nA chair is in the hall.", "Recipe": "Rye in a jar.\n\nRye on a plate."},
            {"rye": ["Recipe", "Recipe", "Lucky"]},
        ),
        # A rare stop word stays.
        ({"Hamlet": "To be or not to be."}, {"to be or not to be": ["Hamlet"]}),
        # Words meet across case, accents and endings.
        (
            {
                "Deutsch": ("Die Universität prüft alle Anträge der Studenten und die Häuser.", "german"),
                "Italiano": ("La città è bella e le università sono antiche.", "italian"),
            },
            {"CITTA": ["Italiano"], "haus universitat": ["Deutsch"]},
        ),
        # Letters of few alphabets meet those on every keyboard.
        (
            {
                "Polski": ("Muzeum w Łodzi pokazuje film.", "polish"),
                "Dansk": ("Opskrift på rødgrød med fløde.", "danish"),
                "English": "The museum of Lodz shows a film.",
            },
            {"Lodzi": ["Polski"], "Łodz": ["English"], "rodgrod flode": ["Dansk"]},
        ),
        # An undecided query is read in every language of the collection.
        (
            {"Italiano": ("I fondi pensione pagano.", "italian"), "English": "The pension funds pay advances."},
            {"fondi funds": ["Italiano", "English"]},
        ),
        # Scripts without spaces are found inside a run.
        ({"Weather": "東京都の天気は晴れです。", "Shop": "京東の店。"}, {"東京": ["Weather"]}),
    ],
)
def test_words_are_found_as_people_write_them(library: Library, texts: Texts, found: dict[str, list[str]]) -> None:
    for title, written in texts.items():
        text, language = written if isinstance(written, tuple) else (written, None)
        library.put(text, title=title, language=language, paragraphs=True)
    for number in range(20):
        library.put(f"The filler number{number} is here.", title="Other")
    assert {query: titles(library.search(query)) for query in found} == found


# ---------------------------------------------------------------- repairs


@pytest.mark.parametrize(
    ("word", "found"), [("li", []), ("lo0n", []), ("zzzzzzzz", []), ("1234", []), ("loon", ["Loon"])]
)
def test_short_words_codes_far_words_and_those_that_stand_somewhere_are_not_repaired(
    library: Library, word: str, found: list[str]
) -> None:
    library.put("The lion sleeps, 1235.", title="Lion")
    library.put("The loon calls.", title="Loon")
    outcome = library.search(word)
    assert (titles(outcome), query_of(outcome).repairs) == (found, [])


def test_a_repaired_word_weighs_less_than_an_exact_one(library: Library) -> None:
    library.put("gardens filler filler", title="Exact")
    library.put("markets filler filler", title="Repaired")
    for number in range(20):
        library.put(f"filler number{number} filler", title="Other")
    outcome = library.search("markest gardens")
    assert titles(outcome) == ["Exact", "Repaired"]
    exact, repaired = (hit.bm25 for hit in outcome.hits)
    assert repaired == pytest.approx(keyword_module.REPAIR_WEIGHT * exact)


def test_a_restored_scope_sees_repairs_of_its_own_words_only(library: Library) -> None:
    library.put("The marmalade jar.", title="Jar", collection="public")
    library.put("The marmelade contract.", title="Contract", collection="secret")
    with use_scope(Scope(collections=frozenset({"public"}))):
        outcome = library.search("marmelade")
    assert titles(outcome) == ["Jar"]
    assert [r.replacement for r in query_of(outcome).repairs] == ["marmalade"]


def test_repairs_follow_what_is_added_and_removed(library: Library) -> None:
    stored = library.put("Elderflower syrup.", title="Syrup")
    assert titles(library.search("elderflowr")) == ["Syrup"]
    library.put("Quince jelly.", title="Syrup", replaces=stored.source_id)
    assert titles(library.search("elderflowr")) == []
    assert titles(library.search("quicne")) == ["Syrup"]


def test_a_long_passage_with_the_term_as_often_is_hardly_behind_a_short_one(library: Library) -> None:
    library.put("Elderflower grows here.", title="Short")
    library.put("Elderflower grows here. " + "The garden lies behind the old mill. " * 8, title="Long")
    for number in range(20):
        library.put("A note on something else that is of middling length, nothing more.", title=f"Note {number}")
    short, long = library.search("elderflower").hits
    assert (short.passage.title, long.passage.title) == ("Short", "Long")
    assert long.bm25 > 0.4 * short.bm25  # by the length correction of FTS5 alone: 0.32
