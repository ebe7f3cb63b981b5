"""Library: collections, documents and passages as a tree that loads branches when they open, and the work on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.getters import query_one
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Tree
from textual.widgets.tree import TreeNode

from localmcp.errors import InvalidInput, NotFound
from localmcp.humanize import counted
from localmcp.index.federation import shown_name
from localmcp.schemas import Json
from localmcp.tui.commands import Command, Run, form_of, start
from localmcp.tui.dialogs import ask_screen, confirm
from localmcp.tui.editor import open_in_editor, real_path
from localmcp.tui.forms import PATH, FormScreen
from localmcp.tui.library_rows import EVERYTHING, STATES, Branch, Place, facts_of, read_tree, targets_of_collection
from localmcp.tui.markdown import passages_content
from localmcp.tui.pane import ListPane, Pane, Row
from localmcp.tui.passages import citation_text, inventory_of, look_around
from localmcp.tui.reader import ReaderScreen, open_document
from localmcp.tui.session import Failed
from localmcp.tui.theme import as_text, variables_of
from localmcp.tui.welcome import Welcome
from localmcp.tui.widgets import Quiet, Reader, lines

if TYPE_CHECKING:
    from localmcp.library.report import Report
    from localmcp.tui.session import OnProgress
    from localmcp.workspace import Workspace

PREVIEW_PASSAGES = 4
"""Shown of a document beside the tree, after the first."""
ON_ROWS = ("refresh", "remove", "undo", "empty", "read", "edit", "cite")


class LibraryTree(Tree[Row]):
    """The rows, as they are drawn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Quiet("j", "cursor_down", "Down"), Quiet("k", "cursor_up", "Up"), Quiet("g", "first", "First"),
        Quiet("G", "last", "Last"), Quiet("right,l", "open_branch", "Open the branch"),
        Quiet("left,h", "shut_branch", "Close the branch"),
    ]  # fmt: skip

    def __init__(self, **options: Any) -> None:
        super().__init__("library", **options)
        self.show_root = False
        self.guide_depth = 3

    def action_first(self) -> None:
        self.cursor_line = 0

    def action_last(self) -> None:
        self.cursor_line = self.last_line

    def action_open_branch(self) -> None:
        """Open the branch; where it is open, go to its first row."""
        node = self.cursor_node
        if node is not None and node.allow_expand and not node.is_expanded:
            node.expand()
        elif node is not None and node.children:
            self.move_cursor(node.children[0])

    def action_shut_branch(self) -> None:
        """Close the branch; on any other row, go to the branch that holds it."""
        node = self.cursor_node
        if node is not None and node.is_expanded and node.allow_expand:
            node.collapse()
        elif node is not None and node.parent is not None and not node.parent.is_root:
            self.move_cursor(node.parent)

    def nodes(self) -> Iterator[TreeNode[Row]]:
        """Yield every node from the top on."""
        waiting = [*self.root.children]
        while waiting:
            node = waiting.pop(0)
            yield node
            waiting[:0] = node.children

    def fill(self, branches: Sequence[Branch]) -> None:
        """Replace the tree; the cursor stays on its row, or else on its line."""
        line, offset = self.cursor_line, self.scroll_offset.y
        key = self.cursor_node.data.key if self.cursor_node is not None and self.cursor_node.data else ""
        self.unselect()
        self.clear()
        self._add(self.root, branches)
        # Asking for the last line numbers the lines.
        last = self.last_line
        shown = [node for node in self.nodes() if node.line >= 0]
        if last >= 0:
            same = next((node for node in shown if node.data is not None and node.data.key == key), None)
            self.move_cursor(same or shown[max(0, min(line, last))])
            self.call_after_refresh(self._scroll_back, offset)

    def _scroll_back(self, offset: float) -> None:
        self.scroll_to(y=offset, animate=False, force=True)
        self.scroll_to_line(self.cursor_line, animate=False)

    def _add(self, node: TreeNode[Row], branches: Sequence[Branch]) -> None:
        for branch in branches:
            row = branch.row
            child = node.add("", data=row, allow_expand=row.record.opens, expand=branch.below is not None)
            self._add(child, branch.below or ())

    def render_label(self, node: TreeNode[Row], base_style: Style, style: Style) -> Text:
        """Draw a row in the theme's colors; a marked document with its mark."""
        arrow = ("▾ " if node.is_expanded else "▸ ") if node.allow_expand else ""
        title = node.data.title if node.data is not None else Content("")
        assert isinstance(title, Content)
        return Text.assemble((arrow, base_style), as_text(title, variables_of(self), style))

    def get_label_width(self, node: TreeNode[Row]) -> int:
        """Skip measuring, which would draw every row: rows are cut to the width anyway."""
        return 1


