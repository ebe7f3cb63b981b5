"""A tool and a query in words: what they are compared by."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from localmcp.schemas import list_of
from localmcp.tool_search.name_match import Rungs, ToolMetadata
from localmcp.tool_search.verbs import known_verbs, looking, opposites_of, verbs_asked
from localmcp.tools import Json
from localmcp.wording.normalize import fold, stem, words
from localmcp.wording.sentences import Token, function_words, tokenize
from localmcp.wording.spelling import model_vocabulary

NAME, TITLE, KEYWORD, EXAMPLE, NAMESPACE, DESCRIPTION, PARAMETER = 1.0, 0.9, 0.9, 0.8, 0.7, 0.6, 0.4
"""What a word counts by where the tool has it."""
MOST_EXAMPLES = 8
LONGEST_TEXT = 600
"""Characters of a description that are embedded; the window of the default model is about 1,000."""

FIRST_WORD = 1995
"""Number of the vocabulary's first whole word."""
COMMON, RARE = 100, 3000
"""Ranks among English words: about where a word begins to tell something, and from where on it tells all it can."""

MOST_CLAUSES = 8
_CLAUSE_END = re.compile(r"(?<=[.!?;:])\s+|,\s+|\s+[-–]\s+|\s+(?=(?:and|but|so|because|before|since|while|when|if)\s)")

_SLOT = re.compile(r"\{[^}]*\}")
_SENTENCE_END = re.compile(r"(?<=[.:;!?])\s|\n")


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

    @property
    def metadata(self) -> ToolMetadata:
        """The fields that the name match compares."""
        return ToolMetadata(self.name, self.description, self.keywords)


@dataclass(frozen=True, slots=True, eq=False)
class ToolText:
    """A tool, taken apart once."""

    rungs: Rungs
    weights: Mapping[str, float]
    """Stem -> weight of its best place."""
    surfaces: Mapping[str, str]
    """Folded word -> its stem."""
    verbs: frozenset[str]
    """Stems of the verbs in the name and at the beginning of the description; those of looking if there is none."""
    parts: tuple[str, ...]
    """The parts of the name without the namespace, as words."""
    texts: tuple[str, ...]
    """What is embedded: server and name with the first sentence, the description, the examples."""

    @property
    def named(self) -> str:
        """The name as words, which is embedded besides."""
        return " ".join(self.parts)


def take_apart(description: ToolDescription) -> ToolText:
    """Return the words, the verbs and the texts of a tool."""
    namespace, _, local = description.name.rpartition("__")
    examples = tuple(_SLOT.sub(" ", example).replace("|", " ") for example in description.examples[:MOST_EXAMPLES])
    weights: dict[str, float] = {}
    surfaces: dict[str, str] = {}
    for text, weight in (
        (_parameter_text(description.schema), PARAMETER),
        (description.description, DESCRIPTION),
        (namespace, NAMESPACE),
        (" ".join(examples), EXAMPLE),
        (" ".join(description.keywords), KEYWORD),
        (description.title, TITLE),
        (local, NAME),
    ):
        stems = {word: stem(word, "english") for word in words(text)}
        surfaces.update(stems)
        weights.update(dict.fromkeys(stems.values(), weight))
    name_stems = [stem(word, "english") for word in words(local)]
    first = [stem(word, "english") for word in words(description.description)[:1]]
    return ToolText(
        Rungs.of(description.metadata),
        weights,
        surfaces,
        (known_verbs() & {*name_stems, *first}) or looking(),
        tuple(_name_words(local)),
        tuple(dict.fromkeys(filter(None, _texts(description, namespace, local, examples)))),
    )


def _texts(tool_description: ToolDescription, namespace: str, local: str, examples: Sequence[str]) -> list[str]:
    description = tool_description.description[:LONGEST_TEXT].strip()
    first = first_sentence(description)
    named = " ".join(_name_words(local))
    in_full = " ".join((*words(namespace), named))
    return [
        f"{in_full}: {first}" if first else in_full,
        description or named,
        *(" ".join(text.split()) for text in examples),
    ]


def first_sentence(description: str) -> str:
    """Return up to the first end of a sentence or a line."""
    return _SENTENCE_END.split(description.strip(), maxsplit=1)[0]


def _name_words(name: str) -> list[str]:
    """Return the parts of an identifier, without the whole that `words` puts before them."""
    runs_of_words = [words(run) for run in re.split(r"[\W_]+", name)]
    return [word for run in runs_of_words for word in (run[1:] if len(run) > 1 else run)] or [name]


def _parameter_text(schema: Json) -> str:
    """Return names, descriptions and allowed values of the parameters, nested ones too."""
    texts: list[str] = []
    waiting: list[tuple[Json, int]] = [(schema, 0)]
    while waiting:
        level, depth = waiting.pop()
        properties = level.get("properties")
        if not isinstance(properties, dict) or depth > 3:
            continue
        for name, spec in cast("dict[Any, Any]", properties).items():
            texts.append(str(name))
            if isinstance(spec, dict):
                spec = cast(Json, spec)
                texts.append(str(spec.get("description", "")))
                texts += [str(value) for value in list_of(spec.get("enum"))[:50]]
                waiting += [
                    (cast(Json, inner), depth + 1) for inner in (spec, spec.get("items")) if isinstance(inner, dict)
                ]
    return " ".join(texts)


# ---------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query that can point to a tool."""

    stem: str
    surface: str
    """As written, folded."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query, taken apart: its words, and the text that is embedded."""

    text: str
    words: tuple[QueryWord, ...]
    verbs: frozenset[str] = frozenset()
    """Stems of the verbs that a tool for it may have; empty where no verb is asked for."""
    opposites: frozenset[str] = frozenset()
    """Stems of verbs that do the opposite of what is asked for."""
    is_command: bool = True
    """Whether it is a single clause: of several, the first verb need not be that of what is asked for."""


def take_query_apart(query: str) -> Query:
    """Return the words of a query that can point to a tool, courtesies and values left out."""
    tokens = tokenize(query)
    words_by_stem: dict[str, QueryWord] = {}
    for token in tokens:
        if token.kind == "word":
            for word in _words_of(token):
                words_by_stem.setdefault(stem(word, "english"), QueryWord(stem(word, "english"), word))
    chosen = tuple(item for item in words_by_stem.values() if item.surface not in function_words())
    spoken = [fold(token.text) for token in tokens if token.kind == "word"]
    verbs = verbs_asked(spoken)
    return Query(query.strip(), chosen, verbs, opposites_of(spoken, verbs), not clauses(query))


def clauses(text: str) -> list[str]:
    """Return the clauses of a request, at least two words each; none where the whole is one clause."""
    parts = [part.strip(" ,.;") for part in _CLAUSE_END.split(text.strip())]
    several = [part for part in parts if " " in part][:MOST_CLAUSES]
    return several if len(several) > 1 else []


def _words_of(token: Token) -> list[str]:
    """Return the parts of an identifier."""
    token_words = words(token.text)
    return token_words[1:] if len(token_words) > 1 and token_words[0] == "".join(token_words[1:]) else token_words


# ---------------------------------------------------------------- what is a word at all


def telling(word: str) -> float:
    """Return how much a folded word says, 0..1: the words that are said most often mean little."""
    rank = model_vocabulary().get(word, FIRST_WORD + RARE) - FIRST_WORD
    return min(1.0, math.log1p(max(1, rank) / COMMON) / math.log1p(RARE / COMMON))
