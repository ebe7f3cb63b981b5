"""Token counts in other processes: a counter is pickled as what it is made from, and loads no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from localmcp.embeddings.embedder import Embedder

TokenCounter = Callable[[str], int]
"""Tokens of a whole text: nothing cut off, special tokens not counted."""


@dataclass(frozen=True, slots=True)
class FileTokenCounter:
    """Counts by a tokenizer.json, which is read at the first count of a process."""

    file: Path

    def __call__(self, text: str) -> int:
        return len(_open_tokenizer(self.file).encode(text, add_special_tokens=False).ids)


def token_counter(embedder: Embedder) -> TokenCounter:
    """Return what counts as `embedder.count_tokens` does, and can be pickled if the model comes with localmcp."""
    return getattr(embedder, "token_counter", embedder.count_tokens)


@cache
def _open_tokenizer(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
