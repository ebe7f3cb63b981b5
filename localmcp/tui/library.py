"""Library: collections, folders and documents as a list whose branches open, and the work on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from localmcp.errors import InvalidInput, NotFound
from localmcp.humanize import counted
from localmcp.schemas import Json
from localmcp.tui.commands import Command, Run, form_of, start
from localmcp.tui.dialogs import ask_screen, confirm
from localmcp.tui.editor import open_in_editor, open_original, real_path
from localmcp.tui.forms import PATH, FormScreen
from localmcp.tui.library_rows import STATES, Place, about_place, documents_below, library_rows
from localmcp.tui.markdown import passages_content
from localmcp.tui.pane import FoundPane, Pane, Row
from localmcp.tui.passages import citation_text
from localmcp.tui.reader import open_document
from localmcp.tui.session import Failed
from localmcp.tui.widgets import Quiet, lines

if TYPE_CHECKING:
    from localmcp.library.jobs import Report
    from localmcp.tui.session import OnProgress
    from localmcp.workspace import Workspace

EMPTY = (
    "[b]Nothing is indexed yet[/b]\n\n"
    "[b]a[/b]  add a folder of documents, notes or code: it is kept up to date from then on\n"
    "[b]w[/b]  add a web page\n\n[$muted]from a shell: localmcp add FOLDER[/]"
)


class LibraryPane(FoundPane):
    TITLE = "Library"
    LIST_TITLE = "Documents"
    PLACEHOLDER = "Only titles and paths that hold…"
    NEED_ROW = ("remove", "read", "original", "edit", "cite", "branch")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "add", "Add"), Quiet("w", "add_page", "Add a web page"), Binding("r", "refresh", "Refresh"),
        Binding("d", "remove", "Remove"), Binding("u", "undo", "Undo"), Quiet("E", "empty", "Empty the trash"),
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

    # ------------------------------------------------------------ the rows

    def file_changed(self, counters: dict[str, int]) -> None:
        """Read the rows again, which looks at each file, when documents have changed, not for each vector."""
        if not counters or counters.get("content") != self._generation:
            self._generation = counters.get("content")
            self.reload()
        if self.chosen is not None:
            self.show_row(self.chosen)

    def reload(self) -> None:
        """Read the rows again; where changes come fast, once the reading before has ended."""
        if self.question("rows"):
            self.stale = True
        else:
            super().reload()

    def find(self, text: str) -> Sequence[Row]:
        if not self.session.exists:
            return ()
        opened = frozenset(self._open)
        return self.session.look(lambda workspace: library_rows(workspace, text, opened))

    def show_rows(self, rows: Sequence[Row]) -> None:
        collections = [row.key for row in rows if row.record.kind == "collection"]
        if len(collections) == 1 and not self.rows and collections[0] not in self._open:
            # Of the first one, people want to see what is in it.
            self._open.add(collections[0])
            self.stale = True
        super().show_rows(rows)
        if self.stale:
            self.stale = False
            self.reload()

    def nothing(self) -> str:
        return "[b]Nothing fits[/b]" if self.text else EMPTY

    def show_row(self, row: Row) -> None:
        """Show the highlighted row; the first passages of a document below what is said of it."""
        place: Place = row.record
        if place.item is not None:
            mark, words, _ = STATES[place.item.state]
            self.list.border_subtitle = f"{mark} {place.item.why or words}"

        def show(told: tuple[Content, Json]) -> None:
            about, around = told

            def draw(width: int) -> Content:
                passages = [passages_content(self, around, "", lambda _: [], "", width)] if around else []
                return lines(about, *([""] if passages else []), *passages)

            self.reader.show(place.name, draw)

        self.look("about", lambda workspace: about_place(workspace, place), show)

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

    # ------------------------------------------------------------ adding

    def action_add(self) -> None:
        add_folder(self)

    def action_add_page(self) -> None:
        start(self, ADD_PAGE, self.app.notify)

    def action_refresh(self) -> None:
        """Look at everything that was added again, in the background."""
        self.session.refresh()

    # ------------------------------------------------------------ removing

    def action_remove(self) -> None:
        """Put what is highlighted into the trash; of a collection, what the filter leaves."""
        place, name = self.place, self.place.collection
        if place.origin is not None:
            hint = f"It is taken away as a whole: localmcp unmount {place.origin}"
            self.app.post_message(Failed(NotFound(f"The mounted file {place.origin} is read-only.", hint=hint)))
        elif place.kind == "document" and place.item is not None:
            identity = place.item.id
            self._confirm_removal(f"“{place.name}”", lambda _: [identity])
        elif place.kind == "folder":
            what = f"{counted(place.documents, 'document')} of {place.name}"
            self._confirm_removal(what, lambda _: [real_path(place.path)], name)
        elif place.kind == "collection":
            words = self.text
            held = f" that hold “{words}”" if words else ""

            def propose(targets: Sequence[str]) -> None:
                what = f"the {counted(len(targets), 'document')} of {name}{held}" if held else f"everything in {name}"
                if targets:
                    self._confirm_removal(what, lambda _: targets, None if held else name)

            self.look("below", lambda workspace: documents_below(workspace, name, words), propose)
        else:
            self.app.notify("This row is none that can be removed: go to a document, a folder or a collection.")

    def _confirm_removal(
        self, what: str, targets: Callable[[Workspace], Sequence[str]], collection: str | None = None
    ) -> None:
        """Ask, then remove beside whatever else runs, and keep what is needed to undo it."""

        def work() -> list[str]:
            library, names = self.session.workspace.library, targets(self.session.workspace)
            affected = {row.uuid for name in names for row in library.removable(name, collection=collection)}
            library.remove(names, collection=collection)
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
        def done(_result: object) -> None:
            self.undoable = [identity for identity in self.undoable if identity not in ids]
            self.app.notify(f"Restored: {what}.")

        self.ask("restore", lambda: self.session.workspace.library.restore(*ids), done)

    def action_empty(self) -> None:
        """Delete what is in the trash for good."""

        def emptied(count: int) -> None:
            self.undoable = []
            self.app.notify(f"{counted(count, 'document')} deleted for good.")
            self.reload()

        trash = next((row.record for row in self.rows if row.key == "trash"), None)
        if trash is None:
            self.app.notify("The trash is empty.")
            return
        question = f"Delete {counted(len(trash.trashed), 'document')} for good?"
        work = lambda: self.session.workspace.library.empty_trash()  # noqa: E731
        more = "Only a backup could bring them back. The files are not touched."
        confirm(self, question, more, "Delete", lambda: self.ask("empty", work, emptied))

    # ------------------------------------------------------------ a document

    def action_read(self) -> None:
        if item := self.place.item:
            open_document(self, item, self.place.origin)

    def action_edit(self) -> None:
        if item := self.place.item:
            open_in_editor(self, {"path": item.path, "startLine": 1}, item.state)

    def action_original(self) -> None:
        if item := self.place.item:
            open_original(self, {"path": item.path}, item.state)

    def action_cite(self) -> None:
        if item := self.place.item:
            self.copy(citation_text(item.title, {"label": item.path or item.title}), "The citation is copied.")


# ---------------------------------------------------------------- what can be added


def _add_page(run: Run) -> str:
    from localmcp.library.web_pages import add_page, is_url

    url, workspace = run.values.pop("url"), run.session.workspace
    if not is_url(url):
        raise InvalidInput(f"url: '{url}' must begin with http:// or https://.")
    indexed = add_page(workspace.library, workspace.settings, url, **run.values)
    return f"{counted(indexed.added, 'passage')} of {url} indexed."


ADD_FOLDER = form_of(path={
    **PATH, "description": "A folder with everything in it, or one file. Ignore files (.gitignore) count; nothing "
    "leaves this machine",
})  # fmt: skip
ADD_PAGE = Command(
    "Add a web page", "It is fetched once, from the network, now.", _add_page,
    form=form_of(
        url={"title": "Address", "description": "It is fetched once, from the network, now"},
        title={"description": "Instead of the page's own", "optional": True},
        collection={"description": "Made if it is not there", "optional": True},
        allow_private={"type": "boolean", "title": "Private too", "default": False, "optional": True,
                       "description": "Also addresses of this machine and its network"},
    ),
)  # fmt: skip


def add_folder(pane: Pane) -> None:
    """Ask for a file or folder, and index it in the background."""
    session = pane.session

    def add(fields: Json) -> None:
        def work(tell: OnProgress) -> Report:
            # Upkeep makes the vectors: the next folder need not wait for them.
            return session.workspace.library.add_paths([fields["path"]], progress=tell, wait=False)

        session.do(f"Adding {os.path.basename(fields['path']) or fields['path']}", work)

    ask_screen(pane, FormScreen("Add a folder", ADD_FOLDER, lambda fields: fields, verb="Add"), add)
