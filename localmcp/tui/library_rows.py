"""The rows of the Library's tree: how they are read, and what is said of each; for threads that may wait."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from textual.content import Content

from localmcp.humanize import counted, local_time
from localmcp.library.inventory import Folder, FolderState, Item
from localmcp.library.walk import below
from localmcp.schemas import Json
from localmcp.tui.pane import Row
from localmcp.tui.passages import inventory_of, short
from localmcp.tui.widgets import lines

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

MOST_BELOW = 1000
"""Rows of a branch that are listed; words in the line find the others."""
EVERYTHING = 1_000_000
STATES = {
    "fresh": ("●", "as it was read", "$success"),
    "changed": ("✎", "the file has changed since", "$warning"),
    "missing": ("○", "the file is gone", "$foreground"),
    "unverifiable": ("·", "no file of this machine", "$foreground"),
    "failed": ("✗", "could not be read again; the earlier text is kept", "$error"),
}
"""State -> mark, words, color."""
Kind = Literal["collection", "folder", "document", "passage", "unread", "waiting", "file", "trash", "trashed", "more"]


@dataclass(frozen=True, slots=True)
class Place:
    """What a row of the tree is."""

    kind: Kind
    collection: str = ""
    origin: str | None = None
    """The mounted file that it is in, which is read-only; None for yours."""
    name: str = ""
    """Of a collection or folder."""
    path: str = ""
    """Of a folder, with the separator at its end."""
    documents: int = 0
    item: Item | None = None
    """The document, also of a passage."""
    id: str = ""
    """Of a passage."""
    line: int = 1
    """Where a passage begins in its file."""
    trashed: tuple[str, ...] = ()
    """Ids in the trash."""

    @property
    def opens(self) -> bool:
        """Whether there are rows below it."""
        has_passages = self.item is not None and self.item.chunks > 0
        return self.kind in ("collection", "folder", "unread", "waiting", "trash") or (
            self.kind == "document" and has_passages
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """A row with those below it; None = it is closed."""

    row: Row
    below: Sequence[Branch] | None = None


def read_tree(workspace: Workspace, words: str, opened: Collection[str]) -> list[Branch]:
    """Return the tree, with the branches of these keys open; with words, of the documents only those that fit."""
    reader = _Reader(workspace, words, opened)
    return [reader.branch(row) for row in reader.first_level()]


class _Reader:
    """Reads the rows of a tree."""

    def __init__(self, workspace: Workspace, words: str, opened: Collection[str]) -> None:
        self._workspace, self._words, self._opened = workspace, words, opened

    def branch(self, row: Row) -> Branch:
        """Return a row with those below it, if it is open."""
        if row.key not in self._opened:
            return Branch(row)
        return Branch(row, [self.branch(child) for child in self._rows_below(row.record)])

    def first_level(self) -> list[Row]:
        """Return the collections of the file, then those of mounted ones, and the trash."""
        stats: Any = self._workspace.knowledge.get_stats()
        rows = [self._collection(row) for row in stats["collections"]]
        shown = [row for row in rows if row is not None]
        for mount in stats.get("mounts", ()):
            inventory = inventory_of(self._workspace, mount["name"])
            totals = {name: inventory.documents(name, limit=1).total for name in mount["collections"]}
            shown += [_mounted(mount["name"], name, total) for name, total in totals.items() if total]
        trashed = self._workspace.library.trashed()
        ids = tuple(row.uuid for row, _ in trashed)
        trash = Row("trash", Content(f"Trash  {len(ids)}"), lines("u brings everything back."),
                    record=Place("trash", trashed=ids))  # fmt: skip
        return [*shown, trash] if ids else shown

    def _collection(self, stats: Json) -> Row | None:
        name, documents, inventory = stats["name"], stats["sources"], self._workspace.inventory
        unread, (passages, pages) = inventory.count_unread(name), inventory.count_waiting(name)
        if not (documents or unread or pages):
            return None
        about = [
            f"{counted(documents, 'document')} in {counted(stats['chunks'], 'passage')}",
            f"vectors of {stats['model']}" if stats["model"] else "no vectors: searched by words",
            f"{counted(unread, 'file')} could not be read" if unread else "",
            f"{counted(passages, 'passage')} without vectors" if passages else "",
            f"{counted(pages, 'page')} of scans not recognized" if pages else "",
        ]
        title = Content.assemble((name, "bold"), (f"  {documents:,}", "$muted"))
        text = lines(*filter(None, about), f"\nSearch only here:  collection:{name}")
        return Row(f"collection {name}", title, text, record=Place("collection", name, name=name, documents=documents))

    # ------------------------------------------------------------ below a row

    def _rows_below(self, place: Place) -> list[Row]:
        if place.kind == "trash":
            return [_trashed(row.uuid, row.title, row.uri, since) for row, since in self._workspace.library.trashed()]
        inventory, name = inventory_of(self._workspace, place.origin), place.collection
        match place.kind:
            case "document":
                assert place.item is not None
                passages = inventory.passages(place.item.id, limit=MOST_BELOW)
                rows = [_passage(place, passage) for passage in passages]
                return [*rows, *_more(place.item.chunks - len(rows))]
            case "unread":
                return [
                    _file(place, f"✗ {short(file.path)}", Content.styled(f"✗ {file.reason}", "$error"))
                    for file in inventory.unread(name)
                ]
            case "waiting":
                return [_file(place, f"◌ {short(file.title)}", _wait(file)) for file in inventory.waiting(name)]
            case _:
                return self._documents(place)

    def _documents(self, place: Place) -> list[Row]:
        """Return what is right below a collection or folder; with words, every document of it that fits."""
        inventory, name = inventory_of(self._workspace, place.origin), place.collection
        folder = None if self._words else place.path
        page = inventory.documents(name, self._words, folder=folder, limit=MOST_BELOW)
        rows = [_document(item, place.origin) for item in page.items]
        if self._words:
            return [*rows, *_more(page.total - len(rows))]
        folders = inventory.folders(name, place.path or None)
        states = inventory.folder_states(name, place.path or None) if folders else {}
        first = self._first_rows(name) if place.kind == "collection" and place.origin is None else []
        shown = [_folder(place, folder, states.get(folder.name, FolderState())) for folder in folders]
        return [*first, *shown, *rows, *_more(page.total - len(rows))]

    def _first_rows(self, name: str) -> list[Row]:
        """Return the rows for what could not be read, and what waits."""
        inventory = self._workspace.inventory
        unread, (passages, pages) = inventory.count_unread(name), inventory.count_waiting(name)
        waits = [
            f"{counted(passages, 'passage')} without vectors" if passages else "",
            f"{counted(pages, 'page')} of scans not recognized" if pages else "",
        ]
        rows: list[Row] = []
        if unread:
            says = f"✗ {counted(unread, 'file')} could not be read"
            rows.append(Row(f"unread {name}", Content.styled(says, "$error"), record=Place("unread", name)))
        if any(waits):
            says = ", ".join(filter(None, waits))
            meanwhile = "They are found by their words meanwhile; the work goes on while localmcp runs."
            title = Content.styled(f"◌ {says}", "$accent")
            rows.append(Row(f"waiting {name}", title, lines(says, "", meanwhile), record=Place("waiting", name)))
        return rows


def _mounted(origin: str, name: str, documents: int) -> Row:
    about = f"{counted(documents, 'document')} of the mounted file {origin}, which is read-only."
    title = Content.assemble((f"{origin}/{name}", "bold"), (f"  {documents:,}", "$muted"), ("  read-only", "$warning"))
    place = Place("collection", name, origin, name, documents=documents)
    return Row(f"mount {origin}/{name}", title, lines(about, f"\nSearch only here:  collection:mount:{origin}/{name}"),
               record=place)  # fmt: skip


def _folder(place: Place, folder: Folder, state: FolderState) -> Row:
    counts = {
        "✗": (folder.unread, "file", "could not be read", "$error"),
        "✎": (state.changed, "file", "changed since: r reads them again", "$warning"),
        "○": (state.missing, "file", "gone: r puts them into the trash", "$foreground"),
        "◌": (state.waiting, "passage", "without vectors", "$accent"),
    }
    marks = [(f"  {mark} {count:,}", tone) for mark, (count, _, _, tone) in counts.items() if count]
    title = Content.assemble(f"{folder.name}{os.sep}", (f"  {folder.documents:,}", "$muted"), *marks)
    about = [f"{mark} {counted(count, noun)} {says}" for mark, (count, noun, says, _) in counts.items() if count]
    text = lines(short(folder.path), "", counted(folder.documents, "document"), *about,
                 f"\nSearch only here:  path:{short(folder.path)}")  # fmt: skip
    inside = Place("folder", place.collection, place.origin, folder.name, folder.path, folder.documents)
    return Row(f"folder {place.origin} {place.collection} {folder.path}", title, text, record=inside)


def _document(item: Item, origin: str | None) -> Row:
    mark, _, tone = STATES[item.state]
    title = Content.assemble((f"{mark} ", tone), item.title, (f"  {item.chunks:,}", "$muted"))
    place = Place("document", item.collection, origin, item=item)
    return Row(f"document {item.id}", title, record=place)


def _passage(place: Place, passage: Any) -> Row:
    words = passage.heading or passage.beginning
    title = Content.assemble((f"{passage.position + 1:>3}  ", "$muted"), words)
    record = Place("passage", place.collection, place.origin, item=place.item, id=passage.id, line=passage.first_line)
    return Row(f"passage {passage.id}", title, record=record)


def _file(place: Place, title: str, about: Content) -> Row:
    return Row(f"{place.kind} {title}", Content(title), lines(title, "", about), record=Place("file", place.collection))


def _wait(file: Any) -> Content:
    left = counted(file.pages, "page") if file.pages else counted(file.passages, "passage")
    return Content(f"{left} to go")


def _trashed(identity: str, title: str, path: str | None, since: str) -> Row:
    about = lines(title, path or "", f"\nRemoved {local_time(since)[:10]}; enter brings it back.")
    return Row(f"trashed {identity}", Content(title), about, record=Place("trashed", trashed=(identity,), name=title))


def _more(left: int) -> list[Row]:
    title = Content.styled(f"… {left:,} more: words in the line above find them", "$muted")
    return [Row("more", title, record=Place("more"))] if left > 0 else []


# ---------------------------------------------------------------- a document


def facts_of(workspace: Workspace, place: Place) -> Content:
    """Return everything about a document, and why its file is as it is."""
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
        Content(f"{counted(item.chunks, 'passage')} in collection {item.collection}"),
        Content.styled(why, "$muted"),
    ]  # fmt: skip
    return lines(*(part for part in parts if part.plain))


def targets_of_collection(workspace: Workspace, name: str) -> list[str]:
    """Return what to remove so that every document of a collection goes, and the folders that were added to it."""
    roots = [root.path for root, collection in workspace.inventory.roots() if collection == name]
    page = workspace.inventory.documents(name, limit=EVERYTHING)
    outside = [item.id for item in page.items if not any(below(item.path or "", root) for root in roots)]
    return [*roots, *outside]
