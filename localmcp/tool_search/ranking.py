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

from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.models import LazyEmbedder
from localmcp.models.text_vectors import TextVectors
from localmcp.tool_search.abstention import judge, probability
from localmcp.tool_search.catalog import ToolCatalog
from localmcp.tool_search.features import Features, all_features, request_vector, word_features
from localmcp.tool_search.query import Query, ToolDescription, ToolText, clauses, take_apart, take_query_apart

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
        catalog = self._catalog(tools)
        name_scores = catalog.rungs(query)
        parsed = catalog.repair(take_query_apart(query))
        if not parsed.words and not name_scores:
            return Hits(())
        judgment = judge(self.features(catalog, parsed, patience))
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

    def compare(self, query: str, tools: Sequence[ToolDescription], patience: float | None = PATIENCE) -> Features:
        """Return what speaks for each tool under a query that is not adapted, in the order of the tools.

        Args:
            query: may be blank.
            tools: at least one, no two of one name.
            patience: seconds to wait for the model; None compares words alone.
        """
        catalog = self._catalog(tools)
        return self.features(catalog, catalog.repair(take_query_apart(query)), patience, adapted=False)

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

    def features(self, catalog: ToolCatalog, query: Query, patience: float | None, *, adapted: bool = True) -> Features:
        """Return what speaks for each tool: by words and meaning, or by words alone without a model in time."""
        by_words = word_features(query, catalog)
        if patience is None or self._embedder is None or not query.text.strip():
            return by_words
        deadline = time.monotonic() + patience
        try:
            model = self._embedder.get(patience)
            remaining = max(0.0, deadline - time.monotonic())
            vectors = catalog.vectors(model, self._vectors, remaining, insist=patience > PATIENCE)
            if vectors is None:
                log.info("tools are searched by words alone until their vectors are made")
                return by_words
            texts = [query.text, *(clauses(query.text) if adapted else ())]
            rows = self._embedder.embed_queries(texts)
            return all_features(request_vector(rows), vectors, by_words, adapted=adapted)
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
