"""Library: collections, their documents and passages as a tree that grows where one looks, and the work on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import ContentSwitcher, Input, Static, Tree
from textual.widgets.tree import TreeNode

from localmcp.errors import NotFound
from localmcp.humanize import counted
from localmcp.knowledge.inventory import Inventory, Item, PassageLine, Unread
from localmcp.tui.highlight import citation_text, short
from localmcp.tui.keymap import bindings
from localmcp.tui.library_model import Contents, contents_of, inventory_of, remove_collection
from localmcp.tui.library_tree import (
    PAGE,
    STATE_MARKS,
    CollectionRow,
    LibraryTree,
    More,
    Trash,
    Trashed,
    UnreadFiles,
    origin_of,
)
from localmcp.tui.messages import Failed, ReadDocument
from localmcp.tui.pane import Pane
from localmcp.tui.welcome import Welcome


class LibraryPane(Pane):
    """The second pane."""

    TITLE, KEY_GROUP = "Library", "library"
    ABOUT = (
        "What is in the file: collections, their documents, their passages. A mark tells of each document whether its "
        "file is as it was read (●), has changed (✎), is gone (○) or could not be read (✗). "
        "Folders that were added are looked at again by themselves; r does it now."
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings("library")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.words = ""
        """What titles and paths must hold."""
        self._wanted_line = -1

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="collections", classes="split", id="stock"):
            yield Welcome(id="nothing")
            with Horizontal(id="collections"):
                yield LibraryTree(classes="framed left", id="tree")
                with VerticalScroll(classes="framed right", id="details"):
                    yield Static(id="about")
        line = Input(placeholder="Only titles and paths that hold…", classes="framed hidden", id="filter")
        line.cursor_blink = False
        yield line

    def on_mount(self) -> None:
        self.tree_view.border_title = "Documents"
        self.query_one("#details").border_title = "About"

    # ------------------------------------------------------------ parts

    @property
    def tree_view(self) -> LibraryTree:
        return self.query_one(LibraryTree)

    @property
    def chosen(self) -> Any:
        """What the highlighted node stands for."""
        node = self.tree_view.cursor_node
        return node.data if node is not None else None

    def focus_first(self) -> None:
        """The tree, or what to do when there is nothing to show."""
        empty = self.query_one("#stock", ContentSwitcher).current == "nothing"
        (self.query_one(Welcome) if empty else self.tree_view).focus()

    # ------------------------------------------------------------ the first level

    def reload(self) -> None:
        if self.session.is_open:
            self.ask("contents", self._read_contents, self._show_contents)

    def _read_contents(self) -> Contents:
        return self.session.look(contents_of) if self.session.exists else Contents([], ())

    def _show_contents(self, contents: Contents) -> None:
        """Build the first level again; branches that were open are opened, and the cursor stays on its line."""
        stock = self.query_one("#stock", ContentSwitcher)
        stock.current = "collections" if contents.collections or contents.trashed or self.session.job else "nothing"
        tree = self.tree_view
        self._wanted_line, opened = (
            tree.cursor_line,
            {_key(node.data) for node in tree.root.children if node.is_expanded},
        )
        only = len(contents.collections) == 1 and not tree.root.children
        tree.clear()
        for collection in contents.collections:
            node = tree.add_collection(collection)
            if only or _key(collection) in opened:
                node.expand()
        if contents.trashed:
            trash = Trash(contents.trashed)
            node = tree.root.add(f"Trash  {len(contents.trashed)}", data=trash)
            if _key(trash) in opened:
                node.expand()
        self.call_after_refresh(self._restore_cursor)

    def _restore_cursor(self) -> None:
        tree = self.tree_view
        if 0 <= self._wanted_line <= tree.last_line:
            tree.go_to(self._wanted_line)
        elif tree.cursor_line < 0:
            tree.go_to(0)
        self.keep_focus()

    # ------------------------------------------------------------ branches, when they are opened

    @on(Tree.NodeExpanded)
    def open_branch(self, message: Tree.NodeExpanded[Any]) -> None:
        node = message.node
        if isinstance(node.data, Trash) and not node.children:
            self.tree_view.put_page(node, node.data.items[:PAGE], 0, len(node.data.items))
        elif isinstance(node.data, CollectionRow) and len(node.children) <= bool(node.data.unread):
            self._fetch(node, 0)
        elif not node.children:
            self._fetch(node, 0)

    def _fetch(self, node: TreeNode[Any], offset: int) -> None:
        """Ask for a page of what is below a node."""
        data, words, origin = node.data, self.words, origin_of(node)
        group = f"branch {node.id}"
        if isinstance(data, CollectionRow):
            self.ask(
                group,
                lambda: self._inventory(origin).documents(data.name, words, limit=PAGE, offset=offset),
                lambda page: self._put(node, page.items, offset, page.total),
            )
        elif isinstance(data, UnreadFiles):
            self.ask(
                group,
                lambda: self._inventory(origin).unread(data.collection),
                lambda found: self._put(node, found, 0, len(found)),
            )
        elif isinstance(data, Item):
            self.ask(
                group,
                lambda: self._inventory(origin).passages(data.id, limit=PAGE, offset=offset),
                lambda found: self._put(node, found, offset, data.chunks),
            )

    def _inventory(self, origin: str | None) -> Inventory:
        return inventory_of(self.session.workspace, origin)

    def _put(self, node: TreeNode[Any], rows: Sequence[Any], offset: int, total: int) -> None:
        """Show a page, if its branch is still there."""
        if node.parent is not None and node in node.parent.children:
            self.tree_view.put_page(node, rows, offset, total)
            self._restore_late_cursor()

    def _restore_late_cursor(self) -> None:
        """A branch that was open before a reload is there again: so is the line."""
        if self._wanted_line > self.tree_view.cursor_line:
            wanted, self._wanted_line = self._wanted_line, -1
            self.call_after_refresh(self.tree_view.go_to, wanted)

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
        data = message.node.data
        # Where there is no room beside the tree, the least that must be seen stands below it.
        self.tree_view.border_subtitle = Content(_in_short(data)) if self.app.size.width < 100 else ""
        if isinstance(data, More) and message.node.parent is not None:
            # Going on with the arrows goes on with the list.
            self._fetch(message.node.parent, data.offset)
        elif isinstance(data, CollectionRow):
            self._show_about(data.name, self._about_collection(data))
        elif isinstance(data, Item):
            self.ask("about", lambda: self._facts_of(data), lambda facts: self._show_about(data.title, facts))
        elif isinstance(data, PassageLine):
            self.ask(
                "about", lambda: self._text_of(data), lambda text: self._show_about(data.heading or "Passage", text)
            )
        elif isinstance(data, Trashed):
            words = f"{data.title}\n{data.path or ''}\n\nRemoved {data.since[:10]}; u brings it back."
            self._show_about("In the trash", Content(words))
        elif isinstance(data, Unread):
            self._show_about("Could not be read", Content.assemble((short(data.path), "bold"), f"\n\n✗ {data.reason}"))

    def _show_about(self, title: str, text: Content) -> None:
        self.query_one("#details").border_title = Content(title)
        self.query_one("#about", Static).update(text)
        self.query_one("#details").scroll_home(animate=False)

    def _about_collection(self, collection: CollectionRow) -> Content:
        documents = counted(collection.documents, "document")
        if collection.origin:
            return Content(
                f"{documents} of the mounted file {collection.origin}, which is read-only.\n\n"
                f"Search only here:  collection:mount:{collection.origin}/{collection.name}"
            )
        lines = [
            f"{documents} in {counted(collection.passages, 'passage')}",
            f"vectors of {collection.model}" if collection.model else "no vectors: searched by words",
            f"{counted(collection.unread, 'file')} could not be read" if collection.unread else "",
        ]
        return Content("\n".join(filter(None, lines)) + f"\n\nSearch only here:  collection:{collection.name}")

    def _facts_of(self, item: Item) -> Content:
        """Everything that is known of a document, and why its file is as it is."""
        path = item.path
        why = self.session.look(lambda w: w.library.why(path)["explanation"]) if path else "a text without a file"
        mark, words, style = STATE_MARKS[item.state]
        lines = [
            Content.assemble((f"{mark} {words}", f"${style}")),
            Content(f"✗ {item.why}" if item.why else ""),
            Content(short(item.path) if item.path else ""),
            Content(f"{counted(item.chunks, 'passage')} in collection {item.collection}"),
            Content.styled(why, "$muted"),
            Content.styled(f"id {item.id}", "$muted"),
        ]
        return Content("\n").join(line for line in lines if line.plain)

    def _text_of(self, passage: PassageLine) -> Content:
        around = self.session.look(lambda workspace: workspace.knowledge.get_context(passage.id, 0))
        return Content(around["chunks"][0]["content"].strip("\n"))

    # ------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing is done to an empty library but adding to it."""
        if action in ("refresh", "remove", "filter", "read", "open", "cite"):
            return self.query_one("#stock", ContentSwitcher).current != "nothing" if self.is_mounted else True
        return super().check_action(action, parameters)

    def action_add(self) -> None:
        from localmcp.tui.dialogs import ask_for_folder

        ask_for_folder(self)

    def action_refresh(self) -> None:
        """Look at everything that was added again, in the background."""
        self.session.refresh()

    def action_remove(self) -> None:
        from localmcp.tui.dialogs import confirm

        data = self.chosen
        node = self.tree_view.cursor_node
        if node is not None and (origin := origin_of(node)):
            hint = f"It is taken away as a whole: localmcp unmount {origin}"
            self.app.post_message(
                Failed(NotFound(f"What stands in the mounted file {origin} is read-only.", hint=hint))
            )
            return
        more = "It goes into the trash, from where u brings it back. The file itself is not touched."
        if isinstance(data, Item):
            confirm(self, f"Remove “{data.title}”?", more, "Remove", lambda: self._remove(data.title, [data.id]))
        elif isinstance(data, CollectionRow):
            question = f"Remove all {counted(data.documents, 'document')} of {data.name}?"
            confirm(self, question, more, "Remove all", lambda: self._remove_collection(data.name))

    def _remove(self, title: str, targets: list[str]) -> None:
        self.session.do(f"Removing {title}", lambda tell: self.session.workspace.library.remove(targets))

    def _remove_collection(self, name: str) -> None:
        self.session.do(f"Removing {name}", lambda tell: remove_collection(self.session.workspace, name))

    def action_restore(self) -> None:
        data = self.chosen
        if isinstance(data, Trashed):
            self.ask(
                "restore",
                lambda: self.session.call("restore_source", sourceId=data.id),
                lambda _: self.app.notify(f"{data.title} is back."),
            )

    def action_filter(self) -> None:
        line = self.query_one("#filter", Input)
        line.remove_class("hidden")
        line.focus()

    @on(Input.Changed, "#filter")
    def filter_typed(self, message: Input.Changed) -> None:
        self.words = message.value.strip()
        for node in self.tree_view.root.children:
            if isinstance(node.data, CollectionRow):
                self.tree_view.forget_pages(node)
                node.expand()
                self._fetch(node, 0)

    @on(Input.Submitted, "#filter")
    def filter_done(self, message: Input.Submitted) -> None:
        message.input.set_class(not message.value.strip(), "hidden")
        self.tree_view.focus()

    def key_escape(self) -> None:
        """Leave the filter."""
        line = self.query_one("#filter", Input)
        if self.app.focused is line:
            line.value = ""
            line.add_class("hidden")
            self.tree_view.focus()

    def action_read(self) -> None:
        from localmcp.tui.reader import ReaderScreen

        data = self.chosen
        if isinstance(data, Item):
            self.post_message(ReadDocument(data))
        elif isinstance(data, PassageLine):
            parent = cast("TreeNode[Any]", self.tree_view.cursor_node).parent
            state = parent.data.state if parent is not None and isinstance(parent.data, Item) else "fresh"
            self.app.push_screen(ReaderScreen(data.id, None, state))

    def action_open(self) -> None:
        from localmcp.tui.editor import open_in_editor

        node = self.tree_view.cursor_node
        data, line = self.chosen, 1
        if node is not None and isinstance(data, PassageLine) and node.parent is not None:
            data, line = node.parent.data, data.first_line
        if isinstance(data, Item):
            open_in_editor(self, {"path": data.path, "startLine": line}, data.state)

    def action_cite(self) -> None:
        data = self.chosen
        if isinstance(data, Item):
            self.app.copy_to_clipboard(citation_text(data.title, {"label": data.path or data.title}))
            self.app.notify("The citation is copied.")


def _in_short(data: Any) -> str:
    """The state of what is highlighted, in a few words."""
    if isinstance(data, Item):
        mark, words, _ = STATE_MARKS[data.state]
        return f"{mark} {data.why or words}"
    return data.reason if isinstance(data, Unread) else ""


def _key(data: Any) -> str:
    return f"collection {data.origin} {data.name}" if isinstance(data, CollectionRow) else type(data).__name__
