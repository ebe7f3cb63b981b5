"""How the cosines of a model are read: every model has a range of its own.

Questions with their answers, and with those of other questions, say where it is. What is stored with the model's row
brings its cosines to the scale of the default model, for which scores, floors and relevance were fitted. So any model
works at once, and nothing has to be known of it. Of two models at once, each counts by the range of its own cosines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localmcp.arrays import Vector, Vectors, np
from localmcp.models.embedder import Embedder, ModelIdentity
from localmcp.models.tokens import TokenCounter

_ANSWERS = (
    ("how do I get rid of snails", "Slugs eat the young salad at night; copper tape around the bed keeps them away."),
    ("what time does the library close", "Opening hours: weekdays from nine until half past six, Saturdays to noon."),
    ("who painted the night watch", "Rembrandt finished his large picture of the militia company in 1642."),
    ("why does bread rise", "Yeast eats the sugar of the dough and gives off gas, which makes a loaf grow."),
    ("broken screen of my phone", "A cracked display is replaced for 89 euros; the repair takes an hour."),
    ("sort a list in reverse", "Call sorted(values, reverse=True) to have the largest element first."),
    ("symptoms of a cold", "A runny nose, a sore throat and sneezing mostly pass within ten days."),
    ("cancel the contract", "The tenant may end the lease in writing with three months' notice."),
    ("how high is mont blanc", "The highest mountain of the Alps reaches 4,806 meters above the sea."),
    ("cheap flights in summer", "Airline tickets for July cost least when they are booked in February."),
    ("why is the sea salty", "Rivers wash minerals out of rocks and carry them into the ocean."),
    ("connect to the database", "The client opens a session to PostgreSQL with host, port and password."),
)
_ABROAD = (
    ("how do I get rid of snails", "Las babosas se comen la lechuga de noche; una cinta de cobre las aleja."),
    ("what time does the library close", "Öffnungszeiten der Bücherei: werktags von neun bis halb sieben Uhr."),
    ("why does bread rise", "La levure mange le sucre de la pâte et dégage un gaz qui fait gonfler la miche."),
    ("symptoms of a cold", "Il naso che cola e la gola irritata passano di solito entro dieci giorni."),
)
"""A model that reads all languages finds these nearly as near."""
DEFAULT_UNRELATED, DEFAULT_RELATED = 0.023, 0.480
"""The mean cosines of the default model."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the cosines of a model are read."""

    offset: float = 0.0
    factor: float = 1.0
    reads_all: bool = False
    """Whether it finds answers in other languages than the question's."""

    def scaled(self, cosines: Mapping[int, float]) -> dict[int, float]:
        """Return cosines by id as the default model would have them."""
        return {key: self.offset + self.factor * cosine for key, cosine in cosines.items()}


def measure_model(embedder: Embedder) -> Calibration:
    """Return the calibration of a model: 28 short texts are embedded."""
    questions = [question for question, _ in _ANSWERS]
    vectors = np.stack([embedder.embed_query(question) for question in questions])
    cosines = vectors @ embedder.embed_passages([answer for _, answer in _ANSWERS]).T
    related, pairs = float(np.trace(cosines)) / len(questions), len(questions) * (len(questions) - 1)
    unrelated = float(cosines.sum() - np.trace(cosines)) / pairs
    if related - unrelated < 0.05:
        # It tells nothing apart, as word hashes.
        return Calibration()
    asked = vectors[[questions.index(question) for question, _ in _ABROAD]]
    abroad = float((asked * embedder.embed_passages([answer for _, answer in _ABROAD])).sum()) / len(_ABROAD)
    factor = (DEFAULT_RELATED - DEFAULT_UNRELATED) / (related - unrelated)
    reads_all = abroad - unrelated >= (related - unrelated) / 2
    return Calibration(round(DEFAULT_UNRELATED - factor * unrelated, 3), round(factor, 3), reads_all)


# ---------------------------------------------------------------- two models at once


class PairEmbedder:
    """Both models read every text: a vector holds those of both, and a product is the mean of what both say."""

    def __init__(self, first: Embedder, second: Embedder) -> None:
        self._models = (first, second)
        factors = [measure_model(model).factor for model in self._models]
        self._shares = [round(factor / sum(factors), 2) for factor in factors]
        ours, theirs = first.identity, second.identity
        decisive = f"{ours.fingerprint} {theirs.fingerprint} {self._shares}"
        self.identity = ModelIdentity(
            name=f"{ours.name}+{theirs.name}",
            sha256=hashlib.sha256(decisive.encode()).hexdigest(),
            pooling="pair",
            # Each model adds its own; here they only say whether questions and passages are read alike.
            query_prefix=f"{ours.query_prefix}|{theirs.query_prefix}",
            passage_prefix=f"{ours.passage_prefix}|{theirs.passage_prefix}",
            dimension=ours.dimension + theirs.dimension,
            max_tokens=min(ours.max_tokens, theirs.max_tokens),
        )

    @property
    def count_tokens(self) -> TokenCounter:
        """Counts the tokens of the first model."""
        return self._models[0].count_tokens

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of shape (n, dimension), unit rows, in the order of `texts`."""
        return self._joined([model.embed_passages(texts) for model in self._models])

    def embed_query(self, text: str) -> Vector:
        """Return the unit vector of shape (dimension,)."""
        return self._joined([model.embed_query(text)[None] for model in self._models])[0]

    def _joined(self, vectors: Sequence[Vectors]) -> Vectors:
        parts = [share**0.5 * part for share, part in zip(self._shares, vectors, strict=True)]
        return np.concatenate(parts, axis=1).astype(np.float32, copy=False)
