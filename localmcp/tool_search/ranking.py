"""Find the tools that fit a request by words, meaning and use, and tell how sure that is."""

from __future__ import annotations

import logging
import math
import operator
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

from localmcp.arrays import NDArray, np
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.models import Embedder, LazyEmbedder
from localmcp.models.text_vectors import TextVectors
from localmcp.tool_search.meaning import ToolVectors, vectors_of
from localmcp.tool_search.name_match import rung_of, squeeze
from localmcp.tool_search.words import (
    Query,
    ToolDescription,
    ToolText,
    clauses,
    opposite_verbs,
    take_apart,
    take_query_apart,
    telling,
)
from localmcp.wording.spelling import WordList, correct

log = logging.getLogger(__name__)

KEPT_CATALOGS = 8
"""Sets of tools kept ready for search: callers with different rights search different sets."""
PATIENCE = 1.0
"""Seconds that a search waits for the model, and for the vectors of new tools, before it goes by words alone."""
COMMON_SIZE = 100
"""Rarity in a smaller catalog is reckoned as if it had this many tools: few tools say little about a word."""
CLAUSE_SHARE = 0.5
"""How much the mean of a request's clauses counts beside the whole."""
MOST_WORDS = 15
FIRST = 5
"""Tools that are shown first: whether any fits is decided for all of them, and the right one need not come first."""
MAX_SCORE_OF_WORD, MAX_SCORE = 0.79, 0.95
"""Highest score without a match of the name: below a match of one word, and below a name in full."""
SHARE_SHOWN, SHARE_OF_FIRST, CERTAIN = 0.1, 0.005, 0.67
"""A tool is shown down to this share of the best one's score, and among the first down to a far smaller one unless the
best is certain."""
MAX_RANKED = 100
"""Tools that are put in order; nobody asks for more."""
FAMILIAR, OFTEN = 0.15, 50
"""What the most used tools gain in log odds, and how many calls that takes."""


class Weights(NamedTuple):
    """Weights of what speaks for a tool, and whether one that serves is among the first; fitted to judged requests.

    The order was fitted to requests over whole catalogs, the rest also to requests over parts of them and over catalogs
    without the very tools that would serve.
    """

    order: tuple[float, ...]
    """Of FEATURES."""
    right: tuple[float, ...]
    """Of SIGNS: the log odds that a tool which serves is among the first."""
    possible: float
    """Below this nothing is worth showing."""
    sure: float
    """From here on the tools count as sure."""


FEATURES = ("cosine", "other_cosine", "name_cosine", "saying", "capability", "strength", "verb_not_in_name")
"""Five of `ToolVectors.compare`, 0 without a model; strength: 1 - exp(-weight / 3) of the weight of the request's words
that the tool has, by field and rarity; verb_not_in_name: 1 if a command has a verb that is neither in the tool's name
nor first in its description, 3 if the opposite is."""
SIGNS = ("bias", "relevance", "lead", "verb_not_in_name", "words")
"""Of the most relevant tool: its relevance, how far the sixth is behind it, and whether its name lacks the verb of the
request; and how many words the request has: of a long one fewer fit any one tool."""
WITH_MODEL = Weights((4.64, 5.89, 1.27, 8.17, 11.78, 0.76, -1.54), (-3.36, 0.27, 0.24, -0.57, 0.11), -2.0, 0.0)
WITHOUT_MODEL = Weights((0.0, 0.0, 0.0, 0.0, 0.0, 6.8, -2.03), (-2.41, 0.59, 0.05, -0.2, 0.06), -2.2, 1.2)


@dataclass(frozen=True, slots=True)
class Scores:
    """One request against every tool of a catalog."""

    odds: NDArray[np.float32]
    """Log odds that each tool serves it, (tools,): the most relevant tool answers for all."""
    rows: NDArray[np.float32]
    """(tools, FEATURES)."""
    signs: tuple[float, ...]
    with_model: bool

    @property
    def strengths(self) -> NDArray[np.float32]:
        """How much of the request's words each tool has, 0..1: (tools,)."""
        return self.rows[:, FEATURES.index("strength")]

    @property
    def weights(self) -> Weights:
        return WITH_MODEL if self.with_model else WITHOUT_MODEL

    @property
    def possible(self) -> bool:
        """Whether any tool is worth showing; by words alone, a request that shares none with any tool has none."""
        shares_words = self.with_model or bool(self.strengths.any())
        return shares_words and self.odds.max() >= self.weights.possible

    @property
    def sure(self) -> bool:
        """Whether a tool that serves is very likely among the first."""
        return bool(self.odds.max() >= self.weights.sure)


@dataclass(frozen=True, slots=True)
class Hit:
    """A tool that fits."""

    tool: ToolDescription
    score: float
    """0..1; 1.0, 0.9, 0.8 and the like come from `name_match`, anything else is an estimated probability, scaled."""


@dataclass(frozen=True, slots=True)
class Hits:
    """The tools that fit a query, best first."""

    tools: tuple[Hit, ...]
    sure: bool = False
    """Whether one of them very likely serves; else they are only the nearest."""


