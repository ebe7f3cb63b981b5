"""Find the tools that fit a request, whole and in its parts, by words and meaning, and tell how sure that is."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from localmcp.arrays import NDArray, Vector, Vectors, np
from localmcp.config import packaged_data
from localmcp.errors import ConfigurationError, ModelUnavailable
from localmcp.models import Embedder, LazyEmbedder
from localmcp.models.embedder import DEFAULT_NAME, TextVectors
from localmcp.tool_search.words import (
    Query,
    ToolMetadata,
    parts_of,
    read_lines,
    score_query,
    score_word,
    telling,
)

log = logging.getLogger(__name__)

Profile = Literal["best", "classic"]
PATIENCE = 1.0
"""Seconds that a search waits for the model, and for the vectors of new tools, before it goes by words alone."""
SHARE_OF_PARTS, SHARE_OF_QUERIES = 0.35, 0.8
"""How much the parts of a request count beside the whole: those it falls into, and those that the caller names."""
FIRST, FIRST_OF_PARTS = 5, 10
"""Tools that are shown first, of a request in one part and in several: the right one need not come first."""
MAX_SCORE_OF_WORD, MAX_SCORE = 0.79, 0.95
"""Highest score without a match of the name: below a match of one word, and below a name in full."""
SHARE_SHOWN, SHARE_OF_FIRST, CERTAIN, SHORT = 0.1, 0.005, 0.67, 7
"""A tool is shown down to this share of the best one's score, and among the first down to a far smaller one unless the
best is certain for a request of so few words: a longer one may ask for several things."""


class Weights(NamedTuple):
    """Weights of what speaks for a tool, and whether one that serves is among the first; fitted to judged requests."""

    order: tuple[float, ...]
    """Of the five columns of meaning; of strength, 1 - exp(-weight / 3) of the weight of the request's words that the
    tool has, by field and rarity; and of verb_not_in_name: 1 if a command has a verb that is neither in the tool's name
    nor first in its description, 3 if the opposite is ("remember a rule" must not propose deleteRule)."""
    any_fits: tuple[float, ...]
    """Of a constant 1; of the relevance of the most relevant tool; of how far the sixth is behind it; of its
    verb_not_in_name; and of how many words the request has, at most 15: of a long one fewer fit any one tool."""
    possible: float
    """Log odds from which on anything is shown at all."""
    sure: float


WITH_MODEL = Weights((6.46, 8.6, 3.06, 6.63, 7.59, 2.86, -1.54), (-3.57, 0.15, 0.24, -0.78, 0.15), -2.0, -0.3)
WITHOUT_MODEL = Weights((0.0, 0.0, 0.0, 0.0, 0.0, 6.8, -2.03), (-2.41, 0.59, 0.05, -0.2, 0.06), -2.2, 1.2)


@dataclass(frozen=True, slots=True)
class Scores:
    """One request against every tool of a catalog."""

    odds: Vector
    """Log odds that each tool serves it, (tools,): the most relevant tool answers for all."""
    strengths: Vector
    """How much of the request's words each tool has, 0..1: (tools,)."""
    parts: int
    """How many things were asked for one by one."""
    possible: bool
    """Whether any tool is worth showing; by words alone, a request that shares none with any tool has none."""
    sure: bool
    """Whether a tool that serves is very likely among the first."""
    with_model: bool


@dataclass(frozen=True, slots=True)
class Hits:
    """The tools that fit a query, best first."""

    tools: tuple[tuple[ToolMetadata, float], ...]
    """With their scores, 0..1; 1.0, 0.9, 0.8 and the like are rungs of the ladder, anything else is an estimated
    probability, scaled."""
    sure: bool = False
    """Whether one of them very likely serves; else they are only the nearest."""
    parts: int = 1
    """How many things were asked for one by one."""


# ---------------------------------------------------------------- meaning: requests moved towards tools

