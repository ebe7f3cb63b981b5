"""How well one field of a quick start answers a query: lower is better (S0-9 to S0-15).

Nothing here reads the file.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from os.path import commonprefix
from typing import Literal, NamedTuple

from localmcp.wording.languages import detect_language
from localmcp.wording.normalize import fold, stem, stop_words

Field = Literal["name", "display_name", "description"]
Option = tuple[int, int]
"""A field word that a query word may mean: its position, and the edits."""
_States = dict[frozenset[int], tuple[int, dict[int, Option | None]]]
MatchType = Literal["exact_match", "partial_match", "fuzzy_match", "fallback_match"]

WEIGHTS: dict[Field, int] = {"name": 15, "display_name": 10, "description": 20}
MOST_PARTIAL, FUZZY, MOST_FUZZY, FALLBACK, MOST_FALLBACK, NO_MATCH = 199, 200, 699, 700, 998, 999
"""S0-10: partial 1..199, fuzzy 200..699, fallback 700..998; 999 is no match."""

UNMATCHED_WORD = 6
"""What a significant query word that is in no passage in the field adds to the distance."""
MOST_EXTRA_WORDS = 5
COMMON_STEM = 2
WHOLE_FIELD_SHARE = 0.3
"""A whole field may be mistyped by this share of its length."""
HARMLESS_SHARE = 0.1
"""Up to this share of a field, edits anywhere count as typos."""
MOST_ALTERNATIVES = 64
"""Alignments followed at once when query words compete for the same field words."""

FILLERS = frozenset(
    """away back best concerning describe detail details down etc explain find give go going guide guides happen
    happens help kind know let like look looking need needed off please possible quick quickstart quickstarts regarding
    see show something tell thing things tutorial tutorials understand up via want wanted walk way ways wish""".split()
)
"""What people wrap a request in; counts only if the query has nothing else."""

WEAK_WORDS = """
    access add apply ask basic begin bring build call change check choose close configure connect control copy
    create define delete deploy disable doc document documentation download edit enable example execute existing
    explore export fix generate get guide handle import info information insert install introduce join learn limit
    list load maintain make manage manual modify monitor move new open organize overview perform prepare provide put
    read receive reference remove rename replace report reset resolve restrict review run save schedule search send
    set setup share sign simple start step stop store switch test track transfer try turn update upgrade upload use
    view visit work write
"""
"""What one does with anything: alone such a word does not show that a quick start is on the subject."""

_WORD = re.compile(r"[^\W_]+")


def fold_text(text: str) -> str:
    """`text` as it is compared: NFKC, no case, no accents, single spaces, trimmed."""
    return " ".join(fold(text).split())


def split_words(folded: str) -> list[str]:
    """Return the runs of letters and digits, in order."""
    return _WORD.findall(folded)


@cache
def _weak_stems() -> frozenset[str]:
    return frozenset(stem(word, "english") for word in WEAK_WORDS.split())


@dataclass(frozen=True, slots=True)
class Query:
    """A search text, taken apart."""

    text: str
    """Folded."""
    words: tuple[str, ...]
    significant: tuple[bool, ...]
    """Of each word: it must be found, or costs; the others (stop words, "please show me") only help."""
    strong: frozenset[str]
    """The significant words that name a subject."""
    only_stop_words: bool

    @property
    def significant_words(self) -> list[str]:
        return [word for word, counts in zip(self.words, self.significant, strict=True) if counts]


def bare(folded: str) -> str:
    """Return a search text without the punctuation around it, which a field need not have."""
    return folded.strip(" .,;:!?\"'()[]")


def read_query(text: str) -> Query:
    """Fold and split a search text, and mark the words that matter."""
    folded = fold_text(text)
    words = tuple(split_words(folded))
    language = detect_language(folded)
    stop = stop_words("english") | stop_words(language or "english")
    content = {word for word in words if word not in stop}
    important = content - FILLERS or content
    strong = frozenset(word for word in important if stem(word, "english") not in _weak_stems())
    significant = tuple(word in important for word in words)
    return Query(folded, words, significant, strong or frozenset(important), bool(words) and not content)


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The catalog's words that a query word may mean."""

    edits: Mapping[str, int] = field(default_factory=dict[str, int])
    """Word -> Levenshtein distance, 2 for a common stem."""
    evidence: frozenset[str] = frozenset()
    """Those that, matched, show the quick start to be on the subject even if other words are not found."""
    known_in: frozenset[Field] = frozenset(WEIGHTS)
    """The fields in which some quick start has one of them; all while the catalog is too small to tell."""


class Match(NamedTuple):
    """How a field matched. Of two equal scores the tighter match comes first."""

    score: int
    looseness: int
    """Small words not found, and words that do not follow each other as in the query; 0..63."""


def match_type(score: int) -> MatchType:
    """Return the tier of a score (S0-10)."""
    if score == 0:
        return "exact_match"
    if score <= MOST_PARTIAL:
        return "partial_match"
    return "fuzzy_match" if score <= MOST_FUZZY else "fallback_match"


