"""The rows of the Library's tree: how they are read, and what is said of each; for threads that may wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp.humanize import counted, local_time
from localmcp.index.collections import visible_collections
from localmcp.index.federation import shown_name
from localmcp.library.inventory import Folder, FolderState, Inventory, Item, PassageLine, Unread, WaitingFile
from localmcp.library.walk import below
from localmcp.tui.passages import short

if TYPE_CHECKING:
    from localmcp.index.index import Index
    from localmcp.workspace import Workspace

EVERYTHING = 1_000_000
PAGE = 500
"""Rows of a branch that are read at once; the row behind them reads the next."""
PREVIEW_PASSAGES = 4
"""Shown of a document beside the tree, after the first."""
STATE_MARKS = {
    "fresh": ("●", "as it was read", "success"),
    "changed": ("✎", "the file has changed since", "warning"),
    "missing": ("○", "the file is gone", "foreground"),
    "unverifiable": ("·", "no file of this machine", "foreground"),
    "failed": ("✗", "could not be read again; the earlier text is kept", "error"),
}
"""State -> mark, words, color of the theme."""


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """A collection with its numbers."""

    name: str
    documents: int
    passages: int = 0
    model: str = ""
    unread: int = 0
    waiting: int = 0
    """Passages without a vector."""
    pages: int = 0
    """Of scans whose text is not recognized yet."""
    origin: str | None = None
    """The mounted file that it is in, which is read-only; None for yours."""


@dataclass(frozen=True, slots=True)
class UnreadFiles:
    """The files of a collection that could not be read."""

    collection: str
    count: int


@dataclass(frozen=True, slots=True)
class WaitingFiles:
    """The documents of a collection that wait for vectors or text recognition."""

    collection: str
    words: str


@dataclass(frozen=True, slots=True)
class Trashed:
    """A document in the trash."""

    id: str
    title: str
    path: str | None
    since: str


@dataclass(frozen=True, slots=True)
class Trash:
    """The documents that were removed."""

    items: tuple[Trashed, ...]


@dataclass(frozen=True, slots=True)
class More:
    """A row that represents those behind the last one that was read."""

    left: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A row with those below it; None = it is closed."""

    row: Any
    below: Sequence[Branch] | None = None


def key_of(row: Any) -> str:
    """Return what tells a row from all others, also after a reload."""
    if isinstance(row, CollectionRow):
        return f"collection {row.origin} {row.name}"
    name = getattr(row, "id", None) or getattr(row, "path", None) or getattr(row, "collection", "")
    return f"{type(row).__name__} {name}"


# ---------------------------------------------------------------- reading


def read_tree(workspace: Workspace, opened: Mapping[str, int], words: str) -> list[Branch]:
    """Return the tree with the branches that are open, of each as many rows as `opened` says; with `words`, of the
    documents only those that hold them."""

    def branch(row: Any, collection: CollectionRow | None) -> Branch:
        most = opened.get(key_of(row))
        if most is None:
            return Branch(row)
        return Branch(row, [branch(child, collection) for child in rows_below(workspace, row, collection, words, most)])

    return [branch(row, row if isinstance(row, CollectionRow) else None) for row in first_level(workspace)]


def first_level(workspace: Workspace) -> list[CollectionRow | Trash]:
    """Return the collections of the file, then those of mounted ones, and the trash."""
    collections = [_collection(workspace, stats) for stats in workspace.knowledge.get_stats()["collections"]]
    yours = [row for row in collections if row.documents or row.unread or row.pages]
    trashed = tuple(Trashed(row.uuid, row.title, row.uri, since) for row, since in workspace.library.trashed())
    return [*yours, *_mounted_collections(workspace), *([Trash(trashed)] if trashed else [])]


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
        return [CollectionRow(name, count, origin=origin) for name, count in counts.items() if count]

    return [row for rows in workspace.federation.look(look) for row in rows]


def rows_below(
    workspace: Workspace, row: Any, collection: CollectionRow | None, words: str, most: int
) -> Sequence[Any]:
    """Return what is below a row of that collection (None in the trash): at most so many, and a row for the rest."""
    if collection is None:
        return row.items
    inventory, name = inventory_of(workspace, collection.origin), collection.name
    match row:
        case Item():
            rows: list[Any] = [*inventory.passages(row.id, limit=most)]
            total = row.chunks
        case UnreadFiles() | WaitingFiles():
            return inventory.unread(name) if isinstance(row, UnreadFiles) else inventory.waiting(name)
        case _:
            folder = row.path if isinstance(row, Folder) else ""
            page = inventory.documents(name, words, folder=None if words else folder, limit=most)
            folders = [] if words else inventory.folders(name, folder or None)
            first = _first_rows(row) if isinstance(row, CollectionRow) else []
            rows, total = [*first, *folders, *page.items], len(first) + len(folders) + page.total
    return [*rows, More(total - len(rows))] if total > len(rows) else rows


def _first_rows(row: CollectionRow) -> list[Any]:
    """Return the rows for what could not be read, and what waits."""
    waits = [
        f"{counted(row.waiting, 'passage')} without vectors" if row.waiting else "",
        f"{counted(row.pages, 'page')} of scans not recognized" if row.pages else "",
    ]
    rows: list[Any] = [UnreadFiles(row.name, row.unread)] if row.unread else []
    return rows + ([WaitingFiles(row.name, ", ".join(filter(None, waits)))] if any(waits) else [])


def folder_states(
    workspace: Workspace, opened: Sequence[tuple[CollectionRow, Folder | None]]
) -> dict[str, FolderState]:
    """Return path -> state of the folders right below those rows, which takes a look at each file below them."""
    states: dict[str, FolderState] = {}
    for collection, folder in opened:
        inventory, path = inventory_of(workspace, collection.origin), folder.path if folder else None
        by_name = inventory.folder_states(collection.name, path)
        folders = inventory.folders(collection.name, path) if by_name else []
        states |= {each.path: by_name[each.name] for each in folders if each.name in by_name}
    return states


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


# ---------------------------------------------------------------- what is said of a row


def about_row(row: Any, state: FolderState) -> tuple[str, Content] | None:
    """Return a title and what to say of a row; None for what must be looked up. `state`: of a folder."""
    match row:
        case CollectionRow():
            return row.name, _lines(*_about_collection(row))
        case Folder():
            return row.name, _lines(*_about_folder(row, state))
        case WaitingFiles():
            meanwhile = "They are found by their words meanwhile; the work goes on while localmcp runs."
            return "What waits", _lines(row.words, "", meanwhile)
        case WaitingFile():
            return "What waits", _lines(short(row.title), "", f"{waits_for(row)} to go")
        case Trashed():
            removed = f"Removed {local_time(row.since)[:10]}; u brings it back."
            return "In the trash", _lines(row.title, row.path or "", "", removed)
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


def waits_for(row: WaitingFile) -> str:
    """`3 passages`, `2 pages`."""
    return counted(row.pages, "page") if row.pages else counted(row.passages, "passage")
