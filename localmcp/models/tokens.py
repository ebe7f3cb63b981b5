"""Tokenizers that can be pickled as what they are made from, so that other processes count tokens without a model."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from string import ascii_letters, digits, punctuation
from typing import TYPE_CHECKING, Protocol

from localmcp.arrays import Ids, np

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TokenCounter = Callable[[str], int]
"""Tokens of a whole text: nothing cut off, special tokens not counted."""


class Tokens(Protocol):
    """A tokenizer; calling it counts."""

    def model_ids(self, text: str, most: int) -> Ids:
        """Return the first `most` tokens of a text, with the special ones that the model wants around them."""
        ...

    def __call__(self, text: str) -> int:
        """Count the tokens of the whole text."""
        ...


_IN_WORDS = (ascii_letters + digits + " \t\n\r").encode()
_BETWEEN_WORDS = {code: " " for code in range(128) if not chr(code).isalnum()}
_SPECIAL = re.compile(r"\[(?:CLS|SEP|MASK|PAD|UNK)\]")
COUNTED_WORDS = 100_000
"""Words whose tokens are remembered before the memory is emptied."""


class _PieceCounts(dict[str, int]):
    """Tokens of each word, counted once: six times as fast as counting every text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._filling = threading.Lock()

    def sum(self, words: list[str]) -> int:
        """Return how many tokens the words have together."""
        try:
            return sum(map(self.__getitem__, words))
        except KeyError:
            pass
        # One at a time: another thread would empty the memory in between.
        with self._filling:
            if len(self) >= COUNTED_WORDS:
                self.clear()
            fresh = [word for word in set(words) if word not in self]
            # To ask for all words at once takes a third of the time.
            counts = Counter(self._tokenizer.encode(" ".join(fresh), add_special_tokens=False).word_ids)
            self.update((word, counts[number]) for number, word in enumerate(fresh))
            return sum(map(self.__getitem__, words))


class WordPieces:
    """A tokenizer.json, which is read at the first use in a process."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[type[WordPieces], tuple[Path]]:
        return WordPieces, (self._file,)

    def model_ids(self, text: str, most: int) -> Ids:
        """Return the first `most` tokens of a text, with the special ones that the model wants around them."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        encoding.truncate(most)
        return np.array(self._tokenizer.post_process(encoding).ids, np.int64)

    def special_tokens(self) -> int:
        """Return how many special tokens are added to a text."""
        return self._tokenizer.num_special_tokens_to_add(False)

    def __call__(self, text: str) -> int:
        if self._counts is not None and text.isascii():
            signs = text.encode().translate(None, _IN_WORDS)
            # Control characters join what they separate.
            if not signs.translate(None, punctuation.encode()) and not (b"[" in signs and _SPECIAL.search(text)):
                return len(signs) + self._counts.sum(text.translate(_BETWEEN_WORDS).split())
        return len(self._tokenizer.encode(text, add_special_tokens=False))

    @cached_property
    def _counts(self) -> _PieceCounts | None:
        """Tokens by word, for a tokenizer that splits at white space and punctuation first; None for another."""
        kinds = (type(self._tokenizer.pre_tokenizer).__name__, type(self._tokenizer.model).__name__)
        return _PieceCounts(self._tokenizer) if kinds == ("BertPreTokenizer", "WordPiece") else None

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self._file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