# ---------------------------------------------------------------- a catalog


class ToolCatalog:
    """Tools that are searched together: their words counted, their vectors stacked."""

    def __init__(self, tools: Sequence[ToolText], described: Sequence[ToolDescription] = ()) -> None:
        """`described`: the tools that the texts were made of; keeping them keeps their identity."""
        self.tools = tuple(tools)
        self._described = tuple(described)
        self._lock = threading.Lock()
        self._made: dict[str, Future[ToolVectors]] = {}
        """By model; whoever asked first has waited for it."""
        self._surfaces = WordList(Counter(surface for tool in self.tools for surface in tool.surfaces))

    def holds(self, described: Sequence[ToolDescription]) -> bool:
        """Return whether it was made of exactly these tools."""
        return len(described) == len(self._described) and all(map(operator.is_, described, self._described))

    # ------------------------------------------------------------ names

    @cached_property
    def _names(self) -> Mapping[str, Mapping[int, float]]:
        """Query without spaces -> the tools that it names in full, and the ladder's score."""
        names: dict[str, dict[int, float]] = {}
        for row, tool in enumerate(self.tools):
            names.setdefault(tool.rungs.own_squeezed, {}).setdefault(row, 0.8)
            names.setdefault(tool.rungs.squeezed, {})[row] = 1.0
        return names

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
    def _holders(self) -> Mapping[str, tuple[NDArray[np.intp], NDArray[np.float32]]]:
        """Stem -> places of the tools that have it, and its weight there."""
        holders: dict[str, list[tuple[int, float]]] = {}
        for row, tool in enumerate(self.tools):
            for word, weight in tool.weights.items():
                holders.setdefault(word, []).append((row, weight))
        return {
            word: (np.array([row for row, _ in rows], np.intp), np.array([weight for _, weight in rows], np.float32))
            for word, rows in holders.items()
        }

    @cached_property
    def _by_verb(self) -> Mapping[str, list[int]]:
        """Stem -> places of the tools whose verb it is."""
        places: dict[str, list[int]] = {}
        for row, tool in enumerate(self.tools):
            for verb in tool.verbs:
                places.setdefault(verb, []).append(row)
        return places

    def read(self, text: str) -> Query:
        """Return a request taken apart, with the nearest word of a tool for each word that is neither English nor a
        tool's."""
        query = take_query_apart(text)
        # `unblock` is no English word of the vocabulary, and no slip for `block`.
        known = self._holders.keys() | opposite_verbs().keys()
        unknown = [surface for stemmed, surface in query.words.items() if stemmed not in known]
        near_words = {word: near[0].replacement for word in unknown if (near := correct(word, self._surfaces))}
        if not near_words:
            return query
        return take_query_apart(
            " ".join(near_words.get(word.lower().strip(".,;:!?"), word) for word in query.text.split())
        )

    def compare_words(self, query: Query) -> NDArray[np.float32]:
        """Return the last two of FEATURES: (tools, 2)."""
        weight = np.zeros(len(self.tools), np.float32)
        for stemmed, surface in query.words.items():
            places, shares = self._holders.get(stemmed, (None, None))
            if places is not None and shares is not None:
                rarity = math.log(1 + max(len(self.tools), COMMON_SIZE) / (len(places) + 0.5))
                weight[places] += shares * np.float32(rarity * telling(surface))
        unnamed = np.full(len(self.tools), bool(query.verbs), np.float32)
        for verbs, value in ((query.verbs, 0), (query.opposites, 3)):
            for verb in verbs:
                unnamed[self._by_verb.get(verb, [])] = value
        return np.stack([1 - np.exp(-weight / 3), unnamed], axis=1)

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


def _make(made: Future[ToolVectors], tools: Sequence[ToolText], embedder: Embedder, text_vectors: TextVectors) -> None:
    try:
        made.set_result(vectors_of(tools, embedder, text_vectors))
    except Exception as error:
        # Handed to every search that waits for it.
        made.set_exception(error)


# ---------------------------------------------------------------- searching


