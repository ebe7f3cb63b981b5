"""Which backend answers for a collection: the file, or Milvus for one that was pushed there or only exists there."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Protocol, cast

import apsw

from localmcp.arrays import Vector
from localmcp.errors import LocalMCPError, Unavailable
from localmcp.index.backend import RemoteIndex
from localmcp.index.candidates import SearchRequest
from localmcp.index.collections import Collection, choose_collections, visible_collections
from localmcp.index.conditions import And, Comparison, Condition, Scalar
from localmcp.index.filters import Filters
from localmcp.index.index import RemoteHits
from localmcp.index.replicas import Replica, replica_of
from localmcp.storage.database import Database
from localmcp.tools import current_scope

log = logging.getLogger(__name__)

PAUSE_SECONDS = 30.0
"""After a failure `search` answers from the file for so long before it asks the server again."""


@dataclass(frozen=True, slots=True)
class Place:
    """The collection and the copy in which vectors are searched; both None: there is no such collection."""

    collection: Collection | None = None
    """The file's; None for one that only exists on the server."""
    replica: Replica | None = None
    """Set when the server answers for a collection of the file; never without a server."""


class Copies(Protocol):
    """Whoever keeps the copies on the server up to date."""

    def settle(self, collection_id: int) -> object:
        """Send the changes that wait for the server.

        Raises:
            Unavailable, AccessDenied: the server does not take them.
        """
        ...

    def forget(self, collection_id: int, *, drop: bool = False) -> object:
        """End the copy of a collection; with `drop` delete it on the server."""
        ...


class Places:
    """Chooses for every collection; `search` asks the server through it."""

    def __init__(self, database: Database, milvus: RemoteIndex | None, copies: Copies | None = None) -> None:
        self.database = database
        self.milvus = milvus
        self.copies = copies
        self._paused_until = 0.0
        self._models: dict[str, str] = {}

    def settle(self, collection_id: int) -> None:
        """Send the changes of a collection that wait for the server."""
        if self.copies is not None:
            self.copies.settle(collection_id)

    def find(self, connection: apsw.Connection, name: str) -> Place:
        """Return where the collection of that name is searched, as far as the file and the scope know."""
        visible = visible_collections(connection)
        own_collection = next(
            (collection for collection in visible if collection.name.casefold() == name.casefold()), None
        )
        if own_collection is None:
            return Place()
        return Place(own_collection, self._replica(connection, own_collection))

    def _replica(self, connection: apsw.Connection, collection: Collection) -> Replica | None:
        if self.milvus is None:
            return None
        replica = replica_of(connection, collection.id)
        return replica if replica is not None and replica.ready else None

    def is_foreign(self, name: str) -> bool:
        """Return whether a collection that is not in the file exists on the server, and the scope may see it.

        Raises:
            Unavailable, AccessDenied: the server does not tell.
        """
        allowed = current_scope().collections
        if self.milvus is None or (allowed is not None and name not in allowed):
            return False
        return name in self.milvus.collections()

    def model_of(self, name: str) -> str:
        """Return `name#fingerprint` of the model of a collection on the server; empty when it was not told.

        Asked once, because describing a collection counts what is in it.
        """
        if self.milvus is None:
            return ""
        if name not in self._models:
            self._models[name] = self.milvus.describe(name).model
        return self._models[name]

    # ------------------------------------------------------------ for `search`

    def nearest(self, request: SearchRequest, vector: Vector, depth: int) -> RemoteHits:
        """Return the `depth` nearest chunks in each of the request's collections that the server answers for.

        It never raises because the server fails: a collection is then left out, and a notice says why.
        """
        if self.milvus is None:
            return RemoteHits()
        with self.database.read() as connection:
            names = list(request.collections) if request.collections else None
            chosen = choose_collections(connection, names)
            replicas = [
                (collection, replica) for collection in chosen if (replica := self._replica(connection, collection))
            ]
        near: dict[int, list[int]] = {}
        notices: list[str] = []
        for collection, replica in replicas:
            try:
                neighbors = self._ask(request, vector, depth, replica)
            except LocalMCPError as error:
                log.warning("Milvus does not answer for %s: %s", collection.name, error)
                notices.append(f"'{collection.name}' was searched in the file, because Milvus did not answer: {error}")
                continue
            if neighbors is not None:
                near[collection.id] = neighbors
        return RemoteHits(near, notices)

    def _ask(self, request: SearchRequest, vector: Vector, depth: int, replica: Replica) -> list[int] | None:
        """Return ids of the nearest chunks; None when the server does not know what the request filters by."""
        restricting = restriction(request.filters)
        if restricting is None or self.milvus is None:
            return None
        if time.monotonic() < self._paused_until:
            raise Unavailable("it failed a moment ago.")
        partition, condition = restricting
        try:
            self.settle(replica.collection_id)
            [neighbors] = self.milvus.search(
                replica.name, vector[None, :], depth, partition=partition, condition=condition
            )
        except Unavailable:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            raise
        return [neighbor.id for neighbor in neighbors]


def restriction(filters: Filters) -> tuple[str | None, Condition | None] | None:
    """Return the filters as a partition and a condition, or None when they say more than those can.

    Ids of documents, their type, folder and date are known to the file only.
    """
    if filters.source_ids or filters.source_types or filters.path_prefix is not None or len(filters.partitions) > 1:
        return None
    if filters.since or filters.until:
        return None
    parts: list[Condition] = [filters.condition] if filters.condition else []
    for key, value in filters.metadata.items():
        values = tuple(cast("list[Scalar]", value)) if isinstance(value, list) else (cast("Scalar", value),)
        if any(sign in key for sign in "\"'\\`"):
            return None
        parts.append(Comparison((key,), "in" if isinstance(value, list) else "eq", values))
    partition = filters.partitions[0] if filters.partitions else None
    if not parts:
        return partition, None
    return partition, parts[0] if len(parts) == 1 else And(tuple(parts))
