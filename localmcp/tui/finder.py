"""A pane with a line to type into, the list of what fits, and the highlighted row beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.getters import query_one
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static

from localmcp.tui.dialogs import PathScreen, ask_screen
from localmcp.tui.pane import Choices, Pane, TextLine, list_option

MOST_ROWS = 300
"""Rows of the list that are built."""


class FinderPane(Pane):
    """The base of the panes Quick starts, Rules and Tools."""

    PLACEHOLDER: ClassVar[str] = ""
    LIST_TITLE: ClassVar[str] = ""

    rows: Sequence[Any] = ()
    """What the list shows, in order; a text is a heading between rows."""
    _rows_are_for = ""
    """The text that they answer."""

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
        return ()

    line = query_one("#line", Input)
    list = query_one("#list", Choices)

    @property
    def text(self) -> str:
        """The typed text."""
        return self.line.value.strip()

    @property
    def chosen(self) -> Any:
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

    def reload(self) -> None:
        if self.session.is_open:
            text = self.text
            self.ask("look up", lambda: self.find(text), self.show_answer)

    @abstractmethod
    def find(self, text: str) -> Any:
        """Return what fits the text; for a thread that may wait."""

    def show_answer(self, answer: Any) -> None:
        """Show what `find` returned."""
        self.show_rows(answer)

    def import_file(self, title: str, says: str, tool: str, then: Callable[[Any], object]) -> None:
        """Ask for a path, and hand it to a tool that imports it."""

        def chosen(path: str) -> None:
            self.ask("import", lambda: self.session.call(tool, path=path), then)

        ask_screen(self, PathScreen(title, says), chosen)

    @on(Input.Changed)
    def typed(self, message: Input.Changed) -> None:
        if message.input is self.line:
            self.ask_after_typing("look up", self.reload)

    @on(Input.Submitted)
    def submitted(self, message: Input.Submitted) -> None:
        if message.input is self.line:
            self.focus_first()

    def show_rows(self, rows: Sequence[Any]) -> None:
        """Put rows into the list; the one that was highlighted stays so if it is still there.

        If it was removed, the one in its place is highlighted; after other words the first.
        """
        before = self.identity(self.chosen) if self.chosen is not None else None
        index = self.list.highlighted if before is not None and self.text == self._rows_are_for else None
        self.rows, self._rows_are_for = rows[:MOST_ROWS], self.text
        drawn = (row if isinstance(row, str) else self.draw(row) for row in self.rows)
        self.list.set_options(list_option(row, str(number)) for number, row in enumerate(drawn))
        places = [n for n, row in enumerate(self.rows) if not isinstance(row, str)]
        same = [n for n in places if before is not None and self.identity(self.rows[n]) == before]
        behind = [n for n in places if index is not None and n >= index] or (places[-1:] if index else [])
        self.list.highlighted = (same or behind or places or [None])[0]
        total = sum(not isinstance(row, str) for row in rows)
        cut = f" of {total:,}" if total > len(places) else ""
        self.list.border_subtitle = f"{len(places):,}{cut}" if places else ""
        self.refresh_bindings()
        self.say_nothing_is_here(not places)
        if not places:
            self.show_nothing()
        self.keep_focus()

    def identity(self, row: Any) -> Any:
        """Return what makes a row the same one after a reload."""
        return row

    @abstractmethod
    def draw(self, row: Any) -> Content:
        """Return a row of the list."""

    def show_nothing(self) -> None:
        """Say what belongs here, and how to add it, since the list is empty."""

    def show_row(self, row: Any) -> None:
        """Show the highlighted row beside the list."""

    @on(OptionList.OptionHighlighted)
    def highlighted(self, message: OptionList.OptionHighlighted) -> None:
        if message.option_list is self.list and self.chosen is not None:
            self.show_row(self.chosen)


def left_out(problems: Sequence[Mapping[str, str]]) -> str:
    """Return what an import could not read, in a few words: the reason if it is one file, else how many."""
    if len(problems) > 1:
        return f"{len(problems):,} could not be read"
    return f"left out {problems[0]['where']}: {problems[0]['problem']}"
