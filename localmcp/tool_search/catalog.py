"""Tools that are searched together: their words counted, their vectors stacked."""

from __future__ import annotations

import logging
import math
import operator
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from functools import cached_property

from localmcp.arrays import NDArray, np
from localmcp.models import Embedder
from localmcp.models.text_vectors import TextVectors
from localmcp.tool_search.meaning import ToolVectors, vectors_of
from localmcp.tool_search.name_match import rung_of, squeeze
from localmcp.tool_search.query import Query, ToolDescription, ToolText, take_query_apart
from localmcp.tool_search.verbs import has_opposite
from localmcp.wording.normalize import stem
from localmcp.wording.spelling import WordList, correct

log = logging.getLogger(__name__)

COMMON_SIZE = 100
"""Rarity in a smaller catalog is reckoned as if it had this many tools: few tools say little about a word."""


# ---------------------------------------------------------------- a catalog


class ToolCatalog:
    """Tools, ready for search. The tools never change; the vectors are made once for each model that is asked."""

    def __init__(self, tools: Sequence[ToolText], described: Sequence[ToolDescription] = ()) -> None:
        """`described`: the tools that the texts were made of; keeping them keeps their identity."""
        self.tools = tuple(tools)
        self._described = tuple(described)
        self._size = max(len(self.tools), COMMON_SIZE)
        self._lock = threading.Lock()
        self._made: dict[str, Future[ToolVectors]] = {}
        """By model; whoever asked first has waited for it."""

    def holds(self, described: Sequence[ToolDescription]) -> bool:
        """Return whether it was made of exactly these tools."""
        return len(described) == len(self._described) and all(map(operator.is_, described, self._described))

    # ------------------------------------------------------------ names

    @cached_property
    def _names(self) -> Mapping[str, Mapping[int, float]]:
        """Query without spaces -> the tools that it names in full, and the ladder's score."""
        postings: dict[str, dict[int, float]] = {}
        for row, tool in enumerate(self.tools):
            own = postings.setdefault(tool.rungs.own_squeezed, {})
            own[row] = max(own.get(row, 0.0), 0.8)
            postings.setdefault(tool.rungs.squeezed, {})[row] = 1.0
        return postings

    def rungs(self, query: str) -> Mapping[int, float]:
        """Return places of the tools that the ladder is sure of, and its score, see `rung_of`."""
        lowered = query.strip().lower()
        squeezed = squeeze(lowered)
        if " " in lowered and squeezed:
            return self._names.get(squeezed, {})
        scores = ((row, rung_of(lowered, squeezed, tool.rungs)) for row, tool in enumerate(self.tools))
        return {row: score for row, score in scores if score}

    # ------------------------------------------------------------ words

    @cached_property
    def holders(self) -> Mapping[str, tuple[NDArray[np.intp], NDArray[np.float32]]]:
        """Stem -> places of the tools that have it, and its weight there."""
        postings: dict[str, list[tuple[int, float]]] = {}
        for row, tool in enumerate(self.tools):
            for word, weight in tool.weights.items():
                postings.setdefault(word, []).append((row, weight))
        return {
            word: (
                np.array([row for row, _ in rows], np.intp),
                np.array([weight for _, weight in rows], np.float32),
            )
            for word, rows in postings.items()
        }

    def column(self, word: str) -> NDArray[np.float32]:
        """Return what a stem counts at each tool, 0..1: shape (tools,)."""
        column = np.zeros(len(self.tools), np.float32)
        if (posting := self.holders.get(word)) is not None:
            column[posting[0]] = posting[1]
        return column

    @cached_property
    def _having_the_verb(self) -> Mapping[str, NDArray[np.intp]]:
        """Stem -> places of the tools whose verb it is."""
        return _places_by_stem(tool.verbs for tool in self.tools)

    @cached_property
    def _having_in_name(self) -> Mapping[str, NDArray[np.intp]]:
        """Stem -> places of the tools with such a word in their name."""
        return _places_by_stem([stem(part, "english") for part in tool.parts] for tool in self.tools)

    def named_by(self, verbs: frozenset[str]) -> NDArray[np.bool_]:
        """Return which tools have one of these stems as their verb: shape (tools,)."""
        named = np.zeros(len(self.tools), bool)
        for verb in verbs & self._having_the_verb.keys():
            named[self._having_the_verb[verb]] = True
        return named

    def opposed(self, opposites: frozenset[str], verbs: frozenset[str]) -> NDArray[np.bool_]:
        """Return which tools have one of the opposites in their name, and none of the verbs: shape (tools,)."""
        opposed = np.zeros(len(self.tools), bool)
        for stems, value in ((opposites, True), (verbs, False)):
            for stemmed in stems & self._having_in_name.keys():
                opposed[self._having_in_name[stemmed]] = value
        return opposed

    @cached_property
    def _surfaces(self) -> WordList:
        """The folded words of all tools, and how many tools have each."""
        return WordList(Counter(surface for tool in self.tools for surface in tool.surfaces))

    def rarity(self, holders: int) -> float:
        """Return ln(1 + tools / tools that have the word)."""
        return math.log(1 + self._size / (holders + 0.5))

    # ------------------------------------------------------------ typing errors

    def repair(self, query: Query) -> Query:
        """Return the query with the nearest word of a tool for each word that is neither English nor a tool's."""
        # `unblock` is no English word of the vocabulary, and no slip for `block`.
        unknown = [
            word.surface for word in query.words if word.stem not in self.holders and not has_opposite(word.stem)
        ]
        near_words = {word: near[0].replacement for word in unknown if (near := correct(word, self._surfaces))}
        if not near_words:
            return query
        text = " ".join(near_words.get(word.lower().strip(".,;:!?"), word) for word in query.text.split())
        return take_query_apart(text)

    # ------------------------------------------------------------ vectors

    def vectors(
        self, embedder: Embedder, text_vectors: TextVectors, wait: float, *, insist: bool = False
    ) -> ToolVectors | None:
        """Return the tools' vectors for a model, made in the background; None if that takes longer than `wait` seconds.

        Only the first search waits, unless it insists: the others go by words until the vectors are there.

        Raises:
            ModelUnavailable: the model fails.
        """
        model = embedder.identity.fingerprint
        with self._lock:
            made = self._made.get(model)
            is_first = made is None or (made.done() and made.exception() is not None)
            if made is None or is_first:
                made = self._made[model] = Future()
                work = (made, self.tools, embedder, text_vectors)
                threading.Thread(target=_make, args=work, name="localmcp-tools", daemon=True).start()
        try:
            return made.result(wait if is_first or insist else 0.0)
        except TooLate:
            return None


def _places_by_stem(stems_by_tool: Iterable[Iterable[str]]) -> dict[str, NDArray[np.intp]]:
    places: dict[str, list[int]] = {}
    for row, stems in enumerate(stems_by_tool):
        for stemmed in stems:
            places.setdefault(stemmed, []).append(row)
    return {stemmed: np.array(listed, np.intp) for stemmed, listed in places.items()}


def _make(made: Future[ToolVectors], tools: Sequence[ToolText], embedder: Embedder, text_vectors: TextVectors) -> None:
    try:
        made.set_result(vectors_of(tools, embedder, text_vectors))
    except Exception as error:
        # Handed to every search that waits for it.
        made.set_exception(error)
