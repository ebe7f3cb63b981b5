"""The base of the panes: one line to type into, one list of rows, and one reader, which shows the highlighted row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.getters import query_one
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localmcp.tui.session import Failed
from localmcp.tui.widgets import Asking, Choices, Reader, TextLine, list_option


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a list, and what is shown beside it."""

    key: str
    """Tells it from all others, also after a reload."""
    title: Content
    about: Content = field(default_factory=lambda: Content(""))
    group: str = ""
    """The heading above it and its neighbors of that group."""
    record: Any = field(default=None, compare=False)
    """What it represents."""


class Pane(Vertical, Asking):
    """A line to type into, the rows that fit, and the reader; on a narrow screen the reader takes the list's place."""

    LIST_TITLE: ClassVar[str] = ""
    PLACEHOLDER: ClassVar[str] = ""
    FOLLOWS_TOP: ClassVar[bool] = False
    """Whether the first row stays highlighted when another becomes the first."""
    NEED_ROW: ClassVar[tuple[str, ...]] = ("copy",)
    """Actions on the highlighted row."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("down,escape", "list", "List")]

    stale = True
    """Whether it must be reloaded when it comes to the front."""
    rows: Sequence[Row] = ()
    _rows_are_for: str | None = None
    """The text that they answer; None at first."""
    _typing: Timer | None = None
    line = query_one("#line", Input)
    list = query_one("#list", Choices)
    reader = query_one("#reader", Reader)

    def compose(self) -> ComposeResult:
        yield TextLine(placeholder=self.PLACEHOLDER, classes="framed", id="line")
        yield Static(id="chips")
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
        option = self.list.highlighted_option if self.rows else None
        return self.rows[int(option.id)] if option is not None and option.id else None

    # ------------------------------------------------------------ coming to the front

    def come_to_front(self) -> None:
        """Reload the pane if it is stale, and take the focus."""
        if self.stale:
            self.stale = False
            self.reload()
        self.focus_first()

    def file_changed(self, counters: dict[str, int]) -> None:
        """Reload, since the file changed; called for the pane in front, while the others become stale."""
        self.reload()

    def reload(self) -> None:
        """Show what fits the text now."""
        if self.session.is_open:
            text = self.text
            self.ask("rows", lambda: self.find(text), self.show_rows)

    def find(self, text: str) -> Sequence[Row]:
        """Return what fits the text; for a thread that may wait."""
        return ()

    @on(Input.Changed, "#line")
    def typed(self) -> None:
        """Reload once the person pauses; the question before is stopped, and its error is over."""
        if self._typing:
            self._typing.stop()
        self.app.post_message(Failed(None))
        self.forget("rows")
        self._typing = self.set_timer(0.03, self.reload)

    @on(Input.Submitted, "#line")
    def submitted(self) -> None:
        self.action_list()

    # ------------------------------------------------------------ focus and keys

    def focus_first(self) -> None:
        """Put the focus where the person most likely begins."""
        self.action_list()

    def action_list(self) -> None:
        """Focus the list, so that letters are keys; where a narrow screen hides it, the words in its place."""
        self.remove_class("-reading")
        is_hidden = self.has_class("-nothing") and self.screen.has_class("-narrow")
        self.call_after_refresh((self.reader if is_hidden else self.list).focus)

    def action_read(self) -> None:
        """Go to the text beside the list."""
        self.add_class("-reading")
        self.call_after_refresh(self.reader.focus)

    def uncover_reader(self) -> None:
        """Show the text in the list's place where a narrow screen has no room for both."""
        if self.screen.has_class("-narrow"):
            self.action_read()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what is done to a row only where there is one, and the way to the list only beside it."""
        if action == "list":
            focused = self.screen.focused
            return focused is self.line or (focused is self.reader and not self.has_class("-nothing"))
        return self.chosen is not None if action in self.NEED_ROW else True

    # ------------------------------------------------------------ rows

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Put rows into the list; the one that was highlighted stays so if it is still there.

        If it was removed, the one in its place is highlighted; after other words the first.
        """
        text = self.text
        if (list(rows), text) == (list(self.rows), self._rows_are_for):
            return
        place, is_same_text, had_rows = self.list.highlighted or 0, text == self._rows_are_for, bool(self.rows)
        keeps = (is_same_text or not text) and not (self.FOLLOWS_TOP and place == 0)
        key = self.chosen.key if self.chosen is not None and keeps else None
        self.rows, self._rows_are_for = rows, text
        options: list[Option] = []
        for number, row in enumerate(rows):
            if row.group and (number == 0 or rows[number - 1].group != row.group):
                options.append(list_option(row.group, ""))
            options.append(list_option(row.title, str(number)))
        with self.prevent(OptionList.OptionHighlighted):
            self.list.set_options(options)
            places = [n for n, option in enumerate(options) if not option.disabled]
            same = [n for n in places if rows[int(options[n].id or 0)].key == key]
            behind = [n for n in places if n >= place] or places[-1:] if key and is_same_text else []
            self.list.highlighted = next(iter(same or behind or places), None)
        self.list.border_title = self.LIST_TITLE
        self.list.border_subtitle = f"{len(rows):,}" if rows else ""
        if self.has_class("-nothing") == bool(rows):
            self.set_class(not rows, "-nothing")
            if self.screen.focused in (self.list, self.reader):
                self.action_list()
        if had_rows != bool(rows):
            self.refresh_bindings()
        self.highlighted()

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
        """Enter: read the row."""
        self.action_read()
