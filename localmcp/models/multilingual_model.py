"""The model `multilingual`: multilingual-e5-small for a hundred languages, beside the default model for English."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

from localmcp.arrays import Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.models.default_model import DEFAULT_SHA256, DefaultEmbedder
from localmcp.models.e5_model import E5_SHA256, E5Embedder
from localmcp.models.embedder import (
    MULTILINGUAL_NAME,
    Embedder,
    ModelIdentity,
    unit_rows,
    without_directions,
)
from localmcp.models.encoder_embedder import EncoderEmbedder
from localmcp.models.native import run_beside
from localmcp.models.word_outputs import WordCode
from localmcp.wording.languages import detect_language

ENGLISH_WEIGHT, UNDECIDED_WEIGHT, FOREIGN_WEIGHT = 0.5, 0.65, 0.9
"""How much the multilingual half counts, by the language of the question.

nDCG@10 of the semantic arm with weights .0, .4, .5, .9-1: English XQuAD .952, .973, .974, .975; English questions on
Spanish passages .712, .879, .913, .952; Spanish ones on English passages .543, .832, .895, .955. The multilingual half
alone is far behind on English abstracts (CACM .228, the default model .434, .3 of it .439, .5 .396).
"""


HALF_LENGTH = math.sqrt(0.5)
"""Of each half in the vector of a passage."""
MOST_TOKENS = 400
"""Of a passage, by the multilingual tokenizer, where the English half reads the first 254 of its own. A Spanish
paragraph is one passage then, not two (XQuAD in Spanish, hybrid search, nDCG@10: .960 -> .978)."""


class MultilingualEmbedder:
    """Vectors of two halves (768 dimensions), one by each model, so that every question meets every passage.

    A cosine is the weighted mean of the two models' cosines; the question's half decides how much each counts.

    Raises:
        ModelUnavailable: a model is not on this machine, or its file is not the pinned one.
    """

    def __init__(self, models_directory: Path, *, threads: int | None = None) -> None:
        self._many = E5Embedder(models_directory, threads=threads)
        self._threads = threads
        # A question is embedded by both side by side, each on one thread; as floats the English half takes longer than
        # the other one, and finds nothing more (CACM, hybrid search, nDCG@10: .591, as int8 .592).
        self._english = DefaultEmbedder(
            threads=threads, question_threads=1, arithmetic="int8", question_arithmetic="int8"
        )
        self.across_languages = AcrossLanguages(self._many)
        self.count_tokens = self._many.count_tokens
        halves = (self._many.identity, self._english.identity)
        self.identity = ModelIdentity(
            name=MULTILINGUAL_NAME,
            sha256=hashlib.sha256(f"{E5_SHA256} {DEFAULT_SHA256}".encode()).hexdigest(),
            pooling=", ".join(half.pooling for half in halves),
            query_prefix=self._many.identity.query_prefix,
            passage_prefix=self._many.identity.passage_prefix,
            dimension=sum(half.dimension for half in halves),
            max_tokens=MOST_TOKENS,
        )

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`."""
        halves = [self._many.embed_passages(texts), self._english.embed_passages(texts)]
        return np.concatenate(halves, axis=1) * np.float32(HALF_LENGTH)

    def read_passages(self, texts: Sequence[str]) -> tuple[Vectors, list[list[WordCode]]]:
        """Return what `embed_passages` does, and the words of each text."""
        many, words = self._many.read_passages(texts)
        return np.concatenate([many, self._english.embed_passages(texts)], axis=1) * np.float32(HALF_LENGTH), words

    def embed_sentences(self, passages: Sequence[Sequence[str]]) -> Vectors:
        """Return unit vectors of the sentences of passages, in any language alike: (sentences, half the dimension)."""
        return _less_translations(self._many.embed_sentences(passages))

    def sentence_question(self, question: Vector) -> Vector:
        """Return the unit vector by which an embedded question is compared with sentences."""
        return _less_translations(question[None, : len(question) // 2])[0]

    def question_words(self, text: str) -> list[tuple[str, Vector]]:
        """Return the words of a question, with unit vectors to compare with the codes of passages' words."""
        return self._many.question_words(text)

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        halves: dict[EncoderEmbedder, Vector] = {}

        def embed_half(model: EncoderEmbedder) -> None:
            halves[model] = model.embed_query(text)

        run_beside(embed_half, (self._many, self._english), 2)
        weight = _weight_of(text)
        weighted = [weight * halves[self._many], (1 - weight) * halves[self._english]]
        return unit_rows(np.concatenate(weighted)[None])[0]

    def reader_of(self, text: str) -> Embedder:
        """Return the default model for English, and for what is too short to tell; the other half for the rest.

        Both find short English texts better so than together (right tool among five, `discovery_seventh`: .703 -> .819;
        every third request in four other languages: .558 -> .692).
        """
        return self._default if detect_language(text) in (None, "english") else self.across_languages

    @cached_property
    def _default(self) -> DefaultEmbedder:
        """The default model by itself, whose vectors of short texts are those of floats."""
        return DefaultEmbedder(threads=self._threads)


class AcrossLanguages:
    """The multilingual half alone, less the directions in which translations of one text differ."""

    def __init__(self, many: E5Embedder) -> None:
        self._many = many
        self.identity = replace(many.identity, pooling=f"{many.identity.pooling}, across languages")
        self.count_tokens = many.count_tokens

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`."""
        return _less_translations(self._many.embed_passages(texts))

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        return _less_translations(self._many.embed_query(text)[None])[0]


def multilingual_half(question: Vectors) -> Vector:
    """Return the unit vector of a question without its English half, shape (dimension,).

    Its cosines with passages are those of the multilingual model times HALF_LENGTH.
    """
    half = question.copy()
    half[len(half) // 2 :] = np.float32(0)
    return unit_rows(half[None])[0]


def without_language(question: Vectors) -> Vector:
    """Return the unit vector of a question less the directions in which translations of one text differ.

    Passages in its own language are then not nearer for that alone, and need not lose them too (hybrid search, nDCG@10
    of questions in the language of the passage and in another one: XQuAD half English, half Spanish .986 -> .984,
    .862 -> .903; manuals and code in four languages .834 -> .818, .670 -> .751).
    """
    width = len(question) // 2
    many = question[:width]
    remainder = _less_translations(many[None])[0] * np.linalg.norm(many)
    return np.concatenate([remainder, question[width:]]).astype(np.float32, copy=False)


def _less_translations(vectors: Vectors) -> Vectors:
    return unit_rows(without_directions(vectors, _translation_directions()))


@cache
def _translation_directions() -> Vectors:
    """Return unit vectors of shape (n, dimension of the multilingual half), at right angles."""
    with np.load(packaged_data() / "multilingual_common.npz", allow_pickle=False) as stored:
        return stored["translations"]


def _weight_of(question: str) -> float:
    language = detect_language(question)
    if language is None:
        return UNDECIDED_WEIGHT
    return ENGLISH_WEIGHT if language == "english" else FOREIGN_WEIGHT