FILES = ("request_adapter.npz", "request_adapter_multilingual.npz")
NEAREST, NEAREST_SAYINGS, SHARPNESS = 8, 20, 20.0
"""Pairs that are borrowed for a tool and for a request, and how much more the nearer ones count."""
CENTER, SPREAD = 0.0555, 0.0778
"""Mean and standard deviation of the default model's cosines between two everyday requests."""


def _mean_of_nearest(cosines: NDArray[Any], rows: Vectors, count: int) -> Vector:
    nearest = np.argpartition(cosines, -count)[-count:]
    shares = np.exp(SHARPNESS * cosines[nearest])
    return (shares / shares.sum()) @ rows[nearest]


@cache
def shipped_adapter(fingerprint: str) -> dict[str, Any] | None:
    """Return the map that was fitted to pairs of a request and the tool that serves it, with a model, if one was.

    `down` (dimension, rank) and `up` (rank, dimension) move requests; `axes` (dimension, axes) are the directions in
    which the pairs are kept: `sayings`, what people say, and `capabilities`, what the tool for it is called, are rows
    (pairs, axes). `wording` (dimension + 1,) parts what people say from what tools are called; the last is the offset.
    Without it the right tool is among five for 9 of 100 requests less (`discovery_quality.py --half seventh`).
    """
    for file in FILES:
        with np.load(packaged_data() / file, allow_pickle=False) as stored:
            if str(stored["fingerprint"]) == fingerprint:
                # The matrices are kept as whole numbers.
                names = [name for name in stored.files if f"{name}_unit" in stored.files]
                return {name: stored[name].astype(np.float32) * stored[f"{name}_unit"] for name in names}
    return None


class ToolVectors:
    """Vectors of tools, of which there is at least one, by which meaning is compared."""

    def __init__(self, tools: Sequence[ToolMetadata], embedder: Embedder, text_vectors: TextVectors) -> None:
        rows = text_vectors.of([text for tool in tools for text in (tool.named, *tool.texts)], embedder)
        # Unit rows (tools, dimension): of server and name with the first sentence, and of the name alone.
        self._first = np.stack([rows[tool.texts[0]] for tool in tools])
        self._named = np.stack([rows[tool.named] for tool in tools])
        # Unit rows (texts, dimension) of all descriptions and examples, and where those of each tool begin.
        texts = [tool.texts[1:] or tool.texts for tool in tools]
        self._others = np.stack([rows[text] for tool_texts in texts for text in tool_texts])
        self._begins = np.cumsum([0, *map(len, texts[:-1])])
        # No adapter was fitted to most models.
        self._adapter = adapter = shipped_adapter(embedder.identity.fingerprint)
        if adapter:
            self._on_axes = ((self._first + self._named) @ (adapter["axes"] * 0.5)).astype(np.float32)
            # What people say for tools such as this one: tools are compared with tools here, as requests are with
            # requests in `compare`.
            sayings_by_tool = [
                _mean_of_nearest(adapter["capabilities"] @ tool, adapter["sayings"], NEAREST) for tool in self._on_axes
            ]
            self._sayings = np.stack(sayings_by_tool)
        is_default = embedder.identity.name == DEFAULT_NAME
        self._scale = (1.0, 0.0) if is_default else scale_of(embedder, text_vectors)

    def compare(self, request: Vector) -> tuple[Vector, ...]:
        """Return five columns (tools,) for the unit vector of a request, on the default model's scale.

        Its cosine with the tool's server, name and first sentence; with the nearer of its description and examples;
        with its name alone; with what people say for such tools; and of the tool with what tools for such requests
        are called. Without an adapter the last two are the first, and half of it.
        """
        adapter, freedom, row = self._adapter, 1.0, request
        if adapter:
            # How freely a request is worded: from 0, as tools are called (assistants do that), to 1.
            freedom = min(1.0, max(0.0, float(request @ adapter["wording"][:-1] + adapter["wording"][-1])))
            moved = request + freedom * ((request @ adapter["down"]) @ adapter["up"])
            row = (moved / np.linalg.norm(moved)).astype(np.float32)
        cosines = (self._first @ row, np.maximum.reduceat(self._others @ row, self._begins), self._named @ row)
        first, other, named = (cosine * self._scale[0] + self._scale[1] for cosine in cosines)
        if adapter is None:
            return first, other, named, first, first / 2
        on_axes = request @ adapter["axes"]
        # What tools for such requests are called.
        called = _mean_of_nearest(adapter["sayings"] @ on_axes, adapter["capabilities"], NEAREST_SAYINGS)
        return first, other, named, freedom * (self._sayings @ on_axes), freedom * (self._on_axes @ called)


