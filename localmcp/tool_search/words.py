"""A tool and a request in words: what they are compared by."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from localmcp.config import packaged_data
from localmcp.schemas import list_of, mapping_of
from localmcp.tool_search.name_match import ToolMetadata
from localmcp.tools import Json
from localmcp.wording.normalize import fold, stem, words
from localmcp.wording.sentences import function_words, tokenize
from localmcp.wording.spelling import model_vocabulary

MOST_EXAMPLES = 8
LONGEST_TEXT = 600
"""Characters of a description that are embedded; the window of the default model is about 1,000."""

FIRST_WORD = 1995
"""Number of the vocabulary's first whole word."""
COMMON, RARE = 100, 3000
"""Ranks among English words: about where a word begins to tell something, and from where on it tells all it can."""

MOST_PARTS = 8
_PART_END = re.compile(
    r"(?<=[.!?;:])\s+|,\s+|\s*\n[\s*•-]*|\s+[-–]\s+"
    r"|\s+(?=(?:and|but|so|then|because|before|since|while|when|if)\s)"
)
_SLOT = re.compile(r"\{[^}]*\}")
_SENTENCE_END = re.compile(r"(?<=[.:;!?])\s|\n")

REACH = 6
"""A second word of a verb ("turn the music down") is within so many words."""
_QUESTION = frozenset(
    """what whats which who whom whose where when how why is are am was were do does did has have had will there any
    can""".split()
)
_BEFORE_A_THING = frozenset(
    "the a an my this that our your his her their me it him us them all every some these those any one two".split()
)


def read_lines(name: str) -> list[str]:
    """Return the lines of a file of words that is shipped, without comments."""
    text = (packaged_data() / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


# ---------------------------------------------------------------- tools


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ToolDescription:
    """Description of a tool, as far as it is known without calling it."""

    name: str
    description: str = ""
    keywords: tuple[str, ...] = ()
    title: str = ""
    examples: tuple[str, ...] = ()
    schema: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, eq=False)
class ToolText:
    """A tool, taken apart once."""

    metadata: ToolMetadata
    """In lower case."""
    weights: Mapping[str, float]
    """Stem -> weight of its best place."""
    surfaces: frozenset[str]
    """Its words, folded."""
    verbs: frozenset[str]
    """Stems of the verbs in the name and at the beginning of the description; those of looking if there is none."""
    named: str
    """The name without the namespace, as words; it is embedded besides."""
    texts: tuple[str, ...]
    """What is embedded: server and name with the first sentence, the description, the examples."""


def take_apart(description: ToolDescription) -> ToolText:
    """Return the words, the verbs and the texts of a tool."""
    namespace, _, local = description.name.rpartition("__")
    examples = [_SLOT.sub(" ", example).replace("|", " ") for example in description.examples[:MOST_EXAMPLES]]
    weights: dict[str, float] = {}
    surfaces: set[str] = set()
    # A word counts by the best place where the tool has it.
    for text, weight in (
        (_parameter_text(description.schema), 0.4),
        (description.description, 0.6),
        (namespace, 0.7),
        (" ".join(examples), 0.8),
        (" ".join((*description.keywords, description.title)), 0.9),
        (local, 1.0),
    ):
        surfaces.update(words(text))
        weights.update(dict.fromkeys((stem(word, "english") for word in words(text)), weight))
    # Without the whole identifier, which `words` puts before its parts.
    runs_of_words = [words(run) for run in re.split(r"[\W_]+", local)]
    named = " ".join(word for run in runs_of_words for word in (run[1:] if len(run) > 1 else run)) or local
    in_full = " ".join((*words(namespace), named))
    shown = description.description[:LONGEST_TEXT].strip()
    first = first_sentence(shown)
    texts = (
        f"{in_full}: {first}" if first else in_full,
        shown or named,
        *(" ".join(text.split()) for text in examples),
    )
    verb_places = [*words(local), *words(description.description)[:1]]
    return ToolText(
        ToolMetadata(description.name, description.description, description.keywords).lower(),
        weights,
        frozenset(surfaces),
        (known_verbs() & {stem(word, "english") for word in verb_places}) or looking(),
        named,
        tuple(dict.fromkeys(filter(None, texts))),
    )


def first_sentence(description: str) -> str:
    """Return up to the first end of a sentence or a line."""
    return _SENTENCE_END.split(description.strip(), maxsplit=1)[0]


