"""The Library's tree: its rows, and long branches of which only a window is built."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from rich.style import Style
from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from localmcp.humanize import counted
from localmcp.library.inventory import Folder, FolderState, Item, PassageLine, Unread, WaitingFile
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
    """The documents of a collection that wait for vectors or text recognition."""

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
    """Of the page that it fetches."""
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
    """Collections, documents, passages. It reads nothing itself: the pane passes it pages of rows."""

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
        """Close the branch; on any other row, go to the branch that holds it."""
        node = self.cursor_node
        if node is not None and node.is_expanded and node.allow_expand:
            node.collapse()
        elif node is not None and node.parent is not None and not node.parent.is_root:
            self.move_cursor(node.parent)

    def go_to(self, line: int) -> None:
        """Put the cursor on a line, if the tree has it, and scroll there."""
        if 0 <= line <= self.last_line:
            self.cursor_line = line
            self.scroll_to_line(self.cursor_line, animate=False)

    def go_to_row(self, row: TreeNode[Any]) -> None:
        """Put the cursor on a row that was just added: asking for the last line numbers the lines."""
        if self.last_line >= 0:
            self.move_cursor(row)

    def watch_cursor_line(self, previous_line: int, line: int) -> None:
        """Move the cursor, and show a page that was read ahead before the next paint."""
        super().watch_cursor_line(previous_line, line)
        row = self.cursor_node
        if row is not None and row.parent is not None and isinstance(row.data, More):
            self.show_ahead(row.parent, row.data.offset)

    # ------------------------------------------------------------ rows

    def open_branches(self) -> list[TreeNode[Any]]:
        """Return every branch that is open."""
        branches = list(self.root.children)
        for branch in branches:
            branches.extend(branch.children)
        return [branch for branch in branches if branch.is_expanded and branch.allow_expand]

    def offset_in_sight(self, node: TreeNode[Any]) -> int:
        """Return the offset of the page around the cursor, or of the first row that is built of a branch."""
        window = self._windows.get(node.id, Window())
        index = next((n for n, row in enumerate(window.nodes) if row is self.cursor_node), 0)
        return max(window.first + index - PAGE // 2, 0) if index >= PAGE // 2 else window.first

    def clear(self) -> Self:
        """Remove all rows and their windows: ids of nodes start again at 0."""
        self._windows = {}
        return super().clear()

    def forget_pages(self, node: TreeNode[Any]) -> None:
        """Remove the pages of a branch."""
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
        """Add a page to a branch; the cursor stays, or goes from the row that fetched it to the page."""
        window = self._windows.setdefault(node.id, Window(first=offset))
        before = offset < window.first
        # The first page may reach into the window.
        rows = rows[: window.first - offset] if before else rows
        cursor = self.cursor_node
        window.total = total
        for child in [child for child in node.children if isinstance(child.data, More)]:
            child.remove()
        # The rows that always come first: files that could not be read, what waits, and folders.
        fixed = fixed_rows(node)
        new = [self._add(node, row, fixed + n if before else None) for n, row in enumerate(rows)]
        window.nodes = [*new, *window.nodes] if before else [*window.nodes, *new]
        window.first = offset if before else window.first
        self._trim(window, at_end=before)
        self._add_more_rows(node, window, fixed)
        # Asking for the last line numbers the lines, so that the cursor moves before they are drawn.
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
            node.add_leaf("", data=more, before=fixed)
        if window.end < window.total:
            more = More(window.end, window.total - window.end, False)
            node.add_leaf("", data=more)

    def _add(self, node: TreeNode[Any], row: Any, index: int | None) -> TreeNode[Any]:
        """Add a row at a place of its branch, None for the end, and return its node."""
        branch = isinstance(row, Item) and row.chunks > 0
        where = index if index is not None and index < len(node.children) else None
        return node.add("", data=row, before=where, allow_expand=branch)

    def put_folders(self, node: TreeNode[Any], folders: Sequence[Folder]) -> None:
        """Show the folders of a branch, closed."""
        first = fixed_rows(node)
        for index, folder in enumerate(folders):
            where = first + index
            node.add("", data=folder, before=where if where < len(node.children) else None)

    def add_collection(self, collection: CollectionRow) -> TreeNode[Any]:
        """Add a collection, closed, and return its node."""
        node = self.root.add("", data=collection)
        self._add_fixed(node, collection)
        return node

    def update_waiting(self, node: TreeNode[Any], collection: CollectionRow) -> None:
        """Show how much of a collection waits now, where nothing else has changed."""
        node.data = collection
        for child in node.children:
            if isinstance(child.data, WaitingFiles):
                child.data = WaitingFiles(collection)
        self.draw_again(node)

    def draw_again(self, node: TreeNode[Any]) -> None:
        """Draw a row and those below it from what their data is now: the tree keeps each line that was drawn once."""
        node.refresh()
        self.refresh()

    # ------------------------------------------------------------ drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw lines in a style that is computed once; once a line it took a fifth of the time."""
        self._line_style = super().rich_style
        lines = super().render_lines(crop)
        self._line_style = None
        return lines

    @property
    def rich_style(self) -> Style:
        return self._line_style or super().rich_style

    def render_label(self, node: TreeNode[Any], base_style: Style, style: Style) -> Text:
        """Draw a row with its marks and numbers, in the theme's colors."""
        arrow = ("▾ " if node.is_expanded else "▸ ") if node.allow_expand else ""
        text = Text(arrow, base_style)
        for part, tone in self._parts(node.data, self.size.width - self.guide_depth * _depth(node) - len(arrow)):
            plain = style + Style(bold=True) if tone == "bold" else style
            text.append(part, plain if tone in ("", "bold") else color(self.app.theme_variables, tone))
        return text

    def _parts(self, row: Any, columns: int) -> list[tuple[str, str]]:
        """Return the parts of a row with their tones: a color of the theme, `bold`, or empty for none."""
        match row:
            case Item():
                mark, _, tone = ("✓", "", "accent") if row.id in self.marked else STATE_MARKS[row.state]
                number = f"  {row.chunks:,}"
                title = cut_right(row.title, max(columns - len(number) - 4, 8))
                return [(f"{mark} ", tone), (title, ""), (number, "muted")]
            case CollectionRow():
                name = f"{row.origin}/{row.name}" if row.origin else row.name
                read_only = "  read-only" if row.origin else ""
                return [(name, "bold"), (f"  {row.documents:,}", "muted"), (read_only, "warning")]
            case Folder():
                return self._folder_parts(row)
            case PassageLine():
                number = f"{row.position + 1:>3}  "
                return [(number, "muted"), (cut_right(row.heading or row.beginning, max(columns - 8, 8)), "")]
            case WaitingFiles():
                return [(f"◌ {row.words}", "accent")]
            case UnreadFiles():
                return [(f"✗ {counted(row.collection.unread, 'file')} could not be read", "error")]
            case More():
                return [(f"… {row.left:,} {'before' if row.before else 'more'} (enter)", "accent")]
            case Unread():
                return [(f"✗ {short(row.path)}", "")]
            case WaitingFile():
                return [(f"◌ {short(row.title)}  {waits_for(row)}", "")]
            case Trash():
                return [(f"Trash  {len(row.items)}", "")]
            case _:
                return [(row.title if isinstance(row, Trashed) else "", "")]

    def _folder_parts(self, folder: Folder) -> list[tuple[str, str]]:
        state = self.folder_states.get(folder.path, FolderState())
        counts = (
            ("✗", folder.unread, "error"), ("✎", state.changed, "warning"), ("○", state.missing, "foreground"),
            ("◌", state.waiting, "accent"),
        )  # fmt: skip
        name = cut_right(f"{folder.name}{os.sep}", max(self.size.width - 20, 8))
        marks = [(f"  {mark} {count:,}", tone) for mark, count, tone in counts if count]
        return [(name, ""), (f"  {folder.documents:,}", "muted"), *marks]

    def get_label_width(self, node: TreeNode[Any]) -> int:
        """Skip measuring, which would draw every row: rows are truncated anyway."""
        return 1 if isinstance(node.data, Item | Folder | PassageLine | More) else super().get_label_width(node)


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


def _depth(node: TreeNode[Any]) -> int:
    """Return how many guides precede a node."""
    return 0 if node.parent is None or node.parent.is_root else 1 + _depth(node.parent)