class LibraryPane(ListPane):
    TITLE = "Library"
    PLACEHOLDER = "Only titles and paths that hold…"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "add", "Add"),
        Quiet("w", "add_page", "Add a web page"), Binding("r", "refresh", "Refresh"),
        Binding("d", "remove", "Remove"), Binding("u", "undo", "Undo"), Quiet("E", "empty", "Empty the trash"),
        Binding("f", "app.filter", "Filter"), Binding("v", "read", "Read"), Quiet("o", "edit", "Edit"),
        Quiet("y", "cite", "Cite"),
    ]  # fmt: skip
    HELP = """\
    What is in the file: collections, folders, documents, passages. A mark tells of each document whether its file is as
    it was read (●), has changed (✎), is gone (○) or could not be read (✗); the text beside it says why. d removes what
    is highlighted, or what the filter leaves of a collection; u brings back what this window removed last. Folders
    that were added are looked at again by themselves; r does it now.
    """

    tree_view = query_one(LibraryTree)
    stock = query_one("#stock", ContentSwitcher)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.undoable: list[str] = []
        """Ids of what this window removed last."""
        self._removed = ""
        """What that was."""
        self._open: set[str] = set()
        """Keys of the branches that are open."""
        self._branches: Sequence[Branch] = ()
        self._generation: int | None = None
        """Of the documents, when the file changed last."""

    def compose_below(self) -> Iterable[Widget]:
        with ContentSwitcher(initial="collections", classes="split", id="stock"):
            yield Welcome(id="nothing-yet")
            with Horizontal(id="collections"):
                yield LibraryTree(classes="framed left", id="tree")
                yield Reader(classes="framed right", id="reader")

    def on_mount(self) -> None:
        self.tree_view.border_title = "Documents"

    @property
    def chosen(self) -> Row | None:
        node = self.tree_view.cursor_node
        return node.data if node is not None else None

    @property
    def place(self) -> Place:
        """What is highlighted."""
        return self.chosen.record if self.chosen is not None else Place("more")

    def focus_first(self) -> None:
        """Focus the tree, or what to do when there is nothing to show."""
        (self.query_one(Welcome) if self.stock.current == "nothing-yet" else self.tree_view).focus()

    def action_list(self) -> None:
        """Go from the line to the tree; from there, show everything again."""
        if self.screen.focused is self.tree_view:
            self.line.clear()
        else:
            self.focus_first()

    # ------------------------------------------------------------ the tree

    def file_changed(self, counters: dict[str, int]) -> None:
        """Read the tree again, which looks at each file, when documents have changed; not for each vector."""
        if not counters or counters.get("content") != self._generation:
            self._generation = counters.get("content")
            self.reload()

    def find(self, text: str) -> Sequence[Row]:
        raise NotImplementedError("The tree is read by `read_tree`.")

    def reload(self) -> None:
        """Read what is open of the tree again; where changes come fast, once the reading before has ended."""
        if "rows" in self.questions:
            self.stale = True
        elif self.session.is_open:
            opened, words, exists = frozenset(self._open), self.text, self.session.exists
            look = self.session.look
            read = partial(read_tree, words=words, opened=opened)
            self.ask("rows", lambda: look(read) if exists else [], partial(self._show_tree, opened, words))

    def _show_tree(self, opened: frozenset[str], words: str, branches: list[Branch]) -> None:
        """Fill the tree, unless branches were opened or words were typed meanwhile; a later change is read after it."""
        first = {branch.row.key for branch in branches if branch.row.record.kind == "collection"}
        if words or (len(branches) == 1 and not self._branches):
            self._open |= first
        if (self._open, self.text) != (opened, words) or self.stale:
            self.stale = False
            self.reload()
            return
        self.stock.current = "collections" if branches or self.session.job else "nothing-yet"
        if branches != self._branches:
            self._branches = branches
            self.tree_view.fill(branches)
            self.look_at()
        self.refresh_bindings()
        self.keep_focus()

    @on(Tree.NodeExpanded)
    def open_branch(self, message: Tree.NodeExpanded[Row]) -> None:
        if message.node.data is not None and message.node.data.key not in self._open:
            self._open.add(message.node.data.key)
            self.reload()

    @on(Tree.NodeCollapsed)
    def shut_branch(self, message: Tree.NodeCollapsed[Row]) -> None:
        if message.node.data is not None:
            self._open.discard(message.node.data.key)
            self._branches = ()

    @on(Tree.NodeSelected)
    def open_node(self) -> None:
        """Enter: read a passage, bring back what is in the trash."""
        if self.place.kind == "passage":
            self.action_read()
        elif self.place.kind == "trashed":
            self._restore(self.place.trashed, self.place.name)

    @on(Tree.NodeHighlighted)
    def look_at(self) -> None:
        """Show the highlighted row beside the tree."""
        place, row = self.place, self.chosen
        # On a narrow screen the details are hidden, so the state is below the tree.
        state = STATES[place.item.state] if place.item is not None and place.kind == "document" else ("", "", "")
        words = f"{state[0]} {(place.item and place.item.why) or state[1]}"
        self.tree_view.border_subtitle = Content(words if self.is_narrow else "")
        if place.item is not None:
            work = partial(_preview, place=place)
            self.ask("about", lambda: self.session.look(work), partial(self._show_preview, place))
        elif row is not None:
            self.forget("about")
            self.reader.show(place.name or row.title.plain if isinstance(row.title, Content) else "", row.about)

    def _show_preview(self, place: Place, preview: tuple[Content, Json]) -> None:
        about, around = preview

        def draw(width: int) -> Content:
            text = passages_content(self, around, "", lambda _: [], "", width) if around else Content("")
            return lines(about, "", text) if about.plain else text

        self.reader.show(place.item.title if place.item is not None else "", draw)

    # ------------------------------------------------------------ adding

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer nothing for an empty library but adding to it."""
        if action == "list" and self.text and self.screen.focused is self.tree_view:
            return True
        if action in ON_ROWS:
            return self.is_mounted and self.stock.current != "nothing-yet"
        return super().check_action(action, parameters)

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
            self._confirm_removal(f"“{place.item.title}”", lambda _: [identity], None)
        elif place.kind == "folder":
            what = f"{counted(place.documents, 'document')} of {place.name}"
            self._confirm_removal(what, lambda _: [real_path(place.path)], name)
        elif place.kind == "collection" and self.text:
            self.ask("matching", partial(self._matching, name, self.text), partial(self._remove_matching, name))
        elif place.kind == "collection":
            what = f"all {counted(place.documents, 'document')} of {name}"
            self._confirm_removal(what, lambda w: targets_of_collection(w, name), name)
        else:
            self.app.notify("This row is none that can be removed: go to a document, a folder or a collection.")

    def _matching(self, collection: str, words: str) -> list[str]:
        page = self.session.workspace.inventory.documents(collection, words, limit=EVERYTHING)
        return [item.id for item in page.items]

    def _remove_matching(self, name: str, ids: list[str]) -> None:
        if ids:
            what = f"the {counted(len(ids), 'document')} of {name} that hold “{self.text}”"
            self._confirm_removal(what, lambda _: ids, None)

    def _confirm_removal(
        self, what: str, targets: Callable[[Workspace], Sequence[str]], collection: str | None
    ) -> None:
        """Ask, then remove beside whatever else runs, and keep what is needed to undo it."""

        def remove() -> None:
            # A later removal must not take the place of one that is still running.
            self.ask(f"remove {what}", work, removed)

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
        confirm(self, f"Remove {what}?", more, "Remove", remove)

    def action_undo(self) -> None:
        """Bring back what this window removed last; without that, what is highlighted in the trash."""
        if self.undoable:
            self._restore(self.undoable, self._removed)
        elif self.place.trashed:
            self._restore(self.place.trashed, self.place.name or counted(len(self.place.trashed), "document"))
        else:
            self.app.notify("Nothing was removed since this window was opened; the trash has what was.")

    def _restore(self, ids: Sequence[str], what: str) -> None:
        def restore() -> None:
            self.session.workspace.library.restore(*ids)

        def done(_result: None) -> None:
            self.undoable = [identity for identity in self.undoable if identity not in ids]
            self.app.notify(f"Restored: {what}.")

        self.ask("restore", restore, done)

    def action_empty(self) -> None:
        """Delete what is in the trash for good."""

        def emptied(count: int) -> None:
            self.undoable = []
            self.app.notify(f"{counted(count, 'document')} deleted for good.")
            self.reload()

        def empty() -> None:
            self.ask("empty", lambda: self.session.workspace.library.empty_trash(), emptied)

        trash = next((node.data for node in self.tree_view.nodes() if node.data and node.data.key == "trash"), None)
        if trash is None:
            self.app.notify("The trash is empty.")
            return
        question = f"Delete {counted(len(trash.record.trashed), 'document')} for good?"
        confirm(self, question, "Only a backup could bring them back. The files are not touched.", "Delete", empty)

    # ------------------------------------------------------------ a document

    def action_read(self) -> None:
        place = self.place
        if place.kind == "document" and place.item is not None:
            open_document(self, place.item, place.origin)
        elif place.kind == "passage" and place.item is not None:
            self.app.push_screen(ReaderScreen(shown_name(place.id, place.origin), None, place.item.state))

    def action_edit(self) -> None:
        if item := self.place.item:
            open_in_editor(self, {"path": item.path, "startLine": self.place.line}, item.state)

    def action_cite(self) -> None:
        if item := self.place.item:
            self.copy(citation_text(item.title, {"label": item.path or item.title}), "The citation is copied.")


def _preview(workspace: Workspace, place: Place) -> tuple[Content, Json]:
    """Return what is said of a document, nothing of a passage; and its passages, of a document the first ones."""
    assert place.item is not None
    about, chunk_id, following = Content(""), place.id, 0
    if place.kind == "document":
        about, following = facts_of(workspace, place), PREVIEW_PASSAGES
        first = inventory_of(workspace, place.origin).passages(place.item.id, limit=1)
        chunk_id = first[0].id if first else ""
    if not chunk_id:
        return about, {}
    return about, {**look_around(workspace, shown_name(chunk_id, place.origin), following), "targetChunkId": ""}


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
