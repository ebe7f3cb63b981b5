"""Find the tools that fit a query by words, meaning and use, and tell how sure that is."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from localmcp.arrays import NDArray, np
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.models import LazyEmbedder
from localmcp.models.text_vectors import TextVectors
from localmcp.tool_search.catalog import ToolCatalog
from localmcp.tool_search.features import FEATURES, Features, all_features, request_vector, word_features
from localmcp.tool_search.query import ToolDescription, ToolText, clauses, take_apart, take_query_apart

log = logging.getLogger(__name__)

KEPT_CATALOGS = 8
"""Sets of tools kept ready for search: callers with different rights search different sets."""
PATIENCE = 1.0
"""Seconds that a search waits for the model, and for the vectors of new tools, before it goes by words alone."""
MAX_SCORE_OF_WORD, MAX_SCORE = 0.79, 0.95
"""Highest score without a match of the name: below a match of one word, and below a name in full."""
SHARE_SHOWN, SHARE_OF_FIRST, FIRST, CERTAIN = 0.1, 0.005, 5, 0.67
"""A tool is shown down to this share of the best one's score, and among the first five down to a far smaller one unless
the best is certain: whether anything fits is decided for all of them, and the right one need not come first."""
MAX_RANKED = 100
"""Tools that are put in order; nobody asks for more."""
FAMILIAR, OFTEN = 0.15, 50
"""What the most used tools gain in relevance, and how many calls that takes."""
SIGNS = ("bias", "relevance", "lead", "verb_not_in_name", "words", "out_of_scope")
"""Of the most relevant tool: its relevance, how far the sixth is behind it, and whether its name lacks the verb of the
query; and of the query: how many words it has, and whether it is rather meant for other programs."""
OPPOSED = 2.0
"""What a tool loses in relevance that does the opposite of what is asked for."""


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


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One tool under one query."""

    tool: ToolDescription
    name_score: float
    odds: float
    """Log odds that it serves the query, and what its use adds to them, up to FAMILIAR."""


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

    def find(self, query: str, tools: Sequence[ToolDescription], *, patience: float = PATIENCE) -> Hits:
        """Return the tools that fit, best first; of equal scores the more relevant first, then by name.

        Args:
            query: not blank.
            tools: no two of one name.
            patience: seconds to wait for the model before words alone decide.
        """
        if not tools:
            return Hits(())
        name_scores = self._catalog(tools).rungs(query)
        features = self.features(query, tools, patience)
        if not features.words and not name_scores:
            return Hits(())
        judgment = judge(features)
        if not name_scores and not judgment.possible:
            return Hits(())
        odds = judgment.odds
        places = dict.fromkeys((*name_scores, *(-odds).argsort(kind="stable")[:MAX_RANKED].tolist()))
        candidates = [
            _Candidate(tools[place], name_scores.get(place, 0.0), float(odds[place]) + self._gain(tools[place].name))
            for place in places
        ]
        shown = _shown(candidates, one_word=len(query.split()) == 1)
        return Hits(shown, bool(name_scores) or judgment.sure)

    @property
    def remembers(self) -> bool:
        """Whether a search before this one has kept the tools' vectors."""
        return self._vectors.has_file

    # ------------------------------------------------------------ features

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

    def text_of(self, tool: ToolDescription) -> ToolText:
        """Return a tool taken apart, which is done once."""
        text = self._texts.get(tool)
        if text is None:
            text = self._texts[tool] = take_apart(tool)
        return text

    def features(self, text: str, tools: Sequence[ToolDescription], patience: float | None = PATIENCE) -> Features:
        """Return what speaks for each of the tools, of which there is at least one, no two of one name.

        Args:
            patience: seconds to wait for the model, without which words alone are compared; None does not ask it.
        """
        catalog = self._catalog(tools)
        query = catalog.repair(take_query_apart(text))
        by_words = word_features(query, catalog)
        if patience is None or self._embedder is None or not query.text:
            return by_words
        deadline = time.monotonic() + patience
        try:
            model = self._embedder.get(patience)
            remaining = max(0.0, deadline - time.monotonic())
            vectors = catalog.vectors(model, self._vectors, remaining, insist=patience > PATIENCE)
            if vectors is None:
                log.info("tools are searched by words alone until their vectors are made")
                return by_words
            rows = self._embedder.embed_queries([query.text, *clauses(query.text)])
            return all_features(request_vector(rows), vectors, by_words)
        except (ModelUnavailable, ConfigurationError) as error:
            log.info("tools are searched by words alone: %s", error)
            return by_words

    def _gain(self, name: str) -> float:
        return FAMILIAR * min(1.0, math.log1p(self._usage(name)) / math.log1p(OFTEN))