def match_field(
    query: Query,
    where: Field,
    text: str,
    neighbors: Mapping[str, Neighbors],
    whole_distance: int,
    max_distance: int,
) -> Match | None:
    """Return the best tier in which `text` (folded) matches; None = not at all.

    Args:
        neighbors: for each significant word of the query.
        whole_distance: Levenshtein distance of the query and the whole field.
        max_distance: most edits in all.
    """
    if not text:
        return None
    if text == query.text:
        return Match(0, 0)
    weight = WEIGHTS[where]
    distance = partial_distance(query, text)
    if distance is not None:
        return Match(min(max(weight * distance, 1), MOST_PARTIAL), 0)
    fuzzy = _fuzzy_distance(query, where, text, neighbors, whole_distance, max_distance)
    if fuzzy is None:
        return None
    distance, looseness = fuzzy
    return Match(min(FUZZY + weight * distance, MOST_FUZZY), min(looseness, 63))


def fallback_score(where: Field, distance: int) -> int:
    """Return the score of a fallback match, 700..998."""
    return min(FALLBACK + WEIGHTS[where] * distance, MOST_FALLBACK)


# ---------------------------------------------------------------- partial


def partial_distance(query: Query, text: str) -> int | None:
    """Return the words of the field outside the match, plus characters of the touched words outside it.

    None = no match.

    The query may be anywhere in the field; of several places the best counts. Stop words would match by chance: a
    lone one matches nothing ("not" in "notifications"), several only as whole words.
    """
    if not query.words:
        return None
    pattern = query.text if query.text in text else bare(query.text)
    starts = _places(pattern, text)
    spans = [match.span() for match in _WORD.finditer(text)] if starts else []
    firsts, lasts = [first for first, _ in spans], [last for _, last in spans]
    distances = (_distance_at(query, start, start + len(pattern), firsts, lasts) for start in starts)
    return min((distance for distance in distances if distance is not None), default=None)


def _places(pattern: str, text: str) -> list[int]:
    places: list[int] = []
    start = text.find(pattern) if pattern else -1
    while start >= 0:
        places.append(start)
        start = text.find(pattern, start + 1)
    return places


def _distance_at(query: Query, start: int, stop: int, firsts: Sequence[int], lasts: Sequence[int]) -> int | None:
    """Return the distance of a match from `start` to `stop`, by where the words of the field begin and end."""
    low, high = bisect_right(lasts, start), bisect_left(firsts, stop)
    cut = max(0, start - firsts[low]) + max(0, lasts[high - 1] - stop) if low < high else 0
    is_chance = query.only_stop_words and (len(query.words) == 1 or cut > 0)
    return None if is_chance else len(firsts) - (high - low) + cut


# ---------------------------------------------------------------- fuzzy


def word_budget(word: str) -> int:
    """Return how many edits away a word may be: 0 for codes and up to 2 letters, 1 to 5, 2 to 8, else 3."""
    if len(word) <= 2 or any(character.isdigit() for character in word):
        return 0
    return 1 if len(word) <= 5 else 2 if len(word) <= 8 else 3


def may_mean(word: str, other: str, edits: int) -> bool:
    """Return whether a near word may be meant at all.

    Words up to five letters, and any with three edits, keep their first letter, and no short stop word is read into a
    typo ("form" is not "from").
    """
    if word == other:
        return True
    if (len(word) <= 5 or edits > 2) and word[0] != other[0]:
        return False
    return len(other) >= 5 or other not in stop_words("english")


def is_sure(word: str, other: str, edits: int) -> bool:
    """Return whether a near word is certainly meant.

    It is the same word, a form of it, or a typo in a long word, but not in its first letter ("mother" is not
    "other").
    """
    if word.isdigit():
        return False
    return (
        edits == 0
        or (edits * 6 <= len(word) and word[0] == other[0])
        or stem(word, "english") == stem(other, "english")
    )


def have_common_stem(first: str, second: str) -> bool:
    """Return whether two words are forms of one.

    They have the same first four letters or more, and endings that only inflect them.

    "started" and "start", "config" and "configuring"; not "openings" and "openshift".
    """
    shared = len(commonprefix((first, second)))
    if shared < 4:
        return False
    shorter, longer = sorted((len(first), len(second)))
    return (
        shared == len(first)
        or stem(first, "english") == stem(second, "english")
        or (shared >= 0.7 * shorter and shared >= 0.5 * longer)
    )


def _fuzzy_distance(
    query: Query,
    where: Field,
    text: str,
    neighbors: Mapping[str, Neighbors],
    whole_distance: int,
    max_distance: int,
) -> tuple[int, int] | None:
    if not any(query.significant):
        return None
    words = split_words(text)
    distances = [_by_words(query, where, words, neighbors, max_distance)]
    if whole_distance <= min(max_distance, WHOLE_FIELD_SHARE * max(len(text), len(query.text))):
        distances.append(_as_a_whole(query, words, text, neighbors, whole_distance))
    return min((distance_pair for distance_pair in distances if distance_pair), default=None)


