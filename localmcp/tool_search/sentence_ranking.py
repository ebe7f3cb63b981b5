"""Rank tools for a sentence that asks for a call: as tool search does, and by example phrases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from localmcp.arrays import np
from localmcp.tool_search.discovery import Discovery
from localmcp.tool_search.words import Token, function_words, read_lines, tokenize
from localmcp.tools import Json, Tool
from localmcp.wording.normalize import fold, stem
from localmcp.wording.spelling import is_slip

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
        return best if best and best.certainty >= 0.25 and self.none <= 0.4 else None


def rank_tools(
    sentence: str, tools: Iterable[Tool], discovery: Discovery, *, with_model: bool | None = None
) -> Ranking:
    """Return every tool, the likeliest for a sentence first, then by name.

    The model is asked only where phrases and words leave a doubt; `with_model` decides for every sentence.
    """
    listed = list(tools)
    tokens = tuple(tokenize(sentence))
    if not listed:
        return Ranking(sentence, tokens, [], 1.0)
    # Quotations, paths, ids and numbers say nothing about the tool; the name of a file says that a document is meant.
    spoken = sentence
    for token in reversed(tokens):
        if token.kind in ("quoted", "path", "id", "number"):
            is_name = token.kind == "path" and not re.search(r"[/\\]", token.text)
            name = f"{token.text.rpartition('.')[0]} document" if is_name else ""
            spoken = f"{spoken[: token.start]}{name}{spoken[token.stop :]}"
    spoken = " ".join(spoken.split()) or sentence
    telling = [place for place, token in enumerate(tokens) if is_telling(token)]
    described = list(map(discovery.describe, listed))
    phrases: list[PhraseMatch | None] = []
    by_sentence: list[tuple[float, ...]] = []
    for tool, description in zip(listed, described, strict=True):
        properties = tool.input_schema.get("properties", {})
        parsed = map(parse_phrase, tool.mark.examples)
        matches = filter(None, (match_phrase(phrase, tokens, properties) for phrase in parsed))
        phrase = max(matches, key=lambda match: (round(match.score, 1), match.weight), default=None)
        share = phrase.score if phrase else 0.0
        placed = any(token.kind in ("path", "id") and asks_for(properties, token) for token in tokens)
        explained: set[int] = set()
        if phrase and share >= TRUSTED:
            explained = explained.union(phrase.literals, *phrase.captured.values())
        left = [tokens[place].stem not in description.weights for place in telling if place not in explained]
        phrases.append(phrase)
        by_sentence.append((share, share**4, float(placed), sum(left) / max(1, len(left))))

    def weigh(patience: float | None) -> Ranking:
        scores = discovery.finder.score(spoken, described, patience)
        weights = np.array(WITH_MODEL if scores.with_model else WITHOUT_MODEL)
        by_search: list[list[float]] = np.stack([scores.odds, scores.strengths], axis=1).tolist()
        evidence = [(1.0, *pair, *signals) for pair, signals in zip(by_search, by_sentence, strict=True)]
        # Together with "none of them", whose log odds are 0, they sum to 1.
        weighed = np.array(evidence) @ weights
        shares = np.exp(np.append(weighed, 0.0) - max(0.0, weighed.max()))
        certainties: list[float] = (shares / shares.sum()).tolist()
        none = certainties.pop()
        ranked = list(map(RankedTool, listed, certainties, phrases, evidence))
        ranked.sort(key=lambda ranked_tool: (-ranked_tool.certainty, ranked_tool.tool.name))
        return Ranking(sentence, tokens, ranked, none)

    ranking = weigh(None)
    is_asked = ranking.tools[0].certainty < 0.9 if with_model is None else with_model
    return weigh(PATIENCE) if is_asked else ranking


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


# ---------------------------------------------------------------- phrases

FUNCTION_WEIGHT, VERB_WEIGHT, SLOT_WEIGHT = 0.2, 0.6, 0.5
"""What a function word, a verb of asking and a filled slot count for in a phrase; every other word counts 1."""
SKIPPED_FUNCTION, SKIPPED_WORD, CAPTURED = 0.04, 0.35, 0.02
"""What a word of the sentence costs that the phrase does not explain, and one that a slot takes."""
ALIKE, MISSPELT = 0.8, 0.85
"""How well a word of the same group matches, and one with a typing error."""

_VERB_WORDS = frozenset("find search show display give get view see print list look open tell need".split())


class Literal:
    """A word of a phrase, or several with | between; kept, so that comparisons are kept by it."""

    def __init__(self, written: str) -> None:
        self.words = [fold(word) for word in written.split("|")]
        self.stems = {stem(word, "english") for word in self.words}
        self.alike = set[str]().union(*(group for group in _groups() if not group.isdisjoint(self.stems)))
        """Stems of the words of the same groups."""
        asks = any(stem(word, "english") in self.stems for word in _VERB_WORDS)
        is_function_word = function_words().issuperset(self.words)
        self.weight = FUNCTION_WEIGHT if is_function_word else VERB_WEIGHT if asks else 1.0


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for an argument."""

    parameter: str
    singular: bool = False


