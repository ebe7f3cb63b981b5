"""The Library's tree as it is drawn; it reads nothing itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from rich.style import Style
from rich.text import Text
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from localmcp.humanize import counted
from localmcp.library.inventory import Folder, FolderState, Item, PassageLine, Unread, WaitingFile
from localmcp.tui.keymap import bindings
from localmcp.tui.library_rows import (
    STATE_MARKS,
    Branch,
    CollectionRow,
    More,
    Trash,
    Trashed,
    UnreadFiles,
    WaitingFiles,
    key_of,
    waits_for,
)
from localmcp.tui.passages import cut_right, short
from localmcp.tui.theme import color

OPENS = (CollectionRow, Folder, UnreadFiles, WaitingFiles, Trash)


class LibraryTree(Tree[Any]):
    """Collections, folders, documents, passages."""

    BINDINGS = [*bindings("list"), *bindings("branches")]

    def __init__(self, **options: Any) -> None:
        super().__init__("library", **options)
        self.show_root = False
        self.guide_depth = 3
        self.marked: dict[str, Item] = {}
        """Documents that the next removal takes, by their ids."""
        self.folder_states: dict[str, FolderState] = {}
        """By the folder's path."""

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
            self.scroll_to_line(line, animate=False)

    # ------------------------------------------------------------ rows

    def nodes(self) -> Iterator[TreeNode[Any]]:
        """Yield every node from the top on."""
        waiting = [*self.root.children]
        while waiting:
            node = waiting.pop(0)
            yield node
            waiting[:0] = node.children

    def fill(self, branches: Sequence[Branch]) -> None:
        """Replace the tree; the cursor stays on its row, or else on its line."""
        line, offset = self.cursor_line, self.scroll_offset.y
        row = self.cursor_node.data if self.cursor_node is not None else None
        # From the row that represents the next ones, the cursor goes on to the first of these.
        key = "" if isinstance(row, More) else key_of(row)
        self.unselect()
        self.clear()
        self.add_rows(self.root, branches)
        # Asking for the last line numbers the lines.
        last = self.last_line
        shown = [node for node in self.nodes() if node.line >= 0]
        if last >= 0:
            same = next((node for node in shown if key_of(node.data) == key), None)
            self.move_cursor(same or shown[max(0, min(line, last))])
            self.call_after_refresh(self._scroll_back, offset)

    def _scroll_back(self, offset: float) -> None:
        self.scroll_to(y=offset, animate=False, force=True)
        self.scroll_to_line(self.cursor_line, animate=False)

    def add_rows(self, node: TreeNode[Any], branches: Sequence[Branch]) -> None:
        """Put rows below a node, with what is below them where they are open."""
        for branch in branches:
            row = branch.row
            opens = isinstance(row, OPENS) or (isinstance(row, Item) and row.chunks > 0)
            child = node.add("", data=row, allow_expand=opens, expand=branch.below is not None)
            self.add_rows(child, branch.below or ())

    # ------------------------------------------------------------ drawing

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
                return [(f"✗ {counted(row.count, 'file')} could not be read", "error")]
            case More():
                return [(f"… {row.left:,} more (enter)", "accent")]
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
        """Skip measuring, which would draw every row: rows are cut to the width anyway."""
        return 1


def collection_of(node: TreeNode[Any]) -> CollectionRow | None:
    """Return the collection that a row is in; None in the trash."""
    if isinstance(node.data, CollectionRow):
        return node.data
    return collection_of(node.parent) if node.parent is not None else None


def origin_of(node: TreeNode[Any]) -> str | None:
    """Return the mounted file that a row comes from; None for yours."""
    collection = collection_of(node)
    return collection.origin if collection is not None else None


def _depth(node: TreeNode[Any]) -> int:
    """Return how many guides precede a node."""
    return 0 if node.parent is None or node.parent.is_root else 1 + _depth(node.parent)