def _as_a_whole(
    query: Query, words: Sequence[str], text: str, neighbors: Mapping[str, Neighbors], distance: int
) -> tuple[int, int] | None:
    """Match a field typed wrongly as a whole ("Get started" for "getting started").

    Not if one word is simply another.
    """
    missing = [
        word for word in query.significant_words if not any(field_word in neighbors[word].edits for field_word in words)
    ]
    if any(word_budget(word) == 0 for word in missing):
        return None
    if distance > HARMLESS_SHARE * max(len(text), len(query.text)):
        if not all(any(word[:3] == field_word[:3] for field_word in words) for word in missing):
            return None
    return distance, MOST_EXTRA_WORDS


def _by_words(
    query: Query, where: Field, words: Sequence[str], neighbors: Mapping[str, Neighbors], max_distance: int
) -> tuple[int, int] | None:
    """(distance, looseness) of the best one-to-one alignment of query and field words, if it says enough."""
    options = [
        _options(word, counts, words, neighbors) for word, counts in zip(query.words, query.significant, strict=True)
    ]
    chosen = _align(options, [UNMATCHED_WORD if counts else 1 for counts in query.significant])
    significant_count = sum(query.significant)
    hits = [option for option, counts in zip(chosen, query.significant, strict=True) if counts and option]
    edits = sum(hit[1] for hit in hits)
    if not hits or edits > max_distance:
        return None
    if len(hits) < significant_count and not _says_enough(query, where, words, chosen, neighbors):
        return None
    aligned = [option[0] for option in chosen if option]
    extra = min(MOST_EXTRA_WORDS, len(words) - len(aligned))
    looseness = len(query.words) - significant_count - (len(aligned) - len(hits))
    looseness += sum(later != earlier + 1 for earlier, later in zip(aligned, aligned[1:], strict=False))
    return edits + extra + UNMATCHED_WORD * (significant_count - len(hits)), looseness


def _options(word: str, counts: bool, words: Sequence[str], neighbors: Mapping[str, Neighbors]) -> list[Option]:
    """(position, edits) of the field words that a query word may mean, nearest first."""
    if not counts:
        return [(position, 0) for position, field_word in enumerate(words) if field_word == word]
    edits = neighbors[word].edits
    edits_by_position = [(position, edits[word]) for position, word in enumerate(words) if word in edits]
    return sorted(edits_by_position, key=lambda option: option[1])


def _align(options: Sequence[Sequence[Option]], costs: Sequence[int]) -> list[Option | None]:
    """Return the cheapest option for each query word, no position twice; None costs what it costs."""
    claims = Counter(position for option in options for position, _ in option)
    chosen: list[Option | None] = [None] * len(options)
    contested: list[int] = []
    for index, word_options in enumerate(options):
        if word_options and claims[word_options[0][0]] == 1:
            chosen[index] = word_options[0]
        elif word_options:
            contested.append(index)
    used_positions = {option[0] for option in chosen if option}
    for index, option in _settle(options, costs, contested, used_positions).items():
        chosen[index] = option
    return chosen


def _settle(
    options: Sequence[Sequence[Option]], costs: Sequence[int], contested: Sequence[int], used_positions: set[int]
) -> dict[int, Option | None]:
    """Return the cheapest alignment of the words that compete for positions."""
    states: _States = {frozenset(used_positions): (0, {})}
    for index in contested:
        following: _States = {}
        for used, (cost, choice) in states.items():
            for option in (*(option for option in options[index] if option[0] not in used), None):
                used_now = used | {option[0]} if option else used
                total = cost + (option[1] if option else costs[index])
                if used_now not in following or total < following[used_now][0]:
                    following[used_now] = (total, {**choice, index: option})
        states = dict(sorted(following.items(), key=lambda state: state[1][0])[:MOST_ALTERNATIVES])
    return min(states.values(), key=lambda state: state[0])[1]


def _says_enough(
    query: Query,
    where: Field,
    words: Sequence[str],
    chosen: Sequence[Option | None],
    neighbors: Mapping[str, Neighbors],
) -> bool:
    """Return whether a match with missing significant words is good enough: never guess.

    At least half of the significant words, or of those that name a subject, are found; one of the latter is certain;
    and they outnumber the subjects of which the whole catalog knows nothing ("mortgage" in "mortgage calculator").
    """
    matched_words = {word: words[option[0]] for word, option in zip(query.words, chosen, strict=True) if option}
    significant, strong = query.significant_words, query.strong
    subjects = [word for word in matched_words if word in strong]
    if 2 * sum(word in matched_words for word in significant) < len(significant) and 2 * len(subjects) < len(strong):
        return False
    foreign = sum(where not in neighbors[word].known_in for word in strong)
    return len(subjects) > foreign and any(matched_words[word] in neighbors[word].evidence for word in subjects)
