"""The scoring ladder of tool discovery: exact, at the beginning, inside, or alike (requirements.md, section 4)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PUNCTUATION = ".,;:!?()[]{}\"'"


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
    rungs = [0.85 if keyword == word else 0.7 for keyword in metadata.keywords if word in keyword]
    if word in metadata.name:
        rungs.append(0.9 if metadata.name.startswith(word) else 0.8)
    if word in metadata.description:
        whole_words = (part.strip(_PUNCTUATION) for part in metadata.description.split())
        rungs.append(0.6 if word in whole_words else 0.5)
    return max(rungs) if rungs else _score_likeness(word, metadata)


def _score_likeness(word: str, metadata: ToolMetadata) -> float:
    """Return the best likeness: 1 - Levenshtein distance / length of the longer, in code points, where above 0.6."""
    from rapidfuzz.distance import Levenshtein

    weighted = [(0.7, metadata.name), *((0.6, keyword) for keyword in metadata.keywords)]
    likeness = ((weight, Levenshtein.normalized_similarity(word, keyword)) for weight, keyword in weighted)
    return max((weight * alike for weight, alike in likeness if alike > 0.6), default=0.0)


def rung_of(word: str, lowered: ToolMetadata) -> float:
    """Return the ladder's score of one word, but 0 for one of up to three letters inside another: `art` in `start`."""
    score = score_word(word, lowered)
    if score and len(word) < 4:
        everything = " ".join((lowered.name, lowered.description, *lowered.keywords))
        return score if re.search(rf"(?<![^\W_]){re.escape(word)}", everything) else 0.0
    return score


def squeeze(text: str) -> str:
    """Return letters and digits only: a name is a name in whatever notation ("send email" is `send_email`)."""
    return re.sub(r"[\W_]+", "", text)
