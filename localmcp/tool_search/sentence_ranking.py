"""Rank tools for a sentence that asks for a call: as tool search does, and by example phrases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from localmcp.arrays import np
from localmcp.tool_search.phrases import PhraseMatch, match_phrase, parse_phrase, takes_words
from localmcp.tool_search.ranking import ToolFinder
from localmcp.tool_search.words import ToolDescription
from localmcp.tools import Json, Tool
from localmcp.wording.sentences import Token, tokenize

EVIDENCE = ("bias", "odds", "strength", "phrase", "whole_phrase", "placed_values", "unknown_words")
"""odds and strength: of tool search (`ranking.Scores`); phrase: how well the best example phrase is said,
whole_phrase: its 4th power; placed_values: 1 when a parameter asks for a path or an id of the sentence; unknown_words:
share of the sentence's telling words that neither the tool has nor the phrase explains."""
WITH_MODEL = (-1.6, 0.9, 5.0, 2.0, 2.7, 2.3, -2.58)
WITHOUT_MODEL = (-4.39, 0.0, 7.27, 1.9, 2.9, 2.67, -2.94)
"""Weights of EVIDENCE, fitted by `tests/benchmarks/router_quality.py --fit` to its development half; then the phrase
was given more at the cost of the odds, which changed nothing there: what the author of a tool wrote counts. Without a
model the odds follow from the strength."""

TRUSTED = 0.65
"""A phrase that is said less fully does not tell what its slots took."""
NONE_AT_MOST, LEAST = 0.4, 0.25
"""A tool is worth a call if "none of them" is not likelier than this, and the tool itself at least this likely."""
PATIENCE = 60.0
"""Seconds that a sentence waits for the model: what is run must not depend on how long it takes to load."""


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
        if not listed:
            return Ranking(sentence, tokens, [], 1.0)
        phrases: list[PhraseMatch | None] = []
        for tool in listed:
            properties = tool.input_schema.get("properties", {})
            # One that is nothing but a slot fits every sentence.
            parsed = (phrase for phrase in map(parse_phrase, tool.mark.examples) if not phrase.is_bare)
            matches = filter(None, (match_phrase(phrase, tokens, properties) for phrase in parsed))
            phrases.append(max(matches, key=lambda match: (round(match.score, 1), match.weight), default=None))
        ranking = self._weigh(sentence, tokens, listed, phrases, None)
        if ranking.tools[0].certainty < 0.9 if with_model is None else with_model:
            ranking = self._weigh(sentence, tokens, listed, phrases, PATIENCE)
        return ranking

    def _weigh(
        self,
        sentence: str,
        tokens: tuple[Token, ...],
        tools: Sequence[Tool],
        phrases: Sequence[PhraseMatch | None],
        patience: float | None,
    ) -> Ranking:
        # Quotations, paths, ids and numbers say nothing about the tool.
        spoken = sentence
        for token in reversed(tokens):
            if token.kind in ("quoted", "path", "id", "number"):
                spoken = spoken[: token.start] + spoken[token.stop :]
        described = [self._describe(tool) for tool in tools]
        scores = self._finder.score(" ".join(spoken.split()) or sentence, described, patience)
        weights = WITH_MODEL if scores.with_model else WITHOUT_MODEL
        telling = [place for place, token in enumerate(tokens) if is_telling(token)]
        evidence: list[tuple[float, ...]] = []
        for place, (tool, phrase) in enumerate(zip(tools, phrases, strict=True)):
            said = phrase.score if phrase else 0.0
            properties = tool.input_schema.get("properties", {})
            placed = any(token.kind in ("path", "id") and asks_for(properties, token) for token in tokens)
            known = self._finder.text_of(described[place]).weights
            explained = phrase.explained if phrase and said >= TRUSTED else frozenset[int]()
            unknown = sum(at not in explained and tokens[at].stem not in known for at in telling)
            share = unknown / max(1, sum(at not in explained for at in telling))
            by_search = (1.0, float(scores.odds[place]), float(scores.strengths[place]))
            evidence.append((*by_search, said, said**4, float(placed), share))
        # Together with "none of them", whose log odds are 0, they sum to 1.
        weighed = np.array(evidence) @ np.array(weights)
        shares = np.exp(np.append(weighed, 0.0) - max(0.0, weighed.max()))
        certainties: list[float] = (shares / shares.sum()).tolist()
        none = certainties.pop()
        ranked = list(map(RankedTool, tools, certainties, phrases, evidence))
        ranked.sort(key=lambda ranked_tool: (-ranked_tool.certainty, ranked_tool.tool.name))
        return Ranking(sentence, tokens, ranked, none)


def is_telling(token: Token) -> bool:
    """Return whether a token is a word that can point to a tool."""
    return token.kind == "symbol" or (token.kind == "word" and not token.is_function_word)


def asks_for(properties: Mapping[str, Json], token: Token) -> list[str]:
    """Return the parameters whose name or description asks for a path or an id such as `token`."""
    patterns = {"path": r"(?i:path|file|folder|url|uri)", "id": r"(?i:\bids?\b|uuid)|Id\b|ID\b"}
    if token.kind not in patterns:
        return []
    # An identifier in a description names something else: "As add_path returned it" asks for no path.
    texts = {name: re.sub(r"\w+_\w+", "", schema.get("description", "")) for name, schema in properties.items()}
    return [
        name
        for name, schema in properties.items()
        if takes_words(schema) and re.search(patterns[token.kind], f"{name} {texts[name]}")
    ]
