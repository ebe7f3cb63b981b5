"""The Library's tree: its rows, and branches of which only a window is built, however long they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

from rich.style import Style
from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from localmcp.humanize import counted
from localmcp.knowledge.inventory import Folder, FolderState, Item, PassageLine, Unread, WaitingFile
from localmcp.tui.highlight import cut_right, short
from localmcp.tui.keymap import bindings
from localmcp.tui.theme import color

PAGE = 60
"""Rows that are built at once: about a large screen, and few enough that the keys do not wait for them."""
WINDOW = 180
"""Rows of one branch that stay built; beyond it, those at the other end go."""

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
    passages: int
    model: str
    unread: int
    waiting: int = 0
    """Passages without a vector."""
    pages: int = 0
    """Of scans whose text is not recognized yet."""
    origin: str | None = None
    """The mounted file that it is in, which is read-only; None for yours."""


@dataclass(frozen=True, slots=True)
class UnreadFiles:
    """The files of a collection that could not be read."""

    collection: CollectionRow


@dataclass(frozen=True, slots=True)
class WaitingFiles:
    """What of a collection waits for vectors, or for text recognition."""

    collection: CollectionRow

    @property
    def words(self) -> str:
        passages, pages = self.collection.waiting, self.collection.pages
        parts = [f"{counted(passages, 'passage')} without vectors" if passages else ""]
        parts.append(f"{counted(pages, 'page')} of scans not recognized" if pages else "")
        return ", ".join(filter(None, parts))


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
    """A row that represents those before or behind the window."""

    offset: int
    """Where the page begins that it fetches."""
    left: int
    before: bool


@dataclass(slots=True)
class Window:
    """Which rows of a long branch are built."""

    first: int = 0
    total: int = 0
    nodes: list[TreeNode[Any]] = field(default_factory=list[TreeNode[Any]])

    @property
    def end(self) -> int:
        return self.first + len(self.nodes)


class LibraryTree(Tree[Any]):
    """Collections, documents, passages. It asks nothing itself: the pane hands pages to it."""

    BINDINGS = [*bindings("list"), *bindings("branches")]

    def __init__(self, **options: Any) -> None:
        super().__init__("library", **options)
        self.show_root = False
        self.guide_depth = 3
        self._windows: dict[int, Window] = {}
        self._line_style: Style | None = None
        self.marked: dict[str, Item] = {}
        """Documents that the next removal takes, by their ids."""
        self.folder_states: dict[str, FolderState] = {}
        """By the folder's path."""
        self.show_ahead: Callable[[TreeNode[Any], int], None] = lambda _node, _offset: None
        """Called with a branch and the offset of a page when the cursor reaches the row that represents it."""

    # ------------------------------------------------------------ moving

    def action_first(self) -> None:
        self.go_to(0)

    def action_last(self) -> None:
        self.go_to(self.last_line)

    def action_open_branch(self) -> None:
        """Open the branch; where it is open, go to its first row."""
        node = self.cursor_node
        if node is not None and node.allow_expand and not node.is_expanded:
            node.expand()
        elif node is not None and node.children:
            self.move_cursor(node.children[0])

    def action_shut_branch(self) -> None:
        """Close the branch; on a row that is none, or closed, go to the row above it in the tree."""
        node = self.cursor_node
        if node is not None and node.is_expanded and node.allow_expand:
            node.collapse()
        elif node is not None and node.parent is not None and not node.parent.is_root:
            self.move_cursor(node.parent)

    def go_to(self, line: int) -> None:
        """Put the cursor on a line that there is, and show it."""
        if 0 <= line <= self.last_line:
            self.cursor_line = line
            self.scroll_to_line(self.cursor_line, animate=False)

    def watch_cursor_line(self, previous_line: int, line: int) -> None:
        """Move the cursor; a page that was read ahead is shown in the same painting."""
        super().watch_cursor_line(previous_line, line)
        row = self.cursor_node
        if row is not None and row.parent is not None and isinstance(row.data, More):
            self.show_ahead(row.parent, row.data.offset)

    # ------------------------------------------------------------ rows

    def clear(self) -> Self:
        """Take everything out, and what was kept of the nodes: later ones are numbered from 0 again."""
        self._windows = {}
        return super().clear()

    def forget_pages(self, node: TreeNode[Any]) -> None:
        """Take everything below a branch out."""
        self._windows.pop(node.id, None)
        node.remove_children()
        if isinstance(node.data, CollectionRow):
            self._add_fixed(node, node.data)

    def _add_fixed(self, node: TreeNode[Any], collection: CollectionRow) -> None:
        if collection.unread:
            node.add("", data=UnreadFiles(collection))
        if collection.waiting or collection.pages:
            node.add("", data=WaitingFiles(collection))

    def put_page(self, node: TreeNode[Any], rows: Sequence[Any], offset: int, total: int) -> None:
        """Show a page of a branch beside what is built; the cursor stays on the row it was on, or goes to the first
        new one where it was on the row that fetched them."""
        window = self._windows.setdefault(node.id, Window(first=offset))
        before = offset < window.first
        # The first page may reach into the window.
        rows = rows[: window.first - offset] if before else rows
        cursor = self.cursor_node
        window.total = total
        for child in [child for child in node.children if isinstance(child.data, More)]:
            child.remove()
        # Behind what always comes first: the files that could not be read, and folders.
        fixed = fixed_rows(node)
        new = [self._add(node, row, fixed + n if before else None) for n, row in enumerate(rows)]
        window.nodes = [*new, *window.nodes] if before else [*window.nodes, *new]
        window.first = offset if before else window.first
        self._trim(window, at_end=before)
        self._add_more_rows(node, window, fixed)
        # Lines are numbered anew when they are counted; then the cursor moves before they are drawn, not after.
        if self.last_line >= 0 and cursor is not None:
            came_for_them = isinstance(cursor.data, More) and new
            self.move_cursor((new[-1] if before else new[0]) if came_for_them else cursor)

    def _trim(self, window: Window, *, at_end: bool) -> None:
        surplus = max(len(window.nodes) - WINDOW, 0)
        if not surplus:
            return
        gone = window.nodes[-surplus:] if at_end else window.nodes[:surplus]
        window.nodes = window.nodes[:-surplus] if at_end else window.nodes[surplus:]
        window.first += 0 if at_end else surplus
        for child in gone:
            child.remove()

    def _add_more_rows(self, node: TreeNode[Any], window: Window, fixed: int) -> None:
        if window.first > 0:
            more = More(max(window.first - PAGE, 0), window.first, True)
            node.add_leaf(_more_words(more), data=more, before=fixed)
        if window.end < window.total:
            more = More(window.end, window.total - window.end, False)
            node.add_leaf(_more_words(more), data=more)

    def _add(self, node: TreeNode[Any], row: Any, place: int | None) -> TreeNode[Any]:
        """Add a row at a place of its branch, None for the end, and return its node."""
        branch = isinstance(row, Item) and row.chunks > 0
        where = place if place is not None and place < len(node.children) else None
        return node.add(_words(row), data=row, before=where, allow_expand=branch)

    def put_folders(self, node: TreeNode[Any], folders: Sequence[Folder]) -> None:
        """Show the folders of a branch, closed."""
        first = fixed_rows(node)
        for place, folder in enumerate(folders):
            where = first + place
            node.add("", data=folder, before=where if where < len(node.children) else None)

    def add_collection(self, collection: CollectionRow) -> TreeNode[Any]:
        """Add a collection, closed, and return its node."""
        node = self.root.add(collection.name, data=collection)
        self._add_fixed(node, collection)
        return node

    def update_waiting(self, node: TreeNode[Any], collection: CollectionRow) -> None:
        """Take over how much of a collection waits, where nothing else has changed."""
        node.data = collection
        for child in node.children:
            if isinstance(child.data, WaitingFiles):
                child.data = WaitingFiles(collection)
        self.refresh()

    # ------------------------------------------------------------ drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw lines, their common style worked out once: for each of them it takes a fifth of the time."""
        self._line_style = super().rich_style
        lines = super().render_lines(crop)
        self._line_style = None
        return lines

    @property
    def rich_style(self) -> Style:
        return self._line_style or super().rich_style

    def render_label(self, node: TreeNode[Any], base_style: Style, style: Style) -> Text:
        """Draw marks and numbers in the theme's colors beside the label."""
        data = node.data
        arrow = ("▾ " if node.is_expanded else "▸ ") if node.allow_expand else ""
        text = Text(arrow, base_style)
        if isinstance(data, Item):
            mark, _, color = ("✓", "", "accent") if data.id in self.marked else STATE_MARKS[data.state]
            number = f"  {data.chunks:,}"
            columns = self.size.width - self.guide_depth * _depth(node) - len(arrow) - len(number) - 4
            text.append(f"{mark} ", self._color(color)).append(cut_right(data.title, max(columns, 8)), style)
            text.append(number, self._dim())
        elif isinstance(data, CollectionRow):
            name = f"{data.origin}/{data.name}" if data.origin else data.name
            text.append(name, style + Style(bold=True)).append(f"  {data.documents:,}", self._dim())
            if data.origin:
                text.append("  read-only", self._color("warning"))
        elif isinstance(data, Folder):
            text.append(cut_right(f"{data.name}{os.sep}", max(self.size.width - 20, 8)), style)
            text.append(f"  {data.documents:,}", self._dim())
            state = self.folder_states.get(data.path, FolderState())
            text.append(f"  ✗ {data.unread:,}" if data.unread else "", self._color("error"))
            text.append(f"  ✎ {state.changed:,}" if state.changed else "", self._color("warning"))
            text.append(f"  ○ {state.missing:,}" if state.missing else "", self._color("foreground"))
            text.append(f"  ◌ {state.waiting:,}" if state.waiting else "", self._color("accent"))
        elif isinstance(data, WaitingFiles):
            text.append(f"◌ {data.words}", self._color("accent"))
        elif isinstance(data, UnreadFiles):
            text.append(f"✗ {counted(data.collection.unread, 'file')} could not be read", self._color("error"))
        elif isinstance(data, PassageLine):
            columns = self.size.width - self.guide_depth * _depth(node) - 8
            text.append(f"{data.position + 1:>3}  ", self._dim()).append(
                cut_right(passage_words(data), max(columns, 8)), style
            )
        elif isinstance(data, More):
            text.append(_more_words(data), self._color("accent"))
        else:
            text.append(cast(Text, node.label).plain, style)
        return text

    def get_label_width(self, node: TreeNode[Any]) -> int:
        """Skip measuring, which would draw every row: rows are truncated anyway."""
        return 1 if isinstance(node.data, Item | Folder | PassageLine | More) else super().get_label_width(node)

    def _color(self, name: str) -> Style:
        return Style.parse(color(self.app.theme_variables, name))

    def _dim(self) -> Style:
        return self._color("muted")


