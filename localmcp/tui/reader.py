"""The reader: a whole document over the screen, with its outline, its links, its tables, and a search inside."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.getters import query_one
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import DataTable, Footer, Input, OptionList
from textual.widgets.option_list import Option

from localmcp.index.federation import shown_name, split_name
from localmcp.library.lists import Item
from localmcp.readers.outline import BEGINNING
from localmcp.schemas import Json
from localmcp.tui.dialogs import TextScreen, choose
from localmcp.tui.markdown import Line, Link, renderer_of
from localmcp.tui.widgets import (
    Asking,
    Choices,
    DocumentKeys,
    Quiet,
    TextLine,
    inventory_of,
    look_around,
    place_of,
    short,
)

if TYPE_CHECKING:
    from localmcp.tui.search import Matcher

DRAWN = 20
"""Passages that are drawn around the one that is meant, and beyond the last one."""
COLUMN = 100
"""Columns of text at most: longer lines are hard to follow."""
LEAD = 3
"""Lines above the one that is shown."""


class ReadingView(ScrollView, can_focus=True):
    """Lines of text."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Quiet("j", "scroll_down", "Down"), Quiet("k", "scroll_up", "Up"), Quiet("space", "page_down", "Page down"),
    ]  # fmt: skip

    lines: Sequence[Line] = ()
    indent = 0
    link: tuple[int, Link] | None = None
    """The line with the link that is highlighted, and the link."""

    def put(self, lines: list[Line], indent: int) -> None:
        """Replace the text."""
        self.lines, self.indent, self.link = lines, indent, None
        self.virtual_size = Size(max(self.size.width - 1, 1), len(lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number = y + round(self.scroll_offset.y)
        width, style = self.size.width, self.rich_style
        if number >= len(self.lines):
            return Strip.blank(width, style)
        link = self.link[1] if self.link is not None and self.link[0] == number else None
        strip = renderer_of(self).strip(self.lines[number], self.indent, link)
        return strip.adjust_cell_length(width).apply_style(style)

    def show_line(self, line: int) -> None:
        """Scroll until a line is near the top."""
        self.scroll_to(y=max(line - LEAD, 0), animate=False, force=True)


class ReaderScreen(Screen[None], DocumentKeys):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A document, from one of its passages on."""

    HELP = "A whole document. The passage that was found has a bar at its left; tab goes from link to link."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "close", "Back"), Binding("slash", "find", "Find"),
        Binding("n", "match(1)", "Next"), Quiet("N,p", "match(-1)", "Previous match"),
        Quiet("g,home", "edge(0)", "Beginning", priority=True), Quiet("G,end", "edge(-1)", "End", priority=True),
        Binding("c", "outline", "Outline"), Binding("tab", "link(1)", "Link"),
        Quiet("shift+tab", "link(-1)", "Previous link"), Quiet("enter", "follow", "Follow the link"),
        Binding("b", "linking", "What links here"), Binding("t", "tables", "Table"), Binding("y", "cite", "Cite"),
        Quiet("Y", "copy", "Copy passage"), Binding("o", "original", "Open"), Quiet("e", "edit", "Edit"),
    ]  # fmt: skip
    view = query_one(ReadingView)
    outline = query_one("#outline", Choices)

    def __init__(
        self, chunk_id: str, matcher: Matcher | None = None, freshness: str = "fresh", heading: str = ""
    ) -> None:
        """`heading`: where to begin instead, as a link names it."""
        super().__init__()
        self.target, self.matcher, self.freshness, self._heading = chunk_id, matcher, freshness, heading
        self.about: Json = {}
        self.passages: list[Json] = []
        self.headings: list[tuple[str, int]] = []
        """The lines of the outline, each with the position of the passage that holds it."""
        self.term = ""
        """The text that is searched for in the document."""
        self._drawn = range(0)
        """Positions of the passages that are drawn."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="reading-row"):
            yield Choices(classes="framed hidden", id="outline")
            with Vertical():
                yield ReadingView(classes="framed", id="reading")
                yield TextLine(placeholder="Find in this document", classes="framed hidden", id="find")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.outline.border_title = "Outline"
        self.watch(self.view, "scroll_y", self._scrolled, init=False)
        self.app.theme_changed_signal.subscribe(self, lambda _: self.on_resize())

        def read() -> tuple[Json, list[Json], list[tuple[str, int]]]:
            about = self.session.look(lambda w: look_around(w, self.target, 0))
            passages: list[Json] = []
            offset: int | None = 0
            while offset is not None:
                page = self.session.read("get_document", sourceId=about["sourceId"], offset=offset)
                passages += page["chunks"]
                offset = page.get("nextOffset")
            outline = self.session.read("get_document", sourceId=about["sourceId"], outline=True).get("outline", ())
            return about, passages, [(e["heading"], e["offset"]) for e in outline if e["heading"] != BEGINNING]

        def show(answer: tuple[Json, list[Json], list[tuple[str, int]]]) -> None:
            self.about, self.passages, self.headings = answer
            self.refresh_bindings()
            self.outline.set_options(Option(Content(text), id=str(n)) for n, (text, _) in enumerate(self.headings))
            if len(self.headings) > 2 and self.size.width >= COLUMN + 30:
                self.outline.remove_class("hidden")
            place = self._place_of(self._heading)
            if place is None:
                place = next((n for n, passage in enumerate(self.passages) if passage["id"] == self.target), 0)
            # The width of the text is known after the outline has its place.
            self.call_after_refresh(self._go_to, place)

        self.ask("passages", read, show)
        self.view.focus()

    def _place_of(self, heading: str) -> int | None:
        """Return the passage with a heading, which links write with hyphens and without signs."""
        slug = partial(re.sub, r"\W+", "")
        fitting = (place for text, place in self.headings if slug(text.casefold()) == slug(heading.casefold()) != "")
        return next(fitting, None)

    # ------------------------------------------------------------ drawing

    def _scrolled(self, old: float, new: float) -> None:
        """Draw what is beyond the first or the last passage when the person gets near, once the scrolling is done."""
        height, before = self.view.size.height, len(self.view.lines)
        if new > old and new + 3 * height > before and self._drawn.stop < len(self.passages):
            self.call_later(self._draw_more, after=DRAWN)
        elif new < old and new < 2 * height and self._drawn.start > 0:
            self.call_later(self._draw_more, before=DRAWN)

    def _draw_more(self, before: int = 0, after: int = 0) -> None:
        view, link, count, offset = self.view, self.view.link, len(self.view.lines), self.view.scroll_offset.y
        self._draw(range(self._drawn.start - before, self._drawn.stop + after))
        if before:
            view.scroll_to(y=offset + len(view.lines) - count, animate=False, force=True)
        else:
            view.link = link

    def on_resize(self) -> None:
        """Break the lines anew; the passage at the top stays there."""
        if self._drawn:
            passage = self.view.lines[self._top_line].passage
            self._draw()
            self.view.show_line(self._lines_of(passage)[0])

    def _draw(self, drawn: range | None = None) -> None:
        drawn = self._drawn if drawn is None else drawn
        self._drawn = range(max(drawn.start, 0), min(drawn.stop, len(self.passages)))
        beside = 0 if self.outline.has_class("hidden") else self.outline.outer_size.width
        available = max(self.size.width - 4 - beside, 24)
        width = min(available, COLUMN)
        chunks = self.passages[self._drawn.start : self._drawn.stop]
        around = {**self.about, "chunks": chunks, "targetChunkId": self.target}

        def spans(line: str) -> list[tuple[int, int]]:
            if self.term:
                return [match.span() for match in re.finditer(re.escape(self.term), line, re.IGNORECASE)]
            return self.matcher.spans(line) if self.matcher else []

        lines = renderer_of(self).lines(around, width, spans, self.term)
        self.view.put(lines, (available - width) // 2)
        self.view.border_title = Content(f"{self.about['sourceTitle']} — {place_of(self.about['citation'])}")
        self.view.border_subtitle = f"whole document, {len(self.passages):,} passages"

    def _lines_of(self, position: int) -> list[int]:
        return [n for n, line in enumerate(self.view.lines) if line.passage == position]

    @property
    def _top_line(self) -> int:
        return min(round(self.view.scroll_offset.y) + LEAD, len(self.view.lines) - 1)

    @property
    def _top(self) -> Json:
        return self.passages[self.view.lines[self._top_line].passage]

    def _go_to(self, position: int) -> None:
        """Make a passage the one that is meant, draw it, and show it near the top, at its first match if it has one."""
        if not self.passages:
            return
        self.target = self.passages[position]["id"]
        if position in self._drawn:
            self._draw_more()
        else:
            self._draw(range(position - DRAWN // 2, position + DRAWN))
        lines = self._lines_of(position)
        matches = [n for n in lines if self.term and self.view.lines[n].has_match]
        self.call_after_refresh(self.view.show_line, (matches or lines)[0])

    # ------------------------------------------------------------ moving

    def action_outline(self) -> None:
        """Show the outline and go there; from it, back to the text."""
        if self.focused is self.outline:
            self.view.focus()
            self.outline.add_class("hidden")
        elif self.headings:
            self.outline.remove_class("hidden")
            self.outline.focus()
        self.call_after_refresh(self.on_resize)

    @on(OptionList.OptionSelected, "#outline")
    def open_heading(self, message: OptionList.OptionSelected) -> None:
        self._go_to(self.headings[int(message.option_id or 0)][1])
        self.view.focus()

    def action_find(self) -> None:
        line = self.query_one("#find", Input)
        line.remove_class("hidden")
        line.focus()

    @on(Input.Submitted, "#find")
    def find(self, message: Input.Submitted) -> None:
        """Look for a text in the whole document, from the top of the screen on."""
        message.stop()
        self.term = message.value.strip()
        message.input.set_class(not self.term, "hidden")
        self.view.focus()
        self._draw()
        if self.term and not self._go_to_match(self._top["chunkIndex"], 1) and not self._go_to_match(0, 1):
            self.app.notify(f"“{self.term}” is not in this document.", severity="warning")

    def _go_to_match(self, position: int, step: int) -> bool:
        term = self.term.casefold()
        places = range(position, len(self.passages)) if step > 0 else range(position, -1, -1)
        place = next((n for n in places if term in self.passages[n]["content"].casefold()), None)
        if place is not None:
            self._go_to(place)
        return place is not None

    def action_match(self, step: int) -> None:
        """Go to the next or previous line with a match."""
        here = round(self.view.scroll_offset.y) + LEAD
        places = [n for n, line in enumerate(self.view.lines) if line.has_match]
        ahead = [n for n in places if (n > here if step > 0 else n < here)]
        if ahead:
            self.view.show_line(ahead[0] if step > 0 else ahead[-1])
        elif self.term:
            self._go_to_match(self._drawn.stop if step > 0 else self._drawn.start - 1, step)

    def action_edge(self, place: int) -> None:
        """Go to the beginning (0) or the end (-1) of the document."""
        self._go_to(place % len(self.passages))
        self.call_after_refresh(self.view.scroll_end if place else self.view.scroll_home, animate=False)

    # ------------------------------------------------------------ links

    def action_link(self, step: int) -> None:
        """Highlight the next or previous link, from the top of the screen on."""
        self.view.focus()
        lines, links = self.view.lines, list[tuple[int, Link]]()
        for number, line in enumerate(lines):
            for link in line.links:
                # What the end of a line breaks is one link.
                is_rest = links and links[-1][0] == number - 1 and links[-1][1].target == link.target and link.start < 3
                if not is_rest:
                    links.append((number, link))
        top, height = round(self.view.scroll_offset.y), self.view.scrollable_content_region.height
        current = self.view.link
        if current is None or not top <= current[0] < top + height:
            current = top - (step > 0), Link(0, 0, "")
        ahead = [place for place in links if (place > current if step > 0 else place < current)]
        if not ahead:
            later = range(self._drawn.stop, len(self.passages)) if step > 0 else ()
            further = next((n for n in later if re.search(r"\]\(|\[\[|://", self.passages[n]["content"])), None)
            if further is None:
                self.app.notify("No link is further on." if step > 0 else "No link is before this one.")
                return
            self._draw_more(after=further + 1 - self._drawn.stop)
            self.action_link(step)
            return
        self.view.link = place = ahead[0] if step > 0 else ahead[-1]
        if not top <= place[0] < top + height:
            self.view.show_line(place[0])
        self.view.refresh()

    def action_follow(self) -> None:
        """Open the document that the highlighted link leads to; of an address, show it, to be copied."""
        if self.view.link is None:
            return
        target = self.view.link[1].target
        if re.match(r"(?!wiki:)[a-zA-Z][a-zA-Z0-9+.-]+:", target):
            self.app.push_screen(TextScreen("Address of the link", Content(target)))
            return
        heading = target.partition("#")[2]
        if target.startswith("#"):
            place = self._place_of(heading)
            if place is not None:
                self._go_to(place)
            return
        origin, path = self.about.get("origin"), self.about["citation"].get("path")

        def show(item: Item | None) -> None:
            if item is None:
                self.app.notify(f"No document of the library is {target.removeprefix('wiki:')}.", severity="warning")
            else:
                open_document(self, item, origin, heading)

        self.look("link", lambda workspace: inventory_of(workspace, origin).linked(path, target), show)

    def action_linking(self) -> None:
        """List the documents that link here, to open one."""
        origin, source_id = self.about.get("origin"), split_name(self.about["sourceId"])[1]

        def show(items: list[Item]) -> None:
            if not items:
                self.app.notify("No document links here.")
                return
            rows = [(item.title, short(item.path or item.collection)) for item in items]
            choose(self, "These link here", rows, lambda number: open_document(self, items[number], origin))

        self.look("linking", lambda workspace: inventory_of(workspace, origin).linking_to(source_id), show)

    # ------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let keys wait for the document, which may have been removed meanwhile."""
        if action == "edge" and self.focused is not self.view:
            return False
        return action == "close" or bool(self._drawn)

    def action_close(self) -> None:
        """Leave the search inside the document; else leave the document."""
        line = self.query_one("#find", Input)
        if self.focused is line or self.term:
            line.value = self.term = ""
            line.add_class("hidden")
            self.view.focus()
            self._draw()
        else:
            self.dismiss()

    def use_document(self, use: Callable[[Json], object]) -> None:
        """Hand over the citation of the passage at the top."""
        chunk_id, named = self._top["id"], {"title": self.about["sourceTitle"], "freshness": self.freshness}
        self.look("citation", lambda w: {**named, **look_around(w, chunk_id, 0)["citation"]}, use)

    def action_copy(self) -> None:
        self.copy(self._top["content"], "The passage is copied.")

    def action_tables(self) -> None:
        """Show the table of the document; of several, ask which."""

        def show(answer: Json) -> None:
            tables: list[Json] = answer["tables"]
            if not tables:
                self.app.notify("This document has no table of three rows or more.")
            elif len(tables) == 1:
                self.app.push_screen(TableScreen(tables[0]))
            else:
                rows = [(table["name"], f"{table['rows']:,} rows") for table in tables]
                title = "Tables of this document"
                choose(self, title, rows, lambda number: self.app.push_screen(TableScreen(tables[number])))

        source_id = self.about["sourceId"]
        self.ask("tables", lambda: self.session.read("list_tables", document=source_id, limit=100), show)


def open_document(widget: Asking, item: Item, origin: str | None = None, heading: str = "") -> None:
    """Open a document at a heading, or at its beginning. `origin`: the mounted file that it is in."""

    def show(chunk_id: str) -> None:
        if chunk_id:
            widget.app.push_screen(ReaderScreen(shown_name(chunk_id, origin), None, item.state, heading))
        else:
            widget.app.notify(f"{item.title} has no text.")

    widget.ask("document", lambda: inventory_of(widget.session.workspace, origin).passage_at(item.id), show)


# ---------------------------------------------------------------- tables


class TableScreen(Screen[None], Asking):  # pyright: ignore[reportIncompatibleMethodOverride]
    """The rows of a table as they are in the file now."""

    HELP = "A table of the document. s, or a click on its head, sorts by a column; once more turns the order."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,backspace", "dismiss", "Back"), Binding("s", "sort", "Sort by this column"),
        Binding("y", "copy", "Copy cell"),
    ]  # fmt: skip

    def __init__(self, described: Json) -> None:
        """`described`: an item of the answer of `list_tables`."""
        super().__init__()
        self._described = described
        self._answer: Json = {"columns": [], "rows": []}
        self._sorted_by = (-1, False)
        """A column, and whether the largest are first."""

    @property
    def table(self) -> DataTable[Any]:
        """The rows that are shown."""
        return cast(Any, self).query_one(DataTable)

    def compose(self) -> ComposeResult:
        yield DataTable[Any](classes="framed", id="table", zebra_stripes=True)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.table.border_title = Content(f"{self._described['name']} — {self._described['document']}")
        self._ask()

    def _ask(self, column: int = -1) -> None:
        """Ask for the rows by a column: there may be more than an answer holds. The same again turns the order."""
        is_turned = self._sorted_by == (column, False)
        self._sorted_by = column, is_turned
        names = self._described["name"], self._answer["columns"][column] if column >= 0 else ""
        table, by = ('"' + name.replace('"', '""') + '"' for name in names)
        order = f"order by {by} is null, {by} {'desc' if is_turned else ''}" if column >= 0 else ""

        def show(answer: Json) -> None:
            self._answer = answer
            says = [f"{self._described['rows']:,} rows", *answer.get("notices", ())]
            self.table.border_subtitle = Content(" · ".join(says))
            self.table.clear(columns=True)
            for number, name in enumerate(answer["columns"]):
                # A plain text would be markup.
                self.table.add_column(Text(f"{name}{'' if number != column else ' ▼' if is_turned else ' ▲'}"))
            for row in answer["rows"]:
                self.table.add_row(
                    *(
                        Text(f"{cell:,}" if abs(cell) >= 10_000 else str(cell), justify="right")
                        if isinstance(cell, int | float)
                        else Text("" if cell is None else " ".join(str(cell).split()))
                        for cell in row
                    )
                )
            self.table.move_cursor(row=0, column=max(column, 0))

        self.ask("rows", lambda: self.session.read("query_table", sql=f"select * from {table} {order}"), show)

    @on(DataTable.HeaderSelected)
    def head_clicked(self, message: DataTable.HeaderSelected) -> None:
        self._ask(message.column_index)

    def action_sort(self) -> None:
        if self._answer["rows"]:
            self._ask(self.table.cursor_column)

    def action_copy(self) -> None:
        if rows := self._answer["rows"]:
            value = rows[self.table.cursor_row][self.table.cursor_column]
            self.copy("" if value is None else str(value), "The cell is copied.")
