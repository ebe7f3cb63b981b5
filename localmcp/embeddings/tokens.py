"""Tokenizers that can be pickled as what they are made from, so that other processes count tokens without a model."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from localmcp.embeddings.embedder import Embedder

TokenCounter = Callable[[str], int]
"""Tokens of a whole text: nothing cut off, special tokens not counted."""


class Tokens(Protocol):
    """A tokenizer; calling it counts."""

    @property
    def ends(self) -> tuple[int, int]:
        """The special tokens before and after a text."""
        ...

    def ids(self, text: str) -> list[int]:
        """Return the tokens of the whole text, without the special ones."""
        ...

    def __call__(self, text: str) -> int:
        """Count them."""
        ...


class WordPieces:
    """A tokenizer.json, which is read at the first use in a process."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[type[WordPieces], tuple[Path]]:
        return WordPieces, (self._file,)

    @property
    def ends(self) -> tuple[int, int]:
        first, last = self._tokenizer.encode("").ids
        return first, last

    def ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def __call__(self, text: str) -> int:
        return len(self.ids(text))

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self._file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


def token_counter(embedder: Embedder) -> TokenCounter:
    """Return what counts as `embedder.count_tokens` does, and can be pickled if the model comes with localmcp."""
    return getattr(embedder, "token_counter", embedder.count_tokens)
