"""The rows of the Library: how they are read, and what is said of each; for threads that may wait."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.content import Content

from localmcp.humanize import counted, local_time
from localmcp.index.federation import shown_name
from localmcp.library.inventory import Folder, Item
from localmcp.library.walk import below
from localmcp.schemas import Json
from localmcp.tui.pane import Row
from localmcp.tui.passages import inventory_of, look_around, short
from localmcp.tui.widgets import lines

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

MOST_BELOW = 1000
"""Rows of a branch that are listed; words in the line find the others."""
STATES = {
    "fresh": ("●", "as it was read", "$success"),
    "changed": ("✎", "the file has changed since", "$warning"),
    "missing": ("○", "the file is gone", "$foreground"),
    "unverifiable": ("·", "no file of this machine", "$foreground"),
    "failed": ("✗", "could not be read again; the earlier text is kept", "$error"),
}
"""State -> mark, words, color."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a row is."""

    kind: str
    """collection, folder, document, unread (a heading), file (that could not be read), trash, trashed, or empty."""
    name: str = ""
    collection: str = ""
    origin: str | None = None
    """The mounted file that it is in, which is read-only; None for yours."""
    path: str = ""
    """Of a folder, with the separator at its end."""
    documents: int = 0
    item: Item | None = None
    says: str = ""
    """Of a file why it could not be read, of what is in the trash since when."""
    trashed: tuple[str, ...] = ()
    """Ids in the trash."""
    depth: int = 0

    @property
    def opens(self) -> bool:
        """Whether there are rows below it."""
        return self.kind in ("collection", "folder", "unread", "trash")


def library_rows(workspace: Workspace, words: str, opened: Collection[str]) -> list[Row]:
    """Return the rows with those below the branches of these keys; with words, of documents only those that fit."""
    rows: list[Row] = []

    def add(key: str, title: Content, place: Place) -> None:
        # With words, every collection is open.
        is_open = key in opened or (bool(words) and place.kind == "collection")
        arrow = ("▾ " if is_open else "▸ ") if place.opens else ""
        rows.append(Row(key, Content(f"{'  ' * place.depth} {arrow}") + title, record=place))
        if place.opens and is_open:
            for child in _below(workspace, place, words):
                add(*child)

    for row in _first_level(workspace):
        add(*row)
    return rows


Entry = tuple[str, Content, Place]
"""The key of a row, its title, and what it is."""


def _first_level(workspace: Workspace) -> list[Entry]:
    """Return the collections of the file, then those of mounted ones, and the trash."""
    stats: Any = workspace.knowledge.get_stats()
    rows: list[Entry] = []
    for collection in stats["collections"]:
        name, documents = collection["name"], collection["sources"]
        if documents or workspace.inventory.count_unread(name) or workspace.inventory.count_waiting(name)[1]:
            place = Place("collection", name, name, documents=documents)
            rows.append((f"collection {name}", Content.assemble((name, "bold"), (f"  {documents:,}", "$muted")), place))
    for mount in stats.get("mounts", ()):
        origin = mount["name"]
        for name in mount["collections"]:
            documents = inventory_of(workspace, origin).documents(name, limit=1).total
            title = Content.assemble((f"{origin}/{name}", "bold"), (f"  {documents:,}", "$muted"),
                                     ("  read-only", "$warning"))  # fmt: skip
            if documents:
                rows.append((f"mount {origin}/{name}", title, Place("collection", name, name, origin, "", documents)))
    if trashed := tuple(row.uuid for row, _ in workspace.library.trashed()):
        place = Place("trash", counted(len(trashed), "document"), trashed=trashed)
        rows.append(("trash", Content(f"Trash  {len(trashed)}"), place))
    return rows


def _below(workspace: Workspace, place: Place, words: str) -> list[Entry]:
    """Return what is right below a branch; with words, every document of a collection that fits."""
    depth, name, inventory = place.depth + 1, place.collection, inventory_of(workspace, place.origin)
    if place.kind == "trash":
        return [
            (f"trashed {row.uuid}", Content(row.title),
             Place("trashed", row.title, says=f"{row.uri or ''}\n\nRemoved {local_time(since)[:10]}; enter brings it "
                   "back.", trashed=(row.uuid,), depth=depth))
            for row, since in workspace.library.trashed()
        ]  # fmt: skip
    if place.kind == "unread":
        return [
            (f"file {path}", Content.styled(f"✗ {short(path)}", "$error"),
             Place("file", short(path), name, says=f"✗ {reason}", depth=depth))
            for path, reason in inventory.unread(name)
        ]  # fmt: skip
    page = inventory.documents(name, words, folder=None if words else place.path, limit=MOST_BELOW)
    rows: list[Entry] = []
    if not words:
        unread = inventory.count_unread(name) if place.kind == "collection" and place.origin is None else 0
        if unread:
            says = f"✗ {counted(unread, 'file')} could not be read"
            rows.append((f"unread {name}", Content.styled(says, "$error"), Place("unread", says, name, depth=depth)))
        rows += [_folder(place, folder) for folder in inventory.folders(name, place.path or None)]
    for item in page.items:
        mark, _, tone = STATES[item.state]
        title = Content.assemble((f"{mark} ", tone), item.title, (f"  {item.chunks:,}", "$muted"))
        inside = Place("document", item.title, item.collection, place.origin, item=item, depth=depth)
        rows.append((f"document {item.id}", title, inside))
    if page.total > len(page.items):
        more = f"… {page.total - len(page.items):,} more: words in the line above find them"
        rows.append((f"more {name} {place.path}", Content.styled(more, "$muted"), Place("", depth=depth)))
    return rows