def _words(row: Any) -> str:
    """Return a row without its marks. Brackets are no markup here."""
    if isinstance(row, Item | Trashed):
        words = row.title
    elif isinstance(row, PassageLine):
        words = passage_words(row)
    elif isinstance(row, Unread):
        words = f"✗ {short(row.path)}"
    elif isinstance(row, WaitingFile):
        words = f"◌ {short(row.title)}  {waits_for(row)}"
    else:
        words = str(row)
    return words.replace("[", "\\[")


def waits_for(row: WaitingFile) -> str:
    """`3 passages`, `2 pages`."""
    return counted(row.pages, "page") if row.pages else counted(row.passages, "passage")


def fixed_rows(node: TreeNode[Any]) -> int:
    """Return how many rows of a branch come before its pages, whatever is shown of them."""
    return len([child for child in node.children if isinstance(child.data, UnreadFiles | WaitingFiles | Folder)])


def origin_of(node: TreeNode[Any]) -> str | None:
    """Return the mounted file that a row comes from; None for yours."""
    if isinstance(node.data, CollectionRow):
        return node.data.origin
    return origin_of(node.parent) if node.parent is not None else None


def collection_of(node: TreeNode[Any]) -> CollectionRow | None:
    """Return the collection that a row is in; None in the trash."""
    if isinstance(node.data, CollectionRow):
        return node.data
    return collection_of(node.parent) if node.parent is not None else None


def passage_words(passage: PassageLine) -> str:
    """Return the innermost heading, or how a passage begins."""
    return passage.heading or passage.beginning


def _depth(node: TreeNode[Any]) -> int:
    """Return how many guides precede a node."""
    return 0 if node.parent is None or node.parent.is_root else 1 + _depth(node.parent)


def _more_words(more: More) -> str:
    return f"… {more.left:,} {'before' if more.before else 'more'} (enter)"
