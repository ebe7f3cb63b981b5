"""Whether a word looks misspelt, and how likely one word is a slip of the fingers for another."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from localmcp.config import tokenizer_directory
from localmcp.wording.normalize import fold

SHORTEST = 4
"""Shorter words have too many neighbors to guess one."""
LONGEST = 32
DOUBLED, SWAPPED, VOWEL, KEY, LETTER = 0.3, 0.5, 0.7, 0.8, 1.2
"""The cost of an edit: a letter doubled or not, neighbors swapped, a vowel for another, left out or put in, a letter of
the next key or left out, any other letter."""
FIRST_LETTER = 0.4
"""Added for an edit of the first letter, which is seldom wrong."""
MOST_COST = ((5, 0.7), (7, 1.1), (99, 1.5))
"""(letters, cost): how unlikely the slip in a word of at most so many letters may be."""
LARGEST_DICTIONARY = 16_000_000
_VOWELS = frozenset("aeiouy")
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_DICTIONARIES = ("/usr/share/dict", "/usr/share/hunspell", "/usr/share/myspell/dicts")
"""Where systems keep word lists: one word a line, in `.dic` files followed by a slash and flags."""


@dataclass(frozen=True, slots=True)
class Correction:
    """A query word and what it was taken for."""

    word: str
    replacement: str
    cost: float
    """How unlikely the slip is: 0.3 for a doubled letter, at most 1.5."""


def is_word(word: str) -> bool:
    """Return whether a folded word is in a dictionary of this machine, a plural, or joined from two of its words."""
    dictionary = _dictionary()
    if word in dictionary or word.removesuffix("s") in dictionary:
        return True
    halves = ((word[:cut], word[cut:]) for cut in range(SHORTEST, len(word) - SHORTEST + 1))
    return any(first in dictionary and second in dictionary for first, second in halves)


def correct(word: str, vocabulary: Collection[str]) -> list[Correction]:
    """Return the words of `vocabulary` that a folded `word` may be a slip of, likeliest first; empty if it is none.

    A nearer word of the dictionary that is not in the vocabulary is what was meant: nothing is then
    offered, since the texts do not hold it.
    """
    if not SHORTEST <= len(word) <= LONGEST or not word.isalpha() or is_word(word):
        return []
    corrections = _near(word, vocabulary)
    if not corrections:
        return []
    meant = min(
        (candidate.cost for candidate in _near(word, _dictionary()) if candidate.replacement not in vocabulary),
        default=9.0,
    )
    return [correction for correction in corrections if correction.cost <= meant]


def _near(word: str, vocabulary: Iterable[str]) -> list[Correction]:
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    close = process.extract_iter(word, vocabulary, scorer=OSA.distance, score_cutoff=2)
    costs = ((slip_cost(word, other), other) for other, _, _ in close)
    most = next(cost for letters, cost in MOST_COST if len(word) <= letters)
    return [Correction(word, other, cost) for cost, other in sorted(costs) if cost <= most]


@lru_cache(maxsize=20_000)
def slip_cost(typed: str, meant: str) -> float:
    """Return how unlikely it is that somebody who means one word types the other, 0 for the same word."""
    width = len(meant) + 1
    rows = [[0.0] * width for _ in range(len(typed) + 1)]
    for i in range(len(typed) + 1):
        for j in range(width):
            if i or j:
                rows[i][j] = min(rows[i - a][j - b] + cost for a, b, cost in _edits(typed, meant, i, j))
    return round(rows[-1][-1], 3)


def _edits(typed: str, meant: str, i: int, j: int) -> Iterator[tuple[int, int, float]]:
    """Yield (letters typed, letters meant, cost) of the edits that end at typed[:i] and meant[:j]."""
    if i:
        yield 1, 0, _gap_cost(typed, i - 1)
    if j:
        yield 0, 1, _gap_cost(meant, j - 1)
    if i and j:
        yield (
            1,
            1,
            _letter_cost(typed[i - 1], meant[j - 1]) + (FIRST_LETTER if i == j == 1 and typed[0] != meant[0] else 0),
        )
    if i > 1 and j > 1 and typed[i - 2 : i] == meant[j - 1] + meant[j - 2] and typed[i - 1] != typed[i - 2]:
        yield 2, 2, SWAPPED


def _gap_cost(word: str, place: int) -> float:
    """The cost of leaving out or putting in one letter."""
    if place and word[place] == word[place - 1]:
        return DOUBLED
    cost = VOWEL if word[place] in _VOWELS else KEY
    return cost if place else cost + FIRST_LETTER


def _letter_cost(typed: str, meant: str) -> float:
    if typed == meant:
        return 0.0
    if typed in _VOWELS and meant in _VOWELS:
        return VOWEL
    return KEY if meant in _neighbors().get(typed, ()) else LETTER


@cache
def _neighbors() -> dict[str, set[str]]:
    """Letter -> the letters beside it on a keyboard, and those that sound alike."""
    pairs = [pair for row in _ROWS for pair in zip(row, row[1:], strict=False)]
    pairs += [pair for upper, lower in zip(_ROWS, _ROWS[1:], strict=False) for pair in zip(upper, lower, strict=False)]
    pairs += [("c", "s"), ("c", "k"), ("s", "z"), ("d", "t"), ("b", "p"), ("f", "v"), ("g", "j"), ("m", "n")]
    neighbors: dict[str, set[str]] = {}
    for first, second in pairs:
        neighbors.setdefault(first, set()).add(second)
        neighbors.setdefault(second, set()).add(first)
    return neighbors


@cache
def _dictionary() -> frozenset[str]:
    """Folded words: the default model's vocabulary of whole English words, and the word lists of the machine."""
    words = set(_model_words())
    for path in _word_lists():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        words.update(fold(line.partition("/")[0].strip()) for line in lines)
    return frozenset(words)


def _model_words() -> list[str]:
    table = json.loads((tokenizer_directory() / "tokenizer.json").read_text(encoding="utf-8"))
    return [piece for piece in table["model"]["vocab"] if piece.isalpha() and len(piece) >= SHORTEST]


def _word_lists() -> Iterator[Path]:
    for folder in map(Path, _DICTIONARIES):
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            is_list = path.suffix == ".dic" or (not path.suffix and folder.name == "dict")
            if is_list and path.is_file() and path.stat().st_size <= LARGEST_DICTIONARY:
                yield path
