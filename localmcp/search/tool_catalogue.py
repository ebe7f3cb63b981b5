"""Tools that are searched together: their words counted, their vectors stacked, and what speaks for each of them."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from localmcp.search.text_vectors import TextVectors
from localmcp.search.tool_rivals import elsewhere, request_vectors, scale_of
from localmcp.search.tool_synonyms import synonyms
from localmcp.search.tool_texts import Query, QueryWord, ToolText, english_words, take_query_apart

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localmcp.embeddings import Embedder

log = logging.getLogger(__name__)

ALIKE = 0.7
"""How much of a word's weight is left when the tool has a synonym of it."""
LOOKED_AT = 64
"""Tools that are judged: those that words and meaning put first."""
COMMON_SIZE = 100
"""Rarity in a smaller catalogue is reckoned as if it had this many tools: few tools say little about a word."""


# ---------------------------------------------------------------- a catalogue


class ToolCatalogue:
    """Tools, ready for search. The tools never change; the vectors are made once for each model."""

    def __init__(self, tools: Sequence[ToolText]) -> None:
        self.tools = tuple(tools)
        self._size = max(len(self.tools), COMMON_SIZE)
        self._lock = threading.Lock()
        self._model = ""
        self._made: Future[ToolVectors] = Future()

    @cached_property
    def holders(self) -> Mapping[str, Sequence[tuple[int, float]]]:
        """Stem -> places of the tools that have it, and its weight there."""
        found: dict[str, list[tuple[int, float]]] = {}
        for place, each in enumerate(self.tools):
            for word, weight in each.weights.items():
                found.setdefault(word, []).append((place, weight))
        return found

    @cached_property
    def surfaces(self) -> Mapping[str, int]:
        """Folded word of any tool, at least four letters -> how many tools have it."""
        return Counter(surface for each in self.tools for surface in each.surfaces if len(surface) > 3)

    def rarity(self, holders: int) -> float:
        """ln(1 + tools / tools that have the word)."""
        return math.log(1 + self._size / (holders + 0.5))

    # ------------------------------------------------------------ typing errors

    def repair(self, query: Query) -> Query:
        """The query with the nearest word of a tool in place of each word that is neither English nor any tool's."""
        wrong = [each for each in query.words if each.stem not in self.holders and _may_be_misspelt(each)]
        found = {each.said: near for each in wrong if (near := self._nearest(each.said))}
        if not found:
            return query
        text = " ".join(found.get(word.lower().strip(".,;:!?"), word) for word in query.text.split())
        again = take_query_apart(text)
        return replace(again, actions=again.actions or query.actions)

    def _nearest(self, word: str) -> str | None:
        """One edit away, or two for eight letters and more if the first letter is right; of equally near ones the one
        that most tools have."""
        from rapidfuzz import process
        from rapidfuzz.distance import OSA

        most = 1 if len(word) <= 7 else 2
        near = process.extract(word, self.surfaces.keys(), scorer=OSA.distance, score_cutoff=most, limit=16)
        ranked = [
            (distance, each[0] != word[0], -self.surfaces[each], each)
            for each, distance, _ in near
            if distance < 2 or each[0] == word[0]
        ]
        return min(ranked)[-1] if ranked else None

    # ------------------------------------------------------------ vectors

    def vectors(self, embedder: Embedder, kept: TextVectors, wait: float) -> ToolVectors | None:
        """The tools' vectors for a model, made in the background; None if that takes longer than `wait` seconds.

        Raises:
            ModelUnavailable: the model fails.
        """
        with self._lock:
            failed = self._made.done() and self._made.exception() is not None
            if failed or self._model != embedder.identity.fingerprint:
                self._model, self._made = embedder.identity.fingerprint, Future()
                work = (self._made, self.tools, embedder, kept)
                threading.Thread(target=_make, args=work, name="localmcp-tools", daemon=True).start()
            made = self._made
        try:
            return made.result(wait)
        except TooLate:
            return None


def _may_be_misspelt(each: QueryWord) -> bool:
    return len(each.said) > 3 and each.said.isalpha() and not each.is_name and each.said not in english_words()


# ---------------------------------------------------------------- meaning


