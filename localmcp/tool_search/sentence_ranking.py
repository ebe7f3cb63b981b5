"""Ranking tools for a sentence: example phrases, weighted words, and meaning; how sure it is, and when none fits."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from localmcp.errors import ModelUnavailable
from localmcp.text_vectors import TextVectors
from localmcp.tool_search.certainty import LEAST, NONE_AT_MOST, SURE_BY_WORDS, Evidence, share_certainty, weigh
from localmcp.tool_search.phrases import (
    GROUPS,
    Literal,
    Phrase,
    PhraseMatch,
    fits,
    is_misspelt,
    match_phrase,
    parse_phrase,
    takes_words,
)
from localmcp.tools import Tool
from localmcp.wording.normalize import fold, stem, words
from localmcp.wording.sentences import Token, tokenize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from localmcp.embeddings import LazyEmbedder

Json = dict[str, Any]

log = logging.getLogger(__name__)

NAME, TITLE, KEYWORD, EXAMPLE, DESCRIPTION, PARAMETER = 1.0, 0.9, 0.9, 0.8, 0.5, 0.4
"""What a word of the sentence counts by where the tool has it."""
TRUSTED = 0.65
"""From this score on, what the slots of a phrase took is not asked whether it knows the tool."""
GROUPED, REPAIRED = 0.6, 0.7
"""And how much of that is left when the tool has a word of the same group, or one that it is a slip of."""


# ---------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class RankedTool:
    """A tool, and how likely it is the one that is meant."""

    tool: Tool
    certainty: float
    """0..1: the estimated probability; those of all tools and of "none of them" sum to 1."""
    phrase: PhraseMatch | None
    evidence: Evidence
    repairs: Mapping[str, str]
    """Word of the sentence -> what it was taken for."""


@dataclass(frozen=True, slots=True)
class _Profile:
    """What is known of one tool before any sentence."""

    vocabulary: Mapping[str, float]
    """Stem -> weight of the best place where it stands."""
    surfaces: Mapping[str, str]
    """Folded word -> its stem."""
    phrases: tuple[Phrase, ...]
    texts: tuple[str, ...]
    """What is embedded: title and description first, then the phrases without their slots."""
    properties: Mapping[str, Json]
    required: tuple[str, ...]


# ---------------------------------------------------------------- ranking


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
    """Ranks any tools for a sentence. Thread-safe: what it keeps can be made twice, never wrongly."""

    def __init__(self, embedder: LazyEmbedder | None = None, cache: Path | None = None) -> None:
        """`cache`: the folder where the tools' vectors are kept for the next process; None keeps them in memory."""
        self._embedder = embedder
        self._profiles: WeakKeyDictionary[Tool, _Profile] = WeakKeyDictionary()
        self._vectors = TextVectors(cache)

    def rank(self, sentence: str, tools: Iterable[Tool], *, always_embed: bool = False) -> Ranking:
        """Every tool, the likeliest first, then by name.

        The model is asked only where phrases and words leave a doubt (`always_embed`: everywhere); without one, they
        alone decide.
        """
        profiles = {tool: self._profile(tool) for tool in tools}
        rarity = _rarity(profiles.values())
        tokens = tuple(tokenize(sentence))
        repairs = _repairs(tokens, rarity, profiles.values())
        judged = [_judge(profile, tokens, rarity, repairs) for profile in profiles.values()]
        certainties = share_certainty([weigh(evidence) for _, evidence in judged])
        if always_embed or max(certainties, default=0.0) < SURE_BY_WORDS:
            forms = (_without_values(sentence, tokens), _known_part(sentence, tokens, rarity))
            likenesses = self._compare(forms, list(profiles.values()))
            if likenesses is not None:
                judged = [
                    (phrase, replace(evidence, **likeness))
                    for likeness, (phrase, evidence) in zip(likenesses, judged, strict=True)
                ]
                certainties = share_certainty([weigh(evidence) for _, evidence in judged])
        ranked = [
            RankedTool(entry, certainty, phrase, evidence, repairs)
            for entry, certainty, (phrase, evidence) in zip(profiles, certainties, judged, strict=True)
        ]
        ranked.sort(key=lambda ranked_tool: (-ranked_tool.certainty, ranked_tool.tool.name))
        return Ranking(sentence, tokens, ranked, 1 - sum(certainties))

    def _compare(self, forms: Sequence[str], profiles: Sequence[_Profile]) -> list[dict[str, float]] | None:
        """The cosines of each tool with the two forms of a sentence; None without a model."""
        if self._embedder is None or not all(form.strip() for form in forms):
            return None
        try:
            rows = [self._embedder.embed_query(form) for form in forms]
            vectors = self._vectors.of({text for profile in profiles for text in profile.texts}, self._embedder.get())
        except ModelUnavailable as error:
            log.info("tools are ranked by words alone: %s", error)
            return None
        return [_likeness([vectors[text] for text in profile.texts], rows) for profile in profiles]

    def _profile(self, tool: Tool) -> _Profile:
        profile = self._profiles.get(tool)
        if profile is None:
            profile = self._profiles[tool] = describe(tool)
        return profile