def _shown(candidates: Sequence[_Candidate], *, one_word: bool) -> tuple[Hit, ...]:
    named = any(tool.name_score for tool in candidates)
    highest = MAX_SCORE_OF_WORD if named or one_word else MAX_SCORE
    scored = [(tool.name_score or highest * probability(tool.odds), tool) for tool in candidates]
    scored.sort(key=lambda pair: (-round(pair[0], 4), -round(pair[1].odds, 1), pair[1].tool.name))
    best = scored[0][0]
    least = best * (SHARE_SHOWN if best >= CERTAIN else SHARE_OF_FIRST)
    # What a word is part of is what was asked for; tools that are only similar would come between.
    by_name = one_word and named
    return tuple(
        Hit(tool.tool, score)
        for rank, (score, tool) in enumerate(scored)
        if score >= (least if rank < FIRST else best * SHARE_SHOWN) and (tool.name_score or not by_name)
    )


# ---------------------------------------------------------------- whether any tool serves


@dataclass(frozen=True, slots=True)
class Weights:
    """One model: weights of FEATURES, weights of SIGNS, and two thresholds of the log odds that these give.

    Fitted as `tests/benchmarks/discovery_fit.py --weights` does: the order to queries over whole catalogs, the rest
    also to queries over parts of them and over catalogs without the very tools that would serve. Then strength took
    the weight of the share of words, and the verb in the name that of the verb in the text and of the kind of action.
    """

    order: tuple[float, ...]
    right: tuple[float, ...]
    """Whether a tool that serves is among the first five."""
    possible: float
    """Below this nothing is worth showing."""
    sure: float
    """From here on the tools count as sure."""


WITH_MODEL = Weights(
    order=(4.64, 5.89, 1.27, 0.76, 8.17, 11.78, -11.08, -1.54),
    right=(-1.99, 0.27, 0.24, -0.57, 0.11, -2.24),
    possible=-2.0,
    sure=0.0,
)
WITHOUT_MODEL = Weights(
    order=(0.0, 0.0, 0.0, 6.8, 0.0, 0.0, 0.0, -2.03),
    right=(-2.41, 0.59, 0.05, -0.2, 0.06, 0.0),
    possible=-2.2,
    sure=1.2,
)


def signs_of(relevances: NDArray[np.float32], features: Features) -> tuple[float, ...]:
    """Return the values that the weights of SIGNS belong to."""
    best, behind = int(relevances.argmax()), max(0, len(relevances) - FIRST - 1)
    lead = float(relevances[best] - np.partition(relevances, behind)[behind])
    missing = float(features.rows[best, FEATURES.index("verb_not_in_name")])
    return 1.0, float(relevances[best]), lead, missing, float(features.words), features.out_of_scope


@dataclass(frozen=True, slots=True)
class Judgment:
    """Scores of the tools for one request, and whether any serves it."""

    odds: NDArray[np.float32]
    """Log odds that each tool serves it: the most relevant tool answers for all."""
    possible: bool
    """Whether any of them is worth showing."""
    sure: bool
    """Whether a tool that serves is very likely among the first."""


def judge(features: Features) -> Judgment:
    """Weigh what speaks for each tool."""
    weights = WITH_MODEL if features.with_model else WITHOUT_MODEL
    # Only differences mean anything: how much likelier in log odds one tool is than another.
    relevances = features.rows @ np.array(weights.order, np.float32) - features.opposed * np.float32(OPPOSED)
    signs = signs_of(relevances, features)
    right = sum(weight * sign for weight, sign in zip(weights.right, signs, strict=True))
    if features.opposed[relevances.argmax()]:
        right = min(right, weights.sure - 1)
    odds = relevances - relevances.max() + right
    # By words alone, a request that shares none with any tool has none.
    shares_words = bool(features.rows[:, FEATURES.index("strength")].any())
    return Judgment(odds, right >= weights.possible and (features.with_model or shares_words), right >= weights.sure)


def probability(odds: float) -> float:
    """Return log odds as a number between 0 and 1."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
