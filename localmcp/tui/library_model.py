"""What the Library's first level shows, and what is done to a whole collection; for threads that may wait."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from localmcp.knowledge.inventory import Inventory
from localmcp.search.collections import visible_collections
from localmcp.tui.library_tree import CollectionRow, Trashed

if TYPE_CHECKING:
    from localmcp.search.index import Index
    from localmcp.workspace import Workspace

EVERYTHING = 1_000_000


@dataclass(slots=True)
class Contents:
    """The first level of the tree."""

    collections: list[CollectionRow]
    trashed: tuple[Trashed, ...]


def without_waiting(contents: Contents) -> Contents:
    """Return contents that are equal unless documents came or went, or something begins or ceases to wait."""
    rows = [replace(row, model="", waiting=bool(row.waiting or row.pages), pages=0) for row in contents.collections]
    return replace(contents, collections=rows)


def contents_of(workspace: Workspace) -> Contents:
    """Return the collections of the file, then those of mounted ones, and the trash."""
    stats = workspace.knowledge.get_stats()["collections"]
    trashed = tuple(Trashed(row.uuid, row.title, row.uri, since) for row, since in workspace.library.trashed())
    collections = [_collection(workspace, row) for row in stats]
    yours = [row for row in collections if row.documents or row.unread or row.pages]
    return Contents(yours + _mounted_collections(workspace), trashed)


def _collection(workspace: Workspace, stats: Mapping[str, Any]) -> CollectionRow:
    name, inventory = stats["name"], workspace.inventory
    numbers = (stats["sources"], stats["chunks"], stats["model"] or "")
    return CollectionRow(name, *numbers, inventory.count_unread(name), *inventory.count_waiting(name))


def _mounted_collections(workspace: Workspace) -> list[CollectionRow]:
    """Return the collections of the files that are searched together with yours."""

    def look(index: Index, origin: str | None) -> list[CollectionRow] | None:
        if origin is None:
            return None
        with index.database.read() as connection:
            names = [collection.name for collection in visible_collections(connection)]
        inventory = Inventory(index.database)
        counts = {name: inventory.documents(name, limit=1).total for name in names}
        return [CollectionRow(name, count, 0, "", 0, origin=origin) for name, count in counts.items() if count]

    return [row for rows in workspace.federation.look(look) for row in rows]


def inventory_of(workspace: Workspace, origin: str | None) -> Inventory:
    """Return the inventory of a mounted file, or yours for None.

    Raises:
        NotFound: it is no longer mounted.
    """
    if origin is None:
        return workspace.inventory
    return next(workspace.federation.look(lambda index, _: Inventory(index.database), origin))


def targets_of_collection(workspace: Workspace, name: str) -> list[str]:
    """Return what to remove so that every document of a collection goes, and the folders that were added to it."""
    roots = [root.path for root, collection in workspace.inventory.roots() if collection == name]
    page = workspace.inventory.documents(name, limit=EVERYTHING)
    outside = [item.id for item in page.items if not _below_any(item.path, roots)]
    return [*roots, *outside]


def _below_any(path: str | None, folders: list[str]) -> bool:
    return path is not None and any(path == f or path.startswith(f.rstrip(os.sep) + os.sep) for f in folders)