def _parameter_text(schema: Json) -> str:
    """Return names, descriptions and allowed values of the parameters, nested ones too."""
    texts: list[str] = []
    waiting: list[tuple[Json, int]] = [(schema, 0)]
    while waiting:
        level, depth = waiting.pop()
        for name, spec in mapping_of(level.get("properties")).items() if depth <= 3 else ():
            parameter = mapping_of(spec)
            texts += [name, str(parameter.get("description", "")), *map(str, list_of(parameter.get("enum"))[:50])]
            waiting += [(parameter, depth + 1), (mapping_of(parameter.get("items")), depth + 1)]
    return " ".join(texts)


# ---------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class Query:
    """The words of a request or of one of its parts."""

    words: Mapping[str, str]
    """Stem -> the folded word, of those that can point to a tool."""
    verbs: frozenset[str] = frozenset()
    """Stems of the verbs that a tool for it may have; empty where no verb is asked for, or in several parts."""
    opposites: frozenset[str] = frozenset()
    """Stems of verbs that do the opposite of what is asked for."""


def take_query_apart(query: str) -> Query:
    """Return the words of a query that can point to a tool, courtesies and values left out."""
    spoken = [token.text for token in tokenize(query) if token.kind == "word"]
    surfaces: dict[str, str] = {}
    for text in spoken:
        parts = words(text)
        if len(parts) > 1 and parts[0] == "".join(parts[1:]):
            del parts[0]
        for word in parts:
            if word not in function_words():
                surfaces.setdefault(stem(word, "english"), word)
    if parts_of(query) or not spoken:
        return Query(surfaces)
    verbs = verbs_asked([fold(text) for text in spoken])
    opposites = opposite_verbs().get(stem(fold(spoken[0]), "english"), frozenset())
    return Query(surfaces, verbs, opposites - verbs)


def parts_of(text: str) -> list[str]:
    """Return the sentences, clauses and entries of lists of a request, at least two words each; none where it is one
    part."""
    parts = [part.strip(" ,.;") for part in _PART_END.split(text.strip())]
    several = [part for part in parts if " " in part][:MOST_PARTS]
    return several if len(several) > 1 else []


def telling(word: str) -> float:
    """Return how much a folded word says, 0..1: the words that are said most often mean little."""
    rank = model_vocabulary().get(word, FIRST_WORD + RARE) - FIRST_WORD
    return min(1.0, math.log1p(max(1, rank) / COMMON) / math.log1p(RARE / COMMON))


# ---------------------------------------------------------------- verbs


@cache
def known_verbs() -> frozenset[str]:
    """Return stems of every verb that a tool may have for what people say."""
    return frozenset[str]().union(*_verbs_for().values()) - {"*"}


@cache
def looking() -> frozenset[str]:
    """Return stems of the verbs of tools that only look."""
    return _verbs_for()["*"] - {"*"}


def verbs_asked(words: Sequence[str]) -> frozenset[str]:
    """Return stems of the verbs that a tool for this request may have; empty where it has none that is known to be one.

    Args:
        words: of the request, folded, in order, courtesies left out.
    """
    if not words:
        return frozenset()
    if words[0] in _QUESTION or words[0].endswith("'s"):
        return looking()
    first = stem(words[0], "english")
    for other in words[1:REACH]:
        if (verbs := _verbs_for().get(f"{first}_{other}")) is not None:
            return verbs
    is_command = len(words) > 1 and words[1] in _BEFORE_A_THING
    return _verbs_for().get(first, frozenset((first,) if is_command else ()))


@cache
def opposite_verbs() -> dict[str, frozenset[str]]:
    """Return the stem of a verb -> the stems of its opposites."""
    opposites: dict[str, frozenset[str]] = {}
    for line in read_lines("opposite_verbs.txt"):
        left, right = (frozenset(stem(verb, "english") for verb in side.split()) for side in line.split(":"))
        opposites |= dict.fromkeys(left, right) | dict.fromkeys(right, left)
    return opposites


@cache
def _verbs_for() -> dict[str, frozenset[str]]:
    """Return what is said, its first word as a stem -> stems of the verbs of the tools that may do it."""
    verbs_by_phrase: dict[str, set[str]] = {}
    for line in read_lines("tool_verbs.txt"):
        written, _, done = line.partition(":")
        verbs = {stem(verb, "english") for verb in done.split() if verb != "*"}
        verbs |= verbs_by_phrase["*"] if "*" in done.split() else set()
        for split in written.split():
            first, *second = split.split("_", 1)
            first = stem(first, "english")
            verbs_by_phrase.setdefault("_".join((first, *second)), set()).update(verbs if second else {*verbs, first})
    return {phrase: frozenset(verbs) for phrase, verbs in verbs_by_phrase.items()}