def _folder(place: Place, folder: Folder) -> Entry:
    counts = {"✗": (folder.unread, "$error"), "✎": (folder.changed, "$warning"), "○": (folder.missing, "$foreground")}
    marks = [(f"  {mark} {count:,}", tone) for mark, (count, tone) in counts.items() if count]
    title = Content.assemble(f"{folder.name}{os.sep}", (f"  {folder.documents:,}", "$muted"), *marks)
    inside = Place(
        "folder", folder.name, place.collection, place.origin, folder.path, folder.documents, depth=place.depth + 1
    )
    return f"folder {place.origin} {place.collection} {folder.path}", title, inside


# ---------------------------------------------------------------- what is said of a row

PREVIEW_PASSAGES = 4
"""Shown of a document, after the first."""


def about_place(workspace: Workspace, place: Place) -> tuple[Content, Json]:
    """Return what is said of a row now, and of a document its first passages, as `get_context` has them."""
    match place.kind:
        case "document":
            return _about_document(workspace, place)
        case "collection" if place.origin is None:
            return _about_collection(workspace, place), {}
        case "collection":
            origin = f"{place.origin}/{place.name}"
            says = f"{counted(place.documents, 'document')} of the mounted file {place.origin}, which is read-only."
            return lines(says, f"\nSearch only here:  collection:mount:{origin}"), {}
        case "folder":
            marks = "✗ could not be read   ✎ changed since: r reads them again   ○ gone: r puts them into the trash"
            says = [counted(place.documents, "document"), f"\nSearch only here:  path:{short(place.path)}\n", marks]
            return lines(short(place.path), "", *says), {}
        case "trash":
            return Content("u brings everything back; E deletes it for good."), {}
        case _:
            return lines(place.name, "", place.says), {}


def _about_collection(workspace: Workspace, place: Place) -> Content:
    inventory, name = workspace.inventory, place.name
    stats: Any = workspace.knowledge.get_stats()
    model, chunks = next(((c["model"], c["chunks"]) for c in stats["collections"] if c["name"] == name), (None, 0))
    unread, (passages, pages) = inventory.count_unread(name), inventory.count_waiting(name)
    about = [
        f"{counted(place.documents, 'document')} in {counted(chunks, 'passage')}",
        f"vectors of {model}" if model else "no vectors: searched by words",
        f"{counted(unread, 'file')} could not be read" if unread else "",
        f"{counted(passages, 'passage')} without vectors: found by their words meanwhile" if passages else "",
        f"{counted(pages, 'page')} of scans not recognized" if pages else "",
    ]
    return lines(*filter(None, about), f"\nSearch only here:  collection:{name}")


def _about_document(workspace: Workspace, place: Place) -> tuple[Content, Json]:
    item = place.item
    assert item is not None
    if place.origin:
        why = f"of the mounted file {place.origin}, which is read-only"
    else:
        why = workspace.library.why(item.path)["explanation"] if item.path else "a text without a file"
    mark, words, tone = STATES[item.state]
    parts = [
        Content.styled(f"{mark} {words}", tone), Content(f"✗ {item.why}" if item.why else ""),
        Content(short(item.path) if item.path else ""),
        Content.styled(why, "$muted"),
    ]  # fmt: skip
    about = lines(*(part for part in parts if part.plain))
    first = inventory_of(workspace, place.origin).passage_at(item.id)
    if not first:
        return about, {}
    around = look_around(workspace, shown_name(first, place.origin), PREVIEW_PASSAGES)
    return about, {**around, "targetChunkId": ""}


def documents_below(workspace: Workspace, collection: str, words: str) -> Sequence[str]:
    """Return what to remove so that the documents of a collection go: those that hold the words.

    Without words every one goes, and the folders that were added to it.
    """
    page = workspace.inventory.documents(collection, words, limit=1_000_000)
    if words:
        return [item.id for item in page.items]
    roots = [root.path for root in workspace.library.roots(collection)]
    outside = [item.id for item in page.items if not any(below(item.path or "", root) for root in roots)]
    return [*roots, *outside]
