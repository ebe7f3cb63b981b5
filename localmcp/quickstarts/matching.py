"""How well one field of a quick start answers a query: lower is better (S0-9 to S0-15).

Nothing here reads the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Literal, NamedTuple

from localmcp.wording.languages import detect_language
from localmcp.wording.normalize import fold, stem, stop_words

Field = Literal["name", "display_name", "description"]
MatchType = Literal["exact_match", "partial_match", "fuzzy_match", "fallback_match"]

WEIGHTS: dict[Field, int] = {"name": 15, "display_name": 10, "description": 20}
MOST_PARTIAL, FUZZY, MOST_FUZZY, FALLBACK, MOST_FALLBACK = 199, 200, 699, 700, 998
"""S0-10: partial 1..199, fuzzy 200..699, fallback 700..998."""
UNMATCHED_WORD, MOST_EXTRA_WORDS, COMMON_STEM = 6, 5, 2
"""Distance of a significant word that is not found, of all other words of the field, and of another form of a word."""
WHOLE_FIELD_SHARE = 0.3
"""A whole field may be mistyped by this share of its length."""
MOST_PLACES = 20
"""Places in a field where it may hold the query; in a text made to hold it everywhere, the others do not count."""

FILLERS = frozenset(
    """away back best concerning describe detail details down etc explain find give go going guide guides happen
    happens help kind know let like look looking need needed off please possible quick quickstart quickstarts regarding
    see show something tell thing things tutorial tutorials understand up via want wanted walk way ways wish""".split()
)
"""What people wrap a request in; counts only if the query has nothing else."""

DEEDS = frozenset(
    stem(word, "english")
    for word in """access add apply ask begin build change check choose configure connect control copy create define
    delete deploy document documentation download edit enable explore export fix generate get handle import information
    install introduce join learn list load make manage modify monitor move new open organize overview perform prepare
    provide read remove rename replace report reset review run save search send set setup share start stop store switch
    test track try turn update upgrade upload use view work write""".split()
)
"""What one does with anything: alone such a word does not show that a quick start is on the subject."""

_WORD = re.compile(r"[^\W_]+")


class Text(NamedTuple):
    """A field or a search text as it is compared: NFKC, no case, no accents, single spaces, trimmed."""

    folded: str
    words: tuple[str, ...]
    """Runs of letters and digits, in order."""

    @classmethod
    def of(cls, text: str) -> Text:
        folded = " ".join(fold(text).split())
        return cls(folded, tuple(_WORD.findall(folded)))


@dataclass(frozen=True, slots=True)
class Query:
    """A search text, taken apart."""

    text: Text
    significant: tuple[str, ...]
    """Its words that must be found, or cost; the others (stop words, "please show me") are ignored."""
    telling: frozenset[str]
    """The significant words that show what it is about."""
    only_stop_words: bool

    @property
    def pattern(self) -> str:
        """The text without the punctuation around it, which a field need not have."""
        return self.text.folded.strip(" .,;:!?\"'()[]")


def read_query(text: str) -> Query:
    """Fold and split a search text, and mark the words that matter."""
    read = Text.of(text)
    stop = stop_words("english") | stop_words(detect_language(read.folded) or "english")
    content = {word for word in read.words if word not in stop}
    important = content - FILLERS or content
    significant = tuple(word for word in read.words if word in important)
    telling = {word for word in important if stem(word, "english") not in DEEDS} or important
    return Query(read, significant, frozenset(telling), bool(read.words) and not content)


@dataclass(frozen=True, slots=True)
class Meanings:
    """What the words of a query may mean in a catalog."""

    edits: Mapping[str, Mapping[str, int]]
    """Significant word -> words of the catalog -> Levenshtein distance, 2 for another form of the word."""
    foreign: Mapping[Field, int]
    """How many of the words no quick start knows in a field ("mortgage" in "mortgage calculator")."""


def match_type(score: int) -> MatchType:
    """Return the tier of a score (S0-10)."""
    if score == 0:
        return "exact_match"
    if score <= MOST_PARTIAL:
        return "partial_match"
    return "fuzzy_match" if score <= MOST_FUZZY else "fallback_match"


def score_field(
    query: Query, where: Field, text: Text, meanings: Meanings, whole_distance: int | None, max_distance: int
) -> int | None:
    """Return the score of the best tier in which a field matches, 0..699; None = not at all.

    Args:
        whole_distance: Levenshtein distance of the query and the whole field, if it is near.
        max_distance: most edits in all.
    """
    if text.folded == query.text.folded:
        return 0 if text.folded else None
    distance = partial_distance(query, text.folded)
    if distance is not None:
        return min(max(WEIGHTS[where] * distance, 1), MOST_PARTIAL)
    if not query.significant or not text.words:
        return None
    fuzzy = _by_words(query, where, text.words, meanings, max_distance)
    length = max(len(text.folded), len(query.text.folded))
    if whole_distance is not None and whole_distance <= WHOLE_FIELD_SHARE * length:
        fuzzy = whole_distance if fuzzy is None else min(fuzzy, whole_distance)
    return None if fuzzy is None else min(FUZZY + WEIGHTS[where] * fuzzy, MOST_FUZZY)


def fallback_score(where: Field, distance: int) -> int:
    """Return the score of a fallback match, 700..998."""
    return min(FALLBACK + WEIGHTS[where] * distance, MOST_FALLBACK)


def partial_distance(query: Query, folded: str) -> int | None:
    """Return the words of a field outside the match plus the characters of touched words outside it; None = no match.

    Of several places the best counts. Stop words would match by chance: a lone one matches nothing ("not" in
    "notifications"), several only as whole words.
    """
    pattern = query.text.folded if query.text.folded in folded else query.pattern
    if not query.text.words or not pattern or pattern not in folded:
        return None
    words = [match.span() for match in _WORD.finditer(folded)]
    distances: list[int] = []
    start = -1
    for _ in range(MOST_PLACES):
        start = folded.find(pattern, start + 1)
        if start < 0:
            break
        stop = start + len(pattern)
        touched = [(first, last) for first, last in words if first < stop and last > start]
        cut = max(0, start - touched[0][0]) + max(0, touched[-1][1] - stop) if touched else 0
        if not query.only_stop_words or (len(query.text.words) > 1 and not cut):
            distances.append(len(words) - len(touched) + cut)
    return min(distances, default=None)


# ---------------------------------------------------------------- fuzzy


def word_budget(word: str) -> int:
    """Return how many edits away a word may be: 0 for codes and up to 2 letters, 1 to 5, 2 to 8, else 3."""
    if len(word) <= 2 or any(character.isdigit() for character in word):
        return 0
    return 1 if len(word) <= 5 else 2 if len(word) <= 8 else 3


def may_mean(word: str, other: str, edits: int) -> bool:
    """Return whether a near word may be meant: words up to five letters, and any with three edits, keep their first
    letter."""
    return word[0] == other[0] or (len(word) > 5 and edits <= 2)


def are_forms(first: str, second: str) -> bool:
    """Return whether two words are forms of one: "started" and "start", "config" and "configuring"."""
    shared = len(commonprefix((first, second)))
    return shared >= 4 and (shared == min(len(first), len(second)) or have_same_stem(first, second))


def have_same_stem(first: str, second: str) -> bool:
    return stem(first, "english") == stem(second, "english")


def _by_words(query: Query, where: Field, words: Sequence[str], meanings: Meanings, max_distance: int) -> int | None:
    """Return the distance of a one-to-one alignment of query and field words, the nearest first; None if it says too
    little."""
    options = [
        (meanings.edits[word][other], number, place)
        for number, word in enumerate(query.significant)
        for place, other in enumerate(words)
        if other in meanings.edits[word]
    ]
    matched: dict[int, int] = {}
    edits = 0
    for distance, number, place in sorted(options):
        if number not in matched and place not in matched.values():
            matched[number] = place
            edits += distance
    missing = len(query.significant) - len(matched)
    if not matched or edits > max_distance:
        return None
    found = {query.significant[number]: words[place] for number, place in matched.items()}
    if missing and not _says_enough(query, where, found, meanings):
        return None
    extra = sum(word not in query.text.words for place, word in enumerate(words) if place not in matched.values())
    return edits + min(MOST_EXTRA_WORDS, extra) + UNMATCHED_WORD * missing


def _says_enough(query: Query, where: Field, found: Mapping[str, str], meanings: Meanings) -> bool:
    """Return whether a match with missing significant words is good enough: never guess.

    At least half of them are found, a telling one is certain, and they outnumber those of which the whole catalog knows
    nothing.
    """
    return (
        2 * sum(word in found for word in query.significant) >= len(query.significant)
        and len(found) > meanings.foreign[where]
        and any(have_same_stem(word, found[word]) and not word.isdigit() for word in query.telling if word in found)
    )
