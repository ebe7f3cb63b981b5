"""Finding the tools that fit a query by words, meaning and use, and saying so when none does."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.text_vectors import TextVectors
from localmcp.tool_search.abstention import (
    FEATURES,
    FITS_WITH_COMMANDS,
    FITS_WITH_MODEL,
    FITS_WITHOUT_MODEL,
    LEAST_WITH_COMMANDS,
    LEAST_WITH_MODEL,
    LEAST_WITHOUT_MODEL,
    WORD_FEATURES,
    log_odds,
    probability,
    relevance,
)
from localmcp.tool_search.catalog import ToolCatalogue
from localmcp.tool_search.features import Evidence, evidence_of_meaning, evidence_of_words
from localmcp.tool_search.query import Query, ToolDescription, ToolText, take_apart, take_query_apart

if TYPE_CHECKING:
    from localmcp.embeddings import LazyEmbedder

log = logging.getLogger(__name__)

KEPT_CATALOGUES = 8
"""Sets of tools kept ready for search: callers with different rights search different sets."""
PATIENCE = 1.0
"""Seconds that a search waits for the model, and for the vectors of new tools, before it goes by words alone."""
OF_ONE_WORD, OF_WORDS = 0.79, 0.95
"""Highest score without a match of the ladder: below its match on a name, and below a name said in full."""
SHARE_SHOWN, SHARE_OF_FIRST, FIRST = 0.1, 0.005, 5
"""A tool is shown down to this share of the best one's score, and among the first five down to a far smaller one:
whether anything fits is decided for all of them, and the right one need not come first."""
FAMILIAR, OFTEN = 0.15, 50
"""What the most used tools gain in relevance, and how many calls that takes."""
NOT_RELEVANT = -30.0
"""Log odds of a tool that only the ladder knows."""
NEAR = 0.08
"""Probability from which a tool that does not fit is still told as one of the nearest."""
TOLD = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """A tool that fits."""

    tool: ToolDescription
    score: float
    """0..1; 1.0, 0.9, 0.8 and the like are the ladder's, anything else an estimated probability, scaled."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What fits a query, best first; if nothing does, what comes nearest."""

    hits: tuple[Finding, ...]
    nearest: tuple[ToolDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class _Judged:
    """One tool under one query."""

    tool: ToolDescription
    rung: float
    odds: float
    """Log odds that it serves the query."""
    gain: float
    """What its use adds to them, 0 .. FAMILIAR."""


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
        self._catalogues: OrderedDict[tuple[int, ...], ToolCatalogue] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, query: str, tools: Sequence[ToolDescription], *, patience: float = PATIENCE) -> Findings:
        """The tools that fit, best first; of equal scores the more relevant first, then by name.

        Args:
            query: not blank.
            tools: no two of one name.
            patience: seconds to wait for the model before words alone decide. What these tools do not do is waited
                for only with more patience than `PATIENCE`, and counts as soon as it is known.
        """
        if not tools:
            return Findings(())
        catalogue = self._catalogue(tools)
        taken = catalogue.repair(take_query_apart(query))
        evidence = self._evidence(taken, catalogue, patience)
        judged, least = self._judge(query, tools, catalogue, evidence)
        if not any(each.rung or each.odds >= least for each in judged):
            judged.sort(key=lambda each: (-each.odds, each.tool.name))
            return Findings((), tuple(each.tool for each in judged[:TOLD] if probability(each.odds) >= NEAR))
        return Findings(_shown(judged, one_word=len(query.split()) == 1))

    @property
    def remembers(self) -> bool:
        """Whether a search before this one has kept what tools do."""
        return self._vectors.has_file

    # ------------------------------------------------------------ evidence

    def _catalogue(self, tools: Sequence[ToolDescription]) -> ToolCatalogue:
        """The tools made ready for search; the same object as long as the tools are the same."""
        texts = [self._text_of(each) for each in tools]
        key = tuple(map(id, texts))
        with self._lock:
            known = self._catalogues.pop(key, None) or ToolCatalogue(texts)
            self._catalogues[key] = known
            if len(self._catalogues) > KEPT_CATALOGUES:
                self._catalogues.popitem(last=False)
            return known

    def _text_of(self, each: ToolDescription) -> ToolText:
        text = self._texts.get(each)
        if text is None:
            text = self._texts[each] = take_apart(each)
        return text

    def _evidence(self, query: Query, catalogue: ToolCatalogue, patience: float) -> Evidence:
        by_words = evidence_of_words(query, catalogue)
        if self._embedder is None or not query.text.strip():
            return by_words
        deadline = time.monotonic() + patience
        try:
            embedder = self._embedder.get(patience)
            vectors = catalogue.vectors(embedder, self._vectors, max(0.0, deadline - time.monotonic()))
            if vectors is None:
                log.info("tools are searched by words alone until their vectors are made")
                return by_words
            commands = catalogue.commands(embedder, self._vectors, max(0.0, deadline - time.monotonic() - PATIENCE))
            return evidence_of_meaning(self._embedder.embed_query(query.text), vectors, by_words, commands)
        except (ModelUnavailable, ConfigurationError) as error:
            log.info("tools are searched by words alone: %s", error)
            return by_words

    def _judge(
        self, query: str, tools: Sequence[ToolDescription], catalogue: ToolCatalogue, evidence: Evidence
    ) -> tuple[list[_Judged], float]:
        """The tools that words and meaning speak for, and all those that the ladder knows; and the log odds that one
        of them must reach."""
        names = FEATURES if evidence.with_model else WORD_FEATURES
        weights, least = _weights(evidence)
        odds = log_odds(relevance(evidence.rows, names), evidence.rows, names, weights, **evidence.signs)
        relevant: dict[int, float] = dict(zip(evidence.places.tolist(), odds.tolist(), strict=True))
        rungs = catalogue.rungs(query)
        judged = [
            _Judged(
                tools[place],
                rungs.get(place, 0.0),
                relevant.get(place, NOT_RELEVANT),
                self._gain(tools[place].name),
            )
            for place in {**relevant, **rungs}
        ]
        return judged, least

    def _gain(self, name: str) -> float:
        return FAMILIAR * min(1.0, math.log1p(self._usage(name)) / math.log1p(OFTEN))


def _weights(evidence: Evidence) -> tuple[Mapping[str, float], float]:
    if not evidence.with_model:
        return FITS_WITHOUT_MODEL, LEAST_WITHOUT_MODEL
    if evidence.gap is None:
        return FITS_WITH_MODEL, LEAST_WITH_MODEL
    return FITS_WITH_COMMANDS, LEAST_WITH_COMMANDS


def _shown(judged: Sequence[_Judged], *, one_word: bool) -> tuple[Finding, ...]:
    most = OF_ONE_WORD if one_word else OF_WORDS
    scored = [(each.rung or most * probability(each.odds + each.gain), each) for each in judged]
    scored.sort(key=lambda pair: (-round(pair[0], 4), -round(pair[1].odds + pair[1].gain, 1), pair[1].tool.name))
    best = scored[0][0]
    # What a word is part of is what was asked for; tools that are only similar would stand between.
    by_ladder = one_word and any(each.rung for each in judged)
    return tuple(
        Finding(each.tool, score)
        for place, (score, each) in enumerate(scored)
        if score >= best * (SHARE_OF_FIRST if place < FIRST else SHARE_SHOWN) and (each.rung or not by_ladder)
    )
