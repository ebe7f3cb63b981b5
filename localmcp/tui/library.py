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
from localmcp.library.inventory import Folder, FolderState, Inventory, Item, PassageLine, Unread
from localmcp.tui.dialogs import ask_for_folder, ask_for_page, confirm
from localmcp.tui.editor import open_in_editor, real_path
from localmcp.tui.highlight import citation_text
from localmcp.tui.library_model import (
    EVERYTHING,
    Contents,
    about_document,
    about_row,
    contents_of,
    inventory_of,
    passage_text,
    targets_of_collection,
    without_waiting,
)
from localmcp.tui.library_tree import (
    PAGE,
    STATE_MARKS,
    CollectionRow,
    LibraryTree,
    More,
    Trash,
    Trashed,
    UnreadFiles,
    WaitingFiles,
    collection_of,
    fixed_rows,
    origin_of,
)
from localmcp.tui.messages import Failed, ReadDocument
from localmcp.tui.pane import FilterLine, Pane
from localmcp.tui.reader import ReaderScreen
from localmcp.tui.welcome import Welcome

if TYPE_CHECKING:
    from localmcp.workspace import Workspace

Page = tuple[Sequence[Any], int, int]
"""Rows below a node, where they begin, and how many there are."""


class LibraryPane(Pane):
    TITLE, KEY_GROUP = "Library", "library"
    ABOUT = (
        "What is in the file: collections, folders, documents, passages. A mark tells of each document whether its "
        "file is as it was read (●), has changed (✎), is gone (○) or could not be read (✗); the text beside it says "
        "why. m marks documents, d removes them, or what the filter leaves, u undoes it. "
        "Folders that were added are looked at again by themselves; r does it now."
    )

    _line_to_restore = -1
    _row_to_restore = ""
    """Key of the row that was highlighted before a reload, until it is there again."""
    _open_rows: dict[str, int]
    """Key of a branch that was open before a reload -> offset of the page that was in sight."""
    _contents: Contents | None = None
    _is_due = False
    """Whether documents may have changed without a change in their number."""
    _generation: int | None = None
    _ahead: dict[int, Page]
    """Id of a branch -> its next page, read ahead."""
    undoable: Sequence[str] = ()
    """Ids of what the last removal took."""

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="collections", classes="split", id="stock"):
            yield Welcome(id="nothing")
            with Horizontal(id="collections"):
                yield LibraryTree(classes="framed left", id="tree")
                with VerticalScroll(classes="framed right", id="details"):
                    yield Static(id="about")
        yield FilterLine("Only titles and paths that hold…", id="filter")

    def on_mount(self) -> None:
        self._ahead, self._open_rows = {}, {}
        self.tree_view.border_title = "Documents"
        self.tree_view.show_ahead = self._show_ahead
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

    # ------------------------------------------------------------ the first level

    def come_to_front(self) -> None:
        self._is_due = self._is_due or self.stale
        super().come_to_front()

    def file_changed(self, counters: dict[str, int]) -> None:
        # Without counters a job has ended, whatever it changed.
        self._is_due = self._is_due or not counters or counters.get("content") != self._generation
        self._generation = counters.get("content")
        self.reload()

    def reload(self) -> None:
        if self._is_filling():
            # Where changes come fast, branches would never be filled.
            self.stale = True
        elif self.session.is_open:
            look, nothing = self.session.look, Contents([], ())
            self.ask("contents", lambda: look(contents_of) if self.session.exists else nothing, self._show_contents)

    def _catch_up(self) -> None:
        """Show what changed while branches were filled; each answer that fills one calls it, as any may be the last."""
        if self.stale and self.display and not self._is_filling():
            self._is_due, self.stale = True, False
            self.reload()

    def _is_filling(self) -> bool:
        return any(group.startswith(("branch", "folders")) for group in self.questions)

    def _show_contents(self, contents: Contents) -> None:
        """Build the first level again; branches that were open are opened, and the cursor stays on its row, or else on
        its line. Where only vectors were made, the branches stay as they are."""
        before, self._contents = self._contents, contents
        if before is not None and without_waiting(before) == without_waiting(contents) and not self._is_due:
            self._update_waiting(contents)
            return
        self._is_due = False
        self.stock.current = (
            "collections" if contents.collections or contents.trashed or self.session.job else "nothing"
        )
        tree = self.tree_view
        self._line_to_restore = tree.cursor_line
        if not self._open_rows:
            # Else the row of the reload before this one is still to be found.
            self._row_to_restore = _key(self.chosen) if tree.root.children else ""
        self._open_rows |= {_key(node.data): tree.offset_in_sight(node) for node in tree.open_branches()}
        if len(contents.collections) == 1 and not tree.root.children:
            self._open_rows = {_key(contents.collections[0]): 0}
        tree.clear()
        self._ahead = {}
        for collection in contents.collections:
            tree.add_collection(collection)
        if contents.trashed:
            tree.root.add("", data=Trash(contents.trashed))
        self._restore_rows(tree.root)
        self.call_after_refresh(self._restore_cursor)

    def _update_waiting(self, contents: Contents) -> None:
        rows = {_key(row): row for row in contents.collections}
        for node in self.tree_view.root.children:
            if isinstance(node.data, CollectionRow):
                self.tree_view.update_waiting(node, rows[_key(node.data)])

    def _restore_cursor(self) -> None:
        tree = self.tree_view
        if 0 <= self._line_to_restore <= tree.last_line:
            tree.go_to(self._line_to_restore)
        elif tree.cursor_line < 0:
            tree.go_to(0)
        self.keep_focus()

    # ------------------------------------------------------------ branches, when they are opened

    @on(Tree.NodeExpanded)
    def open_branch(self, message: Tree.NodeExpanded[Any]) -> None:
        node = message.node
        if len(node.children) <= (fixed_rows(node) if isinstance(node.data, CollectionRow) else 0):
            self._fetch(node, self._open_rows.pop(_key(node.data), 0))
            self._fetch_folders(node)
            self._restore_rows(node)

    def _restore_rows(self, branch: TreeNode[Any]) -> None:
        """Open the rows of a branch that were open before a reload, and highlight the one that was."""
        for child in branch.children:
            key = _key(child.data)
            if key in self._open_rows:
                child.expand()
            if key == self._row_to_restore:
                self._row_to_restore, self._line_to_restore = "", -1
                self.tree_view.go_to_row(child)

    def _fetch_folders(self, node: TreeNode[Any]) -> None:
        """Ask for the folders right below a node, then for the states of their files, which takes a look at each;
        what is filtered is one list."""
        data, collection, inventory = node.data, collection_of(node), partial(self._inventory, origin_of(node))
        if self.words or collection is None or not isinstance(data, CollectionRow | Folder):
            return
        below = data.path if isinstance(data, Folder) else None

        def put_folders(folders: Sequence[Folder]) -> None:
            if self._is_there(node) and folders and not any(isinstance(child.data, Folder) for child in node.children):
                self.tree_view.put_folders(node, folders)
                self._restore_rows(node)
                states = partial(put_states, folders)
                self.ask(f"states {node.id}", lambda: inventory().folder_states(collection.name, below), states)
            self._catch_up()

        def put_states(folders: Sequence[Folder], states: dict[str, FolderState]) -> None:
            if not self._is_there(node):
                return  # Built again since; this answer may be older than the one that its place has.
            by_path = {folder.path: states.get(folder.name, FolderState()) for folder in folders}
            self.tree_view.folder_states |= by_path
            self.tree_view.draw_again(node)

        self.ask(f"folders {node.id}", lambda: inventory().folders(collection.name, below), put_folders)

    def _is_there(self, node: TreeNode[Any]) -> bool:
        """Return whether a branch is still in the tree when its answer comes."""
        return node.parent is not None and node in node.parent.children

    def _fetch(self, node: TreeNode[Any], offset: int) -> None:
        """Ask for a page of what is below a node."""
        self.ask(f"branch {node.id}", partial(self._page, node, offset), lambda page: self._put(node, *page))

    def _show_ahead(self, node: TreeNode[Any], offset: int) -> None:
        """Show a page, if it was read ahead."""
        page = self._ahead.get(node.id)
        if page is not None and page[1] == offset:
            del self._ahead[node.id]
            self._put(node, *page)

    def _read_ahead(self, node: TreeNode[Any], offset: int) -> None:
        words = self.words

        def keep(page: Page) -> None:
            if self._is_there(node) and words == self.words:
                self._ahead[node.id] = page

        self.ask(f"ahead {node.id}", partial(self._page, node, offset), keep)

    def _page(self, node: TreeNode[Any], offset: int) -> Page:
        """Return a page of what is below a node; for a thread that may wait."""
        data, inventory, collection = node.data, self._inventory(origin_of(node)), collection_of(node)
        if isinstance(data, Item):
            return inventory.passages(data.id, limit=PAGE, offset=offset), offset, data.chunks
        if isinstance(data, Trash):
            return data.items[offset : offset + PAGE], offset, len(data.items)
        if isinstance(data, UnreadFiles | WaitingFiles):
            look = inventory.unread if isinstance(data, UnreadFiles) else inventory.waiting
            files = look(data.collection.name)
            return files[offset : offset + PAGE], offset, len(files)
        folder = data.path if isinstance(data, Folder) else None if self.words else ""
        name = collection.name if collection is not None else ""
        page = inventory.documents(name, self.words, folder=folder, limit=PAGE, offset=offset)
        return page.items, offset, page.total

    def _inventory(self, origin: str | None) -> Inventory:
        return inventory_of(self.session.workspace, origin)

    def _put(self, node: TreeNode[Any], rows: Sequence[Any], offset: int, total: int) -> None:
        """Show a page, if its branch is still there."""
        if self._is_there(node):
            self.tree_view.put_page(node, rows, offset, total)
            if offset + len(rows) < total:
                self.call_after_refresh(self._read_ahead, node, offset + len(rows))
            self._restore_rows(node)
            # The row itself may be gone.
            if self.tree_view.cursor_line < self._line_to_restore <= self.tree_view.last_line:
                line, self._line_to_restore = self._line_to_restore, -1
                self.call_after_refresh(self.tree_view.go_to, line)
        self._catch_up()

    @on(Tree.NodeSelected)
    def open_node(self, message: Tree.NodeSelected[Any]) -> None:
        """Enter: the next page, or a passage to read."""
        node = message.node
        if isinstance(node.data, More) and node.parent is not None:
            self._fetch(node.parent, node.data.offset)
        elif isinstance(node.data, PassageLine):
            self.action_read()

    # ------------------------------------------------------------ what is highlighted

    @on(Tree.NodeHighlighted)
    def look_at(self, message: Tree.NodeHighlighted[Any]) -> None:
        data, origin = message.node.data, origin_of(message.node)
        # On a narrow screen the details are hidden, so the state is below the tree.
        self._show_marks(_in_short(data) if self.is_narrow else "")
        if isinstance(data, More):
            # Going on with the arrows goes on with the list, unless its page was there already.
            if message.node.parent is not None and self._is_there(message.node):
                self._fetch(message.node.parent, data.offset)
        elif isinstance(data, Item):
            self._look_up(data.title, lambda workspace: about_document(workspace, data, origin))
        elif isinstance(data, PassageLine):
            self._look_up(data.heading or "Passage", lambda workspace: passage_text(workspace, data, origin))
        elif details := about_row(data, self.tree_view.folder_states.get(getattr(data, "path", ""), FolderState())):
            self._show_about(*details)

    def _look_up(self, title: str, read: Callable[[Workspace], Content]) -> None:
        self.ask("about", lambda: self.session.look(read), lambda text: self._show_about(title, text))

    def _show_about(self, title: str, text: Content) -> None:
        self.query_one("#details").border_title = Content(title)
        self.query_one("#about", Static).update(text)
        self.query_one("#details").scroll_home(animate=False)

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
            tree.draw_again(tree.cursor_node)
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
        if words == self.words:
            return
        self.words, self._ahead = words, {}
        for node in self.tree_view.root.children:
            if isinstance(node.data, CollectionRow):
                self.tree_view.forget_pages(node)
                if node.is_expanded:
                    self._fetch(node, 0)
                    self._fetch_folders(node)
                else:
                    node.expand()

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


def _key(data: Any) -> str:
    """Return what tells a row from all others, also after a reload."""
    if isinstance(data, CollectionRow):
        return f"collection {data.origin} {data.name}"
    if isinstance(data, UnreadFiles | WaitingFiles):
        return f"{type(data).__name__} of {_key(data.collection)}"
    return f"{type(data).__name__} {getattr(data, 'id', getattr(data, 'path', ''))}"