def scale_of(embedder: Embedder, text_vectors: TextVectors) -> tuple[float, float]:
    """Return (factor, offset) that bring a model's cosines to the default model's scale, which the weights assume.

    Models differ in how near they put two unrelated texts: e5 at 0.7, MiniLM at 0.1.
    """
    rows = text_vectors.rows(read_lines("everyday_requests.txt")[::3], embedder)
    cosines = (rows @ rows.T)[np.triu_indices(len(rows), 1)]
    factor = min(2.0, max(0.5, SPREAD / max(float(cosines.std()), 1e-6)))
    return factor, CENTER - factor * float(cosines.mean())


class ToolCatalog:
    """Tools that are searched together: their words counted, their vectors stacked."""

    def __init__(self, tools: tuple[ToolMetadata, ...]) -> None:
        self.tools = tools
        self._lock = threading.Lock()
        self._made: dict[str, Future[ToolVectors]] = {}
        """By model."""
        self._names: dict[str, dict[int, float]] = {}
        """Name, squeezed, with and without the namespace -> the tools that it names in full, and the ladder's score."""
        self._by_verb: dict[str, list[int]] = {}
        """Stem -> places of the tools whose verb it is."""
        held: dict[str, list[tuple[int, float]]] = {}
        for row, tool in enumerate(self.tools):
            name = tool.lowered.name
            self._names.setdefault(_squeeze(name.rpartition("__")[2]), {}).setdefault(row, 0.8)
            self._names.setdefault(_squeeze(name), {})[row] = 1.0
            for verb in tool.verbs:
                self._by_verb.setdefault(verb, []).append(row)
            for word, weight in tool.weights.items():
                held.setdefault(word, []).append((row, weight))
        columns = ((word, tuple(zip(*rows, strict=True))) for word, rows in held.items())
        self._holders = {
            word: (np.array(places, np.intp), np.array(weights, np.float32)) for word, (places, weights) in columns
        }
        """Stem -> places of the tools that have it, and its weight there."""

    def rungs(self, query: str) -> Mapping[int, float]:
        """Return places of the tools that the ladder is sure of, by a name in full or a single word, and its score."""
        lowered = query.strip().lower()
        named: Mapping[int, float] = self._names.get(_squeeze(lowered) or " ", {})
        if " " in lowered:
            return named
        # One of up to three letters inside another word is none: `art` in `start`.
        inside = re.compile(rf"(?<![^\W_]){re.escape(lowered)}" if len(lowered) < 4 else "")
        rungs: dict[int, float] = {}
        for row, tool in enumerate(self.tools):
            texts = (tool.lowered.name, tool.lowered.description, *tool.lowered.keywords)
            if (score := score_word(lowered, tool.lowered)) and inside.search(" ".join(texts)):
                rungs[row] = score
        return rungs | {row: 1.0 for row, score in named.items() if score == 1.0}

    def compare_words(self, query: Query) -> Vectors:
        """Return strength and verb_not_in_name, see `Weights`: (tools, 2)."""
        weight = np.zeros(len(self.tools), np.float32)
        for stemmed, surface in query.words.items():
            places, shares = self._holders.get(stemmed, (None, None))
            if places is not None and shares is not None:
                # Few tools say little about a word: fewer than 100 count as 100.
                rarity = math.log(1 + max(len(self.tools), 100) / (len(places) + 0.5))
                weight[places] += shares * np.float32(rarity * telling(surface))
        unnamed = np.full(len(self.tools), bool(query.verbs), np.float32)
        for verbs, value in ((query.verbs, 0), (query.opposites, 3)):
            for verb in verbs:
                unnamed[self._by_verb.get(verb, [])] = value
        return np.stack([1 - np.exp(-weight / 3), unnamed], axis=1)

    def vectors(self, embedder: Embedder, text_vectors: TextVectors, wait: float) -> ToolVectors | None:
        """Return the tools' vectors for a model, made in the background; None if that takes longer than `wait` seconds.

        Raises ModelUnavailable if the model fails.
        """

        def make(made: Future[ToolVectors]) -> None:
            try:
                made.set_result(ToolVectors(self.tools, embedder, text_vectors))
            except Exception as error:
                # Handed to every search that waits for it.
                made.set_exception(error)

        model = embedder.identity.fingerprint
        with self._lock:
            made = self._made.get(model)
            if made is None or (made.done() and made.exception() is not None):
                made = self._made[model] = Future()
                threading.Thread(target=make, args=(made,), name="localmcp-tools", daemon=True).start()
        try:
            return made.result(wait)
        except TooLate:
            return None


