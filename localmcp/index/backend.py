"""A collection as a place that holds vectors describes it."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_PARTITION = "_default"
"""The partition of chunks whose source names none (Milvus' own word)."""


@dataclass(frozen=True, slots=True)
class Space:
    """One collection as the backend holds it."""

    name: str
    dimension: int
    model: str
    """Text form of the embedding model's identity; empty when the backend was not told."""
    count: int
    partitions: dict[str, int]
    """Partition -> vectors; counts are -1 where the backend cannot tell."""
