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
from dataclasses import dataclass, replace
from functools import cached_property

from localmcp.arrays import NDArray, np
from localmcp.models import Embedder
from localmcp.models.text_vectors import TextVectors
from localmcp.tool_search.background_requests import EVERY, request_vectors, scale_of
from localmcp.tool_search.name_match import rung_of, squeeze
from localmcp.tool_search.query import Query, ToolDescription, ToolText, take_query_apart
from localmcp.tool_search.request_adapter import Adapter, shipped_adapter
from localmcp.tool_search.verbs import has_opposite
from localmcp.wording.normalize import stem
from localmcp.wording.spelling import WordList, correct

log = logging.getLogger(__name__)

SAYING_SHARE, MOST_NEAR = 0.5, 25
"""How much sayings count in hubness, beside names, and how many of the requests in general it is the mean of."""
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


# ---------------------------------------------------------------- meaning


@dataclass(frozen=True, slots=True)
class ToolVectors:
    """Vectors of the tools, by which meaning is compared."""

    first: NDArray[np.float32]
    """Server and name with the first sentence: unit rows (tools, dimension)."""
    named: NDArray[np.float32]
    """Name alone: unit rows (tools, dimension)."""
    others: NDArray[np.float32]
    """Description and examples of all tools: unit rows (texts, dimension)."""
    begins: NDArray[np.intp]
    """Where the rows of each tool begin in `others`."""
    requests: NDArray[np.float32]
    """What people ask of programs in general: unit rows (requests, dimension)."""
    requested: NDArray[np.float32]
    """Cosine of each of these with the tool that is nearest to it: (requests,)."""
    adapter: Adapter | None
    """None for a model that none was fitted to."""
    sayings: NDArray[np.float32]
    """What people say for such tools: rows (tools, axes), without columns where there is no adapter."""
    on_axes: NDArray[np.float32]
    """Mean of first and named on the adapter's axes: rows (tools, axes), without columns where there is no adapter."""
    hubness: NDArray[np.float32]
    """How near each tool is to the requests in general that are nearest to it: (tools,)."""
    factor: float
    offset: float
    """What brings the model's cosines to the default model's scale, see `background_requests`."""

    def to_scale(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        return cosines * self.factor + self.offset


def _make(made: Future[ToolVectors], tools: Sequence[ToolText], embedder: Embedder, text_vectors: TextVectors) -> None:
    try:
        made.set_result(_stack(tools, embedder, text_vectors))
    except Exception as error:
        # Handed to every search that waits for it.
        made.set_exception(error)


def _stack(tools: Sequence[ToolText], embedder: Embedder, text_vectors: TextVectors) -> ToolVectors:
    rows_by_text = text_vectors.of([text for tool in tools for text in (tool.named, *tool.texts)], embedder)
    first = np.stack([rows_by_text[tool.texts[0]] for tool in tools])
    named = np.stack([rows_by_text[tool.named] for tool in tools])
    texts = [[rows_by_text[text] for text in tool.texts[1:] or tool.texts] for tool in tools]
    begins = np.cumsum([0, *(len(text) for text in texts[:-1])])
    others = np.stack([row for text in texts for row in text])
    requests = request_vectors(embedder, text_vectors)
    requested = np.max([(requests @ rows.T).max(axis=1) for rows in (first, named, others)], axis=0)
    none = np.zeros((len(first), 0), np.float32)
    scale = scale_of(requests)
    unrelated = ToolVectors(first, named, others, begins, requests, requested, None, none, none, none, *scale)
    return relate(unrelated, shipped_adapter(embedder.identity.fingerprint))


def relate(vectors: ToolVectors, adapter: Adapter | None) -> ToolVectors:
    """Return the vectors with what an adapter adds to them: what is said for such tools, and their hubness."""
    requests, sayings, on_axes = vectors.requests[::EVERY], vectors.sayings, vectors.on_axes
    if adapter:
        on_axes = ((vectors.first + vectors.named) @ (adapter.axes * 0.5)).astype(np.float32)
        sayings = adapter.sayings_for(on_axes)
        near = adapter.adapt(requests) @ vectors.first.T + (requests @ adapter.axes) @ (sayings.T * SAYING_SHARE)
    else:
        near = vectors.to_scale(requests @ vectors.first.T) * (1 + SAYING_SHARE)
    hubness = np.partition(near, -MOST_NEAR, axis=0)[-MOST_NEAR:].mean(axis=0)
    return replace(vectors, adapter=adapter, sayings=sayings, on_axes=on_axes, hubness=hubness)
