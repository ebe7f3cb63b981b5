"""A pane with a line to type into, the list of what fits, and the highlighted row beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.getters import query_one
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localmcp.tui.forms import PathScreen, TextScreen, ask_screen
from localmcp.tui.pane import Choices, Pane, TextLine, list_option

MOST_ROWS = 300
"""Rows of the list that are built."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the list, and what is shown beside it."""

    key: str
    """Tells it from all others, also after a reload."""
    title: Content
    about: Content = field(default_factory=lambda: Content(""))
    group: str = ""
    """The heading above it and its neighbors of that group."""
    record: Any = field(default=None, compare=False)
    """What it represents."""


class ListPane(Pane):
    """The base of every pane but Search and Library."""

    PLACEHOLDER: ClassVar[str] = ""
    LIST_TITLE: ClassVar[str] = ""
    VIEW_TITLE: ClassVar[str] = ""
    NEED_ROW: ClassVar[tuple[str, ...]] = ("copy",)
    """Actions on the highlighted row."""

    rows: Sequence[Row] = ()
    _rows_are_for: str | None = None
    """The text that they answer; None at first."""
    line = query_one("#line", Input)
    list = query_one("#list", Choices)

    def compose(self) -> ComposeResult:
        with Horizontal(classes="row"):
            yield TextLine(placeholder=self.PLACEHOLDER, classes="framed", id="line")
            yield Static(classes="aside hidden", id="aside")
        with Horizontal(classes="split"):
            choices = Choices(classes="framed left", id="list")
            choices.border_title = self.LIST_TITLE
            yield choices
            with Vertical(classes="right", id="right"):
                yield from self.compose_right()

    def compose_right(self) -> Iterable[Widget]:
        """Return what is beside the list."""
        with VerticalScroll(classes="framed", id="view") as box:
            box.border_title = self.VIEW_TITLE
            yield Static(id="view-text")

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
        if self.list.display:
            self.list.focus()
        else:
            self.query("#right VerticalScroll").first().focus()

    action_list = focus_first

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return bool(self.rows) if action in self.NEED_ROW else super().check_action(action, parameters)

    # ------------------------------------------------------------ rows

    def reload(self) -> None:
        if self.session.is_open:
            text = self.text
            self.ask("look up", lambda: self.find(text), self.show_rows)

    @abstractmethod
    def find(self, text: str) -> Sequence[Row]:
        """Return what fits the text; for a thread that may wait."""

    @on(Input.Changed, "#line")
    def typed(self) -> None:
        self.ask_after_typing("look up", self.reload)

    @on(Input.Submitted, "#line")
    def submitted(self) -> None:
        self.focus_first()

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Put rows into the list; the one that was highlighted stays so if it is still there.

        If it was removed, the one in its place is highlighted; after other words the first.
        """
        if (list(rows[:MOST_ROWS]), self.text) == (list(self.rows), self._rows_are_for):
            return
        stays = self.text in ("", self._rows_are_for)
        before = self.chosen.key if self.chosen is not None and stays else None
        index = self.list.highlighted if before is not None and self.text == self._rows_are_for else None
        had = bool(self.rows)
        self.rows, self._rows_are_for = rows[:MOST_ROWS], self.text
        options: list[Option] = []
        group = ""
        for number, row in enumerate(self.rows):
            if row.group != group:
                group = row.group
                options.append(list_option(group, ""))
            options.append(list_option(row.title, str(number)))
        self.list.set_options(options)
        places = [n for n, option in enumerate(options) if not option.disabled]
        same = [n for n in places if self.rows[int(options[n].id or 0)].key == before]
        behind = [n for n in places if index is not None and n >= index] or (places[-1:] if index else [])
        self.list.highlighted = (same or behind or places or [None])[0]
        cut = f" of {len(rows):,}" if len(rows) > len(places) else ""
        self.list.border_subtitle = f"{len(places):,}{cut}" if places else ""
        if had != bool(places):
            self.refresh_bindings()
        self.say_nothing_is_here(not places)
        if not places:
            self.show_nothing()
        self.keep_focus()

    def show_nothing(self) -> None:
        """Say what belongs here, and how to add it, since the list is empty."""
        self.show(self.VIEW_TITLE, Content(""))

    def show_row(self, row: Row) -> None:
        """Show the highlighted row beside the list."""
        self.show(self.VIEW_TITLE, row.about)

    def show(self, title: str, text: Content) -> None:
        """Show a text beside the list; of the same title, it stays where it was scrolled to."""
        box, line = self.query_one("#view"), self.query_one("#view-text", Static)
        if text != line.content:
            line.update(text)
            if str(box.border_title) != title:
                box.border_title = Content(title)
                box.scroll_home(animate=False)

    @on(OptionList.OptionHighlighted, "#list")
    def highlighted(self) -> None:
        if self.chosen is not None:
            self.show_row(self.chosen)

    # ------------------------------------------------------------ actions

    def import_file(self, title: str, says: str, tool: str, then: Callable[[Any], object]) -> None:
        """Ask for a path, and hand it to a tool that imports it."""

        def chosen(path: str) -> None:
            self.ask("import", lambda: self.session.call(tool, path=path), then)

        ask_screen(self, PathScreen(title, says), chosen)

    def read_over(self, title: str, text: Content, copy: str | None = None) -> None:
        """Show a text over the whole screen, since a narrow one has no space beside the list."""
        self.app.push_screen(TextScreen(title, text, copy=copy))


def left_out(problems: Sequence[Mapping[str, str]]) -> str:
    """Return what an import could not read, in a few words: the reason if it is one file, else how many."""
    if len(problems) > 1:
        return f"{len(problems):,} could not be read"
    return f"left out {problems[0]['where']}: {problems[0]['problem']}"
