"""Judge whether a word looks misspelled, and how likely it is a typing error for another."""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate

from localmcp.arrays import NDArray, np
from localmcp.config import packaged_data

SHORTEST = 4
"""Shorter words have too many neighbors to guess one."""
LONGEST = 32
DOUBLED, SWAPPED, VOWEL, KEY, LETTER = 0.3, 0.5, 0.7, 0.8, 1.2
"""The cost of an edit: a letter doubled or not, neighbors swapped, a vowel for another, left out or put in, a letter of
the next key or left out, any other letter."""
FIRST_LETTER = 0.4
"""Added for an edit of the first letter, which is seldom wrong."""
MOST_EDITS = 2
"""More slips in one word cost more than any that is corrected."""
WORDS_AT_ONCE = 50_000
_VOWELS = frozenset("aeiouy")
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


@dataclass(frozen=True, slots=True)
class Correction:
    """A query word and what it was taken for."""

    word: str
    replacement: str
    cost: float
    """How unlikely the slip is: 0.3 for a doubled letter, at most 1.5."""


def is_word(word: str) -> bool:
    """Return whether a folded word is in the dictionary, a plural, or joined from two of its words."""
    dictionary = _dictionary()
    if word in dictionary or word.removesuffix("s") in dictionary:
        return True
    halves = ((word[:cut], word[cut:]) for cut in range(SHORTEST, len(word) - SHORTEST + 1))
    return any(first in dictionary and second in dictionary for first, second in halves)


class WordList(dict[str, int]):
    """Folded word -> how many texts hold it; a slip is compared with those of about its letters, 1 ms for 100,000."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        super().__init__(counts)
        self._words = [*counts]
        starts = range(0, max(len(self._words), 1), WORDS_AT_ONCE)
        self._letters = np.concatenate([_letters(self._words[start : start + WORDS_AT_ONCE]) for start in starts])

    def near(self, word: str) -> list[Correction]:
        """Return the words that `word` may be a slip of, likeliest first."""
        from rapidfuzz import process
        from rapidfuzz.distance import OSA

        # An edit drops one letter and adds one at most.
        is_near = np.bitwise_count(self._letters ^ _letters([word])) <= 2 * MOST_EDITS
        candidates = [self._words[row] for row in np.flatnonzero(is_near).tolist()]
        alike = process.extract(word, candidates, scorer=OSA.distance, score_cutoff=MOST_EDITS, limit=None)
        costs = sorted((slip_cost(word, other), other) for other, _, _ in alike)
        return [Correction(word, other, cost) for cost, other in costs if cost <= _most_cost(word)]


def _letters(words: Sequence[str]) -> NDArray[np.uint32]:
    # Of each word, one bit a letter of the Latin alphabet; others share them. Bit 0 is what fills up short words.
    signs = np.array(words, f"U{LONGEST + MOST_EDITS}").view(np.uint32).reshape(len(words), LONGEST + MOST_EDITS)
    return np.bitwise_or.reduce(np.uint32(1) << (signs & 31), axis=1) & ~np.uint32(1)


def correct(word: str, *vocabularies: WordList) -> list[Correction]:
    """Return the words that a folded `word` may be a slip of, likeliest first, then most frequent; empty if it is none.

    A nearer word of the dictionary that is in none of them is
    what was meant: nothing is then offered, since the texts do not hold it.
    """
    if not (SHORTEST <= len(word) <= LONGEST and word.isalpha()) or is_word(word):
        return []
    corrections = dict.fromkeys(slip for vocabulary in vocabularies for slip in vocabulary.near(word))
    if not corrections:
        return []
    counts = ChainMap(*vocabularies)
    meant = min((slip.cost for slip in _dictionary().near(word) if slip.replacement not in counts), default=9.0)
    likely = (correction for correction in corrections if correction.cost <= meant)
    return sorted(likely, key=lambda slip: (slip.cost, -counts[slip.replacement], slip.replacement))


def is_slip(word: str, other: str) -> bool:
    """Return whether one folded word may be another, misspelled; the first letter is taken for right."""
    if min(len(word), len(other)) < SHORTEST or word[0] != other[0] or abs(len(word) - len(other)) > MOST_EDITS:
        return False
    return slip_cost(word, other) <= max(_most_cost(word), _most_cost(other))


def _most_cost(word: str) -> float:
    return 0.7 if len(word) <= 5 else 1.1 if len(word) <= 7 else 1.5


@lru_cache(maxsize=20_000)
def slip_cost(typed: str, meant: str) -> float:
    """Return how unlikely it is that somebody who means one word types the other, 0 for the same word."""
    gaps = [_gap_cost(meant, position) for position in range(len(meant))]
    rows = [[0.0, *accumulate(gaps)]]
    for i, letter in enumerate(typed):
        gap, near = _gap_cost(typed, i), _neighbors().get(letter, ())
        above = rows[-1]
        row = [above[0] + gap]
        for j, other in enumerate(meant):
            swap = VOWEL if letter in _VOWELS and other in _VOWELS else KEY if other in near else LETTER
            swap = 0.0 if letter == other else swap + FIRST_LETTER * (i == j == 0)
            cost = min(above[j + 1] + gap, row[j] + gaps[j], above[j] + swap)
            if i and j and letter == meant[j - 1] != other == typed[i - 1]:
                cost = min(cost, rows[-2][j - 1] + SWAPPED)
            row.append(cost)
        rows.append(row)
    return round(rows[-1][-1], 3)


def _gap_cost(word: str, position: int) -> float:
    if position and word[position] == word[position - 1]:
        return DOUBLED
    cost = VOWEL if word[position] in _VOWELS else KEY
    return cost if position else cost + FIRST_LETTER


@cache
def _neighbors() -> dict[str, set[str]]:
    # Letter -> the letters beside it on a keyboard, and those that sound alike.
    pairs = [pair for row in _ROWS for pair in zip(row, row[1:], strict=False)]
    pairs += [pair for upper, lower in zip(_ROWS, _ROWS[1:], strict=False) for pair in zip(upper, lower, strict=False)]
    pairs += [("c", "s"), ("c", "k"), ("s", "z"), ("d", "t"), ("b", "p"), ("f", "v"), ("g", "j"), ("m", "n")]
    neighbors: dict[str, set[str]] = {}
    for first, second in pairs:
        neighbors.setdefault(first, set()).add(second)
        neighbors.setdefault(second, set()).add(first)
    return neighbors


@cache
def _dictionary() -> WordList:
    # Whole English words, the same on every machine.
    return WordList({word: 0 for word in model_vocabulary() if len(word) >= SHORTEST})


@cache
def model_vocabulary() -> dict[str, int]:
    """Return the default model's whole words, about 22,000 -> their number; the more common come first."""
    stored = json.loads((packaged_data() / "tokenizer.json").read_text(encoding="utf-8"))
    return {word: number for word, number in stored["model"]["vocab"].items() if word.isalpha()}
