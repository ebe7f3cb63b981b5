"""Vectors outside the file, as Milvus holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from localmcp.arrays import Vectors
from localmcp.schemas import Json

DEFAULT_PARTITION = "_default"
"""The partition of chunks whose source names none (Milvus' own word)."""


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A vector near a query."""

    id: int
    """The chunk's id."""
    score: float
    """Cosine similarity, -1..1; higher is nearer."""


@dataclass(frozen=True, slots=True)
class Record:
    """One vector with its text and metadata."""

    id: int
    vector: Vectors
    """float32 unit vector, shape (dimension,)."""
    text: str
    metadata: Json = field(default_factory=dict[str, Any])
    """The source's own metadata plus path, title and page."""
    partition: str = DEFAULT_PARTITION
    origin: Json | None = None
    """What localmcp needs to make the document of it again."""


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
