"""The keyword arm: every query is literal, bounded, repaired in the open, and blind to what the caller may not see."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from library import Library

from localmcp.index import keyword as keyword_module
from localmcp.index.collections import choose_collections
from localmcp.index.keyword import KeywordQuery, Vocabulary, build_query, match_expression, search_words
from localmcp.index.search import Index, SearchOutcome, SearchRequest
from localmcp.storage.database import Database, fetch_one, read_generations
from localmcp.tools import Scope, use_scope
from localmcp.wording.normalize import detect_language


@pytest.fixture
def library(database: Database) -> Library:
    return Library(database, None)


def search(index: Index, text: str, **options: Any) -> SearchOutcome:
    return index.search(SearchRequest(text, mode="keyword", limit=20, **options))


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
    outcome = search(library.index, text)
    assert titles(outcome) == (["Fruit"] if "apple" in text else [])


@pytest.mark.parametrize("word", ["and", "or", "not", "near", "NEAR", "rowid", "rank", "title"])
def test_operators_and_columns_are_found_as_words(library: Library, word: str) -> None:
    library.put(f"Something {word} something else.", title="It")
    library.put("Nothing of that kind.", title="Other")
    assert titles(search(library.index, word)) == ["It"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60))
def test_no_text_breaks_the_query(library: Library, text: str) -> None:
    if fetch_count(library.database) == 0:
        library.put("Apples and pears, AND plums. “Quoted” — ½ ﬁve naïve 東京 0.5 a_b aB", title="Fruit")
    assert search(library.index, text).total <= 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_a_text_is_found_by_its_own_words(library: Library, text: str) -> None:
    text = text.replace("\0", " ")
    if not text.strip():
        return
    stored = library.put(text, title="t", language="english", paragraphs=True)
    with library.database.read() as connection:
        place = choose_collections(connection, None)[0]
        query = build_query(connection, text, [place.id], Vocabulary(), read_generations(connection).content)
        if not query.terms:
            return
        sql = """
            select count(*) from chunks_fts
            where chunks_fts match ? and rowid in (select id from chunks where source_id = ?)
        """
        assert fetch_one(connection, sql, (match_expression(query.terms), stored.source_id)) > 0


def test_a_word_that_is_repeated_hundreds_of_times_costs_no_more_than_a_few(library: Library) -> None:
    library.put("A row of 0 and 0.", language="english")
    with library.database.read() as connection:
        place = choose_collections(connection, None)[0]
        query = build_query(connection, "0 " * 500, [place.id], Vocabulary(), read_generations(connection).content)
    assert [term.word for term in query.terms] == ["0"] * 8


def fetch_count(database: Database) -> int:
    with database.read() as connection:
        return fetch_one(connection, "select count(*) from sources")


# ---------------------------------------------------------------- what is searched for


@pytest.fixture
def manual(library: Library) -> Index:
    for number in range(100):
        library.put(f"The pump is in the house number{number}.", title=f"House {number}")
    library.put("The valve of the boiler.", title="Boiler")
    return library.index


def test_a_word_that_stands_nowhere_is_shown_and_keeps_a_hit_from_being_a_likely_answer(manual: Index) -> None:
    whole, partial = search(manual, "pump"), search(manual, "pump zzyzx qwrtz xkcdq")
    assert ("zzyzx", "in no passage") in query_of(partial).dropped
    assert partial.hits[0].relevance < whole.hits[0].relevance


def test_frequent_stop_words_are_dropped_and_shown(manual: Index) -> None:
    outcome = search(manual, "where is the boiler")
    assert titles(outcome) == ["Boiler"]
    assert ("the", "stop word") in query_of(outcome).dropped
    assert searched(outcome) == ["boiler"]


def test_a_rare_stop_word_stays(library: Library) -> None:
    for number in range(100):
        library.put(f"Record number{number}.", title="Records")
    library.put("To be or not to be.", title="Hamlet")
    assert titles(search(library.index, "to be or not to be")) == ["Hamlet"]


def test_a_query_of_stop_words_alone_is_searched_as_it_is(manual: Index) -> None:
    outcome = search(manual, "the is in")
    assert len(outcome.hits) == 20
    assert query_of(outcome).dropped == ()


def test_stop_words_are_counted_where_the_caller_may_look(library: Library) -> None:
    for number in range(60):
        library.put(f"Ledger entry number{number}.", title="Ledger", collection="accounts")
    for number in range(5):
        library.put(f"It is the kettle number{number}.", title=f"Kettle {number}", collection="kitchen")
    library.put("Copper pan.", title="Pan", collection="kitchen")
    with use_scope(Scope(collections=frozenset({"kitchen"}))):
        outcome = search(library.index, "the copper pan")
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
    outcome = search(library.index, "pump boiler")
    assert titles(outcome)[0] == "Both" and "House" not in titles(outcome)
    assert (searched(outcome), query_of(outcome).dropped) == (["pump", "boiler"], ())
    only_frequent = search(library.index, "pump house")
    assert len(only_frequent.hits) == 20


def test_scores_do_not_depend_on_the_budget_where_a_passage_has_a_rare_word(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        library.put(f"The pump of the house, number{number}.", title="House")
    library.put("A boiler with its pump, and another boiler.", title="Both")
    [whole, *_] = search(library.index, "pump boiler").hits
    monkeypatch.setattr(keyword_module, "POSTINGS_BUDGET", 5)
    monkeypatch.setattr(keyword_module, "POSTINGS_A_WORD", 0)
    [within_budget] = search(library.index, "pump boiler").hits
    assert within_budget.passage == whole.passage
    assert within_budget.bm25 == pytest.approx(whole.bm25)


def test_a_long_text_is_searched_by_its_first_words(manual: Index) -> None:
    outcome = search(manual, "valve " + "filler " * 5000 + "boiler")
    assert titles(outcome) == ["Boiler"]
    assert searched(outcome) == ["valve"]


def test_codes_are_matched_side_by_side(library: Library) -> None:
    library.put("Fixed in 3.11.7 for everybody.", title="Right")
    library.put("The numbers 7, 11 and 3 in another order.", title="Scattered")
    library.put("See CVE-2024-1234 for more.", title="Advisory")
    assert titles(search(library.index, "3.11.7")) == ["Right"]
    assert titles(search(library.index, "cve-2024-1234")) == ["Advisory"]
    assert titles(search(library.index, "CVE-2024-9999")) == []


def test_a_version_is_found_with_and_without_its_leading_v(library: Library) -> None:
    library.put("Release notes of v1.5.4.", title="With")
    library.put("Release notes of 2.7.1.", title="Without")
    assert titles(search(library.index, "notes 1.5.4"))[0] == "With"
    assert titles(search(library.index, "v2.7.1")) == ["Without"]
    assert titles(search(library.index, "v2.7.3")) == []


def test_identifiers_are_found_whole_and_by_their_parts(library: Library) -> None:
    library.put("def getUserName(self): return self.max_results", title="Code")
    library.put("Nothing here.", title="Prose")
    for text in ("getUserName", "getusername", "user name", "max_results", "maxresults"):
        assert titles(search(library.index, text)) == ["Code"], text


def test_a_repeated_word_weighs_more(library: Library) -> None:
    library.put("apple filler filler", title="Apple")
    library.put("plums filler filler", title="Plums")
    for number in range(20):
        library.put(f"filler number{number} filler", title="Other")
    assert titles(search(library.index, "plums apple apple")) == ["Apple", "Plums"]
    assert titles(search(library.index, "plums plums apple")) == ["Plums", "Apple"]


def test_a_word_in_the_title_weighs_more(library: Library) -> None:
    library.put("The text speaks of bread once.", title="Something")
    library.put("The text speaks of it once more.", title="Bread")
    for number in range(10):
        library.put(f"The text is number{number} here.", title="Other")
    assert titles(search(library.index, "bread")) == ["Bread", "Something"]


def test_words_meet_across_case_accents_and_endings(library: Library) -> None:
    library.put("Die Universität prüft alle Anträge der Studenten und die Häuser.", title="Deutsch", language="german")
    library.put("La città è bella e le università sono antiche.", title="Italiano", language="italian")
    assert titles(search(library.index, "CITTA")) == ["Italiano"]
    assert titles(search(library.index, "haus universitat"))[0] == "Deutsch"


def test_a_german_word_finds_the_compounds_that_begin_with_it(library: Library) -> None:
    library.put("Die Kündigungsfristen stehen im Vertrag mit der Firma.", title="Vertrag", language="german")
    library.put("Die Firma schickt eine Rechnung und einen Brief.", title="Rechnung", language="german")
    outcome = search(library.index, "Wie lange dauert eine Kündigung bei der Firma?")
    assert titles(outcome)[0] == "Vertrag"
    assert outcome.hits[0].matched == ["kundigung", "firma"]


def test_letters_of_few_alphabets_meet_those_on_every_keyboard(library: Library) -> None:
    library.put("Muzeum w Łodzi pokazuje film.", title="Polski", language="polish")
    library.put("Opskrift på rødgrød med fløde.", title="Dansk", language="danish")
    library.put("The museum of Lodz shows a film.", title="English")
    assert titles(search(library.index, "Lodzi")) == ["Polski"]
    assert titles(search(library.index, "Łodz")) == ["English"]
    assert titles(search(library.index, "rodgrod flode")) == ["Dansk"]


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
    [hit] = search(library.index, question).hits
    assert hit.highlight is not None
    assert text[slice(*hit.highlight)] == sentence


def test_an_undecided_query_is_read_in_every_language_of_the_collection(library: Library) -> None:
    library.put("I fondi pensione pagano anticipazioni.", title="Italiano", language="italian")
    library.put("The pension funds pay advances.", title="English", language="english")
    outcome = search(library.index, "fondi funds")
    assert sorted(titles(outcome)) == ["English", "Italiano"]
    assert set(query_of(outcome).languages) == {"english", "italian"}


def test_scripts_without_spaces_are_found_inside_a_run(library: Library) -> None:
    library.put("東京都の天気は晴れです。", title="Weather")
    library.put("京東の店。", title="Shop")
    assert titles(search(library.index, "東京")) == ["Weather"]


# ---------------------------------------------------------------- repairs


def test_a_misspelled_word_is_repaired_and_the_repair_is_shown(library: Library) -> None:
    library.put("Voluntary pension contributions.", title="Pension")
    outcome = search(library.index, "pensoin contributions")
    assert titles(outcome) == ["Pension"]
    assert [(r.word, r.replacement) for r in query_of(outcome).repairs] == [("pensoin", "pension")]


def test_a_word_that_stands_somewhere_is_not_repaired(library: Library) -> None:
    library.put("The lion sleeps.", title="Lion")
    library.put("The loon calls.", title="Loon")
    outcome = search(library.index, "loon")
    assert titles(outcome) == ["Loon"]
    assert query_of(outcome).repairs == []


@pytest.mark.parametrize("word", ["li", "lo0n", "zzzzzzzz", "1234"])
def test_short_words_codes_and_far_words_are_not_guessed(library: Library, word: str) -> None:
    library.put("The lion sleeps, 1235.", title="Lion")
    outcome = search(library.index, word)
    assert outcome.hits == []
    assert query_of(outcome).repairs == []


def test_a_repaired_word_weighs_less_than_an_exact_one(library: Library) -> None:
    library.put("gardens filler filler", title="Exact")
    library.put("markets filler filler", title="Repaired")
    for number in range(20):
        library.put(f"filler number{number} filler", title="Other")
    outcome = search(library.index, "markest gardens")
    assert titles(outcome) == ["Exact", "Repaired"]
    exact, repaired = (hit.bm25 for hit in outcome.hits)
    assert repaired == pytest.approx(keyword_module.REPAIR_WEIGHT * exact)


def test_nothing_of_an_invisible_collection_shows(library: Library) -> None:
    library.put("Project zanzibar costs nine millions.", title="Zanzibar budget", collection="secret")
    for number in range(5):
        library.put(f"Kitchen notes, page number{number}.", title="Notes", collection="public")
    with use_scope(Scope(collections=frozenset({"public"}))):
        for text in ("zanzibar", "zanzibra", "millions", "budget"):
            outcome = search(library.index, text)
            assert outcome.hits == []
            assert query_of(outcome).repairs == []
            assert query_of(outcome).terms == ()
            assert outcome.total == 0
            assert outcome.searched["chunks"] == 5
            assert outcome.searched["collections"] == 1
        assert search(library.index, "kitchen zanzibar").total == 5
    assert titles(search(library.index, "zanzibra")) == ["Zanzibar budget"]


def test_a_restored_scope_sees_repairs_of_its_own_words_only(library: Library) -> None:
    library.put("The marmalade jar.", title="Jar", collection="public")
    library.put("The marmelade contract.", title="Contract", collection="secret")
    with use_scope(Scope(collections=frozenset({"public"}))):
        outcome = search(library.index, "marmelade")
    assert titles(outcome) == ["Jar"]
    assert [r.replacement for r in query_of(outcome).repairs] == ["marmalade"]


def test_repairs_follow_what_is_added_and_removed(library: Library) -> None:
    stored = library.put("Elderflower syrup.", title="Syrup")
    assert titles(search(library.index, "elderflowr")) == ["Syrup"]
    library.put("Quince jelly.", title="Syrup", replaces=stored.source_id)
    assert titles(search(library.index, "elderflowr")) == []
    assert titles(search(library.index, "quicne")) == ["Syrup"]


def test_hits_are_no_deeper_than_asked(manual: Index) -> None:
    with manual.database.read() as connection:
        place = choose_collections(connection, None)[0]
        query = build_query(connection, "pump", [place.id], Vocabulary(), 0)
        assert len(search_words(connection, query, 7)) == 7
        scores = list(search_words(connection, query, 1000).values())
    assert len(scores) == 100
    assert scores == sorted(scores, reverse=True)


def test_the_last_words_of_a_long_question_are_searched(library: Library) -> None:
    library.put("Elderflower syrup keeps for a year.", title="Syrup")
    question = "I would be grateful for anything on how long homemade things keep. " * 12
    assert titles(search(library.index, f"{question} elderflower")) == ["Syrup"]


def test_a_long_passage_with_the_term_as_often_is_hardly_behind_a_short_one(library: Library) -> None:
    library.put("Elderflower grows here.", title="Short")
    library.put("Elderflower grows here. " + "The garden lies behind the old mill. " * 8, title="Long")
    for number in range(20):
        library.put("A note on something else that is of middling length, nothing more.", title=f"Note {number}")
    short, long = search(library.index, "elderflower").hits
    assert (short.passage.title, long.passage.title) == ("Short", "Long")
    assert long.bm25 > 0.4 * short.bm25  # by the length correction of FTS5 alone: 0.32


def test_a_passage_beside_another_that_matches_comes_before_a_lucky_one(library: Library) -> None:
    library.put("Elderflower in a vase.\n\nA chair is in the hall.", title="Lucky", paragraphs=True)
    library.put("Elderflower in a jar.\n\nElderflower on a plate.", title="Recipe", paragraphs=True)
    for number in range(20):
        library.put(f"A note on number{number} here.", title="Other")
    assert titles(search(library.index, "elderflower"))[:2] == ["Recipe", "Recipe"]
