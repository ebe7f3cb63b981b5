"""The base of the panes: one line to type into, one list of rows, and one reader, which shows the highlighted row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.getters import query_one
from textual.visual import Visual
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localmcp.tui.widgets import Asking, Choices, Reader, TextLine, list_option

MOST_ROWS = 300
"""Rows of the list that are built."""
NARROW = 100
"""Columns of a screen below which there is no space for a reader beside the list."""


class Pane(Vertical, Asking):
    """The base of the panes."""

    TITLE: ClassVar[str] = ""
    stale = True
    """Whether it must be reloaded when it comes to the front."""

    @property
    def is_narrow(self) -> bool:
        """Whether the screen has no space for a reader beside the list."""
        return self.app.size.width < NARROW

    def come_to_front(self) -> None:
        """Reload the pane if it is stale, and take the focus."""
        if self.stale:
            self.stale = False
            self.reload()
        self.focus_first()

    def file_changed(self, counters: dict[str, int]) -> None:
        """Reload, since the file changed; called for the pane in front, while the others become stale."""
        self.reload()

    @abstractmethod
    def reload(self) -> None:
        """Show what is in the file now."""

    @abstractmethod
    def focus_first(self) -> None:
        """Put the focus where the person most likely begins."""

    @abstractmethod
    def focus_filter(self) -> None:
        """Put the cursor into the line that chooses what the pane shows."""

    def read_over(self, title: str, text: Content, copy: str | None = None) -> None:
        """Show a text over the whole screen, since a narrow one has no space beside the list."""
        from localmcp.tui.dialogs import TextScreen

        self.app.push_screen(TextScreen(title, text, copy=copy))

    def keep_focus(self) -> None:
        """Move the focus if what had it is hidden now."""
        focused = self.screen.focused
        lost = focused is None or self not in focused.ancestors or not all(
            part.display for part in focused.ancestors_with_self if isinstance(part, Widget)
        )  # fmt: skip
        if self.display and lost:
            self.focus_first()


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a list or a tree, and what is shown beside it."""

    key: str
    """Tells it from all others, also after a reload."""
    title: Content | Visual
    about: Content = field(default_factory=lambda: Content(""))
    group: str = ""
    """The heading above it and its neighbors of that group."""
    record: Any = field(default=None, compare=False)
    """What it represents."""


class ListPane(Pane):
    """A line to type into, the rows that fit, and the reader."""

    PLACEHOLDER: ClassVar[str] = ""
    LIST_TITLE: ClassVar[str] = ""
    FOLLOWS_TOP: ClassVar[bool] = False
    """Whether the first row stays highlighted when another becomes the first."""
    NEED_ROW: ClassVar[tuple[str, ...]] = ("copy",)
    """Actions on the highlighted row."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("down,escape", "list", "List")]

    rows: Sequence[Row] = ()
    _rows_are_for: str | None = None
    """The text that they answer; None at first."""
    line = query_one("#line", Input)
    list = query_one("#list", Choices)
    reader = query_one("#reader", Reader)

    def compose(self) -> ComposeResult:
        with Horizontal(classes="row"):
            yield TextLine(placeholder=self.PLACEHOLDER, classes="framed", id="line")
            yield Static(classes="aside hidden", id="aside")
        yield from self.compose_below()

    def compose_below(self) -> Iterable[Widget]:
        """Return what is below the line."""
        with Horizontal(classes="split"):
            yield Choices(classes="framed left", id="list")
            yield Reader(classes="framed right", id="reader")

    @property
    def text(self) -> str:
        """The typed text."""
        return self.line.value.strip()

    @property
    def chosen(self) -> Row | None:
        """The row that is highlighted."""
        option = self.list.highlighted_option
        return self.rows[int(option.id)] if option is not None and option.id else None

    def say_aside(self, text: str) -> None:
        """Show a word beside the line; empty hides it."""
        aside = self.query_one("#aside", Static)
        aside.update(text)
        aside.set_class(not text, "hidden")

    def focus_filter(self) -> None:
        self.line.focus()

    def focus_first(self) -> None:
        """Focus the list, so that letters are keys; where it is hidden, the words in its place."""
        (self.list if self.list.display else self.reader).focus()

    action_list = focus_first

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what is done to a row only where there is one, and the way to the list only beside it."""
        if action == "list":
            return self.screen.focused in (self.line, self.reader)
        return bool(self.rows) if action in self.NEED_ROW else True

    # ------------------------------------------------------------ rows

    def reload(self) -> None:
        if self.session.is_open:
            text = self.text
            self.ask("rows", lambda: self.find(text), self.show_rows)

    @abstractmethod
    def find(self, text: str) -> Sequence[Row]:
        """Return what fits the text; for a thread that may wait."""

    @on(Input.Changed, "#line")
    def typed(self) -> None:
        self.ask_after_typing("rows", self.reload)

    @on(Input.Submitted, "#line")
    def submitted(self) -> None:
        self.action_list()

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Put rows into the list; the one that was highlighted stays so if it is still there.

        If it was removed, the one in its place is highlighted; after other words the first.
        """
        if (list(rows[:MOST_ROWS]), self.text) == (list(self.rows), self._rows_are_for):
            return
        same_text = self.text == self._rows_are_for
        place = self.list.highlighted
        is_kept = self.chosen is not None and (same_text or not self.text)
        before = self.chosen.key if self.chosen and is_kept and not (self.FOLLOWS_TOP and place == 0) else None
        had = bool(self.rows)
        self.rows, self._rows_are_for = rows[:MOST_ROWS], self.text
        options: list[Option] = []
        group = ""
        for number, row in enumerate(self.rows):
            if row.group != group:
                group = row.group
                options.append(list_option(group, ""))
            options.append(list_option(row.title, str(number)))
        with self.prevent(OptionList.OptionHighlighted):
            self.list.set_options(options)
            places = [n for n, option in enumerate(options) if not option.disabled]
            same = [n for n in places if self.rows[int(options[n].id or 0)].key == before]
            behind = [n for n in places if n >= (place or 0)] or places[-1:] if before and same_text else []
            self.list.highlighted = (same or behind or places or [None])[0]
        self.list.border_title = self.LIST_TITLE
        cut = f" of {len(rows):,}" if len(rows) > len(places) else ""
        self.list.border_subtitle = f"{len(places):,}{cut}" if places else ""
        self.set_class(not places, "-nothing")
        if had != bool(places):
            self.refresh_bindings()
        self.highlighted()
        self.keep_focus()

    @on(OptionList.OptionHighlighted, "#list")
    def highlighted(self) -> None:
        """Show the highlighted row beside the list; without any, what belongs there."""
        if self.chosen is not None:
            self.show_row(self.chosen)
        else:
            self.reader.show("", Content.from_markup(self.nothing()))

    def show_row(self, row: Row) -> None:
        """Show a row beside the list."""
        self.reader.show(self.LIST_TITLE, row.about)

    def nothing(self) -> str:
        """Return what to say of an empty list, as the program's own markup: what belongs here, and how to add it."""
        return ""

    @on(OptionList.OptionSelected, "#list")
    def selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Enter: read the row, on a narrow screen over the whole screen."""
        if not self.is_narrow:
            self.reader.focus()
        elif self.chosen is not None:
            self.read_over(str(self.reader.border_title), self.reader.text)
