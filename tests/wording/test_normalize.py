"""The words that the keyword index and the query builder share."""

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmcp.wording.normalize import (
    SUPPORTED_LANGUAGES,
    detect_language,
    fold,
    index_text,
    phrases,
    plain_letters,
    stem,
    stems,
    stop_words,
    without_links,
    words,
)

_tokenizer = apsw.Connection(":memory:").fts5_tokenizer("unicode61", ["remove_diacritics", "2"])


def fts5_tokens(text: str) -> list[str]:
    options = {"include_offsets": False, "include_colocated": False}
    return _tokenizer(text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, **options)


# Ordinary text, any character at all, and identifiers.
texts = st.one_of(
    st.text(),
    st.text(st.characters(codec="latin-1")),
    st.text("aZ9_.-é́ⅷ日本กй½ßøŁæ"),
    st.from_regex(r"[a-z]{1,4}([A-Z][a-z]{0,3}|_|[0-9]){0,12}", fullmatch=True),
)


@given(texts)
def test_fts5_takes_every_word_as_one_token_unchanged(text: str):
    assert fts5_tokens(" ".join(words(text))) == words(text)


@given(texts, st.sampled_from([*sorted(SUPPORTED_LANGUAGES), "klingon"]))
def test_fts5_takes_every_stem_as_one_token_unchanged(text: str, language: str):
    indexed = index_text(text, language)
    assert fts5_tokens(indexed) == indexed.split() == stems(words(text), language)


def test_fts5_and_words_agree_on_every_character_of_unicode():
    every_character = (chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)
    found = words(" ".join(every_character))
    assert len(found) > 100_000
    assert fts5_tokens(" ".join(found)) == found


@given(texts)
def test_words_are_folded_and_folding_twice_changes_nothing(text: str):
    assert fold(fold(text)) == fold(text)
    assert all(fold(word) == word for word in words(text))


@given(texts)
def test_phrases_hold_the_words_in_order(text: str):
    typed = list(dict.fromkeys(word for phrase in phrases(text) for word in phrase))
    assert list(dict.fromkeys(map(plain_letters, typed))) == list(dict.fromkeys(map(plain_letters, words(text))))


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Città", "citta"),
        ("CITTA\u0300", "citta"),
        ("Straße", "strasse"),
        ("ﬁne ①", "fine 1"),
        ("Ёлка", "елка"),
        ("мой", "мой"),
        ("が", "が"),
        ("בְּרֵאשִׁית בָּרָא אֱלֹהִים", "בראשית ברא אלהים"),
        ("يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا", "يولد جميع الناس احرارا"),
        ("الحـــرية", "الحرية"),
    ],
)
def test_fold_removes_case_and_diacritics_but_not_what_makes_another_letter(text: str, folded: str):
    assert fold(text) == folded


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dell'Università di Forlì", ["dell", "universita", "di", "forli"]),
        ("getUserName()", ["getusername", "get", "user", "name"]),
        ("max_results=3", ["maxresults", "max", "results", "3"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("sha256Sum", ["sha256sum", "sha256", "sum"]),
        ("__init__ _ __", ["init"]),
        ("APIs 3D B2B", ["apis", "3d", "b2b"]),
        ("Python 3.11.7", ["python", "3", "11", "7"]),
        ("日本語text", ["日", "本", "語", "text"]),
        ("ไทย", ["ไ", "ท", "ย"]),
        ("Łódź rødGrød", ["łodz", "lodz", "rødgrød", "rød", "grød", "rodgrod", "rod", "grod"]),
        ("", []),
    ],
)
def test_words_come_in_order_with_the_parts_of_identifiers(text: str, expected: list[str]):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fix CVE-2024-1234", [("fix",), ("cve", "2024", "1234")]),
        ("ISO-9001.", [("iso", "9001")]),
        ("version 3.11.7", [("version",), ("3", "11", "7")]),
        ("well-known", [("well",), ("known",)]),
        ("東京 tower", [("東", "京"), ("tower",)]),
        ("東京都で", [("東", "京"), ("京", "都"), ("都", "で")]),
        ("ภาษาไทย", [("ภ", "า", "ษ"), ("า", "ษ", "า"), ("ษ", "า", "ไ"), ("า", "ไ", "ท"), ("ไ", "ท", "ย")]),
        ("getName", [("getname",), ("get",), ("name",)]),
    ],
)
def test_phrases_keep_codes_and_neighbors_in_scripts_without_spaces_together(
    text: str, expected: list[tuple[str, ...]]
):
    assert phrases(text) == expected


