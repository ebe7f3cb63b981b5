"""The Library's first level, what a removal takes, and what is shown of a row; for threads that may wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp.humanize import counted, local_time
from localmcp.index.collections import visible_collections
from localmcp.index.federation import shown_name
from localmcp.library.inventory import Folder, FolderState, Inventory, Item, PassageLine, Unread, WaitingFile
from localmcp.library.walk import below
from localmcp.tui.highlight import short
from localmcp.tui.library_tree import STATE_MARKS, CollectionRow, Trashed, WaitingFiles, waits_for

if TYPE_CHECKING:
    from localmcp.index.index import Index
    from localmcp.workspace import Workspace

EVERYTHING = 1_000_000
PREVIEW_PASSAGES = 4
"""Shown of a document beside the tree, after the first."""


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
    outside = [item.id for item in page.items if not any(below(item.path or "", root) for root in roots)]
    return [*roots, *outside]


def about_row(row: Any, state: FolderState) -> tuple[str, Content] | None:
    """Return a title and what to say of a row; None for what must be looked up. `state`: of a folder."""
    match row:
        case CollectionRow():
            return row.name, _lines(*_about_collection(row))
        case Folder():
            return row.name, _lines(*_about_folder(row, state))
        case WaitingFiles():
            return "What waits", _lines(
                row.words, "", "They are found by their words meanwhile; the work goes on while localmcp runs."
            )
        case WaitingFile():
            return "What waits", _lines(short(row.title), "", f"{waits_for(row)} to go")
        case Trashed():
            return "In the trash", _lines(
                row.title, row.path or "", "", f"Removed {local_time(row.since)[:10]}; u brings it back."
            )
        case Unread():
            return "Could not be read", Content.assemble((short(row.path), "bold"), f"\n\n✗ {row.reason}")
        case _:
            return None


def _lines(*lines: str) -> Content:
    return Content("\n".join(lines))


def _about_collection(row: CollectionRow) -> list[str]:
    documents = counted(row.documents, "document")
    if row.origin:
        search = f"Search only here:  collection:mount:{row.origin}/{row.name}"
        return [f"{documents} of the mounted file {row.origin}, which is read-only.", "", search]
    facts = [
        f"{documents} in {counted(row.passages, 'passage')}",
        f"vectors of {row.model}" if row.model else "no vectors: searched by words",
        f"{counted(row.unread, 'file')} could not be read" if row.unread else "",
    ]
    return [*filter(None, facts), "", f"Search only here:  collection:{row.name}"]


def _about_folder(folder: Folder, state: FolderState) -> list[str]:
    facts = [
        counted(folder.documents, "document"),
        f"✗ {counted(folder.unread, 'file')} could not be read" if folder.unread else "",
        f"✎ {counted(state.changed, 'file')} changed since: r reads them again" if state.changed else "",
        f"○ {counted(state.missing, 'file')} gone: r puts them into the trash" if state.missing else "",
        f"◌ {counted(state.waiting, 'passage')} without vectors" if state.waiting else "",
    ]
    return [short(folder.path), "", *filter(None, facts), "", f"Search only here:  path:{short(folder.path)}"]


def about_document(workspace: Workspace, item: Item, origin: str | None) -> Content:
    """Return everything about a document, why its file is as it is, and how its text begins."""
    if origin:
        why = f"of the mounted file {origin}, which is read-only"
    else:
        why = workspace.library.why(item.path)["explanation"] if item.path else "a text without a file"
    mark, words, style = STATE_MARKS[item.state]
    lines = [
        Content.assemble((f"{mark} {words}", f"${style}")),
        Content(f"✗ {item.why}" if item.why else ""),
        Content(short(item.path) if item.path else ""),
        Content(f"{counted(item.chunks, 'passage')} in collection {item.collection}"),
        Content.styled(why, "$muted"),
        Content.styled(f"id {item.id}", "$muted"),
    ]
    facts = Content("\n").join(line for line in lines if line.plain)
    first = next(iter(inventory_of(workspace, origin).passages(item.id, limit=1)), None)
    if first is None:
        return facts
    return Content("\n\n").join([facts, passage_text(workspace, first, origin, PREVIEW_PASSAGES)])


def passage_text(workspace: Workspace, passage: PassageLine, origin: str | None, following: int = 0) -> Content:
    """Return the text of a passage, and of those behind it."""
    around = workspace.knowledge.get_context(shown_name(passage.id, origin), following)
    texts = [chunk["content"].strip("\n") for chunk in around["chunks"] if chunk["relativePosition"] >= 0]
    return Content("\n\n".join(texts))
