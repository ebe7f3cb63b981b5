"""Rank tools for a sentence that asks for a call: as tool search does, by example phrases, and by what they require."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from localmcp.tool_search.features import COMPARED
from localmcp.tool_search.phrases import Phrase, PhraseMatch, fits, match_phrase, parse_phrase, takes_words
from localmcp.tool_search.query import ToolDescription, ToolText
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tools import Json, Tool
from localmcp.wording.sentences import Token, tokenize

EVIDENCE = (
    "bias", *COMPARED, "out_of_scope",
    "phrase", "whole_phrase", "missing_required", "unplaced_values", "placed_values", "unknown_words",
)  # fmt: skip
"""What tool search compares, and: phrase: how well the best example phrase is said, whole_phrase: its 4th power;
missing_required: 1 when an argument is required that nothing in the sentence can be; unplaced_values: share of the
sentence's paths, ids, numbers and quotations that no parameter can take; placed_values: 1 when a parameter asks for a
path or an id of the sentence; unknown_words: share of the sentence's telling words that neither the tool has nor the
phrase explains."""
WITH_MODEL = (-5.48, 3.54, 3.8, 2.09, 5.15, -1.07, 1.8, 2.45, -1.22, -0.92, 2.24, -2.54)
WITHOUT_MODEL = (-4.39, 0.0, 0.0, 0.0, 7.27, 0.0, 1.9, 2.9, -1.38, -1.03, 2.67, -2.94)
"""Weights of EVIDENCE, fitted by `tests/benchmarks/router_quality.py --fit` to its development half; strength has the
weight of the share of words too, which it replaced."""

TRUSTED = 0.65
"""A phrase that is said less fully does not tell what its slots took."""
SURE_BY_WORDS = 0.9
"""From this certainty on, by phrases and words, the model is not asked."""
NONE_AT_MOST, LEAST = 0.4, 0.25
"""A tool is worth a call if "none of them" is not likelier than this, and the tool itself at least this likely."""
PATIENCE = 60.0
"""Seconds that a sentence waits for the model: what is run must not depend on how long it takes to load."""


# ---------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class RankedTool:
    """A tool, and how likely it is the one that is meant."""

    tool: Tool
    certainty: float
    """0..1: the estimated probability; those of all tools and of "none of them" sum to 1."""
    phrase: PhraseMatch | None
    evidence: tuple[float, ...]
    """The values that the weights of EVIDENCE belong to."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """All tools, the likeliest first, and how likely it is that none is meant."""

    sentence: str
    tokens: tuple[Token, ...]
    tools: list[RankedTool]
    none: float

    @property
    def best(self) -> RankedTool | None:
        """The tool that is meant, if one is likely enough."""
        best = next(iter(self.tools), None)
        return best if best and best.certainty >= LEAST and self.none <= NONE_AT_MOST else None


# ---------------------------------------------------------------- ranking


class ToolRanking:
    """Ranks any tools for a sentence. Thread-safe."""

    def __init__(self, finder: ToolFinder, describe: Callable[[Tool], ToolDescription]) -> None:
        """`describe`: what a tool is found by, the same object for the same tool."""
        self._finder = finder
        self._describe = describe

    def rank(self, sentence: str, tools: Iterable[Tool], *, with_model: bool | None = None) -> Ranking:
        """Return every tool, the likeliest first, then by name.

        The model is asked only where phrases and words leave a doubt; `with_model` decides for every sentence.
        """
        listed = list(tools)
        tokens = tuple(tokenize(sentence))
        judged = [_judge(tool, self._finder.text_of(self._describe(tool)), tokens) for tool in listed]
        ranking = self._weigh(sentence, tokens, listed, judged, None)
        doubtful = not listed or ranking.tools[0].certainty < SURE_BY_WORDS
        if doubtful if with_model is None else with_model:
            ranking = self._weigh(sentence, tokens, listed, judged, PATIENCE)
        return ranking

    def _weigh(
        self, sentence: str, tokens: tuple[Token, ...], tools: Sequence[Tool], judged: Sequence[_Judged],
        patience: float | None,
    ) -> Ranking:  # fmt: skip
        if not tools:
            return Ranking(sentence, tokens, [], 1.0)
        described = [self._describe(tool) for tool in tools]
        features = self._finder.compare(without_values(sentence, tokens), described, patience)
        weights = WITH_MODEL if features.with_model else WITHOUT_MODEL
        evidence = [
            (1.0, *row[: len(COMPARED)], features.out_of_scope, *by_form)
            for row, (_, by_form) in zip(features.rows.tolist(), judged, strict=True)
        ]
        weighed = [sum(w * value for w, value in zip(weights, values, strict=True)) for values in evidence]
        certainties = share_certainty(weighed)
        ranked = [
            RankedTool(tool, certainty, phrase, values)
            for tool, certainty, (phrase, _), values in zip(tools, certainties, judged, evidence, strict=True)
        ]
        ranked.sort(key=lambda ranked_tool: (-ranked_tool.certainty, ranked_tool.tool.name))
        return Ranking(sentence, tokens, ranked, 1 - sum(certainties))


def share_certainty(weighed: Sequence[float]) -> list[float]:
    """Return log odds as probabilities that, together with "none of them" (log odds 0), sum to 1."""
    highest = max([0.0, *weighed])
    odds = [math.exp(weight - highest) for weight in weighed]
    total = math.exp(-highest) + sum(odds)
    return [odd / total for odd in odds]


def without_values(sentence: str, tokens: Sequence[Token]) -> str:
    """Return the sentence without quotations, paths, ids and numbers, whose words say nothing about the tool."""
    shortened = sentence
    for token in reversed(tokens):
        if token.kind in ("quoted", "path", "id", "number"):
            shortened = shortened[: token.start] + shortened[token.stop :]
    return " ".join(shortened.split()) or sentence


# ---------------------------------------------------------------- phrases and arguments

_Judged = tuple[PhraseMatch | None, tuple[float, ...]]
"""The tool's best phrase, and the evidence that needs no search."""