def _likeness(texts: Sequence[NDArray[np.float32]], rows: Sequence[NDArray[np.float32]]) -> dict[str, float]:
    whole, bare = ([float(text @ row) for text in texts] for row in rows)
    return {
        "example": max(whole[1:], default=whole[0]),
        "description": whole[0],
        "bare_example": max(bare[1:], default=bare[0]),
        "bare_description": bare[0],
    }


def describe(tool: Tool) -> _Profile:
    """Everything that sentences are compared with; the heaviest place of a word counts."""
    schema = tool.input_schema
    properties: dict[str, Json] = schema.get("properties", {})
    phrases = tuple(parse_phrase(example) for example in tool.mark.examples)
    vocabulary: dict[str, float] = {}
    surfaces: dict[str, str] = {}
    literals = " ".join(
        " ".join(item.words) for phrase in phrases for item in phrase.items if isinstance(item, Literal)
    )
    parameters = " ".join(f"{name} {spec.get('description', '')}" for name, spec in properties.items())
    for text, weight in (
        (parameters, PARAMETER),
        (tool.description, DESCRIPTION),
        (literals, EXAMPLE),
        (" ".join(tool.mark.keywords), KEYWORD),
        (tool.mark.title, TITLE),
        (tool.name, NAME),
    ):
        stems = {word: stem(word, "english") for word in words(text)}
        surfaces.update(stems)
        vocabulary.update(dict.fromkeys(stems.values(), weight))
    vocabulary.update((symbol, EXAMPLE) for symbol in literals.split() if not symbol[0].isalnum())
    texts = (f"{tool.mark.title}. {tool.description}", *filter(None, map(said_alone, phrases)))
    return _Profile(vocabulary, surfaces, phrases, texts, properties, tuple(schema.get("required", ())))


def said_alone(phrase: Phrase) -> str:
    """A phrase without its slots."""
    return " ".join(item.words[0] for item in phrase.items if isinstance(item, Literal))


def _rarity(profiles: Iterable[_Profile]) -> dict[str, float]:
    """Stem -> ln(1 + tools / tools that have it)."""
    counts: Counter[str] = Counter()
    number = 0
    for profile in profiles:
        counts.update(profile.vocabulary.keys())
        number += 1
    return {word: math.log(1 + number / count) for word, count in counts.items()}


def is_telling(token: Token) -> bool:
    """Whether a token is a word that can point to a tool."""
    return token.kind == "symbol" or (token.kind == "word" and not token.is_function_word)


def _repairs(tokens: Sequence[Token], rarity: Mapping[str, float], profiles: Iterable[_Profile]) -> dict[str, str]:
    """Stem of a word that no tool has -> stem of the first, in order of letters, that it may be a slip of."""
    unknown = {token.stem: fold(token.text) for token in tokens if is_telling(token) and token.stem not in rarity}
    if not unknown:
        return {}
    surfaces = {surface: word for profile in profiles for surface, word in profile.surfaces.items()}
    nearest = {
        word: next((surface for surface in sorted(surfaces) if is_misspelt(value, surface)), None)
        for word, value in unknown.items()
    }
    return {word: surfaces[surface] for word, surface in nearest.items() if surface is not None}


def _without_values(sentence: str, tokens: Sequence[Token]) -> str:
    """The sentence without quotations, paths, ids and numbers, whose words say nothing about the tool."""
    kept = sentence
    for token in reversed(tokens):
        if token.kind in ("quoted", "path", "id", "number"):
            kept = kept[: token.start] + kept[token.stop :]
    return " ".join(kept.split()) or sentence