Phrase = tuple[tuple[Literal | Slot, ...], Mapping[str, Any]]
"""An example of a tool, taken apart: words and slots, and the constants by parameter."""


@dataclass(frozen=True, slots=True)
class PhraseMatch:
    """A phrase that a sentence says, more or less."""

    phrase: Phrase
    score: float
    """0..1; 1 = every word of the phrase, and nothing else but arguments and courtesies."""
    weight: float
    """The weight that was matched: of two phrases said in full, the more specific has more."""
    captured: Mapping[str, range]
    """Parameter -> the places of the tokens in its slot."""
    literals: frozenset[int]
    """Places of the tokens that are words of the phrase."""


@cache
def parse_phrase(text: str) -> Phrase:
    """Return an example phrase, taken apart by the notation of `ToolMark.examples`."""
    items: list[Literal | Slot] = []
    constants: Json = {}
    part = r"\{(\w+)(?::(singular))?(?:=([^}]*))?\}|([^\W_]+(?:['’|][^\W_]+)*)|([+*/=%])"
    for parameter, singular, constant, words, symbol in re.findall(part, text):
        if parameter and f"{{{parameter}=" in text:
            constants[parameter] = constant
        elif parameter:
            items.append(Slot(parameter, bool(singular)))
        else:
            items.append(_literal(words or symbol))
    return tuple(items), constants


@cache
def _groups() -> list[set[str]]:
    return [{stem(word, "english") for word in line.split()} for line in read_lines("phrase_synonyms.txt")]


_literal = cache(Literal)


def match_phrase(phrase: Phrase, tokens: Sequence[Token], properties: Mapping[str, Any]) -> PhraseMatch | None:
    """Return how well a sentence says a phrase; None if it shares no word of weight with it.

    The best alignment, found from the end: words of the phrase may be missing, words of the sentence may be left over,
    and slots take whole runs of tokens. `properties`: the tool's parameters as JSON Schema.
    """
    items, _ = phrase
    literals = [item for item in items if isinstance(item, Literal)]
    # A verb of asking alone tells nothing where the phrase has a noun.
    most = max((literal.weight for literal in literals), default=0.0)
    heaviest = [literal for literal in literals if literal.weight == most]
    count = len(tokens)
    if not any(_said_with(literal, tokens, place) for literal in heaviest for place in range(count)):
        return None
    costs = [SKIPPED_FUNCTION if token.is_function_word else SKIPPED_WORD for token in tokens]

    @cache
    def best(number: int, position: int) -> tuple[float, tuple[tuple[Literal | Slot, range], ...]]:
        """Score of what items from `number` on make of the tokens from `position` on, and which tokens each has."""
        if position == count:
            return 0.0, ()
        left_over, steps_after = best(number, position + 1)
        skipped = (left_over - costs[position], steps_after)
        if number == len(items):
            return skipped
        item = items[number]
        if isinstance(item, Literal):
            gains = [(n, item.weight * quality, 0.0) for n, quality in _said_with(item, tokens, position)]
        else:
            schema = properties.get(item.parameter, {})
            longest = count - position if takes_words(schema) else len(values_from(tokens, position, schema))
            gains = [(n, SLOT_WEIGHT, CAPTURED * n) for n in range(1, longest + 1)]
        # Of equal ones the first: what can be a slot's is not left to a later one.
        options: list[tuple[float, tuple[tuple[Literal | Slot, range], ...]]] = []
        for n, gain, cost in gains:
            rest, steps = best(number + 1, position + n)
            options.append((rest + gain - cost, ((item, range(position, position + n)), *steps)))
        return max([*options, best(number + 1, position), skipped], key=lambda option: option[0])

    score, steps = best(0, 0)
    if score <= 0:
        return None
    whole = sum(item.weight if isinstance(item, Literal) else SLOT_WEIGHT for item in items)
    captured = {item.parameter: run for item, run in steps if isinstance(item, Slot)}
    literal_words = frozenset(place for item, run in steps if isinstance(item, Literal) for place in run)
    return PhraseMatch(phrase, min(score / whole, 1.0), score, captured, literal_words)


