"""The scoring ladder of tool discovery: exact, at the beginning, inside, or alike (requirements.md, section 4)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PUNCTUATION = ".,;:!?()[]{}\"'"
_ALIKE = 0.6
"""Similarity that a fuzzy match must exceed."""
SHORTEST_INSIDE = 4
"""Shorter words inside another one are there by chance."""


@dataclass(frozen=True, slots=True)
class ToolMetadata:
    """The fields by which a tool is found (S1-3)."""

    name: str
    description: str = ""
    keywords: tuple[str, ...] = ()

    def lower(self) -> ToolMetadata:
        """Return the same in lower case."""
        return ToolMetadata(
            self.name.lower(), self.description.lower(), tuple(keyword.lower() for keyword in self.keywords)
        )


# ---------------------------------------------------------------- the ladder


def score_query(query: str, metadata: ToolMetadata) -> float:
    """Return how well a tool fits a query, 0..1; 1 = its name, or an empty query (requirements.md, section 4).

    Several words are scored one by one: all found, their average x 0.9; else the average over all words x the share
    of words found.
    """
    query = query.strip().lower()
    lowered = metadata.lower()
    if query in ("", lowered.name):
        return 1.0
    scores = [score_word(word, lowered) for word in query.split()]
    if len(scores) == 1:
        return scores[0]
    average = sum(scores) / len(scores)
    matched = sum(score > 0 for score in scores)
    return average * (0.9 if matched == len(scores) else matched / len(scores))


def score_word(word: str, metadata: ToolMetadata) -> float:
    """Return the highest rung that one word reaches, 0..0.9; likeness counts only where no rung is reached.

    Args:
        word: not empty, in lower case.
        metadata: in lower case.
    """
    rungs = [_score_name(word, metadata.name), _score_description(word, metadata.description)]
    rungs += [_score_keyword(word, keyword) for keyword in metadata.keywords]
    return max(rungs) or _score_likeness(word, metadata)


def _score_name(word: str, name: str) -> float:
    if name.startswith(word):
        return 0.9
    return 0.8 if word in name else 0.0


def _score_keyword(word: str, keyword: str) -> float:
    if keyword == word:
        return 0.85
    return 0.7 if word in keyword else 0.0


def _score_description(word: str, description: str) -> float:
    if word not in description:
        return 0.0
    words = (part.strip(_PUNCTUATION) for part in description.split())
    return 0.6 if word in words else 0.5


def _score_likeness(word: str, metadata: ToolMetadata) -> float:
    """Return the best likeness: 1 - Levenshtein distance / length of the longer, in code points."""
    from rapidfuzz.distance import Levenshtein

    weighted = [(0.7, metadata.name), *((0.6, keyword) for keyword in metadata.keywords)]
    likeness = ((weight, Levenshtein.normalized_similarity(word, keyword)) for weight, keyword in weighted)
    return max((weight * alike for weight, alike in likeness if alike > _ALIKE), default=0.0)


# ---------------------------------------------------------------- the rungs that the profile `best` keeps


@dataclass(frozen=True, slots=True)
class Rungs:
    """One tool, ready for many queries."""

    lowered: ToolMetadata
    squeezed: str
    """The name without what only separates words."""
    own_squeezed: str
    """The same without the namespace."""

    @classmethod
    def of(cls, metadata: ToolMetadata) -> Rungs:
        name = metadata.name.lower()
        return cls(metadata.lower(), squeeze(name), squeeze(name.rpartition("__")[2]))


def rung_of(query: str, squeezed: str, tool: Rungs) -> float:
    """Return the ladder's score where it is sure of itself, else 0.

    That is a name, said in whatever notation ("send email" is `send_email`), and any single word; but no word of up
    to three letters inside another one.

    Args:
        query: in lower case, without blanks at its ends.
        squeezed: the same through `squeeze`.
    """
    if query == tool.lowered.name or (squeezed and squeezed == tool.squeezed):
        return 1.0
    if " " in query:
        return 0.8 if squeezed and squeezed == tool.own_squeezed else 0.0
    score = score_word(query, tool.lowered)
    return 0.0 if score and len(query) < SHORTEST_INSIDE and _is_inside(query, tool.lowered) else score


def squeeze(text: str) -> str:
    """Return letters and digits only."""
    return re.sub(r"[\W_]+", "", text)


def _is_inside(word: str, lowered: ToolMetadata) -> bool:
    """Return whether a word begins no other one: `art` in `start_container`."""
    everything = " ".join((lowered.name, lowered.description, *lowered.keywords))
    return re.search(rf"(?<![^\W_]){re.escape(word)}", everything) is None