class ToolFinder:
    """Searches any tools. Thread-safe: what it keeps can be made twice, never wrongly."""

    def __init__(self, embedder: LazyEmbedder | None = None, cache: Path | None = None) -> None:
        """Without an embedder words alone decide; `cache` is a folder that keeps tools' vectors for other processes."""
        self._embedder = embedder
        self.vectors = TextVectors(cache)
        """Those of tools, which a search before may have kept."""
        # Callers with different rights search different sets.
        self._catalog = lru_cache(8)(ToolCatalog)

    def score(
        self,
        text: str,
        tools: Sequence[ToolMetadata],
        patience: float | None = PATIENCE,
        queries: Sequence[str] = (),
    ) -> Scores:
        """Score a request against each of the tools, of which there is at least one, no two of one name.

        `patience`: seconds to wait for the model, without which words alone are compared; None does not ask it.
        `queries`: the parts of the request; where there are none, its sentences, clauses and entries of lists.
        """
        texts = [text, *(queries or parts_of(text))]
        rows, words, with_model = self.evidence(texts, tools, patience)
        weights = WITH_MODEL if with_model else WITHOUT_MODEL
        odds = [row @ np.array(weights.order, np.float32) for row in rows]
        # Only differences mean anything: how much likelier in log odds one tool is than another.
        relevances = odds[0]
        best, behind = int(relevances.argmax()), max(0, len(tools) - FIRST - 1)
        lead = relevances[best] - np.partition(relevances, behind)[behind]
        signals = (1.0, relevances[best], lead, rows[0][best, -1], min(words, 15))
        any_fits = float(np.dot(weights.any_fits, signals))
        if len(rows) > 1:
            # Of the whole, and of the parts, of each of which the best tool counts most.
            shares = [np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in odds]
            of_parts = SHARE_OF_QUERIES if queries else SHARE_OF_PARTS
            mixed = (1 - of_parts) * shares[0] + of_parts * np.max(shares[1:], axis=0) / (len(shares) - 1)
            relevances = np.log(mixed + np.float32(1e-12))
        strengths = rows[0][:, -2]
        has_words = words > 0 and (with_model or bool(strengths.any()))
        return Scores(
            relevances - relevances.max() + np.float32(any_fits),
            strengths,
            max(1, len(texts) - 1),
            has_words and any_fits >= weights.possible,
            any_fits >= weights.sure,
            with_model,
        )

    def evidence(
        self, texts: Sequence[str], tools: Sequence[ToolMetadata], patience: float | None
    ) -> tuple[list[Vectors], int, bool]:
        """Return what speaks for each tool, (tools, columns of `Weights.order`) for each text, how many telling words
        the first has, and whether the model was there in time."""
        catalog = self._catalog(tuple(tools))
        queries = [Query(text) for text in texts]
        by_words = [catalog.compare_words(query) for query in queries]
        by_meaning = [np.zeros((len(tools), 5), np.float32)] * len(texts)
        vectors = None
        if patience is not None and self._embedder is not None and texts[0].strip():
            deadline = time.monotonic() + patience
            try:
                model = self._embedder.get(patience)
                vectors = catalog.vectors(model, self.vectors, max(0.0, deadline - time.monotonic()))
                if vectors is not None:
                    requests = self._embedder.embed_queries(texts)
                    if len(requests) > 1:
                        # One of the parts says what is wanted, the others tell of the circumstances.
                        whole = requests[0] + 0.5 * requests[1:].mean(axis=0)
                        requests[0] = whole / np.linalg.norm(whole)
                    by_meaning = [np.stack(vectors.compare(request), axis=1) for request in requests]
            except (ModelUnavailable, ConfigurationError) as error:
                vectors = None
                log.info("tools are searched by words alone: %s", error)
        rows = [np.concatenate(columns, axis=1) for columns in zip(by_meaning, by_words, strict=True)]
        return rows, len(queries[0].words), vectors is not None

    def find(
        self,
        query: str,
        tools: Sequence[ToolMetadata],
        *,
        profile: Profile = "best",
        patience: float = PATIENCE,
        queries: Sequence[str] = (),
    ) -> Hits:
        """Return the tools that fit, best first; an empty query lists all with score 1.0 by name.

        `classic` is the original's ladder (requirements.md, section 4): of equal scores by name. `best` keeps its score
        for a name and for single words, and compares words and meaning for anything else; of equal scores the more
        relevant first, then by name. No two tools have one name. `patience` and `queries` are as for `score`.
        """
        if not tools:
            return Hits(())
        if not query.strip() or profile == "classic":
            scored = [(tool, score) for tool in tools if (score := score_query(query, tool)) > 0]
            return Hits(tuple(sorted(scored, key=lambda hit: (-hit[1], hit[0].name))), sure=True)
        # A quotation is a value, but here it is the request itself.
        if quotation := re.fullmatch(r'\s*["“]([^"“”]*\w[^"“”]*)["”]\s*', query):
            query = quotation[1]
        names: Mapping[int, float] = {} if queries else self._catalog(tuple(tools)).rungs(query)
        scores = self.score(query, tools, patience, queries)
        if not names and not scores.possible:
            return Hits(())
        one_word = len(query.split()) == 1
        # What a word is part of is what was asked for; tools that are only similar would come between.
        others = () if one_word and names else (-scores.odds).argsort(kind="stable")[:100].tolist()
        highest = MAX_SCORE_OF_WORD if names or one_word else MAX_SCORE
        probable = 1 / (1 + np.exp(-scores.odds.astype(np.float64).clip(-30, 30)))
        ranked = [
            (names.get(place) or highest * float(probable[place]), scores.odds[place], tools[place])
            for place in dict.fromkeys((*names, *others))
        ]
        ranked.sort(key=lambda entry: (-round(entry[0], 4), -round(float(entry[1]), 1), entry[2].name))
        best, first = ranked[0][0], FIRST if scores.parts == 1 else FIRST_OF_PARTS
        is_settled = best >= CERTAIN and len(query.split()) <= SHORT
        least = best * (SHARE_SHOWN if is_settled else SHARE_OF_FIRST)
        shown = [
            (tool, score)
            for rank, (score, _, tool) in enumerate(ranked)
            if score >= (least if rank < first else best * SHARE_SHOWN)
        ]
        return Hits(tuple(shown), bool(names) or scores.sure, scores.parts)


def _squeeze(text: str) -> str:
    """Return letters and digits only: a name is a name in whatever notation ("send email" is `send_email`)."""
    return re.sub(r"[\W_]+", "", text)
