"""Library: collections, documents and passages as a tree that loads branches when they open, and the work on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.getters import query_one
from textual.widgets import ContentSwitcher, Static, Tree
from textual.widgets.tree import TreeNode

from localmcp.errors import NotFound
from localmcp.humanize import counted
from localmcp.index.federation import shown_name
from localmcp.library.inventory import Folder, FolderState, Item, PassageLine, Unread
from localmcp.tui.editor import open_in_editor, real_path
from localmcp.tui.forms import ask_for_folder, ask_for_page, confirm
from localmcp.tui.library_rows import (
    EVERYTHING,
    PAGE,
    STATE_MARKS,
    Branch,
    CollectionRow,
    More,
    Trash,
    Trashed,
    about_document,
    about_row,
    folder_states,
    key_of,
    passage_text,
    read_tree,
    rows_below,
    targets_of_collection,
)
from localmcp.tui.library_tree import LibraryTree, collection_of, origin_of
from localmcp.tui.messages import Failed, ReadDocument
from localmcp.tui.pane import FilterLine, Pane
from localmcp.tui.passages import citation_text
from localmcp.tui.reader import ReaderScreen
from localmcp.tui.welcome import Welcome

if TYPE_CHECKING:
    from localmcp.workspace import Workspace


class LibraryPane(Pane):
    TITLE, KEY_GROUP = "Library", "library"
    ABOUT = (
        "What is in the file: collections, folders, documents, passages. A mark tells of each document whether its "
        "file is as it was read (●), has changed (✎), is gone (○) or could not be read (✗); the text beside it says "
        "why. m marks documents, d removes them, or what the filter leaves, u undoes it. "
        "Folders that were added are looked at again by themselves; r does it now."
    )

    undoable: Sequence[str] = ()
    """Ids of what the last removal took."""
    _branches: Sequence[Branch] = ()
    """What the tree was filled with; none after a branch was added to it."""
    _is_due = True
    """Whether files may have changed, so that they are looked at for the marks of their folders."""
    _generation: int | None = None
    """Of the documents, when the file changed last."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._open: dict[str, int] = {}
        """Key of each branch that is open -> how many rows of it are read."""

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="collections", classes="split", id="stock"):
            yield Welcome(id="nothing")
            with Horizontal(id="collections"):
                yield LibraryTree(classes="framed left", id="tree")
                with VerticalScroll(classes="framed right", id="details"):
                    yield Static(id="about")
        yield FilterLine("Only titles and paths that hold…", id="filter")

    def on_mount(self) -> None:
        self.tree_view.border_title = "Documents"
        self.query_one("#details").border_title = "About"

    tree_view = query_one(LibraryTree)
    stock = query_one("#stock", ContentSwitcher)

    @property
    def chosen(self) -> Any:
        """The data of the highlighted node."""
        node = self.tree_view.cursor_node
        return node.data if node is not None else None

    def focus_first(self) -> None:
        """Focus the tree, or what to do when there is nothing to show."""
        empty = self.stock.current == "nothing"
        (self.query_one(Welcome) if empty else self.tree_view).focus()

    # ------------------------------------------------------------ the tree

    def come_to_front(self) -> None:
        self._is_due = self._is_due or self.stale
        super().come_to_front()

    def file_changed(self, counters: dict[str, int]) -> None:
        """Read the tree again; while vectors are made, the files are not looked at each time."""
        self._is_due = self._is_due or counters.get("content") != self._generation
        self._generation = counters.get("content")
        self.reload()

    def reload(self) -> None:
        """Read what is open of the tree again; where changes come fast, once the reading before has ended."""
        if "contents" in self.questions:
            self.stale = True
        elif self.session.is_open:
            opened, words, exists = dict(self._open), self.words, self.session.exists
            look = self.session.look
            self.ask(
                "contents", lambda: look(lambda w: read_tree(w, opened, words)) if exists else [],
                lambda branches: self._show(branches, opened, words),
            )  # fmt: skip

    def _show(self, branches: Sequence[Branch], opened: dict[str, int], words: str) -> None:
        """Fill the tree, unless branches were opened or words were typed meanwhile; a later change is read after it."""
        only = branches[0] if len(branches) == 1 else None
        if only is not None and not self._open and not self._branches and not words:
            self._open = {key_of(only.row): PAGE}
        if (self._open, self.words) != (opened, words):
            self.reload()
            return
        self.stock.current = "collections" if branches or self.session.job else "nothing"
        if branches != self._branches:
            self._branches = branches
            self.tree_view.fill(branches)
        if self._is_due:
            self._is_due = False
            self.forget("new states")
            self._ask_states("states", [node for node in self.tree_view.nodes() if node.is_expanded])
        self.keep_focus()
        if self.stale:
            self.stale = False
            self.reload()

    def _ask_states(self, group: str, nodes: Sequence[TreeNode[Any]]) -> None:
        """Ask how the files of the folders right below these rows are, which takes a look at each file."""
        with_folders = [node for node in nodes if any(isinstance(child.data, Folder) for child in node.children)]
        places = [
            (cast(CollectionRow, collection_of(node)), node.data if isinstance(node.data, Folder) else None)
            for node in with_folders
        ]

        def show(states: dict[str, FolderState]) -> None:
            tree = self.tree_view
            tree.folder_states = states if group == "states" else tree.folder_states | states
            # The tree keeps each line that was drawn once, until a row above it is drawn again.
            for node in with_folders:
                node.refresh()
            tree.refresh()

        if places or group == "states":
            self.ask(group, lambda: self.session.look(lambda w: folder_states(w, places)), show)

    @on(Tree.NodeExpanded)
    def open_branch(self, message: Tree.NodeExpanded[Any]) -> None:
        """Read what is below a row, unless it is there."""
        node = message.node
        self._open.setdefault(key_of(node.data), PAGE)
        row, collection, words = node.data, collection_of(node), self.words

        def put(rows: Sequence[Any]) -> None:
            if node in self.tree_view.nodes() and not node.children:
                self._branches = ()
                self.tree_view.add_rows(node, [Branch(row) for row in rows])
                self._ask_states("new states", [node])

        if not node.children:
            look = partial(self.session.look, lambda w: rows_below(w, row, collection, words, PAGE))
            self.ask(f"branch {key_of(row)}", look, put)

    @on(Tree.NodeCollapsed)
    def shut_branch(self, message: Tree.NodeCollapsed[Any]) -> None:
        self._open.pop(key_of(message.node.data), None)

    @on(Tree.NodeSelected)
    def open_node(self, message: Tree.NodeSelected[Any]) -> None:
        """Enter: the next rows, or a passage to read."""
        if isinstance(message.node.data, More):
            self._read_more(message.node)
        elif isinstance(message.node.data, PassageLine):
            self.action_read()

    def _read_more(self, node: TreeNode[Any]) -> None:
        """Read the next rows of a branch, of which this is the last."""
        key = key_of(cast("TreeNode[Any]", node.parent).data)
        self._open[key] = self._open.get(key, PAGE) + PAGE
        self.reload()

    # ------------------------------------------------------------ what is highlighted

    @on(Tree.NodeHighlighted)
    def look_at(self, message: Tree.NodeHighlighted[Any]) -> None:
        data, origin = message.node.data, origin_of(message.node)
        # On a narrow screen the details are hidden, so the state is below the tree.
        self._show_marks(_in_short(data) if self.is_narrow else "")
        if isinstance(data, More):
            # Going on with the arrows goes on with the list.
            self._read_more(message.node)
        elif isinstance(data, Item):
            self._look_up(data.title, lambda workspace: about_document(workspace, data, origin))
        elif isinstance(data, PassageLine):
            self._look_up(data.heading or "Passage", lambda workspace: passage_text(workspace, data, origin))
        elif details := about_row(data, self.tree_view.folder_states.get(getattr(data, "path", ""), FolderState())):
            self._show_about(*details)

    def _look_up(self, title: str, read: Callable[[Workspace], Content]) -> None:
        self.ask("about", lambda: self.session.look(read), lambda text: self._show_about(title, text))

    def _show_about(self, title: str, text: Content) -> None:
        box, about = self.query_one("#details"), self.query_one("#about", Static)
        if text != about.content:
            box.border_title = Content(title)
            about.update(text)
            box.scroll_home(animate=False)

    # ------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer nothing for an empty library but adding to it."""
        if action in ("refresh", "mark", "remove", "undo", "empty", "filter", "read", "open", "cite"):
            return self.stock.current != "nothing" if self.is_mounted else True
        return super().check_action(action, parameters)

    def action_add(self) -> None:
        ask_for_folder(self)

    def action_add_page(self) -> None:
        ask_for_page(self)

    def action_refresh(self) -> None:
        """Look at everything that was added again, in the background."""
        self.session.refresh()

    def action_mark(self) -> None:
        """Mark a document, or take the mark back, and go on to the next row."""
        tree, data = self.tree_view, self.chosen
        if isinstance(data, Item) and tree.cursor_node is not None and origin_of(tree.cursor_node) is None:
            if tree.marked.pop(data.id, None) is None:
                tree.marked[data.id] = data
            tree.cursor_node.refresh()
            tree.action_cursor_down()
            self._show_marks()

    def _show_marks(self, otherwise: str = "") -> None:
        number = len(self.tree_view.marked)
        words = f"{counted(number, 'document')} marked · d removes" if number else otherwise
        self.tree_view.border_subtitle = Content(words)

    def action_remove(self) -> None:
        """Put what is marked into the trash; else what the filter leaves of a collection; else what is highlighted."""
        node, data, marked = self.tree_view.cursor_node, self.chosen, self.tree_view.marked
        if marked:
            self._confirm_removal(counted(len(marked), "marked document"), lambda w: list(marked), None)
            return
        if node is not None and (origin := origin_of(node)):
            hint = f"It is taken away as a whole: localmcp unmount {origin}"
            self.app.post_message(Failed(NotFound(f"The mounted file {origin} is read-only.", hint=hint)))
            return
        if isinstance(data, Item):
            self._confirm_removal(f"“{data.title}”", lambda _: [data.id], None)
        elif isinstance(data, Folder):
            documents = f"{counted(data.documents, 'document')} of {data.name}"
            self._confirm_removal(
                documents, lambda _: [real_path(data.path)], collection_of(cast("TreeNode[Any]", node))
            )
        elif isinstance(data, CollectionRow) and self.words:
            self.ask("matching", lambda: self._matching(data.name), lambda ids: self._remove_matching(data.name, ids))
        elif isinstance(data, CollectionRow):
            documents = f"all {counted(data.documents, 'document')} of {data.name}"
            self._confirm_removal(documents, lambda w: targets_of_collection(w, data.name), data)
        else:
            self.app.notify("This row is none that can be removed: go to a document, a folder or a collection.")

    def _matching(self, collection: str) -> list[str]:
        page = self.session.workspace.inventory.documents(collection, self.words, limit=EVERYTHING)
        return [item.id for item in page.items]

    def _remove_matching(self, name: str, ids: list[str]) -> None:
        if ids:
            documents = f"the {counted(len(ids), 'document')} of {name} that hold “{self.words}”"
            self._confirm_removal(documents, lambda _: ids, None)

    def _confirm_removal(
        self, documents: str, targets: Callable[[Workspace], Sequence[str]], collection: CollectionRow | None
    ) -> None:
        """Ask, then remove beside whatever else runs, and keep what is needed to undo it."""
        name = collection.name if collection is not None else None

        def work() -> list[str]:
            workspace = self.session.workspace
            before = {row.uuid for row, _ in workspace.library.trashed()}
            workspace.library.remove(targets(workspace), collection=name)
            return [row.uuid for row, _ in workspace.library.trashed() if row.uuid not in before]

        def removed(ids: list[str]) -> None:
            self.undoable = ids
            self.app.notify(f"{counted(len(ids), 'document')} put into the trash; u brings back what was removed last.")
            self.reload()

        def remove() -> None:
            self.tree_view.marked = {}
            self._show_marks()
            # A later removal must not take the place of one that is still running.
            self.ask(f"remove {documents}", work, removed, "the trash")

        more = "Into the trash, from where u brings it back. Files on the disk are not touched."
        confirm(self, f"Remove {documents}?", more, "Remove", remove)

    def action_undo(self) -> None:
        """Restore what is highlighted in the trash, or all of it; elsewhere, undo the last removal."""
        data = self.chosen
        if isinstance(data, Trashed):
            self._restore([data.id], data.title)
        elif isinstance(data, Trash):
            self._restore([item.id for item in data.items], counted(len(data.items), "document"))
        elif self.undoable:
            self._restore(self.undoable, counted(len(self.undoable), "document"))
        else:
            self.app.notify("Nothing was removed since this window was opened; the trash has what was.")

    def _restore(self, ids: Sequence[str], documents: str) -> None:
        def restore() -> None:
            for source_id in ids:
                self.session.workspace.library.restore(source_id)

        def done(_result: None) -> None:
            self.undoable = ()
            self.app.notify(f"{documents} restored.")

        self.ask("restore", restore, done)

    def action_empty(self) -> None:
        """Delete what is in the trash for good."""
        trash = next((n.data for n in self.tree_view.root.children if isinstance(n.data, Trash)), None)
        if trash is None:
            self.app.notify("The trash is empty.")
            return

        def emptied(count: int) -> None:
            self.app.notify(f"{counted(count, 'document')} deleted for good.")
            self.undoable = ()
            self.reload()

        def empty() -> None:
            self.ask("empty", lambda: self.session.workspace.library.empty_trash(), emptied)

        question = f"Delete {counted(len(trash.items), 'document')} for good?"
        confirm(self, question, "Only a backup could bring them back. The files are not touched.", "Delete", empty)

    action_filter = Pane.focus_filter

    def apply_filter(self, words: str) -> None:
        """Show only the documents that hold the words, of every collection."""
        if words != self.words:
            self.words = words
            rows = [node.data for node in self.tree_view.root.children]
            self._open |= {key_of(row): PAGE for row in rows if isinstance(row, CollectionRow)}
            self.reload()

    def action_read(self) -> None:
        data, node = self.chosen, self.tree_view.cursor_node
        origin = origin_of(node) if node is not None else None
        if isinstance(data, Item):
            self.post_message(ReadDocument(data, origin))
        elif isinstance(data, PassageLine):
            parent = cast("TreeNode[Any]", node).parent
            state = parent.data.state if parent is not None and isinstance(parent.data, Item) else "fresh"
            self.app.push_screen(ReaderScreen(shown_name(data.id, origin), None, state))

    def action_open(self) -> None:
        node = self.tree_view.cursor_node
        data, line = self.chosen, 1
        if node is not None and isinstance(data, PassageLine) and node.parent is not None:
            data, line = node.parent.data, data.first_line
        if isinstance(data, Item):
            open_in_editor(self, {"path": data.path, "startLine": line}, data.state)

    def action_cite(self) -> None:
        data = self.chosen
        if isinstance(data, Item):
            self.copy(citation_text(data.title, {"label": data.path or data.title}), "The citation is copied.")


def _in_short(data: Any) -> str:
    """Return the state of what is highlighted, in a few words."""
    if isinstance(data, Item):
        mark, words, _ = STATE_MARKS[data.state]
        return f"{mark} {data.why or words}"
    return data.reason if isinstance(data, Unread) else ""