def _known_part(sentence: str, tokens: Sequence[Token], rarity: Mapping[str, float]) -> str:
    """The function words, and the words that some tool has or has a synonym of."""
    groups = [group for group in GROUPS if not group.isdisjoint(rarity.keys())]
    kept = [
        token.text
        for token in tokens
        if token.is_function_word or token.stem in rarity or any(token.stem in group for group in groups)
    ]
    return " ".join(kept) or sentence


def _judge(
    profile: _Profile, tokens: Sequence[Token], rarity: Mapping[str, float], repairs: Mapping[str, str]
) -> tuple[PhraseMatch | None, Evidence]:
    """The tool's best phrase, and the evidence that needs no model."""
    phrase = _best_phrase(profile, tokens)
    inside = phrase.inside if phrase and phrase.score >= TRUSTED else frozenset[int]()
    telling = [token for place, token in enumerate(tokens) if is_telling(token) and place not in inside]
    matched_words, reached, explained = _known_words(profile, telling, rarity, repairs)
    asked_for = any(token.kind in ("path", "id") and asks_for(profile.properties, token) for token in tokens)
    return phrase, Evidence(
        phrase=phrase.score if phrase else 0.0,
        words=matched_words,
        strength=1 - math.exp(-reached / 2),
        strange=(len(telling) - explained) / max(1, len(telling)),
        lacking=float(_lacks(profile, tokens, phrase, rarity)),
        homeless=_homeless(profile, tokens),
        housed=float(asked_for),
    )


def _best_phrase(profile: _Profile, tokens: Sequence[Token]) -> PhraseMatch | None:
    matches = (match_phrase(phrase, tokens, profile.properties) for phrase in profile.phrases if not phrase.is_bare)
    return max(filter(None, matches), key=lambda match: (round(match.score, 1), match.weight), default=None)


def _known_words(
    profile: _Profile, telling: Sequence[Token], rarity: Mapping[str, float], repairs: Mapping[str, str]
) -> tuple[float, float, int]:
    """The weighted share of known words that the tool has, that weight, and how many words it has."""
    reached = possible = 0.0
    explained = 0
    for token in telling:
        word = repairs.get(token.stem, token.stem)
        share = REPAIRED if token.stem in repairs else 1.0
        rare = rarity.get(word, 0.0)
        weight = max(profile.vocabulary.get(word, 0.0), GROUPED * _group_weight(profile, word)) * share
        explained += weight > 0
        reached += rare * weight
        possible += rare
    return (reached / possible if possible else 0.0), reached, explained


def _group_weight(profile: _Profile, word: str) -> float:
    return max(
        (profile.vocabulary.get(other, 0.0) for group in GROUPS if word in group for other in group), default=0.0
    )


def _lacks(profile: _Profile, tokens: Sequence[Token], phrase: PhraseMatch | None, rarity: Mapping[str, float]) -> bool:
    """Whether a required argument can be nothing in the sentence."""
    captured = phrase.captured if phrase and phrase.score >= TRUSTED else dict[str, range]()
    numbers = sum(token.kind == "number" for token in tokens)
    free = any(_is_free(token, rarity) for token in tokens)
    for name in profile.required:
        schema = profile.properties.get(name, {})
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


def _is_free(token: Token, rarity: Mapping[str, float]) -> bool:
    """Whether a token may be an argument: a value, or a word that no tool knows."""
    return token.kind not in ("word", "symbol") or not (token.is_function_word or token.stem in rarity)


def _homeless(profile: _Profile, tokens: Sequence[Token]) -> float:
    values = [token for token in tokens if token.kind not in ("word", "symbol")]
    lost = sum(not any(_can_take(schema, token) for schema in profile.properties.values()) for token in values)
    return lost / len(values) if values else 0.0


def _can_take(schema: Json, token: Token) -> bool:
    return fits(token, schema) or (takes_words(schema) and token.kind != "number")


_ASKING = {"path": re.compile(r"path|file|folder|url|uri", re.I), "id": re.compile(r"\bids?\b|Id\b|uuid", re.I)}


def asks_for(properties: Mapping[str, Json], token: Token) -> list[str]:
    """The parameters whose name or description asks for a path or an id such as `token`."""
    asking = _ASKING.get(token.kind)
    return [
        name
        for name, schema in properties.items()
        if asking and takes_words(schema) and asking.search(f"{name} {schema.get('description', '')}")
    ]