def _said_with(item: Literal, tokens: Sequence[Token], position: int) -> list[tuple[int, float]]:
    # With how many tokens a word of a phrase is said, and how well: `quick start` are two for quickstart.
    token, *following = tokens[position : position + 2]
    quality = 1.0 if token.stem in item.stems else 0.0
    if not quality and token.kind == "word" and item.weight > FUNCTION_WEIGHT:
        quality = ALIKE if token.stem in item.alike else MISSPELT * _is_misspelt(item, token.text)
    readings = [(1, quality)] if quality else []
    if following and token.kind == following[0].kind == "word" and _is_joined(item, token.text, following[0].text):
        readings.append((2, 1.0))
    return readings


@lru_cache(maxsize=50_000)
def _is_misspelt(item: Literal, text: str) -> bool:
    word = fold(text)
    return word not in function_words() and any(is_slip(word, other) for other in item.words)


@lru_cache(maxsize=50_000)
def _is_joined(item: Literal, first: str, second: str) -> bool:
    return singular_of(fold(first + second)) in map(singular_of, item.words)


# ---------------------------------------------------------------- what a slot takes


def takes_words(schema: Json) -> bool:
    """Return whether any run of words can fill the parameter."""
    single = schema.get("items", {}) if schema.get("type") == "array" else schema
    return "enum" not in single and single.get("type", "string") == "string"


def value_of(token: Token, schema: Json) -> Any:
    """Return what a token says for a parameter that is not free text, or an item of it; None if it says nothing."""
    single = schema.get("items", {}) if schema.get("type") == "array" else schema
    if "enum" in single:
        choices = ((fold(str(value)), value) for value in single["enum"])
        written = fold(token.text)
        return next((v for name, v in choices if name == written or stem(name, "english") == token.stem), None)
    if token.kind != "number" or single.get("type") not in ("integer", "number"):
        return None
    # A comma before exactly three digits separates thousands; `0,25` is written with one as well.
    is_thousands = re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", token.text)
    *whole, last = re.split("[.,]", token.text.replace(",", "") if is_thousands else token.text)
    number = float(f"{''.join(whole)}.{last}" if whole else last)
    return int(number) if number.is_integer() else number


def values_from(tokens: Sequence[Token], position: int, schema: Json) -> range:
    """Return the places of the value at a place, none if it does not fit; of a list `3, 4 and 5` as a whole."""
    stop = position
    for following in range(position, len(tokens)):
        if value_of(tokens[following], schema) is not None:
            stop = following + 1
        elif following == position or tokens[following].text != "and":
            break
        if schema.get("type") != "array":
            break
    return range(position, stop)


def trim(run: Sequence[Token]) -> Sequence[Token]:
    """Return what a slot took, without articles and prepositions around it.

    `the roses` becomes `roses`; a title in capitals keeps its `The`.
    """
    idle = function_words() | {"called", "named", "titled", "back"}
    first, last = 0, len(run)
    while first + 1 < last:
        text = run[first].text
        # The first word of a sentence has its capital from there.
        if text not in idle and (run[first].start or text.lower() not in idle | _VERB_WORDS):
            break
        first += 1
    while last - 1 > first and run[last - 1].text in idle:
        last -= 1
    return run[first:last]


def written(sentence: str, run: Sequence[Token], *, singular: bool = False) -> str:
    """Return tokens as they are in the sentence; a single quotation without its marks."""
    last = run[-1]
    ending = singular_of(last.text) if singular else last.text
    if len(run) == 1:
        return ending
    return sentence[run[0].start : last.start] + ending if singular else sentence[run[0].start : last.stop]


def singular_of(word: str) -> str:
    """Return an English noun in the singular: policies, boxes, images, APIs; `access` and `status` stay."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("ches", "shes", "xes", "sses", "zes")):
        return word[:-2]
    keeps = word.endswith(("ss", "us", "is", "os")) or not word.endswith("s") or len(word) < 4
    return word if keeps else word[:-1]
