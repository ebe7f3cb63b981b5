"""Vectors outside the file: their records, and what whoever holds them can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from localmcp.arrays import Vectors
from localmcp.schemas import Json

if TYPE_CHECKING:
    from localmcp.index.conditions import Condition

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


class RemoteIndex(Protocol):
    """Vectors of collections that another program holds, such as Milvus. Every call ends within its time-out.

    Every method raises `Unavailable` when it cannot be reached or does not answer in time, `AccessDenied` for bad
    credentials, `NotFound` for a missing collection or partition, `ModelMismatch` for a vector of another length.
    """

    def collections(self) -> list[str]:
        """Return names, sorted."""
        ...

    def describe(self, collection: str) -> Space: ...

    def search(
        self,
        collection: str,
        queries: Vectors,
        limit: int,
        *,
        partition: str | None = None,
        condition: Condition | None = None,
    ) -> list[list[Neighbor]]:
        """Return the nearest of each query, best first; equal scores by id.

        Args:
            queries: float32 unit vectors, shape (queries, dimension).
            partition: only this one; None = all.
            condition: only records whose metadata fulfil it.
        """
        ...

    def fetch(self, collection: str, ids: Sequence[int]) -> dict[int, Record]:
        """Return the records of those ids; missing ones are left out."""
        ...