def _judge(tool: Tool, text: ToolText, tokens: Sequence[Token]) -> _Judged:
    properties: dict[str, Json] = tool.input_schema.get("properties", {})
    phrase = _best_phrase(tool, tokens, properties)
    score = phrase.score if phrase else 0.0
    asked_for = any(token.kind in ("path", "id") and asks_for(properties, token) for token in tokens)
    missing = _lacks(tool, tokens, phrase)
    unplaced, unknown = _unplaced(properties, tokens), _unknown_words(text, tokens, phrase)
    return phrase, (score, score**4, float(missing), unplaced, float(asked_for), unknown)


def _unknown_words(text: ToolText, tokens: Sequence[Token], phrase: PhraseMatch | None) -> float:
    explained = (phrase.literals | phrase.inside) if phrase and phrase.score >= TRUSTED else frozenset[int]()
    telling = [token.stem for position, token in enumerate(tokens) if is_telling(token) and position not in explained]
    matched = sum(word in text.weights for word in telling)
    return (len(telling) - matched) / max(1, len(telling))


def phrases_of(tool: Tool) -> tuple[Phrase, ...]:
    """Return the example phrases of a tool that are more than a slot."""
    return tuple(phrase for phrase in map(parse_phrase, tool.mark.examples) if not phrase.is_bare)


def _best_phrase(tool: Tool, tokens: Sequence[Token], properties: Mapping[str, Json]) -> PhraseMatch | None:
    matches = (match_phrase(phrase, tokens, properties) for phrase in phrases_of(tool))
    return max(filter(None, matches), key=lambda match: (round(match.score, 1), match.weight), default=None)


def is_telling(token: Token) -> bool:
    """Return whether a token is a word that can point to a tool."""
    return token.kind == "symbol" or (token.kind == "word" and not token.is_function_word)


def _lacks(tool: Tool, tokens: Sequence[Token], phrase: PhraseMatch | None) -> bool:
    """Return whether a required argument can be nothing in the sentence."""
    properties: dict[str, Json] = tool.input_schema.get("properties", {})
    captured = phrase.captured if phrase and phrase.score >= TRUSTED else dict[str, range]()
    literals = phrase.literals if phrase else frozenset[int]()
    numbers = sum(token.kind == "number" for token in tokens)
    free = any(
        token.kind not in ("word", "symbol") or (is_telling(token) and position not in literals)
        for position, token in enumerate(tokens)
    )
    for name in tool.input_schema.get("required", ()):
        schema = properties.get(name, {})
        if name in captured or schema.get("type") in ("boolean", "object"):
            continue
        if takes_words(schema):
            is_filled = free
        elif schema.get("type") in ("integer", "number"):
            is_filled = numbers > 0
            numbers -= 1
        else:
            is_filled = any(fits(token, schema) for token in tokens)
        if not is_filled:
            return True
    return False


def _unplaced(properties: Mapping[str, Json], tokens: Sequence[Token]) -> float:
    values = [token for token in tokens if token.kind not in ("word", "symbol")]
    lost = sum(
        not any(
            fits(token, schema) or (takes_words(schema) and token.kind != "number") for schema in properties.values()
        )
        for token in values
    )
    return lost / len(values) if values else 0.0


_ASKING = {"path": re.compile(r"path|file|folder|url|uri", re.I), "id": re.compile(r"\bids?\b|Id\b|uuid", re.I)}

_IDENTIFIER = re.compile(r"\w+_\w+")
"""In a description it names something else: "As add_path returned it" asks for no path."""


def asks_for(properties: Mapping[str, Json], token: Token) -> list[str]:
    """Return the parameters whose name or description asks for a path or an id such as `token`."""
    asking = _ASKING.get(token.kind)
    return [
        name
        for name, schema in properties.items()
        if asking
        and takes_words(schema)
        and asking.search(f"{name} {_IDENTIFIER.sub('', schema.get('description', ''))}")
    ]
