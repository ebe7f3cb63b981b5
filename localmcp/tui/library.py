"""Library: collections, folders and documents as a list whose branches open, and the work on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from localmcp.errors import NotFound
from localmcp.humanize import counted, local_time
from localmcp.index.federation import shown_name
from localmcp.library.lists import Item
from localmcp.library.walk import below
from localmcp.schemas import Json
from localmcp.tui.dialogs import PATH, confirm
from localmcp.tui.markdown import passages_content
from localmcp.tui.reader import open_document
from localmcp.tui.tools import Command, form_of
from localmcp.tui.widgets import DocumentKeys, Pane, Quiet, Row, inventory_of, lines, look_around, short

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

EMPTY = (
    "[b]Nothing is indexed yet[/b]\n\n"
    "[b]a[/b]  add a folder of documents, notes or code: it is kept up to date from then on\n\n"
    "[$muted]from a shell: localmcp add FOLDER, or the address of a web page[/]"
)

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
    trashed: tuple[str, ...] = ()
    """Ids in the trash."""
    depth: int = 0

    @property
    def opens(self) -> bool:
        """Whether there are rows below it."""
        return self.kind in ("collection", "folder", "unread", "trash")


class LibraryPane(Pane, DocumentKeys):
    LIST_TITLE = "Documents"
    PLACEHOLDER = "Only titles and paths that hold…"
    EMPTY = EMPTY
    NEED_ROW = ("remove", "read", "original", "edit", "cite", "branch")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "app.add_folder", "Add"), Binding("r", "refresh", "Refresh"),
        Binding("d", "remove", "Remove"), Binding("u", "undo", "Undo"),
        Binding("f", "app.filter", "Filter"), Binding("v", "read", "Read"), Binding("o", "original", "Open"),
        Quiet("e", "edit", "Edit"), Quiet("y", "cite", "Cite"), Quiet("right", "branch(True)", "Open the branch"),
        Quiet("left", "branch(False)", "Close the branch"),
    ]  # fmt: skip
    HELP = """\
    What is in the file: collections, folders, documents. A mark tells of each document whether its file is as it was
    read (●), has changed (✎), is gone (○) or could not be read (✗); the text beside it says why. d removes what is
    highlighted, or what the filter leaves of a collection; u brings back what this window removed last. Folders that
    were added are looked at again by themselves; r does it now.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.undoable: list[str] = []
        """Ids of what this window removed last."""
        self._removed = ""
        """What that was."""
        self._open: set[str] = set()
        """Keys of the branches that are open."""
        self._generation: int | None = None
        """Of the documents, when the file changed last."""

    @property
    def place(self) -> Place:
        """What is highlighted."""
        return self.chosen.record if self.chosen is not None else Place("")

    def file_changed(self, counters: dict[str, int]) -> None:
        """Read the rows again, which looks at each file, when documents have changed, not for each vector."""
        if not counters or counters.get("content") != self._generation:
            self._generation = counters.get("content")
            self.reload()
        if self.chosen is not None:
            self.show_row(self.chosen)

    def reload(self) -> None:
        """Read the rows again; where changes come fast, once the reading before has ended."""
        if self.is_asking("rows"):
            self.stale = True
        else:
            super().reload()

    def find(self, text: str) -> Sequence[Row]:
        """Return the rows with those below the open branches; with words, of documents only those that fit."""
        rows: list[Row] = []
        opened = frozenset(self._open)

        def read(workspace: Workspace) -> None:
            def add(row: Row) -> None:
                # With words, every collection is open.
                place, is_open = row.record, row.key in opened or (bool(text) and row.record.kind == "collection")
                arrow = ("▾ " if is_open else "▸ ") if place.opens else ""
                rows.append(replace(row, title=Content(f"{'  ' * place.depth} {arrow}") + row.title))
                for child in _below(workspace, place, text) if place.opens and is_open else ():
                    add(child)

            for row in _first_level(workspace):
                add(row)

        self.session.look(read)
        return rows

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show the rows; the only collection opens, for people want to see what is in it."""
        is_first, keys = not self.rows, [row.key for row in rows if row.record.kind == "collection"]
        super().show_rows(rows)
        if is_first and len(keys) == 1 and keys[0] not in self._open:
            self._open.add(keys[0])
            self.stale = True
        if self.stale:
            self.stale = False
            self.reload()

    def show_row(self, row: Row) -> None:
        """Show the highlighted row; the first passages of a document below what is said of it."""
        place: Place = row.record
        if place.item is not None:
            mark, words, _ = STATES[place.item.state]
            self.list.border_subtitle = f"{mark} {place.item.why or words}"

        def show(answer: tuple[Content, Json]) -> None:
            about, around = answer

            def draw(width: int) -> Content:
                return lines(about, "", passages_content(self, around, width)) if around else about

            self.reader.show(place.name, draw)

        self.look("about", lambda workspace: about_row(workspace, row), show)

    def action_branch(self, opens: bool) -> None:
        """Open or close the branch; where it is so already, go to its first row, or to the branch that holds it."""
        row, place = self.chosen, self.place
        if row is None:
            return
        if place.opens and opens != (row.key in self._open):
            self._open ^= {row.key}
            self.reload()
        elif place.opens and opens:
            self.list.action_cursor_down()
        elif not opens:
            above = [n for n, other in enumerate(self.rows) if other.record.depth < place.depth]
            number = self.rows.index(row)
            self.list.highlighted = max((n for n in above if n < number), default=self.list.highlighted)

    def action_open(self) -> None:
        """Enter: open or close a branch, read a document, bring back what is in the trash."""
        if self.place.opens and self.chosen is not None:
            self.action_branch(self.chosen.key not in self._open)
        elif self.place.kind == "trashed":
            self._restore(self.place.trashed, self.place.name)
        elif self.place.item is not None:
            self.action_read()
        else:
            super().action_read()

    def action_refresh(self) -> None:
        """Look at everything that was added again, in the background."""
        self.session.refresh()

    def action_remove(self) -> None:
        """Put what is highlighted into the trash; of a collection, what the filter leaves."""
        place, name = self.place, self.place.collection
        if place.origin is not None:
            hint = f"It is taken away as a whole: localmcp unmount {place.origin}"
            raise NotFound(f"The mounted file {place.origin} is read-only.", hint=hint)
        if place.item is not None:
            self._confirm_removal(f"“{place.name}”", [place.item.id])
        elif place.kind == "folder":
            what = f"{counted(place.documents, 'document')} of {place.name}"
            self._confirm_removal(what, [place.path], name)
        elif place.kind == "collection":
            words = self.text
            held = f" that hold “{words}”" if words else ""

            def look(workspace: Workspace) -> list[str]:
                """Return the documents that hold the words; without words, the added folders and what is in none."""
                items, _ = workspace.inventory.documents(name, words, limit=1_000_000)
                roots = [] if words else [root.path for root in workspace.library.roots(name)]
                return roots + [item.id for item in items if not any(below(item.path or "", root) for root in roots)]

            def propose(targets: Sequence[str]) -> None:
                what = f"the {counted(len(targets), 'document')} of {name}{held}" if held else f"everything in {name}"
                if targets:
                    self._confirm_removal(what, targets, None if held else name)

            self.look("below", look, propose)
        else:
            self.app.notify("This row is none that can be removed: go to a document, a folder or a collection.")

    def _confirm_removal(self, what: str, targets: Sequence[str], collection: str | None = None) -> None:
        def work() -> list[str]:
            library = self.session.workspace.library
            affected = {row.uuid for name in targets for row in library.removable(name, collection=collection)}
            library.remove(targets, collection=collection)
            return [row.uuid for row, _ in library.trashed() if row.uuid in affected]

        def removed(ids: list[str]) -> None:
            self.undoable, self._removed = ids, what
            self.app.notify(f"{counted(len(ids), 'document')} put into the trash; u brings back what was removed last.")
            self.reload()

        more = "Into the trash, from where u brings it back. Files on the disk are not touched."
        # A later removal must not take the place of one that is still running.
        confirm(self, f"Remove {what}?", more, "Remove", lambda: self.ask(f"remove {what}", work, removed))

    def action_undo(self) -> None:
        """Bring back what this window removed last; without that, what is highlighted in the trash."""
        if self.undoable:
            self._restore(self.undoable, self._removed)
        elif self.place.trashed:
            self._restore(self.place.trashed, self.place.name)
        else:
            self.app.notify("Nothing was removed since this window was opened; the trash has what was.")

    def _restore(self, ids: Sequence[str], what: str) -> None:
        def done(_rows: object) -> None:
            self.undoable = [identity for identity in self.undoable if identity not in ids]
            self.app.notify(f"Restored: {what}.")

        self.ask("restore", lambda: self.session.workspace.library.restore(*ids), done)

    def action_read(self) -> None:
        if item := self.place.item:
            open_document(self, item, self.place.origin)

    def use_document(self, use: Callable[[Json], object]) -> None:
        if item := self.place.item:
            named = {"title": item.title, "path": item.path, "label": item.path or item.title}
            use({**named, "startLine": 1, "freshness": item.state})


# ---------------------------------------------------------------- the rows, for threads that may wait


def _first_level(workspace: Workspace) -> Iterator[Row]:
    stats: Any = workspace.knowledge.get_stats()
    for collection in stats["collections"]:
        name, documents = collection["name"], collection["sources"]
        if documents or any(workspace.inventory.count_waiting(name)[1:]):
            title = Content.assemble((name, "bold"), (f"  {documents:,}", "$muted"))
            yield Row(f"collection {name}", title, record=Place("collection", name, name, documents=documents))
    for origin, name in ((mount["name"], name) for mount in stats.get("mounts", ()) for name in mount["collections"]):
        if documents := inventory_of(workspace, origin).documents(name, limit=1)[1]:
            title = Content.assemble((f"{origin}/{name}", "bold"), (f"  {documents:,}", "$muted"),
                                     ("  read-only", "$warning"))  # fmt: skip
            says = f"{counted(documents, 'document')} of the mounted file {origin}, which is read-only.\n\n"
            says += f"Search only here:  collection:mount:{origin}/{name}"
            place = Place("collection", name, name, origin, documents=documents)
            yield Row(f"mount {origin}/{name}", title, Content(says), record=place)
    if trashed := tuple(row.uuid for row, _ in workspace.library.trashed()):
        says = "u brings everything back. For good, from a shell: localmcp trash empty"
        place = Place("trash", counted(len(trashed), "document"), trashed=trashed)
        yield Row("trash", Content(f"Trash  {len(trashed)}"), Content(says), record=place)


def _below(workspace: Workspace, place: Place, words: str) -> Iterator[Row]:
    depth, name, inventory = place.depth + 1, place.collection, inventory_of(workspace, place.origin)
    if place.kind == "trash":
        for row, since in workspace.library.trashed():
            says = f"{row.title}\n\n{row.uri or ''}\n\nRemoved {local_time(since)[:10]}; enter brings it back."
            trashed = Place("trashed", row.title, trashed=(row.uuid,), depth=depth)
            yield Row(f"trashed {row.uuid}", Content(row.title), Content(says), record=trashed)
        return
    if place.kind == "unread":
        for path, reason in inventory.unread(name):
            title, says = Content.styled(f"✗ {short(path)}", "$error"), Content(f"{short(path)}\n\n✗ {reason}")
            yield Row(f"file {path}", title, says, record=Place("file", short(path), name, depth=depth))
        return
    items, total = inventory.documents(name, words, folder=None if words else place.path, limit=MOST_BELOW)
    if not words:
        unread = inventory.count_waiting(name)[2] if place.kind == "collection" and place.origin is None else 0
        if unread:
            says = f"✗ {counted(unread, 'file')} could not be read"
            heading = Place("unread", says, name, depth=depth)
            yield Row(f"unread {name}", Content.styled(says, "$error"), Content(says), record=heading)
        for folder in inventory.folders(name, place.path or None):
            counts = (
                ("✗", folder.unread, "$error"), ("✎", folder.changed, "$warning"), ("○", folder.missing, "$foreground"),
            )  # fmt: skip
            marks = [(f"  {mark} {count:,}", tone) for mark, count, tone in counts if count]
            title = Content.assemble(f"{folder.name}{os.sep}", (f"  {folder.documents:,}", "$muted"), *marks)
            says = (
                f"{short(folder.path)}\n\n{counted(folder.documents, 'document')}\n\n"
                f"Search only here:  path:{short(folder.path)}\n\n"
                "✗ could not be read   ✎ changed since: r reads them again   ○ gone: r puts them into the trash"
            )
            inside = Place("folder", folder.name, name, place.origin, folder.path, folder.documents, depth=depth)
            yield Row(f"folder {place.origin} {name} {folder.path}", title, Content(says), record=inside)
    for item in items:
        mark, _, tone = STATES[item.state]
        title = Content.assemble((f"{mark} ", tone), item.title, (f"  {item.chunks:,}", "$muted"))
        inside = Place("document", item.title, item.collection, place.origin, item=item, depth=depth)
        yield Row(f"document {item.id}", title, record=inside)
    if total > len(items):
        more = f"… {total - len(items):,} more: words in the line above find them"
        yield Row(f"more {name} {place.path}", Content.styled(more, "$muted"), record=Place("", depth=depth))


def about_row(workspace: Workspace, row: Row) -> tuple[Content, Json]:
    """Return what is said of a row now, and of a document its first passages, as `get_context` has them."""
    place, item, inventory = row.record, row.record.item, workspace.inventory
    if item is not None:
        why = f"of the mounted file {place.origin}, which is read-only"
        if not place.origin:
            why = workspace.library.why(item.path)["explanation"] if item.path else "a text without a file"
        mark, words, tone = STATES[item.state]
        parts = [
            Content.styled(f"{mark} {words}", tone), Content(f"✗ {item.why}" if item.why else ""),
            Content(short(item.path) if item.path else ""), Content.styled(why, "$muted"),
        ]  # fmt: skip
        around: Json = {}
        if first := inventory_of(workspace, place.origin).passage_at(item.id):
            around = {**look_around(workspace, shown_name(first, place.origin), 4), "targetChunkId": ""}
        return lines(*(part for part in parts if part.plain)), around
    if place.kind != "collection" or place.origin is not None:
        return row.about, {}
    stats: Any = workspace.knowledge.get_stats()
    chosen = (collection for collection in stats["collections"] if collection["name"] == place.name)
    held: Json = next(chosen, {"model": None, "chunks": 0})
    passages, pages, unread = inventory.count_waiting(place.name)
    about = [
        f"{counted(place.documents, 'document')} in {counted(held['chunks'], 'passage')}",
        f"vectors of {held['model']}" if held["model"] else "no vectors: searched by words",
        f"{counted(unread, 'file')} could not be read" if unread else "",
        f"{counted(passages, 'passage')} without vectors: found by their words meanwhile" if passages else "",
        f"{counted(pages, 'page')} of scans not recognized" if pages else "",
        f"\nSearch only here:  collection:{place.name}",
    ]
    return lines(*filter(None, about)), {}


# ---------------------------------------------------------------- what can be added


ADD_FOLDER = Command(
    "Add a folder", "",
    # Upkeep makes the vectors: the next folder need not wait for them.
    lambda run: run.session.workspace.library.add_paths([run.values["path"]], progress=run.tell, wait=False),
    form=form_of(path={**PATH, "description":
        "A folder with everything in it, or one file. Ignore files (.gitignore) count; nothing leaves this machine"}),
    is_long=True,
)  # fmt: skip