def test_stems_meet_with_and_without_accents():
    assert stems(words("università perché"), "italian") == stems(words("universita perche"), "italian")
    assert stem("running", "english") == stem("runs", "english") == "run"
    assert stem("gatti", "italian") == stem("gatto", "italian")


def test_numbers_and_unknown_languages_are_not_stemmed():
    assert stem("2024s", "english") == "2024s"
    assert stem("running", "klingon") == stem("running", None) == "running"
    assert index_text("Running tests", None) == "running tests"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The server does not start after the update", "english"),
        ("Come si configura il server della posta", "italian"),
        ("perche il server cade", "italian"),
        ("Los archivos que están en el servidor", "spanish"),
        ("Où est le fichier de configuration du serveur", "french"),
        ("Wo ist die Datei mit den Einstellungen", "german"),
        ("يولد جميع الناس أحرارا متساوين في الكرامة والحقوق", "arabic"),
        ("בראשית ברא אלהים את השמים ואת הארץ", "hebrew"),
        ("O servidor não responde porque está desligado", "portuguese"),
        ("Waar is het bestand van de server", "dutch"),
        ("Где находится файл настроек", "russian"),
        ("?", None),
        ("", None),
        ("server error", None),
        ("scrivi i test", "italian"),
        ("busca nombres de páginas", "spanish"),
        ("man page", None),
        ("x = foo(y, d[s]) + bar", None),
        ("Hvordan kan jeg se, hvad der blev sagt til mig efter mødet?", "danish"),
        ("Hvordan kan jeg se hva som ble sagt til meg etter møtet?", "norwegian"),
        ("Hur kan jag se vad som blev sagt till mig efter mötet och var det var?", "swedish"),
        ("Miten voin nähdä, mitä kokouksessa sanottiin, jos en ollut siellä, ja milloin se oli?", "finnish"),
        ("Hogyan lehet megnézni, hogy mit mondtak az ülésen, ha valaki nem volt ott?", "hungarian"),
        ("Cum pot să văd ce s-a spus la întâlnire dacă nu am fost acolo?", "romanian"),
        ("Toplantıda ne söylendiğini daha sonra nasıl görebilirim ve bu kadar geç olan neden var?", "turkish"),
    ],
)
def test_a_language_is_told_from_short_texts_and_left_open_for_code_and_names(text: str, language: str | None):
    assert detect_language(text) == language


def test_stop_words_are_folded():
    for language in SUPPORTED_LANGUAGES:
        assert all(words(word)[0] == word for word in stop_words(language))
    assert "perche" in stop_words("italian")
    assert stop_words("klingon") == frozenset()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("see the [long guide](guide.md) or [it]( <a b.md> 'Its title' ).", "see the long guide or it."),
        ('![a house](house.png "House") [![build](a.svg)](https://a.b)', "a house build"),
        ("[Mercury](https://en.wikipedia.org/wiki/Mercury_(planet))", "Mercury"),
        ("[[Notes/Loaf|other note]], ![[Pic.png]], [[Page]]", "other note, Pic.png, Page"),
        ("[[1, 2]] x[[i]] t[['name']] [['a']]", "[[1, 2]] x[[i]] t[['name']] [['a']]"),
        ("a[0] (b) [x] [[ -f x ]] [no](address of many words)", "a[0] (b) [x] [[ -f x ]] [no](address of many words)"),
    ],
)
def test_of_a_link_its_words_are_read(written: str, read: str):
    assert without_links(written) == read