@dataclass(frozen=True, slots=True)
class ToolVectors:
    """What meaning is compared by."""

    first: NDArray[np.float32]
    """Name with the first sentence: unit rows (tools, dimension)."""
    others: NDArray[np.float32]
    """Description and examples of all tools: unit rows (texts, dimension)."""
    begins: NDArray[np.intp]
    """Where the rows of each tool begin in `others`."""
    requests: NDArray[np.float32]
    """What people ask of programs in general: unit rows (requests, dimension)."""
    requested: NDArray[np.float32]
    """Cosine of each of these with the tool that is nearest to it: (requests,)."""
    factor: float
    offset: float
    """What brings the model's cosines to the default model's scale, see `tool_rivals`."""

    def to_scale(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        return cosines * self.factor + self.offset


def _make(made: Future[ToolVectors], tools: Sequence[ToolText], embedder: Embedder, kept: TextVectors) -> None:
    try:
        made.set_result(_stack(tools, embedder, kept))
    except Exception as error:
        # Handed to every search that waits for it.
        made.set_exception(error)


def _stack(tools: Sequence[ToolText], embedder: Embedder, kept: TextVectors) -> ToolVectors:
    import numpy as np

    known = kept.of([text for each in tools for text in each.texts], embedder)
    first = np.stack([known[each.texts[0]] for each in tools])
    rows = [[known[text] for text in each.texts[1:] or each.texts] for each in tools]
    begins = np.cumsum([0, *(len(each) for each in rows[:-1])])
    others = np.stack([row for each in rows for row in each])
    requests = request_vectors(embedder, kept)
    requested = np.maximum((requests @ first.T).max(axis=1), (requests @ others.T).max(axis=1))
    return ToolVectors(first, others, begins, requests, requested, *scale_of(requests))


# ---------------------------------------------------------------- evidence


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for the tools under one query."""

    places: NDArray[np.intp]
    """Places in the catalogue of the tools that are judged."""
    rows: NDArray[np.float32]
    """A row for each; the columns are `tool_fit.FEATURES`, or `WORD_FEATURES` without a model."""
    with_model: bool
    elsewhere: float = 0.0
    """How much nearer the query is to something that people ask of other programs, see `tool_rivals`."""


def evidence_of_words(query: Query, catalogue: ToolCatalogue) -> Evidence:
    """The columns that need no model, for every tool."""
    import numpy as np

    shares = _shares(query.words, catalogue)
    holders = (shares > 0).sum(axis=0)
    rarity = np.array([catalogue.rarity(int(number)) for number in holders], np.float32)
    # A name that no tool has is a value to act on, and says nothing about the tool.
    counted = np.array([number > 0 or not each.is_name for number, each in zip(holders, query.words, strict=True)])
    reached = shares @ rarity
    possible, known = float(rarity @ counted) or 1.0, float(rarity @ (holders > 0)) or 1.0
    same = np.array([not query.actions.isdisjoint(each.actions) for each in catalogue.tools])
    asked = np.array([bool(each.actions and query.actions) for each in catalogue.tools])
    columns = (reached / possible, reached / known, 1 - np.exp(-reached / 4), same, asked & ~same)
    rows = np.stack([column.astype(np.float32) for column in columns], axis=1)
    return Evidence(np.arange(len(catalogue.tools)), rows, with_model=False)


def _shares(words: Sequence[QueryWord], catalogue: ToolCatalogue) -> NDArray[np.float32]:
    """What each word counts at each tool, 0..1, shape (tools, words)."""
    import numpy as np

    shares = np.zeros((len(catalogue.tools), len(words)), np.float32)
    for column, each in enumerate(words):
        for other in synonyms().get(each.stem, ()):
            for place, weight in catalogue.holders.get(other, ()):
                shares[place, column] = max(shares[place, column], ALIKE * weight)
        for place, weight in catalogue.holders.get(each.stem, ()):
            shares[place, column] = max(shares[place, column], weight)
    return shares


def evidence_of_meaning(row: NDArray[np.float32], vectors: ToolVectors, by_words: Evidence) -> Evidence:
    """All columns, for the tools that words and meaning put first; `row` is the query's unit vector."""
    import numpy as np

    cosine = vectors.to_scale(vectors.first @ row)
    other = vectors.to_scale(np.maximum.reduceat(vectors.others @ row, vectors.begins))
    covered, strength = by_words.rows[:, 0], by_words.rows[:, 2]
    order = np.argsort(-(np.maximum(cosine, other) + 0.3 * covered + 0.2 * strength), kind="stable")
    places = np.sort(order[:LOOKED_AT])
    rows = np.concatenate([np.stack([cosine, other], axis=1)[places], by_words.rows[places]], axis=1)
    further = elsewhere(vectors.to_scale(vectors.requests @ row), vectors.to_scale(vectors.requested))
    return Evidence(places, rows, True, further)