class ToolFinder:
    """Searches any tools. Thread-safe: what it keeps can be made twice, never wrongly."""

    def __init__(
        self,
        embedder: LazyEmbedder | None = None,
        cache: Path | None = None,
        usage: Callable[[str], int] = lambda _: 0,
    ) -> None:
        """
        Args:
            embedder: None searches by words alone.
            cache: the folder where the tools' vectors are kept for the next process; None keeps them in memory.
            usage: tool name -> how often it was called.
        """
        self._embedder = embedder
        self._vectors = TextVectors(cache)
        self._usage = usage
        self._texts: WeakKeyDictionary[ToolDescription, ToolText] = WeakKeyDictionary()
        self._catalogs: OrderedDict[tuple[int, ...], ToolCatalog] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def remembers(self) -> bool:
        """Whether a search before this one has kept the tools' vectors."""
        return self._vectors.has_file

    def text_of(self, tool: ToolDescription) -> ToolText:
        """Return a tool taken apart, which is done once."""
        text = self._texts.get(tool)
        if text is None:
            text = self._texts[tool] = take_apart(tool)
        return text

    def _catalog(self, tools: Sequence[ToolDescription]) -> ToolCatalog:
        """Return the tools made ready for search; the same object as long as the tools are the same."""
        key = tuple(map(id, tools))
        with self._lock:
            catalog = self._catalogs.pop(key, None)
            if catalog is None or not catalog.holds(tools):
                catalog = ToolCatalog([self.text_of(tool) for tool in tools], tools)
            self._catalogs[key] = catalog
            if len(self._catalogs) > KEPT_CATALOGS:
                self._catalogs.popitem(last=False)
            return catalog

    def score(self, text: str, tools: Sequence[ToolDescription], patience: float | None = PATIENCE) -> Scores:
        """Score a request against each of the tools, of which there is at least one, no two of one name.

        Args:
            patience: seconds to wait for the model, without which words alone are compared; None does not ask it.
        """
        catalog = self._catalog(tools)
        query = catalog.read(text)
        rows = np.zeros((len(tools), len(FEATURES)), np.float32)
        rows[:, -2:] = catalog.compare_words(query)
        with_model = False
        if patience is not None and self._embedder is not None and query.text:
            deadline = time.monotonic() + patience
            try:
                model = self._embedder.get(patience)
                wait = max(0.0, deadline - time.monotonic())
                vectors = catalog.vectors(model, self._vectors, wait, insist=patience > PATIENCE)
                if vectors is not None:
                    parts = self._embedder.embed_queries([query.text, *clauses(query.text)])
                    rows[:, :-2] = np.stack(vectors.compare(request_vector(parts)), axis=1)
                    with_model = True
            except (ModelUnavailable, ConfigurationError) as error:
                log.info("tools are searched by words alone: %s", error)
        return judge(rows, len(query.words), with_model=with_model)

    def find(self, query: str, tools: Sequence[ToolDescription], *, patience: float = PATIENCE) -> Hits:
        """Return the tools that fit, best first; of equal scores the more relevant first, then by name.

        Args:
            query: not blank.
            tools: no two of one name.
            patience: seconds to wait for the model before words alone decide.
        """
        if not tools:
            return Hits(())
        names = self._catalog(tools).rungs(query)
        scores = self.score(query, tools, patience)
        if not names and (not scores.signs[-1] or not scores.possible):
            return Hits(())
        one_word = len(query.split()) == 1
        # What a word is part of is what was asked for; tools that are only similar would come between.
        others = () if one_word and names else (-scores.odds).argsort(kind="stable")[:MAX_RANKED].tolist()
        highest = MAX_SCORE_OF_WORD if names or one_word else MAX_SCORE
        ranked: list[tuple[float, float, ToolDescription]] = []
        for place in dict.fromkeys((*names, *others)):
            tool = tools[place]
            odds = float(scores.odds[place]) + FAMILIAR * min(
                1.0, math.log1p(self._usage(tool.name)) / math.log1p(OFTEN)
            )
            ranked.append((names.get(place) or highest * probability(odds), odds, tool))
        ranked.sort(key=lambda entry: (-round(entry[0], 4), -round(entry[1], 1), entry[2].name))
        best = ranked[0][0]
        least = best * (SHARE_SHOWN if best >= CERTAIN else SHARE_OF_FIRST)
        shown = [
            Hit(tool, score)
            for rank, (score, _, tool) in enumerate(ranked)
            if score >= (least if rank < FIRST else best * SHARE_SHOWN)
        ]
        return Hits(tuple(shown), bool(names) or scores.sure)


def request_vector(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the unit vector of a request.

    Args:
        rows: unit vectors of the whole request, then of its clauses if there are several: one of them says what is
            wanted, the others tell of the circumstances.
    """
    if len(rows) == 1:
        return rows[0]
    mixed = rows[0] + CLAUSE_SHARE * rows[1:].mean(axis=0)
    return mixed / np.linalg.norm(mixed)


def judge(rows: NDArray[np.float32], words: int, *, with_model: bool) -> Scores:
    """Weigh what speaks for each tool: `rows` (tools, FEATURES), and the number of words of the request."""
    weights = WITH_MODEL if with_model else WITHOUT_MODEL
    # Only differences mean anything: how much likelier in log odds one tool is than another.
    relevances = rows @ np.array(weights.order, np.float32)
    best, behind = int(relevances.argmax()), max(0, len(relevances) - FIRST - 1)
    lead = float(relevances[best] - np.partition(relevances, behind)[behind])
    signs = (1.0, float(relevances[best]), lead, float(rows[best, -1]), float(min(words, MOST_WORDS)))
    right = sum(weight * sign for weight, sign in zip(weights.right, signs, strict=True))
    return Scores(relevances - relevances[best] + np.float32(right), rows, signs, with_model)


def probability(odds: float) -> float:
    """Return log odds as a number between 0 and 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
